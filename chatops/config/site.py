"""The site registry: the ceiling for everyone on the machine. If it exists and is untrusted, nothing starts."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from chatops.config.paths import SITE_REGISTRY
from chatops.config.registry_read import MAX_BYTES, read_registry
from chatops.domain.errors import ConfigError
from chatops.policy.registry import Registry

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True, slots=True, kw_only=True)
class SitePlace:
    """Path and required owner of the site registry. Values other than the defaults are for tests."""

    path: Path = SITE_REGISTRY
    owner: int = 0
    top: Path = Path("/")
    """The topmost folder that is checked."""


class UntrustedFileError(Exception):
    """A file of the machine that others could have written, or that cannot be read; the text says why."""


def load_site(place: SitePlace) -> Registry | None:
    """Return the site registry, or None if there is none. Raises ConfigError if it cannot be trusted."""
    try:
        os.lstat(place.path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _refused(place.path, f"it cannot be inspected ({error.strerror})") from None
    try:
        data = read_trusted(place, most=MAX_BYTES)
    except UntrustedFileError as error:
        raise _refused(place.path, str(error)) from None
    return read_registry(data, source=str(place.path), site=True)


def read_trusted(place: SitePlace, *, most: int) -> bytes:
    """Read at most `most` + 1 bytes of a file that, like all its parent folders, only its owner can write.

    Raises UntrustedFileError.
    """
    try:
        if not stat.S_ISREG(os.lstat(place.path).st_mode):
            raise UntrustedFileError("it is not a plain file")
        _check_folders(place)
        handle = os.open(place.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            # Check the opened file, so that it cannot be replaced between check and read.
            _check_owner(place, place.path, os.fstat(file.fileno()))
            return file.read(most + 1)
    except OSError as error:
        raise UntrustedFileError(f"it cannot be read ({error.strerror})") from None


def _check_folders(place: SitePlace) -> None:
    for folder in place.path.parents:
        status = os.lstat(folder)
        if not stat.S_ISDIR(status.st_mode):
            raise UntrustedFileError(f"{folder} is not a plain folder")
        _check_owner(place, folder, status)
        if folder == place.top:
            return


def _check_owner(place: SitePlace, path: Path, status: os.stat_result) -> None:
    if status.st_uid != place.owner:
        raise UntrustedFileError(f"{path} does not belong to {'root' if place.owner == 0 else place.owner}")
    if stat.S_IMODE(status.st_mode) & _OTHERS_MAY_WRITE:
        raise UntrustedFileError(f"{path} can be written by its group or by others")


def _refused(path: Path, why: str) -> ConfigError:
    return ConfigError(
        f"The site registry {path} is not used, because {why}; chatops does not start without it.",
        advice="Ask the administrator of this machine: file and folders have to belong to root, writable by root only.",
    )
