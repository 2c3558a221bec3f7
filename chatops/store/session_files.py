"""Files of sessions, such as images that tools return: kept beside the store, not in it.

There is one folder for each session, with one file for each content, named by its digest. Folders are 0700, files 0600.
The name of a file's type is made from its bytes, so that a program that opens it never takes it for something to
execute. A fork links the files of its source: each session can be deleted alone.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from chatops.config.paths import plain_file, private_dir, write_private
from chatops.domain.errors import ChatopsError
from chatops.domain.files import FileRef, media_type, shown_name
from chatops.domain.ids import SessionId

MAX_BYTES = 10 * 1024 * 1024
"""Maximum size of a kept file, in bytes."""
MAX_IN_SESSION = 100 * 1024 * 1024
"""Bytes of the files of one session."""
_ENDINGS = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
}
"""Types that can be opened with another program, none of which executes them."""
PASTED = SessionId("pasted")
"""Owner of images from the clipboard until they are sent."""
_PASTED_DIGITS = 16
"""Digits of the digest in the name of a pasted image."""
_PASTED_NAME = re.compile(rf"pasted-([0-9a-f]{{{_PASTED_DIGITS}}})\.(?:png|jpg|gif|webp)")


class SessionFiles:
    """The files of all sessions of one store."""

    def __init__(self, store: Path) -> None:
        """Use the folder beside the store, which is created with the first file."""
        self._folder = store.with_name("files")

    def keep(self, session_id: SessionId, name: str, data: bytes) -> FileRef:
        """Keep the bytes of a file; `name` is only shown. One that cannot be kept has a `problem`. Never raises."""
        shown, size, type_ = shown_name(name), len(data), media_type(data)
        file = FileRef(path=shown, size=size, digest=hashlib.sha256(data).hexdigest(), type=type_)
        problem = f"larger than {MAX_BYTES // 1024 // 1024} MiB, not kept" if size > MAX_BYTES else ""
        if not problem:
            try:
                if not self._write(session_id, file, data):
                    problem = f"not kept: the session has {MAX_IN_SESSION // 1024 // 1024} MiB of files already"
            except (OSError, ChatopsError) as error:
                problem = f"not kept: {error.strerror if isinstance(error, OSError) else error}"
        return replace(file, digest="", problem=problem) if problem else file

    def _write(self, session_id: SessionId, file: FileRef, data: bytes) -> bool:
        """Keep a file unless it is there. Returns False if the session has too many. Raises OSError, ChatopsError."""
        folder = self._folder / _name_folder(session_id)
        place = folder / name_of(file)
        private_dir(folder)
        if not place.exists():
            if file.size + sum(other.stat().st_size for other in folder.iterdir()) > MAX_IN_SESSION:
                return False
            write_private(place, data)
        return True

    def keep_pasted(self, data: bytes) -> FileRef:
        """Keep an image from the clipboard for the messages that name it: by its `path`, see `pasted`. Never raises."""
        file = self.keep(PASTED, "", data)
        if file.problem:
            # There may be no room. What was pasted before is most likely sent, and kept with its session.
            self.forget(PASTED)
            file = self.keep(PASTED, "", data)
        return replace(file, path=f"pasted-{file.digest[:_PASTED_DIGITS]}{_ENDINGS.get(file.type, '')}")

    def pasted(self, name: str) -> bytes | None:
        """Return the pasted image of this name; None if there is none. Whatever the name is, it is used as no path."""
        found = _PASTED_NAME.fullmatch(name)
        return self.read_by_digest(found[1], PASTED) if found is not None else None

    def path_of(self, file: FileRef) -> Path | None:
        """Return the path of a kept file, with the ending of its type; None if it is gone or was never kept."""
        return next(self._folder.glob(f"*/{name_of(file)}"), None) if _is_kept(file) else None

    def read(self, file: FileRef) -> bytes | None:
        """Return the bytes of a kept file; None if they are gone or have been changed."""
        return self.read_by_digest(file.digest) if _is_kept(file) else None

    def read_by_digest(self, beginning: str, session_id: SessionId | None = None) -> bytes | None:
        """Return the bytes of a file by the beginning of its digest; None if they are gone or have been changed."""
        folder = "*" if session_id is None else _name_folder(session_id)
        try:
            place = next(self._folder.glob(f"{folder}/{beginning}*"), None)
            data = _read_file(place) if place is not None else None
        except OSError:
            return None
        return data if data is not None and hashlib.sha256(data).hexdigest().startswith(beginning) else None

    def digests(self, session_id: SessionId) -> set[str]:
        """Return the digests of the files of a session."""
        folder = self._folder / _name_folder(session_id)
        names = (file.name.partition(".") for file in folder.iterdir()) if folder.is_dir() else ()
        return {digest for digest, _, _ in names}

    def count_strays(self, sessions: Sequence[SessionId]) -> int:
        """Return the number of files that belong to none of these sessions."""
        known = {_name_folder(owner) for owner in (*sessions, PASTED)}
        folders = self._folder.iterdir() if self._folder.is_dir() else ()
        return sum(len([*folder.iterdir()]) for folder in folders if folder.name not in known and folder.is_dir())

    def share(self, session_id: SessionId, copy: SessionId) -> None:
        """Give the files of a session to a fork of it too."""
        source, target = self._folder / _name_folder(session_id), self._folder / _name_folder(copy)
        with suppress(OSError, ChatopsError):
            if not source.is_dir():
                return
            private_dir(target)
            for file in source.iterdir():
                with suppress(FileExistsError):
                    os.link(file, target / file.name, follow_symlinks=False)

    def forget(self, session_id: SessionId) -> None:
        """Delete the files of a session."""
        shutil.rmtree(self._folder / _name_folder(session_id), ignore_errors=True)


def pasted_names(text: str) -> list[str]:
    """Return the names in a text that pasted images may have."""
    return [found[0] for found in _PASTED_NAME.finditer(text)]


def name_of(file: FileRef) -> str:
    """Return the name under which a file is kept, with the ending of its type."""
    return file.digest + _ENDINGS.get(file.type, ".bin")


def _is_kept(file: FileRef) -> bool:
    # SHA-256 has 64 hexadecimal digits. The digest becomes part of a path, so it may not have a separator.
    return not file.problem and len(file.digest) == 64 and file.digest.isalnum()


def can_be_opened(file: FileRef) -> bool:
    """Return True if another program may be asked to show the file: none of these types is executed."""
    return file.type in _ENDINGS and not file.problem


def _name_folder(session_id: SessionId) -> str:
    """Return the folder name of a session: its id, which may come from an imported session, is never used as a path."""
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _read_file(place: Path) -> bytes:
    with plain_file(place) as (file, _):
        return file.read(MAX_BYTES + 1)
