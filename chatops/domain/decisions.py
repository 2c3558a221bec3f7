"""What a person may answer when asked about a call, and what of it is remembered."""

from dataclasses import dataclass
from typing import Literal

from chatops.domain.ids import CallId


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyArguments:
    """Matches every call of a tool."""

    kind: Literal["any"] = "any"


ANY_ARGUMENTS = AnyArguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactArguments:
    """Matches one canonical JSON text of arguments and nothing else."""

    arguments: str
    kind: Literal["exact"] = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgvPattern:
    """Matches the words of one simple command; a last ``*`` stands for any further harmless words."""

    words: tuple[str, ...]
    kind: Literal["argv"] = "argv"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPattern:
    """Matches calls whose every resolved path matches this glob (``**`` crosses folders)."""

    glob: str
    kind: Literal["path"] = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPattern:
    """Matches calls whose every host is this one, or a sub-domain of ``*.example.org``."""

    host: str
    kind: Literal["host"] = "host"


ArgumentPattern = AnyArguments | ExactArguments | ArgvPattern | PathPattern | HostPattern


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Who decided, and where: the process's uid (never ``$USER``), host and terminal."""

    uid: int
    login: str = ""
    host: str = ""
    tty: str = ""
    via: str = ""
    """The door: ``tui``, ``approvals``, ``headless``, ``python``."""

    @property
    def is_person(self) -> bool:
        """Whether somebody looked at it: programs and runs without a screen decide by themselves."""
        return self.via not in ("headless", "python")

    def __str__(self) -> str:
        name = f"uid {self.uid} ({self.login})" if self.login else f"uid {self.uid}"
        return f"{name} via {self.via}" if self.via else name


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Run exactly this. `remember` answers later calls of this session and role that match."""

    remember: ArgumentPattern | None = None
    kind: Literal["approved"] = "approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Other arguments (JSON text): they are validated and judged anew, and then asked about again."""

    arguments: str
    kind: Literal["edited"] = "edited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Do not run it; `reason` is told to the model."""

    reason: str = ""
    kind: Literal["rejected"] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDone:
    """Only for an unknown outcome: the person has looked, and it did take effect."""

    note: str = ""
    kind: Literal["marked_done"] = "marked_done"


Decision = Approved | Edited | Rejected | MarkedDone


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedGrant:
    """A standing answer that a person gave: it belongs to one session and one role."""

    role: str
    tool: str
    pattern: ArgumentPattern
    source_call: CallId
