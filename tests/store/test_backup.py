"""The backup copy: when it is made, what is in it, and what a repair takes from it."""

import time
from contextlib import AbstractContextManager, closing
from itertools import count
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.errors import UnreadableError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Message
from chatops.engine.inputs import DecideCall
from chatops.store import backup, opening
from chatops.store.backup import BACKUP_EVERY_S, is_backup_due, make_backup
from chatops.store.identity import copied_key
from chatops.store.opening import backup_of
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.damage import MESSAGES, filled, flip, pages_of, waiting
from tests.store.filekit import a_session, sql


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [str(getattr(message, "text", "")) for message in messages]


def idle() -> bool:
    return True


def test_a_backup_is_one_private_file_with_every_row(path: Path) -> None:
    filled(path)
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id, "in the log", 1))
        assert make_backup(path, idle=idle)
        assert kit.problems(store) == []
    copy = backup_of(path)
    assert copy.stat().st_mode & 0o777 == 0o600
    assert {file.name for file in path.parent.iterdir()} == {path.name, copy.name}
    for table in ("messages", "sessions", "turns", "pending"):
        assert sql(copy, f"SELECT * FROM {table}") == sql(path, f"SELECT * FROM {table}")
    assert {file.name for file in path.parent.iterdir()} == {path.name, copy.name}


def test_a_backup_is_due_once_a_day(path: Path) -> None:
    now = time.time()
    assert not is_backup_due(path, now=now), "there is no store"
    Store(path).close()
    assert is_backup_due(path, now=now)
    assert make_backup(path, idle=idle)
    assert not is_backup_due(path, now=now + BACKUP_EVERY_S - 60)
    assert is_backup_due(path, now=now + BACKUP_EVERY_S + 60)
    assert is_backup_due(path, now=now - 60 * BACKUP_EVERY_S), "a clock that was wrong"


def test_two_backups_at_a_time_in_one_process_are_both_whole(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    monkeypatch.setattr(backup, "_STEPS", 100)
    inner: list[bool] = []

    def idle_again() -> bool:
        if not inner:
            inner.append(False)
            inner[:] = [make_backup(path, idle=idle)]
        return True

    assert make_backup(path, idle=idle_again) and inner == [True]
    assert sql(backup_of(path), "SELECT * FROM messages") == sql(path, "SELECT * FROM messages")


def test_a_large_store_is_not_backed_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path)
    monkeypatch.setattr(backup, "MAX_BACKUP_BYTES", 10_000)
    assert not is_backup_due(path, now=time.time())


def test_a_backup_ends_as_soon_as_a_turn_runs_and_the_one_before_stays(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(path).close()
    assert make_backup(path, idle=idle)
    before = backup_of(path).read_bytes()
    filled(path)
    monkeypatch.setattr(backup, "_STEPS", 100)
    looks = count()
    assert not make_backup(path, idle=lambda: next(looks) < 5)
    assert next(looks) == 6
    assert backup_of(path).read_bytes() == before
    assert {file.name for file in path.parent.iterdir()} == {path.name, backup_of(path).name}


def test_a_backup_of_a_store_that_keeps_changing_has_one_moment_of_it(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(path)
    monkeypatch.setattr(backup, "_STEPS", 1000)
    with closing(Store(path)) as store:

        def writes() -> bool:
            store.set_setting("a", str(time.monotonic()))
            return True

        assert make_backup(path, idle=writes)
    assert sql(backup_of(path), "SELECT count(*) FROM messages") == sql(path, "SELECT count(*) FROM messages")


def test_a_damaged_store_does_not_replace_the_backup_of_a_sound_one(path: Path) -> None:
    filled(path)
    assert make_backup(path, idle=idle)
    before = backup_of(path).read_bytes()
    flip(path, pages_of(path, "messages")[5])
    with pytest.raises(UnreadableError):
        make_backup(path, idle=idle)
    assert backup_of(path).read_bytes() == before


def test_a_deleted_session_is_deleted_in_the_backup_too(path: Path) -> None:
    with closing(Store(path)) as store:
        gone, kept = a_session(store), a_session(store)
        for session_id in (gone, kept):
            store.append_message(session_id, kit.user(session_id, f"secret of {session_id}", 1))
        assert make_backup(path, idle=idle)
        store.delete_session(gone)
    assert sql(backup_of(path), "SELECT id FROM sessions") == [(kept,)]
    data = backup_of(path).read_bytes()
    assert (f"secret of {gone}".encode() in data, f"secret of {kept}".encode() in data) == (False, True)
    assert {file.name for file in path.parent.iterdir()} == {path.name, backup_of(path).name}


def test_a_session_deleted_while_the_copy_is_made_does_not_come_back(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id, "secret", 1))
        lock = opening.locked

        def deletes(folder: Path, *, alone: bool = False) -> AbstractContextManager[None]:
            sql(path, "DELETE FROM sessions")
            return lock(folder, alone=alone)

        monkeypatch.setattr(backup, "locked", deletes)
        assert not make_backup(path, idle=idle)
    assert not backup_of(path).exists()


def test_a_backup_in_which_nothing_can_be_deleted_is_removed(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id, "secret", 1))
        backup_of(path).write_bytes(b"secret" * 1000)
        store.delete_session(session_id)
        assert not backup_of(path).exists()


