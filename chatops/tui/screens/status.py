"""Keeps the status line, the banner, the composer's frame and the first screen up to date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.tui.composer import Composer
from chatops.tui.first_screen import FirstFacts, FirstScreen, branch_of, first_facts
from chatops.tui.keys import key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.status import Banner, StatusLine
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.domain.decisions import OpenQuestion
    from chatops.domain.events import Event, PendingCall
    from chatops.domain.messages import Message
    from chatops.engine.workflow.state import AwaitingReview
    from chatops.policy.workflow import WorkflowSpec
    from chatops.runtime.session_follower import SessionFollower
    from chatops.runtime.view import Snapshot
    from chatops.tui.status import BannerTone
    from chatops.wiring.rows import SessionRow
    from chatops.wiring.workspace import Workspace

_FRAMED_FROM = 18
"""Lines of the window from which on the message field has a frame."""
_LINED_FROM = 10
"""Lines from which on a field without frame and colours has a line above it."""

BannerText = tuple[str, "BannerTone"]
_FULL = 0.8
"""Share of the context window from which on /compact is offered."""
NOTHING: BannerText = ("", "quiet")


class StatusPresenter:
    """Shows the state of the session, and of the sessions beside it."""

    def __init__(self, screen: Screen[Any], composer: Composer, *, themes: Themes, sending: SendingPresenter) -> None:
        """Create it for the chat screen and its message field."""
        self._screen = screen
        self._composer = composer
        self._themes = themes
        self._sending = sending
        self._pending_elsewhere = ""
        self._offered_in = ""
        """The session in which /compact is offered, or was."""
        self._offer_over = False
        self._first_facts: FirstFacts | None = None
        self._open_sessions: Sequence[SessionRow] = ()

    def note_pending(self, text: str) -> None:
        """Show what is pending in other sessions, as found at the start, until the user continues; empty: no more."""
        self._pending_elsewhere = f"{text} – {key_of('pending')}" if text else ""

    def update(self, current: OpenSession, snapshot: "Snapshot", *, running: bool, dialog: bool) -> bool:
        """Show the session's current state. Return True if R retries its last turn.

        `running`: a turn runs here. `dialog`: a dialog is open.
        """
        from chatops.domain.events import TurnStatus

        own, query_one = current.own_run, self._screen.query_one
        colour = self._themes.role_colours.get(snapshot.role, "")
        query_one(StatusLine).show(snapshot, sandbox=current.workspace.sandbox, running=running, colour=colour)
        self._composer.keys_while_running = _keys_while_running(snapshot.messages) if running else ""
        self.fit(current, snapshot)
        failed = snapshot.status is TurnStatus.FAILED and not current.follows
        failed = failed and not (own is not None and own.owns_last_turn)
        blocked = current.session.blocked_by is not None or (own is not None and own.run.blocked_by is not None)
        self._composer.retry_offered = failed or blocked
        text, tone = most_urgent(
            snapshot,
            current,
            dialog=dialog,
            failed=failed,
            elsewhere=self._pending_elsewhere,
            first_screen=bool(query_one(FirstScreen).display),
        )
        idle = not running and not dialog and not current.follows and current.any_run is None
        offer = self._compact_offer(snapshot, idle=idle)
        text = text or offer
        query_one(Banner).show(text, tone=tone, problem=snapshot.concern)
        return failed

    def _compact_offer(self, snapshot: "Snapshot", *, idle: bool) -> str:
        """Return an offer of /compact, once in a session, when the context is 80 % full, until the user continues.

        `idle` is True while nothing runs and no dialog is open.
        """
        if self._offered_in != snapshot.session_id:
            self._offered_in, self._offer_over = "", False
        window, used = snapshot.context_window, snapshot.context_used
        if not self._offer_over and idle and window and used >= window * _FULL and snapshot.messages:
            self._offered_in = snapshot.session_id
            full = f"The context is {min(100, used * 100 // window)} % full."
            return f"{full} /compact puts a summary in place of what was said; you see it first."
        self._offer_over = bool(self._offered_in)
        return ""

    def feed(self, events: "Sequence[Event]", workspace: "Workspace") -> None:
        """Show the cost of a turn that has ended, if the user wants that, and renew the facts of the first screen."""
        from chatops.domain.events import TurnFinished

        self._first_facts = None
        for event in events:
            if isinstance(event, TurnFinished) and event.usage is not None and workspace.user.shows_turn_cost:
                from chatops.tui.commands.context import turn_cost

                show_notice(self._screen.app, turn_cost(event.usage))

    def fit(self, current: OpenSession | None, now: "Snapshot | None" = None) -> None:
        """Frame the message field, and show the first screen, only where there is room.

        `now` is the session's snapshot if the caller has taken it.
        """
        if now is None and current is not None:
            now = current.session.snapshot()
        self._frame_composer(now)
        self._show_first_screen(current, now)

    def _frame_composer(self, now: "Snapshot | None") -> None:
        height = self._screen.size.height
        # Without colours, no background tells the field from the transcript above it.
        self._composer.set_class(_FRAMED_FROM > height >= _LINED_FROM and not self._themes.colours, "-lined")
        framed = height >= _FRAMED_FROM
        if now is None:
            self._composer.frame("", "", colour="", framed=framed)
            return
        model = "demo" if now.is_demo else sanitize(now.model_label or now.model, newlines=False)
        colour = self._themes.role_colours.get(now.role, "")
        self._composer.frame(sanitize(now.role, newlines=False), model, colour=colour, framed=framed)

    def _show_first_screen(self, current: OpenSession | None, now: "Snapshot | None") -> None:
        """Show what can be done here until the first message is there."""
        first = self._screen.query_one(FirstScreen)
        begun = now is None or bool(now.messages) or now.status is not None or bool(self._sending.drafts.being_stored)
        if begun or now is None or current is None or current.any_run is not None or current.follows:
            first.hide()
            self._first_facts = None
            return
        if self._first_facts is None or self._first_facts.role != now.role:
            branch = branch_of(now.workspace)
            self._first_facts = first_facts(current.workspace, now.role, self._open_sessions, branch=branch)
        colours, size = self._themes.role_colours, self._screen.size
        self._screen.set_class(any(one.virtual_size.height for one in self._screen.query("Transcript")), "-noticed")
        first.show(now, self._first_facts, colours=colours, width=size.width, height=size.height)

    async def find_open_sessions(self, workspace: "Workspace") -> None:
        """Find the sessions that the first screen names."""
        self._open_sessions = await workspace.sessions.listed()
        self._first_facts = None


def _keys_while_running(messages: "Sequence[Message]") -> str:
    """Return the keys that send a text during the turn of the last of `messages`."""

    from chatops.domain.messages import Speaker, UserMessage  # with thirty values that the first paint needs not

    opener = next((message for message in reversed(messages) if isinstance(message, UserMessage)), None)
    command = opener is not None and opener.by is Speaker.COMMAND
    # No model could continue with a correction of a command.
    return "Enter queues, Esc stops" if command else f"Enter queues, {key_of('correct')} interrupts"


def calls_pending(pending: "Sequence[PendingCall]") -> BannerText:
    """Return the text for pending calls while their dialog is closed."""
    from chatops.domain.events import AskReason
    from chatops.tui.transcript.card import pending_verb

    what = ", ".join(dict.fromkeys(pending_verb(one) for one in pending))
    again = any(one.reason is AskReason.CHANGED for one in pending)
    approvals = plural(len(pending), "approval")
    changed = " It has changed since it was approved." if again else ""
    return (
        f"{approvals} pending – {key_of('pending')}  ({sanitize(what, newlines=False)}){changed}",
        "waiting",
    )


def questions_pending(questions: "Sequence[OpenQuestion]") -> BannerText:
    """Return the text for questions of servers while their dialog is closed."""
    servers = ", ".join(dict.fromkeys(asked.question.server for asked in questions))
    return f"{sanitize(servers, newlines=False)} asks you, and its call waits – {key_of('pending')}", "waiting"


def review_pending(spec: "WorkflowSpec", wanted: "AwaitingReview") -> BannerText:
    """Return the text for a step that waits for a review while the dialog is closed."""
    from chatops.engine.workflow.state import ReviewReason

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


def followed(reader: "SessionFollower", *, pending: "Sequence[PendingCall]") -> BannerText:
    """Return where the followed session is open, what the user can do, and what is pending in it.

    `pending` is empty while its dialog is open.
    """
    from chatops.engine.workflow.state import AwaitingReview

    text, tone = _owner_line(reader)
    if reader.run is not None and isinstance(reader.run.phase, AwaitingReview):
        text, tone = f"{text}\nA step needs a review there.", "waiting"
    return (f"{text}\n{calls_pending(pending)[0]}", "waiting") if pending else (text, tone)


def _owner_line(reader: "SessionFollower") -> BannerText:
    from chatops.runtime.session_follower import LeaseRequestState

    lease = reader.lease
    if lease is None and reader.is_job:
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
            return (
                f"{who} has not handed over yet: a tool runs there, or it hangs. {key_of('take-over')} takes "
                "over now; the outcome of a tool that runs there is then unknown.",
                "waiting",
            )
        case _:
            return "Opening the session here …", "quiet"


def greeting(snapshot: "Snapshot", *, first_screen: bool) -> BannerText:
    """Return the text for an empty session: how to get help and quit, and without a first screen what to do."""
    keys = f"/help shows keys and commands, {key_of('quit')} quits."
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
        return followed(current.follower, pending=pending)
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
