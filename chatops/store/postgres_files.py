"""Files of sessions that are stored in PostgreSQL: in the same database, not in a folder.

`file_bodies` has one row for each content, and `files` one for each session that has it.

Sharing, forgetting and reading never raise, as with a folder: the session itself is copied, deleted or shown already,
and a file that is missing or left over is no reason to say that this failed.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
import weakref
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.paths import write_private
from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.store.connection import integer, text
from chatops.store.session_files import MAX_IN_SESSION, PASTED, SessionFiles, name_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatops.domain.files import FileRef
    from chatops.store.connection import Connection


class PostgresFiles(SessionFiles):
    """The files of all sessions, in the database.

    Overrides every method of `SessionFiles` that uses its folder, which this class does not have. The others use these.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._copies: Path | None = None
        """Folder of the copies that other programs open; None until there is one."""

    def path_of(self, file: FileRef) -> Path | None:
        """Return the path of a copy that lasts as long as this process; None if the file is not kept."""
        data = self.read(file)
        if data is None:
            return None
        if self._copies is None:
            self._copies = Path(tempfile.mkdtemp(prefix="chatops-"))
            weakref.finalize(self, shutil.rmtree, self._copies, ignore_errors=True)
        path = self._copies / name_of(file)
        if not path.exists():
            write_private(path, data)
        return path

    def digests(self, session_id: SessionId) -> set[str]:
        """Return the digests of the files of a session."""
        with self._connection.read():
            return {
                text(row[0])
                for row in self._connection.all("SELECT digest FROM files WHERE session_id = ?", session_id)
            }

    def count_strays(self, sessions: Sequence[SessionId]) -> int:
        """Return the number of files that belong to none of these sessions."""
        with self._connection.read():
            owners = [SessionId(text(row[0])) for row in self._connection.all("SELECT session_id FROM files")]
        known = {*sessions, PASTED}
        return sum(owner not in known for owner in owners)

    def share(self, session_id: SessionId, copy: SessionId) -> None:
        """Give the files of a session to a fork of it too."""
        with suppress(StoreError), self._connection.write():
            self._connection.run("INSERT INTO files SELECT ?, digest FROM files WHERE session_id = ?", copy, session_id)

    def forget(self, session_id: SessionId) -> None:
        """Delete the files of a session."""
        with suppress(StoreError), self._connection.write():
            self._connection.run("DELETE FROM files WHERE session_id = ?", session_id)
            self._connection.run(
                "DELETE FROM file_bodies b WHERE NOT EXISTS (SELECT 1 FROM files f WHERE f.digest = b.digest)"
            )

    def _write(self, session_id: SessionId, file: FileRef, data: bytes) -> bool:
        """Keep a file unless it is there. Returns False if the session has too many. Raises StoreError."""
        connection = self._connection
        of_session = "FROM files f JOIN file_bodies b ON b.digest = f.digest WHERE f.session_id = ?"
        with connection.write():
            if connection.one(f"SELECT 1 {of_session} AND f.digest = ?", session_id, file.digest) is None:
                size = connection.one(f"SELECT coalesce(sum(length(b.body)), 0)::bigint {of_session}", session_id)
                if file.size + integer((size or (0,))[0]) > MAX_IN_SESSION:
                    return False
                connection.run("INSERT INTO file_bodies VALUES (?, ?) ON CONFLICT DO NOTHING", file.digest, data)
                connection.insert("files", session_id=session_id, digest=file.digest)
        return True

    def read_by_digest(self, beginning: str, session_id: SessionId | None = None) -> bytes | None:
        """Return the bytes of a file, see `SessionFiles`."""
        data = None
        with suppress(StoreError), self._connection.read():
            row = self._connection.run(
                "SELECT b.body FROM file_bodies b JOIN files f ON f.digest = b.digest "
                "WHERE b.digest LIKE ?1 || '%' AND (?2 IS NULL OR f.session_id = ?2) LIMIT 1",
                beginning,
                session_id,
            ).fetchone()
            data = bytes(row[0]) if row is not None else None
        # Members cannot store other bytes under a digest, but the owner of the tables can.
        return data if data is not None and hashlib.sha256(data).hexdigest().startswith(beginning) else None
