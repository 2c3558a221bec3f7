"""``chatops policy replay``: judge the verdicts of the audit log again, by the facts that the log keeps of the calls.

Nothing is inspected, so that files which have changed since change no verdict. What answered outside of a registry
(``--approve``, the copy of a contained turn, remembered rules that are still in force) answers again.
"""

import json
from argparse import Namespace
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, replace
from enum import StrEnum
from typing import Any

from pydantic import TypeAdapter, ValidationError

from chatops.commands.application import open_app
from chatops.commands.context import find_session
from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import ExactArguments, RuleScope
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import CallFacts, Verdict
from chatops.domain.wording import plural
from chatops.engine.containment import ANSWERED_BY
from chatops.headless.screen import screen, table
from chatops.policy.grant import Grant, rule_of
from chatops.policy.rule_syntax import parse_rule
from chatops.policy.verdicts import ApprovalRule, Judgement, Layer
from chatops.store.audit import entry_of, sha256
from chatops.store.base import AuditRow
from chatops.wiring.app import App
from chatops.wiring.explain import place_of_key

APPROVE_PREFIX = "--approve "
"""Begins the source of an answer of the command line."""
_FACTS = TypeAdapter(CallFacts)
_LAYERS = TypeAdapter(tuple[Layer, ...])


class _Skipped(StrEnum):
    """Why the verdict on a call cannot be given again, in words."""

    NO_FACTS = "without kept facts"
    NO_LAYER = "no layer had decided"
    NO_TOOL = "tools that are not here"
    DAMAGED = "damaged rows"


@frozen_dataclass
class _Difference:
    """How the verdict on a call differs now. Calls with equal differences are counted together.

    Fields with ``before`` in their name are as logged, the others as judged now.
    """

    role: str
    tool: str
    before: str
    layer_before: str
    answered_before: str
    verdict: str
    layer: str
    answered_by: str
    rule: str
    place: str


def run(arguments: Namespace) -> int:
    """Judge logged calls again, and print the verdicts that differ. Exit code 0, whatever differs."""
    with open_app(arguments) as opened:
        names = [find_session(opened.store, name).id for name in arguments.session]
        replay = _LogReplay(opened, since=arguments.since or 0)
        for row in opened.store.audit():
            if not names or row.session_id in names:
                replay.take(row)
    _report(replay, as_json=arguments.output_format == "json")
    return 0


def _report(replay: "_LogReplay", *, as_json: bool) -> None:
    # Most calls first.
    ordered = sorted(replay.changed.items(), key=lambda item: (-len(item[1]), str(item[0])))
    count = sum(map(len, replay.changed.values()))
    if as_json:
        values: list[JsonValue] = [
            {**asdict(difference), "count": len(calls), "call": calls[-1]} for difference, calls in ordered
        ]
        skipped = {reason.value: number for reason, number in replay.skipped.items()}
        screen().json({"judged": replay.judged, "differing": count, "differences": values, "not_judged": skipped})
        return
    rows = [
        (
            str(len(calls)),
            difference.role,
            difference.tool,
            f"{difference.before} -> {difference.verdict}",
            difference.answered_before or difference.layer_before,
            calls[-1],
            "  ".join(filter(None, (difference.answered_by or difference.layer, difference.rule, difference.place))),
        )
        for difference, calls in ordered
    ]
    if rows:
        screen().answer(table(("CALLS", "ROLE", "TOOL", "VERDICT", "BY", "SUCH AS", "NOW BY"), rows))
    screen().say(f"{plural(replay.judged, 'call')} judged, {count or 'none'} {'differs' if count == 1 else 'differ'}.")
    for reason, number in replay.skipped.items():
        screen().say(f"Not judged: {number} ({reason.value}).")


