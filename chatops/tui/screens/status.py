"""Keeps the status line, the banner, the composer's frame and the first screen up to date."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.sanitize import sanitize
from chatops.tui.composer import Composer
from chatops.tui.first_screen import FirstFacts, FirstScreen, branch_of, first_facts
from chatops.tui.keys import key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.status import Banner, StatusLine
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.domain.events import Event
    from chatops.runtime.view import Snapshot
    from chatops.wiring.rows import SessionRow
    from chatops.wiring.workspace import Workspace

_MIN_HEIGHT_FOR_FRAME = 18
"""Lines of the window from which on the message field has a frame."""
_MIN_HEIGHT_FOR_LINE = 10
"""Lines from which on a field without frame and colours has a line above it."""

_FULL_SHARE = 0.8
"""Share of the context window from which on /compact is offered."""


class StatusPresenter:
    """Shows the state of the session, and of the sessions beside it."""

    def __init__(self, screen: Screen[Any], composer: Composer, *, themes: Themes, sending: SendingPresenter) -> None:
        """Create it for the chat screen and its message field."""
        self._screen = screen
        self._composer = composer
        self._themes = themes
        self._sending = sending
        self._pending_elsewhere = ""
        """What is pending in other sessions, as a sentence; empty if nothing, or once the user has continued."""
        self._offered_in = ""
        """The session in which /compact is offered, or was; empty if not in the session shown now."""
        self._offer_over = False
        """True once /compact was offered in this session and the user has continued."""
        self._first_facts: FirstFacts | None = None
        """What the first screen says; None while it is hidden, or if it has to be made again."""
        self._open_sessions: Sequence[SessionRow] = ()
        """The sessions of this folder, as they were listed last."""

    def note_pending(self, text: str) -> None:
        """Show what is pending in other sessions, as found at the start, until the user continues; empty: no more."""
        self._pending_elsewhere = f"{text} – {key_of('pending')}" if text else ""

    def update(self, current: OpenSession, snapshot: "Snapshot", *, running: bool, dialog: bool) -> bool:
        """Show the session's current state. Return True if R retries its last turn.

        `running`: a turn runs here. `dialog`: a dialog is open.
        """
        from chatops.tui.screens.banner_text import has_failed, keys_while_running, most_urgent

        own, query_one = current.own_run, self._screen.query_one
        colour = self._themes.role_colours.get(snapshot.role, "")
        query_one(StatusLine).show(snapshot, sandbox=current.workspace.sandbox, running=running, colour=colour)
        self._composer.keys_while_running = keys_while_running(snapshot.messages) if running else ""
        self.fit(current, snapshot)
        failed = has_failed(snapshot, current)
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
        # Also where it is not shown: a text that is more urgent must not let it come back.
        offer = self._compact_offer(snapshot, idle=idle)
        query_one(Banner).show(text or offer, tone=tone, problem=snapshot.concern)
        return failed

    def _compact_offer(self, snapshot: "Snapshot", *, idle: bool) -> str:
        """Return an offer of /compact, once in a session, when the context is 80 % full, until the user continues.

        `idle` is True while nothing runs and no dialog is open.
        """
        if self._offered_in != snapshot.session_id:
            self._offered_in, self._offer_over = "", False
        window, used = snapshot.context_window or 0, snapshot.context_used
        is_full = bool(snapshot.messages) and used >= window * _FULL_SHARE > 0
        if is_full and idle and not self._offer_over:
            self._offered_in = snapshot.session_id
            full = f"The context is {min(100, used * 100 // window)} % full."
            return f"{full} /compact puts a summary in place of what was said; you see it first."
        self._offer_over = bool(self._offered_in)
        return ""

    def feed(self, events: "Sequence[Event]", workspace: "Workspace") -> None:
        """Show the cost of a turn that has ended, if the user wants that, and renew the facts of the first screen."""
        self._first_facts = None
        if workspace.user.shows_turn_cost:
            from chatops.tui.commands.cost import finished_costs  # not before the first paint

            for text in finished_costs(events):
                show_notice(self._screen.app, text)

    def fit(self, current: OpenSession | None, snapshot: "Snapshot | None" = None) -> None:
        """Frame the message field, and show the first screen, only where there is room.

        `snapshot` is that of the session if the caller has taken it.
        """
        if snapshot is None and current is not None:
            snapshot = current.session.snapshot()
        self._frame_composer(snapshot)
        self._show_first_screen(current, snapshot)

    @property
    def frames(self) -> bool:
        """True if the window has room for a frame around the message field."""
        return self._screen.app.size.height >= _MIN_HEIGHT_FOR_FRAME

    def _frame_composer(self, snapshot: "Snapshot | None") -> None:
        height = self._screen.app.size.height
        # Without colours, no background tells the field from the transcript above it.
        has_line = _MIN_HEIGHT_FOR_FRAME > height >= _MIN_HEIGHT_FOR_LINE and not self._themes.colours
        self._composer.set_class(has_line, "-lined")
        if snapshot is None:
            self._composer.frame("", "", colour="", framed=self.frames)
            return
        model = "demo" if snapshot.is_demo else sanitize(snapshot.model_label or snapshot.model, newlines=False)
        colour = self._themes.role_colours.get(snapshot.role, "")
        self._composer.frame(sanitize(snapshot.role, newlines=False), model, colour=colour, framed=self.frames)

    def _show_first_screen(self, current: OpenSession | None, snapshot: "Snapshot | None") -> None:
        """Show what can be done here until the first message is there."""
        first = self._screen.query_one(FirstScreen)
        if snapshot is None or current is None or self._has_begun(snapshot) or current.any_run or current.follows:
            first.hide()
            self._first_facts = None
            return
        if self._first_facts is None or self._first_facts.role != snapshot.role:
            branch = branch_of(snapshot.workspace)
            self._first_facts = first_facts(current.workspace, snapshot.role, self._open_sessions, branch=branch)
        colours, size = self._themes.role_colours, self._screen.size
        has_notices = any(transcript.virtual_size.height for transcript in self._screen.query("Transcript"))
        self._screen.set_class(has_notices, "-noticed")
        first.show(snapshot, self._first_facts, colours=colours, width=size.width, height=size.height)

    def _has_begun(self, snapshot: "Snapshot") -> bool:
        being_sent = bool(self._sending.drafts.being_stored)
        return bool(snapshot.messages) or snapshot.status is not None or being_sent

    async def find_open_sessions(self, workspace: "Workspace") -> None:
        """Find the sessions that the first screen names."""
        self._open_sessions = await workspace.sessions.listed()
        self._first_facts = None
