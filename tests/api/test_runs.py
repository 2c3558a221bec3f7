"""Runs that a Python program starts: rights, questions and results are those of everybody."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from pydantic import BaseModel, field_validator

import chatops
from chatops import Step, StepReport, ToolRegistry, Workflow, tool
from chatops.domain.errors import ConfigError, NoSuchSessionError
from chatops.domain.events import AskReason, PendingCall
from chatops.wiring.stored import open_store
from tests.api import ordering
from tests.api.conftest import Stage, answers
from tests.support.command_line import CommandLine
from tests.support.fake_openai import call, calls, says
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).resolve().parents[2]


class Part(BaseModel):
    name: str
    volts: float

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        if name == "nothing":
            raise ValueError("there is no such part")
        return name


class Shop:
    """Functions that are tools, and what they were called with."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.valid = True

        @tool(verdict="allow", read_only=True)
        def search(query: str) -> list[str]:
            """Search for parts."""
            self.done.append(f"search {query}")
            return [query]

        @tool(verdict="allow")
        def check(part: str) -> dict[str, Any]:
            """Check a part."""
            self.done.append(f"check {part}")
            return {"valid": self.valid, "errors": [] if self.valid else [{"property": "volts", "message": "too many"}]}

        def order(part: str) -> str:
            """Order a part."""
            self.done.append(f"order {part}")
            return f"ordered {part}"

        self.search, self.check, self.order = search, check, order

    def workflow(self, **more: Any) -> Workflow:
        """Finds a part, then orders it."""
        return Workflow(
            "buy",
            [
                Step("find", "Find a part.", tools=[self.search], output_schema=Part),
                Step("buy", "Order it.", tools=[self.order], max_step_retries=1, **more),
            ],
        )


FOUND = answers({"name": "timer", "volts": 5})
ORDER = calls(call("order", part="timer"))


