"""Copies of contained turns at the start of an app: which are removed, and when none is."""

from dataclasses import replace

from chatops.domain.ids import TurnId
from chatops.engine.state import Containment
from chatops.store.store import Store
from chatops.wiring.app import App
from tests.store import storekit as kit
from tests.tools.toolkit import context_for
from tests.wiring.conftest import Bench


async def started(bench: Bench, store: Store) -> set[str]:
    """Start an app beside the copies ``t.c0`` and ``over``. Returns the copies that are there afterwards."""
    app = App(bench.app().options, store=store)
    for name in ("t.c0", "over"):
        app.contained.copied(name, context_for(bench.workspace))
    await app.open_session(None, attended=True)
    await app.aclose()
    return {path.name for path in (app.paths.data / "contained").iterdir() if path.is_dir()}


async def test_the_copy_of_an_unfinished_turn_stays_also_without_messages(bench: Bench) -> None:
    bench.write()
    store = kit.memory_store()
    info = store.create_session(workspace=str(bench.workspace), role="assistant", persona="")
    step = kit.first(TurnId(f"{info.id}.1"), info.id)
    state = replace(step.state, messages=(), containment=Containment(name="t.c0", used=("file_write",)))
    store.commit(replace(step, state=state, messages=()))
    assert store.sessions() == []
    assert await started(bench, store) == {"t.c0"}


async def test_a_store_in_memory_removes_no_copy(bench: Bench) -> None:
    bench.write()
    assert await started(bench, kit.memory_store(unsaved="The store cannot be opened.")) == {"t.c0", "over"}
