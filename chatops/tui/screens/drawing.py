"""Draws the events of a session into the transcript."""

import asyncio
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.tui.graphics import encode_pixels
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.screen_messages import EventBatch
from chatops.tui.textual_internals import report_error

if TYPE_CHECKING:
    from collections.abc import Collection

    from chatops.domain.events import Event
    from chatops.domain.files import FileRef
    from chatops.domain.progress import Progress
    from chatops.runtime.view import SessionView, Snapshot
    from chatops.tools.picture import Picture
    from chatops.tui.graphics import Graphics
    from chatops.tui.transcript.blocks import Block, Op
    from chatops.tui.transcript.frame_buffer import FrameBuffer
    from chatops.tui.transcript.projector import Projector
    from chatops.tui.transcript.transcript import Transcript

_DRAWING_MODULES = tuple(f"chatops.tui.transcript.{name}" for name in ("transcript", "projector"))
"""Imported after the first paint."""
_MAX_PICTURES = 300
"""Images whose previews are kept, at most 6 kB each."""


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
        self._pictures: dict[str, Picture | None] = {}
        """What is known of images, by their digests; None while one is being looked at."""
        self._elsewhere = ""
        """Where a turn runs that another process executes; empty: none does."""
        self._wanted: list[FileRef] = []
        """Images to look at, in this order. The one being looked at stays first: a worker runs while any is here."""

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
        if (graphics := self._graphics) is not None:
            for digest in (sent := list(graphics.keys)):
                self._pictures.pop(digest, None)
            graphics.delete(sent)
        blocks = self._load(current)
        if self._transcript is not None:
            self._transcript.draw_by(current.session.capabilities, self._picture)
            self._transcript.set_blocks(blocks)

    def _picture(self, image: "FileRef") -> "Picture | None":
        """Return what is known of an image. An unknown one is looked at, and drawn when that is done."""
        if image.digest not in self._pictures:
            if len(self._pictures) >= _MAX_PICTURES:
                self._pictures.clear()
            self._pictures[image.digest] = None
            self._wanted.append(image)
            if len(self._wanted) == 1:
                self._screen.run_worker(self._load_pictures(), group="pictures")
        return self._pictures[image.digest]

    async def _load_pictures(self) -> None:
        """Look at the wanted images, one by one. `fine` asks for the pixels that a terminal with images is sent."""
        preview = getattr(self._screen.app, "shows_pictures", False)
        while self._wanted:
            image = self._wanted[0]
            if self._current is not None and self._transcript is not None:
                fine = preview and self._graphics is not None
                found = await self._current.workspace.picture(image, preview=preview, fine=fine)
                self._pictures[image.digest] = await self._sent(image.digest, found)
                self._transcript.redraw_image(image.digest)
            self._wanted.pop(0)

    @property
    def _graphics(self) -> "Graphics | None":
        """The terminal's images, if it shows any."""
        graphics: Graphics | None = getattr(self._screen.app, "graphics", None)
        return graphics if graphics is not None and graphics.works else None

    async def _sent(self, digest: str, picture: "Picture | None") -> "Picture | None":
        """Send a picture to the terminal if that shows images. Return it with the id that it has there.

        Its `raster` are the half blocks that other terminals show, its `fine` the pixels, which are kept no longer.
        """
        graphics, current = self._graphics, self._current
        if graphics is None or picture is None or picture.raster is None or picture.fine is None:
            return picture
        from chatops.tui.transcript.block_lines import rows_of

        fine, cells = picture.fine, (picture.raster.width, rows_of(picture.raster))
        data = await asyncio.to_thread(encode_pixels, fine)
        # A terminal that lags, or does not show the session any more, is sent none.
        if current is not self._current or self._screen.app.skips_frame():  # type: ignore[attr-defined]
            return replace(picture, fine=None)
        image_id = graphics.send(digest, data, size=(fine.width, fine.height), cells=cells)
        self._forget_images(graphics, graphics.surplus())
        return replace(picture, fine=None, image_id=image_id)

    def _forget_images(self, graphics: "Graphics", digests: "Collection[str]") -> None:
        """Let the terminal delete images. What the transcript still has of them is drawn as half blocks."""
        graphics.delete(digests)
        for digest in digests:
            if (known := self._pictures.get(digest)) is not None:
                self._pictures[digest] = replace(known, image_id=0)
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
            if (graphics := self._graphics) is not None and any(isinstance(op, Remove) for op in ops):
                self._forget_images(graphics, graphics.keys - self._transcript.digests())

    def follow_end(self) -> None:
        """Scroll to the end and stay there."""
        if self._transcript is not None:
            self._transcript.follow()

    def press(self, key: str) -> None:
        """Handle a key that scrolls, or selects, opens and copies blocks."""
        if self._transcript is not None:
            self._transcript.press(key)
