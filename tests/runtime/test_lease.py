"""Session leases: a failed look at the store changes nothing, and a lost lease is never taken again."""

from dataclasses import replace

import pytest

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime import ownership as module
from chatops.runtime.ownership import Lease
from chatops.runtime.worker import WorkerThread
from chatops.store.base import Hold, Holder
from chatops.store.process import this_process
from chatops.store.rules import since
from tests.store.memory_store import MemoryStore
from tests.support.waiting import until

OTHER = Holder(host=this_process().host, pid=2_000_000_000, boot_id="", pid_started="")


def unreadable(session: SessionId) -> Hold | None:
    raise StoreError("It cannot be read.")


def test_the_start_of_a_lease_of_an_older_version_is_unknown() -> None:
    hold = Hold(holder=OTHER, expires_at=30.0, since=0.0, wanted_by=None, heard=False)
    assert since(hold, now=1.8e9) == "an unknown time"


async def test_a_lost_lease_is_noticed_after_a_failed_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    store, worker, lost = MemoryStore(alive=lambda one: True), WorkerThread(), list[Holder | None]()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = Lease(store, worker, this_process(), asked=lambda by: None, lost=lost.append, looked=lambda: None)
    await lease.take(info.id)
    held, troubles = store.held, [StoreError("not now")]

    def held_at_last(session: SessionId) -> object:
        if troubles:
            raise troubles.pop()
        return held(session)

    monkeypatch.setattr(module, "LEASE_S", 0.0)
    monkeypatch.setattr(store, "held", held_at_last)
    store.take_over(info.id, OTHER, of=this_process(), ttl_s=30)
    await until(lambda: lost == [OTHER])
    assert troubles == []
    await lease.release()
    worker.close()


async def test_a_released_lease_counts_as_lost_and_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner was suspended meanwhile, so its state in memory is outdated."""
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(module, "LEASE_S", 0.0)
    store, worker, lost = MemoryStore(alive=lambda one: True), WorkerThread(), list[Holder | None]()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = Lease(store, worker, this_process(), asked=lambda by: None, lost=lost.append, looked=lambda: None)
    await lease.take(info.id)
    assert await lease.is_ours()
    with monkeypatch.context() as broken, pytest.raises(StoreError, match="cannot be read"):
        broken.setattr(store, "held", unreadable)
        await lease.is_ours()
    store.take_over(info.id, OTHER, of=this_process(), ttl_s=30)
    store.release(info.id, OTHER)
    assert not await lease.is_ours()
    await until(lambda: lost == [None])
    assert store.held(info.id) is None
    await lease.release()
    assert not await lease.is_ours()
    worker.close()


async def test_the_lease_is_handed_over_although_the_answer_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise StoreError("not now")

    store, worker = MemoryStore(alive=lambda one: True), WorkerThread()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = Lease(store, worker, this_process(), asked=lambda by: None, lost=lambda by: None, looked=lambda: None)
    await lease.take(info.id)
    store.want(info.id, OTHER)
    monkeypatch.setattr(store, "heard", fails)
    await lease.answer()
    assert await lease.hand_over() == OTHER
    hold = store.held(info.id)
    assert hold is not None and hold.holder == OTHER
    worker.close()


async def test_the_newest_requester_gets_the_lease() -> None:
    third = replace(OTHER, pid=OTHER.pid + 1)
    store, worker = MemoryStore(alive=lambda one: True), WorkerThread()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = Lease(store, worker, this_process(), asked=lambda by: None, lost=lambda by: None, looked=lambda: None)
    await lease.take(info.id)
    for asker in (OTHER, third):
        store.want(info.id, asker)
    assert await lease.hand_over() == third
    hold = store.held(info.id)
    assert hold is not None and hold.holder == third
    worker.close()
