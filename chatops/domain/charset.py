"""Which characters a terminal can show, and what stands in for those that it cannot.

A locale of C or POSIX means ASCII. Nothing is ever changed in what is stored: only what is written to a terminal, or
to a stream that somebody asked to be ASCII, is spelled with what it can hold.
"""

import codecs
from collections.abc import Mapping
from types import MappingProxyType

SPELLED = "chatops.spelled"
"""The name of the error handler that `register` makes, for ``str.encode`` and text streams."""
_EXACT = "chatops.exact"
_CONTROLS = {0x2400 + code: code for code in range(0x20)} | {0x2421: 0x7F}
"""What the pictures of control characters stand for."""

_DASHES = "‐‑‒–—―−─━┄┅┈┉╌╍═╴╶╸╺"
_BARS = "│┃┆┇┊┋╎╏║╵╷╹╻▌▎▏▐▍▋▊▉"
_CORNERS = "╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬╪╫╡╢╞╟"
_FULL = "█▀▄░▒▓▔▁▂▃▅▆▇"
_OTHERS = {
    "…": "~",
    "·": "-",
    "•": "*",
    "●": "*",
    "○": "o",
    "◉": "*",
    "◌": "o",
    "→": ">",
    "←": "<",
    "↑": "^",
    "↓": "v",
    "❯": ">",
    "»": ">",
    "«": "<",
    "▸": ">",
    "▶": ">",
    "▾": "v",
    "▼": "v",
    "▲": "^",
    "✓": "+",
    "✔": "+",
    "✗": "x",
    "✘": "x",
    "×": "x",
    "‼": "!",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
    "„": '"',
    "\u00a0": " ",
    "\u202f": " ",
}
ONE_CELL: Mapping[str, str] = MappingProxyType(
    dict.fromkeys(_DASHES, "-")
    | dict.fromkeys(_BARS, "|")
    | dict.fromkeys(_CORNERS, "+")
    | dict.fromkeys(_FULL, "#")
    | _OTHERS
)
"""Signs of ours, and of typography, with an ASCII character that is as wide."""
_LONGER: Mapping[str, str] = MappingProxyType({"…": "...", "→": "->", "←": "<-"})


def charset_of(environ: Mapping[str, str], *, stream: str) -> str:
    """The character set that `environ` asks for, as a Python codec, by POSIX's order of variables.

    `stream` is what Python writes in, which counts where it is not UTF-8, and where no locale is set at all: that says
    nothing about the terminal.
    """
    chosen = _codec(stream)
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    name, dot, codeset = locale.partition("@")[0].partition(".")
    if chosen != "utf-8":
        return chosen
    if name in ("C", "POSIX") and not dot:
        return "ascii"
    return _codec(codeset) if codeset else chosen


def register() -> None:
    """Make the error handler `SPELLED` known to this process: signs as ASCII, everything else as Python escapes."""
    codecs.register_error(SPELLED, _spelled)


def _spelled(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(spelled(char) for char in error.object[error.start : error.end]), error.end


def spelled(char: str) -> str:
    """One character in ASCII: a sign that means the same, else its number."""
    sign = _LONGER.get(char) or ONE_CELL.get(char)
    return sign or char.encode("ascii", "backslashreplace").decode("ascii")


def exact(text: str, charset: str) -> str:
    """`text` with the number of each character that the terminal cannot show: for what a person approves, where a
    stand-in could be taken for the thing itself."""
    if text.isascii():
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


def _codec(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "ascii"
