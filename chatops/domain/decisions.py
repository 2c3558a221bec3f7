"""Decisions on a call that asks, and the rules that are remembered from them."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from chatops.domain.ids import CallId
from chatops.domain.questions import AnswerAction
from chatops.domain.sandbox import NARROWEST, SandboxSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyArguments:
    """Pattern that matches every call of a tool."""

    kind: Literal["any"] = "any"


ANY_ARGUMENTS = AnyArguments()


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactArguments:
    """Pattern that matches one canonical JSON text of arguments and nothing else."""

    arguments: str
    kind: Literal["exact"] = "exact"


@dataclass(frozen=True, slots=True, kw_only=True)
class ArgvPattern:
    """Pattern that matches the words of one simple command; a last ``*`` stands for any further harmless words."""

    words: tuple[str, ...]
    kind: Literal["argv"] = "argv"


@dataclass(frozen=True, slots=True, kw_only=True)
class PathPattern:
    """Pattern that matches calls whose every resolved path matches this glob (``**`` crosses folders)."""

    glob: str
    kind: Literal["path"] = "path"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPattern:
    """Pattern that matches calls whose every host is this one, or a sub-domain of ``*.example.org``."""

    host: str
    kind: Literal["host"] = "host"


ArgumentPattern = AnyArguments | ExactArguments | ArgvPattern | PathPattern | HostPattern


NO_UID = -1
"""The uid that no user has, as in POSIX: (uid_t)-1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Principal:
    """Author of a decision: the process's uid (never ``$USER``), host and terminal."""

    uid: int
    """`NO_UID` for a rule whose user is not known."""
    login: str = ""
    host: str = ""
    tty: str = ""
    via: str = ""
    """The entry point: ``tui``, ``approvals``, ``headless``, ``python``."""
    rule: str = ""
    """Id of the remembered rule that answered instead of the user, who made it earlier; else empty."""

    @property
    def is_person(self) -> bool:
        """True if a user made the decision: rules, programs and runs without a screen decide by themselves."""
        return not self.rule and self.via not in ("headless", "python")

    def __str__(self) -> str:
        if self.rule:
            return f"rule {self.rule}" if self.uid == NO_UID else f"rule {self.rule} of uid {self.uid}"
        name = f"uid {self.uid} ({self.login})" if self.login else f"uid {self.uid}"
        return f"{name} via {self.via}" if self.via else name


_AS_TEXT = re.compile(r"uid \d+ \((?P<login>.+)\)(?: via \w+)?")


def deciding_login(decided_by: str) -> str:
    """Return the login of the user in a stored `decided_by`, the text of a `Principal`; empty if it was not a user."""
    found = _AS_TEXT.fullmatch(decided_by)
    return found["login"] if found else ""


class RuleScope(StrEnum):
    """Reach of a remembered rule. Every scope is limited to one role and one user."""

    SESSION = "session"
    FOLDER = "folder"
    """All sessions in one workspace."""
    ROLE = "role"
    """All sessions in all workspaces."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved:
    """Run exactly this call. `remember` answers later matching calls of this role within `scope`.

    `only` names the changes of a contained turn to apply; None: all of them.
    """

    remember: ArgumentPattern | None = None
    scope: RuleScope = RuleScope.SESSION
    extra: SandboxSpec = NARROWEST
    """Limits that the call gets in addition, this once: exactly those of its facts, or none. Only for a decision in the
    dialog, which has named them."""
    only: tuple[str, ...] | None = None
    kind: Literal["approved"] = "approved"


@dataclass(frozen=True, slots=True, kw_only=True)
class Edited:
    """Use other arguments (JSON text). They are validated and judged again, and then the call asks again."""

    arguments: str
    kind: Literal["edited"] = "edited"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """Do not run the call. The model is told `reason`.

    `send_back`: do not discard the changes of a contained turn; the model goes on in the same copy.
    """

    reason: str = ""
    send_back: bool = False
    kind: Literal["rejected"] = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkedDone:
    """Only for an unknown outcome: the user has checked that the call did take effect."""

    note: str = ""
    kind: Literal["marked_done"] = "marked_done"


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """The answer to a question of an MCP server: for the log only.

    `fields` names the values that were sent; the values are not part of the log.
    """

    action: AnswerAction
    fields: tuple[str, ...] = ()
    kind: Literal["answered"] = "answered"


Decision = Approved | Edited | Rejected | MarkedDone
"""Decision of a user on a pending call."""
Recorded = Decision | Answered
"""Entry of the decision log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RememberedRule:
    """A standing answer that the user gave with the decision on a call. See `policy.remembered` for its limits."""

    role: str
    tool: str
    pattern: ArgumentPattern
    source_call: CallId
    scope: RuleScope = RuleScope.SESSION
    folder: str = ""
    """Identity of the workspace of the call, see `CallFacts.folder`."""
    definition: str = ""
    """Digest of the tool's definition at that time. Empty: stored by a version without it."""
    uid: int | None = None
    """The user who made it. None: stored by a version without it."""
    id: str = ""
    """Given by the store; empty before that."""
