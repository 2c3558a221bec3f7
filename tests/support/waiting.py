"""Waiting for what has no event of its own."""

import asyncio
from collections.abc import Callable


async def until(holds: Callable[[], object]) -> None:
    """Let things happen until `holds`; a test that waits in vain fails after half a minute."""
    async with asyncio.timeout(30):
        while not holds():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.005)
