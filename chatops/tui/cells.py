"""Text for a terminal that cannot show every character: each gets a stand-in as wide, so that nothing shifts."""

import codecs
import re
import unicodedata
from collections.abc import Callable

from rich.cells import cell_len

from chatops.domain.charset import ONE_CELL
from chatops.domain.sanitize import JOINED_EMOJI

_IN_CELLS = "chatops.cells"
_UNSURE = re.compile(f"{JOINED_EMOJI.pattern}|[^\x00-\x7f][\ufe0f\U0001f3fb-\U0001f3ff]|[0-9#*]\ufe0f\u20e3")
_UNSURE_SIGNS = "\u200d\ufe0f\U0001f3fb\U0001f3fc\U0001f3fd\U0001f3fe\U0001f3ff"
_LATE_CONTROL = re.compile(r"[\x80-\x9f]")


def encoder(charset: str) -> Callable[[str], bytes]:
    """What turns text for the terminal into its bytes. Never raises; escape sequences come out as they are."""
    codecs.register_error(_IN_CELLS, _in_cells)
    errors = "replace" if charset == "utf-8" else _IN_CELLS

    def encode(text: str) -> bytes:
        # Some terminals obey these as they obey an escape; nothing of ours uses them.
        return (text if text.isascii() else _LATE_CONTROL.sub("?", text)).encode(charset, errors)

    return encode


def anchored(text: str) -> str:
    """`text` with each emoji of several code points (👩‍👩‍👧, ❤️) in as many cells as it is measured.

    Terminals do not agree on these cells. So they are blanked, the emoji is written over them, and what follows is
    written where it belongs, each time from the place saved before the emoji (DECSC, DECRC, CUF).
    """
    # Almost no frame has one: looking for the signs is much faster than looking for the emoji.
    return _UNSURE.sub(_in_its_cells, text) if any(sign in text for sign in _UNSURE_SIGNS) else text


def _in_its_cells(found: re.Match[str]) -> str:
    cells = cell_len(found[0])
    return f"\x1b7{' ' * cells}\x1b8\x1b7{found[0]}\x1b8\x1b[{cells}C"


def _in_cells(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return stand_in(error.object[error.start : error.end]), error.end


def stand_in(text: str) -> str:
    """`text`, of which nothing can be shown as it is, in ASCII of the same width: signs that mean the same, letters
    without their accents, a question mark for each cell of what is left."""
    width = cell_len(text)
    shown = "".join(_plainer(char) for char in text)
    return shown if len(shown) == width else "?" * width


def _plainer(char: str) -> str:
    width = cell_len(char)
    sign = ONE_CELL.get(char) or unicodedata.normalize("NFKD", char)[0]
    return sign.ljust(width) if sign.isascii() and width else "?" * width
