"""The folders of chatops' own files, and how private files are written and read.

Folders are 0700, files 0600; ``CHATOPS_HOME`` moves all of them. Without a usable home folder they are in a private
folder below the system's temporary folder, and a notice says so.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO

import platformdirs

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import show_path

APP = "chatops"
PACKAGE = Path(__file__).parents[1]
"""Folder of the package itself."""
_TEMPORARY_PREFIX = f"{APP}-run-"
HOME_VARIABLE = "CHATOPS_HOME"
REGISTRY_VARIABLE = "CHATOPS_REGISTRY"
_HOME_ADVICE = f"Set HOME, or {HOME_VARIABLE} to an absolute folder for the files of chatops."
SITE_REGISTRY = Path("/etc/chatops/model_registry.json")
"""The site's registry. A constant: if it could be moved, the ceiling could be lifted."""
FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
"""Flags that open a folder, but no link to one."""


def packaged_file(name: str) -> Path:
    """Return a file or folder that comes with chatops: inside a wheel, otherwise at the top of the checkout."""
    inside = PACKAGE / "_data" / name
    return inside if inside.exists() else PACKAGE.parent / name


def packaged_registry() -> Path:
    """Return the registry that comes with chatops."""
    return packaged_file(SITE_REGISTRY.name)


@frozen_dataclass
class Paths:
    """The folders of one user. None of them has to exist yet."""

    config: Path
    """model_registry.json, settings.yaml, personas."""
    data: Path
    """The store, the last good registries."""
    log: Path
    notices: tuple[str, ...] = ()
    """Notices for the user: unusual folders, and the reason for them."""

    @property
    def registry(self) -> Path:
        """The user's own registry."""
        return self.config / "model_registry.json"

    @property
    def settings(self) -> Path:
        """The user's display settings."""
        return self.config / "settings.yaml"

    @property
    def themes(self) -> Path:
        """Folder of the user's own themes."""
        return self.config / "themes"

    @property
    def personas(self) -> Path:
        """The user's own personas."""
        return self.config / "personas"

    @property
    def skills(self) -> Path:
        """The user's own skills."""
        return self.config / "skills"

    @property
    def tools(self) -> Path:
        """The user's own tools."""
        return self.config / "tools"

    @property
    def store(self) -> Path:
        """The SQLite file with sessions, journal and approvals."""
        return self.data / "chatops.db"

    @property
    def running(self) -> Path:
        """Folder with the output of running tools so far."""
        return self.data / "running"

    def last_good_copy(self, registry: Path) -> Path:
        """Return the file with the last good copy of a registry, named by a hash of the registry's path."""
        import hashlib  # slow to import

        return self.data / "registry" / f"{hashlib.sha256(os.fsencode(registry)).hexdigest()[:32]}.json"

    @property
    def memory(self) -> Path:
        """Folder with the memories of the user and of workspaces."""
        return self.data / "memory"

    @property
    def trust(self) -> Path:
        """Folder with the user's answers about what workspaces bring, one file for each workspace."""
        return self.data / "trust"

    @property
    def servers(self) -> Path:
        """Folder with the packages of MCP servers. Beside the data folder, of which no program may see anything."""
        return self.data.with_name(f"{self.data.name}-servers")

    @property
    def protected(self) -> tuple[Path, ...]:
        """Folders that no tool may touch, resolved."""
        return tuple(dict.fromkeys(path.resolve() for path in (self.config, self.data, self.log)))

    def prepare(self) -> None:
        """Create the folders with mode 0700. Errors are left to the code that needs a folder."""
        for folder in (self.config, self.data, self.log):
            with suppress(ConfigError):
                private_dir(folder)


def find_paths(env: Mapping[str, str]) -> Paths:
    """Return the folders for this process. Raises ConfigError if there is no usable place for them.

    The first call may also move the folder for temporary files, see `_leave_shared_temporary_folder`.
    """
    _leave_shared_temporary_folder()
    chosen = env.get(HOME_VARIABLE, "")
    if chosen:
        base = Path(chosen)
        if not base.is_absolute():
            raise ConfigError(f"{HOME_VARIABLE} is {chosen!r}, which is not an absolute path.", advice=_HOME_ADVICE)
        return Paths(config=base / "config", data=base / "data", log=base / "log")
    usual, home = _platform_paths(), Path(os.path.expanduser("~"))
    # With an empty HOME the folders would be created in the root of the file system.
    obstacle = "HOME is empty." if env.get("HOME") == "" else _folder_obstacle(usual.data, home=home)
    if obstacle:
        # Keep the usual config folder if it may exist: a registry that cannot be read counts as broken, not as absent.
        in_home = usual.config.is_relative_to(home)
        keeps_config = env.get("HOME") != "" and usual.config.is_absolute() and (home.is_dir() or not in_home)
        return _temporary_paths(obstacle, config=usual.config if keeps_config else None)
    if env.get("HOME"):
        return usual
    notice = f"HOME is not set: chatops keeps its files in the system's home for you, {home}."
    return replace(usual, notices=(notice,))


