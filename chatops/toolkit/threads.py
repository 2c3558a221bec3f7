"""Run functions in daemon threads, which neither other calls nor the exit of the program wait for.

asyncio's default threads are few and shared, and the program waits for them at exit. One function that never returns
would block other calls and then the exit. Here no call waits for another one, and threads end with the program. A few
threads are kept for later calls, because starting one takes about three times as long as waking one.
"""

import asyncio
import contextvars
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from queue import SimpleQueue
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_MAX_IDLE = 4
"""Maximum number of threads that wait for a call. More take memory; fewer make bursts of calls start threads."""
_idle: list[SimpleQueue[Callable[[], None]]] = []
"""The queue of each thread that waits for a call."""
os.register_at_fork(after_in_child=_idle.clear)


def _serve(jobs: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        jobs.get()()
        if len(_idle) >= _MAX_IDLE:
            return
        _idle.append(jobs)


class EscapedError(Exception):
    """A function raised ``SystemExit``, an interrupt, a cancellation or StopIteration."""


class DaemonThreadExecutor(ThreadPoolExecutor):
    """An event loop's default executor with daemon threads, because a name lookup can take half a minute."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run `fn` in a daemon thread."""
        future: Future[T] = Future()
        # From here on the function runs, even if nothing waits for it any more.
        future.set_running_or_notify_cancel()

        def work() -> None:
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(as_exception(error))
            else:
                future.set_result(result)

        try:
            jobs = _idle.pop()
        except IndexError:
            jobs = SimpleQueue()
            threading.Thread(target=_serve, args=(jobs,), name="daemon", daemon=True).start()
        jobs.put(work)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Do nothing: running calls continue."""


_THREADS = DaemonThreadExecutor()


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return the result of `function`, run in a thread, or raise what it raised.

    Cancelling the wait does not stop the thread; its result is discarded. Raises EscapedError instead of anything that
    is not an ordinary exception.
    """
    context = contextvars.copy_context()
    return await asyncio.wrap_future(_THREADS.submit(lambda: context.run(function, *args, **kwargs)))


def as_exception(error: BaseException) -> Exception:
    """Return `error`, or an EscapedError in its place if a loop or a future must not get it."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    text = str(error)
    escaped = EscapedError(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    escaped.__cause__ = error
    return escaped
