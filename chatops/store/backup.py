"""The backup of the store: ``chatops.db.backup`` beside it, a copy that is made at most once a day.

It is made while no turn runs, and never at exit, where the user would wait for it. SQLite reads one moment of the
store, so other processes can write meanwhile. The copy gets its name once it is complete and sound, so a kill leaves
the one before. A session that is deleted is deleted there too. Put in place of the store, the backup counts as a copy:
approved calls ask again.
"""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.store import sessions
from chatops.store.connection import Connection, connect, prepare
from chatops.store.opening import backup_of, faults_of, locked, refuse_other_version, uri
from chatops.store.replacing import new_file
from chatops.store.sqlite_errors import translate_errors

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

MAX_BACKUP_BYTES = 200_000_000
"""Bytes of a store above which no backup is made."""
BACKUP_EVERY_S = 86_400.0
"""Seconds from one backup to the next."""
_STEPS = 10_000
"""Instructions of SQLite (some milliseconds) between two calls of `idle`."""


def is_backup_due(path: Path, *, now: float) -> bool:
    """Return True if the store at `path` should be backed up, `now` in seconds since the epoch."""
    try:
        if path.stat().st_size > MAX_BACKUP_BYTES:
            return False
        return not 0 <= now - backup_of(path).stat().st_mtime < BACKUP_EVERY_S
    except FileNotFoundError:
        return path.exists()
    except OSError:
        return False


def make_backup(path: Path, *, idle: Callable[[], bool]) -> bool:
    """Copy the store at `path`, and return True if that was done.

    It is given up as soon as `idle` returns False, which is called again and again. A damaged store does not replace
    the backup of a sound one. Raises StoreError.
    """
    refuse_other_version(path)
    with (
        translate_errors(path),
        closing(connect(uri(path, mode="rw"))) as source,
        new_file(backup_of(path)) as (target, put_in_place),
    ):
        source.set_progress_handler(lambda: not idle(), _STEPS)
        (_, _, file) = target.execute("PRAGMA database_list").fetchone()
        try:
            source.execute("VACUUM INTO ?", (file,))
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_INTERRUPT:
                raise
            log.info("no backup for now: a turn runs")
            return False
        source.set_progress_handler(None, 0)
        if faults := faults_of(target):
            log.warning("no backup of a damaged store: %s", faults[0])
            return False
        with locked(path.parent, alone=True):
            if _session_ids(target) - _session_ids(source):
                log.info("no backup for now: a session was deleted meanwhile")
                return False
            put_in_place()
    return True


def delete_from_backup(path: Path, session_id: SessionId) -> None:
    """Delete a session in the backup of the store at `path`. A backup that cannot be changed is removed."""
    backup = backup_of(path)
    with locked(path.parent, alone=True):
        if not backup.exists():
            return
        try:
            with closing(prepare(connect(backup))) as raw:
                raw.execute("PRAGMA secure_delete = ON")
                rows = Connection(raw, path=backup)
                with rows.write():
                    if sessions.exists(rows, session_id):
                        sessions.delete(rows, session_id)
        except (StoreError, sqlite3.Error) as error:
            log.warning("the backup is removed: %s", error)
            backup.unlink(missing_ok=True)


def _session_ids(raw: sqlite3.Connection) -> set[object]:
    return {row[0] for row in raw.execute("SELECT id FROM sessions")}
