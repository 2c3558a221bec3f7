"""The bytes of a response as they come: a buffer for its reader, and the events that they hold."""

import asyncio
import contextlib
import math
from codecs import BOM_UTF8
from collections.abc import AsyncIterator
from enum import Enum

from chatops.domain.frozen_dataclass import frozen_dataclass

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


class EventTooLargeError(Exception):
    """One event is larger than the reader accepts."""


@frozen_dataclass
class ServerEvent:
    """One event. `data` is not decoded, so that a character cut in two by the network stays intact."""

    data: bytes
    name: str = ""


class SseReader:
    """Parser of server-sent events (WHATWG HTML, 9.2) that takes bytes cut anywhere and returns complete events.

    It is lenient: lines may end in LF, CRLF or CR; a byte order mark and the space after the colon are optional.
    """

    def __init__(self, *, limit: int = 32 * 1024 * 1024) -> None:
        self._size_limit = limit
        """Maximum bytes of one event, with the line that is not finished."""
        self._rest: list[bytes] = []
        """The unfinished line, in pieces. They are joined only at its end, so that a long line takes linear time."""
        self._rest_size = 0
        self._data: list[bytes] = []
        """The data lines of the unfinished event."""
        self._size = 0
        """Bytes in them."""
        self._name = ""
        self._after_cr = False
        """True if the last byte was a CR: an LF that follows belongs to the same line end."""
        self._at_start = True
        """True until it is known whether the stream begins with a byte order mark."""

    def feed(self, chunk: bytes) -> list[ServerEvent]:
        """Return the events that `chunk` completes.

        Raises EventTooLargeError.
        """
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return []
        if self._at_start:
            chunk = b"".join([*self._rest, chunk])
            self._rest, self._rest_size = [chunk], len(chunk)
            if len(chunk) < len(BOM_UTF8) and BOM_UTF8.startswith(chunk):
                return []
            chunk = chunk.removeprefix(BOM_UTF8)
            self._rest, self._rest_size, self._at_start = [], 0, False
        if b"\r" in chunk:
            self._after_cr = chunk.endswith(b"\r")
            chunk = chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        first, *others = chunk.split(b"\n")
        self._rest.append(first)
        self._rest_size += len(first)
        if self._rest_size + self._size > self._size_limit:
            raise EventTooLargeError
        if not others:
            return []
        lines = [b"".join(self._rest), *others[:-1]]
        self._rest, self._rest_size = [others[-1]], len(others[-1])
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def close(self) -> list[ServerEvent]:
        """Return the event that the end of the stream completes, if any: servers forget the last empty line."""
        lines = [b"".join(self._rest), b""]
        self._rest, self._rest_size = [], 0
        return [event for line in lines if (event := self._take_line(line)) is not None]

    def _take_line(self, line: bytes) -> ServerEvent | None:
        if not line:
            return self._finish_event()
        field, _, value = line.partition(b":")
        value = value.removeprefix(b" ")
        if field == b"data":
            self._data.append(value)
            self._size += len(value)
            if self._size > self._size_limit:
                raise EventTooLargeError
        elif field == b"event":
            self._name = value.decode("utf-8", "replace")
        return None

    def _finish_event(self) -> ServerEvent | None:
        if not self._data:
            self._name = ""
            return None
        event = ServerEvent(data=b"\n".join(self._data), name=self._name)
        self._data, self._size, self._name = [], 0, ""
        return event
