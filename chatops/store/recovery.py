"""Recovery of a damaged store: reading what is left of it, and repairing it.

Reading changes no byte of the file and leaves no file beside it.

A salvage copies what can still be read of a database into another one. Each table is read from both ends up to a
damaged place. Messages, sessions, decisions and settings that cannot be read are taken from the backup, if there is
one. Turns and pending calls never are: they may have been finished since. A turn whose stored state is lost is over, so
that none of its calls can run. A message whose parent is lost follows the one before it in its session.

Rows are read through SQL only. Reading them off raw pages, and trying row numbers one by one between two damaged
places, was tried: it recovered little more, and took a second reader of the file format.

A repair quarantines the damaged file under another name, and a new one takes its name. The new file is complete before
that, so every process that opens the store finds the one or the other. All of it happens under the folder's lock, see
`opening.locked`. The damaged file gets its second name first and loses its own when the new file takes it, so a kill at
any point loses nothing. Its write-ahead log is moved in between, because SQLite would read it into the new file.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import sqlite3
from contextlib import closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.wording import plural
from chatops.store import messages
from chatops.store.base import Holder
from chatops.store.connection import Connection, bind, connect, prepare, text, transaction
from chatops.store.identity import COPIED, IDENTITY_KEY, FileIdentity, adopt_identity, file_identity
from chatops.store.opening import (
    backup_of,
    check,
    is_sound,
    locked,
    make_folders,
    must_be_ours,
    refuse_other_version,
    uri,
)
from chatops.store.process_identity import is_alive
from chatops.store.schema import SCHEMA_VERSION, migrate
from chatops.store.sqlite_errors import refused_by_the_system, translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

log = logging.getLogger(__name__)

_TABLES = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'"
_COLUMNS = "SELECT name, pk FROM pragma_table_info(?)"
_SUFFIXES = ("-wal", "-journal", "-shm")
_UNFINISHED = re.compile(rf"(\..+\.new-(\d+)(?:-[0-9a-f]+)?)(?:{'|'.join(_SUFFIXES)})?")
_BEING_MADE: set[str] = set()
"""Names of the files that threads of this process are filling now."""
HISTORY_TABLES = ("messages", "sessions", "turns", "turn_grants", "decisions", "audit", "settings")
"""Tables of messages and decisions. Without leases, journal and rules no turn can be resumed from them."""
_FROM_BACKUP = {
    "messages": "TRUE",
    "sessions": "TRUE",
    "decisions": "TRUE",
    "audit": "TRUE",
    "settings": f"key <> '{IDENTITY_KEY}' AND substr(key, 1, {len(COPIED)}) <> '{COPIED}' AND key NOT LIKE 'sandbox:%'",
}
"""Tables that are completed from the backup, with the rows that may be taken.

