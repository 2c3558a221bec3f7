"""Text for a terminal that cannot show every character: each gets a stand-in as wide, so that nothing shifts."""

import codecs
import unicodedata
from collections.abc import Callable

from rich.cells import cell_len

from chatops.domain.charset import ONE_CELL

_IN_CELLS, _EXACT = "chatops.cells", "chatops.exact"
_CONTROLS = {0x2400 + code: code for code in range(0x20)} | {0x2421: 0x7F}


def encoder(charset: str) -> Callable[[str], bytes]:
    """What turns text for the terminal into its bytes. Never raises; escape sequences come out as they are."""
    codecs.register_error(_IN_CELLS, _in_cells)
    errors = "replace" if charset == "utf-8" else _IN_CELLS
    return lambda text: text.encode(charset, errors)


def exact(text: str, charset: str) -> str:
    """`text` with the number of each character that the terminal cannot show: for what a person approves, where a
    stand-in could be taken for the thing itself."""
    if charset == "utf-8" or text.isascii():
        return text
    codecs.register_error(_EXACT, _numbered)
    return text.encode(charset, _EXACT).decode(charset)


def _numbered(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_number(char) for char in error.object[error.start : error.end]), error.end


def _number(char: str) -> str:
    """As invisible characters are shown; the pictures of control characters stand for these."""
    code = _CONTROLS.get(ord(char), ord(char))
    return f"<U+{code:04X}>"


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