def _platform_paths() -> Paths:
    """Return the platform's usual folders; relative to ``~`` if this user has no home folder."""
    try:
        return Paths(
            config=Path(platformdirs.user_config_dir(APP)),
            data=Path(platformdirs.user_data_dir(APP)),
            log=Path(platformdirs.user_log_dir(APP)),
        )
    except RuntimeError:
        nowhere = Path("~")
        return Paths(config=nowhere, data=nowhere, log=nowhere)


def _temporary_paths(obstacle: str, *, config: Path | None) -> Paths:
    """Return folders in a temporary one, because of `obstacle`; with `config`, that one stays."""
    base = _temporary_home(obstacle)
    notice = f"{obstacle} Sessions are kept in {base} until the machine restarts. {_HOME_ADVICE}"
    return Paths(config=config or base / "config", data=base / "data", log=base / "log", notices=(notice,))


def _folder_obstacle(folder: Path, *, home: Path) -> str:
    """Return why `folder` cannot be used, as a sentence; empty if it exists or may be created."""
    if not folder.is_absolute():
        # Without a home folder platformdirs returns a literal ~, which would be created in the workspace.
        return "There is no home folder for this user."
    try:
        folder.stat()
    except PermissionError:
        return f"{folder} cannot be reached: you have no permission for a folder above it."
    except OSError:
        if folder.is_relative_to(home) and not home.is_dir():
            return f"The home folder {home} does not exist."
        return ""
    return "" if os.access(folder, os.R_OK | os.X_OK) else f"{folder} cannot be opened: you have no permission."


@cache
def _temporary_home(obstacle: str) -> Path:
    """Return a temporary folder for this user alone, the same for all processes until the next reboot.

    Raises ConfigError with the reason `obstacle` if there is none.
    """
    try:
        folder = Path(tempfile.gettempdir()) / f"{APP}-{os.getuid()}"
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        status = folder.lstat()
        if stat.S_ISDIR(status.st_mode) and status.st_uid == os.getuid() and not status.st_mode & 0o077:
            return folder
        # Another user took the name first.
        return Path(tempfile.mkdtemp(prefix=f"{APP}-"))
    except OSError as error:
        raise ConfigError(
            f"{obstacle} There is no folder for temporary files either: {error}.", advice=_HOME_ADVICE
        ) from None


@cache
def _leave_shared_temporary_folder() -> None:
    """Use another folder for temporary files if other users may rename ours in the one that is set."""
    with suppress(OSError):
        if others_may_rename(Path(tempfile.gettempdir())):
            safe = (path for path in map(Path, ("/tmp", "/var/tmp")) if not others_may_rename(path))
            tempfile.tempdir = str(next(safe, tempfile.tempdir))


def others_may_rename(folder: Path) -> bool:
    """Return True if other users may rename what is in a folder, by owner and mode. Raises OSError."""
    status = folder.stat()
    return is_shared(status, who=stat.S_IWGRP | stat.S_IWOTH) or status.st_uid not in (0, os.getuid())


def is_shared(status: os.stat_result, *, who: int = stat.S_IWOTH) -> bool:
    """Return True if those whose mode bits are `who` may write to a file, or rename what is in a folder."""
    return bool(status.st_mode & who) and not (stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX)


def sharing_notices(workspace: Path) -> Iterator[str]:
    """Yield a notice if everyone may change the folder: an approval cannot bind what changes while a command runs."""
    with suppress(OSError):
        if is_shared(workspace.stat()):
            name = show_path(str(workspace))
            yield f"{name} can be written by everyone on this machine, also while an approved command runs there."


def private_dir(path: Path) -> None:
    """Create `path` and its missing parents with mode 0700; close an own folder that is open to others.

    Raises ConfigError.
    """
    try:
        for folder in reversed([path, *path.parents]):
            if not folder.exists():
                folder.mkdir(mode=0o700, exist_ok=True)
        status = path.stat()
        if not stat.S_ISDIR(status.st_mode):
            raise ConfigError(f"{path} is a file, and chatops needs a folder there.", advice="Move that file away.")
        if status.st_uid == os.getuid() and stat.S_IMODE(status.st_mode) & 0o077:
            path.chmod(0o700)
    except OSError as error:
        raise ConfigError(
            f"The folder {path} cannot be used: {error.strerror or error}.",
            advice=f"Set {HOME_VARIABLE} to a folder you may write to.",
        ) from None


