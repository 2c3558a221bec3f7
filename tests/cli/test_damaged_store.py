"""`chatops sessions` on a store that is damaged, moved aside, of another version or not writable."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chatops.store.health import findings
from chatops.store.schema import SCHEMA_VERSION, UNRELEASED_ID
from chatops.store.store import Store
from tests.store.damage import filled, flip, pages_of, waiting
from tests.support.command_line import CommandLine


@pytest.fixture
def path(chatops_home: Path) -> Path:
    return chatops_home / "data" / "chatops.db"


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}


def test_the_readable_part_of_a_damaged_store_is_exported_without_changing_it(chatops: CommandLine, path: Path) -> None:
    one, _ = filled(path)
    flip(path, pages_of(path, "messages")[5])
    before = contents(path.parent)
    listed = chatops("sessions", "list", "--all")
    assert listed.code == 0
    assert one in listed.out
    assert "is damaged" in listed.err
    assert "some rows could not" in listed.err
    exported = chatops("sessions", "export", one)
    assert exported.code == 0
    assert "text 0 " in exported.out
    assert "text 119 " in exported.out
    assert "is damaged" in exported.err
    assert chatops("sessions", "search", "text 119", "--all").out.count("text 119") >= 1
    (waiting,) = chatops("approvals", "list", "--output-format", "json").json
    for command in (("approvals", "list"), ("approvals", "show", waiting["id"]), ("audit", "list")):
        looked = chatops(*command)
        assert (looked.code, "is damaged" in looked.err) == (0, True)
    checked = chatops("doctor")
    assert (checked.code, "The file is damaged" in checked.out) == (1, True)
    assert "chatops sessions export SESSION" in checked.out
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
    Store(path).close()
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
    with closing(Store(path)) as store:
        session_id = store.create_session(workspace=str(chatops.workspace), role="coder", persona="p").id
        waiting(store, session_id)
        listed = chatops("sessions", "list", "--output-format", "json")
        assert (listed.code, listed.err) == (0, "")
        # Nothing is left out of a sound store: what waits is seen.
        assert [(one["id"], one["pending"]) for one in listed.json] == [(session_id, 1)]
        store.set_setting("still", "works")
    assert "still" not in chatops("sessions", "list").err
