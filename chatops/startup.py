"""Garbage collector, threads and imports: what makes the start quick, and typing smooth from the first second.

Start-up creates some hundred thousand objects that live as long as the app. Scanning them again and again takes tens of
milliseconds at a time, which delays the first request and is noticeable while typing.
"""

import contextlib
import gc
import sys
from collections.abc import Iterator

_SWITCH_S = 0.0005
"""Seconds for which a thread may keep the interpreter: a key waits no longer than that."""
_THRESHOLDS = (20_000, 50, 1_000)
"""Of `gc.set_threshold`. Young objects are collected often enough to bound memory, old ones rarely."""


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


def answer_keys_first() -> None:
    """Let threads that import modules yield to the event loop within `_SWITCH_S` instead of Python's 5 ms."""
    sys.setswitchinterval(_SWITCH_S)


def settle_collector() -> None:
    """Turn the collector on, excluding all present objects. Call it once after start-up."""
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    gc.enable()
