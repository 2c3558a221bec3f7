"""Stop the work of a command on SIGINT and SIGTERM."""

import asyncio
import signal
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import TypeVar

T = TypeVar("T")


class StopSignals:
    """Signal handlers. The first SIGINT cancels the work.

    SIGTERM, SIGHUP and a second SIGINT stop the work and leave the stored state as it is. So does a first SIGINT while
    there is nothing to cancel (no step has been stored yet, or none can be stored).
    """

    def __init__(self, cancel: Callable[[], Coroutine[None, None, bool]]) -> None:
        """`cancel` cancels the work. It returns False if there is nothing to cancel."""
        self._cancel = cancel
        self._cancelling: asyncio.Task[None] | None = None
        """Set by the first SIGINT."""
        self._terminated = asyncio.Event()

    @property
    def any_came(self) -> bool:
        """True if the work was cancelled or stopped."""
        return self._cancelling is not None or self.terminated

    @property
    def terminated(self) -> bool:
        """True if the work was stopped without being cancelled."""
        return self._terminated.is_set()

    @contextmanager
    def listening(self) -> Iterator[None]:
        """Handle the signals inside the block."""
        loop = asyncio.get_running_loop()
        handlers = {signal.SIGINT: self._interrupt, signal.SIGTERM: self._terminated.set}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            # Under nohup SIGHUP stays ignored. Otherwise tools must not continue after the terminal was closed.
            handlers[signal.SIGHUP] = self._terminated.set
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

    async def unless_terminated(self, work: Coroutine[None, None, T]) -> T | None:
        """Return the result of `work`, or None if a terminating signal arrived first."""
        task = asyncio.ensure_future(work)
        stopped = asyncio.ensure_future(self._terminated.wait())
        try:
            await asyncio.wait({task, stopped}, return_when=asyncio.FIRST_COMPLETED)
            return await task if task.done() or not self.terminated else None
        finally:
            for waiter in (task, stopped):
                waiter.cancel()
            await asyncio.gather(task, stopped, return_exceptions=True)

    def _interrupt(self) -> None:
        if self._cancelling is not None:
            self._terminated.set()
        else:
            self._cancelling = asyncio.get_running_loop().create_task(self._cancel_or_terminate())

    async def _cancel_or_terminate(self) -> None:
        if not await self._cancel():
            self._terminated.set()
