"""The chat screen: turns keys into calls of the session and its events into drawing, nothing else."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.message import Message
from textual.notifications import Notification
from textual.widgets import Static

from chatops.domain.errors import ChatopsError
from chatops.tui.composer.completions import Completions
from chatops.tui.composer.composer import Composer
from chatops.tui.screens import banner_text, windows
from chatops.tui.screens.asking import SETTLE_S, Asking
from chatops.tui.screens.chat_sending import ChatSending
from chatops.tui.status.banner import Banner, Notices, QueuedMessages
from chatops.tui.status.status_line import StatusLine
from chatops.tui.textual_internals import report_error

# The first paint shows an empty screen with a message field. The modules that draw a session, and its values, are
# imported right after it.
if TYPE_CHECKING:
    from chatops.domain.events import Published
    from chatops.runtime.view import SessionView, Snapshot
    from chatops.tui.host import Opened
    from chatops.tui.screens.reading_desk import ReadingDesk
    from chatops.tui.screens.run_board import RunBoard
    from chatops.tui.screens.run_desk import RunDesk
    from chatops.tui.transcript.blocks import Op
    from chatops.tui.transcript.projector import Projector


class ChatScreen(ChatSending):
    """Transcript, banner, message field, status line. Implements the `Face` that slash commands use."""

    AUTO_FOCUS = "Composer"
    BINDINGS: ClassVar = [
        Binding("ctrl+g", "pending", "waiting calls", id="pending"),
        Binding("f2", "take_over", "take over", id="take-over"),
    ]

    class Batch(Message):
        """Events of a session, on their way from its bus to the screen."""

        def __init__(self, session: "SessionView", published: "list[Published]") -> None:
            super().__init__()
            self.session = session
            self.published = published

    def __init__(self, *, clock: Callable[[], float], keep_unsent: Callable[[Sequence[str]], bool]) -> None:
        super().__init__(keep_unsent)
        self.clock = clock
        self._unsubscribe: Callable[[], None] = lambda: None
        self._projector: Projector | None = None
        self._reading: ReadingDesk | None = None
        self._asking = Asking(self)
        self._update_due = False
        self._elsewhere = ""
        self._changing = False
        """True while another session is being opened."""
        self._pending_asked = False
        """True if ctrl+g was pressed meanwhile."""
        self._going = False
        """True while the session is being exchanged for one that follows it."""
        self._cleared = ""
        """The text that ctrl+c has cleared from the message field."""
        self.leaves_draft = False
        """Set on closing: True if something was typed and not sent."""
        self.left = ""
        """Set on closing: what was typed and sent before there was a session to store it."""

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom."""
        yield Static(id="empty")
        yield Static(id="unseen")
        yield QueuedMessages(id="queued")
        yield Completions(id="completions")
        yield Notices(id="notices")
        yield Banner(id="banner")
        yield Composer(clock=self.clock, id="composer")
        yield StatusLine(id="status")

    def on_mount(self) -> None:
        """Show a status while the session is being opened. The message field can already be used."""
        self.query_one(StatusLine).say("opening the conversation")

    def show_notices(self, notices: Sequence[Notification]) -> None:
        """Show the notices above the message field, where they cover nothing."""
        if self.is_attached:
            self.query_one(Notices).show(notices)

    def on_screen_resume(self) -> None:
        """Offer calls that arrived while another screen was open, once that screen's result was handled."""
        self.set_timer(SETTLE_S / 5, self.update_now)

    # Session

    def opened_with(self, opened: "Opened") -> None:
        """Show the first session. Text typed so far stays, and messages sent so far are submitted."""
        self._host = opened.host
        self.composer.set_history(opened.host.history())
        self._follow(opened.session)
        self.drafts.recall()
        self._elsewhere = opened.waiting
        self.update_now()
        for notice in (*opened.notices, *opened.session.snapshot().notices):
            self.say(notice)
        self.send_what_waited()
        if opened.pick:
            self.open_sessions()
        else:
            self._show_pending_if_asked()

    def _follow(self, session: "SessionView") -> None:
        self._unsubscribe()
        self._session = session
        self._asking.forget()
        windows.close_dialogs(self.app)
        from chatops.tui.transcript.frame_buffer import FrameBuffer

        buffer = FrameBuffer(lambda batch: self._forward(session, batch))
        stop = session.subscribe(buffer)

        def unsubscribe() -> None:
            stop()
            buffer.drop()

        self._unsubscribe = unsubscribe
        self._desk = self._desk_for(session)
        self._reading = self._reading_of(session)
        self._draw_stored(session)
        self._elsewhere = ""
        self.update_now()
        if (desk := self._desk or self._reading) is not None:
            # Start only now, when its events have a subscriber.
            self.run_worker(desk.show(), group="run")

    def _desk_for(self, session: "SessionView") -> "RunDesk | None":
        run = self.host.run_of(session)
        if run is None:
            return None
        from chatops.tui.screens.run_desk import RunDesk

        return RunDesk(self, run)

    def _reading_of(self, session: "SessionView") -> "ReadingDesk | None":
        from chatops.runtime.follower import SessionFollower

        if not isinstance(session, SessionFollower):
            return None
        from chatops.tui.screens.reading_desk import ReadingDesk

        return ReadingDesk(self, session)

    @property
    def reads_along(self) -> bool:
        """True if another process owns the open session."""
        return self._reading is not None

    @property
    def board(self) -> "RunBoard | None":
        """The workflow run shown beside the session, whether it runs here or elsewhere."""
        desk = self._desk or self._reading
        return desk.board if desk is not None else None

    def redraw(self, ops: "list[Op]") -> None:
        """Apply operations to the transcript."""
        if self._transcript is not None:
            self._transcript.apply(ops)

    def _forward(self, session: "SessionView", batch: "list[Published]") -> None:
        self.post_message(self.Batch(session, batch))

    async def change_session(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. Pending calls of the present one stay pending; typed text becomes its draft."""
        self._changing = True
        try:
            following = await opening
            self.drafts.keep()
            self.composer.take_text()
            await self._show_instead(following)
            self.drafts.recall()
        finally:
            self._changing = False
            self._show_pending_if_asked()

    async def exchange(self, opening: "Awaitable[SessionView]") -> None:
        """Reopen the same session in another mode: owned by this process, or followed.

        Typed text stays in the message field. A draft typed in the owning process is added to it.
        """
        following = await opening
        if self.reads_along:
            # Store the current text, so that `recall` recognises it as the same.
            self.drafts.keep()
        await self._show_instead(following)
        if self.reads_along:
            self.drafts.keep()
        else:
            self.drafts.recall()

    async def _show_instead(self, following: "SessionView") -> None:
        leaving = self._leaving(self.session)
        self._follow(following)
        await leaving()

    def _leaving(self, session: "SessionView") -> "Callable[[], Awaitable[None]]":
        desk = self._desk or self._reading
        return session.aclose if desk is None else desk.leave

    async def _read_on(self, gone: ChatopsError) -> None:
        """Follow the session after another process has taken its lease."""
        self.say(f"{gone} {gone.advice}".strip())
        try:
            await self.exchange(self.host.follow_session(self.session.session_id))
        except ChatopsError as error:
            self.say(f"{error} {error.advice}".strip())

    async def close(self) -> None:
        """Store the draft and close the session."""
        self.leaves_draft = self.opened and bool(self.composer.text)
        self.left = "" if self.opened else self.unkept
        self.drafts.keep()
        self._unsubscribe()
        if self._session is not None:
            await self._leaving(self._session)()

    # Events to drawing

    @on(Batch)
    def draw_batch(self, message: Batch) -> None:
        """Draw a batch of events. A batch of a session that is no longer shown is dropped."""
        if message.session is not self._session:
            return
        self._draw_events(message)
        self.query_one(StatusLine).follow(message.published)
        from chatops.tui.transcript.frame_buffer import is_delta

        dialog = windows.open_approval(self.app)
        for published in message.published:
            if is_delta(published.event):
                continue
            if dialog is not None:
                dialog.feed(published.event)
            self.refresh_soon()
        if self._desk is not None:
            self._desk.feed([published.event for published in message.published])

    def _draw_events(self, message: Batch) -> None:
        if self._transcript is None or self._projector is None:
            return
        try:
            self._transcript.apply(self._projector.feed_all(message.published))
        except Exception as error:
            # The events are also stored, so a bug in drawing must not leave a gap on the screen.
            self._draw_stored(message.session)
            report_error(self.app, error)

    def _draw_stored(self, session: "SessionView") -> None:
        """Draw the session's current state. Later events are added to it."""
        from chatops.tui.transcript.projector import Projector

        projector = self._projector = Projector()
        blocks = projector.load(session.snapshot(), self._desk.run_turns if self._desk is not None else None)
        if self._transcript is not None:
            self._transcript.set_blocks(blocks if self._reading is None else self._reading.blocks())

    def refresh_soon(self) -> None:
        """Schedule one update of everything but the transcript."""
        if not self._update_due:
            self._update_due = True
            self.call_after_refresh(self.update_now)

    def update_now(self) -> None:
        """Update status line, banner and dialog from the session's current state."""
        self._update_due = False
        if self._session is None or not self.is_attached:
            return
        if (gone := self._session.taken_over) is not None:
            if not self._going:
                self._going = True
                self.run_worker(self._read_on(gone), group="read on")
            return
        self._going = False
        from chatops.domain.events import TurnStatus

        snapshot = self._session.snapshot()
        running = snapshot.status is TurnStatus.RUNNING and not self.reads_along
        self.query_one(StatusLine).show(snapshot, sandbox=self.host.sandbox(), running=running)
        self.show_queue()
        if self._projector is not None and snapshot.permitted:
            self.redraw(self._projector.permit(snapshot.permitted))
        if self.board is not None:
            self.board.update()
        failed = snapshot.status is TurnStatus.FAILED and not self.reads_along
        failed = failed and not (self._desk is not None and self._desk.owns_last_turn)
        troubled = self._session.blocked_by is not None or (self.run is not None and self.run.blocked_by is not None)
        self.composer.retry_offered = failed or troubled
        self.show_banner(snapshot, failed=failed)
        self._asking.offer(snapshot)

    def show_banner(self, snapshot: "Snapshot", *, failed: bool) -> None:
        """Show the most urgent thing that needs the user, or hide the banner."""
        text, tone = self._banner(snapshot, failed=failed)
        self.query_one(Banner).say(text, tone=tone, standing=snapshot.concern)

    def _banner(self, snapshot: "Snapshot", *, failed: bool) -> banner_text.Said:
        if self._reading is not None:
            return self._reading.banner(snapshot)
        if self._desk is not None and (hindered := self._desk.hindrance()):
            return hindered, "error" if self._desk.run.blocked_by else "quiet"
        if trouble := self.host.workspace_trouble():
            return banner_text.no_tool_works(trouble)
        if snapshot.pending and windows.open_approval(self.app) is None:
            return banner_text.calls_waiting(snapshot.pending)
        if self._desk is not None and (asked := self._desk.banner()):
            return asked, "waiting"
        if failed:
            return banner_text.turn_failed()
        if snapshot.registry:
            return banner_text.of_registry(snapshot.registry)
        if self._elsewhere and not snapshot.messages:
            return banner_text.waits_elsewhere(self._elsewhere)
        begun = bool(snapshot.messages) or snapshot.status is not None
        return banner_text.NOTHING if begun else banner_text.greeting(snapshot)

    # Keys to calls

    @on(Composer.Stop)
    async def stop(self, message: Composer.Stop) -> None:
        """Stop the answer and clear the selection, so that ctrl+c stops and quits again."""
        message.stop()
        self.clear_selection()
        if self._session is not None and not await self._session.cancel():
            self.update_now()

    async def interrupt(self) -> str:
        """Handle the first ctrl+c: stop a running turn, else move the text to the history. Return what was done."""
        self._cleared = ""
        if self._session is not None and self._answering(self._session) and await self._session.cancel():
            return "Stopped."
        if self.composer.text:
            text = self.composer.take_text()
            self._cleared = text
            self.composer.add_history(text)
            if self._host is not None:
                self._host.remember(text)
            return "The text is in the history (Up)."
        return ""

    def take_back_interrupt(self) -> None:
        """Restore the text that the first ctrl+c cleared. The second one quits, so the text becomes a draft."""
        if self._cleared and not self.composer.text:
            self.composer.put(self._cleared)

    def _answering(self, session: "SessionView") -> bool:
        from chatops.domain.events import TurnStatus

        return session.snapshot().status is TurnStatus.RUNNING

    def action_pending(self) -> None:
        """Open what needs a decision (ctrl+g): in this session, else in another one of the workspace."""
        if not self.opened or self._changing:
            self._pending_asked = True
        elif not self._asking.waits_here:
            self.run_worker(self._asking.open_elsewhere(), group="sessions", exclusive=True)
        else:
            self.open_pending()

    def _show_pending_if_asked(self) -> None:
        """Act on ctrl+g that was pressed while the session was being opened."""
        asked, self._pending_asked = self._pending_asked, False
        if asked:
            self.action_pending()

    def action_take_over(self) -> None:
        """Take over a session that is open elsewhere (F2)."""
        if self._reading is not None:
            self._reading.take_over()
        elif self.opened:
            self.say("This conversation is open here already.")

    def open_pending(self) -> None:
        """Open the dialog for what needs the user's decision. At most one dialog is open."""
        self._asking.open()
