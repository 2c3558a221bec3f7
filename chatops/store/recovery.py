"""Reading a store file that may be damaged, older, or not there.

It changes no byte of the file and leaves no file beside it. `replacing.repair` replaces a damaged file.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.store import messages
from chatops.store.connection import Connection, connect, prepare, text
from chatops.store.opening import backup_of, check, must_be_ours, refuse_other_version, uri
from chatops.store.salvage import HISTORY_TABLES, Salvage, copy_readable
from chatops.store.schema import SCHEMA_VERSION, migrate
from chatops.store.sqlite_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger(__name__)


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
