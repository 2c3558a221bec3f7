"""Small values of the app, read from memory and written behind."""

from pathlib import Path

import pytest

from chatops.domain.errors import NotSavedError
from chatops.domain.ids import SessionId
from chatops.runtime.services import WorkerThread
from chatops.wiring.stored import Settings
from chatops.wiring.user_state import UserState
from tests.store.storekit import memory_store


def refuses(key: str, value: str) -> None:
    raise NotSavedError("the disk is full")


async def test_what_another_process_has_written_is_seen_also_after_something_could_not_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, worker = memory_store(), WorkerThread()
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


async def test_times_of_steps_are_kept_and_nonsense_is_no_time(tmp_path: Path) -> None:
    worker = WorkerThread()
    settings = Settings(memory_store(), worker)
    user, run = UserState(settings, workspace=tmp_path, file=tmp_path / "settings.yaml"), SessionId("r")
    user.save_step_times(run, (6, 2.54))
    assert list(user.step_times(run)) == [6, 2.5]
    for text in ("", "{", "{}", '["a"]', "[-1]", "null"):
        settings.set(f"step times:{run}", text)
        assert not user.step_times(run)
    worker.close()
