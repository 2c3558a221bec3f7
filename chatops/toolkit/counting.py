"""Count long work where it is done, for whoever shows it.

Work that may take long counts in a `count_work` block. What shows it wraps the work in `shown_by`, and gets a
`Progress` at the start, at most ten a second meanwhile, and None at the end. A context variable carries the receiver,
also into threads, so that nothing between the two passes it on; without one, counting costs next to nothing. No
progress is ever stored.

Work in an isolated subprocess counts into a pipe, from which only numbers are read.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar

from chatops.domain.progress import Progress

_PAUSE_S = 0.1
"""Least seconds between two values that are shown. More often nobody can read them, and it delays the work."""
_MAX_LINE = 100
"""Bytes of an unfinished line that are kept: two numbers need fewer, and a hostile process may never end a line."""
_MAX_DIGITS = 9
"""Digits of a number from another process. Larger ones would only be shown."""

Show = Callable[[Progress | None], None]
"""Receives progress, None at its end. It is called in the thread that works, and must not wait."""
_receiver: ContextVar[Show | None] = ContextVar("receiver", default=None)


@contextmanager
def shown_by(show: Show) -> Iterator[None]:
    """Show the progress of work inside the block with `show`."""
    token = _receiver.set(show)
    try:
        yield
    finally:
        _receiver.reset(token)


class Counter:
    """Counts the work of one `count_work` block."""

    def __init__(self, show: Show | None, what: str, *, unit: str, total: int) -> None:
        self._show = show
        self._what, self._unit = what, unit
        self._done, self._total = 0, total
        self._since = self._counted_since = time.monotonic()
        self._next_shown = 0.0
        """Time before which nothing is shown."""

    def add(self, count: int = 1) -> None:
        """Count units that are done."""
        self.set(self._done + count, self._total)

    def expect(self, total: int) -> None:
        """Set how many units there are, once that is known."""
        self.set(self._done, total)

    def set(self, done: int, total: int) -> None:
        """Set how many units are done, and how many there are."""
        now = time.monotonic()
        if total != self._total and not self._done:
            # Finding out how many there are is no measure of how long each of them takes.
            self._counted_since = now
        self._done, self._total = done, total
        if self._show is None or now < self._next_shown:
            return
        self._next_shown = now + _PAUSE_S
        progress = Progress(
            what=self._what,
            done=done,
            total=total,
            unit=self._unit,
            since=self._since,
            counted_since=self._counted_since,
        )
        self._show(progress)

    def end(self) -> None:
        """Show nothing any more."""
        show, self._show = self._show, None
        if show is not None:
            show(None)


@contextmanager
def count_work(what: str, *, unit: str = "", total: int = 0) -> Iterator[Counter]:
    """Count the work inside the block. `what` says what is done, such as ``copying the workspace``."""
    counter = Counter(_receiver.get(), what, unit=unit, total=total)
    counter.add(0)
    try:
        yield counter
    finally:
        counter.end()


def count_into(descriptor: int) -> None:
    """Write the numbers of all further work of this process to a pipe, as lines for `counts_from`."""

    def write(progress: Progress | None) -> None:
        if progress is not None:
            with suppress(OSError):
                os.write(descriptor, b"%d %d\n" % (progress.done, progress.total))

    _receiver.set(write)


def counts_from(descriptor: int, counter: Counter) -> None:
    """Show the numbers that another process writes to the open pipe, until it ends. It may be hostile. Blocks."""
    rest = b""
    while data := os.read(descriptor, 4096):
        *lines, rest = (rest + data).split(b"\n")
        rest = rest[-_MAX_LINE:]
        for done, _, total in (line.partition(b" ") for line in lines):
            if all(number.isdigit() and len(number) <= _MAX_DIGITS for number in (done, total)):
                counter.set(int(done), int(total))
