"""`chatops sessions` on a store that is damaged, moved aside, of another version or not writable."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.ids import SessionId
from chatops.store.codec import DAMAGED
from chatops.store.health import findings
from chatops.store.schema import SCHEMA_VERSION, UNRELEASED_ID
from chatops.store.sqlite import SqliteStore
from tests.store.damage import filled, flip, pages_of, waiting
from tests.support.command_line import CommandLine


@pytest.fixture
def path(chatops_home: Path) -> Path:
    return chatops_home / "data" / "chatops.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


@pytest.mark.some(1)
@pytest.mark.parametrize("style", ["md", "html", "jsonl", "openai"])
def test_the_readable_part_of_a_damaged_store_is_exported_without_changing_it(
    style: str, chatops: CommandLine, path: Path
) -> None:
    one, _ = filled(path)
    flip(path, pages_of(path, "messages")[5])
    before = contents(path.parent)
    listed = chatops("sessions", "list", "--all")
    assert listed.code == 0
    assert one in listed.out
    assert "is damaged" in listed.err
    assert "could not, and are shown as damaged" in listed.err
    exported = chatops("sessions", "export", one, "--format", style)
    assert exported.code == 0
    assert "text 0 " in exported.out
    assert "text 119 " in exported.out
    assert style == "openai" or DAMAGED in exported.out
    assert "is damaged" in exported.err
    assert chatops("sessions", "search", "text 119", "--all").out.count("text 119") >= 1
    assert contents(path.parent) == before


@pytest.mark.more
def test_reading_commands_leave_a_damaged_store_unchanged_and_say_so(chatops: CommandLine, path: Path) -> None:
    filled(path)
    call = chatops("approvals", "list", "--output-format", "json").json[0]["id"]
    flip(path, pages_of(path, "messages")[5])
    before = contents(path.parent)
    for command in (("approvals", "list"), ("approvals", "show", call), ("audit", "list")):
        looked = chatops(*command)
        assert (looked.code, "is damaged" in looked.err) == (0, True)
        assert contents(path.parent) == before
    assert chatops("workflow", "list").code == 0
    assert contents(path.parent) == before
    assert call in chatops("approvals", "list").out


@pytest.mark.some(2)
@pytest.mark.parametrize("log", [False, True], ids=["no log", "a log"])
@pytest.mark.parametrize("byte", [0, 15])
def test_a_broken_first_byte_loses_no_pending_call(
    chatops: CommandLine, path: Path, tmp_path: Path, byte: int, log: bool
) -> None:
    _, other = filled(path)
    if log:
        _rename_in_the_log_only(path, other, tmp_path)
    data = bytearray(path.read_bytes())
    data[byte] ^= 0xFF
    path.write_bytes(data)
    before = path.read_bytes()
    (pending,) = chatops("approvals", "list", "--output-format", "json").json
    assert path.read_bytes() == before
    denied = chatops("approvals", "deny", pending["id"])
    assert denied.code == 0
    assert "was damaged; it was moved to" in denied.err
    assert Path(f"{path}.bad-1").read_bytes() == data
    shown = chatops("sessions", "show", other).out
    assert "text 0 " in shown and "text 119 " in shown
    assert ("only in the log" in chatops("sessions", "list", "--all").out) is log


def _rename_in_the_log_only(path: Path, session_id: str, scratch: Path) -> None:
    """Leave a title in the write-ahead log, as a program that is killed does.

    A title needs no new page. A new page would put page 1 into the log, and SQLite would not read the broken one.
    """
    with closing(SqliteStore(path)) as store:
        store.update_session(SessionId(session_id), title="only in the log")
        for file in path.parent.glob("chatops.db*"):
            shutil.copy(file, scratch / file.name)
    for suffix in ("", "-wal", "-shm"):
        shutil.copy(scratch / f"chatops.db{suffix}", f"{path}{suffix}")


def test_a_newer_store_with_a_broken_first_byte_is_refused_too(chatops: CommandLine, path: Path) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    path.write_bytes(b"s" + path.read_bytes()[1:])
    before = contents(path.parent)
    ran = chatops("approvals", "list")
    assert (ran.code, "Update chatops" in ran.err) == (1, True)
    assert chatops("-p", "hello").code == 1
    assert contents(path.parent) == before


ODD_SCHEMAS = {
    "a table is missing": ("DROP TABLE posted", "table posted is missing"),
    "a column is missing": ("ALTER TABLE posted DROP COLUMN decision", "column posted.decision is missing"),
    "another column is missing": ("ALTER TABLE leases DROP COLUMN since", "column leases.since is missing"),
}


@pytest.mark.some(1)
@pytest.mark.parametrize(("change", "message"), ODD_SCHEMAS.values(), ids=ODD_SCHEMAS)
def test_a_store_whose_tables_are_not_those_of_its_version_is_named_and_repaired(
    chatops: CommandLine, path: Path, change: str, message: str
) -> None:
    session_id, call_id = chatops.paused("run `echo once >> log.txt`")
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(change)
    before = path.read_bytes()
    looked = chatops("doctor")
    assert (looked.code, message in looked.out) == (1, True), looked.out
    assert call_id in chatops("approvals", "list").out
    assert path.read_bytes() == before
    approved = chatops("approvals", "approve", call_id)
    assert approved.code == 0, approved.err
    assert "was damaged; it was moved to" in approved.err
    resumed = chatops("resume", session_id)
    assert resumed.code == 0, resumed.err
    assert (chatops.workspace / "log.txt").read_text() == "once\n"
    assert chatops("doctor").code == 0


@pytest.mark.more
def test_every_table_and_column_is_looked_for(path: Path) -> None:
    SqliteStore(path).close()
    whole = path.read_bytes()
    with closing(sqlite3.connect(path)) as raw:
        tables = [
            name
            for (name,) in raw.execute(
                "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%' AND name NOT LIKE 'sqlite%'"
            )
        ]
        columns = [(table, column[1]) for table in tables for column in raw.execute(f"PRAGMA table_info({table})")]
    assert len(tables) > 10
    for table, column in columns:
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA foreign_keys = OFF")
            raw.execute(f"ALTER TABLE {table} RENAME COLUMN {column} TO other")
        assert any(f"column {table}.{column} is missing" in one.text for one in findings(path))
    for table in tables:
        path.write_bytes(whole)
        with closing(sqlite3.connect(path)) as raw:
            raw.execute(f"DROP TABLE {table}")
        assert any(f"table {table} is missing" in one.text for one in findings(path))


def test_a_quarantined_file_can_be_read_by_its_name(chatops: CommandLine, path: Path) -> None:
    one, _ = filled(path)
    flip(path, pages_of(path, "messages")[5])
    # Whatever stores something mends it first, and says so.
    renamed = chatops("sessions", "rename", one, "Another name")
    assert renamed.code == 0
    assert "moved to" in renamed.err
    bad = Path(f"{path}.bad-1")
    before = bad.read_bytes()
    listed = chatops("sessions", "list", "--store", str(bad))
    assert listed.code == 0
    assert one in listed.out
    assert "text 0 " in chatops("sessions", "show", one, "--store", str(bad)).out
    assert bad.read_bytes() == before
    assert "Another name" in chatops("sessions", "list", "--all").out


def test_a_file_that_is_no_store_is_an_error_or_empty(chatops: CommandLine, tmp_path: Path) -> None:
    missing = chatops("sessions", "list", "--store", str(tmp_path / "none.db"))
    assert (missing.code, missing.out) == (2, "")
    assert "There is no file" in missing.err
    garbage = tmp_path / "garbage.db"
    garbage.write_bytes(b"garbage" * 1000)
    read = chatops("sessions", "list", "--store", str(garbage))
    assert (read.code, read.out) == (0, "")
    assert "Nothing of it could be read" in read.err


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            f"user_version = {SCHEMA_VERSION + 1}",
            (f"version {SCHEMA_VERSION + 1}, this one reads up to {SCHEMA_VERSION}", "Update chatops"),
        ),
        (f"application_id = {UNRELEASED_ID}", ("made by a chatops from before 0.1.0", "Move it away")),
    ],
    ids=["newer", "unreleased"],
)
def test_a_store_of_another_version_is_refused_and_stays_as_it_is(
    change: str, said: tuple[str, str], chatops: CommandLine, path: Path
) -> None:
    filled(path)
    with closing(sqlite3.connect(path)) as raw:
        raw.execute(f"PRAGMA {change}")
    before = contents(path.parent)
    for command in (["sessions", "list"], ["sessions", "list", "--store", str(path)], ["approvals", "list"]):
        ran = chatops(*command)
        assert ran.code == 1
        assert all(text in ran.err for text in said), ran.err
    assert contents(path.parent) == before


@pytest.mark.more
def test_listing_does_not_get_in_the_way_of_a_store_that_is_in_use(chatops: CommandLine, path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = store.create_session(workspace=str(chatops.workspace), role="coder", persona="p").id
        waiting(store, session_id)
        listed = chatops("sessions", "list", "--output-format", "json")
        assert (listed.code, listed.err) == (0, "")
        # Nothing is left out of a sound store: what waits is seen.
        assert [(one["id"], one["pending"]) for one in listed.json] == [(session_id, 1)]
        store.set_setting("still", "works")
    assert "still" not in chatops("sessions", "list").err
