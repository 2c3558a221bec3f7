"""Options of the command line, and the workspace that they name."""

import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from chatops.config.paths import find_paths
from chatops.domain.decisions import Principal
from chatops.domain.errors import ConfigError
from chatops.domain.rights import AccessLevel
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.policy.resolve import User
from chatops.wiring.stored import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Options of the command line."""

    registry: Path | None = None
    workspace: Path | None = None
    access: AccessLevel | None = None
    role: str | None = None
    model: str | None = None
    max_rounds: int | None = None
    approvals: tuple[str, ...] = ()
    """Rules in the syntax of ``--approve``, for this run."""
    summary: bool = False
    sandbox: SandboxSpec = NARROWEST
    """Folders that commands may see or write in addition: ``--add-dir``."""
    storage: Storage = Storage.NEEDED
    store: Path | None = None
    """A file to read instead of the user's store."""
    via: str = "tui"
    """The UI that decisions are recorded under: ``tui``, ``headless``, ``approvals`` or ``python``."""


def added_folders(texts: Sequence[str]) -> SandboxSpec:
    """Return what ``--add-dir DIR[:ro]`` lets commands see and write. Raises ConfigError."""
    from chatops.toolkit.confine import home_folders, why_not_for_commands  # only with that option

    read: list[str] = []
    write: list[str] = []
    for text in texts:
        name = text.removesuffix(":ro")
        folder = Path(name).expanduser().resolve()
        if not folder.is_dir():
            raise ConfigError(f"--add-dir {name}: there is no such folder.", advice="Name a folder that exists.")
        if any(home.is_relative_to(folder) for home in home_folders()):
            raise ConfigError(
                f"--add-dir {name}: commands would see your home folder.", advice="Name a folder inside of it."
            )
        if fault := why_not_for_commands((str(folder),), protected=find_paths(os.environ).protected):
            raise ConfigError(f"--add-dir {name}: {fault[0].lower()}{fault[1:]}", advice="Name another folder.")
        (read if text.endswith(":ro") else write).append(str(folder))
    return SandboxSpec(read=tuple(read), write=tuple(write))


def workspace_of(folder: Path | None) -> Path:
    """Return the workspace: `folder`, or the current one. Raises ConfigError if there is no such folder."""
    try:
        wanted = folder or Path.cwd()
    except FileNotFoundError:
        raise ConfigError(
            "The folder you are in has been deleted.", advice="Go to another, or name one with --workspace DIR."
        ) from None
    if not wanted.is_dir():
        raise ConfigError(f"The workspace {wanted} is not a folder.", advice="Name one with --workspace DIR.")
    return wanted.resolve()


def principal_of(user: User, *, via: str) -> Principal:
    """Return the identity that decisions of this process are recorded under."""
    try:
        tty = os.ttyname(sys.stdin.fileno())
    except (OSError, ValueError, AttributeError):
        tty = ""
    return Principal(uid=user.uid, login=user.login, host=socket.gethostname(), tty=tty, via=via)
