"""Remembered rules: standing answers that users gave with their decisions.

A rule of scope *session* ends with its session. The others outlive the session that they come from.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatops.domain.decisions import RememberedRule, RuleScope
from chatops.domain.ids import CallId, SessionId
from chatops.store import audit
from chatops.store.base import Late, RuleRow, StorePart
from chatops.store.connection import Connection, SqlRow, integer, integer_or_none, readable, real, real_or_none, text
from chatops.store.sessions import full_id

if TYPE_CHECKING:
    from chatops.store import codec
else:
    codec = Late("chatops.store.codec")

_RULES = (
    "id, scope, folder, role, tool, pattern, definition, source_call, by_uid, made_at, uses, used_at FROM rules "
    "WHERE revoked_at IS NULL"
)


def add_rule(rows: Connection, session_id: SessionId, rule: RememberedRule, *, now: float) -> None:
    """Store a rule. The very same one in force is stored once."""
    owner = session_id if rule.scope is RuleScope.SESSION else None
    columns = {
        "scope": rule.scope.value,
        "folder": rule.folder,
        "role": rule.role,
        "tool": rule.tool,
        "pattern": codec.encode_pattern(rule.pattern),
        "definition": rule.definition,
        "source_call": rule.source_call,
    }
    same = " AND ".join(f"{name} = ?" for name in columns)
    found = rows.one(
        f"SELECT 1 FROM rules WHERE revoked_at IS NULL AND session_id IS NOT DISTINCT FROM ? "
        f"AND by_uid IS NOT DISTINCT FROM ? AND {same}",
        owner,
        rule.uid,
        *columns.values(),
    )
    if found is None:
        rows.insert("rules", session_id=owner, by_uid=rule.uid, made_at=now, **columns)


def count_use(rows: Connection, rule_id: str, *, now: float) -> None:
    """Count that a rule answered for a call that starts with this commit."""
    rows.run("UPDATE rules SET uses = uses + 1, used_at = ? WHERE CAST(id AS TEXT) = ?", now, rule_id)


class RememberedRules(StorePart):
    """The methods of `Store` about remembered rules."""

    def rules(
        self, *, session_id: SessionId | None = None, uid: int | None = None, tool: str | None = None
    ) -> list[RuleRow]:
        """Return the remembered rules in force, for all roles, oldest first. A damaged one is left out.

        With `session_id`, rules of scope *session* that belong to another session are left out; with `uid`, rules that
        another user made; with `tool`, rules about other tools.
        """
        with self._rows.read():
            found = self._rows.all(
                f"SELECT {_RULES} AND (?1 IS NULL OR session_id IS NULL OR session_id = ?1) "
                "AND (?2 IS NULL OR by_uid IS NULL OR by_uid = ?2) AND (?3 IS NULL OR tool = ?3) "
                f"AND {self._rows.OWN} ORDER BY id",
                None if session_id is None else full_id(self._rows, session_id),
                uid,
                tool,
            )
        return readable(found, _decode_rule, what="a remembered rule")

    def revoke_rule(self, rule_id: str) -> bool:
        """Revoke a rule. Returns False if no rule in force has this id. The row stays, with its uses."""
        sql = "UPDATE rules SET revoked_at = ? WHERE CAST(id AS TEXT) = ? AND revoked_at IS NULL"
        now = self._clock()
        with self._rows.write():
            revoked = self._rows.run(sql, now, rule_id).rowcount > 0
            if revoked:
                entry = {"kind": "revoked", "rule": rule_id, "by": audit.this_user(self.surface)}
                audit.append(self._rows, audit.ELSEWHERE, [entry], now=now)
            return revoked


def _decode_rule(row: SqlRow) -> RuleRow:
    rule = RememberedRule(
        id=str(integer(row[0])),
        scope=RuleScope(text(row[1])),
        folder=text(row[2]),
        role=text(row[3]),
        tool=text(row[4]),
        pattern=codec.decode_pattern(row[5]),
        definition=text(row[6]),
        source_call=CallId(text(row[7])),
        uid=integer_or_none(row[8]),
    )
    return RuleRow(rule=rule, made_at=real(row[9]), uses=integer(row[10]), used_at=real_or_none(row[11]))
