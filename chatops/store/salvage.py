"""Salvage: copy what can still be read of a database into another one, row by row where a table is damaged.

Nothing is made up. A message that is lost keeps its place in its session and is shown as damaged. A turn whose stored
state is lost is over, so that none of its calls can run. Messages, sessions, decisions and settings that cannot be read
are taken from the backup, if there is one. Turns and pending calls never are: they may have been finished since.

Rows are read through SQL only. Reading them off raw pages, and trying row numbers one by one between two damaged
places, was tried: it recovered little more, and took a second reader of the file format. One byte is different: with
damage in the first 16 SQLite opens nothing although every row may be intact, so these are restored in a copy.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
import tempfile
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError
from chatops.domain.wording import plural
from chatops.store.connection import SqlRow, Value, bound, connect, prepared, transaction
from chatops.store.identity import COPIED, IDENTITY_KEY
from chatops.store.opening import must_be_ours, uri
from chatops.store.schema import APPLICATION_ID, HEADER_LENGTH, MAGIC, application_id

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger(__name__)

BATCH = 500
"""Rows read at once as long as nothing is damaged."""
HISTORY_TABLES = ("messages", "sessions", "turns", "turn_grants", "decisions", "settings")
"""Tables of what was said and decided. Without leases, journal and rules no turn can be resumed from them."""
_FROM_BACKUP = {
    "messages": "TRUE",
    "sessions": "TRUE",
    "decisions": "TRUE",
    "settings": f"key <> '{IDENTITY_KEY}' AND substr(key, 1, {len(COPIED)}) <> '{COPIED}'",
}
"""Tables that are completed from the backup, with the rows that may be taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Salvage:
    """Counts of what was copied, and of what could not be."""

    sessions: int
    messages: int
    """Messages that can be read."""
    damaged: int = 0
    """Messages that are shown as damaged."""
    turns: int = 0
    """Unfinished turns that cannot be resumed."""
    restored: int = 0
    """Messages that only the backup had."""
    whole: bool = True
    """True if every table could be read to its end."""

    @property
    def text(self) -> str:
        """The salvage as one sentence for the user."""
        if not self.sessions and not self.messages and not self.damaged:
            return "There was nothing in it." if self.whole else "Nothing of it could be read."
        parts = [f"{plural(self.sessions, 'session')} with {plural(self.messages, 'message')} could be read"]
        if self.restored:
            parts.append(f"{plural(self.restored, 'message')} come from the backup")
        if self.damaged:
            parts.append(f"{plural(self.damaged, 'message')} could not, and are shown as damaged")
        if self.turns:
            parts.append(
                f"{plural(self.turns, 'unfinished turn')} could not be restored: pending calls there do not run"
            )
        if not (self.whole or self.damaged or self.turns):
            parts.append("some rows could not")
        return "; ".join(parts) + "."


def copy_readable(
    source: sqlite3.Connection, target: sqlite3.Connection, *, backup: Path, tables: Sequence[str] = ()
) -> Salvage:
    """Copy what can be read of `source` into `target`, an empty store of the current version, in one transaction.

    `backup`: the backup of `source`, which need not exist. `tables`: only these; empty for all. Both connections are
    `connection.prepared`. Raises sqlite3.Error for `target` alone.
    """
    broken = _skip_broken_schema(source)
    with transaction(target, unchecked=True):
        read = {name: _copy_table(source, target, name, broken=broken) for name in tables or _tables(target)}
        turns = _end_lost_turns(target)
        lost = [name for name in _FROM_BACKUP if not read.get(name, True)]
        restored = _copy_from_backup(backup, target, lost) if lost and backup.exists() else 0
        _fill_gaps(target)
        if not read["sessions"]:
            _restore_sessions(target)
        salvage = Salvage(
            sessions=_number(target, "SELECT count(*) FROM sessions WHERE head IS NOT NULL"),
            messages=_number(target, "SELECT count(*) FROM messages WHERE body <> ''"),
            damaged=_number(target, "SELECT count(*) FROM messages WHERE body = ''"),
            turns=turns,
            restored=restored,
            whole=all(read.values()),
        )
    return salvage


