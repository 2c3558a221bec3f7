"""The review dialog: a step of a run needs a decision by the user, and each key is one.

The dialog holds no rules. Reviews go to `WorkflowRun.review` with step and attempt as they were shown, and the run says
if they still apply.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from chatops.domain.errors import AlreadyDecidedError
from chatops.domain.wording import readable
from chatops.engine.workflow.inputs import Accept, Review, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import AwaitingReview, ReviewReason, WorkflowState
from chatops.tui.composer import Composer
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, Room
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.question import Question
from chatops.tui.dialogs.rows import Description, Row, line
from chatops.tui.keys import KeyGroup, KeyLegend
from chatops.tui.notice import show_notice
from chatops.tui.step_text import attempts_text

if TYPE_CHECKING:
    from chatops.runtime.workflow import WorkflowRun


_FAILURE_REASONS = (ReviewReason.FAILED, ReviewReason.UNANSWERED)


class ReviewScreen(GuardedDialog):
    """Asks how the run continues, until it was decided or the user postpones it with Esc."""

    KEYS = (
        AnswerKey(
            "a",
            "accept",
            "accept the answer",
            lambda self: "accept" if self.has_answer else None,
            needs_reading=True,
            missing="There is no answer to accept. r tries again.",
        ),
        AnswerKey(
            "r",
            "try_again",
            "try the step again; a refused answer with a reason",
            lambda self: ("try again, with a reason" if self.has_answer else "try again", "again"),
        ),
        AnswerKey(
            "e",
            "ask_words",
            "try again with instructions",
            lambda self: None if self.has_answer else "try again with instructions",
            missing="r tries again, with a reason.",
        ),
        AnswerKey(
            "s",
            "skip",
            "skip the step, where the workflow allows it",
            lambda self: ("skip this step", "skip") if self.may_skip else None,
            missing="The workflow does not let this step be skipped now.",
        ),
        AnswerKey("X", "stop", "stop the run, for good", ("stop the run", "stop")),
    )
    DONE: ClassVar[str] = "accepted"
    KEY_GROUP: ClassVar[KeyGroup] = "review"

    def __init__(self, run: "WorkflowRun", wanted: AwaitingReview, composer: Composer) -> None:
        """Create the dialog. `wanted` is the review the run waits for."""
        super().__init__(composer)
        self._run = run
        self._wanted = wanted

    def begin(self) -> None:
        """Show what is reviewed, if the run still waits for it."""
        if self._run.pending_review != self._wanted:
            self.finish()
            return
        description = _describe_review(self._run.state, self._wanted)
        self.show_subject(description, key=f"{self._wanted.step} {self._wanted.attempt}", seen=False)

    def refresh_subject(self) -> None:
        """Close the dialog when the run no longer waits for this review."""
        if self._run.pending_review != self._wanted:
            if not self.sending:
                who = self._run.describe_other_review(step=self._wanted.step, attempt=self._wanted.attempt)
                text = f"Decided elsewhere: it was {who}." if who else "Decided elsewhere: the run continues."
                show_notice(self.app, text)
            self.finish()

    # Answers

    @property
    def has_answer(self) -> bool:
        """True if there is an answer to accept; False if the step has none."""
        return self._wanted.reason is ReviewReason.REVIEW

    @property
    def may_skip(self) -> bool:
        """True if the definition lets the user skip this step now."""
        return self._run.state.spec.step(self._wanted.step).may_skip and not self.has_answer

    def _accept(self) -> None:
        self._review(Accept())

    def _try_again(self) -> None:
        if self.has_answer:
            self._ask_words()
        else:
            self._review(TryAgain())

    def _ask_words(self) -> None:
        self.app.push_screen(_words_question(self._run.state, self._wanted), self._review)

    def _skip(self) -> None:
        self._review(Skip())

    def _stop(self) -> None:
        self._review(StopRun())

    def _review(self, review: Review | None) -> None:
        if review is not None:
            self.send(self._store_review(review))

    async def _store_review(self, review: Review) -> str:
        wanted = self._wanted
        try:
            taken = await self._run.review(review, step=wanted.step, attempt=wanted.attempt)
        except AlreadyDecidedError as error:
            # The run has continued and the dialog may close: show the error outside it.
            show_notice(self.app, str(error))
            taken = True
        if self._run.pending_review == wanted and not taken:
            return "The run cannot take this decision now."
        self.follow()
        return ""

    # Drawing

    def frame(self) -> DialogFrame:
        """Return the title."""
        return DialogFrame(title=_review_title(self._run.state, self._wanted))

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys."""
        lines = ("a r e s", "X escape") if self.room is Room.USUAL else ("a r s X f1 escape",)
        return self.hints(*lines, unread=unread)


