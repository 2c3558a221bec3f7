"""Output of running tools, kept beside the store in case the process dies before their end.

One file for each attempt, 0600 in a 0700 folder: output comes often, and survives the death of the process as soon as
it is written. The file is deleted when the result, or the record of the interrupted attempt, is stored.
"""

import hashlib
import logging
import os
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

from chatops.config.paths import plain_file
from chatops.domain.ids import CallId, SessionId, session_of

log = logging.getLogger(__name__)

HEAD, TAIL = 2_000, 14_000
"""Bytes that are left at the beginning and the end of an output when it is shortened."""
SHOWN_HEAD, SHOWN_TAIL = 1_000, 3_000
"""Characters shown to a user or model, more of the end, which tells how far the tool came."""
LEFT_OUT = "\n[… some of the output is left out here …]\n"
_MAX_OUTPUT_BYTES = 2 * (HEAD + TAIL)
"""Bytes at which a file is shortened: twice what stays, so that it is not shortened with each piece."""


class Outputs:
    """Keeps output, from any thread. Errors are logged: a tool never fails because its output cannot be kept."""

    def __init__(self, folder: Path) -> None:
        """Set the folder, which is created with the first output."""
        self._folder = folder
        self._lock = threading.Lock()

    def keeping(self, call_id: CallId, attempt: int, show: Callable[[str], None]) -> Callable[[str], None]:
        """Return a function that keeps the output of an attempt and passes it on to `show`."""

        def take(text: str) -> None:
            self._keep(call_id, attempt, text)
            show(text)

        return take

    def read(self, call_id: CallId, attempt: int) -> str:
        """Return the output of an attempt, cut to size; empty if there is none."""
        try:
            text = _read_ends(self._file(call_id, attempt), max_bytes=_MAX_OUTPUT_BYTES).decode("utf-8", "replace")
        except OSError as error:
            log.info("cannot read the output of call %s: %s", call_id, error)
            return ""
        if len(text) <= SHOWN_HEAD + SHOWN_TAIL:
            return text
        return text[:SHOWN_HEAD] + LEFT_OUT + text[-SHOWN_TAIL:]

    def forget(self, call_id: CallId) -> None:
        """Delete the output of a call that has its result."""
        self._remove(self._beginning_with(f"{_name_output(call_id)}."))

    def forget_others(self, session_id: SessionId, keep: Iterable[tuple[CallId, int]]) -> None:
        """Delete all outputs of a session except those of the attempts in `keep`, which are still open."""
        kept = {self._file(call_id, attempt) for call_id, attempt in keep}
        self._remove(file for file in self._beginning_with(f"{_short_digest(session_id)}-") if file not in kept)

    def _keep(self, call_id: CallId, attempt: int, text: str) -> None:
        if not text:
            return
        file = self._file(call_id, attempt)
        with self._lock:
            try:
                if _append(file, text.encode("utf-8", "replace")) > _MAX_OUTPUT_BYTES:
                    _shorten(file)
            except OSError as error:
                log.warning("output of call %s is not kept: %s", call_id, error)

    def _file(self, call_id: CallId, attempt: int) -> Path:
        return self._folder / f"{_name_output(call_id)}.{attempt}"

    def _beginning_with(self, prefix: str) -> list[Path]:
        # Most calls have no output, and glob would compile a pattern for each.
        with suppress(OSError):
            return [self._folder / name for name in os.listdir(self._folder) if name.startswith(prefix)]
        return []

    def _remove(self, files: Iterable[Path]) -> None:
        for file in files:
            with suppress(OSError):
                file.unlink()


def _name_output(call_id: CallId) -> str:
    """Return session and call as digests: an id, which may come from an imported session, is never used as a path."""
    return f"{_short_digest(session_of(call_id))}-{_short_digest(call_id)}"


def _short_digest(id_: str) -> str:
    return hashlib.sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _append(file: Path, data: bytes) -> int:
    """Append to a file, creating it if necessary, and return its size."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # A tool without a sandbox can put anything where its output is kept: no link is followed, nothing blocks.
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = os.open(file, flags, 0o600)
    try:
        os.write(descriptor, data)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _read_ends(file: Path, *, max_bytes: int = 0) -> bytes:
    """Return the content of a file of at most `max_bytes` bytes, or head and tail of a larger one.

    Raises OSError for anything but a plain file.
    """
    with plain_file(file) as (handle, status):
        if status.st_size <= max_bytes:
            return handle.read(max_bytes)
        head = handle.read(HEAD)
        handle.seek(-min(TAIL, status.st_size), os.SEEK_END)
        return head + LEFT_OUT.encode() + handle.read(TAIL)


def _shorten(file: Path) -> None:
    """Replace the content by its head and tail. At no moment is there less than that."""
    # Named so that `forget` finds it too, if the process dies here.
    shorter = file.with_name(f"{file.name}.shorter")
    with suppress(FileNotFoundError):
        shorter.unlink()
    _append(shorter, _read_ends(file))
    shorter.replace(file)
