"""Layers of rules, and the strictest verdict over them. A skill in use is a layer that can only take tools away."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import field
from types import MappingProxyType

from chatops.domain.decisions import ANY_ARGUMENTS, ArgumentPattern, RememberedRule
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import SkillUse, Verdict, tool_name

Key = tuple[str | int, ...]
"""A key of a registry: ``site`` or ``own``, then keys and indexes as in the file, such as ``("own", "roles", "coder",
"rules", 0)``. Empty: no registry sets it. A key only tells the user where to look, so two values that differ in
nothing else are equal.
"""


@frozen_dataclass
class Rule:
    """A verdict on the calls of one tool (exact name) that match a pattern."""

    tool: str
    verdict: Verdict
    pattern: ArgumentPattern = ANY_ARGUMENTS
    workspace_read: bool = False
    """True if a command that the rule allows gets the workspace read-only in the sandbox."""
    key: Key = field(default=(), compare=False)
    """The registry key that defines the rule."""


@frozen_dataclass
class Layer:
    """The rules of one party. The strictest matching rule counts; without a match, `default`."""

    name: str
    """Name shown to the user: ``access level user``, ``tools of role researcher``."""
    rules: tuple[Rule, ...]
    default: Verdict = Verdict.ALLOW
    asks: str = ""
    """Why this layer asks, as a clause for the user; if empty, its name is shown."""
    approver: tuple[str, ...] = ()
    """The approvers of an *ask*, see `policy.approvers`; empty: everyone who may decide."""
    of_registry: bool = False
    """True if it follows from registries and role. Any other layer of a turn binds its child turns too."""
    key: Key = field(default=(), compare=False)
    """The registry key that defines the layer. A verdict names it if no rule with its own key gave the verdict."""


@frozen_dataclass
class ApprovalRule:
    """A standing answer of a user to an *ask*. It never answers a *deny*."""

    tool: str
    pattern: ArgumentPattern
    source: str
    """Source shown to the user: ``rule of role coder``, ``confirm_allow``, ``--approve``."""
    workspace_read: bool = False
    """As in `Rule`."""
    key: Key = field(default=(), compare=False)
    """The registry key that defines the answer."""


@frozen_dataclass
class Judgement:
    """The verdict on a call, and its source."""

    verdict: Verdict
    reason: str
    """Name of the deciding layer, or another reason."""
    asks: str = ""
    """As in the layer that asks."""
    answered_by: str = ""
    """The rule that answered an *ask*; the verdict is then ALLOW. Empty: none did."""
    workspace_read: bool = False
    """As in the rule that answered."""
    rule: RememberedRule | None = None
    """The remembered rule that answered, if it was one."""
    by: Rule | None = None
    """The rule of the layer that gave the verdict, or the answer; None: a default, or no layer."""
    key: Key = field(default=(), compare=False)
    """The registry key that defines that rule; if no key does, the one that defines the layer."""
    unanswered: tuple[str, ...] = ()
    """Rules that name the call and do not answer it, each with the reason."""

    @property
    def why(self) -> str:
        """The reason why it asks, as a clause, with the rules that do not answer."""
        return "; ".join((self.asks or self.reason, *self.unanswered))


BY_POLICY = "policy"
"""Stored as `decided_by` for a call that no layer asks about."""


def meet(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the strictest of `verdicts`; ALLOW for none."""
    return max(verdicts, key=lambda verdict: verdict.strictness, default=Verdict.ALLOW)


SKILL_TOOL = "skill_read"
"""The tool that reads skills. A skill in use never takes it away, because its files may be needed."""
OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "Read": "file_read",
        "Write": "file_write",
        "Edit": "file_edit",
        "MultiEdit": "file_edit",
        "Bash": "shell_exec",
        "Grep": "file_search",
        "Glob": "file_list",
        "LS": "file_list",
        "WebFetch": "web_fetch",
        "WebSearch": "web_search",
    }
)
"""Names of tools in skills that were written for other programs."""
_ALLOWED_TOOL = re.compile(r"([^\s,()]+)(\([^)]*\))?")
"""The name of a tool, and perhaps a pattern in parentheses."""
_ALLOWED_TOOLS = re.compile(rf"[\s,]*(?:{_ALLOWED_TOOL.pattern}(?:[\s,]+|\Z))*")


def skill_use(name: str, allowed: str) -> SkillUse | None:
    """Read ``allowed-tools``: names separated by spaces or commas, each perhaps with a pattern.

    Patterns of other programs are not applied: a tool that is named only with patterns asks before each call. None:
    `allowed` cannot be read, and may hold half of a pattern.
    """
    if not _ALLOWED_TOOLS.fullmatch(allowed):
        return None
    has_pattern: dict[str, bool] = {}
    for word, pattern in _ALLOWED_TOOL.findall(allowed):
        tool = OTHER_NAMES.get(word, tool_name(word))
        has_pattern[tool] = bool(pattern) and has_pattern.get(tool, True)
    return SkillUse(
        name=name,
        tools=tuple(tool for tool in has_pattern if not has_pattern[tool]),
        asks=tuple(tool for tool in has_pattern if has_pattern[tool]),
    )


def skill_layer(use: SkillUse) -> Layer:
    """Return the layer that a skill in use adds to the grant of its turn."""
    rules = [Rule(tool=tool, verdict=Verdict.ALLOW) for tool in dict.fromkeys((SKILL_TOOL, *use.tools))]
    rules += [Rule(tool=tool, verdict=Verdict.ASK) for tool in use.asks if tool != SKILL_TOOL]
    return Layer(name=f"allowed-tools of the skill {use.name}", rules=tuple(rules), default=Verdict.DENY)
