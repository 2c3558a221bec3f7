"""Controller of a workflow run that is executed here: connects the chat screen with the run, its panel and dialog.

A session that is no run has no controller, and this module is not imported for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.events import StepFinished, TurnPaused, WorkflowFinished
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.state import AwaitingReview, ReviewReason
from chatops.tui.screens import windows
from chatops.tui.screens.run_board import RunBoard, Stand
from chatops.tui.transcript.run_blocks import RunTurn, run_turns_of

if TYPE_CHECKING:
    from chatops.domain.events import Event
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.screens.chat import ChatScreen


class RunDesk:
    """Controls one run while its session is open."""

    def __init__(self, chat: "ChatScreen", run: "WorkflowRun") -> None:
        """Create the controller. `run` is the run of the chat's session."""
        self._chat = chat
        self.run = run
        """The run that executes, or executed, the session."""
        self.board = RunBoard(chat, self._stand, clock=chat.clock)
        """The display of the run."""
        self._taken_up = False
        self._later: AwaitingReview | None = None
        """The review that the user has postponed."""

    # Display

    @property
    def run_turns(self) -> dict[str, RunTurn]:
        """The turns of the run, for the transcript."""
        return run_turns_of(self.run.state)

    @property
    def leads(self) -> bool:
        """True while the run decides which turn comes next."""
        return not self.run.over

    @property
    def wanted(self) -> AwaitingReview | None:
        """The review that the run waits for, or None."""
        return self.run.pending_review

    def _stand(self) -> Stand:
        run, trouble = self.run, self.run.blocked_by
        told = f"{trouble} {trouble.advice}".strip() if trouble is not None else ""
        return Stand(run=run.state, turn=run.session.state, trouble=told)

    async def show(self) -> None:
        """Show the panel and resume the run. Events are subscribed to by now."""
        await self.board.show()
        try:
            await self.run.resume()
        except ChatopsError as error:
            self._chat.say(f"{error} {error.advice}".strip())
        self._taken_up = True
        self._chat.refresh_soon()

    def feed(self, events: Sequence["Event"]) -> None:
        """Update dialog and stored times after events of the run."""
        dialog = windows.open_review(self._chat.app)
        if dialog is not None:
            dialog.follow()
        if any(isinstance(event, StepFinished | TurnPaused | WorkflowFinished) for event in events):
            self.board.keep_times()

    # Used by the chat screen

    def open_review(self) -> None:
        """Open the dialog for the review that the run waits for."""
        wanted = self.wanted
        if wanted is not None and windows.open_review(self._chat.app) is None:
            windows.push_review(self._chat.app, self._chat, self.run, wanted, closed=self._review_closed)

    def _review_closed(self, _: None) -> None:
        """Postpone the review: it stays on the banner and does not open again by itself."""
        self._later = self.wanted
        self._chat.refresh_soon()

    @property
    def asks_anew(self) -> bool:
        """True if the run waits for a review that the user has not postponed."""
        return self.wanted is not None and self.wanted != self._later

    def banner(self) -> str:
        """Return the banner text for a pending review; empty if there is none."""
        wanted = self.wanted
        if wanted is None or windows.open_review(self._chat.app) is not None:
            return ""
        name = sanitize(self.run.state.spec.step(wanted.step).name, newlines=False)
        match wanted.reason:
            case ReviewReason.REVIEW:
                return f"Step {name} waits for your review – ctrl+g"
            case ReviewReason.FAILED:
                return f"Step {name} has failed and waits for you – ctrl+g"
            case ReviewReason.STOPPED:
                return f"Step {name} was stopped and waits for you – ctrl+g"
            case ReviewReason.UNANSWERED:
                return f"Step {name} waits: no model could be asked – ctrl+g"

    def hindrance(self) -> str:
        """Return why nothing can be decided yet; empty if all is well.

        Until the run is resumed, a decision would be judged by rights that are not loaded yet.
        """
        if not self._taken_up:
            return "The run is being taken up."
        trouble = self.run.blocked_by
        return f"{trouble} {trouble.advice} Press R to try again." if trouble is not None else ""

    @property
    def owns_last_turn(self) -> bool:
        """True if the last turn belongs to the run, which is not retried like a turn of a chat."""
        state = self.run.session.state
        return state is not None and (state.contract is not None or state.gate is not None)

    def refusal(self) -> str:
        """Return why role, model and persona cannot be changed now; empty if they can."""
        if not self.leads:
            return ""
        return (
            f"This is a run of workflow {self.run.state.spec.name}: its steps say role, model and persona until it "
            "is over. Go on when it has ended, or end it: /workflow cancel"
        )

    async def leave(self) -> None:
        """Store the times, remove the panel and stop what runs. The stored run stays."""
        self.board.keep_times()
        await self.board.remove()
        await self.run.aclose()
