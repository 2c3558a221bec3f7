"""Tables and migrations. ``PRAGMA user_version`` is the version of a file.

Every released version stays readable: a migration is never edited after a release, only followed by another. Nothing
here needs more than SQLite 3.40. Text columns hold UTF-8, or a blob if the text has lone surrogates, see `connection`.
"""

from __future__ import annotations

import sqlite3
from contextlib import closing
from functools import cache
from typing import TYPE_CHECKING

from chatops.domain.errors import UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.store.connection import connect, transaction

if TYPE_CHECKING:
    from collections.abc import Sequence, Set

APPLICATION_ID = 0x63687073
"""``chps``, the application id in the file's header."""
UNRELEASED_ID = 0x63686F70
"""``chop``, the application id of stores that were made before the first release, and which nothing reads."""

HEADER_LENGTH = 100
"""Bytes of a file's header, see "Database File Format", section 1.3."""


@frozen_dataclass
class Migration:
    """Statements that lead from the previous version to `version`, in one transaction."""

    version: int
    summary: str
    statements: tuple[str, ...]


# Comments stand outside of the statements, because a database keeps the text of those.
_ALL_TABLES = (
    # `parent_id`: the message before this one; NULL for the first.
    """CREATE TABLE messages (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        parent_id TEXT REFERENCES messages(id) DEFERRABLE INITIALLY DEFERRED,
        session_id TEXT NOT NULL,
        turn_id TEXT,
        kind TEXT NOT NULL,
        body TEXT NOT NULL,
        created_at REAL NOT NULL
    )""",
    "CREATE INDEX messages_by_parent ON messages(parent_id)",
    # `activity`: order of the last use by a counter, as clocks differ. `head`: the newest message.
    """CREATE TABLE sessions (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        id TEXT NOT NULL UNIQUE,
        workspace TEXT NOT NULL,
        title TEXT NOT NULL,
        role TEXT NOT NULL,
        model_pin TEXT NOT NULL DEFAULT '',
        persona TEXT NOT NULL,
        head TEXT REFERENCES messages(id) DEFERRABLE INITIALLY DEFERRED,
        forked_from TEXT,
        active_turn TEXT,
        last_turn TEXT,
        turn_counter INTEGER NOT NULL DEFAULT 0,
        message_count INTEGER NOT NULL DEFAULT 0,
        activity INTEGER NOT NULL,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL
    )""",
    "CREATE INDEX sessions_by_activity ON sessions(activity)",
    "CREATE INDEX sessions_by_head ON sessions(head)",
    # `writer`: the store object that committed the last step. `fingerprint`: digest of that step, to know it again.
    """CREATE TABLE turns (
        turn_id TEXT PRIMARY KEY,
        session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        phase TEXT NOT NULL,
        state TEXT NOT NULL,
        usage TEXT NOT NULL DEFAULT '',
        writer TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        updated_at REAL NOT NULL
    ) WITHOUT ROWID""",
    "CREATE INDEX turns_by_session ON turns(session_id)",
    # The attempts of calls, each stored before the tool starts. `outcome`: NULL until one is known.
    """CREATE TABLE journal (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        call_id TEXT NOT NULL,
        attempt INTEGER NOT NULL,
        turn_id TEXT NOT NULL REFERENCES turns(turn_id) ON DELETE CASCADE,
        tool TEXT NOT NULL,
        arguments TEXT NOT NULL,
        digest TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        pid INTEGER NOT NULL,
        pid_started TEXT NOT NULL,
        machine TEXT NOT NULL,
        started_at REAL NOT NULL,
        outcome TEXT,
        result TEXT NOT NULL DEFAULT '',
        finished_at REAL,
        UNIQUE (call_id, attempt)
    )""",
    "CREATE INDEX journal_by_turn ON journal(turn_id)",
    # Calls that wait for a decision.
    """CREATE TABLE pending (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        call_id TEXT NOT NULL UNIQUE,
        turn_id TEXT NOT NULL REFERENCES turns(turn_id) ON DELETE CASCADE,
        session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,
        role TEXT NOT NULL,
        model TEXT NOT NULL,
        body TEXT NOT NULL,
        requested_at REAL NOT NULL
    )""",
    "CREATE INDEX pending_by_turn ON pending(turn_id)",
    "CREATE INDEX pending_by_session ON pending(session_id)",
    # Decisions that other processes have made, until the turn takes them.
    """CREATE TABLE posted (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        call_id TEXT NOT NULL UNIQUE,
        turn_id TEXT NOT NULL REFERENCES turns(turn_id) ON DELETE CASCADE,
        digest TEXT NOT NULL,
        decision TEXT NOT NULL,
        by TEXT NOT NULL,
        decided_at REAL NOT NULL
    )""",
    "CREATE INDEX posted_by_turn ON posted(turn_id)",
    # The log of all decisions that turns have taken. A row outlives its session.
    """CREATE TABLE decisions (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        call_id TEXT NOT NULL,
        session_id TEXT NOT NULL,
        tool TEXT NOT NULL,
        digest TEXT NOT NULL,
        role TEXT NOT NULL,
        model TEXT NOT NULL,
        decision TEXT NOT NULL,
        by_uid INTEGER NOT NULL,
        by TEXT NOT NULL,
        decided_at REAL NOT NULL
    )""",
    "CREATE INDEX decisions_by_session ON decisions(session_id)",
    """CREATE TABLE audit (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL,
        number INTEGER NOT NULL,
        body TEXT NOT NULL,
        chain TEXT NOT NULL,
        UNIQUE (session_id, number)
    )""",
    """CREATE TABLE queued_texts (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
        text TEXT NOT NULL
    )""",
    "CREATE INDEX queued_texts_by_session ON queued_texts(session_id)",
    # The process that owns a session, or for which it is reserved. `stop`: 1 if it was asked to stop the turn.
    """CREATE TABLE leases (
        session_id TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE,
        host TEXT NOT NULL,
        pid INTEGER NOT NULL,
        boot_id TEXT NOT NULL,
        pid_started TEXT NOT NULL,
        since REAL NOT NULL,
        expires_at REAL NOT NULL,
        requested_by TEXT NOT NULL DEFAULT '',
        stop INTEGER NOT NULL DEFAULT 0,
        machine TEXT NOT NULL,
        token TEXT NOT NULL
    ) WITHOUT ROWID""",
    "CREATE TABLE settings (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID",
    # Workflow runs. `seq`: number of the last stored step, from 0. `writer`: as in `turns`.
    """CREATE TABLE runs (
        session_id TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE,
        seq INTEGER NOT NULL,
        version INTEGER NOT NULL,
        workflow TEXT NOT NULL,
        phase TEXT NOT NULL,
        step TEXT NOT NULL,
        result TEXT NOT NULL,
        turn_id TEXT,
        state TEXT NOT NULL,
        writer TEXT NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE posted_reviews (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES runs(session_id) ON DELETE CASCADE,
        body TEXT NOT NULL
    )""",
    "CREATE INDEX posted_reviews_by_session ON posted_reviews(session_id)",
    """CREATE TABLE rules (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT REFERENCES sessions(id) ON DELETE CASCADE,
        scope TEXT NOT NULL,
        folder TEXT NOT NULL DEFAULT '',
        role TEXT NOT NULL,
        tool TEXT NOT NULL,
        pattern TEXT NOT NULL,
        definition TEXT NOT NULL DEFAULT '',
        source_call TEXT NOT NULL,
        by_uid INTEGER,
        made_at REAL NOT NULL,
        uses INTEGER NOT NULL DEFAULT 0,
        used_at REAL,
        revoked_at REAL
    )""",
    "CREATE INDEX rules_by_session ON rules(session_id)",
    """CREATE TABLE turn_grants (
        seq INTEGER PRIMARY KEY AUTOINCREMENT,
        session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
        digest TEXT NOT NULL,
        body TEXT NOT NULL,
        UNIQUE (session_id, digest)
    )""",
    # Turns that continue in the background. `level`: SandboxLevel at the start. `seen`: 1 if the user was told the end.
    """CREATE TABLE jobs (
        session_id TEXT PRIMARY KEY REFERENCES sessions(id) ON DELETE CASCADE,
        turn_id TEXT NOT NULL,
        options TEXT NOT NULL,
        uid INTEGER NOT NULL,
        host TEXT NOT NULL,
        boot_id TEXT NOT NULL,
        folder TEXT NOT NULL,
        level INTEGER NOT NULL,
        not_started TEXT NOT NULL DEFAULT '',
        seen INTEGER NOT NULL DEFAULT 0,
        created_at REAL NOT NULL
    ) WITHOUT ROWID""",
)

