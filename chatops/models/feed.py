"""Reading a response in its own task, so that waiting for data can be interrupted without breaking the response."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from enum import Enum

BUFFER_LIMIT = 1024 * 1024
"""Number of bytes to read ahead of the consumer; beyond it the server has to wait."""
CLOSE_WITHIN_S = 1.0


class Mark(Enum):
    """Result of `Feed.take` without data."""

    SILENCE = "silence"
    END = "end"


class Feed:
    """Buffer between a source of bytes and its consumer, who gets everything that has come at once."""

    def __init__(self, source: AsyncIterator[bytes]) -> None:
        self._source = source
        self._parts: list[bytes] = []
        self._size = 0
        self._error: BaseException | None = None
        self._ended = False
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
            self._ended = True
            self._news.set()

    async def take(self, timeout_s: float) -> bytes | Mark:
        """Return all bytes that have come; SILENCE after `timeout_s` seconds without any, END at the end.

        Raises what the source raised.
        """
        if not self._parts and not self._ended:
            self._news.clear()
            try:
                async with asyncio.timeout(timeout_s):
                    await self._news.wait()
            except TimeoutError:
                return Mark.SILENCE
        if self._parts:
            data = b"".join(self._parts)
            self._parts, self._size = [], 0
            self._room.set()
            return data
        if self._error is not None:
            raise self._error
        return Mark.END

    async def aclose(self) -> None:
        """Stop reading and close the connection; wait for that one second at most."""
        self._task.cancel()
        await asyncio.wait({self._task}, timeout=CLOSE_WITHIN_S)
