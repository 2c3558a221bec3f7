"""A buffer between the connection to a server and the reader of its response."""

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator
from enum import Enum

BUFFER_LIMIT = 1024 * 1024
"""Number of bytes to read ahead of the consumer; beyond it the server has to wait."""
GATHER_S = 0.02
"""Seconds for which data that comes in quick succession is gathered. More delays the text, less costs CPU."""
_QUICK_S = 0.01
"""Seconds since the last reading within which data counts as quick succession. Slower data is read at once."""
CLOSE_WITHIN_S = 1.0
"""Seconds to wait for the end of a connection that was cancelled."""


class FeedState(Enum):
    """Result of `ByteFeed.take` without data."""

    SILENCE = "silence"
    END = "end"


class ByteFeed:
    """Buffer between a source of bytes and its consumer, who gets everything that has come at once.

    The first data after a pause is passed on without a delay, and so is the end.
    """

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._parts: list[bytes] = []
        self._size = 0
        self._error: BaseException | None = None
        self._end = asyncio.Event()
        self._taken = -math.inf
        """Loop time at which data was taken last."""
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._task = asyncio.create_task(self._pump(), name="model-feed")

    async def _pump(self) -> None:
        try:
            async for part in self._source:
                self._parts.append(part)
                self._size += len(part)
                self._news.set()
                if self._size >= BUFFER_LIMIT:
                    self._room.clear()
                    await self._room.wait()
        except Exception as error:
            self._error = error
        finally:
            # Closing the source closes the response; the garbage collector would do that only at some later time.
            if (close := getattr(self._source, "aclose", None)) is not None:
                with contextlib.suppress(Exception):
                    await close()
            self._end.set()
            self._news.set()

    async def take(self, timeout_s: float) -> bytes | FeedState:
        """Return all bytes that have come; SILENCE after `timeout_s` seconds without any, END at the end.

        Raises what the source raised.
        """
        if not self._parts and not self._end.is_set():
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return FeedState.SILENCE
        if loop_time() - self._taken < _QUICK_S:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(GATHER_S):
                    await self._end.wait()
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._taken = loop_time() if data else self._taken
            self._room.set()
            return data
        if self._error is not None:
            raise self._error
        return FeedState.END

    async def aclose(self) -> None:
        """Stop reading and close the connection; wait for that `CLOSE_WITHIN_S` at most."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_WITHIN_S)


def loop_time() -> float:
    """Return the time of the event loop in seconds."""
    return asyncio.get_running_loop().time()
