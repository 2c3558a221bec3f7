"""Each kind of store keeps the promises of `conformance` and of the modules that are named like it."""

import pytest

from chatops.store.connection import Connection, connect, prepare
from chatops.store.schema import migrate
from chatops.store.store import Store
from tests.store.conformance import StoreConformance, World
from tests.store.lease_conformance import LeaseConformance
from tests.store.queue_conformance import QueueConformance
from tests.store.run_conformance import RunConformance
from tests.store.session_conformance import SessionConformance
from tests.store.turn_conformance import TurnConformance


class Conformance(
    StoreConformance, SessionConformance, TurnConformance, QueueConformance, LeaseConformance, RunConformance
):
    """All of them."""


class TestStore(Conformance):
    def open_store(self, world: World) -> Store:
        return Store(world.folder / "data" / "chatops.db", clock=world.clock, process=world.process, alive=world.alive)


@pytest.mark.more
class TestMemory(Conformance):
    def open_store(self, world: World) -> Store:
        raw = prepare(connect(f"file:{world.folder}?mode=memory&cache=shared"))
        migrate(raw)
        rows = Connection(raw, path=world.folder / "none" / "chatops.db", unsaved="a test")
        return Store(rows, clock=world.clock, process=world.process, alive=world.alive)
