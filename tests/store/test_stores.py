"""Both stores keep the promises of `conformance` and `run_conformance`."""

from chatops.store.base import Store
from chatops.store.sqlite import SqliteStore
from tests.store.conformance import StoreConformance, World
from tests.store.memory_store import MemoryStore
from tests.store.run_conformance import RunConformance


class TestSqliteStore(StoreConformance, RunConformance):
    def open_store(self, world: World) -> Store:
        return SqliteStore(
            world.folder / "data" / "chatops.db", clock=world.clock, process=world.process, alive=world.alive
        )


class TestMemoryStore(StoreConformance, RunConformance):
    def open_store(self, world: World) -> Store:
        return MemoryStore(memory=world.memory, clock=world.clock, process=world.process, alive=world.alive)
