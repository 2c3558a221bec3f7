"""Remembered rules."""

from dataclasses import replace

from chatops.domain.decisions import RememberedRule, RuleScope
from chatops.domain.ids import SessionId
from chatops.store.base import RuleRow
from tests.store.memory.tables import Memory


def add(memory: Memory, session_id: SessionId, rule: RememberedRule, *, now: float) -> None:
    """Store a rule, the very same one once."""
    owner = session_id if rule.scope is RuleScope.SESSION else None
    if any((of, replace(row.rule, id="")) == (owner, rule) for of, row in memory.rules.values()):
        return
    memory.rule_ids.append(str(len(memory.rule_ids) + 1))
    number = memory.rule_ids[-1]
    memory.rules[number] = (owner, RuleRow(rule=replace(rule, id=number), made_at=now, uses=0, used_at=None))


def count_use(memory: Memory, rule_id: str, *, now: float) -> None:
    """Count that a rule answered."""
    if rule_id in memory.rules:
        owner, row = memory.rules[rule_id]
        memory.rules[rule_id] = (owner, replace(row, uses=row.uses + 1, used_at=now))


def in_force(memory: Memory, *, session_id: SessionId | None, uid: int | None, tool: str | None) -> list[RuleRow]:
    """See `Store.rules`."""
    return [
        row
        for owner, row in memory.rules.values()
        if (session_id is None or owner in (None, session_id))
        and (uid is None or row.rule.uid in (None, uid))
        and tool in (None, row.rule.tool)
    ]
