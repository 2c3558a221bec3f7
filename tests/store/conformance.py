"""Tests that every store has to pass, whatever it is made of: shared fixtures, and the file as a whole.

Sessions, turns, the queue, leases and runs have modules named like this one.

A subclass says how a store is opened: `open_store(world)`; two stores of one world see the same data.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from chatops.domain.errors import StoreError
from chatops.domain.ids import TurnId
from chatops.store.base import Holder, SessionInfo
from chatops.store.store import Store
from tests.store import storekit as kit


@dataclass
class World:
    """A place for data, a clock to set, and which processes live."""

    folder: Path
    now: float = 1_795_256_112.0
    dead: set[int] = field(default_factory=set)

    def clock(self) -> float:
        return self.now

    def alive(self, holder: Holder) -> bool:
        return holder.pid not in self.dead

    def process(self) -> Holder:
        return holder(pid=77)


def holder(host: str = "box", pid: int = 1, boot: str = "b1", start: str = "100") -> Holder:
    """Return a process of the machine that has the name `host`."""
    return Holder(host=host, pid=pid, boot_id=boot, pid_started=start, machine=f"machine of {host}")


class StoreConformance:
    def open_store(self, world: World) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return World(folder=tmp_path)

    @pytest.fixture
    def opened(self, world: World) -> Iterator[Callable[[], Store]]:
        stores: list[Store] = []

        def another() -> Store:
            stores.append(self.open_store(world))
            return stores[-1]

        yield another
        for store in stores:
            store.close()

    @pytest.fixture
    def store(self, opened: Callable[[], Store]) -> Store:
        return opened()

    @pytest.fixture
    def session(self, store: Store) -> SessionInfo:
        return store.create_session(workspace="/w", role="coder", persona="default")

    @pytest.fixture
    def turn(self, store: Store, session: SessionInfo) -> TurnId:
        return store.next_turn_id(session.id)

    def test_version_changes_when_another_one_wrote_and_not_by_itself(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        other = opened()
        seen = store.data_version()
        store.set_setting("a", "1")
        assert store.data_version() == seen
        other.set_setting("a", "2")
        assert store.data_version() != seen

    def test_a_sound_store_has_no_complaints(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        kit.pending_turn(store, session, turn)
        assert kit.problems(store) == []

    def test_a_closed_store_says_so(self, store: Store) -> None:
        store.close()
        store.close()
        with pytest.raises(StoreError):
            store.sessions()
        with pytest.raises(StoreError):
            store.create_session(workspace="/w", role="r", persona="p")
        with pytest.raises(StoreError):
            store.data_version()
