"""The workflows that come with chatops, through the command line: on the demo, which makes one mistake in each, and on
a scripted server, whose model behaves as badly as real ones do.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatops.config.paths import packaged_registry
from tests.support.command_line import CommandLine, Ran
from tests.support.fake_openai import Call, FakeOpenAI, Reply, call, calls, error, says
from tests.support.workflows import answer, gave_up

WEBHOOK = "a webhook that posts to chat"
EDIT = 'replace "Helo" with "Hello" in greet.py'
JSON = ("--output-format", "json")
DEPLOYED = "flows/webhook-posts-chat.json"


def tools_of(ran: Ran) -> list[tuple[str, str]]:
    """Tools and outcomes, in order."""
    return [(one["tool"], one["outcome"]) for one in ran.json["calls"]]


def project(folder: Path, *, expected: str = "Hello, Ada") -> None:
    """A tiny project whose only test fails until the greeting is mended."""
    (folder / "greet.py").write_text('def greet(name):\n    return "Helo, " + name\n')
    (folder / "test_greet.py").write_text(
        "import unittest\nfrom greet import greet\n\n\nclass TestGreeting(unittest.TestCase):\n"
        f'    def test_greets(self):\n        self.assertEqual(greet("Ada"), "{expected}")\n'
    )


class Operator:
    """Someone who approves what is asked."""

    def __init__(self, chatops: CommandLine, *flags: str) -> None:
        self.chatops = chatops
        self.flags = flags

    def __call__(self, *arguments: str) -> Ran:
        return self.chatops(*self.flags, *arguments)

    def run(self, name: str, query: str) -> Ran:
        """Begin a run."""
        return self("workflow", "run", name, query, *JSON)

    def pending(self, ran: Ran, tool: str) -> str:
        """The id of the one call that a paused run waits for."""
        assert ran.code == 3, ran.err
        (one,) = ran.json["pending"]
        assert one["tool"] == tool
        return str(one["id"])

    def approve(self, ran: Ran, tool: str) -> Ran:
        """Approve that call, and go on with the run."""
        assert self("approvals", "approve", self.pending(ran, tool)).code == 0
        return self("workflow", "resume", ran.json["session_id"], *JSON)


@pytest.fixture
def demo(chatops: CommandLine) -> Operator:
    """On the machine as it comes."""
    return Operator(chatops)


# what is there


def test_they_are_there_on_a_machine_as_it_comes_and_can_run(demo: Operator) -> None:
    listed = demo("workflow", "list")
    assert listed.code == 0
    for name in ("components", "code-change", "research"):
        assert name in listed.out
        shown = demo("workflow", "show", name, *JSON).json
        assert shown["errors"] == []


def test_their_tools_are_in_no_role_of_a_chat(demo: Operator) -> None:
    roles = demo("roles", "list", *JSON).json
    assert not {tool for role in roles for tool in role["tools"]} & {"component_search", "component_deploy"}
    assert "builder" not in [role["role"] for role in roles]
    listed = {one["tool"] for one in demo("tools", "list", *JSON).json}
    assert not listed & {"component_search", "component_deploy", "validate_minimal"}
    assert demo("-p", "hello", "--role", "builder").code == 2
    explained = demo("policy", "explain", "--role", "coder", "component_deploy")
    assert "deny" in explained.out


# on the demo


@pytest.mark.more
def test_components_on_the_demo_deploys_once_what_a_user_approves(demo: Operator) -> None:
    paused = demo.run("components", WEBHOOK)
    assert [one["status"] for one in paused.json["steps"]] == ["answered", "answered", "paused"]
    assert "validate_minimal: failed: text: is required and not set" in paused.err
    assert "validations 1 passed, 1 failing" in paused.err
    file = demo.chatops.workspace / DEPLOYED
    assert not file.exists()
    assert f"    path: {file.resolve()}" in paused.err
    shown = demo("approvals", "show", demo.pending(paused, "component_deploy"))
    assert f"b/{DEPLOYED}" in shown.out
    assert demo("workflow", "resume", paused.json["session_id"]).code == 3
    ended = demo.approve(paused, "component_deploy")
    assert ended.code == 0, ended.err
    assert json.loads(ended.json["answer"]) == {
        "name": "webhook-posts-chat",
        "file": DEPLOYED,
        "summary": f"(demo) Deployed {DEPLOYED}: webhook_in → chat_post.",
    }
    assert ended.json["files"] == [DEPLOYED]
    assert json.loads(file.read_text())["version"] == 1
    again = demo("workflow", "resume", paused.json["session_id"], *JSON)
    assert (again.code, again.json) == (0, ended.json)
    assert json.loads(file.read_text())["version"] == 1


def test_components_on_the_demo_takes_a_no_for_an_answer(demo: Operator) -> None:
    paused = demo.run("components", WEBHOOK)
    assert demo("approvals", "deny", demo.pending(paused, "component_deploy"), "--reason", "not today").code == 0
    ended = demo("workflow", "resume", paused.json["session_id"], *JSON)
    assert ended.code == 3
    assert ended.json["review"]["reason"] == "failed" and ended.json["pending"] == []
    assert not (demo.chatops.workspace / DEPLOYED).exists()
    retried = demo("workflow", "resume", paused.json["session_id"], "--retry", *JSON)
    assert demo.approve(retried, "component_deploy").code == 0
    assert json.loads((demo.chatops.workspace / DEPLOYED).read_text())["version"] == 1


@pytest.mark.more
def test_components_on_the_demo_owns_up_to_what_it_cannot_find(demo: Operator) -> None:
    ran = demo("workflow", "run", "components", "make tea")
    assert ran.code == 1
    assert "the catalogue has no action for this; it has chat_post" in ran.err
    assert "chatops workflow show" in ran.err


@pytest.mark.more
def test_code_change_on_the_demo_edits_and_runs_the_tests(demo: Operator) -> None:
    project(demo.chatops.workspace)
    paused = demo.run("code-change", EDIT)
    assert ("file_edit", "invalid") in tools_of(paused)
    assert "file_edit comes after file_read" in paused.err
    gate = demo.approve(paused, "file_edit")
    assert "has to pass the gate tests" in gate.err
    ended = demo.approve(gate, "shell_exec")
    assert ended.code == 0, ended.err
    assert "gate tests passed" in ended.err
    assert "Hello" in (demo.chatops.workspace / "greet.py").read_text()
    assert ended.json["answer"] == '(demo) "Helo" becomes "Hello" in greet.py. The tests pass.'
    assert ended.json["files"] == ["greet.py"]


@pytest.mark.more
def test_code_change_on_the_demo_does_not_get_past_tests_that_fail(demo: Operator) -> None:
    project(demo.chatops.workspace, expected="Good day, Ada")
    gate = demo.approve(demo.run("code-change", EDIT), "file_edit")
    failed = demo.approve(gate, "shell_exec")
    assert failed.code == 3
    assert failed.json["review"]["step"] == "edit"
    assert "gate tests did not pass" in failed.err
    project(demo.chatops.workspace)
    (demo.chatops.workspace / "greet.py").write_text('def greet(name):\n    return "Hello, " + name\n')
    retried = demo("workflow", "resume", failed.json["session_id"], "--retry", *JSON)
    ended = demo.approve(retried, "shell_exec")
    assert ended.code == 0, ended.err
    assert [outcome for tool, outcome in tools_of(ended) if tool == "file_edit"].count("success") == 1


@pytest.mark.more
def test_a_folder_without_tests_does_not_pass_the_gate(demo: Operator) -> None:
    (demo.chatops.workspace / "greet.py").write_text("Helo")
    gate = demo.approve(demo.run("code-change", EDIT), "file_edit")
    failed = demo.approve(gate, "shell_exec")
    assert "gate tests did not pass" in failed.err
    assert failed.json["review"]["reason"] == "failed"


@pytest.mark.more
def test_research_on_the_demo_writes_notes_that_cite_their_sources(demo: Operator) -> None:
    ran = demo("workflow", "run", "research", "when is the invoice due?")
    assert ran.code == 0, ran.err
    assert ran.out == "(demo) Notes on: when is the invoice due?\n- The invoice is due on Friday. [note.txt]\n"
    assert "the answer is not accepted: " in ran.err and "every note cites its source" in ran.err


def test_a_workflow_of_ones_own_is_not_pretended_to(demo: Operator, chatops_home: Path) -> None:
    folder = chatops_home / "config" / "workflows"
    folder.mkdir(parents=True)
    (folder / "mine.yaml").write_text("steps:\n  - {name: only, system_prompt: Do it., max_step_retries: 1}\n")
    ran = demo("workflow", "run", "mine", "read note.txt")
    assert ran.code == 1
    assert "(demo) I am the built-in demo and no language model" in ran.err
    assert "attempt" not in ran.err, "it is said before the run"


@pytest.mark.parametrize(
    ("workflow", "request_", "sent"),
    [
        ("code-change", "make hello.py say goodbye", 'written like: replace "this" with "that" in FILE'),
        ("research", "what is it about?", "there is no word in the request that I could search for"),
    ],
)
def test_the_demo_says_at_once_what_it_can_play(workflow: str, request_: str, sent: str, demo: Operator) -> None:
    ran = demo("workflow", "run", workflow, request_)
    assert (ran.code, ran.out) == (1, "")
    assert sent in ran.err and "Nothing was run." in ran.err
    assert "attempt" not in ran.err
    assert demo("sessions", "list", *JSON).json == []


# on a server


@pytest.fixture
def script() -> list[Reply]:
    """Replies of the model, in order."""
    return []


@pytest.fixture
def server(script: list[Reply]) -> Iterator[FakeOpenAI]:
    """A strict server that has said all of its script at the end."""
    with FakeOpenAI(lambda request: script.pop(0) if script else error(500, "the script is over")) as running:
        yield running
        assert running.violations == []
        assert script == []


@pytest.fixture
def at(chatops: CommandLine, server: FakeOpenAI) -> Operator:
    """On the built-in registry, with a server instead of the demo."""
    value: dict[str, Any] = json.loads(packaged_registry().read_text())
    value["models"]["fake"] = {"type": "openai", "api_url": server.url, "model_name": "m", "temperature": 0.9}
    for role in value["roles"].values():
        role["primary"] = "fake"
    file = chatops.workspace.parent / "registry.json"
    file.write_text(json.dumps(value))
    return Operator(chatops, "--registry", str(file))


HOOK = {"path": "/orders", "method": "POST"}
POST = {"channel": "#orders", "text": "New order"}
NODES = [
    {"id": "hook", "component": "webhook_in", "properties": HOOK},
    {"id": "post", "component": "chat_post", "properties": POST},
]
LINKS = [{"source": "hook", "target": "post"}]
PATH_OF_FLOW = "flows/orders.json"


def flow(tool: str, **changes: Any) -> Call:
    """A call with the flow in it."""
    return Call(name=tool, arguments=json.dumps({"name": "orders", "nodes": NODES, "connections": LINKS, **changes}))


def checked(component: str, properties: dict[str, Any]) -> Call:
    """A call of the small validation."""
    return call("validate_minimal", component=component, properties=properties)


CHOSEN = {"components": ["webhook_in", "chat_post"], "why": "They fit."}
CONFIGURED = {"components": ["webhook_in", "chat_post"], "properties": {"webhook_in": HOOK, "chat_post": POST}}
ASSEMBLED = {"name": "orders", "file": PATH_OF_FLOW, "summary": "Deployed."}


@pytest.mark.more
def test_components_with_a_model_that_claims_too_much_too_early(
    at: Operator, script: list[Reply], server: FakeOpenAI
) -> None:
    details = [call("component_details", component=name) for name in ("webhook_in", "chat_post")]
    script += [
        # discover: looks up before it has searched, then claims what it has not looked up
        calls(details[0]),
        calls(call("component_search", query="webhook to chat"), text="Let me look."),
        calls(details[0]),
        answer(CHOSEN),
        calls(details[1]),
        says(f"Here is my answer:\n```json\n{json.dumps(CHOSEN)}\n```"),
        # configure: claims without validation, calls a tool of another step, validates one of two
        answer(CONFIGURED),
        calls(flow("component_deploy"), checked("webhook_in", HOOK)),
        answer(CONFIGURED),
        calls(checked("chat_post", {"channel": "#orders"})),
        answer(CONFIGURED),
        calls(checked("chat_post", POST)),
        answer(CONFIGURED),
        # assemble: deploys before validation, claims a deployment that there was not, deploys
        calls(flow("component_deploy")),
        calls(flow("validate_full", connections=[])),
        calls(flow("validate_full")),
        answer(ASSEMBLED),
        calls(flow("component_deploy")),
        calls(flow("component_deploy")),
        calls(Call(name="validate_deployed", arguments='{"name": "orders"}')),
        answer(ASSEMBLED),
    ]
    paused = at.run("components", "orders to chat")
    assert paused.code == 3, paused.err
    sent = [request.messages[-1]["content"] for request in server.requests]
    assert "component_details comes after component_search" in sent[1]
    assert 'component_details was never called with component="chat_post"' in sent[4]
    assert 'validate_minimal was never called with component="webhook_in"' in sent[7]
    assert "Not permitted: component_deploy (the steps that the tool is bound to)" in server.requests[8].tool_results[0]
    assert 'never called with component="chat_post"' in sent[9]
    assert "1. Property: text" in sent[10]
    assert 'validate_minimal (component="chat_post") did not pass' in sent[11]
    assert "component_deploy comes after validate_full" in sent[14]
    assert "Property: nodes[1].id" in sent[15]
    assert "validate_deployed was never called" in sent[17]
    assert [request.body["temperature"] for request in server.requests] == [0.1] * len(server.requests)
    assert not (at.chatops.workspace / PATH_OF_FLOW).exists()
    ended = at.approve(paused, "component_deploy")
    assert ended.code == 0, ended.err
    assert "may be called once in this step" in server.requests[-2].tool_results[-1]
    assert json.loads((at.chatops.workspace / PATH_OF_FLOW).read_text())["version"] == 1
    assert json.loads(ended.json["answer"]) == ASSEMBLED


@pytest.mark.more
def test_each_step_is_offered_its_own_tools_only(at: Operator, script: list[Reply], server: FakeOpenAI) -> None:
    script += [
        calls(call("component_search", query="x")),
        calls(*(call("component_details", component=name) for name in ("webhook_in", "chat_post"))),
        answer(CHOSEN),
        calls(checked("webhook_in", HOOK), checked("chat_post", POST)),
        answer(CONFIGURED),
        calls(flow("validate_full")),
        calls(flow("component_deploy")),
    ]
    assert at.run("components", "orders to chat").code == 3
    offered = [tuple(sorted(request.tool_names)) for request in server.requests]
    assert list(dict.fromkeys(offered)) == [
        ("component_details", "component_search"),
        ("component_details", "validate_minimal"),
        ("component_deploy", "validate_deployed", "validate_full"),
    ]


def test_code_change_with_a_model_whose_first_edit_breaks_the_tests(
    at: Operator, script: list[Reply], server: FakeOpenAI
) -> None:
    project(at.chatops.workspace)
    changed = {"changed": ["greet.py"], "what": "Mended the greeting."}
    script += [
        calls(call("file_search", pattern="Helo"), call("file_read", path="greet.py")),
        answer({"files": ["greet.py"], "plan": "Mend the greeting."}),
        calls(call("file_read", path="greet.py")),
        calls(call("file_edit", path="greet.py", old="Helo", new="Hallo")),
        answer(changed),
        calls(call("file_edit", path="greet.py", old="Hallo", new="Hello")),
        answer(changed),
        answer("The greeting is mended, and the tests pass."),
    ]
    first = at.approve(at.run("code-change", "the greeting is misspelt"), "file_edit")
    second = at.approve(first, "shell_exec")
    assert "FAIL: test_greets" in server.requests[5].last_user
    assert "Already done in this step" in server.requests[5].last_user
    ended = at.approve(at.approve(second, "file_edit"), "shell_exec")
    assert ended.code == 0, ended.err
    assert ended.json["answer"] == "The greeting is mended, and the tests pass."
    assert ended.json["steps"][1]["attempts"] == 2
    assert server.requests[-1].tool_names == []


@pytest.mark.more
def test_research_with_a_model_that_leaves_out_a_source(at: Operator, script: list[Reply], server: FakeOpenAI) -> None:
    notes = "- The invoice is due on Friday. [note.txt]"
    script += [
        calls(call("file_search", pattern="invoice")),
        answer({"sources": ["note.txt"], "why": "It speaks of the invoice."}),
        calls(call("file_read", path="note.txt")),
        answer({"facts": [{"fact": "The invoice is due on Friday.", "source": "note.txt"}]}),
        answer(notes),
        calls(call("scratch_write", text=notes)),
        answer(f"{notes}\n- It may be paid late."),
        answer("There is nothing to say."),
        answer(notes),
    ]
    ran = at("workflow", "run", "research", "when is the invoice due?")
    assert (ran.code, ran.out) == (0, f"{notes}\n"), ran.err
    assert "scratch_write was never called" in server.requests[5].last_user
    assert "every note cites its source" in server.requests[7].last_user
    assert "there are notes" in server.requests[8].last_user


@pytest.mark.more
def test_a_model_that_gives_up_ends_the_run_and_says_why(at: Operator, script: list[Reply]) -> None:
    script += [gave_up("nothing fits")] * 3
    ran = at("workflow", "run", "components", "make tea")
    assert ran.code == 1
    assert "nothing fits" in ran.err


@pytest.mark.more
def test_a_search_backend_adds_a_tool_to_the_search_and_nothing_is_warned_of(
    at: Operator, script: list[Reply], server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    script += [gave_up("x")] * 6
    without = at("workflow", "run", "research", "x")
    assert "'web_search' is not offered here" in without.err
    assert "web_search" not in server.requests[0].tool_names
    monkeypatch.setenv("BRAVE_API_KEY", "k")
    assert "not offered" not in at("workflow", "run", "research", "x").err
    assert "web_search" in server.requests[-1].tool_names
