"""Text for a terminal that cannot show every character: each gets a stand-in as wide, so that nothing shifts."""

import codecs
import re
import unicodedata
from collections.abc import Callable

from rich.cells import cell_len

from chatops.domain.charset import ONE_CELL

_IN_CELLS = "chatops.cells"
_LATE_CONTROL = re.compile(r"[\x80-\x9f]")


def encoder(charset: str) -> Callable[[str], bytes]:
    """What turns text for the terminal into its bytes. Never raises; escape sequences come out as they are."""
    codecs.register_error(_IN_CELLS, _in_cells)
    errors = "replace" if charset == "utf-8" else _IN_CELLS

    def encode(text: str) -> bytes:
        # Some terminals obey these as they obey an escape; nothing of ours uses them.
        return (text if text.isascii() else _LATE_CONTROL.sub("?", text)).encode(charset, errors)

    return encode


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
