"""Path confinement: tools stay inside the workspace and never touch credentials or chatops' own files.

A path is resolved, and then checked. When it is used, it is opened component by component below the workspace,
following no symlink. So a path that is swapped between check and use is refused.

Refused whatever the policy says: paths outside the workspace, `ToolContext.protected`, the usual credential files (by
place in the home folder, and by name anywhere), and writes below any ``.git`` or ``.chatops``.

A caution, so that the call asks: files of ordinary work that may hold secrets (``.env``, ``.git/config``), and files
with a second name (hard links).
"""

import os
import pwd
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache
from pathlib import Path

from chatops.config.paths import FOLDER_FLAGS
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import fold, is_secret, may_hold_secrets
from chatops.domain.tools import CallFacts, Problem
from chatops.toolkit.base import ToolContext
from chatops.toolkit.output import visible

HOME_SECRETS = (
    *(".ssh", ".gnupg", ".aws", ".azure", ".kube", ".netrc", ".git-credentials", ".pgpass", ".pypirc", ".npmrc"),
    *(".docker/config.json", ".config/gh", ".config/gcloud", ".config/chatops"),
    *(".local/share/chatops", ".local/share/keyrings", ".password-store"),
)
"""Relative to the home folder: files, or folders with everything below them."""
SETTINGS_FOLDER = ".chatops"
"""chatops reads no settings from the workspace, and a model may not write files that look like settings."""
MAX_PATH = 4_096
"""Bytes; Linux accepts no longer path."""
MAX_NAME = 255
"""Bytes of one path component; common file systems accept no longer one."""
_MAX_SHOWN = 300
"""Characters of a path that a message shows."""
# O_NONBLOCK: opening a pipe must not wait for a process at its other end.
_OPEN_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


@frozen_dataclass
class ResolvedPath:
    """A resolved path. With a `problem` or `refusal` no tool may use it; `path` may be the workspace then."""

    path: Path
    """Absolute and resolved."""
    problem: Problem | None = None
    refusal: str = ""
    caution: str = ""
    info: os.stat_result | None = None
    """None if the path does not exist."""

    @property
    def usable(self) -> bool:
        """True if there is neither a problem nor a refusal."""
        return self.problem is None and not self.refusal


def locate(raw: str, *, context: ToolContext, write: bool = False, field: str = "path") -> ResolvedPath:
    """Resolve a path that a model wrote, relative to the workspace. Has no effect and never raises."""
    if fault := _path_fault(raw):
        return ResolvedPath(path=context.workspace, problem=Problem(path=field, message=fault, given=visible(raw)))
    if raw == "~" or raw.startswith("~/"):
        return ResolvedPath(
            path=context.workspace, refusal=f"{visible(raw)} is in the home folder, outside the workspace."
        )
    try:
        info = None
        path = _resolve(raw, workspace=context.workspace)
        with suppress(FileNotFoundError, NotADirectoryError):
            info = os.lstat(path)
    except OSError as error:
        problem = Problem(path=field, message=f"cannot be resolved: {error.strerror}", given=visible(raw))
        return ResolvedPath(path=context.workspace, problem=problem)
    refusal = why_refused(path, context=context, write=write)
    if refusal:
        return ResolvedPath(path=path, refusal=refusal)
    if info is not None and stat.S_ISLNK(info.st_mode):
        return ResolvedPath(path=path, problem=Problem(path=field, message="is a symlink loop", given=visible(raw)))
    return ResolvedPath(path=path, info=info, caution=_caution(path, info=info, context=context, write=write))


def with_place(facts: CallFacts, place: ResolvedPath) -> CallFacts:
    """Add the result of resolving the call's path to the facts."""
    if place.problem:
        return replace(facts, problems=(*facts.problems, place.problem))
    if place.refusal:
        return replace(facts, refusal=place.refusal)
    return replace(facts, paths=(str(place.path),), caution=facts.caution or place.caution)


def with_problem(facts: CallFacts, field: str, message: str, *, given: str = "") -> CallFacts:
    """Add a problem of the argument `field`, whose value is `given`."""
    return replace(facts, problems=(*facts.problems, Problem(path=field, message=message, given=visible(given))))


def with_solvable_problem(facts: CallFacts, message: str, *, field: str = "path", given: str = "") -> CallFacts:
    """Add a problem of what the arguments name, which another call may solve, not of the arguments themselves."""
    return replace(with_problem(facts, field, message, given=given), may_resolve=True)


def why_refused(path: Path, *, context: ToolContext, write: bool) -> str:
    """Return why no tool may touch this resolved path, as a sentence; empty if tools may."""
    shown = _show(path)
    if not path.is_relative_to(context.workspace):
        return f"{shown} is outside the workspace {_show(context.workspace)}."
    if not {path, *path.parents}.isdisjoint(protected_paths(context)):
        return f"{shown} is a protected path."
    folded = [fold(part) for part in path.relative_to(context.workspace).parts]
    if is_secret(folded):
        return f"{shown} is a protected path: files of this name hold credentials."
    # The second is the short name that Windows file systems give the first.
    if write and any(part in {".git", "git~1"} for part in folded):
        return f"{shown} is a protected path: files in .git decide which programs git runs."
    if write and SETTINGS_FOLDER in folded:
        return f"{shown} is a protected path: it is reserved for settings of chatops."
    return ""


