"""A grant: the rights of a turn, resolved from registries, user and role. It can be narrowed and never widened.

Theory of operation

A grant holds the models, the prompt, the tools on offer and a list of layers. `resolve.py` builds it. A layer is the
rules of one party (`verdicts.py`): the tools' own defaults, the registries, the access level, the role, a workflow
step, what was revoked in the session. The layers are independent of each other.

How layers combine:

- Each layer gives one verdict on a call: the strictest of its rules that match, or its default.
- The verdict of the grant is the strictest over all layers: deny before ask before allow.
- So a layer can only take rights away. Adding one never needs to look at the others, and their order only decides
  which of several equally strict layers is named as the reason.
- `intersection` applies the same to two grants. A turn that is resumed has the rights that both its stored grant and
  the current registry give.

Some facts of a call count like a layer: a refusal denies; a caution, repairs, `needs_user` and workspace data read
before (`asks_after_reading`) ask.

Answers are no layers. A role rule with *allow*, `confirm_allow`, ``--approve`` and a remembered rule (made by
the user with a decision) each turn an *ask* into *allow*. As a layer they could not do that, since the
strictest verdict counts. Limits on answers:

- They never answer a *deny*.
- They never answer for repairs or `needs_user`: such a call needs a decision of the user.
- A remembered rule belongs to one role, in which it answers within its scope; `remembered.py` says when it does not.

Rules are matched in the safe direction (`patterns.py`). A rule that is stricter than its layer's default is read
widely: any path, any further words. If it cannot be checked, it asks. A looser rule is read narrowly.

`permits` answers before anything is known of the arguments. The model is offered only tools that no layer denies in
every case.

Tried and rejected:

- Rules in one ordered list, of which the first match counts: editing an early rule changes what a later one
  means, and a registry of the user could stand before that of the site.
- A layer that allows what another one asks about: then a role could overrule the site. Only an answer of the user does.
- Merging the layers into one verdict per tool when the grant is made: the reason for an ask would be lost, and two
  grants could not be intersected.
"""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import field, replace
from itertools import chain

from chatops.domain.decisions import AnyArguments, RememberedRule, RuleScope
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import NO_CAPABILITIES, AccessLevel, CallFacts, Capabilities, ToolSpec, Verdict
from chatops.policy.budget import NO_BUDGET, Budget, strictest
from chatops.policy.patterns import cannot_be_checked, covers, matches, why_not_matched
from chatops.policy.remembered import SCOPES, scope_words, why_not_answered, why_not_made
from chatops.policy.rule_syntax import show_rule
from chatops.policy.sandbox import limited_by, stricter
from chatops.policy.verdicts import ApprovalRule, Judgement, Key, Layer, Rule

NOT_ON_OFFER = "not on offer in this role"


