"""The index of the search: a cache that may be missing, damaged or of another store, and never invents anything."""

import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.headless.doctor import store_checks
from chatops.store.reading import look_at
from chatops.store.search import can_index, index_of
from chatops.store.sqlite import SqliteStore
from tests.store import storekit as kit


@pytest.fixture
def store(tmp_path: Path) -> SqliteStore:
    store = SqliteStore(tmp_path / "chatops.db")
    session = store.create_session(workspace="/w", role="r", persona="p")
    for number in range(3):
        store.append_message(session.id, kit.user(session.id, f"invoice {number}", number))
    return store


def found(store: SqliteStore, text: str = "invoice") -> int:
    return len(store.search(text))


@pytest.mark.parametrize("content", [b"", b"SQLite format 3\0" + b"\xff" * 4_096, b"no database" * 1_000])
def test_a_damaged_index_is_made_again(store: SqliteStore, content: bytes) -> None:
    assert found(store) == 3
    index_of(store.path).write_bytes(content)
    assert [found(store), found(store)] == [3, 3]


def test_an_index_that_cannot_be_written_is_done_without(store: SqliteStore) -> None:
    index_of(store.path).mkdir()
    assert (found(store), found(store, "in")) == (3, 3)


def test_an_index_of_another_store_is_made_again(store: SqliteStore, tmp_path: Path) -> None:
    other = SqliteStore(tmp_path / "other.db")
    session = other.create_session(workspace="/w", role="r", persona="p")
    for number in range(9):
        other.append_message(session.id, kit.user(session.id, "nothing of that", number))
    assert found(other, "nothing of that") == 9
    index_of(store.path).write_bytes(index_of(other.path).read_bytes())
    assert (found(store), found(store, "nothing of that")) == (3, 0)


def test_the_index_is_private_and_goes_with_a_deleted_session(store: SqliteStore) -> None:
    assert found(store) == 3
    assert stat.S_IMODE(index_of(store.path).stat().st_mode) == 0o600
    (info,) = store.sessions()
    store.delete_session(info.id)
    assert not index_of(store.path).exists()
    assert found(store) == 0


def test_without_full_text_search_the_user_learns_why_it_takes_long(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert can_index()
    real = sqlite3.connect

    class Without(sqlite3.Connection):
        def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
            if "fts5" in sql:
                raise sqlite3.OperationalError("no such module: fts5")
            return super().execute(sql, *values)  # type: ignore[arg-type]

    def connect(*arguments: Any, **named: Any) -> sqlite3.Connection:
        opened: sqlite3.Connection = real(*arguments, **{**named, "factory": Without})
        return opened

    monkeypatch.setattr(sqlite3, "connect", connect)
    assert not can_index()
    assert found(store) == 3, "every message is read"
    assert any("FTS5" in check.text for check in store_checks(store.path))


def test_a_store_that_is_only_read_uses_the_index_and_reads_what_is_newer(store: SqliteStore) -> None:
    assert found(store) == 3
    session = store.sessions()[0].id
    before = index_of(store.path).read_bytes()
    store.append_message(session, kit.user(session, "invoice 3", 3))
    store.close()
    rows, _ = look_at(store.path, unsaved="the store is only read")
    reading = SqliteStore(rows)
    assert [hit.text for hit in reading.search("invoice")] == [f"invoice {number}" for number in (3, 2, 1, 0)]
    reading.close()
    assert index_of(store.path).read_bytes() == before
    with closing(sqlite3.connect(index_of(store.path))) as index:
        index.execute("INSERT INTO texts(texts) VALUES ('delete-all')")
        index.commit()
    rows, _ = look_at(store.path, unsaved="the store is only read")
    assert [hit.text for hit in SqliteStore(rows).search("invoice")] == ["invoice 3"], "the others come from the index"