def test_a_repair_takes_what_is_lost_from_the_backup(path: Path) -> None:
    one, other = filled(path)
    assert make_backup(path, idle=idle)
    with closing(Store(path)) as store:
        store.append_message(one, kit.user(one, "since then", 5000))
    flip(path, pages_of(path, "messages")[6])
    with closing(Store(path)) as store:
        assert "come from the backup" in store.notices[0]
        for session_id in (one, other):
            said = texts(store.history(session_id))
            assert [text.split()[1] for text in said if text.startswith("text")] == [str(n) for n in range(MESSAGES)]
        assert texts(store.history(one))[-1] == "since then"
        assert [one.pending.call.id for one in store.pending_calls()] == [f"{other}.1.1.1"]
        assert kit.problems(store) == []


def test_sessions_that_only_the_backup_has_end_with_their_last_message_and_run_nothing(path: Path) -> None:
    one, other = filled(path)
    assert make_backup(path, idle=idle)
    with closing(Store(path)) as store:
        store.append_message(one, kit.user(one, "since then", 5000))
    flip(path, *pages_of(path, "sessions"))
    with closing(Store(path)) as store:
        assert {info.id: (info.role, info.workspace) for info in store.sessions()} == dict.fromkeys(
            (one, other), ("coder", "/w")
        )
        assert texts(store.history(one))[-1] == "since then"
        assert (store.session(other).active_turn, store.pending_calls()) == (None, [])
        assert waiting(store, other) != f"{other}.1.1.1"
        assert kit.problems(store) == []


@pytest.mark.parametrize("lost", ["the first page", "everything"])
def test_a_file_that_cannot_be_read_at_all_is_made_again_from_the_backup(path: Path, lost: str) -> None:
    one, other = filled(path)
    with closing(Store(path)) as store:
        store.set_setting(f"revoked:{one}", "shell_exec")
        store.set_setting(f"sandbox:{one}", "network on")
        store.set_setting(copied_key(TurnId(f"{one}.1")), "1")
    assert make_backup(path, idle=idle)
    if lost == "everything":
        path.write_bytes(b"x" * 5000)
    else:
        flip(path, 1)
    with closing(Store(path)) as store:
        assert f"2 sessions with {2 * MESSAGES + 1} messages" in store.notices[0]
        assert all(len(store.history(session_id)) >= MESSAGES for session_id in (one, other))
        # Nothing that waited can be told from what was done since.
        assert store.pending_calls() == []
        assert store.setting(f"revoked:{one}") == "shell_exec"
        assert store.setting(f"sandbox:{one}") is None, "it may have been narrowed since"
        assert store.setting(copied_key(TurnId(f"{one}.1"))) is None
        assert kit.problems(store) == []


def test_a_backup_put_in_place_of_the_store_asks_again(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id: SessionId = a_session(store)
        call = waiting(store, session_id)
        assert store.post_decision(DecideCall(call_id=call, digest="d1", decision=Approved(), by=kit.ANA))
        turn = store.session(session_id).active_turn
        assert turn is not None
    assert make_backup(path, idle=idle)
    backup_of(path).replace(path)
    with closing(Store(path)) as store:
        assert [one.decided for one in store.pending_calls()] == [None]
        assert store.setting(copied_key(turn)) == "1"