def test_functions_are_called_by_the_steps_that_have_them_and_results_are_instances_of_their_classes(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    server, shop = stage.plays(calls(call("search", query="timer")), FOUND, ORDER, answers("done")), Shop()
    result = shop.workflow().run("a timer", model="fake", workspace=stage.workspace, on_approval=lambda pending: True)
    assert (result.success, result.result, result.detail, result.pending) == (True, "done", "", ())
    assert shop.done == ["search timer", "order timer"]
    assert result.steps == (
        StepReport(name="find", status="accepted", result=Part(name="timer", volts=5), attempts=1, reasoning="done"),
        StepReport(name="buy", status="accepted", result="done", attempts=1, reasoning="done"),
    )
    assert [request.tool_names for request in server.requests] == [["search"], ["search"], ["order"], ["order"]]
    assert server.violations == []
    shown = CommandLine(stage.workspace, capsys)("workflow", "show", result.session_id, "--output-format", "json")
    assert [step["reasoning"] for step in shown.json["steps"]] == ["done", "done"]


def test_without_model_and_role_the_default_role_s_model_answers(stage: Stage) -> None:
    server = stage.plays(FOUND, answers("none"))
    result = Shop().workflow().run("a timer", workspace=stage.workspace)
    assert result.result == "none" and len(server.requests) == 2


def test_what_docstrings_name_is_there_to_import(stage: Stage) -> None:
    stage.registry.write_text("{")
    with pytest.raises(chatops.ConfigError) as failed:
        Shop().workflow().run("a timer", workspace=stage.workspace)
    assert isinstance(failed.value, chatops.ChatopsError)
    assert get_type_hints(chatops.WorkflowResult)["pending"] == tuple[chatops.PendingCall, ...]


def test_a_call_that_asks_pauses_the_run_and_a_user_at_another_entry_point_lets_it_go_on(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.plays(FOUND, ORDER, answers("done"))
    shop = Shop()
    paused = shop.workflow().run("a timer", model="fake", workspace=stage.workspace)
    assert (paused.success, paused.result, shop.done) == (False, None, [])
    (pending,) = paused.pending
    assert pending.call.name == "order" and paused.detail == "Calls wait for approval: order."
    assert [step.status for step in paused.steps] == ["accepted", "open"]
    approved = CommandLine(stage.workspace, capsys)("approvals", "approve", pending.call.id)
    assert approved.code == 0, approved.err
    result = shop.workflow().resume(paused.session_id)
    assert (result.success, result.result, result.session_id) == (True, "done", paused.session_id)
    assert shop.done == ["order timer"]
    assert shop.workflow().resume(paused.session_id) == result, "a run that is over tells how it ended"


def test_without_the_program_a_run_waits_and_what_was_approved_is_not_lost(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    server, shop = stage.plays(FOUND, ORDER, answers("done")), Shop()
    paused = shop.workflow().run("a timer", model="fake", workspace=stage.workspace)
    commands = CommandLine(stage.workspace, capsys)
    approved = commands("approvals", "approve", paused.pending[0].call.id)
    assert f'To continue it: workflow.resume("{paused.session_id}") in the program' in approved.err
    for words in (("resume", paused.session_id), ("workflow", "resume", paused.session_id)):
        ran = commands(*words)
        assert ran.code == 3 and "needs tools that are not available here: order" in ran.err
        assert f'workflow.resume("{paused.session_id}") in the program that started it' in ran.err
        assert "approval pending" not in ran.err and "chatops resume" not in ran.err
    assert len(server.requests) == 2
    assert shop.workflow().resume(paused.session_id).result == "done" and shop.done == ["order timer"]


def test_deny_tells_the_model_and_the_run_goes_on(stage: Stage) -> None:
    server, shop = stage.plays(FOUND, ORDER, answers("not ordered")), Shop()
    result = shop.workflow().run("a timer", model="fake", workspace=stage.workspace, on_approval="deny")
    assert (result.success, result.result, shop.done) == (True, "not ordered", [])
    assert "no user is there to approve it" in server.requests[-1].tool_results[-1]


@pytest.mark.parametrize(
    ("answer", "done", "message"),
    [(True, ["order timer"], "ordered timer"), (False, [], "does not permit it"), ("Too dear.", [], "Too dear.")],
)
def test_a_function_that_is_asked_decides_each_call(
    stage: Stage, answer: bool | str, done: list[str], message: str
) -> None:
    server, shop = stage.plays(FOUND, ORDER, answers("end")), Shop()
    asked: list[tuple[str, str, bool]] = []

    def decide(pending: PendingCall) -> bool | str:
        outside = threading.current_thread() is not threading.main_thread()
        asked.append((pending.call.name, pending.facts.arguments, outside))
        return answer

    result = shop.workflow().run("a timer", model="fake", workspace=stage.workspace, on_approval=decide)
    assert result.success and asked == [("order", '{"part":"timer"}', True)]
    assert shop.done == done and message in server.requests[-1].tool_results[-1]


def test_a_function_that_leaves_a_call_open_pauses_the_run(stage: Stage) -> None:
    stage.plays(FOUND, ORDER)
    shop = Shop()
    result = shop.workflow().run("a timer", model="fake", workspace=stage.workspace, on_approval=lambda pending: None)
    assert len(result.pending) == 1 and shop.done == []


@pytest.mark.more
def test_a_yes_to_everything_does_not_repeat_a_call_that_may_have_taken_effect(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.plays(ORDER, answers("end"))
    log = stage.workspace / "log"
    program = [sys.executable, "-m", "tests.api.ordering", str(stage.workspace)]
    environment = {**os.environ, "CHATOPS_FAILPOINT": "after_tool", "PYTHONPATH": str(ROOT)}
    died = subprocess.run(program, cwd=ROOT, env=environment, timeout=PATIENCE, check=False)
    assert died.returncode == -signal.SIGKILL and log.read_text() == "timer\n"
    with open_store() as store:
        (session,) = store.sessions(limit=5)
    result = ordering.workflow(log).resume(session.id, on_approval=lambda pending: True)
    assert [pending.reason for pending in result.pending] == [AskReason.OUTCOME_UNKNOWN]
    assert log.read_text() == "timer\n"
    again = ordering.workflow(log).resume(session.id, on_approval=lambda pending: "It is there.")
    assert again.result == "end" and log.read_text() == "timer\n"


def test_a_success_that_no_validation_has_proven_is_not_accepted(stage: Stage) -> None:
    shop = Shop()
    shop.valid = False
    wrong = calls(call("check", part="timer"))
    server = stage.plays(answers("fine"), wrong, answers("fine"), answers("fine"), answers("fine"))
    step = Step(
        "only", "Check it.", tools=[shop.check], validation_tools=[shop.check], max_iterations=3, max_step_retries=1
    )
    result = Workflow("test", [step]).run("a timer", model="fake", workspace=stage.workspace)
    assert not result.success and result.result is None and result.steps[0].status == "failed"
    assert "check" in result.detail and shop.done == ["check timer"]
    assert "1. Property: volts" in server.requests[2].tool_results[0]


def test_a_result_that_fits_the_schema_and_not_the_class_is_no_success(stage: Stage) -> None:
    stage.plays(answers({"name": "nothing", "volts": 5}))
    step = Step("only", "Find it.", output_schema=Part)
    result = Workflow("test", [step]).run("x", model="fake", workspace=stage.workspace)
    assert (result.success, result.result) == (False, None)
    assert "not a Part" in result.detail and "no such part" in result.detail
    assert result.steps[0].result == {"name": "nothing", "volts": 5}


@pytest.mark.parametrize(
    ("given", "value"),
    [("text", "text"), ("5", "5"), ({"a": 1}, {"a": 1}), ([1], [1]), (5, "5"), ('{"a": 1}', {"a": 1})],
)
def test_without_a_schema_objects_and_lists_are_values_and_the_rest_is_text(
    stage: Stage, given: object, value: object
) -> None:
    stage.plays(answers(given))
    result = Workflow("test", [Step("only", "p")]).run("x", model="fake", workspace=stage.workspace)
    assert result.success and result.result == value


def test_registered_tools_work_for_their_steps_only(stage: Stage) -> None:
    done: list[dict[str, Any]] = []

    def build(**given: Any) -> dict[str, Any]:
        done.append(given)
        return {"error": "no power"} if len(done) == 1 else {"built": given["part"]}

    tools = ToolRegistry()
    schema = {"type": "object", "properties": {"part": {"enum": ["timer"]}}, "required": ["part"]}
    tools.register("build", "Builds a part.", schema, build, steps=[2], verdict="allow")
    build_it = calls(call("build", part="timer"))
    server = stage.plays(build_it, answers("x"), calls(call("build", part="lamp")), build_it, build_it, answers("y"))
    workflow = Workflow("make", [Step("find", "Find."), Step("make", "Make.")], tools=tools)
    assert workflow.run("x", model="fake", workspace=stage.workspace).result == "y"
    assert done == [{"part": "timer"}, {"part": "timer"}]
    assert [request.tool_names for request in server.requests] == [[], [], ["build"], ["build"], ["build"], ["build"]]
    refused, failed, built = server.requests[-1].tool_results
    assert "timer" in refused and "no power" in failed and "IMPORTANT" in failed and '{"built": "timer"}' in built


RIGHTS: list[tuple[dict[str, Any], str, str]] = [
    ({"tools": {"check": {"verdict": "deny"}}}, "", "denied by tools of your registry"),
    ({"users": {"*": {"access_level": "user"}}}, "", "denied by access level user"),
    ({"users": {"*": {"access_level": "operator", "confirm_deny": ["check"]}}}, "", "denied by confirm_deny"),
    ({"roles": {"assistant": {"tools": ["file_read"]}}}, "assistant", "denied by tools of role assistant"),
    ({"roles": {"python": {"tools": []}}}, "", "denied by tools of role python"),
]


@pytest.mark.parametrize(("keys", "role", "why"), RIGHTS, ids=[why for _, _, why in RIGHTS])
def test_a_registry_can_narrow_what_the_program_allows(stage: Stage, keys: dict[str, Any], role: str, why: str) -> None:
    server, shop = stage.plays(**keys), Shop()
    workflow = Workflow("test", [Step("only", "p", tools=[shop.check], validation_tools=[shop.check])])
    with pytest.raises(ConfigError, match=why):
        workflow.run("x", model="fake", role=role, workspace=stage.workspace)
    assert server.requests == []


def test_a_registry_that_asks_is_asked_although_the_program_allows(stage: Stage) -> None:
    stage.plays(calls(call("check", part="timer")), tools={"check": {"verdict": "ask"}})
    shop = Shop()
    workflow = Workflow("test", [Step("only", "p", tools=[shop.check])])
    assert len(workflow.run("x", model="fake", workspace=stage.workspace).pending) == 1


def test_approve_answers_for_this_run(stage: Stage) -> None:
    stage.plays(FOUND, ORDER, answers("done"))
    shop = Shop()
    assert shop.workflow().run("x", model="fake", workspace=stage.workspace, approve=["order"]).success
    assert shop.done == ["order timer"]


def file_read(path: str) -> str:
    return path


BEFORE: list[tuple[list[Step], str]] = [
    ([Step("a", "p", tools=["file_red"])], "did you mean 'file_read'?"),
    ([Step("a", "p", validation_tools=["file_read"])], "not among its tools"),
    ([Step("a", "p", output_schema={"type": "objct"})], "does not compile"),
    ([Step("a", "p", role="nobody")], "no role 'nobody'"),
    ([Step("a", "p"), Step("a", "p")], "called 'a' too"),
    ([Step("a", "p", tools=[file_read])], "A tool named file_read already exists"),
]


@pytest.mark.parametrize(("steps", "why"), BEFORE, ids=[why for _, why in BEFORE])
def test_what_cannot_work_is_an_error_before_a_model_is_asked(stage: Stage, steps: list[Step], why: str) -> None:
    server = stage.plays()
    with pytest.raises(ConfigError) as caught:
        Workflow("test", steps).run("x", model="fake", workspace=stage.workspace)
    assert why in str(caught.value) and server.requests == []


def test_a_broken_registry_stops_it(stage: Stage) -> None:
    stage.registry.write_text("{")
    with pytest.raises(ConfigError, match="line 1"):
        Workflow("test", [Step("a", "p")]).run("x", workspace=stage.workspace)


def test_a_run_is_resumed_by_its_own_workflow_in_its_own_workspace(stage: Stage) -> None:
    stage.plays(FOUND, ORDER)
    shop = Shop()
    paused = shop.workflow().run("x", model="fake", workspace=stage.workspace)
    with pytest.raises(ConfigError, match="a run of workflow buy, not of test"):
        Workflow("test", [Step("a", "p")]).resume(paused.session_id)
    with pytest.raises(ConfigError, match="belongs to"):
        shop.workflow().resume(paused.session_id, workspace=stage.workspace.parent)
    with pytest.raises(NoSuchSessionError):
        shop.workflow().resume("nothing")


async def test_inside_an_event_loop_it_says_what_to_do_instead(stage: Stage) -> None:
    stage.plays(answers("done"))
    workflow = Workflow("test", [Step("a", "p")])
    with pytest.raises(RuntimeError, match="to_thread"):
        workflow.run("x", model="fake", workspace=stage.workspace)
    result = await asyncio.to_thread(workflow.run, "x", model="fake", workspace=stage.workspace)
    assert result.result == "done"


def test_a_step_that_a_user_has_to_look_at_says_so(stage: Stage) -> None:
    stage.plays(answers("fine"))
    result = Workflow("test", [Step("a", "p", review=True)]).run("x", model="fake", workspace=stage.workspace)
    assert (result.success, result.review, result.steps[0].status) == (False, "a", "open")
    assert "needs a review" in result.detail


def test_a_failed_step_says_why_and_later_ones_have_not_begun(stage: Stage) -> None:
    stage.plays(says(json.dumps({"success": False, "result": None, "reasoning": "no parts"})))
    steps = [Step("a", "p", max_step_retries=1), Step("b", "p")]
    result = Workflow("test", steps).run("x", model="fake", workspace=stage.workspace)
    assert [(step.status, step.attempts) for step in result.steps] == [("failed", 1), ("not begun", 0)]
    assert "no parts" in result.detail and "no parts" in result.steps[0].detail


def test_a_tool_that_is_no_validator_passes_when_the_step_says_so(stage: Stage) -> None:
    @tool(verdict="allow", read_only=True)
    def look() -> str:
        """Look."""
        return "seen"

    stage.plays(calls(call("look")), answers("done"))
    proof = {"tool": look, "passes_when": "success"}
    step = Step("look", "Look.", tools=[look], validation_tools=[proof], max_step_retries=1)
    assert Workflow("look", [step]).run("x", model="fake", workspace=stage.workspace).success


def test_a_run_that_passed_over_a_failed_step_is_no_success_and_names_it(stage: Stage) -> None:
    stage.plays(says('{"success": false, "result": null, "reasoning": "no key"}'), answers("told"))
    steps = [Step("find", "Find it.", max_step_retries=1, on_fail="go_on"), Step("tell", "Tell it.")]
    result = Workflow("find", steps).run("x", model="fake", workspace=stage.workspace)
    assert (result.success, result.result, result.failed_steps) == (False, "told", ("find",))
    assert result.detail == "Failed steps: find."


def test_a_program_is_warned_of_a_validation_that_needs_passes_when(stage: Stage) -> None:
    stage.plays(calls(call("file_list", path=".")), answers("done"), says('{"success": false, "result": null}'))
    step = Step("look", "Look.", tools=["file_list"], validation_tools=["file_list"], max_step_retries=1)
    with pytest.warns(UserWarning, match="add passes_when: success"):
        Workflow("look", [step]).run("x", model="fake", workspace=stage.workspace)


def test_a_function_may_have_the_name_of_a_tool_of_a_packaged_workflow(stage: Stage) -> None:
    @tool(verdict="allow", read_only=True)
    def validate_minimal(days: int) -> dict[str, Any]:
        """Check the days."""
        return {"valid": days <= 3}

    stage.plays(calls(call("validate_minimal", days=2)), answers("done"))
    step = Step("plan", "Plan it.", tools=[validate_minimal], validation_tools=[validate_minimal])
    assert Workflow("trip", [step]).run("x", model="fake", workspace=stage.workspace).success


def test_an_error_of_a_run_has_one_traceback(stage: Stage) -> None:
    stage.plays()
    with pytest.raises(ConfigError) as caught:
        Workflow("trip", [Step("plan", "Plan it.", tools=["no_such_tool"])]).run("x", workspace=stage.workspace)
    assert caught.value.__context__ is None
