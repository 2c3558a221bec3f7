"""Check a property on examples that are kept, and on new ones for as long as ``FUZZ_SECONDS`` says.

What a run finds is kept: its example becomes one of `kept` in the test, where every later run begins.
"""

import copy
import faulthandler
import os
import random
import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis.strategies import SearchStrategy

T = TypeVar("T")

SECONDS = float(os.environ.get("FUZZ_SECONDS", "0"))
"""Time for new examples; 0: as many as each test names, the same ones every time."""


def hold(check: Callable[[T], None], among: SearchStrategy[T], *, kept: Iterable[T] = (), few: int) -> None:
    """Check what is kept, then `few` new examples, or new ones for `SECONDS`.

    A failure names the seed; ``FUZZ_SEED`` begins with it.
    """
    for example in kept:
        check(example)
    quiet = list(HealthCheck)
    tried, failed = 0, False

    def counted(example: T) -> None:
        nonlocal tried, failed
        if SECONDS and not failed and time.monotonic() >= start + SECONDS:
            return
        tried += 1
        try:
            check(example)
        except BaseException:
            failed = True
            raise

    if SECONDS:
        # pytest would take the run for one that hangs.
        faulthandler.cancel_dump_traceback_later()
    start, number = time.monotonic(), int(os.environ.get("FUZZ_SEED", random.randrange(10**9) if SECONDS else 0))
    first, phases = number, (Phase.generate, Phase.target, Phase.shrink)
    while True:
        profile = settings(max_examples=max(few, 100) if SECONDS else few, phases=phases, suppress_health_check=quiet)
        try:
            seed(number)(settings(profile, database=None, derandomize=False)(given(among)(counted)))()
        except BaseException as failure:
            failure.add_note(f"FUZZ_SEED={number}")
            raise
        number += 1
        if time.monotonic() >= start + SECONDS:
            break
    if SECONDS:
        print(f"{tried:,} examples in {time.monotonic() - start:,.0f} s, from FUZZ_SEED={first}")


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path of each value within a value of JSON, its own first."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(found for key, one in inner for found in places(one, (*path, key)))]


def altered(value: Any, at: int, by: Any) -> Any:
    """Return a copy of a value of JSON in which `by` has taken the place of one within it, or of the whole."""
    paths = places(value)
    if not (path := paths[at % len(paths)]):
        return by
    inner = value = copy.deepcopy(value)
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = by
    return value
