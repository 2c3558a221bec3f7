"""The texts of the banner: what is pending, where a session is open, and what can be done next.

Its modules are slow to import, so it is imported once a session is open.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.decisions import OpenQuestion
from chatops.domain.events import AskReason, PendingCall
from chatops.domain.messages import Message, Speaker, UserMessage
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.engine.state import AwaitingModel
from chatops.engine.view import runs_tools
from chatops.engine.workflow.state import AwaitingReview, ReviewReason
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.session_follower import LeaseRequestState, SessionFollower
from chatops.runtime.view import Snapshot
from chatops.tui.keys import key_of
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.transcript.card import pending_verb

if TYPE_CHECKING:
    from chatops.tui.status import BannerTone

BannerText = tuple[str, "BannerTone"]
NOTHING: BannerText = ("", "quiet")


def has_failed(snapshot: Snapshot, current: OpenSession) -> bool:
    """Return True if the last turn has failed and can be retried here."""
    own = current.own_run
    return snapshot.has_failed and not current.follows and not (own is not None and own.owns_last_turn)


def keys_while_running(messages: Sequence[Message]) -> str:
    """Return the keys that send a text during the turn of the last of `messages`."""
    opener = next((message for message in reversed(messages) if isinstance(message, UserMessage)), None)
    is_command = opener is not None and opener.by is Speaker.COMMAND
    # No model could continue with a correction of a command.
    return "Enter queues, Esc stops" if is_command else f"Enter queues, {key_of('correct')} interrupts"


def calls_pending(pending: Sequence[PendingCall]) -> BannerText:
    """Return the text for pending calls while their dialog is closed."""
    verbs = sanitize(", ".join(dict.fromkeys(map(pending_verb, pending))), newlines=False)
    has_changed = any(call.reason is AskReason.CHANGED for call in pending)
    changed = " It has changed since it was approved." if has_changed else ""
    return f"{plural(len(pending), 'approval')} pending – {key_of('pending')}  ({verbs}){changed}", "waiting"


def questions_pending(questions: Sequence[OpenQuestion]) -> BannerText:
    """Return the text for questions of servers while their dialog is closed."""
    servers = ", ".join(dict.fromkeys(asked.question.server for asked in questions))
    return f"{sanitize(servers, newlines=False)} asks you, and its call waits – {key_of('pending')}", "waiting"


def review_pending(spec: WorkflowSpec, wanted: AwaitingReview) -> BannerText:
    """Return the text for a step that waits for a review while the dialog is closed."""
    name = sanitize(spec.step(wanted.step).name, newlines=False)
    match wanted.reason:
        case ReviewReason.REVIEW:
            return f"Step {name} to review – {key_of('pending')}", "waiting"
        case ReviewReason.FAILED:
            return f"Step {name} failed, decision pending – {key_of('pending')}", "waiting"
        case ReviewReason.STOPPED:
            return f"Step {name} stopped, decision pending – {key_of('pending')}", "waiting"
        case ReviewReason.UNANSWERED:
            return f"Step {name}: no model could be asked, decision pending – {key_of('pending')}", "waiting"


def follower_banner(reader: SessionFollower, *, pending: Sequence[PendingCall]) -> BannerText:
    """Return where the followed session is open, what the user can do, and what is pending in it.

    `pending` is empty while its dialog is open.
    """
    text, tone = _owner_line(reader)
    if reader.run is not None and isinstance(reader.run.phase, AwaitingReview):
        text, tone = f"{text}\nA step needs a review there.", "waiting"
    return (f"{text}\n{calls_pending(pending)[0]}", "waiting") if pending else (text, tone)


def _owner_line(reader: SessionFollower) -> BannerText:
    """Return where the followed session is open, and what the user can do."""
    lease = reader.lease
    if lease is None and reader.is_job:
        if reader.is_over:
            opens = f"{key_of('take-over')} or your next message opens the session here."
            return f"The turn in the background is over. {opens}", "quiet"
        return f"In the background, and no process runs it now. {key_of('take-over')} opens it here.", "waiting"
    if lease is None:
        return f"No longer open elsewhere. Press {key_of('take-over')} to take over.", "waiting"
    who = sanitize(f"pid {lease.holder.pid} on {lease.holder.host}", newlines=False)
    match reader.request_state:
        case LeaseRequestState.HELD:
            where = "In the background" if reader.is_job else "Open elsewhere"
            return (
                f"{where} ({who}, since {reader.since()}): read-only here. {key_of('take-over')} takes over.",
                "quiet",
            )
        case LeaseRequestState.REQUESTED:
            return f"Asked {who} to hand over …", "quiet"
        case LeaseRequestState.OVERDUE:
            now = f"{key_of('take-over')} takes over now"
            if reader.state is not None and isinstance(reader.state.phase, AwaitingModel):
                return f"{who} hands over when the model has replied. {now}, and the model is asked again.", "waiting"
            if reader.state is not None and runs_tools(reader.state):
                return f"{who} hands over when its tool has ended. {now}; the outcome is then unknown.", "waiting"
            return f"{who} has not handed over yet, and may hang. {now}.", "waiting"
        case _:
            return "Opening the session here …", "quiet"


def greeting(snapshot: Snapshot, *, first_screen: bool) -> BannerText:
    """Return the text for an empty session: how to get help and quit, and without a first screen what to do."""
    keys = f"/help shows keys and commands, {key_of('quit')} quits."
    if first_screen:
        return keys, "quiet"
    asks = "Ask for something in this folder; calls that could change anything ask first."
    if snapshot.is_demo:
        asks = "This is a demo, no AI. It understands commands such as: list .   read FILE   search TEXT"
    return f"{asks}\n{keys}", "quiet"


def most_urgent(
    snapshot: Snapshot, current: OpenSession, *, dialog: bool, failed: bool, elsewhere: str, first_screen: bool
) -> BannerText:
    """Return the text for the most urgent thing that needs the user.

    `dialog` is True while a dialog is open, `failed` if the last turn can be retried; its error in the transcript says
    how. `elsewhere` says what is pending in other sessions. `first_screen` is True while that is shown.
    """
    own, pending = current.own_run, () if dialog else snapshot.pending
    if current.follower is not None:
        return follower_banner(current.follower, pending=pending)
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
