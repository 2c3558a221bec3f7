"""Small values of the app, read from memory and written behind."""

import pytest

from chatops.domain.errors import NotSavedError
from chatops.runtime.worker import WorkerThread
from chatops.wiring.stored import Settings
from tests.store.memory_store import MemoryStore


def refuses(key: str, value: str) -> None:
    raise NotSavedError("the disk is full")


async def test_what_another_process_has_written_is_seen_also_after_something_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, worker = MemoryStore(), WorkerThread()
    settings = Settings(store, worker)
    with monkeypatch.context() as full:
        full.setattr(store, "set_setting", refuses)
        settings.set("a", "ours")
        await worker(lambda: None)
    assert settings.fresh("a") == "ours", "it is nowhere else"
    settings.set("a", "ours too")
    await worker(store.set_setting, "a", "theirs")
    assert settings.fresh("a") == "theirs"
    worker.close()
