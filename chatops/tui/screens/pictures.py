"""Images of the shown session: their previews, and which of them the terminal has."""

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.tui.graphics import encode_pixels
from chatops.tui.screens.open_session import OpenSession

if TYPE_CHECKING:
    from chatops.domain.files import FileRef
    from chatops.tools.picture import Picture
    from chatops.tui.graphics import Graphics

_MAX_PICTURES = 300
"""Images whose previews are kept, at most 6 kB each."""


class Pictures:
    """Looks at images in the background, and sends them to the terminal if that shows images."""

    def __init__(self, screen: Screen[Any], *, redraw: Callable[[str], None]) -> None:
        """Create it. `redraw` gets the digest of an image of which more is known now, or less is in the terminal."""
        self._screen = screen
        self._redraw = redraw
        self._current: OpenSession | None = None
        """The shown session."""
        self._known: dict[str, Picture | None] = {}
        """Pictures by the digests of their images; None while one is being decoded."""
        self._wanted: list[FileRef] = []
        """Images to look at, in this order. The one being looked at stays first: a worker runs while any is here."""

    def show(self, current: OpenSession) -> None:
        """Show the images of this session. The terminal deletes those that it has."""
        self._current = current
        if (graphics := self._graphics) is not None:
            for digest in (sent := list(graphics.keys)):
                self._known.pop(digest, None)
            graphics.delete(sent)

    def look_up(self, image: "FileRef") -> "Picture | None":
        """Return what is known of an image. An unknown one is looked at, and drawn when that is done."""
        if image.digest not in self._known:
            if len(self._known) >= _MAX_PICTURES:
                self._known.clear()
            self._known[image.digest] = None
            self._wanted.append(image)
            if len(self._wanted) == 1:
                self._screen.run_worker(self._look_at_wanted(), group="pictures")
        return self._known[image.digest]

    @property
    def any_in_terminal(self) -> bool:
        """True if the terminal has images."""
        return self._graphics is not None and bool(self._graphics.keys)

    def keep_only(self, digests: Collection[str]) -> None:
        """Let the terminal delete all images but these."""
        if (graphics := self._graphics) is not None:
            self._delete(graphics, [digest for digest in graphics.keys if digest not in digests])

    async def _look_at_wanted(self) -> None:
        """Look at the wanted images, one by one. `fine` asks for the pixels that a terminal with images is sent."""
        preview = getattr(self._screen.app, "shows_pictures", False)
        while self._wanted:
            image = self._wanted[0]
            if self._current is not None:
                fine = preview and self._graphics is not None
                found = await self._current.workspace.picture(image, preview=preview, fine=fine)
                self._known[image.digest] = await self._sent(image.digest, found)
                self._redraw(image.digest)
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
        self._delete(graphics, graphics.surplus())
        return replace(picture, fine=None, image_id=image_id)

    def _delete(self, graphics: "Graphics", digests: Collection[str]) -> None:
        """Let the terminal delete images. What the transcript still has of them is drawn as half blocks."""
        graphics.delete(digests)
        for digest in digests:
            if (known := self._known.get(digest)) is not None:
                self._known[digest] = replace(known, image_id=0)
                self._redraw(digest)
