"""Texts of the banner above the message field: the most urgent thing that needs the user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.sanitize import sanitize
from chatops.tui.status.status_line import approvals_pending

if TYPE_CHECKING:
    from chatops.domain.events import PendingCall
    from chatops.domain.questions import OpenQuestion
    from chatops.engine.workflow.state import AwaitingReview
    from chatops.policy.workflow import WorkflowSpec
    from chatops.runtime.follower import SessionFollower
    from chatops.runtime.view import Snapshot
    from chatops.tui.screens.open_session import OpenSession
    from chatops.tui.status.banner import BannerTone

BannerText = tuple[str, "BannerTone"]
_FULL = 0.8
"""Share of the context window from which on /compact is offered."""
NOTHING: BannerText = ("", "quiet")


def calls_pending(pending: "Sequence[PendingCall]") -> BannerText:
    """Return the text for pending calls while their dialog is closed."""
    from chatops.domain.events import AskReason
    from chatops.tui.transcript.card import verb

    what = ", ".join(dict.fromkeys(verb(one.call.name, one.call.arguments) for one in pending))
    again = any(one.reason is AskReason.CHANGED for one in pending)
    changed = " It has changed since it was approved." if again else ""
    return f"{approvals_pending(len(pending))} – ctrl+g  ({sanitize(what, newlines=False)}){changed}", "waiting"


def questions_pending(questions: "Sequence[OpenQuestion]") -> BannerText:
    """Return the text for questions of servers while their dialog is closed."""
    servers = ", ".join(dict.fromkeys(asked.question.server for asked in questions))
    return f"{sanitize(servers, newlines=False)} asks you, and its call waits – ctrl+g", "waiting"


def review_pending(spec: "WorkflowSpec", wanted: "AwaitingReview") -> BannerText:
    """Return the text for a step that waits for a review while the dialog is closed."""
    from chatops.engine.workflow.state import ReviewReason

    name = sanitize(spec.step(wanted.step).name, newlines=False)
    match wanted.reason:
        case ReviewReason.REVIEW:
            return f"Step {name} to review – ctrl+g", "waiting"
        case ReviewReason.FAILED:
            return f"Step {name} failed, decision pending – ctrl+g", "waiting"
        case ReviewReason.STOPPED:
            return f"Step {name} stopped, decision pending – ctrl+g", "waiting"
        case ReviewReason.UNANSWERED:
            return f"Step {name}: no model could be asked, decision pending – ctrl+g", "waiting"


def followed(reader: "SessionFollower", *, pending: "Sequence[PendingCall]") -> BannerText:
    """Return where the followed session is open, what the user can do, and what is pending in it.

    `pending` is empty while its dialog is open.
    """
    from chatops.engine.workflow.state import AwaitingReview

    text, tone = _owner(reader)
    if reader.run is not None and isinstance(reader.run.phase, AwaitingReview):
        text, tone = f"{text}\nA step needs a review there.", "waiting"
    return (f"{text}\n{calls_pending(pending)[0]}", "waiting") if pending else (text, tone)


def _owner(reader: "SessionFollower") -> BannerText:
    from chatops.runtime.ownership import LeaseRequestState

    lease = reader.lease
    if lease is None:
        return "No longer open elsewhere. Press F2 to take over.", "waiting"
    who = sanitize(f"pid {lease.holder.pid} on {lease.holder.host}", newlines=False)
    match reader.request_state:
        case LeaseRequestState.HELD:
            return f"Open elsewhere ({who}, since {reader.since()}): read-only here. F2 takes over.", "quiet"
        case LeaseRequestState.REQUESTED:
            return f"Asked {who} to hand over …", "quiet"
        case LeaseRequestState.ACCEPTED:
            return (
                f"{who} hands over when its running tool has finished. F2 stops the tool now; its outcome is then "
                "unknown.",
                "waiting",
            )
        case LeaseRequestState.UNANSWERED:
            return (
                f"{who} does not answer. F2 takes over anyway; the outcome of a tool that runs there is then unknown.",
                "waiting",
            )
        case _:
            return "Opening the session here …", "quiet"


def greeting(snapshot: "Snapshot", *, first_screen: bool) -> BannerText:
    """Return the text for an empty session: how to get help and quit, and without a first screen what to do."""
    keys = "/help shows keys and commands, ctrl+q quits."
    if first_screen:
        return keys, "quiet"
    asks = "Ask for something in this folder; calls that could change anything ask first."
    if snapshot.is_demo:
        asks = "This is a demo, no AI. It understands commands such as: list .   read FILE   search TEXT"
    return f"{asks}\n{keys}", "quiet"


def most_urgent(
    snapshot: "Snapshot", current: "OpenSession", *, dialog: bool, failed: bool, elsewhere: str, first_screen: bool
) -> BannerText:
    """Return the text for the most urgent thing that needs the user.

    `dialog` is True while a dialog is open, `failed` if the last turn can be retried; its error in the transcript says
    how. `elsewhere` says what is pending in other sessions. `first_screen` is True while that is shown.
    """
    own, pending = current.own_run, () if dialog else snapshot.pending
    if current.follower is not None:
        return followed(current.follower.reader, pending=pending)
    if own is not None and (blocked := own.blocked()):
        return blocked, "error" if own.run.blocked_by else "quiet"
    if problem := current.workspace.problem:
        return sanitize(problem, newlines=False), "error"
    if snapshot.questions and not dialog:
        return questions_pending(snapshot.questions)
    if pending:
        return calls_pending(pending)
    if own is not None and own.pending_review is not None and not dialog:
        return review_pending(own.run.state.spec, own.pending_review)
    if failed:
        return "The last turn failed.", "error"
    if snapshot.registry:
        return sanitize(snapshot.registry, newlines=False), "waiting"
    if elsewhere and not snapshot.messages:
        return sanitize(elsewhere, newlines=False), "waiting"
    started = bool(snapshot.messages) or snapshot.status is not None
    return NOTHING if started else greeting(snapshot, first_screen=first_screen)


class CompactOffer:
    """Offers /compact once in a session, when the context is 80 % full, until the user goes on."""

    def __init__(self) -> None:
        self._session = ""
        """The session in which it is offered, or was."""
        self._over = False

    def text(self, snapshot: "Snapshot", *, idle: bool) -> str:
        """Return the offer; empty if there is none. `idle` is True while nothing runs and no dialog is open."""
        if self._session != snapshot.session_id:
            self._session, self._over = "", False
        window, used = snapshot.context_window, snapshot.context_used
        if not self._over and idle and window and used >= window * _FULL and snapshot.messages:
            self._session = snapshot.session_id
            share = min(100, used * 100 // window)
            return (
                f"The context is {share} % full. /compact puts a summary in place of what was said; you see it first."
            )
        self._over = bool(self._session)
        return ""
