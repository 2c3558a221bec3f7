"""Limits of a command: the sandbox level that it needs, and what it may see, write and reach.

`policy.sandbox` combines the limits of registry, site, role and session. `sandbox.confinement` enforces them.
"""

from enum import IntEnum
from typing import Literal

from chatops.domain.frozen_dataclass import frozen_dataclass


class SandboxLevel(IntEnum):
    """Strength of the confinement of commands. A higher level holds everything that a lower one does."""

    NONE = 0
    """A process group that ends with the call, and an environment without keys. Files and network are open."""
    LANDLOCK = 1
    """Landlock and seccomp, without bubblewrap: writes only in the workspace, no network, home folders hidden."""
    BASIC = 2
    """bubblewrap: own view of the files, own processes, no network. A command can make nested user namespaces."""
    HARD = 3
    """bubblewrap, and no nested user namespaces."""

    @property
    def word(self) -> str:
        """The level as written in the registry."""
        return self.name.lower()


@frozen_dataclass(kw_only=False)
class SandboxNote:
    """How commands are confined, for display."""

    off: bool
    """True if commands run unsandboxed, or do not run at all because a sandbox is required."""
    text: str = ""
    """The level and its limits, or why it is off, in a few words."""

    def __str__(self) -> str:
        """Return the note in one line."""
        return f"sandbox: {'off ' if self.off else ''}{self.text}".rstrip()


GitAccess = Literal["protect", "commit", "writable"]
"""Write access to ``.git``: none; the files that a commit changes; all, including hooks and config."""
GIT_ACCESS: tuple[GitAccess, ...] = ("protect", "commit", "writable")
"""From the narrowest to the widest."""


@frozen_dataclass
class Credential:
    """A secret that commands use without seeing it: the proxy puts it into their requests to one host."""

    name: str
    """The host, as ``NAME`` or ``NAME:PORT``."""
    env: str
    """The variable of chatops' own environment that holds the value."""
    header: str
    """The header with ``{}`` in the value's place: ``Authorization: Bearer {}``."""
    methods: tuple[str, ...] = ()
    """Methods that it is for; empty: all."""
    paths: tuple[str, ...] = ()
    """Paths that it is for; empty: all. ``*`` is one segment, ``/**`` at the end everything below."""

    def __str__(self) -> str:
        """Return the credential in words, complete: an approval is bound to it."""
        only = ", ".join((*self.methods, *self.paths))
        return f"{self.env} at {self.name} as {self.header}" + (f" ({only} only)" if only else "")


@frozen_dataclass
class SandboxSpec:
    """Limits of a command. Each default is the narrowest value, so `SandboxSpec()` permits the workspace only.

    The same type holds what a call gets in addition: see `policy.sandbox.widened`.
    """

    require: SandboxLevel = SandboxLevel.NONE
    """Lowest level at which commands run. Where it does not work they are refused."""
    network: bool = False
    """True for all of the network, including the services of this machine."""
    hosts: tuple[str, ...] = ()
    """Reachable through the proxy: ``NAME``, ``*.NAME`` (ports 80 and 443) or ``NAME:PORT``. An inner address only
    literally, with its port: ``127.0.0.1:8080``."""
    git: GitAccess = "protect"
    read: tuple[str, ...] = ()
    """Further absolute paths that may be read."""
    write: tuple[str, ...] = ()
    """Further absolute folders that may be read and written."""
    env: tuple[str, ...] = ()
    """Names of further environment variables that are passed on."""
    credentials: tuple[Credential, ...] = ()


NARROWEST = SandboxSpec()


@frozen_dataclass
class Lack:
    """Something that a command probably needs and that its limits withhold."""

    by: str
    """The words of the command that need it, such as ``git push``; untrusted text."""
    needs: SandboxSpec
    """The limits that it would have to get in addition."""
    seen: bool = False
    """True if the same command failed for it before, False if it follows from the words."""


@frozen_dataclass
class Mount:
    """A path of this machine, shown read-only at another place in the sandbox."""

    source: str
    target: str