A session's sandbox is not taken: it may have been narrowed since.
"""


@frozen_dataclass
class Salvage:
    """Counts of what was copied, and of what could not be."""

    sessions: int
    messages: int
    turns: int = 0
    """Unfinished turns that cannot be resumed."""
    restored: int = 0
    """Messages that only the backup had."""
    whole: bool = True
    """True if every table could be read to its end."""

    @property
    def text(self) -> str:
        """The salvage as one sentence for the user."""
        if not self.sessions and not self.messages:
            return "There was nothing in it." if self.whole else "Nothing of it could be read."
        parts = [f"{plural(self.sessions, 'session')} with {plural(self.messages, 'message')} could be read"]
        if self.restored:
            parts.append(f"{plural(self.restored, 'message')} come from the backup")
        if self.turns:
            parts.append(
                f"{plural(self.turns, 'unfinished turn')} could not be restored: pending calls there do not run"
            )
        elif not self.whole:
            parts.append("some rows could not")
        return "; ".join(parts) + "."


def copy_readable(
    source: sqlite3.Connection, target: sqlite3.Connection, *, backup: Path, tables: Sequence[str] = ()
) -> Salvage:
    """Copy what can be read of `source` into `target`, an empty store of the current version, in one transaction.

    `backup` is the backup of `source`, which need not exist. Only `tables` are copied; empty: all of them. Both
    connections come from `connection.prepare`. Raises sqlite3.Error only if `target` fails.
    """
    broken = _skip_broken_schema(source)
    every = [str(name) for (name,) in target.execute(_TABLES)]
    with transaction(target, unchecked=True):
        read = {name: _copy_table(source, target, name, broken=broken) for name in tables or every}
        turns = _end_lost_turns(target)
        messages = _read_number(target, "SELECT count(*) FROM messages")
        sessions = [str(id_) for (id_,) in target.execute("SELECT id FROM sessions")]
        if lost := [name for name in _FROM_BACKUP if not read.get(name, True)]:
            _copy_from_backup(backup, target, lost)
        restored = _read_number(target, "SELECT count(*) FROM messages") - messages
        if not read["sessions"]:
            _restore_sessions(target, known=sessions)
        _join_messages(target)
        return Salvage(
            sessions=_read_number(target, "SELECT count(*) FROM sessions WHERE head IS NOT NULL"),
            messages=messages + restored,
            turns=turns,
            restored=restored,
            whole=all(read.values()),
        )


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
    """Copy the rows `where` a condition holds, from both ends of a table, each up to a damaged place.

    Return True if all of them could be read. A table that the source lacks counts as empty, unless the schema of the
    source is `broken`. Rows that the target has already stay as they are there.
    """
    in_target = {str(column): bool(is_key) for column, is_key in target.execute(_COLUMNS, (name,))}
    key = next(column for column, is_key in in_target.items() if is_key)
    try:
        in_source = {str(column) for column, _ in source.execute(_COLUMNS, (name,))}
    except sqlite3.Error:
        return False
    if key not in in_source:
        return not (in_source or broken)
    columns = [key, *(column for column in in_target if column in in_source - {key})]
    select = f"SELECT {', '.join(columns)} FROM {name} WHERE {where}"
    insert = f"INSERT OR IGNORE INTO {name} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"
    whole = True
    for sign, order in ((">", "ASC"), ("<", "DESC")):
        after = ""
        last: tuple[object, ...] = ()
        while True:
            try:
                # One row at a time: in a larger batch, a damaged row would take the rows before it along.
                row = source.execute(f"{select}{after} ORDER BY {key} {order} LIMIT 1", last).fetchone()
            except sqlite3.Error:
                whole = False
                break
            if row is None:
                return whole
            if not target.execute(insert, tuple(map(bind, row))).rowcount:
                # A column that must not be NULL is missing.
                whole = False
            # `+` compares a second time without the index: that of a damaged page may lead back to an earlier row.
            after, last = f" AND {key} {sign} ?1 AND +{key} {sign} ?1", (bind(row[0]),)
    return False


def _copy_from_backup(backup: Path, target: sqlite3.Connection, tables: Sequence[str]) -> None:
    """Add the rows of these tables that only the backup has."""
    if not backup.exists():
        return
    try:
        with closing(prepare(connect(uri(backup, mode="ro")))) as older:
            must_be_ours(older, backup)
            for name in tables:
                _copy_table(older, target, name, where=_FROM_BACKUP[name])
    except (sqlite3.Error, StoreError) as error:
        log.warning("the backup cannot be used: %s", error)


def _end_lost_turns(target: sqlite3.Connection) -> int:
    """Delete what refers to a turn or session that was not copied, and return how many turns were lost."""
    lost = "active_turn IS NOT NULL AND active_turn NOT IN (SELECT turn_id FROM turns)"
    turns = _read_number(target, f"SELECT count(*) FROM sessions WHERE {lost}")
    target.execute(f"UPDATE sessions SET active_turn = NULL WHERE {lost}")
    target.execute("UPDATE sessions SET last_turn = NULL WHERE last_turn NOT IN (SELECT turn_id FROM turns)")
    for table in ("turns", "turn_grants", "rules", "queued_texts", "leases", "runs", "jobs"):
        target.execute(f"DELETE FROM {table} WHERE session_id NOT IN (SELECT id FROM sessions)")
    for table in ("journal", "pending", "posted"):
        target.execute(f"DELETE FROM {table} WHERE turn_id NOT IN (SELECT turn_id FROM turns)")
    target.execute("DELETE FROM posted_reviews WHERE session_id NOT IN (SELECT session_id FROM runs)")
    return turns


def _restore_sessions(target: sqlite3.Connection, *, known: Sequence[str]) -> None:
    """Let sessions that are not `known` end with their last message, without a turn; create one for lone messages.

    A new turn gets a number above those of their messages: another one with its id would have the same messages.
    """
    target.execute(
        "INSERT INTO sessions (id, workspace, title, role, persona, message_count, activity, created_at, updated_at) "
        "SELECT session_id, '', '(recovered)', '', '', count(*), max(seq), min(created_at), max(created_at) "
        "FROM messages WHERE session_id NOT IN (SELECT id FROM sessions) GROUP BY session_id"
    )
    target.execute(
        "UPDATE sessions SET active_turn = NULL, last_turn = NULL, "
        "head = coalesce((SELECT id FROM messages WHERE session_id = sessions.id ORDER BY seq DESC LIMIT 1), head), "
        "turn_counter = max(turn_counter, (SELECT coalesce(max(CAST(substr(turn_id, length(session_id) + 2) "
        "AS INTEGER)), 0) FROM messages WHERE session_id = sessions.id)) "
        "WHERE id NOT IN (SELECT value FROM json_each(?))",
        (json.dumps(known),),
    )


def _join_messages(target: sqlite3.Connection) -> None:
    """Let a message whose parent is lost follow the one before it in its session."""
    last = "SELECT id FROM messages m WHERE m.session_id = {} ORDER BY m.seq DESC LIMIT 1"
    target.execute(
        f"UPDATE messages SET parent_id = ({last.format('messages.session_id AND m.seq < messages.seq')}) "
        "WHERE parent_id NOT IN (SELECT id FROM messages)"
    )
    target.execute(
        f"UPDATE sessions SET head = ({last.format('sessions.id')}) WHERE head NOT IN (SELECT id FROM messages)"
    )


def _read_number(target: sqlite3.Connection, sql: str) -> int:
    return int(target.execute(sql).fetchone()[0])


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the database at `path`, which must exist, for reading. Raises sqlite3.Error."""
    # Without a log no process has it open, and with "immutable" SQLite creates no log either.
    raw = connect(uri(path, mode="ro" if Path(f"{path}-wal").exists() else "ro&immutable=1"))
    try:
        raw.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except sqlite3.OperationalError:
        # The log cannot be read, on a disk that cannot be written: the file itself is left.
        raw.close()
        return connect(uri(path, mode="ro&immutable=1"))
    except sqlite3.DatabaseError:
        # Damaged: the caller finds out what can still be read.
        pass
    return raw


