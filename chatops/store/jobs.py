"""Jobs: turns that continue in the background, each a row beside its session.

A session is a job as long as the job's turn is its last one. Whether it runs, waits or is over follows from the lease,
the turn and the pending calls, so none of it is stored here.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from chatops.config.paths import lock_folder, write_private
from chatops.domain.canonical import canonical, json_or_text
from chatops.domain.ids import SessionId, TurnId
from chatops.store import sessions
from chatops.store.base import JobRow, StorePart
from chatops.store.connection import SqlRow, integer, number_or_zero, text, text_or

if TYPE_CHECKING:
    from pathlib import Path

    from chatops.store.connection import Connection

_SELECT_JOBS = """
    SELECT j.session_id, j.turn_id, j.options, j.uid, j.host, j.boot_id, j.folder, j.level, j.not_started,
        j.seen, j.created_at
    FROM jobs j JOIN sessions s ON s.id = j.session_id AND s.last_turn = j.turn_id
"""


class Jobs(StorePart):
    """The methods of `Store` about jobs."""

    def put_job(self, job: JobRow) -> None:
        """Store a job in place of the session's earlier one."""
        with self._rows.write():
            self._rows.must_be_own(job.session.id)
            self._rows.upsert(
                "jobs",
                "session_id",
                session_id=job.session.id,
                turn_id=job.turn_id,
                options=job.options,
                uid=job.uid,
                host=job.host,
                boot_id=job.boot_id,
                folder=job.folder,
                level=job.level,
                not_started=job.not_started,
                seen=int(job.seen),
                created_at=job.created_at or self._clock(),
            )

    def update_job(self, session_id: SessionId, *, not_started: str | None = None, seen: bool | None = None) -> None:
        """Change what is given. Has no effect if the session is no job."""
        with self._rows.write():
            self._rows.run(
                "UPDATE jobs SET not_started = coalesce(?, not_started), seen = coalesce(?, seen) WHERE session_id = ?",
                not_started,
                None if seen is None else int(seen),
                session_id,
            )

    def job(self, session_id: SessionId) -> JobRow | None:
        """Return the job of a session, by its id or a unique prefix; None if it is none. Raises NoSuchSessionError."""
        with self._rows.read():
            full = sessions.full_id(self._rows, session_id)
            row = self._rows.one(f"{_SELECT_JOBS} WHERE j.session_id = ?", full)
            return None if row is None else _decode_row(self._rows, row)

    def jobs(self) -> list[JobRow]:
        """Return all jobs, newest activity first."""
        with self._rows.read():
            return [_decode_row(self._rows, row) for row in self._rows.all(f"{_SELECT_JOBS} ORDER BY s.activity DESC")]


def with_seal(row: JobRow, folder: Path) -> JobRow:
    """Return the row with a seal among its options: its digest by a key in `folder`, which is made once.

    So a row that another user has changed is recognised. Raises ConfigError if the key cannot be written.
    """
    key = folder / "jobs.key"
    if not key.exists():
        with lock_folder(key):
            if not key.exists():
                write_private(key, secrets.token_bytes(32))
    known = json_or_text(row.options)
    options = {name: value for name, value in known.items() if name != "seal"} if isinstance(known, Mapping) else {}
    bound = canonical([row.session.id, row.turn_id, options, row.uid, row.host, row.boot_id, row.folder, row.level])
    seal = hmac.new(key.read_bytes(), bound.encode("utf-8", "surrogatepass"), "sha256").hexdigest()
    return replace(row, options=canonical({**options, "seal": seal}))


def _decode_row(rows: Connection, row: SqlRow) -> JobRow:
    session_id, turn_id, options, uid, host, boot_id, folder, level, not_started, seen, created_at = row
    return JobRow(
        session=sessions.info(rows, SessionId(text(session_id))),
        turn_id=TurnId(text(turn_id)),
        options=text_or(options, ""),
        uid=integer(uid),
        host=text_or(host, ""),
        boot_id=text_or(boot_id, ""),
        folder=text_or(folder, ""),
        level=int(number_or_zero(level)),
        not_started=text_or(not_started, ""),
        seen=bool(seen),
        created_at=number_or_zero(created_at),
    )
