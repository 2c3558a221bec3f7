"""A store of every older version, made by the code of that time: it opens, and nothing of it is lost.

``tests/data/stores/vN.db`` hold a conversation with a note that was approved and remembered, a turn with two calls that
wait, a kept message, a fork, settings and, since there are runs, a run of a workflow. Where the form of a turn changed
and the tables did not, the name says which form it is: ``v3-state4.db``.
"""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.ids import TurnId
from chatops.domain.tools import Outcome
from chatops.engine.view import pending_calls
from chatops.store.reading import sessions_of
from chatops.store.schema import SCHEMA_VERSION
from chatops.store.sqlite import SqliteStore

STORES = Path(__file__).parents[1] / "data" / "stores"
OLD = sorted(STORES.glob("v*.db"))


@pytest.fixture(params=OLD, ids=lambda path: path.stem)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copy(request.param, tmp_path / "chatops.db"))


def contents(
    path: Path, only: dict[str, list[str]] | None = None
) -> dict[str, tuple[list[str], list[tuple[object, ...]]]]:
    """Every table with its columns and rows, of those in `only`."""
    with closing(sqlite3.connect(path)) as raw:
        names = [str(name) for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {}
        for name in names if only is None else only:
            columns = [str(row[1]) for row in raw.execute(f"PRAGMA table_info({name})")] if only is None else only[name]
            found[name] = (columns, raw.execute(f"SELECT {', '.join(columns)} FROM {name} ORDER BY 1").fetchall())
        return found


FORMER = {"grants": ("rules", {"seq": "id", "granted_at": "made_at"})}
"""Tables of older versions under another name now, and their columns that have another name."""


def now_called(tables: dict[str, tuple[list[str], list[tuple[object, ...]]]]) -> Any:
    """The tables with the names that they and their columns have now."""
    found = {}
    for name, (columns, rows) in tables.items():
        if name == "sqlite_sequence":
            continue  # SQLite's own counters, under the names of the tables
        now, renamed = FORMER.get(name, (name, {}))
        found[now] = ([renamed.get(column, column) for column in columns], rows)
    return found


def without_place(tables: dict[str, tuple[list[str], list[tuple[object, ...]]]]) -> object:
    """All but where the file is, which is its own matter."""
    columns, rows = tables["settings"]
    return {**tables, "settings": (columns, [row for row in rows if row[0] != "place"])}


def test_there_is_a_store_of_every_older_version() -> None:
    assert {f"v{version}.db" for version in range(1, SCHEMA_VERSION)} <= {path.name for path in OLD}


def test_every_field_survives(path: Path) -> None:
    before = now_called(contents(path))
    with closing(SqliteStore(path)) as store:
        assert store.notices == ()
        assert store.problems() == []
    assert without_place(contents(path, {name: columns for name, (columns, _) in before.items()})) == before
    with closing(sqlite3.connect(path)) as raw:
        assert raw.execute("PRAGMA user_version").fetchone() == (SCHEMA_VERSION,)


def test_everything_can_be_asked_of_it(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        info = next(one for one in store.sessions() if one.title == "Notes, kept")
        assert [message.kind for message in store.history(info.id)][:4] == ["user", "assistant", "tool", "assistant"]
        assert info.active_turn is not None
        state = store.load_turn(info.active_turn)
        assert [one.call.arguments for one in pending_calls(state)] == [
            '{"text": "to be approved"}',
            '{"text": "to be denied"}',
        ]
        assert [one.pending.digest for one in store.pending_calls()] == [one.digest for one in pending_calls(state)]
        (attempt,) = store.journal(TurnId(f"{info.id}.1"))
        assert (attempt.tool, attempt.outcome) == ("scratch_write", Outcome.SUCCESS)
        (decision,) = store.decisions()
        assert isinstance(decision.decision, Approved)
        assert (decision.by.login, decision.role, decision.model) == ("ana", "coder", "local")
        assert [(row.rule.role, row.rule.tool, row.rule.scope.value) for row in store.rules(session_id=info.id)] == [
            ("coder", "scratch_write", "session")
        ]
        assert store.queued_messages(info.id) == ("and then say goodbye",)
        assert store.setting("default_model") == "local"
        assert next(one for one in store.sessions() if one.title == "A fork").forked_from == info.id
        for run in store.runs():
            assert store.load_run(run.id).spec.name == "release"


def test_it_can_be_read_without_being_touched(path: Path) -> None:
    before = path.read_bytes()
    rows, salvage = sessions_of(path, unsaved="a copy")
    with closing(SqliteStore(rows)) as copy:
        assert salvage.whole
        assert {one.title for one in copy.sessions()} >= {"Notes, kept", "A fork"}
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]
