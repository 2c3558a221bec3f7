"""Draws the events of a session into the transcript."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.pictures import Pictures
from chatops.tui.screens.screen_messages import EventBatch
from chatops.tui.textual_internals import report_error

if TYPE_CHECKING:
    from chatops.domain.events import Event
    from chatops.domain.progress import Progress
    from chatops.runtime.view import SessionView, Snapshot
    from chatops.tui.transcript.blocks import Block, Op
    from chatops.tui.transcript.frame_buffer import FrameBuffer
    from chatops.tui.transcript.projector import Projector
    from chatops.tui.transcript.transcript import Transcript

_DRAWING_MODULES = tuple(f"chatops.tui.transcript.{name}" for name in ("transcript", "projector"))
"""Imported after the first paint."""


class TranscriptPresenter:
    """Subscribes to the shown session and draws it. Its events reach the screen as `EventBatch` messages first.

    The transcript's `sign` is the line that moves while a model is awaited, where the answer will come.
    """

    def __init__(self, screen: Screen[Any], *, clock: Callable[[], float]) -> None:
        """Create it. `clock` returns monotonic seconds."""
        self._screen = screen
        self._clock = clock
        self._transcript: Transcript | None = None
        self._projector: Projector | None = None
        self._current: OpenSession | None = None
        """The shown session."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._buffer: FrameBuffer | None = None
        self._pictures = Pictures(screen, redraw=self._redraw_image)
        self._elsewhere = ""
        """Where a turn runs that another process executes; empty: none does."""

    async def mount(self) -> None:
        """Import the modules that draw a session, in a thread, then mount the transcript."""
        for name in _DRAWING_MODULES:
            await asyncio.to_thread(import_module, name)
        from chatops.tui.transcript.transcript import Transcript

        if self._transcript is None and self._screen.is_attached:
            transcript = Transcript(clock=self._clock, id="transcript")
            with self._screen.app.batch_update():
                await self._screen.mount(transcript, before="#empty")
                await self._screen.query("#empty").remove()
            self._transcript = transcript

    @property
    def counts_seconds(self) -> bool:
        """True if a time that passes is in view in the transcript."""
        return self._transcript is not None and self._transcript.counts_seconds

    @property
    def tokens(self) -> int:
        """The tokens of the reply that streams; 0 if none does."""
        return self._transcript.sign.tokens if self._transcript is not None else 0

    @property
    def transcript(self) -> "Transcript | None":
        """The transcript, once it is mounted."""
        return self._transcript

    def restyle(self) -> None:
        """Redraw everything, because the colours have changed."""
        if self._transcript is not None:
            self._transcript.restyle()

    def warm_up(self) -> None:
        """Import the Markdown renderer, now that everything else is on screen."""
        if self._transcript is not None:
            self._transcript.start_warm_up()

    def subscribe(self, session: "SessionView") -> None:
        """Get the events of this session instead, from now on."""
        from chatops.tui.transcript.frame_buffer import FrameBuffer

        self.unsubscribe()
        buffer = self._buffer = FrameBuffer(lambda batch: self._screen.post_message(EventBatch(session, batch)))
        stop = session.subscribe(buffer)

        def unsubscribe() -> None:
            stop()
            buffer.drop()

        self._unsubscribe = unsubscribe

    def hold(self) -> AbstractContextManager[None]:
        """Draw no events of the session while a block runs."""
        return self._buffer.hold() if self._buffer is not None else nullcontext()

    def unsubscribe(self) -> None:
        """Get no more events."""
        self._unsubscribe()

    def show(self, current: OpenSession) -> None:
        """Draw the session's current state. Later events are added to it."""
        self._current = current
        self._pictures.show(current)
        blocks = self._load(current)
        if self._transcript is not None:
            self._transcript.draw_by(current.session.capabilities, self._pictures.look_up)
            self._transcript.set_blocks(blocks)

    def _redraw_image(self, digest: str) -> None:
        if self._transcript is not None:
            self._transcript.redraw_image(digest)

    def show_changes(self) -> None:
        """Draw what has changed in the shown session since it was drawn last."""
        from chatops.tui.transcript.blocks import changes

        if self._current is not None and self._projector is not None:
            before = self._projector.blocks
            self.apply(changes(before, self._load(self._current)))

    def _load(self, current: OpenSession) -> "list[Block]":
        from chatops.tui.transcript.projector import Projector

        self._projector = Projector()
        return self._projector.load(current.session.events(current.run_state))

    def draw(self, batch: EventBatch) -> "list[Event]":
        """Draw a batch of events. Return those that do more than continue a text."""
        from chatops.tui.transcript.frame_buffer import is_delta

        if self._transcript is not None and self._projector is not None and self._current is not None:
            try:
                self._transcript.sign.follow(batch.published, now=self._clock())
                self.apply(self._projector.feed_all(batch.published))
                self._transcript.follow_calls(batch.published)
            except Exception as error:
                # The events are also stored, so a bug in drawing must not leave a gap on the screen.
                self.show(self._current)
                report_error(self._screen.app, error)
        return [published.event for published in batch.published if not is_delta(published.event)]

    def draw_state(self, snapshot: "Snapshot", *, running: bool, retry: bool) -> None:
        """Draw what follows from the session's state and is no event: the sign, and marks in blocks.

        Cards say that a call is permitted and waits for others. `running`: a turn runs here. `retry`: the last error
        says that R retries the turn.
        """
        if self._transcript is not None:
            self._transcript.show_sign(running=running, role=snapshot.role)
        if self._projector is not None:
            self.apply([*self._projector.permit(snapshot.permitted), *self._projector.offer_retry(retry)])

    def draw_elsewhere(self, what: str) -> None:
        """Show that a turn runs in another process, and where; empty: none does."""
        if self._transcript is None or (not what and not self._elsewhere):
            return
        if self._transcript.sign.work is None or what != self._elsewhere:
            from chatops.domain.progress import Progress  # the first paint does without it

            self._elsewhere, now = what, self._clock()
            seen = Progress(what=what, done=0, total=0, unit="", since=now, counted_since=now)
            self._transcript.show_work(seen if what else None)

    def draw_progress(self, progress: "Progress | None") -> None:
        """Show how far long work of a command is; None at its end."""
        if self._transcript is not None:
            self._transcript.show_work(progress)

    def apply(self, ops: "list[Op]") -> None:
        """Apply operations to the transcript. The terminal deletes images that are in no block any more."""
        from chatops.tui.transcript.blocks import Remove

        if ops and self._transcript is not None:
            self._transcript.apply(ops)
            if self._pictures.any_in_terminal and any(isinstance(op, Remove) for op in ops):
                self._pictures.keep_only(self._transcript.digests())

    def follow_end(self) -> None:
        """Scroll to the end and stay there."""
        if self._transcript is not None:
            self._transcript.follow()

    def press(self, key: str) -> None:
        """Handle a key that scrolls, or selects, opens and copies blocks."""
        if self._transcript is not None:
            self._transcript.press(key)
