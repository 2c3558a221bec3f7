"""Output of headless commands: answers to stdout, all else to stderr, no crash on a closed pipe.

Text of models, tools and files passes the sanitiser on a terminal. In a pipe only its control characters are changed:
after ``| tee`` or ``| head`` they could still reach a terminal. The JSON formats keep each character as the model wrote
it.
"""

import os
import re
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import accumulate
from typing import TYPE_CHECKING, TextIO
from unicodedata import combining, east_asian_width
from weakref import WeakKeyDictionary, WeakSet, ref

from chatops.domain.charset import SPELLED, register_spelling, with_code_points
from chatops.domain.sanitize import for_pipe, sanitize

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue
    from chatops.domain.progress import Progress

_MIN_COLUMN, _ROOM_OF_LAST = 19, 30
"""Cells of a table: those that a column keeps when it is cut (a time), and those that the last column gets so."""
MAX_CELL = 60
"""Maximum characters of a cell, so that a table fits a wide terminal. The last column is never cut."""
_LOST: WeakSet[TextIO] = WeakSet()
"""Streams that could not be written. Kept per stream, because a command may have several screens."""
_PRINTED: WeakKeyDictionary[TextIO, set[str]] = WeakKeyDictionary()
"""Messages printed to each stream, for the same reason."""
_PROGRESS_LINES: "WeakKeyDictionary[TextIO, ProgressLine]" = WeakKeyDictionary()
"""The line of progress on each stream, for the same reason."""
_CONTINUATION = "    » "
"""Begins the further lines of a terminal that one line takes."""
_FURTHER = "    "
"""Begins the further lines of a table's row."""
_GAP = re.compile(r"\S {2,}(?=\S)")
"""The gap before the next column."""
_FRAME_S, _CALM_FRAME_S = 0.1, 1.0
"""Seconds between two drawings of the progress: smooth, or where nothing may move but the clock with its seconds."""


def forget_messages() -> None:
    """Forget what was printed: another command begins in this process."""
    _PRINTED.clear()