MIGRATIONS: tuple[Migration, ...] = (Migration(version=1, summary="All tables.", statements=_ALL_TABLES),)

SCHEMA_VERSION = MIGRATIONS[-1].version

if [migration.version for migration in MIGRATIONS] != list(range(1, SCHEMA_VERSION + 1)):
    raise AssertionError("migrations are numbered from 1 without gaps")
if not all(migration.summary for migration in MIGRATIONS):
    raise AssertionError("every migration has a summary")


_COLUMNS = (
    "SELECT v.user_version, t.name, c.name FROM pragma_user_version v, sqlite_master t, pragma_table_info(t.name) c "
    "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite%'"
)


def schema_faults(raw: sqlite3.Connection) -> list[str]:
    """Return the tables and columns that a file of its version lacks, or has too early; empty if there are none.

    Migrations are atomic, so a file with faults was changed by another program, or put together from several copies.
    Raises sqlite3.Error.
    """
    rows = raw.execute(_COLUMNS).fetchall()
    if not rows:
        return []  # A file without tables is new, and `migrate` makes them.
    version = int(rows[0][0])
    if version > SCHEMA_VERSION:
        return []  # It is refused elsewhere.
    found = {(str(table), str(column)) for _, table, column in rows}
    wanted = columns_of(version)
    missing = [f"{_column_name(column, found)} is missing" for column in sorted(wanted - found)]
    early = [
        f"{_column_name(column, wanted)} belongs to a later version than {version}"
        for column in sorted((columns_of(SCHEMA_VERSION) - wanted) & found)
    ]
    return list(dict.fromkeys(missing + early))


