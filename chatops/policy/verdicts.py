"""Layers of rules and the strictest verdict over them."""

from collections.abc import Iterable
from dataclasses import dataclass

from chatops.domain.decisions import ANY_ARGUMENTS, ArgumentPattern
from chatops.domain.rights import Verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A verdict on the calls of one tool (exact name) that match a pattern."""

    tool: str
    verdict: Verdict
    pattern: ArgumentPattern = ANY_ARGUMENTS
    workspace_read: bool = False
    """A command that the rule allows gets the workspace read-only in the sandbox."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One party's rules. Of the rules that match a call the strictest counts; none: `default`."""

    name: str
    """In words for the person: ``access level user``, ``tools of role researcher``."""
    rules: tuple[Rule, ...]
    default: Verdict = Verdict.ALLOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A standing answer to an *ask*, made by a person: never to a *deny*."""

    tool: str
    pattern: ArgumentPattern
    source: str
    """In words: ``rule of role coder``, ``confirm_allow``, ``--approve``."""
    workspace_read: bool = False
    """As in `Rule`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The verdict on a call, and what gave it."""

    verdict: Verdict
    reason: str
    """The deciding layer, in words."""
    answered_by: str = ""
    """If an *ask* was answered by a rule: which; the verdict is then ALLOW."""
    workspace_read: bool = False
    """As in the rule that answered."""


BY_POLICY = "policy"
"""Stored as what decided a call that no layer asks about."""


def meet(verdicts: Iterable[Verdict]) -> Verdict:
    """The strictest of `verdicts`; ALLOW for none."""
    return max(verdicts, key=lambda verdict: verdict.strictness, default=Verdict.ALLOW)
