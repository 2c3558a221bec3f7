"""The sessions that an app has open."""

import gc
import sys
from collections.abc import Iterator
from threading import Event, Thread
from weakref import ref

import pytest

from chatops.wiring.app import App
from tests.wiring.conftest import Bench


@pytest.mark.more
async def test_a_closed_session_takes_no_memory_once_another_is_open(bench: Bench) -> None:
    bench.write()
    app = bench.app()
    session = await app.open_session(None, attended=True)
    await session.aclose()
    left = ref(session)
    del session
    await app.open_session(None, attended=True)
    gc.collect()
    assert left() is None
    await app.aclose()


@pytest.mark.more
async def test_an_owned_session_stays_until_the_app_is_closed(bench: Bench) -> None:
    bench.write()
    app = bench.app()
    session = await app.open_session(None, attended=False)
    await session.submit("hello")
    await session.settle()
    name, left = session.session_id, ref(session)
    del session
    gc.collect()
    assert left() is not None
    await app.aclose()
    assert bench.app().store.lease(name) is None


class Listening:
    is_closed = False

    def notify_soon(self, text: str) -> None:
        """Not of interest."""


@pytest.fixture
def watched(bench: Bench) -> Iterator[tuple[App, list[Exception]]]:
    """An app with many sessions, a thread that looks at its files without end, and the errors of that thread."""
    bench.write()
    app, met, over = bench.app(), list[Exception](), Event()
    many = [Listening() for _ in range(2_000)]
    for one in many:
        app.open_sessions.add(one)  # type: ignore[arg-type]

    def look() -> None:
        while not over.is_set():
            app.workspace_error = "It is gone." if not app.workspace_error else ""
            try:
                app.look_at_workspace()
            except RuntimeError as error:
                met.append(error)

    thread, interval = Thread(target=look), sys.getswitchinterval()
    # The threads take turns everywhere, not only where one of them waits.
    sys.setswitchinterval(1e-6)
    thread.start()
    yield app, met
    over.set()
    thread.join()
    sys.setswitchinterval(interval)


async def test_a_session_may_be_opened_while_the_others_are_notified_of_a_file(
    watched: tuple[App, list[Exception]],
) -> None:
    app, met = watched
    opened = [await app.open_session(None, attended=False) for _ in range(50)]
    assert (len(opened), met) == (50, [])
