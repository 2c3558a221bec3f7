"""Delegation: what a role adds to the rights of a turn that delegates to it, and what binds the child turn.

Theory of operation

A child turn works under another role, for a call of its caller. Its grant is made of these parts:

- `resolve_grant` of the role, for the same user under the same registries, as for any turn of that role.
- `binding`: every layer of the caller's grant in force that does not come from its role or the registries. Those are
  the workflow step, tools that the user revoked in the session, skills in use, and whatever layer is invented later.
- `only_tools_of`: a layer that permits the tools that were compared, and no other. A server that connects after the
  approval cannot add a tool to the child.

`added_rights` compares that grant with the one in force. It may name too much and never too little: where two patterns
cannot be compared, the role counts as looser. If it names nothing, every call that the child may make could be made by
the caller, under a verdict at least as strict. So the delegation itself needs no question. If it names anything, only
a decision of the user on this very call permits it.

The comparison of one tool rests on how layers combine (`grant.py`): the strictest verdict counts. The child is at least
as strict as its caller if each layer of the caller that restricts the tool has a counterpart in the child: the same
rules and default, or a layer whose loosest verdict is as strict as the strictest of the caller's.

An approval is bound to the child's grant by `grant_digest`. The digest leaves out the prompt, which holds the date, and
the layers' rules about tools that are not on offer, which differ whenever a server connects.
"""

from collections.abc import Sequence
from dataclasses import asdict

from chatops.domain.canonical import digest
from chatops.domain.decisions import AnyArguments, RememberedRule
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import NARROWEST, SandboxLevel, SandboxSpec
from chatops.domain.tools import BUILT_IN, Verdict
from chatops.policy.grant import Grant
from chatops.policy.rule_syntax import show_rule
from chatops.policy.sandbox import beyond, describe_extra
from chatops.policy.verdicts import ApprovalRule, Layer, Rule, meet

DELEGATE_TOOL = "delegate"
MAX_AT_ONCE = 4
"""Child turns of one turn that run at the same time. More would sooner meet the rate limits of a model server."""
MAX_IN_A_TURN = 16
"""Delegations of one turn. The limit stops a model that delegates in a loop."""
NO_DELEGATION = Layer(name="a child turn does not delegate", rules=(Rule(tool=DELEGATE_TOOL, verdict=Verdict.DENY),))


@frozen_dataclass
class ChildBinding:
    """The call that a child session works for, and what binds the session beyond its role."""

    call_id: CallId
    caller: str
    """The role that has delegated."""
    layers: tuple[Layer, ...]


UNREADABLE_BINDING = ChildBinding(
    call_id=CallId(""),
    caller="another role",
    layers=(Layer(name="what binds this child session cannot be read", rules=(), default=Verdict.DENY),),
)
"""The binding of a child session whose own cannot be read: it permits nothing."""


def binding(in_force: Grant) -> tuple[Layer, ...]:
    """Return the layers of a turn that bind its children too: all that its role and the registries do not give."""
    return (*(layer for layer in in_force.layers if not layer.of_registry), NO_DELEGATION)


def only_tools_of(grant: Grant) -> Layer:
    """Return the layer that permits the tools of `grant`, by name, and no other."""
    rules = tuple(Rule(tool=spec.name, verdict=Verdict.ALLOW) for spec in grant.tools)
    return Layer(name="tools that the role had when the task was delegated", rules=rules, default=Verdict.DENY)


@frozen_dataclass
class AddedRights:
    """What a role adds to the grant in force. Empty: nothing."""

    tools: tuple[str, ...] = ()
    """Tools that only the role offers and that ask."""
    unasked: tuple[str, ...] = ()
    """Tools that only the role offers and that do not ask about every call."""
    looser: tuple[str, ...] = ()
    """Tools of both that the role may permit where the grant in force asks or denies."""
    contained: tuple[str, ...] = ()
    """Tools that run commands, if the role's turns are contained: an *ask* about them is answered there."""
    rules: tuple[str, ...] = ()
    """Rules that answer an *ask* only in the role, as `show_rule` writes them."""
    sandbox: SandboxSpec = NARROWEST
    """What only commands of the role may see, write and reach."""
    level: SandboxLevel | None = None
    """The sandbox level that the role demands, if it is lower than that in force."""
    models: tuple[str, ...] = ()
    """Models at endpoints that the turn does not use, each with its endpoint."""
    rounds: int = 0
    """Model calls that the role may make, if they are more than in force."""

    @property
    def words(self) -> tuple[str, ...]:
        """Everything that is added, each in a phrase; empty if nothing is."""
        extra = describe_extra(self.sandbox)
        phrases = (
            f"+ {', '.join(self.tools)}" if self.tools else "",
            f"+ {', '.join(self.unasked)} without asking" if self.unasked else "",
            f"{', '.join(self.looser)} with fewer questions" if self.looser else "",
            f"{', '.join(self.contained)} in a copy without asking" if self.contained else "",
            *(f"rule {rule}" for rule in self.rules),
            f"commands get {extra}" if extra else "",
            f"commands run from sandbox level {self.level.word} on" if self.level is not None else "",
            *(f"model {model}" for model in self.models),
            f"{self.rounds} rounds" if self.rounds else "",
        )
        return tuple(phrase for phrase in phrases if phrase)


