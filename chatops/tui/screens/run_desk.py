"""The run that a conversation is, led from here: its board, its dialog. The chat screen asks it, and it asks the run.

A conversation that is no run has none of this, and nothing here is loaded for it.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.events import StepFinished, TurnPaused, WorkflowFinished
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.state import AwaitingReview, ReviewReason
from chatops.tui.blocks.steps import TurnHead, heads_of
from chatops.tui.screens import windows
from chatops.tui.screens.run_board import RunBoard, Stand

if TYPE_CHECKING:
    from chatops.domain.events import Event
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.screens.chat import ChatScreen


class RunDesk:
    """One run while its conversation is open."""

    def __init__(self, chat: "ChatScreen", run: "WorkflowRun") -> None:
        """`run` is that of the chat's conversation."""
        self._chat = chat
        self.run = run
        """What leads, or led, the conversation."""
        self.board = RunBoard(chat, self._stand, clock=chat.clock)
        """What can be seen of it."""
        self._taken_up = False
        self._later: AwaitingReview | None = None
        """What the person has put off."""

    # What is drawn

    @property
    def heads(self) -> dict[str, TurnHead]:
        """The run's turns, for the transcript."""
        return heads_of(self.run.state)

    @property
    def leads(self) -> bool:
        """Whether the run says which turn comes next."""
        return not self.run.over

    @property
    def wanted(self) -> AwaitingReview | None:
        """What a person has to say a word on."""
        return self.run.review_wanted

    def _stand(self) -> Stand:
        run, trouble = self.run, self.run.trouble
        told = f"{trouble} {trouble.advice}".strip() if trouble is not None else ""
        return Stand(run=run.state, turn=run.session.state, trouble=told)

    async def show(self) -> None:
        """Put the panel on the screen and go on with the run, now that somebody listens."""
        await self.board.show()
        try:
            await self.run.go_on()
        except ChatopsError as error:
            self._chat.say(f"{error} {error.advice}".strip())
        self._taken_up = True
        self._chat.refresh_soon()

    def feed(self, events: Sequence["Event"]) -> None:
        """Follow what has happened."""
        dialog = windows.open_review(self._chat.app)
        if dialog is not None:
            dialog.follow()
        if any(isinstance(event, StepFinished | TurnPaused | WorkflowFinished) for event in events):
            self.board.keep_times()

    # What can be asked of it

    def open_review(self) -> None:
        """Ask for the word that the run waits for."""
        wanted = self.wanted
        if wanted is not None and windows.open_review(self._chat.app) is None:
            windows.push_review(self._chat.app, self._chat, self.run, wanted, closed=self._review_closed)

    def _review_closed(self, _: None) -> None:
        """Esc means later: what waits is on the banner, and does not open again by itself."""
        self._later = self.wanted
        self._chat.refresh_soon()

    @property
    def asks_anew(self) -> bool:
        """Whether a person is to be asked something that they have not put off."""
        return self.wanted is not None and self.wanted != self._later

    def banner(self) -> str:
        """What waits for the person, in one sentence; empty if nothing does."""
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
        """Why nobody can be asked anything yet: decided now, what waits would be judged by rights that are not there.

        Empty if all is well.
        """
        if not self._taken_up:
            return "The run is being taken up."
        trouble = self.run.trouble
        return f"{trouble} {trouble.advice} Press R to try again." if trouble is not None else ""

    @property
    def owns_last_turn(self) -> bool:
        """Whether the last turn is one of the run, which is not tried again as one of a chat is."""
        state = self.run.session.state
        return state is not None and (state.contract is not None or state.gate is not None)

    def refusal(self) -> str:
        """Why role, model and persona cannot be changed now; empty if they can."""
        if not self.leads:
            return ""
        return (
            f"This is a run of workflow {self.run.state.spec.name}: its steps say role, model and persona until it "
            "is over. Go on when it has ended, or end it: /workflow cancel"
        )

    async def leave(self) -> None:
        """The conversation is left: keep the times, take the panel away, stop what runs. The stored run stays."""
        self.board.keep_times()
        await self.board.remove()
        await self.run.aclose()
