"""The event tree of a run of a workflow, and what is reported of one that stands still."""

from dataclasses import replace

from chatops.domain.errors import ConfigError
from chatops.domain.events import (
    GateChecked,
    Published,
    Status,
    StepFinished,
    StepResult,
    TurnFinished,
    TurnStarted,
    TurnStatus,
    WorkflowFinished,
)
from chatops.domain.ids import MessageId
from chatops.engine.state import TurnState
from chatops.engine.workflow.progress import attempt_id, opening_events
from chatops.engine.workflow.state import RunningStep, RunResult, StepOutput
from chatops.headless.event_tree import EventLine, Tree
from chatops.headless.report import output_value, run_report
from tests.store import runkit as run
from tests.support.turns import asked

STEP = attempt_id(run.SESSION, 0, 1)
TURN = run.turn(1)
BEGIN = (*opening_events(run.begun().state), TurnStarted(id=TURN, parent_id=run.SESSION, text="x", role="r", model="m"))
CANCELLED = StepFinished(
    id=STEP,
    parent_id=run.SESSION,
    status=Status.ERROR,
    step=0,
    name="configure",
    attempt=1,
    result=StepResult.CANCELLED,
)
OVER = WorkflowFinished(id=run.SESSION, parent_id="", status=Status.ERROR, result="cancelled", answer="")
STOPPED = TurnFinished(id=TURN, parent_id=run.SESSION, status=Status.ERROR, result=TurnStatus.CANCELLED, answer="")


def lines(*events: object) -> list[EventLine]:
    tree = Tree()
    return [line for event in events for line in tree.lines(Published(at=1.0, event=event))]  # type: ignore[arg-type]


def test_turns_are_inside_of_the_attempt_that_they_are_made_for() -> None:
    shown = lines(*BEGIN, STOPPED)
    assert [(line["type"], line["parent_id"]) for line in shown] == [
        ("workflow_started", ""),
        ("step_started", run.SESSION),
        ("turn_started", STEP),
        ("turn_finished", STEP),
    ]


def test_a_turn_that_is_stopped_because_the_run_ends_is_closed_once() -> None:
    """The run says that it is over before its turn can."""
    shown = lines(*BEGIN, CANCELLED, OVER, STOPPED)
    closed = [line["id"] for line in shown if "started_at" in line]
    assert closed == [TURN, STEP, run.SESSION]


def test_the_word_of_a_gate_does_not_close_the_turn_of_its_command() -> None:
    gate = GateChecked(id=TURN, parent_id=STEP, gate="builds", command="make", status=Status.SUCCESS)
    shown = lines(*BEGIN, STOPPED, gate)
    assert [line["id"] for line in shown if "started_at" in line] == [TURN]
    assert shown[-1]["id"] != TURN


def turn_of_the_run() -> TurnState:
    state = asked()
    return replace(
        state, turn_id=TURN, session_id=run.SESSION, messages=(replace(state.messages[0], id=MessageId("m")),)
    )


def test_a_run_in_trouble_has_failed_so_far_and_says_what_keeps_it() -> None:
    error = ConfigError("There is no role 'x'.", advice="Put it back.")
    report = run_report(run.begun().state, [turn_of_the_run()], blocked_by=error)
    assert (report.status, report.detail, report.advice) == ("failed", "There is no role 'x'.", "Put it back.")
    assert [step.status for step in report.steps] == ["running", "pending"]
    assert run_report(run.begun().state, [turn_of_the_run()]).status == "running"


def test_each_step_has_the_state_that_a_script_asks_for() -> None:
    second = replace(run.begun().state, phase=RunningStep(step=1, attempt=2, turn_id=run.turn(4)), turns=4)
    outputs = {
        "answered": StepOutput(step=0, text='{"name":"db"}'),
        "failed": StepOutput(step=0, text="", failed=True, detail="no"),
        "skipped": StepOutput(step=0, text="", skipped=True, detail="no"),
    }
    for status, output in outputs.items():
        report = run_report(replace(second, outputs=(output,)), [])
        assert [step.status for step in report.steps] == [status, "running"]
        assert report.steps[1].attempt == 2
    assert output_value(run_report(replace(second, outputs=(outputs["answered"],)), []).steps[0]) == {"name": "db"}
    ended = replace(second, phase=run.over(RunResult.CANCELLED), outputs=(outputs["answered"],))
    assert [step.status for step in run_report(ended, []).steps] == ["answered", "cancelled"]
    at_once = replace(second, phase=run.over(RunResult.FAILED), outputs=())
    assert [step.status for step in run_report(at_once, []).steps] == ["failed", "pending"]
