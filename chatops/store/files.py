"""Files of sessions, such as images that tools return: kept beside the store, not in it.

One folder for each session, one file for each content, named by its digest. Folders are 0700, files 0600. The name of a
file's type is made from its bytes, so that a program that opens it never takes it for something to execute. A fork
links the files of its source: each session can be deleted alone.
"""

import errno
import hashlib
import os
import shutil
import stat
from contextlib import suppress
from pathlib import Path

from chatops.config.paths import private_dir, write_private
from chatops.domain.errors import ChatopsError
from chatops.domain.files import FileRef, media_type, shown_name
from chatops.domain.ids import SessionId

MOST_BYTES = 10 * 1024 * 1024
"""Bytes of one file."""
MOST_IN_SESSION = 100 * 1024 * 1024
_ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
}
"""Types that can be opened with another program, none of which executes them."""
_AS_IT_IS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class SessionFiles:
    """The files of all sessions of one store."""

    def __init__(self, store: Path) -> None:
        """Use the folder beside the store, which is created with the first file."""
        self._folder = store.with_name("files")

    def keep(self, session_id: SessionId, name: str, data: bytes) -> FileRef:
        """Keep the bytes of a file; `name` is only shown. One that cannot be kept has a `problem`. Never raises."""
        shown, size, type_ = shown_name(name), len(data), media_type(data)
        digest = hashlib.sha256(data).hexdigest()
        folder = self._folder / _named(session_id)
        place = folder / (digest + _ENDINGS.get(type_, ".bin"))
        problem = ""
        if size > MOST_BYTES:
            problem = f"larger than {MOST_BYTES // 1024 // 1024} MiB, not kept"
        else:
            try:
                private_dir(folder)
                if not place.exists():
                    if size + sum(one.stat().st_size for one in folder.iterdir()) > MOST_IN_SESSION:
                        problem = f"not kept: the session has {MOST_IN_SESSION // 1024 // 1024} MiB of files already"
                    else:
                        write_private(place, data)
            except (OSError, ChatopsError) as error:
                problem = f"not kept: {error.strerror if isinstance(error, OSError) else error}"
        return FileRef(path=shown, size=size, digest="" if problem else digest, type=type_, problem=problem)

    def path_of(self, file: FileRef) -> Path | None:
        """Return the path of a kept file, with the ending of its type; None if it is gone or was never kept."""
        if file.problem or len(file.digest) != 64 or not file.digest.isalnum():
            return None
        return next(self._folder.glob(f"*/{file.digest}{_ENDINGS.get(file.type, '.bin')}"), None)

    def read(self, file: FileRef) -> bytes | None:
        """Return the bytes of a kept file; None if they are gone or have been changed."""
        path = self.path_of(file)
        try:
            data = _read(path) if path is not None else None
        except OSError:
            return None
        return data if data is not None and hashlib.sha256(data).hexdigest() == file.digest else None

    def share(self, session_id: SessionId, copy: SessionId) -> None:
        """Give the files of a session to a fork of it too."""
        source, target = self._folder / _named(session_id), self._folder / _named(copy)
        with suppress(OSError, ChatopsError):
            if not source.is_dir():
                return
            private_dir(target)
            for file in source.iterdir():
                with suppress(FileExistsError):
                    os.link(file, target / file.name, follow_symlinks=False)

    def forget(self, session_id: SessionId) -> None:
        """Delete the files of a session."""
        shutil.rmtree(self._folder / _named(session_id), ignore_errors=True)


def can_be_opened(file: FileRef) -> bool:
    """Return True if another program may be asked to show the file: none of these types is executed."""
    return file.type in _ENDINGS and not file.problem


def _named(session_id: SessionId) -> str:
    """Return the folder name of a session: its id, which may come from an imported session, is never used as a path."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read(place: Path) -> bytes:
    with os.fdopen(os.open(place, _AS_IT_IS), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(place))
        return file.read(MOST_BYTES + 1)
