"""Character sets of terminals, and replacements for characters that a terminal cannot show.

A locale of C or POSIX means ASCII. Stored text is never changed. Replacements are made only in what is written to a
terminal, or to a stream that was requested to be ASCII.
"""

import codecs
from collections.abc import Callable, Mapping
from types import MappingProxyType

SPELLED = "chatops.spelled"
"""Name of the error handler that `register_spelling` registers, for ``str.encode`` and text streams."""
_EXACT = "chatops.exact"
"""Name of the error handler of `with_code_points`."""
_CONTROLS = {0x2400 + code: code for code in range(0x20)} | {0x2421: 0x7F}
"""Code points of the pictures of control characters (U+2400 to U+2421), with the controls that they show."""

_SYMBOLS_BY_ASCII = {
    "-": "‐‑‒–—―−─━┄┅┈┉╌╍═╴╶╸╺·",
    "|": "│┃┆┇┊┋╎╏║╵╷╹╻▌▎▏▐▍▋▊▉",
    "+": "╭╮╰╯┌┐└┘├┤┬┴┼┏┓┗┛┣┫┳┻╋╔╗╚╝╠╣╦╩╬╪╫╡╢╞╟✓✔",
    "#": "█▀▄░▒▓▔▁▂▃▅▆▇",
    "~": "…",
    "*": "•●◉",
    "o": "○◌☐",
    ">": "→❯»▸▶",
    "<": "←«",
    "^": "↑▲",
    "v": "↓▾▼",
    "x": "✗✘×☑",
    "!": "‼",
    "\\": "↪",
    "=": "↳",
    "'": "‘’",
    '"': "“”„",
    " ": "\u00a0\u202f",
}
ONE_CELL: Mapping[str, str] = MappingProxyType(
    {symbol: char for char, symbols in _SYMBOLS_BY_ASCII.items() for symbol in symbols}
)
"""Symbols of the UI and of typography, with an ASCII character of the same width."""
_SPELLED_OUT: Mapping[str, str] = MappingProxyType({"…": "...", "→": "->", "←": "<-"})


def charset_of(environ: Mapping[str, str], *, stream: str) -> str:
    """Return the character set that `environ` asks for, as a Python codec, by POSIX's order of variables.

    `stream` is the encoding that Python writes in. It counts if it is not UTF-8, or if no locale is set at all, because
    an unset locale says nothing about the terminal.
    """
    stream_codec = _codec(stream)
    if stream_codec != "utf-8":
        return stream_codec
    locale = environ.get("LC_ALL") or environ.get("LC_CTYPE") or environ.get("LANG") or ""
    name, dot, codeset = locale.partition("@")[0].partition(".")
    if name in ("C", "POSIX") and not dot:
        return "ascii"
    return _codec(codeset) if codeset else stream_codec


def register_spelling() -> None:
    """Register the error handler `SPELLED` in this process: symbols as ASCII, everything else as Python escapes."""
    codecs.register_error(SPELLED, _replacing(to_ascii))


def _replacing(spell: Callable[[str], str]) -> Callable[[UnicodeError], tuple[str, int]]:
    """Return an error handler that spells each character which cannot be encoded."""

    def replace(error: UnicodeError) -> tuple[str, int]:
        if not isinstance(error, UnicodeEncodeError):
            raise error
        return "".join(map(spell, error.object[error.start : error.end])), error.end

    return replace


def to_ascii(char: str) -> str:
    """Return one character in ASCII: a symbol of the same meaning, else a Python escape."""
    sign = _SPELLED_OUT.get(char) or ONE_CELL.get(char)
    return sign or char.encode("ascii", "backslashreplace").decode("ascii")


def with_code_points(text: str, charset: str) -> str:
    """Return `text` with the code point of each character that the terminal cannot show.

    This is for text that the user approves, where a replacement could be mistaken for the real character.
    """
    if text.isascii():
        return text
    codecs.register_error(_EXACT, _replacing(_code_point))
    return text.encode(charset, _EXACT).decode(charset)


def _code_point(char: str) -> str:
    """Return the code point in the form used for invisible characters.

    Pictures of control characters give the code point of the control.
    """
    code = _CONTROLS.get(ord(char), ord(char))
    return f"<U+{code:04X}>"


def _codec(name: str) -> str:
    """Return Python's name of a character set. One that Python does not know counts as ASCII, its safest reading."""
    try:
        return codecs.lookup(name).name
    except LookupError:
        return "ascii"