@contextmanager
def _refuse_and_translate(path: Path) -> Iterator[None]:
    """Refuse a file that must not be opened, and raise all errors as StoreError."""
    try:
        with translate_errors(path):
            refuse_other_version(path)
            yield
    except OSError as error:
        raise StoreError(
            f"The session store {path} cannot be read: {error.strerror or error}.",
            advice="Check the file and its permissions.",
        ) from error


def empty_in_memory() -> sqlite3.Connection:
    """Return an empty store in memory, which is gone when it is closed."""
    raw = prepare(connect(":memory:"))
    migrate(raw)
    return raw


def open_readable(path: Path, *, unsaved: str) -> tuple[Connection, Salvage | None]:
    """Open the store at `path` for reading: the file if it is sound and current, else a copy in memory.

    The copy holds what can be read, and the second value says how much that is. Without a file it is empty. `unsaved`
    as in `Store.unsaved`.

    Raises UnreadableError for a file of a newer version or of another program, StoreError for one that cannot be read.
    """
    with _refuse_and_translate(path):
        if path.exists():
            raw = open_to_read(path)
            if _is_sound_and_current(raw, path):
                return Connection(prepare(raw), path=path, unsaved=unsaved), None
            raw.close()
    return _copy_to_memory(path, unsaved=unsaved, tables=())


def copy_without_turns(path: Path, *, unsaved: str) -> tuple[Connection, Salvage]:
    """Return a copy in memory of the sessions at `path`, and how much could be read. No turn in it can be resumed.

    Empty if there is no file. `unsaved` says why the copy stands for the file. Raises as `open_readable` does.
    """
    rows, salvage = _copy_to_memory(path, unsaved=unsaved, tables=HISTORY_TABLES)
    with rows.write():
        _end_turns(rows)
    return rows, salvage


def _end_turns(rows: Connection) -> None:
    """End all turns. Their calls get the results that are stored, or a note that they wait if they never started."""
    from chatops.engine.view import results_in_copy
    from chatops.store import turns

    for session_id, head, turn_id in rows.all("SELECT id, head, active_turn FROM sessions WHERE active_turn <> ''"):
        try:
            results = results_in_copy(turns.load(rows, TurnId(text(turn_id))))
            session, parent = SessionId(text(session_id)), MessageId(text(head))
            new_head = messages.append(rows, results, session_id=session, turn_id=None, parent=parent, now=0)
        except StoreError as error:
            log.warning("the calls of turn %s stay without results in the copy: %s", turn_id, error)
            continue
        rows.run("UPDATE sessions SET head = ? WHERE id = ?", new_head, session)
    rows.run("UPDATE sessions SET active_turn = NULL, last_turn = NULL")
    rows.run("DELETE FROM turns")


def _copy_to_memory(path: Path, *, unsaved: str, tables: Sequence[str]) -> tuple[Connection, Salvage]:
    with _refuse_and_translate(path):
        target = empty_in_memory()
        salvage = Salvage(sessions=0, messages=0)
        if path.exists():
            with closing(open_to_read(path)) as source:
                with suppress(sqlite3.Error):
                    must_be_ours(source, path)
                salvage = copy_readable(prepare(source), target, tables=tables, backup=backup_of(path))
        return Connection(target, path=path, unsaved=unsaved), salvage


