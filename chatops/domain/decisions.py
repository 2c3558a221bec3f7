"""Decisions on a call that asks, the rules remembered from them, and the questions of MCP servers."""

import re
from enum import StrEnum
from typing import Literal

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST, SandboxSpec


@frozen_dataclass
class ServerQuestion:
    """A question of a server. All texts are the server's own words: untrusted, cut to size, not sanitised."""

    server: str
    """Name of the server in the registry."""
    message: str
    schema: str = ""
    """JSON Schema of the answer: an object of named texts, numbers, booleans and choices. Empty: see `url`."""
    url: str = ""
    """The address that the user is asked to open; empty: see `schema`."""
    secrets: tuple[str, ...] = ()
    """Names of the fields that look like a key or password. What is typed there is not stored."""
    id: str = ""
    """Given when the question is asked; empty before that."""


@frozen_dataclass
class OpenQuestion:
    """A question that waits for the user, and the call that asks it."""

    call_id: CallId
    tool: str
    question: ServerQuestion


class AnswerAction(StrEnum):
    """The user's answer, in the words of the protocol."""

    ACCEPT = "accept"
    DECLINE = "decline"
    CANCEL = "cancel"
    """The user does not want to answer. The server gets this too if a question is void."""


@frozen_dataclass
class Answer:
    """An answer. `content` is the JSON object to send; empty unless a form was accepted."""

    action: AnswerAction
    content: str = ""


@frozen_dataclass
class AnyArguments:
    """Pattern that matches every call of a tool."""

    kind: Literal["any"] = "any"


ANY_ARGUMENTS = AnyArguments()


@frozen_dataclass
class ExactArguments:
    """Pattern that matches one canonical JSON text of arguments and nothing else."""

    arguments: str
    kind: Literal["exact"] = "exact"


@frozen_dataclass
class ArgvPattern:
    """Pattern that matches the words of one simple command; a last ``*`` stands for any further harmless words."""

    words: tuple[str, ...]
    kind: Literal["argv"] = "argv"


@frozen_dataclass
class PathPattern:
    """Pattern that matches calls whose every resolved path matches this glob (``**`` crosses folders)."""

    glob: str
    kind: Literal["path"] = "path"


@frozen_dataclass
class HostPattern:
    """Pattern that matches calls whose every host is this one, or a sub-domain of ``*.example.org``."""

    host: str
    kind: Literal["host"] = "host"


ArgumentPattern = AnyArguments | ExactArguments | ArgvPattern | PathPattern | HostPattern


UNATTENDED = "headless"
"""`Principal.via` of answers that a program without a screen gives without its user."""
NO_UID = -1
"""The uid that no user has, as in POSIX: (uid_t)-1."""


@frozen_dataclass
class Principal:
    """Author of a decision: the process's uid (never ``$USER``), host and terminal."""

    uid: int
    """`NO_UID` for a rule whose user is not known."""
    login: str = ""
    host: str = ""
    tty: str = ""
    """The terminal, the login at the page, or the editor with its version."""
    via: str = ""
    """The entry point: ``tui``, ``approvals``, ``headless``, ``serve``, ``acp``, ``python``."""
    rule: str = ""
    """Id of the remembered rule that answered instead of the user, who made it earlier; else empty."""
    member: str = ""
    """The role of the team's database that the decision came from, as the database has recorded it; empty in a file.
    The rest is what the deciding process says of itself."""

    @property
    def is_person(self) -> bool:
        """True if a user made the decision: rules, programs and runs without a screen decide by themselves."""
        return not self.rule and self.via not in (UNATTENDED, "python")

    @property
    def place(self) -> tuple[str, ...]:
        """Host and terminal, as far as they are known. The text of a principal names an editor already."""
        return tuple(part for part in (self.host, "" if self.via == "acp" else self.tty) if part)

    def __str__(self) -> str:
        if self.rule:
            return f"rule {self.rule}" if self.uid == NO_UID else f"rule {self.rule} of uid {self.uid}"
        name = f"uid {self.uid} ({self.login})" if self.login else f"uid {self.uid}"
        name = f"member {self.member}" if self.member else name
        editor = f" ({self.tty})" if self.via == "acp" and self.tty else ""
        return f"{name} via {self.via}{editor}" if self.via else name


_PRINCIPAL_TEXT = re.compile(r"(?:uid \d+ \((?P<login>.+?)\)|member (?P<member>.+?))(?: via \w+(?: \([^()]*\))?)?")


def deciding_login(decided_by: str) -> str:
    """Return the user in a stored `decided_by`, the text of a `Principal`, by login or role of the team's database.

    Empty if it was not a user.
    """
    principal = _PRINCIPAL_TEXT.fullmatch(decided_by)
    return (principal["login"] or principal["member"]) if principal else ""


class RuleScope(StrEnum):
    """Reach of a remembered rule. Every scope is limited to one role and one user."""

    SESSION = "session"
    FOLDER = "folder"
    """All sessions in one workspace."""
    ROLE = "role"
    """All sessions in all workspaces."""


@frozen_dataclass
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


@frozen_dataclass
class Edited:
    """Use other arguments (JSON text). They are validated and judged again, and then the call asks again."""

    arguments: str
    kind: Literal["edited"] = "edited"


@frozen_dataclass
class Rejected:
    """Do not run the call. The model is told `reason`.

    With `send_back`, the changes of a contained turn are not discarded: the model continues in the same copy.
    """

    reason: str = ""
    send_back: bool = False
    kind: Literal["rejected"] = "rejected"


@frozen_dataclass
class MarkedDone:
    """Only for an unknown outcome: the user has checked that the call did take effect."""

    note: str = ""
    kind: Literal["marked_done"] = "marked_done"


@frozen_dataclass
class Answered:
    """The answer to a question of an MCP server: for the log only.

    `fields` names the values that were sent; the values are not part of the log.
    """

    action: AnswerAction
    fields: tuple[str, ...] = ()
    why: str = ""
    """The reason, as a clause, why the program has answered without asking its user."""
    kind: Literal["answered"] = "answered"


Decision = Approved | Edited | Rejected | MarkedDone
"""Decision of a user on a pending call."""
Recorded = Decision | Answered
"""Entry of the decision log."""


@frozen_dataclass
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
