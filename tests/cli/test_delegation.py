"""Tasks handed to another role: what is asked, what the child may do, and what its parent gets, in real processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import NARROWEST
from chatops.engine.view import answer_so_far
from chatops.policy.delegation import ChildBinding
from chatops.policy.sandbox import parse_change
from chatops.store.store import Store
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.support.command_line import CommandLine, Ran, program_environment
from tests.support.fake_openai import Call, FakeOpenAI, Hang, Reply, SeenRequest, call, calls, says
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox

TASKS: dict[str, Reply] = {
    "read it": calls(call("file_read", path="note.txt")),
    "write it": calls(call("file_write", path="out.txt", content="written\n")),
    "search it": calls(call("web_search", query="the word")),
    "ask another": calls(call("delegate", role="reader", task="read it")),
    "run it": calls(call("shell_exec", command="echo once >> runs.txt")),
}


def delegated(role: str, task: str, **more: Any) -> Call:
    return call("delegate", role=role, task=task, **more)


class Team:
    """A server whose model does the task that it is given, and a registry with a few roles."""

    def __init__(self, chatops: CommandLine) -> None:
        self.chatops = chatops
        self.asked: dict[str, Reply] = {}
        self.step: tuple[Reply, ...] = ()
        """What the model of a workflow's step says: at first, and once it has a result."""
        self.server = FakeOpenAI(self.reply)

    def reply(self, request: SeenRequest) -> Reply:
        last = request.messages[-1]
        if self.step and "delegate" in request.tool_names:
            return self.step[1 if last["role"] == "tool" else 0]
        if last["role"] == "tool":
            results = [str(one["content"]) for one in request.messages if one["role"] == "tool"]
            return says("told: " + " | ".join(results))
        return {**TASKS, **self.asked}.get(str(last["content"]).partition("\n")[0], says("nothing to do"))

    def registry(self, **changes: Any) -> Path:
        model = {"type": "openai", "api_url": self.server.url, "model_name": "m", "label": "Fake"}
        roles = {
            "coder": ["file_read", "delegate"],
            "reader": ["file_read"],
            "writer": ["file_read", "file_write"],
            "runner": ["shell_exec"],
            "searcher": ["web_search", "delegate"],
        }
        value = {
            "version": 3,
            "default_role": "coder",
            "models": {"fake": model},
            "roles": {name: {"primary": "fake", "tools": tools} for name, tools in roles.items()},
            "users": {"*": {"access_level": "operator"}},
            **changes,
        }
        file = self.chatops.workspace.parent / "registry.json"
        file.write_text(json.dumps(value))
        return file

    def run(self, *arguments: str) -> Ran:
        return self.chatops("--registry", str(self.chatops.workspace.parent / "registry.json"), *arguments)

    def ask(self, *to: Call, more: tuple[str, ...] = ()) -> Ran:
        self.asked["go"] = calls(*to)
        return self.run("-p", "go", "--output-format", "json", *more)

    def pending(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.run("approvals", "list", "--output-format", "json").json
        return found


@pytest.fixture
def team(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Team]:
    one = Team(chatops)
    with one.server:
        one.registry()
        yield one
        assert one.server.violations == []


def test_a_role_that_adds_nothing_works_without_a_question(team: Team) -> None:
    ran = team.ask(delegated("reader", "read it"))
    assert ran.code == 0, ran.err
    found = ran.json
    assert "The invoice is due on Friday." in found["answer"]
    assert [(one["tool"], one["decided_by"]) for one in found["calls"]] == [("delegate", "policy")]
    assert team.chatops.logged(found["calls"][0]["id"]) == ["verdict allow", "start", "result success"]
    # Two requests of each of the two turns.
    assert found["usage"]["input_tokens"] == 44


def test_what_a_role_adds_is_asked_and_its_own_calls_ask_too(team: Team) -> None:
    ran = team.ask(delegated("writer", "write it"), more=("--approve", "file_write"))
    assert ran.code == 3
    (asked,) = team.pending()
    assert asked["delegation"]["adds"] == ["+ file_write"]
    assert {"label": "adds", "value": "+ file_write", "weight": "caution"} in asked["facts"]
    assert [one["key"] for one in asked["offers"]] == ["a", "e"]
    session = ran.json["session_id"]
    team.run("approvals", "approve", asked["id"])
    resumed = team.run("resume", session, "--output-format", "json")
    assert resumed.code == 3
    (gated,) = resumed.json["pending"]
    (queued,) = team.pending()
    assert (queued["id"], queued["tool"]) == (gated["id"], "file_write")
    assert (queued["role"], queued["caller"]) == ("writer", "coder")
    assert not (team.chatops.workspace / "out.txt").exists()
    said = team.run("approvals", "approve", queued["id"]).err
    assert f"chatops resume {session}" in said
    ended = team.run("resume", session, "--output-format", "json")
    assert ended.code == 0, ended.err
    assert (team.chatops.workspace / "out.txt").read_text() == "written\n"
    assert "Wrote out.txt" in ended.json["answer"]
    assert team.pending() == []
    rows = team.run("audit", "list", "--output-format", "json").json
    (row,) = [row for row in rows if row["kind"] == "verdict" and row["tool"] == "delegate"]
    assert row["facts"]["delegation"]["adds"] == ["+ file_write"]
    (inner,) = [row for row in rows if row["kind"] == "verdict" and row["tool"] == "file_write"]
    assert inner["session"] not in (session, "") and inner["role"] == "writer"
    once = ["start", "result success"]
    assert team.chatops.logged(queued["id"]) == ["verdict ask", "decision approved", *once]
    paused = ["start", "result interrupted"]
    assert team.chatops.logged(asked["id"]) == ["verdict ask", "decision approved", *paused, *once]


@pytest.mark.parametrize(
    ("changes", "more"),
    [
        ({"users": {"*": {"access_level": "operator", "confirm_allow": ["delegate"]}}}, ()),
        ({}, ("--approve", "delegate")),
    ],
)
def test_no_rule_answers_for_rights_that_are_added(team: Team, changes: dict[str, Any], more: tuple[str, ...]) -> None:
    team.registry(**changes)
    assert team.ask(delegated("writer", "write it"), more=more).code == 3
    assert [one["tool"] for one in team.pending()] == ["delegate"]


def test_a_changed_registry_asks_again(team: Team) -> None:
    ran = team.ask(delegated("writer", "write it"))
    (asked,) = team.pending()
    team.run("approvals", "approve", asked["id"])
    roles = json.loads((team.chatops.workspace.parent / "registry.json").read_text())["roles"]
    roles["writer"]["tools"].append("shell_exec")
    team.registry(roles=roles)
    assert team.run("resume", ran.json["session_id"]).code == 3
    (again,) = team.pending()
    assert (again["reason"], again["delegation"]["adds"]) == ("changed", ["+ file_write, shell_exec"])


def test_a_child_inherits_that_the_workspace_was_read_and_tells_it(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAVILY_API_KEY", "none")
    team.registry()
    # The caller has read a file: the child's search asks.
    team.asked["then"] = calls(delegated("searcher", "search it"))
    first = team.run("--role", "coder", "-p", "read it", "--output-format", "json")
    assert first.code == 0, first.err
    ran = team.run("-c", "-p", "then", "--output-format", "json")
    assert ran.code == 3, ran.out
    for one in team.pending():
        team.run("approvals", "approve", one["id"])
    assert team.run("resume", ran.json["session_id"]).code == 3
    (asked,) = team.pending()
    assert (asked["tool"], asked["role"]) == ("web_search", "searcher")
    assert asked["why"] == "this session has read workspace files"
    team.run("approvals", "deny", asked["id"])
    assert team.run("resume", ran.json["session_id"]).code == 0
    # The child has read one: the caller's own search asks.
    searcher = {"primary": "fake", "tools": ["web_search", "file_read", "delegate"]}
    team.registry(roles={"searcher": searcher, "reader": {"primary": "fake", "tools": ["file_read"]}})
    team.asked["both"] = calls(delegated("reader", "read it"))
    ran = team.run("--role", "searcher", "-p", "both")
    assert ran.code == 0, ran.err
    assert team.run("-c", "-p", "search it").code == 3
    assert [(one["tool"], one["caller"]) for one in team.pending()] == [("web_search", "")]


def test_a_child_does_not_delegate(team: Team) -> None:
    found = team.ask(delegated("coder", "ask another")).json
    assert "Not permitted: delegate (a child turn does not delegate)" in found["answer"]
    assert not any("delegate" in str(request.body.get("tools")) for request in team.server.requests[1:2])


def test_revoked_tools_and_the_users_level_bind_a_child(team: Team) -> None:
    team.registry(users={"*": {"access_level": "viewer"}})
    found = team.ask(delegated("reader", "read it"))
    assert "Not permitted: delegate (access level viewer)" in found.json["answer"]
    team.registry(users={"*": {"access_level": "operator", "confirm_deny": ["file_write"]}})
    found = team.ask(delegated("writer", "write it"))
    assert found.code == 0
    assert "Not permitted: file_write (confirm_deny in your registry)" in found.json["answer"]


async def at_the_screen(team: Team, *, revoked: str = "") -> tuple[list[PendingCall], str]:
    """Delegate in a session with a user, who approves what asks; the calls that asked, and the answer."""
    app = App(Options(registry=team.registry(), workspace=team.chatops.workspace, via="tui"))
    try:
        session = await app.open_session(None, attended=True)
        if revoked:
            await session.revoke_tool(revoked)
        asked: list[PendingCall] = []
        await session.submit("go")
        while (state := await session.settle()) is not None and session.pending:
            for one in session.pending:
                asked.append(one)
                # A rule can be made for what the child does, and for no task that adds rights.
                assert bool(session.rule_offer(one).patterns()) == bool(one.caller)
                assert await session.decide(one.call.id, digest=one.digest, decision=Approved())
        assert state is not None
        return asked, answer_so_far(state)
    finally:
        await app.aclose()


def test_a_user_at_the_screen_decides_a_childs_call_in_the_session_of_its_caller(team: Team) -> None:
    team.asked["go"] = calls(delegated("writer", "write it"))
    asked, answer = asyncio.run(at_the_screen(team))
    assert [(one.call.name, one.role, one.caller) for one in asked] == [
        ("delegate", "coder", ""),
        ("file_write", "writer", "coder"),
    ]
    assert "Wrote out.txt" in answer


def test_a_tool_that_the_user_revoked_in_the_session_is_not_the_childs(team: Team) -> None:
    team.asked["go"] = calls(delegated("writer", "write it"))
    asked, answer = asyncio.run(at_the_screen(team, revoked="file_write"))
    assert asked == []
    assert "Not permitted: file_write (revoked in this session)" in answer


def test_what_the_user_revokes_between_two_processes_is_lost_to_a_child_that_has_begun(team: Team) -> None:
    session = team.ask(delegated("writer", "write it")).json["session_id"]
    (asked,) = team.pending()
    team.run("approvals", "approve", asked["id"])
    assert team.run("resume", session).code == 3
    (begun,) = team.pending()
    assert begun["tool"] == "file_write"

    async def revoked() -> str:
        app = App(Options(registry=team.registry(), workspace=team.chatops.workspace, via="tui"))
        try:
            opened = await app.open_session(SessionId(session), attended=True)
            await opened.revoke_tool("file_write")
            await opened.resume()
            while (state := await opened.settle()) is not None and opened.pending:
                for one in opened.pending:
                    assert (one.denial is not None) == (one.call.id == begun["id"])
                    assert await opened.decide(one.call.id, digest=one.digest, decision=Approved())
            assert state is not None
            return answer_so_far(state)
        finally:
            await app.aclose()

    assert "Not permitted: file_write (revoked in this session)" in asyncio.run(revoked())
    assert not (team.chatops.workspace / "out.txt").exists()


def test_a_child_that_is_resumed_by_its_own_id_has_lost_what_was_revoked_for_its_caller(team: Team) -> None:
    """Nor does it get what `/sandbox` took from the session that has delegated, or a window that is open on it."""
    team.registry(sandbox={"network": True})
    session = team.ask(delegated("writer", "write it")).json["session_id"]
    (asked,) = team.pending()
    team.run("approvals", "approve", asked["id"])
    assert team.run("resume", session).code == 3
    (begun,) = team.pending()
    child = begun["id"].rpartition(".")[0].rpartition(".")[0].rpartition(".")[0]
    options = Options(registry=team.registry(sandbox={"network": True}), workspace=team.chatops.workspace, via="tui")

    async def lost(*, change: str = "", revoke: str = "") -> None:
        app, other = App(options), App(options)
        try:
            opened = await other.open_session(SessionId(child), attended=True)
            assert opened.grant().sandbox == replace(NARROWEST, network=True)
            parent = await app.open_session(SessionId(session), attended=True)
            if revoke:
                await parent.revoke_tool(revoke)
                return
            await parent.change_sandbox(parse_change(change))
            await opened.resume()
            assert opened.grant().sandbox == NARROWEST
        finally:
            await app.aclose()
            await other.aclose()

    asyncio.run(lost(revoke="file_write"))
    refused = team.run("approvals", "approve", begun["id"])
    assert refused.code == 1 and "revoked in this session" in refused.err
    asyncio.run(lost(change="network off"))
    team.run("resume", child)
    assert not (team.chatops.workspace / "out.txt").exists()


def test_files_need_the_callers_right_to_read_them(team: Team) -> None:
    seen = team.ask(delegated("reader", "look", files=["note.txt"]))
    assert seen.code == 0, seen.err
    child = next(one for one in team.server.requests if str(one.messages[-1]["content"]).startswith("look"))
    assert "The invoice is due on Friday." in str(child.messages[-1]["content"])
    roles = {"coder": {"primary": "fake", "tools": ["delegate"]}, "reader": {"primary": "fake", "tools": []}}
    team.registry(roles=roles)
    refused = team.ask(delegated("reader", "look", files=["note.txt"])).json
    assert "file_read" in refused["answer"] and refused["calls"][0]["outcome"] == "invalid"
    outside = team.ask(delegated("reader", "look", files=["../secret.txt"])).json
    assert outside["calls"][0]["outcome"] == "invalid"


@pytest.mark.parametrize(("role", "says_"), [("nobody", "There is no role"), ("", "There is no role")])
def test_an_unknown_role_is_said_to_the_model(team: Team, role: str, says_: str) -> None:
    found = team.ask(delegated(role, "read it")).json
    assert found["calls"][0]["outcome"] == "invalid"
    assert says_ in found["answer"]


def test_a_turn_has_sixteen_children(team: Team) -> None:
    ran = team.ask(*(delegated("reader", f"task {number}") for number in range(18)))
    outcomes = [one["outcome"] for one in ran.json["calls"]]
    assert outcomes == ["success"] * 16 + ["denied"] * 2


def test_a_denied_call_of_a_child_is_told_to_the_child(team: Team) -> None:
    ran = team.ask(delegated("writer", "write it"))
    team.run("approvals", "approve", team.pending()[0]["id"])
    team.run("resume", ran.json["session_id"])
    team.run("approvals", "deny", team.pending()[0]["id"], "--reason", "not that file")
    ended = team.run("resume", ran.json["session_id"], "--output-format", "json")
    assert ended.code == 0
    assert "not that file" in ended.json["answer"]
    assert not (team.chatops.workspace / "out.txt").exists()


def test_unattended_denials_reach_a_child(team: Team) -> None:
    ran = team.ask(delegated("writer", "write it"))
    team.run("approvals", "approve", team.pending()[0]["id"])
    ended = team.run("resume", ran.json["session_id"], "--on-approval", "deny", "--output-format", "json")
    assert ended.code == 0, ended.err
    assert "no user is there" in ended.json["answer"]


def test_a_child_is_stopped_if_its_call_is_denied_after_a_restart(team: Team) -> None:
    ran = team.ask(delegated("writer", "write it"))
    team.run("approvals", "approve", team.pending()[0]["id"])
    assert team.run("resume", ran.json["session_id"]).code == 3
    roles = json.loads((team.chatops.workspace.parent / "registry.json").read_text())["roles"]
    roles["coder"]["tools"] = ["file_read"]
    team.registry(roles=roles)
    ended = team.run("resume", ran.json["session_id"], "--output-format", "json")
    assert ended.code == 0, ended.err
    assert ended.json["calls"][0]["outcome"] == "denied"
    assert team.pending() == []
    assert not (team.chatops.workspace / "out.txt").exists()


def test_a_step_of_a_workflow_delegates_and_its_list_of_tools_binds_the_child(team: Team) -> None:
    told = says(json.dumps({"success": True, "result": "passed on"}))
    steps = [{"name": "one", "system_prompt": "Do it.", "tools": ["file_read", "delegate"]}]
    team.registry(workflows={"flow": {"description": "A test", "steps": steps}})
    team.step = calls(delegated("writer", "write it")), told
    ran = team.run("workflow", "run", "flow", "go", "--role", "coder", "--output-format", "json")
    # The step has no file_write, so the role adds nothing and its call is denied.
    assert ran.code == 0, ran.err
    child = team.server.requests[1]
    assert child.tool_names == ["file_read"]
    assert "Not permitted: file_write (step one of workflow flow)" in str(
        team.server.requests[2].messages[-1]["content"]
    )
    assert not (team.chatops.workspace / "out.txt").exists()


def test_child_sessions_are_listed_only_when_asked_for(team: Team) -> None:
    ran = team.ask(delegated("reader", "read it"))
    parent = ran.json["session_id"]
    assert [one["id"] for one in team.run("sessions", "list", "--output-format", "json").json] == [parent]
    child = f"{parent}-1-1-1"
    assert team.run("sessions", "show", child).code == 0
    team.run("sessions", "delete", parent, "--yes")
    assert team.run("sessions", "show", child).code != 0


def test_a_child_counts_against_the_budget_of_its_parent(team: Team) -> None:
    """Each reply takes 18 tokens: the child is asked about after its first, and adds what it has used to its parent."""
    ran = team.ask(delegated("reader", "read it"), more=("--budget", "tokens=30"))
    assert ran.code == 3, ran.err
    (asked,) = team.pending()
    assert (asked["tool"], asked["role"], asked["caller"]) == ("budget_extend", "reader", "coder")
    assert asked["arguments"]["spent"] == 36
    team.run("approvals", "approve", asked["id"])
    ran = team.run("resume", ran.json["session_id"], "--output-format", "json")
    assert ran.code == 3, ran.err
    (asked,) = team.pending()
    assert (asked["role"], asked["caller"], asked["arguments"]["spent"]) == ("coder", "", 54)
    assert "role reader 36" in asked["why"]
    team.run("approvals", "approve", asked["id"])
    assert team.run("resume", ran.json["session_id"]).code == 0


# Killed at each point


def started(team: Team, *arguments: str, failpoint: str = "") -> Ran:
    """Run the real program, which may be killed on its way."""
    registry = str(team.chatops.workspace.parent / "registry.json")
    process = subprocess.run(
        [sys.executable, "-m", "chatops", "--registry", registry, *arguments],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=team.chatops.workspace, timeout=PATIENCE,
        env=program_environment() | ({"CHATOPS_FAILPOINT": failpoint} if failpoint else {}), check=False,
    )  # fmt: skip
    return Ran(code=process.returncode, out=process.stdout, err=process.stderr)


POINTS = ["child_created:1", "child_started:1", "after_tool:1", "after_tool:2", "before_tool:1", "before_tool:2"]
POINTS += [
    f"{point}:{number}" for point in ("before_commit", "after_commit", "after_publish") for number in range(2, 15)
]
POINTS += [f"before_model:{number}" for number in range(1, 5)]


@pytest.mark.some(3)
@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_the_parent_gets_the_result_once_and_no_call_runs_twice(team: Team, point: str) -> None:
    """Killed somewhere in a parent and its child, both go on from where they were."""
    rules = [{"tool": "shell_exec", "match": ["sh", "run.sh"], "verdict": "allow"}]
    (team.chatops.workspace / "run.sh").write_text("echo once >> runs.txt\n")
    roles = {
        "coder": {"primary": "fake", "tools": ["shell_exec", "delegate"], "rules": rules},
        "runner": {"primary": "fake", "tools": ["shell_exec"], "rules": rules},
    }
    team.registry(roles=roles)
    team.asked |= {"go": calls(delegated("runner", "run")), "run": calls(call("shell_exec", command="sh run.sh"))}
    killed = started(team, "-p", "go", failpoint=point)
    assert killed.code in (-signal.SIGKILL, 0), killed.err
    runs = team.chatops.workspace / "runs.txt"
    listed = team.run("sessions", "list", "--output-format", "json").json
    if killed.code and listed:
        session, ran = listed[0]["id"], killed
        for _ in range(4):
            ran = started(team, "resume", session)
            if ran.code != 3:
                break
            for one in team.pending():
                # The outcome of a command that was interrupted is for the user to say.
                assert one["tool"] == "shell_exec" and one["caller"] == "coder"
                team.run("approvals", "deny", one["id"])
        assert ran.code == 0, ran.err
    lines = runs.read_text().splitlines() if runs.exists() else []
    assert lines in (["once"], [])
    if listed:
        shown = team.run("sessions", "export", listed[0]["id"], "--format", "openai").out
        assert shown.count('"role": "tool"') + shown.count('"role":"tool"') == 1


def test_a_message_of_the_user_is_never_the_result_of_a_task_that_has_not_begun(team: Team) -> None:
    team.asked |= {"go": calls(delegated("reader", "read it")), "an answer?": says("forged")}
    assert started(team, "-p", "go", failpoint="child_created").code == -signal.SIGKILL
    (listed,) = team.run("sessions", "list", "--output-format", "json").json
    child = f"{listed['id']}-1-1-1"
    refused = team.run("-p", "an answer?", "--resume", child)
    assert refused.code != 0 and f"chatops resume {listed['id']}" in refused.err
    ran = team.run("resume", listed["id"])
    assert "The invoice is due on Friday." in ran.out and "forged" not in ran.out


def test_four_children_work_at_once_and_stop_with_their_turn(team: Team) -> None:
    tasks = [f"hang {number}" for number in range(6)]
    team.asked |= dict.fromkeys(tasks, says("late", wait=Hang()))
    team.asked["go"] = calls(*(delegated("reader", task) for task in tasks))
    registry = str(team.chatops.workspace.parent / "registry.json")
    process = subprocess.Popen(
        [sys.executable, "-m", "chatops", "--registry", registry, "-p", "go", "--output-format", "json"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        cwd=team.chatops.workspace, env=program_environment(),
    )  # fmt: skip
    while len(team.server.requests) < 5:
        assert process.poll() is None
    os.kill(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    # One request of the parent, and one of each child that has begun.
    assert len(team.server.requests) == 5
    found = json.loads(out)
    assert {one["outcome"] for one in found["calls"]} == {"interrupted"}
    for number in range(1, 5):
        child = team.run("resume", f"{found['session_id']}-1-1-{number}")
        assert "has already ended" in child.err and "Stopped" in child.err


def test_children_that_work_side_by_side_overspend_by_at_most_one_reply_each(team: Team) -> None:
    """Each reply takes 18 tokens, and two are due to each of six children: of 40, what was in flight is spent."""
    team.asked |= {f"task {number}": calls(call("file_read", path="note.txt")) for number in range(6)}
    ran = team.ask(*(delegated("reader", f"task {number}") for number in range(6)), more=("--budget", "tokens=40"))
    assert ran.code == 3, ran.err
    assert len(team.server.requests) <= 1 + 4 + 1
    asked = team.pending()
    assert {(one["tool"], one["role"]) for one in asked} == {("budget_extend", "reader")}
    assert all("role reader " in one["why"] and one["arguments"]["spent"] <= 40 + 4 * 18 for one in asked)
    # The other two, and the caller, count what these have spent, each child once.
    requests = len(team.server.requests)
    ended = team.run("resume", ran.json["session_id"], "--on-approval", "deny", "--output-format", "json")
    assert ended.code == 4 and len(team.server.requests) == requests
    assert ended.json["usage"]["input_tokens"] == 11 * requests


def test_what_is_revoked_in_another_process_reaches_a_child_at_the_next_call_that_starts(team: Team) -> None:
    session = team.ask(delegated("writer", "write it")).json["session_id"]
    (asked,) = team.pending()
    team.run("approvals", "approve", asked["id"])
    assert team.run("resume", session).code == 3
    (begun,) = team.pending()
    child = SessionId(begun["id"].rpartition(".")[0].rpartition(".")[0].rpartition(".")[0])
    options = Options(registry=team.registry(), workspace=team.chatops.workspace, via="tui")

    async def revoked_in_between() -> str:
        app, other = App(options), App(options)
        try:
            parent = await app.open_session(SessionId(session), attended=True)
            opened = await other.open_session(child, attended=True)
            await opened.resume()
            # The call is judged and its start stored; then the tool is revoked where its caller is open.
            performer = opened._turns.performer
            start = performer._is_narrowed

            async def revoke_first(since: float) -> bool:
                performer._is_narrowed = start
                await parent.revoke_tool("file_write")
                return await start(since)

            performer._is_narrowed = revoke_first
            (one,) = opened.pending
            assert await opened.decide(one.call.id, digest=one.digest, decision=Approved())
            state = await opened.settle()
            assert state is not None and not opened.pending
            return answer_so_far(state)
        finally:
            await app.aclose()
            await other.aclose()

    assert "the user has just taken away rights" in asyncio.run(revoked_in_between())
    assert not (team.chatops.workspace / "out.txt").exists()


@needs_sandbox
def test_the_caller_learns_which_changes_of_its_contained_children_were_not_applied(team: Team) -> None:
    tools = {"primary": "fake", "tools": ["file_read", "file_write", "delegate"]}
    team.registry(roles={"coder": tools, "boxed": {**tools, "contain": True}})
    session = team.ask(*(delegated("boxed", task) for task in ("write it", "write it\n2", "write it\n3"))).json[
        "session_id"
    ]
    first, second, third = team.pending()
    assert {one["tool"] for one in (first, second, third)} == {"contained_apply"}
    for one in (first, second):
        assert team.run("approvals", "approve", one["id"], "--digest", one["digest"][:16]).code == 0
    assert team.run("approvals", "deny", third["id"], "--reason", "two are enough").code == 0
    ended = team.run("resume", session, "--output-format", "json")
    assert ended.code == 0, ended.err
    told = ended.json["answer"]
    assert told.count("[Applied 1 change: out.txt.]") == 1
    assert told.count("[Applied 0 changes.\nLeft 1, in conflict:\n- out.txt: a file was made there since]") == 1
    assert told.count("were discarded; nothing was applied, the copy is gone. Reason: two are enough.") == 1
    assert (team.chatops.workspace / "out.txt").read_text() == "written\n"


@needs_sandbox
@pytest.mark.parametrize("role", ["writer", "boxed"])
@pytest.mark.parametrize("order", [("coder", "child"), ("child", "coder")])
def test_a_parent_and_its_child_do_not_write_over_each_others_file_unseen(
    team: Team, role: str, order: tuple[str, str]
) -> None:
    tools = {"primary": "fake", "tools": ["file_read", "file_write", "delegate"]}
    team.registry(roles={"coder": tools, "writer": tools, "boxed": {**tools, "contain": True}})
    own = call("file_write", path="out.txt", content="by the parent\n")
    session = team.ask(delegated(role, "write it"), own).json["session_id"]
    out = team.chatops.workspace / "out.txt"

    def approve(one: dict[str, Any]) -> Ran:
        assert team.run("approvals", "approve", one["id"], "--digest", one["digest"]).code == 0
        return team.run("resume", session, "--output-format", "json")

    asked = {"coder" if one["session_id"] == session else "child": one for one in team.pending()}
    assert approve(asked[order[0]]).code == 3
    assert out.exists() == (order[0] == "child"), "no call of the parent overtakes its child"
    assert approve(asked[order[1]]).code == 3
    assert out.read_text() == "written\n", "what was approved was the file that was not there"
    (again,) = team.pending()
    shown = team.run("approvals", "show", again["id"]).out
    assert again["reason"] == "changed" and "-written" in shown and "+by the parent" in shown, shown
    assert approve(again).code == 0
    assert out.read_text() == "by the parent\n"


@needs_sandbox
def test_a_contained_role_whose_commands_do_not_ask_is_asked_about(team: Team) -> None:
    """The same command asks where the caller runs it, so the caller must not get around that."""
    tools = {"primary": "fake", "tools": ["shell_exec", "delegate"]}
    team.registry(roles={"coder": tools, "boxed": {**tools, "contain": True}})
    assert team.ask(delegated("boxed", "run it")).code == 3
    (asked,) = team.pending()
    assert (asked["tool"], asked["delegation"]["adds"]) == ("delegate", ["shell_exec in a copy without asking"])


def test_a_session_that_was_there_before_the_task_does_not_work_on_it(team: Team, chatops_home: Path) -> None:
    """A copied store may bring one: of another role, or with an answer in it."""
    session = team.run("-p", "hello", "--output-format", "json").json["session_id"]
    with closing(Store(chatops_home / "data" / "chatops.db")) as store:
        store.create_child(
            SessionId(f"{session}-2-1-1"),
            workspace=str(team.chatops.workspace),
            role="writer",
            binding=ChildBinding(call_id=CallId(f"{session}.2.1.1"), caller="coder", layers=()),
        )
    ran = team.ask(delegated("reader", "write it"), more=("-r", session))
    assert team.pending() == []
    assert "not of this task" in ran.json["answer"], ran.out


def test_a_child_does_not_get_around_the_order_of_a_step(team: Team) -> None:
    told = says(json.dumps({"success": True, "result": "passed on"}))
    tools = ["file_read", "file_write", "delegate"]
    order = {"order": ["file_read", "file_write"], "once": ["file_write"]}
    steps = [{"name": "one", "system_prompt": "Do it.", "tools": tools, **order}]
    rules = [{"tool": "file_write", "match": ["**"], "verdict": "allow"}]
    team.registry(
        workflows={"flow": {"description": "A test", "steps": steps}},
        roles={"coder": {"primary": "fake", "tools": tools, "rules": rules}},
    )
    team.step = calls(delegated("coder", "write it")), told
    ran = team.run("workflow", "run", "flow", "go", "--role", "coder", "--output-format", "json")
    assert ran.code == 0, ran.err
    assert not (team.chatops.workspace / "out.txt").exists()
    assert team.server.requests[1].tool_names == ["file_read"]


def test_a_task_handed_over_makes_a_validation_stale(team: Team) -> None:
    """The child may have changed what was validated; its calls are not among those of the step."""
    passes = {"tool": "file_read", "passes_when": "success", "depends_on": ["file_write"]}
    tools = ["file_read", "file_write", "delegate"]
    steps = [{"name": "one", "system_prompt": "Do it.", "tools": tools, "validation_tools": [passes]}]
    team.registry(
        workflows={"flow": {"description": "A test", "steps": steps}},
        roles={
            "coder": {
                "primary": "fake",
                "tools": tools,
                "rules": [{"tool": "file_write", "match": ["**"], "verdict": "allow"}],
            }
        },
    )
    both = calls(call("file_read", path="note.txt"), delegated("coder", "write it"))
    team.step = both, says(json.dumps({"success": True, "result": "done"}))
    team.run("workflow", "run", "flow", "go", "--role", "coder", "--output-format", "json")
    assert any("but delegate ran afterwards" in str(one.messages[-1]["content"]) for one in team.server.requests)