def protected_paths(context: ToolContext) -> tuple[Path, ...]:
    """Return the paths that the tools of `context` must not touch.

    The copy of a contained turn lies in the data folder, which is protected. For tools that work on the copy, a folder
    that contains it is left out; it is outside their workspace all the same.
    """
    protected = (*context.protected, *home_secrets())
    if context.source is None or context.source != context.workspace:
        return protected
    return tuple(path for path in protected if not context.workspace.is_relative_to(path))


def home_folders() -> tuple[Path, ...]:
    """Return the home folders by the account and by the environment, resolved."""
    return _home_folders(os.environ.get("HOME", ""))


@cache
def _home_folders(by_environment: str) -> tuple[Path, ...]:
    names = [by_environment]
    # A user id of a container may have no account.
    with suppress(KeyError):
        names.append(pwd.getpwuid(os.getuid()).pw_dir)
    return tuple({Path(os.path.realpath(name)): None for name in names if name and os.path.isabs(name)})


def home_secrets() -> tuple[Path, ...]:
    """Return the usual credential paths of this user, resolved."""
    return _home_secrets(home_folders())


@cache
def _home_secrets(homes: tuple[Path, ...]) -> tuple[Path, ...]:
    secrets = {Path(os.path.realpath(home / name)): None for home in homes for name in HOME_SECRETS}
    # A link may lead there, and then everything would be protected.
    return tuple(path for path in secrets if path not in homes and path != Path("/"))


def link_target(path: str) -> str:
    """Return what an absolute path leads to through a link; empty if it goes through none."""
    real = os.path.realpath(path)
    return "" if real == os.path.normpath(path) else real


def why_not_for_commands(paths: Iterable[str], *, protected: tuple[Path, ...] = (), can_hide_parts: bool = True) -> str:
    """Return why no command may get all of these further paths, as a sentence; empty if it may.

    `can_hide_parts`: the sandbox can hide a part of a folder that it shows.
    """
    hidden = (*protected, *home_secrets())
    for name in paths:
        path = Path(os.path.realpath(name))
        if any(path.is_relative_to(folder) for folder in hidden):
            return f"No command may see {_show(name)}: it holds credentials, or chatops' own files."
        inner = next((secret for secret in hidden if not can_hide_parts and secret.is_relative_to(path)), None)
        if inner is not None:
            return f"No command may see {_show(name)} here: without bubblewrap, {_show(inner)} cannot be hidden."
    return ""


@contextmanager
def opened_folder(path: Path, *, context: ToolContext, create: bool = False) -> Iterator[int]:
    """Yield a descriptor of a folder in the workspace that is reached without following any symlink.

    With `create`, missing folders are made. Raises FileNotFoundError, and ToolFailedError if the path is no longer what
    was checked.
    """
    shown = _show(path)
    if not path.is_relative_to(context.workspace):
        raise ToolFailedError(f"{shown} is outside the workspace.")
    parts = path.relative_to(context.workspace).parts
    descriptor = os.open(context.workspace, FOLDER_FLAGS)
    try:
        for part in parts:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(part, dir_fd=descriptor)
            try:
                below = os.open(part, FOLDER_FLAGS, dir_fd=descriptor)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise ToolFailedError(
                    f"The folders on the path to {shown} have changed since the check; nothing was done."
                ) from error
            os.close(descriptor)
            descriptor = below
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def opened_file(path: Path, *, context: ToolContext) -> Iterator[int]:
    """Yield a descriptor for reading a regular file in the workspace. Raises ToolFailedError or FileNotFoundError."""
    with opened_folder(path.parent, context=context) as folder:
        try:
            descriptor = os.open(path.name, os.O_RDONLY | _OPEN_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise ToolFailedError(f"{_show(path)} cannot be opened: {error.strerror}.") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ToolFailedError(f"{_show(path)} is not a regular file.")
        yield descriptor
    finally:
        os.close(descriptor)


def _show(path: str | Path) -> str:
    return visible(str(path), limit=_MAX_SHOWN)


def _path_fault(raw: str) -> str:
    if not raw:
        return "is empty; give a path relative to the workspace"
    if any(unicodedata.category(char) in {"Cc", "Cs"} for char in raw):
        return "contains a control character"
    if "://" in raw:
        return "is a URL; give a path relative to the workspace"
    data = raw.encode("utf-8")
    if len(data) > MAX_PATH or any(len(part) > MAX_NAME for part in data.split(b"/")):
        return "is too long"
    return ""


def _resolve(raw: str, *, workspace: Path) -> Path:
    path = Path(os.path.realpath(os.path.join(workspace, raw)))
    if raw.isascii() or path.exists():
        return path
    # The name may be stored on disk in another Unicode normal form; use that form only if such a file exists.
    for form in ("NFC", "NFD"):
        other = Path(os.path.realpath(os.path.join(workspace, unicodedata.normalize(form, raw))))
        if other.exists():
            return other
    return path


def _caution(path: Path, *, info: os.stat_result | None, context: ToolContext, write: bool) -> str:
    shown = _show(path)
    if context.workspace == Path("/") or context.workspace in home_folders():
        return f"The workspace is {context.workspace}, so this can be any of your files."
    if may_hold_secrets([fold(part) for part in path.relative_to(context.workspace).parts]):
        return f"{shown} may hold keys or passwords."
    if info is not None and stat.S_ISREG(info.st_mode) and info.st_nlink > 1 and not write:
        return f"{shown} has {info.st_nlink} names (hard links), so it may also be a file outside the workspace."
    return ""
