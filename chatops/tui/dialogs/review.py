"""The review dialog: a step of a run needs a decision by the user, and each key is one.

The dialog holds no rules. Reviews go to `WorkflowRun.review` with step and attempt as they were shown, and the run says
if they still apply.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from textual import on

from chatops.domain.errors import AlreadyDecidedError, ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.engine.workflow.inputs import Accept, Review, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import AwaitingReview, ReviewReason, WorkflowState
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, Row, line, read_on
from chatops.tui.keys import KeyGroup
from chatops.tui.notice import show_notice
from chatops.tui.workflow.text import attempts_text, readable

if TYPE_CHECKING:
    from chatops.runtime.workflow import WorkflowRun


_TROUBLED = (ReviewReason.FAILED, ReviewReason.UNANSWERED)


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
        """Start the pause, because a user who is typing has not read the dialog yet."""
        self._drawn = True
        self.fit()
        if self._run.pending_review != self._wanted:
            self.finish()
            return
        self.start_pause()
        description = _describe_review(self._run.state, self._wanted)
        self.payload.show(description, key=f"{self._wanted.step} {self._wanted.attempt}", seen=False)
        self.show_frame()
        self.call_after_refresh(self.show_frame)

    def follow(self) -> None:
        """Close the dialog when the run no longer waits for this review."""
        if self.can_draw and self._run.pending_review != self._wanted:
            if not self._sending:
                who = self._run.reviewed(step=self._wanted.step, attempt=self._wanted.attempt)
                text = f"Decided elsewhere: it was {who}." if who else "Decided elsewhere: the run continues."
                show_notice(self.app, text)
            self.finish()

    # Answers

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        review = self._wanted.reason is ReviewReason.REVIEW
        match key:
            case _ if self._sending and key in self.DECIDING:
                self.not_taken("an answer is being stored")
            case "a" if review:
                self._accept()
            case "r" if not review:
                self._send(TryAgain())
            case "r" | "e":
                self.app.push_screen(_words_question(self._run.state, self._wanted), self._worded)
            case "s" if _may_skip(self._run.state, self._wanted):
                self._send(Skip())
            case "s" if not review:
                self.show_note("The workflow does not let this step be skipped.")
            case "X":
                self._send(StopRun())
            case "a":
                self.show_note("There is no answer to accept. r tries again.")
            case _ if typed:
                self.pause_again()
            case _:
                pass

    def _accept(self) -> None:
        if self.too_small:
            self.show_note("Make the window larger: what is not shown cannot be accepted.")
        elif not self.payload.end_seen:
            self.payload.read_on()
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
            show_notice(self.app, str(error))
            self.follow()
            return
        except ChatopsError as error:
            self._sending = False
            self.not_answered(sanitize(error.full))
            return
        if self._run.pending_review == wanted and not taken:
            self._sending = False
            self.not_answered("The run cannot take this decision now.")
            return
        self.follow()

    # Drawing

    def frame(self) -> DialogFrame:
        """Return title and keys."""
        left = 0 if self.payload.end_seen else self.payload.lines_below
        narrow = self.has_class("-narrow")
        return DialogFrame(
            title=_review_title(self._run.state, self._wanted),
            keys=_review_keys(self._run.state, self._wanted, left=left, narrow=narrow),
        )

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Allow the answer to be accepted, now that all of it has been on screen."""
        event.stop()
        self.show_frame()


def _describe_review(run: WorkflowState, wanted: AwaitingReview) -> Description:
    """Return the answer to accept, or why there is none. All of it must have been on screen before it is accepted."""
    rows = (*_head(run, wanted), *_answer(wanted), *_before(run, wanted), *_labels(run, wanted))
    return Description(rows=rows, payload=len(rows))


