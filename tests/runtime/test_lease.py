"""The lease of a conversation: kept whatever a look at the store comes to, and never twice by one process."""

from dataclasses import replace

import pytest

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime import ownership as module
from chatops.runtime.ownership import Lease
from chatops.runtime.worker import WorkerThread
from chatops.store.base import Hold, Holder
from chatops.store.derive import since
from chatops.store.process import this_process
from tests.store.memory_store import MemoryStore
from tests.support.waiting import until

OTHER = Holder(host=this_process().host, pid=2_000_000_000, boot_id="", pid_started="")


def unreadable(session: SessionId) -> Hold | None:
    raise StoreError("It cannot be read.")


def test_since_when_an_older_version_holds_it_is_not_known() -> None:
    hold = Hold(holder=OTHER, expires_at=30.0, since=0.0, wanted_by=None, heard=False)
    assert since(hold, now=1.8e9) == "an unknown time"


async def test_who_has_taken_it_is_found_out_although_the_store_could_not_be_asked_at_first(
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


async def test_one_that_was_taken_and_left_again_is_lost_and_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its holder stood still meanwhile, and has in memory what was before."""
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


async def test_whoever_asks_is_given_it_although_they_could_not_be_answered(monkeypatch: pytest.MonkeyPatch) -> None:
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


async def test_whoever_has_asked_last_is_given_it() -> None:
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
