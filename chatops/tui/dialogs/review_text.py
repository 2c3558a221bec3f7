"""Texts of the review dialog: the step that needs a decision, and which decision each key is."""

from collections.abc import Iterator

from chatops.domain.wording import plural
from chatops.engine.workflow.inputs import Review, TryAgain
from chatops.engine.workflow.state import AwaitingReview, ReviewReason, WorkflowState
from chatops.tui.dialogs.payload import Description, Row, line
from chatops.tui.dialogs.question import Question
from chatops.tui.workflow.text import attempts_text, readable

_TROUBLED = (ReviewReason.FAILED, ReviewReason.UNANSWERED)


def describe_review(run: WorkflowState, wanted: AwaitingReview) -> Description:
    """Return the answer to accept, or why there is none. All of it must have been on screen before it is accepted."""
    rows = (*_head(run, wanted), *_answer(wanted), *_before(run, wanted), *_labels(run, wanted))
    return Description(rows=rows, payload=len(rows))


def review_title(run: WorkflowState, wanted: AwaitingReview) -> str:
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


def review_keys(run: WorkflowState, wanted: AwaitingReview, *, left: int, narrow: bool) -> str:
    """Return the key legend. `left` is how many lines of the answer have not been on screen yet."""
    skips = may_skip(run, wanted)
    if wanted.reason is ReviewReason.REVIEW:
        if narrow:
            return f"a{f' +{left} lines ' if left else ''} r X Esc"
        accept = f"a scrolls, {plural(left, 'more line')} below" if left else "a accept"
        return f"{accept}   r try again, with a reason\nX stop the run   Esc later"
    if narrow:
        return f"r e {'s ' if skips else ''}X Esc"
    skip = "   s skip this step" if skips else ""
    return f"r try again   e try again with instructions{skip}\nX stop the run   Esc later"


def may_skip(run: WorkflowState, wanted: AwaitingReview) -> bool:
    """Return True if the definition lets the user skip this step now."""
    return run.spec.step(wanted.step).may_skip and wanted.reason is not ReviewReason.REVIEW


def words_question(run: WorkflowState, wanted: AwaitingReview) -> Question[Review]:
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
