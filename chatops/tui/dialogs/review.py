"""The review dialog: a step of a run needs a decision by the user, and each key is one.

The dialog holds no rules. Reviews go to `WorkflowRun.review` with step and attempt as they were shown, and the run says
if they still apply.
"""

from typing import TYPE_CHECKING, ClassVar

from textual import on

from chatops.domain.errors import AlreadyDecidedError, ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.inputs import Accept, Review, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import AwaitingReview, ReviewReason
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.guarded import DialogFrame, GuardedDialog
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.review_text import describe_review, may_skip, review_keys, review_title, words_question
from chatops.tui.keys import KeyGroup

if TYPE_CHECKING:
    from chatops.runtime.workflow import WorkflowRun


class ReviewScreen(GuardedDialog):
    """Asks how the run continues, until it was decided or the user postpones it with Esc."""

    DECIDING: ClassVar[frozenset[str]] = frozenset("aresX")
    KEY_GROUP: ClassVar[KeyGroup] = "review"

    def __init__(self, run: "WorkflowRun", wanted: AwaitingReview, composer: Composer) -> None:
        """Create the dialog. `wanted` is the review the run waits for."""
        super().__init__(composer)
        self._run = run
        self._wanted = wanted
        self._sending = False

    def on_mount(self) -> None:
        """Start the grace period, because a user who is typing has not read the dialog yet."""
        self._drawn = True
        self.fit()
        if self._run.pending_review != self._wanted:
            self.finish()
            return
        self.begin()
        description = describe_review(self._run.state, self._wanted)
        self.payload.show(description, key=f"{self._wanted.step} {self._wanted.attempt}", seen=False)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

    def follow(self) -> None:
        """Close the dialog when the run no longer waits for this review."""
        if self.can_draw and self._run.pending_review != self._wanted:
            if not self._sending:
                who = self._run.reviewed(step=self._wanted.step, attempt=self._wanted.attempt)
                text = f"Decided elsewhere: it was {who}." if who else "Decided elsewhere: the run continues."
                self.app.notify(sanitize(text), markup=False)
            self.finish()

    # Answers

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        review = self._wanted.reason is ReviewReason.REVIEW
        match key:
            case _ if self._sending:
                pass
            case "a" if review:
                self._accept()
            case "r" if not review:
                self._send(TryAgain())
            case "r" | "e":
                self.app.push_screen(words_question(self._run.state, self._wanted), self._worded)
            case "s" if may_skip(self._run.state, self._wanted):
                self._send(Skip())
            case "s" if not review:
                self.show_note("The workflow does not let this step be skipped.")
            case "X":
                self._send(StopRun())
            case "a":
                self.show_note("There is no answer to accept. r tries again.")
            case _ if typed:
                self.arm_again()
            case _:
                pass

    def _accept(self) -> None:
        if self.too_small:
            self.show_note("Make the window larger: what cannot be shown cannot be accepted.")
        elif not self.payload.end_seen:
            self.payload.page(1)
            self.call_after_refresh(self.show_frame)
        else:
            self._send(Accept())

    def _worded(self, review: Review | None) -> None:
        if review is not None:
            self._send(review)

    def _send(self, review: Review) -> None:
        self._sending = True
        self._note = ""
        # Run on the app: a worker of this screen would be cancelled when the dialog closes, before the review is
        # stored.
        self.app.run_worker(self._review(review), group="decide")

    async def _review(self, review: Review) -> None:
        wanted = self._wanted
        try:
            taken = await self._run.review(review, step=wanted.step, attempt=wanted.attempt)
        except AlreadyDecidedError as error:
            # The run has continued and the dialog may close: show the error outside it.
            self.app.notify(sanitize(str(error)), markup=False, timeout=6)
            self.follow()
            return
        except ChatopsError as error:
            self._sending = False
            self.show_note_or_notice(sanitize(error.full))
            return
        if self._run.pending_review == wanted and not taken:
            self._sending = False
            self.show_note_or_notice("The run cannot take this decision now.")
            return
        self.follow()

    # Drawing

    def frame(self) -> DialogFrame:
        """Return title and keys."""
        left = 0 if self.payload.end_seen else self.payload.lines_below
        narrow = self.has_class("-narrow")
        return DialogFrame(
            title=review_title(self._run.state, self._wanted),
            keys=review_keys(self._run.state, self._wanted, left=left, narrow=narrow),
        )

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Allow the answer to be accepted, now that all of it has been on screen."""
        event.stop()
        self.show_frame()