def _review_title(run: WorkflowState, wanted: AwaitingReview) -> str:
    """Return the dialog's first line."""
    name = line(run.spec.step(wanted.step).name)
    match wanted.reason:
        case ReviewReason.REVIEW:
            return f"Review step {name}"
        case ReviewReason.FAILED:
            return f"Step {name} has failed"
        case ReviewReason.STOPPED:
            return f"Step {name} was stopped"
        case ReviewReason.UNANSWERED:
            return f"No model could be asked for step {name}"


def _review_keys(run: WorkflowState, wanted: AwaitingReview, *, left: int, narrow: bool) -> str:
    """Return the key legend. `left` is how many lines of the answer have not been on screen yet."""
    skips = _may_skip(run, wanted)
    if wanted.reason is ReviewReason.REVIEW:
        accept = f"a {read_on(left, short=narrow)}" if left else "a accept"
        if narrow:
            return f"{accept}  r again  X stop  F1 more keys  Esc later"
        return f"{accept}   r try again, with a reason\nX stop the run   Esc later"
    if narrow:
        return f"r again  {'s skip  ' if skips else ''}X stop  F1 more keys  Esc later"
    skip = "   s skip this step" if skips else ""
    return f"r try again   e try again with instructions{skip}\nX stop the run   Esc later"


def _may_skip(run: WorkflowState, wanted: AwaitingReview) -> bool:
    """Return True if the definition lets the user skip this step now."""
    return run.spec.step(wanted.step).may_skip and wanted.reason is not ReviewReason.REVIEW


def _words_question(run: WorkflowState, wanted: AwaitingReview) -> Question[Review]:
    """Return the question for the instruction to the model in the next attempt."""
    name = line(run.spec.step(wanted.step).name)
    if wanted.reason is ReviewReason.REVIEW:
        title, explain = f"Try step {name} again", "Say what is missing or wrong. The model sees its answer and this."
    else:
        title = f"Try step {name} again with instructions"
        explain = "Say what the model should know or do differently. It also gets the request and why the step failed."
    return Question[Review](
        title,
        explain=explain,
        text="",
        check=lambda text: TryAgain(told=text.strip()),
        done="tries again",
        lines=True,
    )


def _head(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    spec = run.spec.step(wanted.step)
    place = f"step {wanted.step + 1} of {len(run.spec.steps)}"
    yield Row(text=f"Workflow {line(run.spec.name)}, {place}: {line(spec.name)}", tone="heading")
    if wanted.detail:
        for part in wanted.detail.split("\n"):
            yield Row(text=line(part), tone="caution" if wanted.reason in _TROUBLED else "quiet")


def _answer(wanted: AwaitingReview) -> Iterator[Row]:
    if not wanted.answer:
        return
    yield Row()
    for part in readable(wanted.answer).split("\n"):
        yield Row(text=line(part), tone="code", exact=True)


def _before(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    """Yield why earlier attempts were not accepted. The last reason is shown above already."""
    earlier = attempts_text(run, wanted.step)
    if wanted.reason in _TROUBLED:
        earlier = earlier[:-1]
    if earlier:
        yield Row()
        yield Row(text="Earlier attempts", tone="heading")
    for text in earlier:
        yield Row(text=line(text), tone="quiet")


def _labels(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    spec = run.spec.step(wanted.step)
    yield Row()
    yield Row(label="asked for", text=line(" ".join(run.query.split())))
    of = f" of {spec.max_attempts}" if wanted.attempt <= spec.max_attempts else ""
    yield Row(label="attempt", text=f"{wanted.attempt}{of}")
    if wanted.reason is ReviewReason.REVIEW:
        passed = [one.tool for one in spec.validations] + [one.name for one in spec.gates]
        if passed:
            yield Row(label="passed", text=line(", ".join(dict.fromkeys(passed))))
    if wanted.step + 1 < len(run.spec.steps):
        yield Row(label="next", text=f"step {wanted.step + 2}: {line(run.spec.step(wanted.step + 1).name)}")
    else:
        yield Row(label="next", text="the run ends: this is its last step")
