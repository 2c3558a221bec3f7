"""Presenters of a workflow run: panel, working times and outputs of its steps.

`RunPresenter` shows a run from its committed state, whether it is executed here or followed. `OwnRunPresenter` adds
what only the process that executes the run can do. A session that is not a run does not import this module.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.events import StepFinished, TurnPaused, WorkflowFinished
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.engine.workflow.state import AwaitingReview, CheckingGate, RunFinished, RunningStep
from chatops.engine.workflow.view import RunView, current_step, run_view
from chatops.tui.keys import key_of
from chatops.tui.screens.screen_messages import RefreshNeeded
from chatops.tui.step_text import step_text
from chatops.tui.workflow import WorkflowPanel

if TYPE_CHECKING:
    from chatops.domain.events import Event
    from chatops.engine.state import TurnState
    from chatops.engine.workflow.state import WorkflowState
    from chatops.runtime.session_follower import SessionFollower
    from chatops.runtime.workflow import WorkflowRun
    from chatops.wiring.user_state import UserState


@frozen_dataclass
class RunState:
    """A run as it is stored."""

    run: "WorkflowState"
    turn: "TurnState | None"
    """The last turn of the run's session."""
    problem: str = ""
    """The error that blocks the run, if any."""


class StepClock:
    """Adds up seconds per step. All times are monotonic seconds."""

    def __init__(self, count: int, seconds: Sequence[float] = ()) -> None:
        """Create a clock for `count` steps. `seconds` are the times stored when the run was last shown."""
        self._seconds = [*seconds, *([0.0] * count)][:count]
        self._step: int | None = None
        """The step whose time counts now; None if none's."""
        self._since = 0.0
        """The time from which on it counts."""

    def follow(self, step: int | None, *, now: float) -> bool:
        """Count time for `step` from now on (None: for no step). Return True if the step has changed."""
        if step == self._step:
            return False
        if self._step is not None:
            self._seconds[self._step] += max(0.0, now - self._since)
        self._step, self._since = step, now
        return True

    def seconds(self, *, now: float) -> tuple[float, ...]:
        """Return the seconds of each step, the present one up to now."""
        seconds = list(self._seconds)
        if self._step is not None:
            seconds[self._step] += max(0.0, now - self._since)
        return tuple(seconds)


class RunPresenter:
    """Draws what `state` returns: on every `update`, and continually while the run works."""

    def __init__(
        self, screen: Screen[Any], user: "UserState", state: Callable[[], RunState], *, clock: Callable[[], float]
    ) -> None:
        """Create the presenter. The panel is mounted on `screen`. `clock` returns monotonic seconds."""
        self._screen = screen
        self._user = user
        self._state = state
        self._now = clock
        run = state().run
        self._times = StepClock(len(run.spec.steps), user.step_times(run.session_id))
        self.panel = WorkflowPanel(self.view)
        self._follow_clock()

    @property
    def step_names(self) -> tuple[str, ...]:
        """The names of the steps in order."""
        return tuple(step.name for step in self._state().run.spec.steps)

    def view(self) -> RunView:
        """Return the run's current view."""
        state = self._state()
        turns = (state.turn,) if state.turn is not None else ()
        return run_view(state.run, turns, seconds=self._times.seconds(now=self._now()), problem=state.problem)

    async def show(self) -> None:
        """Mount the panel."""
        await self._screen.mount(self.panel, before=0)

    async def leave(self) -> None:
        """Remove the panel."""
        if self.panel.is_attached:
            await self.panel.remove()

    def update(self) -> None:
        """Draw the run's current state."""
        self._follow_clock()
        self.panel.draw()

    def step_text(self, index: int) -> tuple[str, str]:
        """Return title and text for the output of a step."""
        step = self.view().steps[index]
        return f"Step {step.number}: {step.name}", step_text(self._state().run, step)

    def _follow_clock(self) -> None:
        """Count the time of the step that works now."""
        state, step = self._state(), None
        phase = state.run.phase
        if isinstance(phase, RunningStep | CheckingGate) and not state.problem:
            step = phase.step if current_step(phase, state.turn).working else None
        self._times.follow(step, now=self._now())


class OwnRunPresenter(RunPresenter):
    """Presents a run that is executed here: resumes it, and says what of it needs the user."""

    def __init__(
        self, screen: Screen[Any], user: "UserState", run: "WorkflowRun", *, clock: Callable[[], float]
    ) -> None:
        self.run = run
        """The run that executes, or executed, the session."""
        self._resumed, self._is_new = False, not run.stored
        super().__init__(screen, user, self._own_state, clock=clock)

    def _own_state(self) -> RunState:
        run, problem = self.run, self.run.blocked_by
        message = f"{problem} {problem.advice}".strip() if problem is not None else ""
        return RunState(run=run.state, turn=run.session.state, problem=message)

    @property
    def pending_review(self) -> AwaitingReview | None:
        """The review that the run waits for, or None."""
        return self.run.pending_review

    @property
    def owns_last_turn(self) -> bool:
        """True if the last turn belongs to the run, which is not retried like a turn of a chat."""
        state = self.run.session.state
        return state is not None and (state.contract is not None or state.gate is not None)

    async def show(self) -> None:
        """Mount the panel and resume the run. Call it when the run's events have a subscriber.

        Raises ChatopsError if the run cannot be resumed.
        """
        await super().show()
        try:
            await self.run.resume()
        finally:
            self._resumed = True
            self._screen.post_message(RefreshNeeded())

    def feed(self, events: Sequence["Event"]) -> None:
        """Store the working times after a step."""
        if any(isinstance(event, StepFinished | TurnPaused | WorkflowFinished) for event in events):
            self._keep_times()

    def blocked(self) -> str:
        """Return why nothing can be decided yet; empty if all is well.

        Until the run is resumed, a decision would be judged by rights that are not loaded yet.
        """
        if not self._resumed and self._is_new:
            return "The run is starting."
        if not self._resumed:
            return f"The {'session' if self.run.over else 'run'} is being resumed."
        problem = self.run.blocked_by
        return f"{problem} {problem.advice} Press R to try again." if problem is not None else ""

    def settings_locked(self) -> str:
        """Return why role, model and persona cannot be changed now; empty if they can."""
        if self.run.over:
            return ""
        return (
            f"The steps of workflow {self.run.state.spec.name} set role, model and persona until the run ends. "
            "To end it: /workflow cancel"
        )

    async def leave(self) -> None:
        """Store the times, remove the panel and stop what runs. The stored run stays."""
        self._keep_times()
        await super().leave()
        await self.run.aclose()

    def _keep_times(self) -> None:
        self._user.save_step_times(self.run.run_id, self._times.seconds(now=self._now()))


def followed_run(reader: "SessionFollower") -> RunState:
    """Return the run of a followed session."""
    run = reader.run
    assert run is not None
    left = reader.lease is None and not isinstance(run.phase, RunFinished)
    problem = f"No process has it open. {key_of('take-over')} takes it over." if left else ""
    return RunState(run=run, turn=reader.state, problem=problem)