def write_private(path: Path, data: bytes) -> None:
    """Write `path` atomically with mode 0600. Raises ConfigError."""
    private_dir(path.parent)
    try:
        with complete_file(path.parent, f".{path.name}.", data) as temporary:
            temporary.replace(path)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be written: {error.strerror or error}.", advice="Check the disk and the folder's owner."
        ) from None


def file_version(file: Path) -> tuple[int, ...]:
    """Return numbers that change whenever the file does; none if there is no file."""
    try:
        status = os.lstat(file)
    except OSError:
        return ()
    return status.st_ino, status.st_size, status.st_mode, status.st_mtime_ns, status.st_ctime_ns


@contextmanager
def lock_folder(file: Path) -> Iterator[None]:
    """Keep other windows from changing the files of a folder while this one changes `file`. Raises ConfigError."""
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


def write_new_private(path: Path, data: bytes) -> None:
    """Create `path` with mode 0600 and this content. Never overwrites a file and never follows a link.

    The file gets its name only after its content is complete and on disk, because half a session export looks like a
    complete one.

    Raises ChatopsError if `path` exists or cannot be written completely; then no file is left.
    """
    if os.path.lexists(path):
        raise _exists_error(path)
    try:
        with complete_file(path.parent, f".{APP}-", data) as temporary:
            _rename_new(temporary, path)
    except FileExistsError:
        raise _exists_error(path) from None
    except OSError as error:
        why = error.strerror or error
        raise ChatopsError(f"{path} cannot be written: {why}.", advice="Name another file.") from None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a temporary folder and remove it at the end. If the process is killed, `remove_left_folders` does it."""
    folder = tempfile.TemporaryDirectory(prefix=_TEMPORARY_PREFIX, ignore_cleanup_errors=True)
    with folder as name, _lock_own_folder(Path(name)):
        yield Path(name)


def remove_left_folders() -> None:
    """Remove temporary folders of killed processes: those with something in them that nobody has locked."""
    for folder in {file.parent for file in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY_PREFIX}*/*")}:
        with suppress(OSError), _lock_own_folder(folder):
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock_own_folder(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder. Raises OSError if it belongs to another user, or another process has it."""
    with opened(folder) as descriptor:
        if os.fstat(descriptor).st_uid != os.getuid():
            raise PermissionError(errno.EPERM, "it belongs to another user", str(folder))
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield


@contextmanager
def opened(path: str | Path, flags: int = FOLDER_FLAGS, *, at: int | None = None) -> Iterator[int]:
    """Open a file or folder, by default a folder, relative to the open folder `at`. Raises OSError."""
    descriptor = os.open(path, flags, 0o600, dir_fd=at)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def plain_file(path: Path, *, follow: bool = False) -> Iterator[tuple[IO[bytes], os.stat_result]]:
    """Yield a regular file, open for reading, and its status. A link is followed only if `follow`. Raises OSError.

    The status is that of what was opened: nothing can take its place between check and read.
    """
    if not follow and path.is_symlink():
        raise OSError(errno.EINVAL, "it is a link", str(path))
    # Without O_NONBLOCK opening a named pipe would block.
    further_flags = os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW)
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | further_flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "it is not a plain file", str(path))
        yield file, status


@contextmanager
def complete_file(folder: Path, prefix: str, data: bytes) -> Iterator[Path]:
    """Yield a complete, synced temporary file in `folder` to be renamed; remove it afterwards if it was not.

    It has mode 0600 from the start, because only its owner may read the content. Raises OSError.
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


def _rename_new(file: Path, name: Path) -> None:
    """Rename a file without replacing another one. Raises FileExistsError if the name is taken."""
    try:
        os.link(file, name)
    except FileExistsError:
        raise
    except OSError:
        # No hard links on this file system. Reserve the name first, so that no other file is replaced.
        os.close(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600))
        try:
            file.replace(name)
        except OSError:
            name.unlink(missing_ok=True)
            raise


def _exists_error(path: Path) -> ChatopsError:
    return ChatopsError(f"{path} exists and is not overwritten.", advice="Name another file.")


def show_folder(folder: str) -> str:
    """Return a folder as `show_path` does, with ``~`` for the home folder."""
    home = os.path.expanduser("~")
    inside = home not in ("", "/") and (folder == home or folder.startswith(f"{home}/"))
    return show_path(f"~{folder.removeprefix(home)}" if inside else folder)
