"""Output of headless commands: answers to stdout, all else to stderr, no crash on a closed pipe.

Text of models, tools and files passes the sanitiser on a terminal. In a pipe only its control characters are changed:
after ``| tee`` or ``| head`` they could still reach a terminal. The JSON formats keep each character as the model wrote
it.
"""

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, TextIO
from unicodedata import combining, east_asian_width
from weakref import WeakKeyDictionary, WeakSet

from chatops.domain.charset import SPELLED, exact, register
from chatops.domain.sanitize import piped, sanitize

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue

WIDEST = 60
"""Maximum characters of a cell. The last column is never cut."""
_LOST: WeakSet[TextIO] = WeakSet()
"""Streams that could not be written. Kept per stream, because a command may have several screens."""
_SAID: WeakKeyDictionary[TextIO, set[str]] = WeakKeyDictionary()
"""Messages printed to each stream, for the same reason."""


def lost(stream: TextIO) -> bool:
    """Return True if output to `stream` was lost, as on a full disk.

    The user was told so, and the command must not succeed.
    """
    return stream in _LOST


def forget_said() -> None:
    """Forget what was printed: another command begins in this process."""
    _SAID.clear()


class Screen:
    """Writes requested output to stdout and messages to stderr."""

    def __init__(self, *, out: TextIO, err: TextIO) -> None:
        self.out = out
        self.err = err
        self.closed = False
        """True if the reader of stdout has gone (``| head``); further output is dropped silently."""
        self._said = _SAID.setdefault(err, set())

    def answer(self, text: str) -> None:
        """Print text of any origin to stdout, ending in a newline."""
        self._print(self.out, sanitize(text) if self.out.isatty() else piped(text))

    def exactly(self, text: str) -> None:
        """Print text for approval: as `answer`, with characters that the stream cannot encode shown by number."""
        self.answer(exact(text, getattr(self.out, "encoding", None) or "utf-8"))

    def line(self, text: str) -> None:
        """Print machine-readable text, safe by its encoding, to stdout."""
        self._print(self.out, text)

    def json(self, value: "JsonValue") -> None:
        """Print a JSON value, indented, to stdout."""
        from chatops.headless.json_values import dumps

        self.line(dumps(value, indent=2))

    def say(self, text: str) -> None:
        """Print a message to stderr."""
        self._said.add(text)
        self._print(self.err, sanitize(text))

    def say_once(self, text: str) -> None:
        """Print a message to stderr unless the same one was printed before."""
        if text not in self._said:
            self.say(text)

    def _print(self, stream: TextIO, text: str) -> None:
        if stream is self.out and (self.closed or lost(stream)):
            return
        try:
            stream.write(printable(text, stream) + ("" if text.endswith("\n") else "\n"))
            stream.flush()
        except BrokenPipeError:
            self._silence(stream)
        except OSError as error:
            self._silence(stream)
            _LOST.add(stream)
            if stream is self.out:
                self.say(f"Standard output cannot be written: {error.strerror or error}.")
        except ValueError:
            # A closed file object: a closed pipe as seen from inside the process.
            self.closed = self.closed or stream is self.out

    def _silence(self, stream: TextIO) -> None:
        # The interpreter flushes once more at exit and would report the same broken pipe.
        self.closed = self.closed or stream is self.out
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        except (OSError, ValueError):
            return


def printable(text: str, stream: TextIO) -> str:
    """Spell what the stream cannot encode (lone surrogates, accents in ASCII) in ASCII characters."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    register()
    return text.encode(encoding, SPELLED).decode(encoding)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return header and rows in aligned columns, a line for each row. Control characters and line feeds are shown."""
    cells = [[_cell(cell, last=i == len(row) - 1) for i, cell in enumerate(row)] for row in (header, *rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def when(seconds: float) -> str:
    """Return a time of the store in the user's time zone, to the second."""
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell(text: str, *, last: bool) -> str:
    clean = sanitize(text, newlines=False)
    return clean if last or len(clean) <= WIDEST else f"{clean[: WIDEST - 1]}…"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