def _describe_review(run: WorkflowState, wanted: AwaitingReview) -> Description:
    """Return the answer to accept, or why there is none. All of it must have been on screen before it is accepted."""
    rows = (
        *_heading_rows(run, wanted),
        *_answer_rows(wanted),
        *_earlier_attempt_rows(run, wanted),
        *_fact_rows(run, wanted),
    )
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


def _words_question(run: WorkflowState, wanted: AwaitingReview) -> Question[Review]:
    """Return the question for the instruction to the model in the next attempt."""
    name = line(run.spec.step(wanted.step).name)
    if wanted.reason is ReviewReason.REVIEW:
        title, explain = f"Try step {name} again", "Say what is missing or wrong. The model sees its answer and this."
    else:
        title = f"Try step {name} again with instructions"
        explain = "Say what the model should know or do differently. It also gets the request and why the step failed."
    return Question[Review](
        title, explain=explain, text="", check=lambda text: TryAgain(told=text.strip()), done="tries again", lines=True
    )


def _heading_rows(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    spec = run.spec.step(wanted.step)
    place = f"step {wanted.step + 1} of {len(run.spec.steps)}"
    yield Row(text=f"Workflow {line(run.spec.name)}, {place}: {line(spec.name)}", tone="heading")
    if wanted.detail:
        for part in wanted.detail.split("\n"):
            yield Row(text=line(part), tone="caution" if wanted.reason in _FAILURE_REASONS else "quiet")


def _answer_rows(wanted: AwaitingReview) -> Iterator[Row]:
    if not wanted.answer:
        return
    yield Row()
    for part in readable(wanted.answer).split("\n"):
        yield Row(text=line(part), tone="code", exact=True)


def _earlier_attempt_rows(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    """Yield why earlier attempts were not accepted. The last reason is shown above already."""
    earlier = attempts_text(run, wanted.step)
    if wanted.reason in _FAILURE_REASONS:
        earlier = earlier[:-1]
    if earlier:
        yield Row()
        yield Row(text="Earlier attempts", tone="heading")
    for text in earlier:
        yield Row(text=line(text), tone="quiet")


def _fact_rows(run: WorkflowState, wanted: AwaitingReview) -> Iterator[Row]:
    spec = run.spec.step(wanted.step)
    yield Row()
    yield Row(label="asked for", text=line(" ".join(run.query.split())))
    of = f" of {spec.max_attempts}" if wanted.attempt <= spec.max_attempts else ""
    yield Row(label="attempt", text=f"{wanted.attempt}{of}")
    if wanted.reason is ReviewReason.REVIEW:
        passed = [validation.tool for validation in spec.validations] + [gate.name for gate in spec.gates]
        if passed:
            yield Row(label="passed", text=line(", ".join(dict.fromkeys(passed))))
    if wanted.step + 1 < len(run.spec.steps):
        yield Row(label="next", text=f"step {wanted.step + 2}: {line(run.spec.step(wanted.step + 1).name)}")
    else:
        yield Row(label="next", text="the run ends: this is its last step")