def added_rights(child: Grant, in_force: Grant, *, remembered: Sequence[RememberedRule] = ()) -> AddedRights:
    """Return what `child` permits and `in_force` does not. May name too much, never too little.

    `remembered` are the user's rules that could answer in the child's session. Those of the role in force are left out,
    because they answer there too.
    """
    new = [spec.name for spec in child.tools if in_force.tool(spec.name) is None]
    unasked = tuple(tool for tool in new if _loosest(child, tool) is Verdict.ALLOW)
    known = {spec.name for spec in child.tools}
    rules: list[ApprovalRule | RememberedRule] = [
        *(rule for rule in child.answers if not _is_answered(rule, in_force.answers)),
        *(rule for rule in remembered if rule.role == child.role and rule.role != in_force.role),
    ]
    limits, child_limits = in_force.sandbox or NARROWEST, child.sandbox or NARROWEST
    endpoints = {model.endpoint for model in _models(in_force)} - {""}
    return AddedRights(
        tools=tuple(tool for tool in new if tool not in unasked),
        unasked=unasked,
        looser=tuple(
            spec.name for spec in child.tools if spec.name not in new and _is_looser(child, in_force, spec.name)
        ),
        contained=tuple(
            spec.name
            for spec in child.tools
            if child.contain and spec.source == BUILT_IN and spec.capabilities.runs_anything
        ),
        rules=tuple(dict.fromkeys(show_rule(rule.tool, rule.pattern) for rule in rules if rule.tool in known)),
        sandbox=beyond(child_limits, limits),
        level=child_limits.require if child_limits.require < limits.require else None,
        models=tuple(
            f"{model.label or model.name} at {model.endpoint or 'an unknown place'}"
            for model in _models(child)
            if model.endpoint not in endpoints
        ),
        rounds=child.max_rounds if child.max_rounds > in_force.max_rounds else 0,
    )


def grant_digest(child: Grant, words: Sequence[str]) -> str:
    """Return the digest of the child's grant and of the added rights in `words`, to which an approval is bound."""
    return digest(
        child.role,
        child.level.word,
        [[spec.name, [asdict(part) for part in _restrictions(child, spec.name)]] for spec in child.tools],
        [asdict(answer) for answer in child.answers],
        [[model.name, model.endpoint] for model in _models(child)],
        child.max_rounds,
        [asdict(spec) if spec is not None else "" for spec in (child.sandbox, child.ceiling)],
        list(child.rule_scopes),
        [child.contain, child.may_contain],
        list(words),
    )


def _models(grant: Grant) -> tuple[ModelTarget, ...]:
    return (*grant.models, *((grant.responder,) if grant.responder is not None else ()))


def _is_answered(answer: ApprovalRule, others: Sequence[ApprovalRule]) -> bool:
    """Return True if one of `others` answers all that `answer` does, for a command with no less of the workspace."""
    return any(
        (other.tool, other.pattern) == (answer.tool, answer.pattern) and other.workspace_read <= answer.workspace_read
        for other in others
    )


@frozen_dataclass
class _Restriction:
    """The rules of one layer about one tool, without names, and the layer's default."""

    rules: tuple[Rule, ...]
    default: Verdict

    @property
    def loosest(self) -> Verdict:
        """The loosest verdict that any call can get."""
        for_every_call = [rule.verdict for rule in self.rules if isinstance(rule.pattern, AnyArguments)]
        if for_every_call:
            return meet(for_every_call)
        return min((self.default, *(rule.verdict for rule in self.rules)), key=lambda verdict: verdict.strictness)

    @property
    def strictest(self) -> Verdict:
        """The strictest verdict that any call can get."""
        has_default = not any(isinstance(rule.pattern, AnyArguments) for rule in self.rules)
        return meet((*(rule.verdict for rule in self.rules), *((self.default,) if has_default else ())))


def _restrictions(grant: Grant, tool: str) -> tuple[_Restriction, ...]:
    """Return what the layers say about `tool`, each thing once, without layers that permit every call."""
    parts = (
        _Restriction(rules=tuple(rule for rule in layer.rules if rule.tool == tool), default=layer.default)
        for layer in grant.layers
    )
    return tuple(dict.fromkeys(part for part in parts if part.strictest is not Verdict.ALLOW))


def _loosest(grant: Grant, tool: str) -> Verdict:
    """Return the strictest of the layers' loosest verdicts: no call of `tool` gets a looser one without an answer."""
    return meet(part.loosest for part in _restrictions(grant, tool))


def _is_looser(child: Grant, in_force: Grant, tool: str) -> bool:
    """Return True unless each restriction in force has a counterpart in the child that is at least as strict."""
    own = _restrictions(child, tool)
    floor = meet(part.loosest for part in own)
    return any(
        part not in own and part.strictest.strictness > floor.strictness for part in _restrictions(in_force, tool)
    )