class ProgressLine:
    """One line at the bottom of a terminal that says how far long work is. It is rewritten, and erased in the end.

    Nothing is written where there is no terminal. A thread draws, because the work itself may have nothing to say for a
    while.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = ref(stream)
        self._progress: Progress | None = None
        self._drawn = ""
        self._lock = threading.RLock()
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def show(self, progress: "Progress | None") -> None:
        """Show how far the work is from now on; None erases the line."""
        stream = self._stream()
        if stream is None or not stream.isatty():
            return
        with self.erased():
            self._progress = progress
        if progress is not None and self._thread is None:
            self._thread = threading.Thread(target=self._draw, name="progress", daemon=True)
            self._thread.start()
        self._changed.set()

    def begin(self, text: str) -> None:
        """Show a text in ASCII at once. It stands until something else is written or shown."""
        stream = self._stream()
        if stream is not None and stream.isatty():
            with self._lock:
                self._write(text[: _columns(stream)])

    @contextmanager
    def erased(self) -> Iterator[None]:
        """Let something else be written inside the block. The line is drawn again below it."""
        with self._lock:
            self._write("")
            yield

    def _draw(self) -> None:
        calm: bool | None = None
        frame_s = _FRAME_S
        while (stream := self._stream()) is not None:
            self._changed.wait(None if self._progress is None else frame_s)
            self._changed.clear()
            if (progress := self._progress) is None or not progress.is_due(time.monotonic()):
                continue
            if calm is None:
                calm = _is_motion_unwanted(stream)
                frame_s = _CALM_FRAME_S if calm else _FRAME_S
            with self._lock:
                if self._progress is progress:
                    self._write(self._line(stream, progress, calm=calm))
            time.sleep(frame_s)

    def _line(self, stream: TextIO, progress: "Progress", *, calm: bool) -> str:
        width = _columns(stream)
        bar = "" if calm else "".join(progress.bar(width))
        words = progress.words(time.monotonic(), between=", " if calm else " · ")
        return "  ".join(filter(None, (progress.what, bar, words)))[:width]

    def _write(self, line: str) -> None:
        stream = self._stream()
        if line != self._drawn and stream is not None:
            with suppress(OSError, ValueError):
                stream.write(f"\r{line.ljust(len(self._drawn))}" + ("" if line else "\r"))
                stream.flush()
            self._drawn = line


def _columns(stream: TextIO) -> int:
    """Return the columns of a terminal but the last one, in which a cursor may already be on the next line."""
    try:
        return (os.get_terminal_size(stream.fileno()).columns or 80) - 1
    except (OSError, ValueError):
        return 79


def _wrap_line(line: str, width: int, *, further: str = _CONTINUATION) -> Iterator[str]:
    """Yield the lines of the terminal that a line takes, with `further` before all but the first. Keep all characters.

    A line is broken after the last space of its second half, else at its last cell, as on a very narrow terminal.
    """
    room = max(width, len(further) + 2)
    # The line that is being filled: its beginning, where its text begins in `line`, and its cells so far.
    lead, begin, used = "", 0, 0
    for at, character in enumerate(line):
        cells = _cell_width(character)
        if used + cells > room:
            at_cell = character == " " or room < 3 * len(further)
            end = at if at_cell else line.rfind(" ", (begin + at + 1) // 2, at) + 1 or at
            yield lead + line[begin:end]
            lead, begin, used = further, end, len(further) + _cell_width(line[end:at])
        used += cells
    yield lead + line[begin:]


def at_words(text: str, stream: TextIO) -> str:
    """Return prose whose long lines are broken between words on a terminal, and continue in the column of the words."""
    if not stream.isatty():
        return text
    import textwrap  # most output is not broken

    width, lines = _columns(stream), []
    for line in text.split("\n"):
        gaps = [found.end() for found in _GAP.finditer(line) if found.end() <= width // 2]
        hang = " " * (gaps[-1] if gaps else len(line) - len(line.lstrip()))
        wrapped = textwrap.wrap(line, width, subsequent_indent=hang, break_long_words=False, break_on_hyphens=False)
        lines += wrapped if len(line) > width else [line]
    return "\n".join(lines)


def _is_motion_unwanted(stream: TextIO) -> bool:
    """Return True if nothing may move but the clock: without UTF-8 or colours, or because the user wants that."""
    from chatops.config.paths import find_paths  # only long work needs them
    from chatops.config.settings import load_settings

    encoding = (getattr(stream, "encoding", None) or "utf-8").lower().replace("_", "-")
    calm = encoding != "utf-8" or bool(os.environ.get("NO_COLOR"))
    return calm or load_settings(find_paths(os.environ).settings).reduced_motion


class Screen:
    """Writes requested output to stdout and messages to stderr."""

    def __init__(self, *, out: TextIO, err: TextIO) -> None:
        self.out = out
        self.err = err
        self.closed = False
        """True if the reader of stdout has gone (``| head``); further output is dropped silently."""
        self._said = _PRINTED.setdefault(err, set())
        self._progress = _PROGRESS_LINES.setdefault(err, ProgressLine(err))

    @property
    def is_lost(self) -> bool:
        """True if output to stdout was lost, as on a full disk. The user was told so, and no command succeeds then."""
        return self.out in _LOST

    def answer(self, text: str) -> None:
        """Print text of any origin to stdout, ending in a newline."""
        self._print(self.out, sanitize(text) if self.out.isatty() else for_pipe(text))

    def exactly(self, text: str) -> None:
        """Print text for approval: as `answer`, with characters that the stream cannot encode shown by number.

        A terminal would continue a long line where labels begin. So such a line is broken here, as in the dialog.
        """
        text = with_code_points(text, getattr(self.out, "encoding", None) or "utf-8")
        if self.out.isatty():
            width = _columns(self.out)
            text = "\n".join(part for line in sanitize(text).split("\n") for part in _wrap_line(line, width))
        self.answer(text)

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

    def show_progress(self, progress: "Progress | None") -> None:
        """Show on the terminal how far long work is, None at its end."""
        self._progress.show(progress)

    def show_start(self, text: str) -> None:
        """Show on the terminal what starts, until anything else is printed: its modules take a while."""
        self._progress.begin(text)

    def say_once(self, text: str) -> None:
        """Print a message to stderr unless the same one was printed before."""
        if text not in self._said:
            self.say(text)

    def _print(self, stream: TextIO, text: str) -> None:
        if stream is self.out and (self.closed or self.is_lost):
            return
        try:
            with self._progress.erased():
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
        self.closed = self.closed or stream is self.out
        # The interpreter flushes once more at exit and would report the same broken pipe.
        with suppress(OSError, ValueError):
            null = os.open(os.devnull, os.O_WRONLY)
            os.dup2(null, stream.fileno())
            os.close(null)


def screen() -> Screen:
    """Return a screen over the process's streams, looked up now so that tests and redirections take effect."""
    return Screen(out=sys.stdout, err=sys.stderr)


