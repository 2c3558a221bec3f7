"""The file: its rights, its log, its versions, and what is said where it cannot be written."""

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.errors import ConflictError, StoreError, UnreadableError
from chatops.domain.ids import MessageId
from chatops.domain.messages import UserMessage
from chatops.engine.state import CallState
from chatops.store import health, opening, schema
from chatops.store.recovery import open_readable
from chatops.store.schema import MIGRATIONS, SCHEMA_VERSION, UNRELEASED_ID
from chatops.store.store import Store
from chatops.store.store_file import StoreFile
from tests.store import storekit as kit
from tests.store.filekit import a_session, sql

ROOT = Path(__file__).parents[2]


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_file_and_folders_are_closed_to_others_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(Store(path)) as store:
            a_session(store)
            names = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
            assert [mode(name) for name in names] == [0o600] * 3
            assert [mode(folder) for folder in (path.parent, path.parent.parent)] == [0o700] * 2
            assert kit.problems(store) == []
    finally:
        os.umask(before)


def test_an_existing_file_becomes_private_and_its_folder_stays_as_it_is(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    with closing(Store(path)) as store:
        assert store.session(session_id).id == session_id
    assert (mode(path), mode(path.parent)) == (0o600, 0o755)


def test_files_open_to_others_are_reported(path: Path) -> None:
    with closing(Store(path)) as store:
        path.chmod(0o640)
        path.parent.chmod(0o777)
        complaints = " ".join(finding.advice for finding in health.findings(store.path))
    assert "chmod 600" in complaints
    assert "chmod 700" in complaints


def test_every_connection_writes_ahead_and_waits_for_the_disk(path: Path) -> None:
    connection = StoreFile(path)
    try:
        names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "user_version")
        assert [connection.one(f"PRAGMA {name}") for name in names] == [
            ("wal",),
            (2,),
            (5000,),
            (1,),
            (SCHEMA_VERSION,),
        ]
        assert connection.notices == []
    finally:
        connection.close()


@pytest.mark.fault("E12")
def test_the_store_works_without_a_write_ahead_log(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = opening.uri
    with monkeypatch.context() as patched:
        patched.setattr(opening, "uri", lambda path, *, mode: f"{usual(path, mode=mode)}&vfs=unix-dotfile")
        with closing(Store(path)) as store:
            session_id = a_session(store)
            assert "write-ahead" in store.notices[0]
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    with closing(Store(path)) as store:
        assert store.session(session_id).id == session_id
        assert store.notices == ()


def test_stored_values_are_there_after_opening_again(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session_id)
        ask = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())), rules=(kit.remembered(),))
        store.commit(ask)
        assert store.post_decision(kit.decided(call))
    with closing(Store(path)) as store:
        assert store.load_turn(turn) == ask.state
        assert store.posted_decisions(turn) == [kit.decided(call)]
        with pytest.raises(ConflictError):
            store.commit(ask)


def test_a_newer_file_is_refused_and_not_touched(path: Path) -> None:
    with closing(Store(path)) as store:
        a_session(store)
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(UnreadableError, match=f"version {SCHEMA_VERSION + 1}") as caught:
        Store(path)
    assert "Update" in caught.value.advice
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, when)
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    path.parent.mkdir(parents=True)
    sql(path, "CREATE TABLE bookmarks (url TEXT)")
    path.chmod(0o644)
    before = path.read_bytes()
    with pytest.raises(UnreadableError, match="another program"):
        Store(path)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)


@pytest.mark.fault("E07")
@pytest.mark.parametrize("first_byte", [b"S", b"?"], ids=["sound", "damaged"])
def test_a_store_from_before_the_first_release_is_refused_in_words_and_not_touched(
    path: Path, first_byte: bytes
) -> None:
    with closing(Store(path)) as store:
        a_session(store)
    sql(path, f"PRAGMA application_id = {UNRELEASED_ID}")
    path.write_bytes(first_byte + path.read_bytes()[1:])
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    for opened in (lambda: Store(path), lambda: open_readable(path, unsaved="a copy")):
        with pytest.raises(UnreadableError, match="made by a chatops from before") as caught:
            opened()
        assert "Move it away to start a new one" in caught.value.advice
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, when)
    assert [name.name for name in path.parent.iterdir()] == [path.name]


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Pretend that there is a second version of the schema, with one more column."""
    added = "ALTER TABLE sessions ADD COLUMN colour TEXT NOT NULL DEFAULT 'blue'"
    following = schema.Migration(version=SCHEMA_VERSION + 1, summary="Colours.", statements=(added,))
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, following))
    for module in (schema, health):
        monkeypatch.setattr(module, "SCHEMA_VERSION", following.version)
    yield following.version
    schema.columns_of.cache_clear()


@pytest.mark.fault("E07")
def test_a_file_of_an_older_version_becomes_a_newer_one_and_loses_nothing(
    path: Path, request: pytest.FixtureRequest
) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
    version = request.getfixturevalue("next_version")
    before = path.read_bytes()
    (line, *_) = health.findings(path)
    assert f"version {SCHEMA_VERSION} of {version}, upgraded when chatops opens it" in line.text
    assert path.read_bytes() == before
    with closing(Store(path)) as store:
        assert store.session(session_id).id == session_id
    assert sql(path, "SELECT colour FROM sessions") == [("blue",)]
    assert sql(path, "PRAGMA user_version") == [(version,)]


def test_a_column_of_a_later_version_is_damage(path: Path, next_version: int) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
    sql(path, f"PRAGMA user_version = {next_version - 1}")
    with closing(sqlite3.connect(path)) as raw:
        assert schema.schema_faults(raw) == [
            f"column sessions.colour belongs to a later version than {next_version - 1}"
        ]
    with closing(Store(path)) as store:
        assert "was damaged; it was moved to" in store.notices[0]
        assert store.session(session_id).id == session_id


def test_a_full_disk_is_reported_and_keeps_what_was_saved(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session_id)
        # This file may not grow any further, which SQLite reports just as it does a full disk.
        pages = store._rows.one("PRAGMA page_count")
        assert pages is not None
        store._rows.one(f"PRAGMA max_page_count = {pages[0]}")
        runs = kit.then(
            step,
            kit.in_round(CallState(call=call, status=kit.started())),
            UserMessage(id=MessageId("big"), text="x" * 1_000_000),
            effects=(kit.run(call),),
        )
        with pytest.raises(StoreError, match="Disk full") as caught:
            store.commit(runs)
        assert caught.value.advice
        assert store.load_turn(turn) == step.state
        assert store.journal(turn) == []
        store._rows.one("PRAGMA max_page_count = 1000000")
        store.commit(runs)
        assert store.load_turn(turn) == runs.state
        assert kit.problems(store) == []


def test_a_folder_that_cannot_be_made_is_a_sentence_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "chatops.db", tmp_path):
        with pytest.raises(StoreError, match="Not saving") as caught:
            Store(place)
        assert "CHATOPS_HOME" in caught.value.advice


def test_a_file_that_may_not_be_written_is_a_sentence(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store._rows.one("PRAGMA query_only = 1")
        with pytest.raises(StoreError, match="cannot be written"):
            store.append_message(session_id, kit.user(session_id))
        assert store.history(session_id) == ()


def test_older_files_become_newer_ones_step_by_step() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))
    assert all(migration.summary.strip() for migration in MIGRATIONS)


def test_a_store_loads_neither_pydantic_nor_the_engine_before_it_is_asked_for_a_turn() -> None:
    script = "import sys, chatops.store.store; print({'pydantic', 'chatops.engine.state'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
