"""The record of the user's answers about one folder: a file of the data folder, named by the folder's path.

A record that cannot be read is an error and never counts as absent: the next answer would overwrite all others.
"""

import errno
import fcntl
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path

from chatops.config.paths import private_dir, write_private
from chatops.domain.errors import ConfigError

_MAX_RECORD = 8_000_000


class TrustAnswer(StrEnum):
    """The user's answer about one item."""

    TRUSTED = "trusted"
    DECLINED = "declined"
    SEEN = "seen"
    """Shown when the user trusted the others; of a kind that is not used yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustEntry:
    """The stored answer about one item."""

    kind: str
    path: str
    digest: str
    answer: TrustAnswer

    @property
    def key(self) -> tuple[str, str]:
        """As `Item.key`."""
        return self.kind, self.path


@dataclass(frozen=True, slots=True, kw_only=True)
class TrustRecord:
    """The stored answers about one folder."""

    folder: str
    """Identity of the folder."""
    entries: tuple[TrustEntry, ...] = ()

    def entry(self, key: tuple[str, str]) -> TrustEntry | None:
        """Return the entry of an item."""
        return next((entry for entry in self.entries if entry.key == key), None)


def record_file(workspace: Path, *, folder: Path) -> Path:
    """Return the file in `folder` that holds the answers about `workspace`."""
    return folder / f"{hashlib.sha256(os.fsencode(workspace)).hexdigest()[:32]}.json"


def record_version(file: Path) -> tuple[int, ...]:
    """Return what changes whenever the file does; empty if there is none."""
    try:
        status = os.lstat(file)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns


def read_record(file: Path, *, folder: str) -> TrustRecord:
    """Return the record of the folder with this identity; an empty one if there is none, or one of another folder.

    Raises ConfigError if the record cannot be read, or if others could have written it.
    """
    empty = TrustRecord(folder=folder)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as opened:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise _unusable(file, "it is not a plain file")
            if status.st_uid != os.getuid() or status.st_mode & 0o022:
                raise _unusable(file, "others can write to it")
            record = _decoded(json.loads(opened.read(_MAX_RECORD)))
    except (FileNotFoundError, NotADirectoryError):
        return empty
    except OSError as error:
        why = "it is a link" if error.errno == errno.ELOOP else error.strerror or str(error)
        raise _unusable(file, why) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _unusable(file, "it is damaged") from None
    return record if record.folder == folder else empty


def write_record(file: Path, record: TrustRecord) -> None:
    """Write the record. Raises ConfigError."""
    write_private(file, json.dumps({"version": 1, **asdict(record)}, indent=1).encode())


def revoke_trust(workspace: Path, *, folder: Path) -> bool:
    """Forget all answers about `workspace`, whose record is in `folder`. Return False if there were none.

    Raises ConfigError.
    """
    file = record_file(workspace, folder=folder)
    with locked(file):
        try:
            file.unlink()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            raise ConfigError(
                f"{file} cannot be removed: {error.strerror}.", advice="Check the folder's owner."
            ) from None
    return True


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other windows from changing records while this one reads and writes `file`. Raises ConfigError."""
    private_dir(file.parent)
    lock = file.with_name(".lock")
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"{lock} cannot be used: {error.strerror}.", advice="Check the folder's owner.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unusable(file: Path, why: str) -> ConfigError:
    return ConfigError(
        f"{file}, which records what you trust in this folder, cannot be used: {why}.",
        advice="Repair it, or forget your answers: chatops trust --revoke",
    )


def _decoded(value: dict[str, object]) -> TrustRecord:
    """Return a record from its JSON. Raises KeyError, TypeError or ValueError if it is not one."""
    folder, entries = value["folder"], value["entries"]
    if value["version"] != 1 or not isinstance(folder, str) or not isinstance(entries, list):
        raise ValueError("not a record of trust")
    found = tuple(TrustEntry(**{**entry, "answer": TrustAnswer(entry["answer"])}) for entry in entries)
    return TrustRecord(folder=folder, entries=found)
