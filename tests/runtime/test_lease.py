"""Session leases: a failed look at the store changes nothing, and a lost lease is never taken again."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime import lease as module
from chatops.runtime.lease import Lease
from chatops.runtime.services import WorkerThread
from chatops.store.base import Holder, LeaseRow
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from tests.store.storekit import memory_store
from tests.support.waiting import until

OTHER = replace(this_process(), pid=2_000_000_000, boot_id="", pid_started="")


def unreadable(session: SessionId, *rest: object) -> LeaseRow | None:
    raise StoreError("It cannot be read.")


def a_lease(store: Store, worker: WorkerThread, *, lost: Callable[[Holder | None], None] = lambda by: None) -> Lease:
    return Lease(
        store,
        worker,
        this_process(),
        on_request=lambda by: None,
        on_loss=lost,
        on_stop=lambda: True,
        on_look=lambda: None,
    )


async def test_a_lost_lease_is_noticed_after_a_failed_look(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    store, worker, lost = memory_store(alive=lambda one: True), WorkerThread(), list[Holder | None]()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = a_lease(store, worker, lost=lost.append)
    await lease.take(info.id)
    held, troubles = store.lease, [StoreError("not now")]

    def held_at_last(session: SessionId) -> object:
        if troubles:
            raise troubles.pop()
        return held(session)

    monkeypatch.setattr(module, "LEASE_S", 0.0)
    monkeypatch.setattr(store, "lease", held_at_last)
    store.seize_lease(info.id, OTHER, of=this_process(), ttl_s=30)
    await until(lambda: lost == [OTHER])
    assert troubles == []
    await lease.release()
    worker.close()


async def test_a_released_lease_counts_as_lost_and_is_not_taken_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The owner was suspended meanwhile, so its state in memory is outdated."""
    monkeypatch.setattr(module, "LOOK_S", 0.001)
    monkeypatch.setattr(module, "LEASE_S", 0.0)
    store, worker, lost = memory_store(alive=lambda one: True), WorkerThread(), list[Holder | None]()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = a_lease(store, worker, lost=lost.append)
    await lease.take(info.id)
    assert await lease.is_ours()
    with monkeypatch.context() as broken, pytest.raises(StoreError, match="cannot be read"):
        broken.setattr(store, "lease", unreadable)
        await lease.is_ours()
    store.seize_lease(info.id, OTHER, of=this_process(), ttl_s=30)
    store.release_lease(info.id, OTHER)
    assert not await lease.is_ours()
    await until(lambda: lost == [None])
    assert store.lease(info.id) is None
    await lease.release()
    assert not await lease.is_ours()
    worker.close()


async def test_who_is_cancelled_while_acquiring_a_lease_does_not_keep_it() -> None:
    store, worker, busy = memory_store(alive=lambda one: True), WorkerThread(), threading.Event()
    info = store.create_session(workspace="/w", role="coder", persona="")
    worker.later(busy.wait)
    taking = asyncio.create_task(a_lease(store, worker).take(info.id))
    await asyncio.sleep(0)
    taking.cancel()
    busy.set()
    with pytest.raises(asyncio.CancelledError):
        await taking
    again = a_lease(store, worker)
    await again.take(info.id)
    await again.release()
    worker.close()


async def test_a_lease_that_could_not_be_released_does_not_lock_out_its_own_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, worker = memory_store(alive=lambda one: True), WorkerThread()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = a_lease(store, worker)
    await lease.take(info.id)
    with monkeypatch.context() as broken:
        broken.setattr(store, "release_lease", unreadable)
        await lease.release()
    again = a_lease(store, worker)
    await again.take(info.id)
    assert await again.is_ours()
    await again.release()
    assert store.lease(info.id) is None
    worker.close()


async def test_the_newest_requester_gets_the_lease() -> None:
    third = replace(OTHER, pid=OTHER.pid + 1)
    store, worker = memory_store(alive=lambda one: True), WorkerThread()
    info = store.create_session(workspace="/w", role="coder", persona="")
    lease = Lease(
        store,
        worker,
        this_process(),
        on_request=lambda by: None,
        on_loss=lambda by: None,
        on_stop=lambda: True,
        on_look=lambda: None,
    )
    await lease.take(info.id)
    for asker in (OTHER, third):
        store.request_lease(info.id, asker)
    assert await lease.hand_over() == third
    row = store.lease(info.id)
    assert row is not None and row.holder == third
    worker.close()
