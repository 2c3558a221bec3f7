"""Live updates: streams of events that tell browsers that something has changed, and never what."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from chatops.domain.errors import ChatopsError
from chatops.runtime.services import WorkerThread
from chatops.serve.desk import Desk
from chatops.serve.logins import Login, Logins

log = logging.getLogger(__name__)

MAX_STREAMS = 32
"""Browsers that get live updates at a time. Others are told to come back later, and work without."""
STREAM_S = 900.0
"""Seconds after which a stream ends. Browsers open another one."""
POLL_S = 1.0
"""Seconds between two looks for changes, while somebody gets them."""
KEEPALIVE_S = 15.0
"""Seconds after which a stream without news says so, which finds browsers that are gone."""


class LiveUpdates:
    """The streams, and the task that looks for changes while there are any."""

    def __init__(self, desk: Desk, worker: WorkerThread, logins: Logins, *, ending: asyncio.Event) -> None:
        self._desk, self._worker, self._logins, self._ending = desk, worker, logins, ending
        self._streams = 0
        self._version = ""
        """`Desk.version` at the last look."""
        self._data_version: int | None = None
        """`Desk.data_version` at the last look. None: look at all even if nothing else has written to the store."""
        self._version_changed = asyncio.Condition()
        self._watching: asyncio.Task[None] | None = None

    def look_again(self) -> None:
        """Look after a decision of this process, which `Desk.data_version` does not count."""
        self._data_version = None

    def close(self) -> None:
        """Stop looking for changes."""
        if self._watching is not None:
            self._watching.cancel()

    def stream(self, login: Login) -> Response:
        """Return a stream for one browser."""
        if self._streams >= MAX_STREAMS:
            return Response("Too many browsers get live updates.\n", 503, {"retry-after": "60"}, "text/plain")
        self._streams += 1
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        return _Stream(self._event_lines(login), self._stream_ended, headers={"x-accel-buffering": "no"})

    def _stream_ended(self) -> None:
        self._streams -= 1

    async def _event_lines(self, login: Login) -> AsyncIterator[str]:
        seen, loop = "", asyncio.get_running_loop()
        end = loop.time() + STREAM_S

        def is_new() -> bool:
            return self._version != seen or self._ending.is_set()

        yield ": chatops\n\n"
        while loop.time() < end and not self._ending.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(KEEPALIVE_S), self._version_changed:
                    await self._version_changed.wait_for(is_new)
            if self._logins.has_ended(login):
                return
            if self._version == seen:
                yield ": nothing new\n\n"
                continue
            seen = self._version
            yield f"event: changed\ndata: {seen}\n\n"

    async def _watch(self) -> None:
        """Look for changes while anybody gets them."""
        self._data_version = None
        with self._desk.changes() as pause:
            while self._streams and not self._ending.is_set():
                try:
                    await self._look()
                except ChatopsError as error:
                    log.warning("the store could not be read: %s", error)
                await pause(POLL_S, self._ending)
        await self._wake_streams()

    async def _look(self) -> None:
        number = await self._worker(self._desk.data_version)
        if number == self._data_version:
            return
        self._data_version = number
        version = await self._worker(self._desk.version)
        if version != self._version:
            self._version = version
            await self._wake_streams()

    async def _wake_streams(self) -> None:
        async with self._version_changed:
            self._version_changed.notify_all()


class _Stream(StreamingResponse):
    """A stream of events that says when it has ended, however that happened."""

    def __init__(self, content: AsyncIterator[str], ended: Callable[[], None], *, headers: dict[str, str]) -> None:
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._ended = ended

    async def __call__(self, scope, receive, send) -> None:  # type: ignore[no-untyped-def]
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()