def _column_name(place: tuple[str, str], others: Set[tuple[str, str]]) -> str:
    """Return the name of a column, or of its table if none of the others belongs to it."""
    table, column = place
    return f"column {table}.{column}" if any(other == table for other, _ in others) else f"table {table}"


@cache
def columns_of(version: int) -> Set[tuple[str, str]]:
    """Return the tables with their columns in a file of that version."""
    with closing(connect(":memory:")) as raw:
        migrate(raw, to=version)
        return frozenset((str(table), str(column)) for _, table, column in raw.execute(_COLUMNS))


@cache
def references() -> Sequence[tuple[str, str, str, str]]:
    """Return the columns that refer to others: table, column, and those that they refer to."""
    sql = (
        'SELECT t.name, f."from", f."table", f."to" FROM sqlite_master t, pragma_foreign_key_list(t.name) f '
        "WHERE t.type = 'table'"
    )
    with closing(connect(":memory:")) as raw:
        migrate(raw)
        found = [
            (str(table), str(column), str(to_table), str(to_column))
            for table, column, to_table, to_column in raw.execute(sql)
        ]
    # The tables declare no reference for these two columns, so the database does not check them.
    return (*found, *(("sessions", column, "turns", "turn_id") for column in ("active_turn", "last_turn")))


def migrate(raw: sqlite3.Connection, *, to: int | None = None) -> None:
    """Migrate a file to a version, by default the last one. A second process finds the work done.

    Each step is one transaction. `raw` is in autocommit mode. A file of a newer version must not get here: see
    `opening.check`.
    """
    for migration in MIGRATIONS[:to]:
        if _version(raw) >= migration.version:
            continue
        with transaction(raw):
            if _version(raw) < migration.version:
                for statement in migration.statements:
                    raw.execute(statement)
                raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                raw.execute(f"PRAGMA user_version = {migration.version}")


def must_be_known(version: int, *, what: str, then: str, advice: str) -> None:
    """Raise UnreadableError for a version that only a newer chatops knows.

    `what` begins the message, such as "The store was", and `then` ends it, such as "it was not opened".
    """
    if version > SCHEMA_VERSION:
        raise UnreadableError(
            f"{what} made by a newer chatops (version {version}, this one reads up to {SCHEMA_VERSION}); {then}.",
            advice=advice,
        )


def user_version(header: bytes) -> int:
    """Return the version of a store from the first bytes of its file."""
    return int.from_bytes(header[60:64], "big")


def application_id(header: bytes) -> int:
    """Return the application id of a database from the first bytes of its file."""
    return int.from_bytes(header[68:72], "big")


def _version(raw: sqlite3.Connection) -> int:
    return int(raw.execute("PRAGMA user_version").fetchone()[0])