@contextmanager
def intact_header(path: Path) -> Iterator[Path]:
    """Yield `path`, or a copy of the store at `path` with the first bytes restored if they are damaged.

    The copy is one file, into which the write-ahead log is merged, and is deleted afterwards. Raises OSError.
    """
    with path.open("rb") as file:
        header = file.read(HEADER_LENGTH)
    if header.startswith(MAGIC) or application_id(header) != APPLICATION_ID:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="chatops-") as folder:
        copy = Path(folder) / path.name
        for suffix in ("", "-wal"):
            with suppress(FileNotFoundError):
                shutil.copyfile(f"{path}{suffix}", f"{copy}{suffix}")
        with copy.open("r+b") as file:
            file.write(MAGIC)
        with suppress(sqlite3.Error), closing(connect(copy)) as raw:
            raw.execute("PRAGMA journal_mode = DELETE").fetchone()
        yield copy


def _tables(target: sqlite3.Connection) -> list[str]:
    found = target.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
    return [str(name) for (name,) in found.fetchall()]


def _skip_broken_schema(source: sqlite3.Connection) -> bool:
    """Let SQLite leave out the tables and indexes whose definition it cannot read. Returns True if there are any.

    One such definition would otherwise keep it from reading any table.
    """
    try:
        source.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.Error:
        with suppress(sqlite3.Error):
            source.execute("PRAGMA writable_schema = ON")
        return True
    return False


def _copy_table(
    source: sqlite3.Connection, target: sqlite3.Connection, name: str, *, where: str = "TRUE", broken: bool = False
) -> bool:
    """Copy one table and return True if all of it could be read.

    A table that the source lacks counts as empty, unless the schema of the source is `broken`.

    Rows that the target has already stay as they are there.
    """
    info = target.execute(f"PRAGMA table_info({name})").fetchall()
    key = next(str(column[1]) for column in info if column[5])
    try:
        theirs = {str(column[1]) for column in source.execute(f"PRAGMA table_info({name})").fetchall()}
    except sqlite3.Error:
        return False
    if not theirs:
        return not broken
    if key not in theirs:
        return False
    columns = [str(column[1]) for column in info if str(column[1]) in theirs]
    marks = ", ".join("?" * len(columns))
    insert = f"INSERT OR IGNORE INTO {name} ({', '.join(columns)}) VALUES ({marks})"
    reader = _Reader(source, f"SELECT {', '.join(columns)} FROM {name} WHERE {where}", columns, key=key)
    for row in reader.rows():
        if not target.execute(insert, tuple(map(bound, row))).rowcount:
            # A column that must not be NULL is missing.
            reader.whole = False
    return reader.whole


class _Reader:
    """Reads a table from both ends, up to its damaged places."""

    def __init__(self, source: sqlite3.Connection, select: str, columns: Sequence[str], *, key: str) -> None:
        self._source = source
        self._select = select
        self._key = key
        self._at = columns.index(key)
        self.whole = True

    def rows(self) -> Iterator[SqlRow]:
        """Yield every row that can be read, each once."""
        first: Value = None
        for row in self._from_one_end(">", "ASC"):
            first = row[self._at]
            yield row
        if not self.whole:
            yield from self._from_one_end("<", "DESC", until=first)

    def _from_one_end(self, sign: str, order: str, *, until: Value = None) -> Iterator[SqlRow]:
        """Yield rows up to a damaged place, or to the row `until`."""
        at: Value = None
        size = BATCH
        while True:
            begin = "" if at is None else f" AND {self._key} {sign} ?"
            sql = f"{self._select}{begin} ORDER BY {self._key} {order} LIMIT {size}"
            try:
                found: list[SqlRow] = self._source.execute(sql, () if at is None else (bound(at),)).fetchall()
            except sqlite3.Error:
                self.whole = False
                if size == 1:
                    return
                # The damage is somewhere in these: read one by one up to it.
                size = 1
                continue
            if not found:
                return
            for row in found:
                if until is not None and row[self._at] == until:
                    return
                yield row
            at = found[-1][self._at]


def _copy_from_backup(backup: Path, target: sqlite3.Connection, tables: Sequence[str]) -> int:
    """Add the rows of these tables that only the backup has, and return how many messages that were."""
    sessions, messages = _column(target, "SELECT id FROM sessions"), _number(target, "SELECT count(*) FROM messages")
    try:
        with closing(prepared(connect(uri(backup, mode="ro")))) as older:
            must_be_ours(older, backup)
            for name in tables:
                _copy_table(older, target, name, where=_FROM_BACKUP[name])
    except (sqlite3.Error, StoreError) as error:
        log.warning("the backup cannot be used: %s", error)
    for session_id in _column(target, "SELECT id FROM sessions") - sessions:
        # Its turns since the backup are lost, and later messages may not be.
        target.execute(
            "UPDATE sessions SET active_turn = NULL, last_turn = NULL, turn_counter = max(turn_counter, ?2), head = "
            "coalesce((SELECT id FROM messages WHERE session_id = ?1 ORDER BY seq DESC LIMIT 1), head) WHERE id = ?1",
            (session_id, _last_turn(target, session_id)),
        )
    return _number(target, "SELECT count(*) FROM messages") - messages


