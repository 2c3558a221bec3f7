"""Blocking store calls off the event loop: one thread, in order, never abandoned half-way; nor is what follows one."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")


class Whole:
    """Work that goes on to its end although whoever waits for it is cancelled: once a commit has begun, what it changes
    in memory follows it, so that the two never part."""

    def __init__(self) -> None:
        self._under_way: set[asyncio.Task[object]] = set()

    async def __call__(self, work: Coroutine[None, None, T]) -> T:
        """The result of `work`, or what it raised."""
        task = asyncio.create_task(work)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def ended(self) -> None:
        """Wait for what is under way."""
        await asyncio.gather(*self._under_way, return_exceptions=True)


class Offload:
    """Runs calls one after the other in a thread of its own.

    Cancelling the awaiting task does not cancel a call that has begun: a commit is never left half
    awaited with its outcome unknown to later ones, which queue up behind it.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of `function`, or what it raised."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._pool, lambda: function(*args, **kwargs)))

    def later(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Run `function` when its place comes and forget it; what it raises is logged."""

        def work() -> None:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("something could not be stored")

        self._pool.submit(work)

    def close(self) -> None:
        """Wait for what has begun and end the thread."""
        self._pool.shutdown(wait=True)
