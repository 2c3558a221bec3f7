"""The workflows that come with chatops, through the command line: on the demo, which makes one mistake in each, and on
a scripted server, whose model behaves as badly as real ones do.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from chatops.config.paths import packaged_registry
from tests.support.command_line import CommandLine, Ran
from tests.support.fake_openai import FakeOpenAI, Reply, call, calls, error
from tests.support.workflows import answer, gave_up

EDIT = 'replace "Helo" with "Hello" in greet.py'
JSON = ("--output-format", "json")


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
    for name in ("code-change", "research"):
        assert name in listed.out
        shown = demo("workflow", "show", name, *JSON).json
        assert shown["errors"] == []


# on the demo


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


def test_code_change_finds_tests_in_the_layout_with_src(demo: Operator) -> None:
    project(demo.chatops.workspace)
    for folder, name in (("src", "greet.py"), ("tests", "test_greet.py")):
        (demo.chatops.workspace / folder).mkdir()
        (demo.chatops.workspace / name).rename(demo.chatops.workspace / folder / name)
    gate = demo.approve(demo.run("code-change", EDIT.replace("greet.py", "src/greet.py")), "file_edit")
    ended = demo.approve(gate, "shell_exec")
    assert ended.code == 0 and "gate tests passed" in ended.err


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


def test_research_works_with_what_is_installed_and_reads_a_readme(demo: Operator) -> None:
    (demo.chatops.workspace / "README.md").write_text("# Shop\n\nIt sells books.\n")
    ran = demo("workflow", "run", "research", "what does this repo do")
    assert ran.code == 0 and "- It sells books. [README.md]" in ran.out
    assert "not offered" not in ran.err


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
    # Said by pytest, or by unittest where python3 has no pytest.
    assert re.search(r"FAIL(ED test_greet.py::TestGreeting::|: )test_greets", server.requests[5].last_user)
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
def test_a_search_backend_adds_a_tool_to_the_search_and_nothing_is_warned_of(
    at: Operator, script: list[Reply], server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    script += [gave_up("x")] * 6
    assert "not offered" not in at("workflow", "run", "research", "x").err
    assert "web_search" not in server.requests[0].tool_names
    monkeypatch.setenv("BRAVE_API_KEY", "k")
    assert "not offered" not in at("workflow", "run", "research", "x").err
    assert "web_search" in server.requests[-1].tool_names
