"""Functions in threads that nobody has to wait for.

asyncio's own threads are few, are shared by everybody, and have to end before the program may: one function that
never returns holds up the others and then the exit. Here each call has a thread of its own that ends with the program.
"""

import asyncio
import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Escaped(Exception):
    """A function tried to end more than itself: ``sys.exit``, an interrupt, a cancellation, the end of an iterator."""


class LooseThreads(ThreadPoolExecutor):
    """An event loop's default executor whose threads nobody waits for: a name that is looked up for half a minute must
    not hold the end of a program. Each call has a thread of its own."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> "Future[T]":
        """Run `fn` in a new thread."""
        future: Future[T] = Future()

        def work() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                result = fn(*args, **kwargs)
            except BaseException as error:
                future.set_exception(ordinary(error))
            else:
                future.set_result(result)

        threading.Thread(target=work, name="loose", daemon=True).start()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """What runs, runs on."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """The result of `function`, or what it raised; Escaped for what is no ordinary exception.

    Cancelling the wait does not stop the thread: what it gives then is forgotten.
    """
    loop = asyncio.get_running_loop()
    settled: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: T | None, error: BaseException | None) -> None:
        if settled.done():
            return
        if error is not None:
            settled.set_exception(error)
        else:
            settled.set_result(result)  # type: ignore[arg-type]

    def work() -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as raised:
            error = ordinary(raised)
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            # The loop is closed: nobody is there any more to be told.
            return

    threading.Thread(target=work, name=getattr(function, "__name__", "tool"), daemon=True).start()
    return await settled


def ordinary(error: BaseException) -> Exception:
    """`error`, or an Escaped in its place: what a loop or a future must not meet goes no further."""
    if isinstance(error, Exception) and not isinstance(error, StopIteration | StopAsyncIteration):
        return error
    text = str(error)
    escaped = Escaped(f"{type(error).__name__}: {text}" if text else type(error).__name__)
    escaped.__cause__ = error
    return escaped
