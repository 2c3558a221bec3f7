"""Text for terminals that cannot show every character: each is replaced by a stand-in of the same width."""

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
    """Return the function that encodes text for the terminal. It never raises; escape sequences stay as they are."""
    codecs.register_error(_IN_CELLS, _in_cells)
    errors = "replace" if charset == "utf-8" else _IN_CELLS

    def encode(text: str) -> bytes:
        # Some terminals obey C1 controls like an escape. The app uses none of them.
        return (text if text.isascii() else _LATE_CONTROL.sub("?", text)).encode(charset, errors)

    return encode


def anchored(text: str) -> str:
    """Return `text` with each emoji of several code points (👩‍👩‍👧, ❤️) in exactly the cells it is measured as.

    Terminals disagree on these cells. So they are blanked, the emoji is written over them, and the following text is
    written at its own position, each time from the cursor saved before the emoji (DECSC, DECRC, CUF).
    """
    # Almost no frame has one, and searching for the signs is much faster than searching for the emoji.
    return _UNSURE.sub(_in_its_cells, text) if any(sign in text for sign in _UNSURE_SIGNS) else text


def _in_its_cells(found: re.Match[str]) -> str:
    cells = cell_len(found[0])
    return f"\x1b7{' ' * cells}\x1b8\x1b7{found[0]}\x1b8\x1b[{cells}C"


def _in_cells(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return stand_in(error.object[error.start : error.end]), error.end


def stand_in(text: str) -> str:
    """Return ASCII text of the same width for `text`, which cannot be shown.

    Signs become signs of the same meaning, letters lose their accents, and anything else becomes a question mark per
    cell.
    """
    width = cell_len(text)
    shown = "".join(_plainer(char) for char in text)
    return shown if len(shown) == width else "?" * width


def _plainer(char: str) -> str:
    width = cell_len(char)
    sign = ONE_CELL.get(char) or unicodedata.normalize("NFKD", char)[0]
    return sign.ljust(width) if sign.isascii() and width else "?" * width
