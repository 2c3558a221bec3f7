"""``chatops workflow``: runs that need a user, go on elsewhere, are ended, looked at, or cannot begin."""

import io
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.ids import SessionId
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.store.base import Holder
from chatops.store.process_identity import holder_of
from chatops.store.store import Store
from tests.support.fake_openai import Completion, call, calls, says
from tests.support.workflows import Scripted, answer, gave_up, step

APPEND = call("shell_exec", command="echo x >> count.txt")


@pytest.fixture
def store(chatops_home: Path) -> Iterator[Store]:
    """The store, as another program sees it."""
    with closing(Store(chatops_home / "data" / "chatops.db")) as opened:
        yield opened


@pytest.fixture
def somebody() -> Iterator[Holder]:
    """A process that lives and is not ours."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        yield holder_of(other.pid)
        other.communicate()


def gated() -> dict[str, Any]:
    return step("make", tools=["shell_exec"])


# a user is needed


@pytest.mark.more
def test_a_gated_call_pauses_the_run_and_takes_effect_once(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(calls(APPEND), answer("made"), answer("told"))
    at.define(gated(), step("tell"))
    paused = at.run()
    assert paused.code == 3
    assert paused.json["status"] == "paused"
    (pending,) = paused.json["pending"]
    assert [one["status"] for one in paused.json["steps"]] == ["paused", "pending"]
    run = paused.json["session_id"]
    assert f"chatops approvals approve {pending['id']}" in paused.err
    assert f"chatops resume {run}" in paused.err
    assert at.resume(run).code == 3
    assert at("approvals", "approve", pending["id"]).code == 0
    ended = at.resume(run)
    assert ended.code == 0, ended.err
    assert ended.json["answer"] == "told"
    assert [one["output"] for one in ended.json["steps"]] == ["made", "told"]
    assert at.made("count.txt").read_text() == "x\n"
    again = at.resume(run)
    assert again.code == 0
    assert again.json == ended.json
    assert at.made("count.txt").read_text() == "x\n"
    assert len(server.requests) == 3


def test_chatops_resume_goes_on_with_a_run_too(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(calls(APPEND), answer("made"), answer("told"))
    at.define(gated(), step("tell"))
    paused = at.run().json
    at("approvals", "approve", paused["pending"][0]["id"])
    ended = at("resume", paused["session_id"])
    assert ended.code == 0, ended.err
    assert ended.out == "told\n"


def test_without_a_user_calls_can_be_denied_or_allowed_by_a_rule(scripted: Scripted) -> None:
    installation, server = scripted
    copies = call("shell_exec", command="cp note.txt copy.txt")
    at = installation(calls(copies), answer("not made"), calls(copies), answer("made"))
    at.define(gated())
    denied = at.run("--on-approval", "deny")
    assert denied.code == 0, denied.err
    assert not at.made("copy.txt").exists()
    assert "no user is there" in server.requests[1].tool_results[0]
    assert at.run("--approve", "shell_exec:cp note.txt *").code == 0
    assert at.made("copy.txt").exists()


def test_an_answer_under_review_waits_for_a_word(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(answer("long"), answer("short"), answer("told"))
    at.define(step("write", review=True), step("tell"))
    paused = at.run()
    assert paused.code == 3
    run = paused.json["session_id"]
    assert paused.json["review"] == {
        "step": "write",
        "attempt": 1,
        "reason": "review",
        "answer": "long",
        "detail": "",
    }
    assert f"chatops workflow resume {run} --accept" in paused.err
    assert "--skip" not in paused.err
    assert at.resume(run).code == 3
    assert at.resume(run, "--skip").code == 1
    again = at.resume(run, "--retry", "--tell", "make it short")
    assert again.code == 3
    assert again.json["review"]["attempt"] == 2
    assert "make it short" in server.requests[1].last_user
    ended = at.resume(run, "--accept")
    assert ended.code == 0, ended.err
    assert "short" in server.requests[2].last_user
    late = at.resume(run, "--accept")
    assert late.code == 1
    assert "is not waiting for a review" in late.err


@pytest.mark.parametrize(("word", "code", "status"), [("--skip", 0, "skipped"), ("--stop", 1, "failed")])
def test_a_step_that_failed_is_skipped_or_ends_the_run(word: str, code: int, status: str, scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(gave_up("no key"), *([answer("told")] if word == "--skip" else []))
    at.define(step("a", max_step_retries=1, on_fail="ask", may_skip=True), step("tell"))
    paused = at.run()
    assert paused.code == 3
    assert paused.json["review"]["reason"] == "failed"
    assert "no key" in paused.err
    ended = at.resume(paused.json["session_id"], word)
    assert ended.code == code, ended.err
    assert ended.json["steps"][0]["status"] == status


def test_tell_needs_a_retry_to_tell_it_to(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(answer(1))
    at.define(step("a", review=True))
    ran = at.resume(at.run().json["session_id"], "--accept", "--tell", "more")
    assert ran.code == 2
    assert "--retry" in ran.err


def test_a_failed_step_can_be_gone_on_without(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(gave_up("no key"), answer("told"))
    at.define(step("a", max_step_retries=1, on_fail="go_on"), step("tell"))
    ran = at.run()
    assert ran.code == 0, ran.err
    assert "no key" in server.requests[1].last_user
    assert "Failed steps: a." in ran.err
    assert (ran.json["status"], ran.json["failed_steps"]) == ("answered", ["a"])
    shown = at("workflow", "show", ran.json["session_id"])
    assert "Failed steps: a." in shown.out


def test_the_last_event_of_a_stream_names_the_steps_that_failed(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(gave_up("no key"), answer("told"))
    at.define(step("a", max_step_retries=1, on_fail="go_on"), step("tell"))
    ran = at("workflow", "run", "flow", "build it", "--output-format", "stream-json")
    (finished,) = (one for one in map(json.loads, ran.out.splitlines()) if one["type"] == "workflow_finished")
    assert finished["failed_steps"] == ["a"]


def test_a_call_that_waits_for_one_to_be_approved_comes_after_it(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(
        calls(call("file_write", path="made", content="x"), call("file_read", path="made")), answer("done")
    )
    tools = ["file_write", "file_read"]
    at.define(step("make", tools=tools, order=tools))
    paused = at.run()
    (pending,) = paused.json["pending"]
    at("approvals", "approve", pending["id"])
    ended = at.resume(paused.json["session_id"])
    assert ended.code == 0, ended.err
    assert [one["outcome"] for one in ended.json["calls"]] == ["success", "success"]


def test_a_definition_that_needs_passes_when_is_named_when_it_is_shown_and_when_it_runs(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(answer("told"))
    at.define(step("read", tools=["file_read"], validation_tools=["file_read"]))
    at.define(step("tell"), name="other")
    shown = at("workflow", "show", "flow")
    assert "file_read is not a validator" in shown.err and "add passes_when: success" in shown.err
    assert "passes_when" not in at("workflow", "show", "other").err
    assert "add passes_when: success" in at("registry", "check", str(at.file)).out
    at.define(step("read", tools=["file_read"], validation_tools=[{"tool": "file_read", "passes_when": "success"}]))
    assert "file_read (when it succeeds)" in at("workflow", "show", "flow").out
    assert at.run(name="other").code == 0


@pytest.mark.parametrize(("said", "code"), [("true", 0), ("exit 3", 1)])
def test_a_command_that_the_step_fixes_passes_with_exit_code_0(said: str, code: int, scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(
        calls(call("shell_exec", command="sh check.sh")), answer({"ran": "sh check.sh"}), *[gave_up("no")] * code
    )
    at.made("check.sh").write_text(said)
    validation = {"tool": "shell_exec", "subject": {"command": "/ran"}, "passes_when": {"exit_code": 0}}
    schema = {"type": "object", "properties": {"ran": {"const": "sh check.sh"}}, "required": ["ran"]}
    at.define(
        step("make", tools=["shell_exec"], validation_tools=[validation], output_schema=schema, max_step_retries=1)
    )
    paused = at.run()
    at("approvals", "approve", paused.json["pending"][0]["id"])
    ended = at.resume(paused.json["session_id"])
    assert ended.code == code, ended.err


@pytest.mark.parametrize("when", ["success", {"exit_code": 0}])
def test_a_pipeline_is_no_pass_and_the_reason_is_said(when: object, scripted: Scripted) -> None:
    installation, server = scripted
    command = "no-such-check | tail -1"
    at = installation(calls(call("shell_exec", command=command)), answer({"ran": command}), gave_up("no"))
    validation = {"tool": "shell_exec", "subject": {"command": "/ran"}, "passes_when": when}
    schema = {"type": "object", "properties": {"ran": {"const": command}}, "required": ["ran"]}
    at.define(
        step("make", tools=["shell_exec"], validation_tools=[validation], output_schema=schema, max_step_retries=1)
    )
    paused = at.run()
    at("approvals", "approve", paused.json["pending"][0]["id"])
    ended = at.resume(paused.json["session_id"])
    assert ended.code == 1
    why = "it is a pipeline, so its exit code is that of tail and says nothing of the programs before it"
    assert why in server.requests[1].tool_results[0]
    assert "shell_exec: failed: command: it is a pipeline" in ended.err


def test_the_command_of_a_gate_is_asked_for_like_any_other(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(answer(1), answer(2), answer(3))
    at.define(step("a", max_step_retries=2, gates=[{"name": "there", "command": "test -e made && true"}]), step("b"))
    paused = at.run()
    assert paused.code == 3
    assert paused.json["pending"][0]["tool"] == "shell_exec"
    at("approvals", "approve", paused.json["pending"][0]["id"])
    again = at.resume(paused.json["session_id"])
    assert again.code == 3, again.err
    assert "gate there did not pass" in again.err
    at.made("made").write_text("")
    at("approvals", "approve", again.json["pending"][0]["id"])
    ended = at.resume(paused.json["session_id"])
    assert ended.code == 0, ended.err
    assert "gate there passed" in ended.err


# what changed meanwhile


def test_a_definition_that_changed_meanwhile_does_not_change_the_run(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(answer("one"), answer("two"))
    at.define(step("a", review=True), step("b"))
    paused = at.run().json
    at.define(step("other"))
    ended = at.resume(paused["session_id"], "--accept")
    assert ended.code == 0, ended.err
    assert "Do b." in server.requests[1].system


# ending it


def test_a_run_that_waits_is_cancelled(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(calls(APPEND))
    at.define(gated())
    paused = at.run().json
    run = paused["session_id"]
    ended = at("workflow", "cancel", run)
    assert ended.code == 0, ended.err
    assert at("approvals", "list", "--output-format", "json").json == []
    assert at("workflow", "cancel", run).code == 1
    resumed = at.resume(run)
    assert resumed.code == 130
    assert resumed.json["status"] == "cancelled"
    assert resumed.json["steps"][0]["status"] == "cancelled"
    assert resumed.json["steps"][0]["attempts"] == resumed.json["steps"][0]["iterations"] == 1
    assert [one["outcome"] for one in resumed.json["calls"]] == ["interrupted"]
    assert resumed.json["usage"]["input_tokens"] == 11
    assert not at.made("count.txt").exists()


@pytest.mark.more
def test_a_run_that_is_open_elsewhere_is_told_to_end_and_reviewed_there(
    scripted: Scripted, store: Store, somebody: Holder
) -> None:
    installation, _ = scripted
    at = installation(answer(1))
    at.define(step("a", review=True))
    run = SessionId(at.run().json["session_id"])
    lease = store.acquire_lease(run, somebody)
    busy = at.resume(run)
    assert busy.code == 1
    assert str(somebody.pid) in busy.err
    assert at.resume(run, "--accept").code == 0
    assert at.resume(run, "--stop").code == 1
    assert at("workflow", "cancel", run).code == 0
    assert at("workflow", "cancel", run).code == 1
    assert [type(word) for word in store.posted_reviews(run)] == [ReviewStep, CancelRun]
    store.release_lease(run, somebody, lease)
    assert at.resume(run).code == 0


# what can be seen


def test_a_run_tells_where_it_is_and_prints_its_result(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(
        calls(call("file_read", path="note.txt")), answer({"due": "Friday"}), answer("It is due on Friday.")
    )
    at.define(
        step("read", tools=["file_read"], validation_tools=[{"tool": "file_read", "passes_when": "success"}]),
        step("tell"),
    )
    ran = at("workflow", "run", "flow", "when is it due?")
    assert ran.code == 0, ran.err
    assert ran.out == "It is due on Friday.\n"
    lines = ran.err.splitlines()
    assert lines[0].startswith("workflow flow: read, tell (run ")
    assert "step 1/2 read: attempt 1 of 3" in lines
    assert "step 1/2 read: iteration 1/10, validations 0 passed, 0 failing, 1 not called, no tokens counted" in lines
    assert "step 1/2 read: iteration 2/10, validations 1 passed, 0 failing, 0 not called, 18 tokens" in lines
    assert "step 1/2 read: accepted" in lines
    assert "step 2/2 tell: accepted" in lines
    assert "workflow answered, 54 tokens" in lines


def test_a_summary_is_the_result_and_nothing_else(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(answer("one"), answer({"done": True}))
    at.define(step("a"), step("b"))
    ran = at("workflow", "run", "flow", "x", "--summary")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == "done: true\n"
    assert "unattended" in server.requests[0].system


def test_the_request_may_come_from_standard_input(scripted: Scripted, monkeypatch: pytest.MonkeyPatch) -> None:
    installation, server = scripted
    at = installation(answer("one"))
    at.define(step("a"))
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert at("workflow", "run", "flow").code == 0
    assert "from a pipe" in server.requests[0].last_user
    monkeypatch.setattr("sys.stdin", io.StringIO(""))
    empty = at("workflow", "run", "flow")
    assert empty.code == 2
    assert 'chatops workflow run flow "QUERY"' in empty.err


def test_budgets_role_and_model_can_be_given_for_the_run(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(says("no"), says("no"), says("no"))
    at.define(step("a", tools=None, max_iterations=7))
    ran = at.run("--max-iterations", "2", "--max-retries", "1", "--role", "reader", "--model", "fake")
    assert ran.code == 4
    assert ran.json["role"] == "reader"
    assert len(server.requests) == 3
    assert server.requests[0].tool_names == ["file_read"]


def test_a_step_may_have_more_rounds_than_a_chat_unless_somebody_limits_them(scripted: Scripted) -> None:
    installation, server = scripted
    reads = [calls(call("file_read", path="note.txt", offset=n)) for n in range(1, 13)]
    at = installation(*reads, answer("read"))
    at.define(step("read", tools=["file_read"], max_iterations="complex"))
    ran = at.run()
    assert ran.code == 0, ran.err
    assert len(server.requests) == 13


@pytest.mark.more
def test_the_stream_is_a_tree_of_run_steps_turns_and_rounds(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(gave_up("no"), calls(APPEND), answer(1), answer(2))
    at.define(gated(), step("b", gates=[{"name": "there", "command": "true"}]))
    first = at("workflow", "run", "flow", "x", "--output-format", "stream-json")
    assert first.code == 3
    lines = [json.loads(line) for line in first.out.splitlines()]
    run = lines[0]["id"]
    assert [line["type"] for line in lines if line["parent_id"] in ("", run)] == [
        "workflow_started",
        "step_started",
        "step_finished",
        "step_started",
    ]
    turns = {line["id"]: line["parent_id"] for line in lines if line["type"] == "turn_started"}
    assert turns == {f"{run}.1": f"{run}.step1.1", f"{run}.2": f"{run}.step1.2"}
    assert still_open(lines) == {run, f"{run}.step1.2", f"{run}.2", f"{run}.2.1", f"{run}.2.1.1"}
    call_id = next(line["id"] for line in lines if line["type"] == "approval_requested")
    at("approvals", "approve", call_id)
    second = at("workflow", "resume", run, "--output-format", "stream-json", "--approve", "shell_exec:true")
    assert second.code == 0, second.err
    lines = [json.loads(line) for line in second.out.splitlines()]
    assert lines[0]["resumed"] is True
    assert [line["type"] for line in lines[:3]] == ["workflow_started", "step_started", "turn_started"]
    assert still_open(lines) == set()
    assert lines[-1]["type"] == "workflow_finished"
    (gate,) = [line for line in lines if line["type"] == "gate_checked"]
    assert gate["parent_id"] == f"{run}.step2.1"


def still_open(lines: list[dict[str, Any]]) -> set[str]:
    """Nodes that were opened and not closed; fails for one that is closed twice or by nobody."""
    opened: set[str] = set()
    for line in lines:
        if line.get("status") == "started":
            assert line["parent_id"] == "" or line["parent_id"] in opened, line
            opened.add(line["id"])
        elif "started_at" in line:
            opened.remove(line["id"])
    return opened


def test_lists_show_definitions_and_runs(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(answer(1))
    at.define(step("write", review=True), step("tell"))
    run = at.run(query="a  long\nrequest").json["session_id"]
    listed = at("workflow", "list")
    assert "write, tell" in listed.out
    assert "write: to review" in listed.out
    assert "flow: a long request" in listed.out
    value = at("workflow", "list", "--output-format", "json").json
    assert [one["name"] for one in value["workflows"]] == ["flow", "code-change"]
    assert value["runs"][0]["run"]["step"] == "write"
    assert "[run: write: to review]" in at("sessions", "list").out
    shown = at("workflow", "show", run)
    assert shown.code == 0
    assert f"Run {run} of workflow flow: paused" in shown.out
    assert "--accept" in shown.err
    assert at("workflow", "show", run[:15], "--output-format", "json").json["review"]["step"] == "write"
    definition = at("workflow", "show", "flow")
    assert "review:" in definition.out
    assert at("workflow", "show", "flow", "--output-format", "json").json["steps"][0]["name"] == "write"


def test_an_export_of_a_run_has_all_its_turns_in_order(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(gave_up("first"), answer("second"), answer("third"))
    at.define(step("a"), step("b"))
    run = at.run().json["session_id"]
    text = at("sessions", "export", run).out
    assert text.index("first") < text.index("second") < text.index("third")
    exported = json.loads(at("sessions", "export", run, "--format", "openai").out)
    assert [message["role"] for message in exported] == ["user", "assistant"] * 3
    copy = at("sessions", "fork", run).out.strip()
    assert json.loads(at("sessions", "export", copy, "--format", "openai").out) == exported


def test_a_run_that_is_not_over_takes_no_prompts_and_is_not_deleted_in_passing(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(answer(1))
    at.define(step("a", review=True))
    run = at.run().json["session_id"]
    for arguments in (["-r", run], ["-c"]):
        prompted = at("-p", "hello", *arguments)
        assert prompted.code == 1
        assert f"chatops resume {run}" in prompted.err
    refused = at("sessions", "delete", run)
    assert refused.code == 1
    assert "run of workflow flow" in refused.err
    assert at("sessions", "delete", run, "--yes").code == 0
    assert at("workflow", "list", "--output-format", "json").json["runs"] == []


def test_after_a_run_its_session_takes_prompts_like_any_other(scripted: Scripted) -> None:
    installation, server = scripted
    at = installation(answer("done"), says("You are welcome."))
    at.define(step("a"))
    run = at.run().json["session_id"]
    thanks = at("-p", "thank you", "-r", run)
    assert (thanks.code, thanks.out) == (0, "You are welcome.\n")
    assert len(server.requests[1].messages) == 4
    assert at("resume", run).out == "You are welcome.\n"


# what cannot begin


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        ({"tools": ["file_raed"]}, "did you mean 'file_read'"),
        ({"tools": [], "validation_tools": [{"tool": "file_read"}]}, "file_read"),
        ({"output_schema": {"type": "martian"}}, "martian"),
        ({"role": "nobody"}, "nobody"),
    ],
)
def test_a_definition_that_cannot_work_is_told_with_file_and_line_before_anything_runs(
    broken: dict[str, Any], said: str, scripted: Scripted
) -> None:
    installation, server = scripted
    at = installation()
    at.define(step("a", **broken))
    ran = at.run()
    assert ran.code == 2
    assert said in ran.err
    assert f"{at.file}, line " in ran.err
    assert server.requests == []
    assert at("workflow", "list", "--output-format", "json").json["runs"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["workflow", "run", "flwo", "x"], "Did you mean flow?"),
        (["workflow", "show", "nope"], "no workflow and no run"),
        (["workflow", "run", "flow", "x", "--role", "nobody"], "nobody"),
        (["workflow", "run", "flow", "x", "--model", "nothing"], "nothing"),
        (["workflow", "run", "flow", "x", "--approve", "shell_exec"], "--approve"),
        (["workflow", "run", "flow", "x", "--max-retries", "0"], "--max-retries"),
        (["workflow", "run", "flow", "x", "--max-iterations", "500"], "not between 1 and 99"),
        (["workflow", "resume", "x", "--accept", "--stop"], "not allowed with"),
    ],
)
def test_usage_errors_exit_with_2_and_the_next_step(arguments: list[str], said: str, scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation()
    at.define(step("a"))
    ran = at(*arguments)
    assert ran.code == 2, ran.err
    assert said in ran.err


@pytest.mark.parametrize("action", ["resume", "cancel"])
def test_no_such_run_is_a_sentence(action: str, scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(says("hello"))
    at.define(step("a"))
    assert at("workflow", action, "nope").code == 1
    chat = at("-p", "hi", "--output-format", "json").json["session_id"]
    ran = at("workflow", action, chat)
    assert ran.code == 1
    assert "not a workflow run" in ran.err
    assert "chatops workflow list" in ran.err


def test_the_schema_of_a_definition_is_printed(scripted: Scripted) -> None:
    installation, _ = scripted
    value = installation()("workflow", "schema").json
    assert "steps" in value["properties"]


def test_a_workflow_without_any_is_no_error(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation()
    at.file.write_text(at.file.read_text().replace('"coder"', '"worker"'))
    listed = at("workflow", "list")
    assert listed.code == 0
    assert "No workflows" in listed.err


def test_hostile_text_in_a_run_cannot_move_the_cursor(scripted: Scripted) -> None:
    installation, _ = scripted
    at = installation(Completion(text=gave_up("\x1b[2J\x1b]0;x\x07").text), answer("x"))
    at.define(step("a", max_step_retries=1, on_fail="ask"))
    paused = at.run(query="\x1b[31mred")
    assert "\x1b" not in paused.err
    shown = at("workflow", "show", paused.json["session_id"])
    assert "\x1b" not in shown.err
    assert at.resume(paused.json["session_id"], "--retry").code == 0
