"""Read files of the machine, which count for all of its users: only root may be able to write them."""

import os
import stat
from pathlib import Path

from chatops.config.paths import SITE_REGISTRY, plain_file
from chatops.domain.frozen_dataclass import frozen_dataclass

_OTHERS_MAY_WRITE = stat.S_IWGRP | stat.S_IWOTH


@frozen_dataclass
class SitePlace:
    """Path and required owner of the site registry. Values other than the defaults are for tests."""

    path: Path = SITE_REGISTRY
    owner: int = 0
    top: Path = Path("/")
    """The topmost folder that is checked."""


class UntrustedFileError(Exception):
    """A file of the machine that others could have written, or that cannot be read; the text says why."""


def read_trusted(place: SitePlace, *, most: int) -> bytes:
    """Read at most `most` + 1 bytes of a file that, like all its parent folders, only its owner can write.

    Raises UntrustedFileError.
    """
    try:
        _check_folders(place)
        with plain_file(place.path) as (file, status):
            _check_owner(place, place.path, status)
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
