"""The store keeps the promises of `conformance` and of the modules that are named like it."""

from chatops.store.store import Store
from tests.store.conformance import StoreConformance, World
from tests.store.lease_conformance import LeaseConformance
from tests.store.queue_conformance import QueueConformance
from tests.store.run_conformance import RunConformance
from tests.store.session_conformance import SessionConformance
from tests.store.turn_conformance import TurnConformance


class TestStore(
    StoreConformance, SessionConformance, TurnConformance, QueueConformance, LeaseConformance, RunConformance
):
    def open_store(self, world: World) -> Store:
        return Store(world.folder / "data" / "chatops.db", clock=world.clock, process=world.process, alive=world.alive)