@frozen_dataclass
class Grant:
    """A role of a user: models, prompt, tools on offer, and the layers that judge calls."""

    role: str
    level: AccessLevel
    models: tuple[ModelTarget, ...]
    """The primary and its backups, in the order they are tried. Never empty."""
    prompt: str
    """The composed system prompt."""
    tools: tuple[ToolSpec, ...]
    """Tools offered to the model: known, and not denied in every case by a layer."""
    layers: tuple[Layer, ...]
    answers: tuple[ApprovalRule, ...] = ()
    responder: ModelTarget | None = None
    """Model that writes the final answer after a round of tools, if the role names one."""
    max_rounds: int = 10
    budget: Budget = NO_BUDGET
    """What a turn may spend before it asks, by the registries and the role."""
    run_budget: Budget = NO_BUDGET
    """The same by the command line. It stays with its turn, whatever role the user switches to."""
    sandbox: SandboxSpec | None = None
    """Limits of commands, see `policy.sandbox`; None: stored by a version without them."""
    ceiling: SandboxSpec | None = None
    """Limits that no decision of the user can exceed: those of the site; None: it sets none."""
    rule_scopes: tuple[RuleScope, ...] = SCOPES
    """Scopes of remembered rules that the registries leave on."""
    contain: bool = False
    """True if the role's turns are contained."""
    may_contain: bool = True
    """False if the site forbids contained turns."""
    registries: tuple[str, ...] = field(default=(), compare=False)
    """Digests of the registries that it was resolved from, the site's first, for the decision log."""

    def tool(self, name: str) -> ToolSpec | None:
        """Return the spec of a tool on offer, or None if it is not on offer."""
        return next((spec for spec in self.tools if spec.name == name), None)

    def confined(self, sandbox: SandboxSpec | None) -> "Grant":
        """Return this grant with the stricter of both limits of commands; None adds none."""
        if sandbox is None or self.sandbox is None:
            return replace(self, sandbox=self.sandbox or sandbox)
        return replace(self, sandbox=stricter(self.sandbox, sandbox))

    def capped(self, ceiling: SandboxSpec | None) -> "Grant":
        """Return this grant with the stricter of both ceilings; None adds none."""
        return self if ceiling is None else replace(self, ceiling=limited_by(self.ceiling, ceiling))

    def narrowed(self, *layers: Layer) -> "Grant":
        """Return this grant with further layers: the only way to change what it permits."""
        layers = (*self.layers, *(layer for layer in layers if layer not in self.layers))
        tools = tuple(spec for spec in self.tools if not any(_denies_always(layer, spec.name) for layer in layers))
        return replace(self, layers=layers, tools=tools)

    def answered_by(self, answers: Sequence[ApprovalRule] | None) -> "Grant":
        """Return this grant with only those standing answers that are in `answers`; None keeps all of them."""
        if answers is None:
            return self
        return replace(self, answers=tuple(answer for answer in self.answers if answer in answers))

    def remembering(self, scopes: Collection[RuleScope]) -> "Grant":
        """Return this grant with only those scopes of remembered rules that are in `scopes`."""
        return replace(self, rule_scopes=tuple(scope for scope in self.rule_scopes if scope in scopes))

    def intersection(self, now: "Grant") -> "Grant":
        """Return what both this (stored) grant and `now` permit, with the models, prompt and answers of `now`."""
        offered = {spec.name for spec in self.tools}
        both = replace(
            now,
            level=min(self.level, now.level),
            tools=tuple(spec for spec in now.tools if spec.name in offered),
            max_rounds=min(self.max_rounds, now.max_rounds),
            budget=strictest(self.budget, now.budget),
            run_budget=strictest(self.run_budget, now.run_budget),
            ceiling=limited_by(self.ceiling, now.ceiling) if now.ceiling is not None else self.ceiling,
            may_contain=self.may_contain and now.may_contain,
        )
        return both.confined(self.sandbox).remembering(self.rule_scopes).narrowed(*self.layers)

    def approvers(self, tool: str) -> tuple[str, ...]:
        """Return the approvers of `tool`, which one person has to satisfy together; empty: everyone may decide."""
        binding = (layer for layer in self.layers if layer.approver and any(rule.tool == tool for rule in layer.rules))
        return tuple(dict.fromkeys(approver for layer in binding for approver in layer.approver))

    def permits(self, tool: str) -> Judgement:
        """Judge `tool` before any facts are known: DENY if no arguments could make it permitted, else ALLOW."""
        for layer in self.layers:
            if _denies_always(layer, tool):
                return replace(judge_layer(layer, tool, CallFacts(arguments="{}")), verdict=Verdict.DENY, asks="")
        if self.tool(tool) is None:
            return Judgement(verdict=Verdict.DENY, reason=NOT_ON_OFFER)
        return Judgement(verdict=Verdict.ALLOW, reason=f"role {self.role}")

    def judge_tool(
        self, tool: str, *, remembered: Sequence[RememberedRule] = (), workspace_read: bool = False
    ) -> Judgement:
        """Return the verdict on all calls of `tool`, as far as it does not depend on their arguments."""
        permitted = self.permits(tool)
        if permitted.verdict is Verdict.DENY:
            return permitted
        return self.judge(tool, CallFacts(arguments="{}"), remembered=remembered, workspace_read=workspace_read)

    def judge(
        self, tool: str, facts: CallFacts, *, remembered: Sequence[RememberedRule] = (), workspace_read: bool = False
    ) -> Judgement:
        """Return the strictest verdict over all layers, or ALLOW if it is an *ask* that a rule of the user answers.

        `remembered` are rules of this user, filtered by role and scope here. `workspace_read` is True if the session
        has read workspace files; then tools with `asks_after_reading` ask. Facts with a refusal are denied. Facts with
        a caution or repairs ask, whatever the layers allow. Repairs and `needs_user` are never answered by a rule.
        """
        reasons = self.reasons(tool, facts, workspace_read=workspace_read)
        deciding = max(reasons, key=lambda judgement: judgement.verdict.strictness)
        if deciding.verdict is not Verdict.ASK or self.approvers(tool):
            return deciding
        unanswered: list[str] = []
        for answer in chain(self._answers(tool, facts), self._remembered_answers(tool, facts, remembered)):
            if isinstance(answer, Judgement):
                return replace(answer, reason=deciding.reason)
            unanswered.append(answer)
        return replace(deciding, unanswered=tuple(unanswered))

    def _answers(self, tool: str, facts: CallFacts) -> Iterator[Judgement | str]:
        """Yield the judgement of each rule in `answers` that answers an *ask*; for one that does not, the reason."""
        credential = "it can use a credential, which the rule does not name" if facts.credentials else ""
        why_no_answer = "the call had to be repaired" if facts.repairs else facts.needs_user or credential
        for answer in self.answers:
            if answer.tool != tool:
                continue
            is_match = matches(answer.pattern, facts)
            why_not = why_no_answer if is_match else why_not_matched(answer.pattern, facts)
            if why_not:
                yield f"{answer.source} does not apply: {why_not}"
            elif is_match:
                yield Judgement(
                    verdict=Verdict.ALLOW,
                    reason="",
                    answered_by=answer.source,
                    workspace_read=answer.workspace_read,
                    by=Rule(tool=tool, verdict=Verdict.ALLOW, pattern=answer.pattern),
                    key=answer.key,
                )

    def _remembered_answers(
        self, tool: str, facts: CallFacts, remembered: Sequence[RememberedRule]
    ) -> Iterator[Judgement | str]:
        """Yield the same as `_answers` for the remembered rules of this role."""
        for rule in remembered:
            if rule.role != self.role or rule.tool != tool or not matches(rule.pattern, facts):
                continue
            if reason := why_not_answered(rule, self._capabilities(tool), facts, scopes=self.rule_scopes):
                yield f"rule {rule.id} does not apply: {reason}"
            else:
                yield Judgement(verdict=Verdict.ALLOW, reason="", answered_by=rule_source(rule), rule=rule)

    def why_not_made(self, rule: RememberedRule, facts: CallFacts) -> str:
        """Return why `rule` cannot be made from the decision on a call of its tool; empty if it can."""
        return why_not_made(rule, self._capabilities(rule.tool), facts, scopes=self.rule_scopes)

    def _capabilities(self, tool: str) -> Capabilities:
        spec = self.tool(tool)
        return spec.capabilities if spec is not None else NO_CAPABILITIES

    def reasons(self, tool: str, facts: CallFacts, *, workspace_read: bool = False) -> tuple[Judgement, ...]:
        """Return the judgement of each layer and of the facts. The first of the strictest decides. Never empty."""
        reasons = tuple(self._reasons(tool, facts, workspace_read=workspace_read))
        return reasons or (Judgement(verdict=Verdict.DENY, reason=NOT_ON_OFFER),)

    def _reasons(self, tool: str, facts: CallFacts, *, workspace_read: bool) -> Iterator[Judgement]:
        # Before the layers stands what no rule can answer, so that it is the reason that the user reads.
        if facts.needs_user:
            yield Judgement(verdict=Verdict.ASK, reason=facts.needs_user)
        if facts.repairs:
            yield Judgement(verdict=Verdict.ASK, reason=f"the call had to be repaired: {facts.repairs[0]}")
        if facts.refusal:
            yield Judgement(verdict=Verdict.DENY, reason=facts.refusal)
        for layer in self.layers:
            yield judge_layer(layer, tool, facts)
        spec = self.tool(tool)
        if spec is None:
            yield Judgement(verdict=Verdict.DENY, reason=NOT_ON_OFFER)
        if facts.credentials:
            yield Judgement(verdict=Verdict.ASK, reason=f"it can use {'; '.join(facts.credentials)}")
        if facts.caution:
            yield Judgement(verdict=Verdict.ASK, reason=facts.caution)
        if spec is not None and spec.asks_after_reading and workspace_read:
            yield Judgement(verdict=Verdict.ASK, reason="this session has read workspace files")


