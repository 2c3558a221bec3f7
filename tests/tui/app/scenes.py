"""Scenes of runs of workflows, for pictures and for looking at them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from chatops.domain.tools import Outcome
from chatops.policy.workflow import CommandGate, OnFail, PatternGate, Subject, Validation, WorkflowSpec
from tests.support.runs import flow, step
from tests.tui.app.fake_run import FakeRun
from tests.tui.app.fakes import FakeWorkspace
from tests.tui.app.support_app import Stage, stage

FULL = Validation(tool="validate_full", subject=(Subject(argument="component", pointer="/component"),))
MINIMAL = Validation(tool="validate_minimal")
BAD = '{"valid": false, "errors": [{"property": "port", "message": "is missing"}]}'
ANSWER = {"component": "invoice", "notes": ["db on 5432", "cache without a key"], "port": 8080}


def assembly() -> WorkflowSpec:
    """Discover, configure with everything there is, deploy, report with a review."""
    return flow(
        step("discover"),
        step(
            "configure",
            validations=(MINIMAL, FULL),
            gates=(
                PatternGate(name="tidy", pattern="DRAFT", negated=True),
                CommandGate(name="tests", command="pytest"),
            ),
            max_iterations=5,
        ),
        step("deploy", on_fail=OnFail.ASK, max_attempts=2, may_skip=True),
        step("report", review=True),
        name="assembly",
    )


def discovered(run: FakeRun) -> None:
    """The first step is done."""
    run.play.calls("look", "a db, a cache", path=".")
    run.play.answers({"components": ["db", "cache"]})


def busy(run: FakeRun) -> None:
    """In the second attempt of the second step, a validation failing."""
    discovered(run)
    run.play.gives_up("The key of the cache is unknown.")
    run.play.calls("configure", "written", component="invoice")
    run.play.calls("validate_minimal", '{"valid": true}', component="invoice")
    run.play.calls("validate_full", BAD, component="invoice")


def gated(run: FakeRun) -> None:
    """A gate's command waits for the user."""
    busy(run)
    run.play.calls("validate_full", '{"valid": true}', component="invoice", again=True)
    run.play.answers(ANSWER)


def failed(run: FakeRun) -> None:
    """The third step has used up its attempts."""
    gated(run)
    run.play.approves()
    run.play.returns("12 passed")
    run.play.gives_up("The stage is locked.")
    run.play.gives_up("The stage is still locked by somebody else; ask in the channel of the stage.")


def to_review(run: FakeRun) -> None:
    """The last answer waits for the user."""
    discovered(run)
    for name in ("validate_minimal", "validate_full"):
        run.play.calls(name, '{"valid": true}', component="invoice")
    run.play.answers(ANSWER)
    run.play.approves()
    run.play.returns("12 passed", Outcome.SUCCESS)
    run.play.answers("deployed")
    run.play.answers(ANSWER)


@asynccontextmanager
async def on_stage(
    run: FakeRun,
    scene: Callable[[FakeRun], None] = lambda run: None,
    *,
    size: tuple[int, int] = (80, 24),
    theme: str = "",
) -> AsyncIterator[Stage]:
    """The app with a run open that has got as far as `scene`; twelve seconds went into the first step."""
    async with stage(run.session, workspace=FakeWorkspace(led=[run]), size=size, theme=theme) as running:
        await running.settle()
        await worked(running, 12)
        scene(run)
        await running.settle()
        yield running


async def worked(running: Stage, seconds: float) -> None:
    """Time passes while the run works, and is drawn."""
    running.clock.pass_(seconds)
    running.app.chat.refresh_soon()
    await running.settle()
