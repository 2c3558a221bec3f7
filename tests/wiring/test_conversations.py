"""The conversations that an app has open."""

import gc
from weakref import ref

from tests.wiring.conftest import Bench


async def test_a_conversation_that_was_left_takes_no_memory_any_more(bench: Bench) -> None:
    bench.write()
    app = bench.app()
    session = await app.open_session(None, attended=True)
    await session.aclose()
    left = ref(session)
    del session
    gc.collect()
    assert left() is None
    await app.aclose()