def rule_source(rule: RememberedRule) -> str:
    """Return a remembered rule as the source of an answer: ``rule 12 (this folder, as coder)``."""
    return f"rule {rule.id} ({scope_words(rule.scope, rule.role)})"


def deciding_rule(decided_by: str) -> str:
    """Return ``rule 12`` or ``rule of role coder`` from a stored `decided_by`; empty if that is not a rule's source."""
    found = re.match(r"rule (?:\d+(?= \()|of role .+)", decided_by)
    return found[0] if found is not None else ""


def judge_layer(layer: Layer, tool: str, facts: CallFacts) -> Judgement:
    """Return the verdict of one layer: the strictest of its rules that match, or its default.

    A rule that is stricter than the default is read widely (any path, any further words), a looser one narrowly. A
    stricter rule that cannot be checked asks.
    """
    verdict, by = layer.default, None
    for rule in layer.rules:
        of_rule = _rule_verdict(rule, layer, facts) if rule.tool == tool else None
        if of_rule is not None and (by is None or of_rule.strictness > verdict.strictness):
            verdict, by = of_rule, rule
    asks = layer.asks if verdict is Verdict.ASK else ""
    key = by.key if by is not None and by.key else layer.key
    return Judgement(verdict=verdict, reason=layer.name, asks=asks, by=by, key=key)


