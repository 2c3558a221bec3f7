"""Where chatops keeps its own files. Folders are 0700, files 0600; ``CHATOPS_HOME`` moves all of them.

Without a home folder that can be used they lie in a folder for this user alone among the temporary ones; it is said.
"""

import os
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import platformdirs

from chatops.domain.errors import ChatopsError, ConfigError

APP = "chatops"
HOME_VARIABLE = "CHATOPS_HOME"


@dataclass(frozen=True, slots=True, kw_only=True)
class Paths:
    """The folders of one person. None of them has to exist yet."""

    config: Path
    """model_registry.json, settings.yaml, personas."""
    data: Path
    """The store, the last good registry."""
    log: Path
    notices: tuple[str, ...] = ()
    """What the person has to know about these places: that they are not the usual ones, and why."""

    @property
    def registry(self) -> Path:
        """The person's own registry."""
        return self.config / "model_registry.json"

    @property
    def settings(self) -> Path:
        """How the screen looks to this user."""
        return self.config / "settings.yaml"

    @property
    def personas(self) -> Path:
        """The person's own personas."""
        return self.config / "personas"

    @property
    def store(self) -> Path:
        """The SQLite file with sessions, journal and approvals."""
        return self.data / "chatops.db"

    @property
    def last_good(self) -> Path:
        """Copies of registries that could be read, by the place they were read from."""
        return self.data / "registry"

    @property
    def protected(self) -> tuple[Path, ...]:
        """What no tool may touch, resolved."""
        return tuple(dict.fromkeys(path.resolve() for path in (self.config, self.data, self.log)))

    def prepare(self) -> None:
        """Create the folders, closed to others. Where that cannot be done, whatever needs the folder says so."""
        for folder in (self.config, self.data, self.log):
            with suppress(ConfigError):
                private_dir(folder)


def find_paths(env: Mapping[str, str]) -> Paths:
    """The folders for this process. Raises ConfigError if there is no place at all to put them in."""
    chosen = env.get(HOME_VARIABLE, "")
    if chosen:
        return _below(_absolute(Path(chosen)))
    config, data, log = _usual()
    home = Path(os.path.expanduser("~"))
    # With an empty HOME everything would land in the root of the file system.
    hindered = "HOME is empty." if env.get("HOME") == "" else _hindrance(data, home=home)
    if hindered:
        base = _temporary_home(hindered)
        # A registry that may be there and cannot be read is a broken one, and not none.
        within = env.get("HOME") != "" and config.is_absolute() and (home.is_dir() or not config.is_relative_to(home))
        told = f"{hindered} Conversations are kept in {base} until the machine is started again."
        return Paths(
            config=config if within else base / "config",
            data=base / "data",
            log=base / "log",
            notices=(f"{told} {_WAY_OUT}",),
        )
    named = (
        () if env.get("HOME") else (f"HOME is not set: chatops keeps its files in the system's home for you, {home}.",)
    )
    return Paths(config=config, data=data, log=log, notices=named)


_WAY_OUT = f"Set HOME, or {HOME_VARIABLE} to an absolute folder for everything chatops keeps."


def _below(base: Path) -> Paths:
    return Paths(config=base / "config", data=base / "data", log=base / "log")


def _usual() -> tuple[Path, Path, Path]:
    """Where the platform puts such files; relative to ``~`` if this user has no home folder."""
    try:
        return (
            Path(platformdirs.user_config_dir(APP)),
            Path(platformdirs.user_data_dir(APP)),
            Path(platformdirs.user_log_dir(APP)),
        )
    except RuntimeError:
        nowhere = Path("~")
        return nowhere, nowhere, nowhere


def _hindrance(folder: Path, *, home: Path) -> str:
    """Why there is no getting to `folder`, a sentence; empty if it is there or might be made."""
    if not folder.is_absolute():
        # Without a home folder the library answers with a literal ~, which would land in the workspace.
        return "There is no home folder for this user."
    try:
        folder.stat()
    except PermissionError:
        return f"{folder} is out of reach: this user may not look into the folders above it."
    except OSError:
        if folder.is_relative_to(home) and not home.is_dir():
            return f"The home folder {home} is not there."
        return ""
    return "" if os.access(folder, os.R_OK | os.X_OK) else f"{folder} may not be looked into by this user."


@cache
def _temporary_home(hindered: str) -> Path:
    """A folder of this user's alone, the same for all processes until the machine is started again.

    Raises ConfigError, for the reason `hindered`, if there is none to be had.
    """
    try:
        place = Path(tempfile.gettempdir()) / f"{APP}-{os.getuid()}"
        with suppress(FileExistsError):
            place.mkdir(mode=0o700)
        found = place.lstat()
        if stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077:
            return place
        # Somebody else was first with the name.
        return Path(tempfile.mkdtemp(prefix=f"{APP}-"))
    except OSError as error:
        raise ConfigError(f"{hindered} Nor is there a place for temporary files: {error}.", advice=_WAY_OUT) from None


def private_dir(path: Path) -> None:
    """Create `path` and its missing parents with mode 0700; close it if it is ours and open to others."""
    try:
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"{path} is in the way: chatops needs a folder there.", advice="Move that file away.")
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be used: {error.strerror or error}.",
            advice=f"Set {HOME_VARIABLE} to a folder you may write to.",
        ) from None


def write_private(path: Path, data: bytes) -> None:
    """Write `path` whole or not at all, mode 0600. Raises ConfigError."""
    private_dir(path.parent)
    try:
        with _unnamed(path.parent, f".{path.name}.", data) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", advice="Check the disk and the folder's owner."
        ) from None


def write_new_private(path: Path, data: bytes) -> None:
    """Make `path` with mode 0600 and this content; what is there already is never touched, nor a link followed.

    It has the name only once it is whole and on the disk: half a conversation looks like one. Raises ChatopsError if
    something is there, or the file cannot be written whole (then none is left).
    """
    if os.path.lexists(path):
        raise _exists(path)
    try:
        with _unnamed(path.parent, f".{APP}-", data) as temporary:
            _name_new(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError as error:
        raise _not_written(path, error) from None


@contextmanager
def _unnamed(folder: Path, prefix: str, data: bytes) -> Iterator[Path]:
    """A file that is whole and on the disk, to be given its name; gone afterwards if it was given none.

    It is 0600 from the start: it may hold what only its owner may read. Raises OSError.
    """
    handle, name = tempfile.mkstemp(dir=folder, prefix=prefix)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def _name_new(file: Path, name: Path) -> None:
    """Give a file another name. Raises FileExistsError if that is taken."""
    try:
        os.link(file, name)
    except FileExistsError:
        raise
    except OSError:
        # No links on this file system. The name is taken first, so that no other file can lose it.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        try:
            file.replace(name)
        except OSError:
            name.unlink(missing_ok=True)
            raise


def _exists(path: Path) -> ChatopsError:
    return ChatopsError(f"{path} exists and is not overwritten.", advice="Name another file.")


def _not_written(path: Path, error: OSError) -> ChatopsError:
    return ChatopsError(f"{path} cannot be written: {error.strerror or error}.", advice="Name another file.")


def _absolute(path: Path) -> Path:
    if path.is_absolute():
        return path
    raise ConfigError(f"{HOME_VARIABLE} is {str(path)!r}, which is not an absolute path.", advice=_WAY_OUT)
