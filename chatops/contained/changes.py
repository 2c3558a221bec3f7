"""The change list of a contained turn: what would be applied, what is left out, and the digest an approval binds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from chatops.domain.canonical import digest
from chatops.domain.tools import Outcome

MAX_ENTRIES = 2_000
"""Maximum number of changes that can be applied at once."""
MAX_FILE = 64 << 20
"""Maximum number of bytes of a changed file."""
MAX_FROZEN = 256 << 20
"""Maximum number of bytes of all changed files."""
MAX_LEFT_OUT = 500
"""Maximum number of paths that are listed as left out; further ones are counted."""


class Kind(StrEnum):
    """Kind of a path's content."""

    ABSENT = "absent"
    FILE = "file"
    LINK = "link"
    FOLDER = "folder"
    OTHER = "other"


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """Content of one path: for a file its mode, SHA-256 and size in bytes, for a link its target."""

    kind: Kind = Kind.ABSENT
    mode: int = 0
    sha: str = ""
    size: int = 0
    target: str = ""


ABSENT = State()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One change: `path` relative to the workspace, its state before the turn (`base`) and after it (`new`)."""

    path: str
    base: State
    new: State
    runs_later: tuple[str, ...] = ()
    """Programs that run or obey the path without being asked again, such as "make"."""
    marks: tuple[str, ...] = ()
    """Remark beyond the change itself, such as "made executable"."""

    @property
    def verb(self) -> str:
        """The change in one word."""
        if self.base.kind is Kind.ABSENT:
            return "add"
        if self.new.kind is Kind.ABSENT:
            return "remove"
        return "mode" if (self.base.sha, self.base.kind) == (self.new.sha, self.new.kind) != ("", "link") else "change"


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOut:
    """A path of the copy that is not applied, and why. The path is spelled out for display."""

    path: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """A call that ran in the copy: its tool, its words, its outcome, and how its program ended, if it ran one."""

    tool: str
    text: str
    outcome: Outcome = Outcome.INTERRUPTED
    ending: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeList:
    """The frozen result of a contained turn. Only what it names can be applied."""

    workspace: str
    identity: tuple[int, int]
    """Device and inode of the workspace folder."""
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
    ran: tuple[Ran, ...] = ()
    hidden: tuple[str, ...] = ()
    """Paths of the workspace that were not in the copy, spelled out."""
    cannot: tuple[str, ...] = ()
    """In a list for ``/undo``: lines about what it does not take back."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole list."""
        return digest("contained", as_json(self))


def as_json(changes: ChangeList) -> Any:
    """Return the list as values for JSON."""
    found = asdict(changes)
    if not changes.cannot:
        # Left out, so that the digests of lists stored by versions without it stay valid.
        del found["cannot"]
    return found


def from_json(found: Mapping[str, Any]) -> ChangeList:
    """Return the list that `as_json` gave these values. Raises KeyError, TypeError or ValueError for others."""
    return ChangeList(
        workspace=str(found["workspace"]),
        identity=(int(found["identity"][0]), int(found["identity"][1])),
        entries=tuple(_entry(one) for one in found["entries"]),
        left_out=tuple(LeftOut(**one) for one in found["left_out"]),
        ran=tuple(ran_from(one) for one in found["ran"]),
        hidden=tuple(found["hidden"]),
        cannot=tuple(map(str, found.get("cannot", ()))),
    )


def _entry(found: Mapping[str, Any]) -> Entry:
    return Entry(
        path=str(found["path"]),
        base=state_from(found["base"]),
        new=state_from(found["new"]),
        runs_later=tuple(found["runs_later"]),
        marks=tuple(found["marks"]),
    )


def ran_from(found: Mapping[str, Any]) -> Ran:
    """Return the call that was stored as these values."""
    return Ran(**{**found, "outcome": Outcome(found["outcome"])})


def state_from(found: Mapping[str, Any]) -> State:
    """Return the state that was stored as these values."""
    return State(**{**found, "kind": Kind(found["kind"])})


def selected(changes: ChangeList, only: Sequence[str] | None, conflicts: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries to apply: those of `only`, or all for None, without those in conflict."""
    return tuple(
        entry for entry in changes.entries if entry.path not in conflicts and (only is None or entry.path in only)
    )
