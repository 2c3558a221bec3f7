"""Display of a workflow run beside its session: panel, working time of each step, outputs of steps.

It is the same for a run that is executed here and for one that is followed.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from chatops.engine.workflow.state import CheckingGate, RunningStep
from chatops.tui.screens import windows
from chatops.tui.workflow.clock import StepClock
from chatops.tui.workflow.panel import WorkflowPanel
from chatops.tui.workflow.text import step_text
from chatops.tui.workflow.view import RunView, standing_at, view_of

if TYPE_CHECKING:
    from chatops.domain.ids import SessionId
    from chatops.engine.state import TurnState
    from chatops.engine.workflow.state import WorkflowState
    from chatops.tui.screens.chat_face import ChatFace


@dataclass(frozen=True, slots=True, kw_only=True)
class Stand:
    """A run as it is stored."""

    run: "WorkflowState"
    turn: "TurnState | None"
    """The last turn of the run's session."""
    trouble: str = ""
    """The error that blocks the run, if any."""


class RunBoard:
    """Draws what `look` returns: on every `update`, and continually while the run works."""

    def __init__(self, chat: "ChatFace", look: Callable[[], Stand], *, clock: Callable[[], float]) -> None:
        """Create the display. `clock` returns monotonic seconds."""
        self._chat = chat
        self._look = look
        self._now = clock
        run = look().run
        self._times = StepClock(len(run.spec.steps), chat.host.step_times(run.session_id))
        self._panel = WorkflowPanel(self.view)
        self._follow_clock()

    @property
    def run_id(self) -> "SessionId":
        """The id of the run and of its session."""
        return self._look().run.session_id

    def view(self) -> RunView:
        """Return the run's current view."""
        now = self._look()
        return view_of(now.run, now.turn, seconds=self._times.seconds(now=self._now()), trouble=now.trouble)

    async def show(self) -> None:
        """Mount the panel."""
        await self._chat.mount(self._panel, before=0)

    async def remove(self) -> None:
        """Remove the panel."""
        if self._panel.is_attached:
            await self._panel.remove()

    def update(self) -> None:
        """Draw the run's current state."""
        self._follow_clock()
        self._panel.draw()

    def _follow_clock(self) -> None:
        now = self._look()
        phase = now.run.phase
        working = isinstance(phase, RunningStep | CheckingGate) and not now.trouble
        working = working and standing_at(phase, now.turn).working
        step = phase.step if isinstance(phase, RunningStep | CheckingGate) and working else None
        self._times.follow(step, now=self._now())

    def keep_times(self) -> None:
        """Store how long each step has worked."""
        self._chat.host.keep_step_times(self.run_id, self._times.seconds(now=self._now()))

    # Used by commands and keys

    def toggle(self) -> None:
        """Fold or open the panel."""
        self._panel.toggle()

    def open_step(self, index: int) -> None:
        """Show the output of a step."""
        step = self.view().steps[index]
        text = step_text(self._look().run, step)
        windows.push_text(self._chat.app, f"Step {step.number}: {step.name}", text=text)

    def step_names(self) -> list[str]:
        """Return the names of the steps in order."""
        return [step.name for step in self._look().run.spec.steps]

    def open_steps(self) -> None:
        """Let the user choose a step whose output is shown."""
        windows.push_steps(self._chat.app, self.view(), chosen=self.open_step)
