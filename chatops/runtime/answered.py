"""Sentences about who decided a call or reviewed a step, for a user whose own decision came second."""

from datetime import datetime

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected
from chatops.domain.ids import CallId, SessionId
from chatops.engine.workflow.inputs import ReviewStep
from chatops.store.base import DecisionRow, Store


def answer_to(store: Store, session: SessionId, call_id: CallId) -> DecisionRow | None:
    """Return the decision on a call: one posted for the turn, else the last one that the turn took, else None."""
    left = (one.decided for one in store.queue(session_id=session) if one.pending.call.id == call_id)
    taken = (one for one in reversed(store.decisions(session_id=session)) if one.call_id == call_id)
    return next((one for one in left if one is not None), None) or next(taken, None)


def told(answer: DecisionRow) -> str:
    """Return the decision in words: ``denied by uid 1000 (ana) via approvals on box, pts/3, at 10:15:12``."""
    return f"{word_for(answer.decision)} by {_who(answer.by)} at {_when(answer.decided_at)}"


def told_review(word: ReviewStep, *, at: float | None = None) -> str:
    """Return the same for a review: ``accepted by uid 1000 (ana) via workflow on box, pts/3, at 10:15:12``.

    `at` is when the run took it, in seconds since the epoch; None leaves it out.
    """
    return f"{_REVIEWS[word.review.kind]} by {_who(word.by)}{'' if at is None else f' at {_when(at)}'}"


_REVIEWS = {"accept": "accepted", "try_again": "sent back", "skip": "skipped", "stop": "stopped"}


def _who(by: Principal) -> str:
    place = ", ".join(part for part in (by.host, by.tty.removeprefix("/dev/")) if part)
    return f"{by}{f' on {place}' if place else ''}"


def _when(at: float) -> str:
    when = datetime.fromtimestamp(at).astimezone()
    day = "" if when.date() == datetime.now().astimezone().date() else f"{when:%Y-%m-%d} "
    return f"{day}{when:%H:%M:%S}"


def word_for(decision: Decision) -> str:
    """Return the decision as one word or two, such as "approved"."""
    match decision:
        case Approved():
            return "approved"
        case Edited():
            return "edited"
        case Rejected():
            return "denied"
        case MarkedDone():
            return "marked as done"