def printable(text: str, stream: TextIO) -> str:
    """Spell what the stream cannot encode (lone surrogates, accents in ASCII) in ASCII characters."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    register_spelling()
    return text.encode(encoding, SPELLED).decode(encoding)


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return header and rows in aligned columns, a line for each row. Control characters and line feeds are shown.

    On a terminal, wide columns are cut so that the last one has room, but not the first one, which has the ids. Columns
    for which there is no room all the same stand on lines of their own. The last one is broken between words.
    """
    cells = [[_cell_text(cell, last=i == len(row) - 1) for i, cell in enumerate(row)] for row in (header, *rows)]
    widths = [max(_cell_width(row[column]) for row in cells) for column in range(len(header))]
    groups = list(_place_columns(widths, _columns(sys.stdout))) if sys.stdout.isatty() else [widths]
    return "\n".join(line.rstrip() for row in cells for line in _row_lines(row, groups))


def _place_columns(widths: Sequence[int], room: int, *, cuts: int = 1) -> Iterator[list[int]]:
    """Yield the widths of the columns that stand on each line of a row. Those from the index `cuts` on may be cut."""
    *others, last = widths
    excess = sum(others) + min(last, _ROOM_OF_LAST) + 2 * len(others) - room
    # The widest column loses one cell at a time.
    while excess > 0 and max(others[cuts:], default=0) > _MIN_COLUMN:
        others[others.index(max(others[cuts:]), cuts)] -= 1
        excess -= 1
    if excess <= 0 or not others:
        yield [*others, min(last, room - sum(others) - 2 * len(others))]
        return
    ends = accumulate(widths[:-1], lambda end, width: end + 2 + width)
    fitting = max(1, sum(end <= room for end in ends))
    yield list(widths[:fitting])
    yield from _place_columns(widths[fitting:], room - len(_FURTHER), cuts=0)


def _row_lines(row: Sequence[str], groups: Iterable[Sequence[int]]) -> Iterator[str]:
    """Yield the lines of a row whose columns stand on lines as `groups` says."""
    rest = list(row)
    for number, widths in enumerate(groups):
        (*fixed, last), rest = rest[: len(widths)], rest[len(widths) :]
        if number and not any((*fixed, last)):
            continue
        lead = (_FURTHER if number else "") + "".join(f"{cell}  " for cell in map(_fit_cell, fixed, widths))
        for part in _wrap_line(last, widths[-1], further=""):
            yield lead + part
            lead = " " * _cell_width(lead)


def when(seconds: float) -> str:
    """Return a time of the store in the user's time zone, to the second."""
    from datetime import datetime

    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell_text(text: str, *, last: bool) -> str:
    clean = sanitize(text, newlines=False)
    return clean if last or len(clean) <= MAX_CELL else f"{clean[: MAX_CELL - 1]}…"


def _fit_cell(text: str, width: int) -> str:
    if _cell_width(text) > width:
        while _cell_width(text) >= width:
            text = text[:-1]
        text += "…"
    return text + " " * (width - _cell_width(text))


def _cell_width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