def explain(
    grant: Grant,
    tool: str,
    facts: CallFacts | None = None,
    *,
    remembered: Sequence[RememberedRule] = (),
    workspace_read: bool = False,
    place: Callable[[Key], str] = lambda key: "",
) -> tuple[str, ...]:
    """Return lines for the user: the verdict and the layer that gave it, then the verdict of each layer with its rule.

    Without `facts` only what holds for every call of `tool` is explained. `place` returns file and line of a key.
    """
    if facts is None:
        judged = grant.judge_tool(tool, remembered=remembered, workspace_read=workspace_read)
    else:
        judged = grant.judge(tool, facts, remembered=remembered, workspace_read=workspace_read)
    head = f"{tool}: {judged.verdict.value}, decided by {judged.reason}"
    if judged.answered_by:
        head = f"{tool}: allow, the ask of {judged.reason} is answered by {judged.answered_by}"
    asked_about = facts if facts is not None else CallFacts(arguments="{}")
    reasons = grant.reasons(tool, asked_about, workspace_read=workspace_read)
    layers = (
        "  ".join(filter(None, (f"  {reason.verdict.value:<5}", reason.reason, rule_of(reason), place(reason.key))))
        for reason in reasons
    )
    return (head, *(f"  {reason}" for reason in judged.unanswered), *layers)


def rule_of(judged: Judgement) -> str:
    """Return the rule about arguments that gave the verdict of a layer; empty if none did."""
    by = judged.by
    return "" if by is None or isinstance(by.pattern, AnyArguments) else show_rule(by.tool, by.pattern)


def tool_difference(before: Grant, after: Grant) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the names of tools that only `after` offers and of those that only `before` offers, each in order."""
    old, new = [spec.name for spec in before.tools], [spec.name for spec in after.tools]
    return tuple(name for name in new if name not in old), tuple(name for name in old if name not in new)


def _denies_always(layer: Layer, tool: str) -> bool:
    """Return True if `layer` denies `tool` whatever its arguments are."""
    rules = [rule for rule in layer.rules if rule.tool == tool]
    if any(rule.verdict is Verdict.DENY and isinstance(rule.pattern, AnyArguments) for rule in rules):
        return True
    return layer.default is Verdict.DENY and all(rule.verdict is Verdict.DENY for rule in rules)


def _rule_verdict(rule: Rule, layer: Layer, facts: CallFacts) -> Verdict | None:
    """Return the verdict of a rule on a call, or None if it does not apply."""
    if rule.verdict.strictness < layer.default.strictness:
        return rule.verdict if matches(rule.pattern, facts) else None
    if covers(rule.pattern, facts):
        return rule.verdict
    if layer.default is Verdict.ALLOW and rule.verdict is not Verdict.ALLOW and cannot_be_checked(rule.pattern, facts):
        return Verdict.ASK
    return None
