"""Worker thread for blocking store calls, and a shield for what must run to its end after one.

Calls run in one thread, in order, and are never abandoned half-way.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Shield:
    """Runs work to its end even if the caller is cancelled.

    Once a commit has started, the change that it makes in memory must follow, or store and memory would differ.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    async def __call__(self, work: Coroutine[None, None, T]) -> T:
        """Run `work` and return its result or raise its exception."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def ended(self) -> None:
        """Wait for the work in progress."""
        await asyncio.gather(*self._running, return_exceptions=True)


class WorkerThread:
    """Runs calls one after the other in its own thread.

    Cancelling the awaiting task does not cancel a call that has started. Later calls queue up behind it, so they never
    see a commit whose outcome is still unknown.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in the thread and return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._pool, lambda: function(*args, **kwargs)))

    def later(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Queue `function` without waiting for it; an exception is logged."""

        def work() -> None:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("a queued call failed")

        self._pool.submit(work)

    def close(self) -> None:
        """Wait for the calls that have started, and end the thread."""
        self._pool.shutdown(wait=True)
