"""Signal handling of headless commands."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class Stop:
    """Signal handlers. The first SIGINT calls `on_interrupt`.

    SIGTERM, SIGHUP and a second SIGINT stop the work and leave the stored state as it is. So does a first SIGINT while
    there is nothing to cancel (no step has been stored yet, or none can be stored).
    """

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.interrupted = False
        self.terminated = False
        self.on_interrupt: Callable[[], Coroutine[None, None, bool]] | None = None
        self._cancelling: asyncio.Task[None] | None = None

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals inside the block."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._terminate}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Under nohup SIGHUP stays ignored. Otherwise tools must not continue after the terminal was closed.
            handlers[signal.SIGHUP] = self._terminate
        try:
            for number, handler in handlers.items():
                loop.add_signal_handler(number, handler)
        except (NotImplementedError, RuntimeError, ValueError):
            # Not the main thread, or not Unix: keep the interpreter's own handling.
            handlers = {}
        try:
            yield
        finally:
            for number in handlers:
                loop.remove_signal_handler(number)

    async def first(self, work: Coroutine[None, None, T]) -> T | None:
        """Return the result of `work`, or None if a terminating signal arrived first."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self.wanted.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() or not self.terminated else None
        finally:
            for one in (task, stopped):
                one.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def _interrupt(self) -> None:
        if self.interrupted or self.on_interrupt is None:
            self._terminate()
            return
        self.interrupted = True
        self._cancelling = asyncio.get_running_loop().create_task(self._cancel(self.on_interrupt))

    async def _cancel(self, cancel: Callable[[], Coroutine[None, None, bool]]) -> None:
        if not await cancel():
            self._terminate()

    def _terminate(self) -> None:
        self.terminated = True
        self.wanted.set()
