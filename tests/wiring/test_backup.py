"""The terminal app backs the store up while it is idle."""

import asyncio
from contextlib import closing

import pytest

from chatops.store.opening import backup_of
from chatops.store.store import Store
from chatops.wiring import upkeep
from chatops.wiring.open_sessions import OpenSessions
from chatops.wiring.upkeep import Upkeep
from tests.support.waiting import until
from tests.wiring.conftest import Bench


async def test_a_backup_is_made_once_no_turn_runs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upkeep, "BACKUP_LOOK_S", 0.01)
    bench.write()
    app = bench.app()
    app.store.set_setting("a", "b")
    copy = backup_of(app.paths.store)
    looked = asyncio.Event()
    busy = True

    def is_idle(_: OpenSessions) -> bool:
        looked.set()
        return not busy

    monkeypatch.setattr(OpenSessions, "is_idle", property(is_idle))
    Upkeep(app).back_up()
    await looked.wait()
    assert not copy.exists()
    busy = False
    await until(copy.exists)
    with closing(Store(copy)) as store:
        assert store.setting("a") == "b"
