"""Wait for conditions: how long at most, and for those without an event of their own."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

PATIENCE = 300.0
"""Seconds to wait for something that is sure to come: reached only if something is wrong, also under heavy load."""

GROWING = (1, 5, 25, 125)
"""Factors for a time limit that a test lets pass: the next one, if what comes before the limit came too late."""


async def until_good(
    attempt: Callable[[float], Awaitable[T]], limit: float, *, good: Callable[[T], object]
) -> tuple[T, float]:
    """Let a time limit pass, and a longer one if what has to come before came too late: the result and its limit."""
    for factor in GROWING[:-1]:
        if good(result := await attempt(limit * factor)):
            return result, limit * factor
    return await attempt(limit * GROWING[-1]), limit * GROWING[-1]


async def until(holds: Callable[[], object]) -> None:
    """Let things happen until `holds`; raises TimeoutError after `PATIENCE`."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