def _is_sound_and_current(raw: sqlite3.Connection, path: Path) -> bool:
    """Return True if `raw` can be read as it is. Raises UnreadableError as `check` does, and closes `raw` then."""
    try:
        check(raw, path)
        return bool(raw.execute("PRAGMA user_version").fetchone()[0] == SCHEMA_VERSION)
    except sqlite3.Error:
        return False
    except UnreadableError:
        raw.close()
        raise


def repair(path: Path) -> list[str]:
    """Rename a damaged file to ``….bad-N`` and replace it by a new one with what can be read; return the notices.

    Does nothing, and returns none, if another process was first. Raises NotSavedError and sqlite3.Error if it fails;
    then the damaged file is unchanged.
    """
    with locked(path.parent, alone=True):
        if is_sound(path):
            return []
        bad = free_name(path, "bad")
        with new_file(path, stands_for=file_identity(path), old=bad) as (raw, put_in_place), _block_writes(path):
            migrate(raw)
            with closing(connect(uri(path, mode="ro"))) as source:
                salvage = copy_readable(prepare(source), raw, backup=backup_of(path))
            put_in_place()
    notice = f"The session store was damaged; it was moved to {bad}, and a new one was made. {salvage.text}"
    log.warning("%s", notice)
    return [notice]


def free_name(path: Path, kind: str) -> Path:
    """Return ``chatops.db.bad-1``, or the first such name that is not taken."""
    names = (path.with_name(f"{path.name}.{kind}-{number}") for number in count(1))
    return next(name for name in names if not os.path.lexists(name))


@contextmanager
def new_file(
    path: Path, *, stands_for: FileIdentity | None = None, old: Path | None = None
) -> Iterator[tuple[sqlite3.Connection, Callable[[], None]]]:
    """Yield an empty database to fill, and a function that moves it to `path` afterwards.

    If the function is not called, the new file is deleted. `stands_for` is the identity of the file that it replaces,
    so that it does not count as a copy; with `old`, that file is kept under this name.

    Raises NotSavedError if the file cannot be created.
    """
    making = path.with_name(f".{path.name}.new-{os.getpid()}-{secrets.token_hex(4)}")
    _BEING_MADE.add(making.name)
    try:
        make_folders(path.parent)
        _remove_unfinished(path.parent)
        os.close(os.open(making, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    except OSError as error:
        _BEING_MADE.discard(making.name)
        raise refused_by_the_system(error, path=path) from error
    raw = connect(making)

    def put_in_place() -> None:
        adopt_identity(raw, making, of=stands_for)
        raw.close()
        _flush(making)
        if old is not None:
            _move_aside(path, old)
        os.replace(making, path)
        _flush(path.parent)

    try:
        raw.execute("PRAGMA synchronous = FULL")
        yield prepare(raw), put_in_place
    except OSError as error:
        raise refused_by_the_system(error, path=path) from error
    finally:
        raw.close()
        for suffix in ("", *_SUFFIXES):
            Path(f"{making}{suffix}").unlink(missing_ok=True)
        _BEING_MADE.discard(making.name)


def _move_aside(path: Path, other: Path) -> None:
    """Give the file and its log the name `other`; its own name stays until another file takes it."""
    try:
        os.link(path, other)
    except OSError:
        # This file system has no hard links. If the process is killed now, the file is found under the other name.
        os.rename(path, other)
    for suffix in _SUFFIXES:
        beside = Path(f"{path}{suffix}")
        if suffix != "-shm" and beside.exists() and beside.stat().st_size:
            beside.replace(f"{other}{suffix}")
        beside.unlink(missing_ok=True)


@contextmanager
def _block_writes(path: Path) -> Iterator[None]:
    """Block commits to the damaged file by other processes meanwhile, as far as it can still be locked."""
    raw = connect(uri(path, mode="rw"))
    try:
        with suppress(sqlite3.DatabaseError):
            raw.execute("BEGIN IMMEDIATE")
        yield
    finally:
        # Its name belongs to another file by now, so nothing is written back into it.
        raw.close()


def _remove_unfinished(folder: Path) -> None:
    """Delete unfinished files of processes that were killed, because they hold copies of the user's messages."""
    for file in folder.iterdir():
        if made := _UNFINISHED.fullmatch(file.name):
            # One of this process id that nothing here fills was left by an earlier process.
            pid = int(made[2])
            is_over = pid == os.getpid() or not is_alive(Holder(host="", pid=pid, boot_id="", pid_started=""))
            if is_over and made[1] not in _BEING_MADE:
                file.unlink(missing_ok=True)


def _flush(path: Path) -> None:
    """Make a file durable, or the names in a folder."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