def _end_lost_turns(target: sqlite3.Connection) -> int:
    """Delete what refers to a turn or session that was not copied, and return how many turns were lost."""
    lost = "active_turn IS NOT NULL AND active_turn NOT IN (SELECT turn_id FROM turns)"
    turns = _number(target, f"SELECT count(*) FROM sessions WHERE {lost}")
    target.execute(f"UPDATE sessions SET active_turn = NULL WHERE {lost}")
    target.execute("UPDATE sessions SET last_turn = NULL WHERE last_turn NOT IN (SELECT turn_id FROM turns)")
    for table in ("turns", "turn_grants", "rules", "queued_texts", "leases", "runs"):
        target.execute(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)")
    for table in ("journal", "pending", "posted"):
        target.execute(f"DELETE FROM {table} WHERE turn_id NOT IN (SELECT turn_id FROM turns)")
    target.execute("DELETE FROM posted_reviews WHERE session_id NOT IN (SELECT session_id FROM runs)")
    return turns


_BEFORE = "SELECT id, seq FROM messages WHERE session_id = ? AND seq < ? ORDER BY seq DESC LIMIT 1"


def _fill_gaps(target: sqlite3.Connection) -> None:
    """Put an empty message where one is missing, so that the messages before it stay in their session."""
    broken = target.execute(
        "SELECT m.parent_id, m.session_id, min(m.seq) FROM messages m LEFT JOIN messages p ON p.id = m.parent_id "
        "WHERE m.parent_id IS NOT NULL AND p.id IS NULL GROUP BY m.parent_id"
    ).fetchall()
    end = _number(target, "SELECT coalesce(max(seq), 0) FROM messages")
    heads = target.execute(
        "SELECT s.head, s.id FROM sessions s LEFT JOIN messages m ON m.id = s.head "
        "WHERE s.head IS NOT NULL AND m.id IS NULL GROUP BY s.head"
    ).fetchall()
    broken += [(head, session_id, end + 1 + place) for place, (head, session_id) in enumerate(heads)]
    for message_id, session_id, below in broken:
        before = target.execute(_BEFORE, (session_id, below)).fetchone()
        parent, seq = (None, 0) if before is None else before
        taken = {n for (n,) in target.execute("SELECT seq FROM messages WHERE seq > ? AND seq <= ?", (seq, below))}
        free = next((number for number in range(seq + 1, below + 1) if number not in taken), None)
        target.execute(
            "INSERT OR IGNORE INTO messages (seq, id, parent_id, session_id, turn_id, kind, body, created_at) "
            "VALUES (?, ?, ?, ?, NULL, 'notice', '', 0)",
            (free, message_id, parent, session_id),
        )


def _restore_sessions(target: sqlite3.Connection) -> None:
    """Create a session for messages whose own is lost, up to the last message."""
    lost = "SELECT DISTINCT session_id FROM messages WHERE session_id NOT IN (SELECT id FROM sessions)"
    for (session_id,) in target.execute(lost).fetchall():
        target.execute(
            "INSERT INTO sessions (id, workspace, title, role, persona, head, turn_counter, message_count, activity, "
            "created_at, updated_at) SELECT session_id, '', '(recovered)', '', '', (SELECT l.id FROM messages l "
            "WHERE l.session_id = m.session_id ORDER BY l.seq DESC LIMIT 1), ?, count(*), max(seq), "
            "min(created_at), max(created_at) FROM messages m WHERE session_id = ?",
            (_last_turn(target, session_id), session_id),
        )


def _last_turn(target: sqlite3.Connection, session_id: Value) -> int:
    """Return the highest number of a turn that has messages: another one with its id would have the same messages."""
    turns = target.execute("SELECT DISTINCT turn_id FROM messages WHERE session_id = ?", (session_id,)).fetchall()
    numbers = (str(turn_id).rpartition(".")[2] for (turn_id,) in turns)
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


def _column(target: sqlite3.Connection, sql: str) -> set[Value]:
    return {row[0] for row in target.execute(sql)}


def _number(target: sqlite3.Connection, sql: str) -> int:
    return int(target.execute(sql).fetchone()[0])
