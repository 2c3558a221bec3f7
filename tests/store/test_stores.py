"""Both stores keep the promises of `conformance` and of the modules that are named like it."""

from chatops.store.base import Store
from chatops.store.sqlite import SqliteStore
from tests.store.conformance import StoreConformance, World
from tests.store.lease_conformance import LeaseConformance
from tests.store.memory_store import MemoryStore
from tests.store.queue_conformance import QueueConformance
from tests.store.run_conformance import RunConformance
from tests.store.session_conformance import SessionConformance
from tests.store.turn_conformance import TurnConformance


class Promises(
    StoreConformance, SessionConformance, TurnConformance, QueueConformance, LeaseConformance, RunConformance
):
    """All of them."""


class TestSqliteStore(Promises):
    def open_store(self, world: World) -> Store:
        return SqliteStore(
            world.folder / "data" / "chatops.db", clock=world.clock, process=world.process, alive=world.alive
        )


class TestMemoryStore(Promises):
    def open_store(self, world: World) -> Store:
        return MemoryStore(memory=world.memory, clock=world.clock, process=world.process, alive=world.alive)
