"""Images in the terminal: kitty's graphics protocol, with a character in the place of each cell of an image.

Theory of operation
-------------------
An image is sent once, as pixels of our own (`send`), with a *virtual placement*: it is shown nowhere by itself.
Wherever the transcript then writes the placeholder U+10EEEE with two marks that name a row and a column, in a colour
that is the image's id, the terminal draws that part of the image. So an image is ordinary text: it scrolls, is cut at
the edge of the view, and whatever is written over it covers it. A dialog tints the screen below it, and thereby the
colour, so that images are gone as long as it is open.

- Who gets it: a terminal that calls itself kitty or Ghostty when it is asked (XTVERSION), and then answers a query of
  the protocol. Variables of the environment are not asked, because programs inherit them into other terminals. tmux and
  screen answer for themselves or not at all, so that nothing is sent through them. WezTerm and Konsole speak the
  protocol without placeholders.
- What is sent: data in the sequence itself, never the name of a file or of shared memory, and always with the wish for
  no answer (``q=2``). The terminal's answers are no keys: the driver passes them to `answered`, and nowhere else.
- Memory: the terminal keeps `MAX_IMAGES` images at most, and is told to delete one that has left the transcript, and
  all when it is given back. It is sent them again when it is taken again. An older one is shown by half blocks again.
- Untrusted text cannot name an image: `sanitize` spells out the placeholder.

Why not iTerm2's inline images: they are drawn over the cells at the cursor. A part of one cannot be drawn, as it is
needed at the edge of the view and beside a dialog, and what is written over one stays over it until all of it is sent
again. Nothing in the protocol removes one. Remains on the screen could not be ruled out, so iTerm2 gets half blocks.
"""

import base64
import os
import re
import zlib
from collections.abc import Callable, Collection, Iterator, KeysView
from typing import TYPE_CHECKING, NamedTuple

from rich.style import Style
from rich.text import Text

if TYPE_CHECKING:
    from chatops.tools.picture import Raster

ASK_NAME = "\x1b[>q"
"""Ask for the terminal's name and version (XTVERSION)."""
MAX_IMAGES = 24
"""Images that the terminal keeps, each of at most 0.4 MB."""
PLACEHOLDERS = "\U0010eeee[^\\x00-\\x7f]{2}"
"""Pattern of a cell of an image."""
_NAME_ANSWER = re.compile(r"\x1bP>\|(kitty|ghostty)[( ](\d{1,4})\.(\d{1,4})")
_MIN_VERSION = {"kitty": (0, 28), "ghostty": (1, 0)}
"""The first versions with placeholders."""
_QUERY = "\x1b_Gi=1,s=1,v=1,a=q,t=d,f=24;AAAA\x1b\\"
_QUERY_ANSWER = "\x1b_Gi=1;OK\x1b\\"
_CHUNK = 4096
"""Characters of data in one sequence, the most that the protocol allows."""
_NUMBER_MARKS = [
    chr(code)
    for part in (
        "305 30d 30e 310 312 33d 33e 33f 346 34a 34b 34c 350 351 352 357 35b 363-36f 483-487 592-595 597-599 59c-5a1",
        "5a8 5a9 5ab 5ac 5af 5c4 610-617",
    )
    for first, _, last in (piece.partition("-") for piece in part.split())
    for code in range(int(first, 16), int(last or first, 16) + 1)
]
"""The marks that stand for the numbers from 0 on, as kitty's ``rowcolumn-diacritics.txt`` lists them."""


class _SentImage(NamedTuple):
    """An image that the terminal has."""

    id: int
    sequence: str
    """The text that sends it."""


class Graphics:
    """The images that the terminal has. `write` writes to it."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._asked = False
        """True once the terminal has named itself as one that may show images, and was asked if it does."""
        self.works = False
        """True once the terminal has said that it shows images."""
        self._sent: dict[str, _SentImage] = {}
        """The images by the keys that they were sent with; the oldest first."""

    def answered(self, text: str) -> None:
        """Take note of an answer of the terminal."""
        named = None if self._asked else _NAME_ANSWER.match(text)
        if named is not None:
            if (int(named[2]), int(named[3])) >= _MIN_VERSION[named[1]]:
                self._asked = True
                self._write(_QUERY)
        elif text == _QUERY_ANSWER and self._asked:
            self.works = True

    @property
    def keys(self) -> KeysView[str]:
        """The keys of the images that the terminal has."""
        return self._sent.keys()

    def send(self, key: str, data: str, *, size: tuple[int, int], cells: tuple[int, int]) -> int:
        """Send an image, `encode_pixels` and of `size` pixels, to be shown in columns and rows. Return its id."""
        if key in self._sent:
            return self._sent[key].id
        image_id, taken = 0, {image.id for image in self._sent.values()}
        while not image_id or image_id in taken:
            # By chance, because all programs on a terminal share the ids.
            image_id = int.from_bytes(os.urandom(3))
        (width, height), (columns, rows) = size, cells
        head = f"a=T,U=1,t=d,f=32,o=z,i={image_id},s={width},v={height},c={columns},r={rows},"
        chunks = [data[at : at + _CHUNK] for at in range(0, len(data), _CHUNK)]
        parts = (
            f"\x1b_G{'' if at else head}q=2,m={int(at < len(chunks) - 1)};{chunk}\x1b\\"
            for at, chunk in enumerate(chunks)
        )
        self._sent[key] = _SentImage(image_id, "".join(parts))
        self._write(self._sent[key].sequence)
        return image_id

    def surplus(self) -> list[str]:
        """Return the keys of the images that are too many, the oldest ones."""
        return list(self._sent)[: max(0, len(self._sent) - MAX_IMAGES)]

    def delete(self, keys: Collection[str]) -> None:
        """Let the terminal delete images."""
        if text := "".join(_delete_sequence(self._sent.pop(key).id) for key in keys if key in self._sent):
            self._write(text)

    def leave(self) -> str:
        """Return what deletes all images in a terminal that is given back. They are kept for `again`."""
        return "".join(_delete_sequence(image.id) for image in self._sent.values())

    def again(self) -> Iterator[str]:
        """Yield what sends each image to a terminal that was taken again, the newest first. They keep their ids."""
        for key in reversed(list(self._sent)):
            if key in self._sent:
                yield self._sent[key].sequence


def _delete_sequence(image_id: int) -> str:
    return f"\x1b_Ga=d,d=I,i={image_id},q=2\x1b\\"


def encode_pixels(raster: "Raster") -> str:
    """Return the pixels of an image as `Graphics.send` takes them. Takes some milliseconds."""
    return base64.b64encode(zlib.compress(raster.pixels)).decode("ascii")


def placeholder_rows(image_id: int, *, columns: int, rows: int) -> Iterator[Text]:
    """Yield the lines that show the image of that id. Each cell is a part of its own, so that none is cut in two."""
    style = Style(color=f"#{image_id:06x}")
    for row in range(rows):
        line = Text(end="", no_wrap=True)
        for column in range(columns):
            line.append(f"\U0010eeee{_NUMBER_MARKS[row]}{_NUMBER_MARKS[column]}", style)
        yield line
