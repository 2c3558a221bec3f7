"""Layers of rules, and the strictest verdict over them."""

from collections.abc import Iterable
from dataclasses import dataclass

from chatops.domain.decisions import ANY_ARGUMENTS, ArgumentPattern, RememberedRule
from chatops.domain.rights import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A verdict on the calls of one tool (exact name) that match a pattern."""

    tool: str
    verdict: Verdict
    pattern: ArgumentPattern = ANY_ARGUMENTS
    workspace_read: bool = False
    """True if a command that the rule allows gets the workspace read-only in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """The rules of one party. The strictest matching rule counts; without a match, `default`."""

    name: str
    """Name shown to the user: ``access level user``, ``tools of role researcher``."""
    rules: tuple[Rule, ...]
    default: Verdict = Verdict.ALLOW
    asks: str = ""
    """Why this layer asks, as a clause for the user; if empty, its name is shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRule:
    """A standing answer of a user to an *ask*. It never answers a *deny*."""

    tool: str
    pattern: ArgumentPattern
    source: str
    """Source shown to the user: ``rule of role coder``, ``confirm_allow``, ``--approve``."""
    workspace_read: bool = False
    """As in `Rule`."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
