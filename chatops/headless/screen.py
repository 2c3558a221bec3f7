"""Where headless output goes: answers to one stream, everything else to the other, and nobody crashes on a closed pipe.

Text of models, tools and files passes the sanitiser on a terminal. In a pipe it stays as it is, but for control
characters: what they do to a terminal they would still do at the end of ``| tee`` or ``| head``. Whoever needs each
character as the model wrote it takes a JSON format.
"""

import os
from dataclasses import dataclass, field
from typing import TextIO
from weakref import WeakSet

from chatops.domain.charset import SPELLED, exact, register
from chatops.domain.sanitize import piped, sanitize

_LOST: WeakSet[TextIO] = WeakSet()
"""Streams that took no more. It is theirs and not a screen's, for a command may have several screens."""


def lost(stream: TextIO) -> bool:
    """Whether something for `stream` could not be written, as on a full disk: that was said, and is no success."""
    return stream in _LOST


@dataclass(slots=True, kw_only=True)
class Screen:
    """stdout for what was asked for, stderr for what is said about it."""

    out: TextIO
    err: TextIO
    closed: bool = field(default=False, init=False)
    """The reader of stdout has gone (``| head``); the rest is dropped quietly."""
    _said: set[str] = field(default_factory=set, init=False)

    def answer(self, text: str) -> None:
        """Text of whatever origin to stdout, ending in a newline."""
        self._print(self.out, sanitize(text) if self.out.isatty() else piped(text))

    def exactly(self, text: str) -> None:
        """As `answer`, and what the stream cannot hold is shown by its number: for what a person is to approve."""
        self.answer(exact(text, getattr(self.out, "encoding", None) or "utf-8"))

    def line(self, text: str) -> None:
        """Machine-readable text, safe by its encoding, to stdout."""
        self._print(self.out, text)

    def say(self, text: str) -> None:
        """A remark of ours, or about something of theirs, to stderr."""
        self._said.add(text)
        self._print(self.err, sanitize(text))

    def say_once(self, text: str) -> None:
        """The same, unless exactly this has been said before."""
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
            # A closed file object: the same thing seen from inside the process.
            self.closed = self.closed or stream is self.out

    def _silence(self, stream: TextIO) -> None:
        # The interpreter flushes once more at exit and would complain about the same pipe.
        self.closed = self.closed or stream is self.out
        try:
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)
        except (OSError, ValueError):
            return


def printable(text: str, stream: TextIO) -> str:
    """`text` with what the stream's encoding cannot hold (lone surrogates, accents in ASCII) spelled in ASCII."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    register()
    return text.encode(encoding, SPELLED).decode(encoding)
