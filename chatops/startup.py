"""Garbage collector, threads and imports: what makes the start quick, and typing smooth from the first second.

Start-up creates some hundred thousand objects that live as long as the app. Scanning them again and again takes tens of
milliseconds at a time, which delays the first request and is noticeable while typing.
"""

import contextlib
import gc
import os
import signal
import sys
import termios
from collections.abc import Iterator
from typing import Any

_SWITCH_S = 0.0005
"""Seconds for which a thread may keep the interpreter: a key waits no longer than that."""
_THRESHOLDS = (20_000, 50, 1_000)
"""Of `gc.set_threshold`. Young objects are collected often enough to bound memory, old ones rarely."""

_START = b"Starting"
_LOCAL_MODES = 3
"""The index of the local modes in the attributes of `termios`."""
_HELD = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP)
"""Signals that would end or stop the process before the terminal is restored."""


def pause_collector() -> None:
    """Turn the collector off. Call it first in the program, because nothing that start-up creates is garbage."""
    gc.disable()


@contextlib.contextmanager
def without_module(name: str) -> Iterator[None]:
    """Let imports find no module `name`. Call it before there is another thread, which might import it."""
    sys.modules.setdefault(name, None)  # type: ignore[arg-type]
    try:
        yield
    finally:
        if sys.modules[name] is None:
            del sys.modules[name]


@contextlib.contextmanager
def starting_line() -> Iterator[None]:
    """Show on the terminal that the program starts, while its modules are imported. Nothing of the line stays.

    Keys typed meanwhile are kept, but not shown: an Enter would leave the line on the screen. Commands that print have
    `Screen.show_start` instead, whose line stands until they do.
    """
    if (before := _terminal_in_front()) is None:
        yield
        return
    silent = [*before]
    silent[_LOCAL_MODES] &= ~termios.ECHO
    signals = signal.pthread_sigmask(signal.SIG_BLOCK, _HELD)
    try:
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, silent)
            os.write(2, b"\r" + _START)
        yield
    finally:
        with contextlib.suppress(OSError):
            os.write(2, b"\r%s\r" % (b" " * len(_START)))
        with contextlib.suppress(OSError, termios.error):
            termios.tcsetattr(0, termios.TCSANOW, before)
        signal.pthread_sigmask(signal.SIG_SETMASK, signals)


def _terminal_in_front() -> list[Any] | None:
    """Return the terminal's settings; None if there is none, or this process is in the background.

    Such a process would be stopped when it sets them, and restore later what was the shell's.
    """
    with contextlib.suppress(OSError, termios.error):
        return termios.tcgetattr(0) if os.tcgetpgrp(0) == os.getpgrp() and os.isatty(2) else None
    return None


def answer_keys_first() -> None:
    """Let threads that import modules yield to the event loop within `_SWITCH_S` instead of Python's 5 ms."""
    sys.setswitchinterval(_SWITCH_S)


def settle_collector() -> None:
    """Turn the collector on, excluding all present objects. Call it once after start-up."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
