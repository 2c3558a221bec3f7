"""Colours of code in pictures do not depend on how busy the machine is, and no app parses and waits for nothing."""

import asyncio
from time import process_time
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet

from chatops.tui.transcript import markdown

_SOON_S = 0.025
"""Seconds within which a timer belongs to what is under way: a key has its effects after 20 ms."""
_AT_MOST_S = 10.0
"""Seconds to wait for something that never rests. Textual's one second is too short for a busy machine."""
_PARSED: dict[frozenset[tuple[str, str]], dict[object, object]] = {}
"""The rules of style sheets, by the variables with which they were parsed."""


@pytest.fixture(autouse=True)
def patient_highlighting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a lexer minutes: one that has used up its time loses its colours in every later picture."""
    monkeypatch.setattr(markdown, "_TIME_LIMIT_S", 300.0)


@pytest.fixture(autouse=True)
def parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all apps share the rules that one has parsed: Textual keeps them per app, and they are a sixth of its CPU."""
    create, set_variables = Stylesheet.__init__, Stylesheet.set_variables

    def share(sheet: Any) -> None:
        sheet._parse_cache = _PARSED.setdefault(frozenset(sheet._variables.items()), {})

    def created(sheet: Any, *, variables: dict[str, str] | None = None) -> None:
        create(sheet, variables=variables)
        share(sheet)

    def with_variables(sheet: Any, variables: dict[str, str]) -> None:
        sheet._parse_cache = {}  # or the shared one would be cleared
        set_variables(sheet, variables)
        share(sheet)

    monkeypatch.setattr(Stylesheet, "__init__", created)
    monkeypatch.setattr(Stylesheet, "set_variables", with_variables)


@pytest.fixture(autouse=True)
def no_fixed_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pilot go on when nothing is under way. Textual sleeps for 20 ms until it finds little CPU used."""
    monkeypatch.setattr("textual.app.wait_for_idle", _wait_for_idle)
    monkeypatch.setattr("textual.pilot.wait_for_idle", _wait_for_idle)


async def _wait_for_idle(min_sleep: float = 0.0) -> None:
    """Wait until the event loop has nothing to do, now and soon, and no thread works for it."""
    loop: Any = asyncio.get_running_loop()
    end, quiet = loop.time() + _AT_MOST_S, 0
    # In each round the loop looks for input once. What came in may need another one.
    while quiet < 3 and loop.time() < end:
        await asyncio.sleep(0)
        quiet += 1
        timers = [timer.when() for timer in loop._scheduled if not timer.cancelled()]
        left = min(timers, default=end) - loop.time()
        if loop._ready:
            quiet = 0
        elif left < _SOON_S:
            await asyncio.sleep(max(left, 0.0))
            quiet = 0
        elif _a_thread_works(loop._default_executor):
            before = process_time()
            await asyncio.sleep(0.02)
            # One that waits as well is not waited for.
            quiet = 0 if process_time() - before >= 0.001 else quiet


def _a_thread_works(pool: Any) -> bool:
    return pool is not None and (pool._work_queue.qsize() or pool._idle_semaphore._value < len(pool._threads))