class _LogReplay:
    """Judges entries of the log under the registries in force. Grants and rules are looked up once."""

    def __init__(self, opened: App, *, since: float) -> None:
        self._opened = opened
        self._since = since
        self._grants: dict[tuple[str, str], Grant | ConfigError] = {}
        self._rules = tuple(row.rule for row in opened.store.rules(uid=opened.principal.uid))
        self.judged = 0
        self.changed: dict[_Difference, list[str]] = {}
        """The calls on which the verdict differs."""
        self.skipped: Counter[_Skipped] = Counter()
        """Numbers of verdicts that cannot be judged again."""

    def take(self, row: AuditRow) -> None:
        """Judge the call of a row again, if it is a verdict."""
        try:
            entry = entry_of(row.body)
            if entry.get("kind") != "verdict" or entry["at"] < self._since:
                return
            judged = self.judge(entry)
        except (ValueError, LookupError, TypeError, AttributeError):
            # The row is damaged, or no chatops wrote it: its values may be of any type.
            self.skipped[_Skipped.DAMAGED] += 1
            return
        if isinstance(judged, _Skipped):
            self.skipped[judged] += 1
            return
        self.judged += 1
        before, layer_before = str(entry.get("verdict")), str(entry["layer"])
        if (before, layer_before) != (judged.verdict.value, judged.reason):
            difference = _Difference(
                role=entry["role"],
                tool=entry["tool"],
                before=before,
                layer_before=layer_before,
                answered_before=str(entry.get("answered_by", "")),
                verdict=judged.verdict.value,
                layer=judged.reason,
                answered_by=judged.answered_by,
                rule=rule_of(judged),
                place=place_of_key(self._opened.loaded, judged.key),
            )
            self.changed.setdefault(difference, []).append(str(entry.get("call_id")))

    def judge(self, entry: Mapping[str, Any]) -> Judgement | _Skipped:
        """Return the verdict on a logged call now, or why there is none."""
        tool = entry["tool"]
        if not entry.get("layer"):
            return _Skipped.NO_LAYER
        if self._opened.catalog.get(tool) is None:
            return _Skipped.NO_TOOL
        grant = self._grant(entry["role"], entry.get("layers", ()))
        if isinstance(grant, ConfigError):
            return Judgement(verdict=Verdict.DENY, reason=str(grant))
        if entry.get("facts") is None:
            # Without them it can still be told that the role does not have the tool at all.
            permitted = grant.permits(tool)
            return permitted if permitted.verdict is Verdict.DENY else _Skipped.NO_FACTS
        if (facts := _read_facts(entry["facts"])) is None:
            return _Skipped.NO_FACTS
        return self._judge_call(entry, facts, grant)

    def _judge_call(self, entry: Mapping[str, Any], facts: CallFacts, grant: Grant) -> Judgement | _Skipped:
        """Judge a call with its facts, under what answered it then: ``--approve``, remembered rules, the copy."""
        tool, answered_by = entry["tool"], entry.get("answered_by", "")
        if answered_by.startswith(APPROVE_PREFIX):
            grant = replace(grant, answers=(*grant.answers, *self._approval_rules(answered_by)))
        # A call's id begins with that of its session.
        call_prefix = f"{entry['session']}."
        remembered = tuple(
            rule
            for rule in self._rules
            if rule.scope is not RuleScope.SESSION or rule.source_call.startswith(call_prefix)
        )
        patterns = [answer.pattern for answer in grant.answers if answer.tool == tool]
        patterns += [rule.pattern for rule in remembered if rule.tool == tool]
        names_arguments = any(isinstance(pattern, ExactArguments) for pattern in patterns)
        if names_arguments and sha256(facts.arguments) != entry["sha256"]:
            # Of some arguments the log keeps digests alone, and a rule that names exact arguments cannot match those.
            return _Skipped.NO_FACTS
        judged = grant.judge(tool, facts, remembered=remembered, workspace_read=bool(entry.get("read")))
        if judged.verdict is Verdict.ASK and answered_by == ANSWERED_BY:
            # The copy of a contained turn answers again.
            return replace(judged, verdict=Verdict.ALLOW, answered_by=ANSWERED_BY)
        return judged

    def _grant(self, role: str, layers: JsonValue) -> Grant | ConfigError:
        key = (role, json.dumps(layers))
        if key not in self._grants:
            try:
                self._grants[key] = self._opened.grant_for(role).narrowed(*_LAYERS.validate_python(layers))
            except ConfigError as error:
                self._grants[key] = error
        return self._grants[key]

    def _approval_rules(self, source: str) -> tuple[ApprovalRule, ...]:
        """Return the rule of an ``--approve``; none if it cannot be read any more, as when its tool is gone."""
        with suppress(ConfigError):
            tools = {spec.name: spec.capabilities for spec in self._opened.catalog.specs}
            tool, pattern = parse_rule(source.removeprefix(APPROVE_PREFIX), tools=tools)
            return (ApprovalRule(tool=tool, pattern=pattern, source=source),)
        return ()


def _read_facts(logged: Mapping[str, Any]) -> CallFacts | None:
    """Return the facts of a call from the log; None if its arguments were not kept or the facts had another shape."""
    if logged.get("arguments") is None:
        return None
    try:
        return _FACTS.validate_python({**logged, "arguments": canonical(logged["arguments"])})
    except ValidationError:
        return None
