"""Pending calls, the decisions posted for them by other processes, the log of all decisions, and remembered rules.

A posted decision is for the digest that was shown. It is consumed when the turn records a decision on the call or the
call has its result. A decision on a digest that is no longer pending is void.

Remembered rules are standing answers that users gave with their decisions. A rule of scope *session* ends with its
session. The others outlive the session that they come from.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.decisions import Approved, Edited, Principal, Rejected, RememberedRule, RuleScope
from chatops.domain.errors import AlreadyDecidedError, UnreadableError
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.store import audit
from chatops.store.base import DecisionRow, Late, PendingCallRow, RuleRow, StorePart
from chatops.store.connection import (
    Connection,
    SqlRow,
    Value,
    integer,
    integer_or_none,
    readable,
    real,
    real_or_none,
    text,
)
from chatops.store.sessions import full_id

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatops.domain.events import PendingCall
    from chatops.engine import inputs, state, view
    from chatops.engine.effects import DecisionRecord, TurnStep
    from chatops.engine.inputs import DecideCall
    from chatops.engine.state import TurnState
    from chatops.store import codec
else:
    codec = Late("chatops.store.codec")
    inputs, state, view = (Late(f"chatops.engine.{name}") for name in ("inputs", "state", "view"))

_POSTED = "a posted decision"
_RULES_IN_FORCE = (
    "id, scope, folder, role, tool, pattern, definition, source_call, by_uid, made_at, uses, used_at FROM rules "
    "WHERE revoked_at IS NULL"
)


def store_decisions(rows: Connection, step: TurnStep, *, now: float) -> None:
    """Update queue, posted decisions and log to the state after `step`. Raises AlreadyDecidedError."""
    for record in step.decisions:
        _must_be_first(rows, record)
        _log_decision(rows, record, step.state, now=now)
        if record.by.rule:
            count_use(rows, record.by.rule, now=now)
    _drop_posted(rows, step)
    waiting = {pending.call.id: pending for pending in view.own_pending_calls(step.state)}
    turn_id = step.state.turn_id
    for (stored,) in rows.all("SELECT call_id FROM pending WHERE turn_id = ?", turn_id):
        if CallId(text(stored)) not in waiting:
            rows.run("DELETE FROM pending WHERE call_id = ?", stored)
    for pending in waiting.values():
        _put_pending(rows, pending, turn_id=turn_id, session_id=step.state.session_id, now=now)


def _must_be_first(rows: Connection, record: DecisionRecord) -> None:
    """Raise AlreadyDecidedError if another decision was posted first, unless this one overrules it.

    A posted decision that cannot be read is void.
    """
    sql = f"SELECT decision, by, {rows.PRINCIPAL} FROM posted WHERE call_id = ? AND digest = ?"
    posted = rows.one(sql, record.call_id, record.digest)
    if posted is None:
        return
    try:
        decision, claimed, member = posted
        first, by = codec.decode_decision(decision), _read_author(claimed, member)
    except UnreadableError:
        return
    # A decision that denies what is approved and not started counts although it came second.
    overrules = isinstance(record.decision, Rejected) and isinstance(first, Approved | Edited)
    if (first, by) != (record.decision, record.by) and not overrules:
        raise AlreadyDecidedError(
            f"Call {record.call_id} was already decided by {by}; the first decision counts.",
            advice="`chatops approvals list` shows what is still pending.",
        )


def _read_author(claimed: Value, member: Value) -> Principal:
    return with_member(codec.decode_principal(claimed), member)


def with_member(claimed: Principal, member: Value) -> Principal:
    """Return who posted something: what that process said, with the role that the database has recorded.

    A rule posts nothing, and would be named in place of the role.
    """
    return replace(claimed, member=text(member), rule="")


def _encode_claim(by: Principal) -> str:
    """Return who posts a decision, as this process says it. Its role is recorded by the database instead."""
    return codec.encode_principal(replace(by, member=""))


def _put_pending(rows: Connection, pending: PendingCall, *, turn_id: TurnId, session_id: SessionId, now: float) -> None:
    """Put a call into the queue.

    If it asks again with another digest, it keeps its position, and its waiting time restarts.
    """
    rows.run(
        "INSERT INTO pending (call_id, turn_id, session_id, tool, digest, role, model, body, requested_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (call_id) DO UPDATE SET "
        "requested_at = CASE WHEN pending.digest = excluded.digest THEN pending.requested_at "
        "ELSE excluded.requested_at END, "
        "tool = excluded.tool, digest = excluded.digest, role = excluded.role, model = excluded.model, "
        "body = excluded.body",
        pending.call.id,
        turn_id,
        session_id,
        pending.call.name,
        pending.digest,
        pending.role,
        pending.model,
        codec.encode_pending(pending),
        now,
    )


def _drop_posted(rows: Connection, step: TurnStep) -> None:
    """Delete the posted decisions that no call waits for after `step`, and those that cannot be read."""
    phase = step.state.phase
    calls = phase.calls if isinstance(phase, state.InRound | state.Stopping) else ()
    still_open = {item.call.id for item in calls if item.status.kind != "settled"}
    still_open -= {record.call_id for record in step.decisions}
    sql = f"SELECT call_id, digest, decision, by, {rows.PRINCIPAL} FROM posted WHERE turn_id = ?"
    for row in rows.all(sql, step.state.turn_id):
        call_id, *_ = row
        # A call takes one posted decision, so one that cannot be read would keep out all others.
        if CallId(text(call_id)) not in still_open or not readable([row], _decode_posted, what=_POSTED):
            rows.run("DELETE FROM posted WHERE call_id = ?", call_id)


def _log_decision(rows: Connection, record: DecisionRecord, turn: TurnState, *, now: float) -> None:
    """Add to the log. The time is when the user decided, which for a posted decision is before the turn took it."""
    proposed = (turn.phase.proposed_under.role, turn.phase.model) if isinstance(turn.phase, state.InRound) else ("", "")
    role, model = rows.one("SELECT role, model FROM pending WHERE call_id = ?", record.call_id) or proposed
    posted = rows.one(
        "SELECT decided_at FROM posted WHERE call_id = ? AND digest = ? AND by = ?",
        record.call_id,
        record.digest,
        _encode_claim(record.by),
    )
    rows.insert(
        "decisions",
        call_id=record.call_id,
        session_id=turn.session_id,
        tool=record.tool,
        digest=record.digest,
        role=role,
        model=model,
        decision=codec.encode_recorded(record.decision),
        by_uid=record.by.uid,
        by=codec.encode_principal(record.by),
        decided_at=now if posted is None else posted[0],
    )


class DecisionQueue(StorePart):
    """The methods of `Store` about pending calls, decisions that other processes post, and the log of decisions."""

    def pending_calls(self, *, session_id: SessionId | None = None) -> list[PendingCallRow]:
        """Return all pending calls, oldest turn first, those of a turn in call order.

        With a session, only its own and those of its child sessions. A damaged one is left out: nobody can approve it.
        """
        principal = self._rows.PRINCIPAL
        with self._rows.query():
            found = self._rows.all(
                f"SELECT q.session_id, q.turn_id, q.body, q.requested_at, p.decision, p.by, p.decided_at, {principal} "
                "FROM pending q LEFT JOIN posted p ON p.call_id = q.call_id AND p.digest = q.digest "
                "WHERE ?1 IS NULL OR q.session_id = ?1 OR substr(q.session_id, 1, length(?1) + 1) = ?1 || '-' "
                "ORDER BY q.seq",
                session_id,
            )
        return _in_call_order(readable(found, _decode_pending, what="a row of the queue"))

    def post_decision(self, decided: DecideCall) -> bool:
        """Post a decision for the turn. Returns False if another one was first or the call is not pending."""
        rows, decision, by = self._rows, codec.encode_recorded(decided.decision), _encode_claim(decided.by)
        with rows.write():
            if rows.POST:
                taken = bool((rows.one(rows.POST, decided.call_id, decided.digest, decision, by) or (False,))[0])
                reach("in_posting")
                return taken
            waiting = rows.one(
                "SELECT turn_id FROM pending WHERE call_id = ? AND digest = ?", decided.call_id, decided.digest
            )
            first = rows.one("SELECT digest FROM posted WHERE call_id = ?", decided.call_id)
            is_posted = first is not None and first[0] == decided.digest
            if waiting is None or is_posted:
                return False
            rows.run("DELETE FROM posted WHERE call_id = ?", decided.call_id)
            rows.insert(
                "posted",
                call_id=decided.call_id,
                turn_id=waiting[0],
                digest=decided.digest,
                decision=decision,
                by=by,
                decided_at=self._clock(),
            )
            reach("in_posting")
            return True

    def withdraw_decision(self, decided: DecideCall) -> None:
        """Remove a posted decision that the turn does not take, so that the call can be decided again.

        Another decision on the call, posted since, stays.
        """
        rows = self._rows
        with rows.write():
            found = rows.all(
                f"SELECT seq, call_id, digest, decision, by, {rows.PRINCIPAL} FROM posted WHERE call_id = ?",
                decided.call_id,
            )
            # Compared by what they say: not every program writes them as this one does.
            posted = readable(found, lambda row: (row[0], _decode_posted(row[1:])), what=_POSTED)
            for number in (number for number, decision in posted if decision == decided):
                rows.run("DELETE FROM posted WHERE seq = ?", number)

    def posted_decisions(self, turn_id: TurnId) -> list[DecideCall]:
        """Return the decisions posted for a turn and not consumed by a commit yet. A damaged one is void.

        A commit consumes a decision if its step holds a DecisionRecord for the call or settles the call.
        """
        with self._rows.query():
            found = self._rows.all(
                f"SELECT call_id, digest, decision, by, {self._rows.PRINCIPAL} FROM posted "
                "WHERE turn_id = ? ORDER BY seq",
                turn_id,
            )
        return readable(found, _decode_posted, what=_POSTED)

    def decisions(self, *, session_id: SessionId | None = None, limit: int = 1000) -> list[DecisionRow]:
        """Return the newest `limit` entries of the log, oldest first. A damaged one is left out; doctor reports it."""
        with self._rows.read():
            found = self._rows.all(
                "SELECT call_id, session_id, tool, digest, decision, by, decided_at, role, model FROM decisions "
                "WHERE ?1 IS NULL OR session_id = ?1 ORDER BY seq DESC LIMIT ?2",
                session_id,
                limit,
            )
        return readable(reversed(found), _decode_entry, what="an entry of the decision log")


def _in_call_order(queued: Sequence[PendingCallRow]) -> list[PendingCallRow]:
    """Sort calls by turn, those of a turn as the model made them, and not as their inspections ended."""
    # In reverse, so that the place of the first call of each turn stays.
    first_places = {call.turn_id: place for place, call in reversed(list(enumerate(queued)))}
    return sorted(queued, key=lambda call: (first_places[call.turn_id], _numbers_in(call.pending.call.id)))


def _numbers_in(call_id: CallId) -> tuple[int, ...]:
    _, *parts = call_id.split(".")
    return tuple(int(part) for part in parts if part.isdecimal())


def _decode_posted(row: SqlRow) -> DecideCall:
    call_id, digest, decision, by, member = row
    return inputs.DecideCall(
        call_id=CallId(text(call_id)),
        digest=text(digest),
        decision=codec.decode_decision(decision),
        by=_read_author(by, member),
    )


def _decode_pending(row: SqlRow) -> PendingCallRow:
    owner, turn_id, body, requested_at, decision, by, decided_at, member = row
    pending = codec.decode_pending(body)
    session_id = SessionId(text(owner))
    decided = None
    posted_rows = [] if decision is None else [(pending.call.id, pending.digest, decision, by, member)]
    # At most one: a decision that cannot be read is void.
    for posted in readable(posted_rows, _decode_posted, what=_POSTED):
        decided = DecisionRow(
            call_id=pending.call.id,
            session_id=session_id,
            tool=pending.call.name,
            digest=pending.digest,
            decision=posted.decision,
            by=posted.by,
            decided_at=real(decided_at),
            role=pending.role,
            model=pending.model,
        )
    return PendingCallRow(
        session_id=session_id,
        turn_id=TurnId(text(turn_id)),
        pending=pending,
        requested_at=real(requested_at),
        decided=decided,
    )


def _decode_entry(row: SqlRow) -> DecisionRow:
    call_id, session_id, tool, digest, decision, by, decided_at, role, model = row
    return DecisionRow(
        call_id=CallId(text(call_id)),
        session_id=SessionId(text(session_id)),
        tool=text(tool),
        digest=text(digest),
        decision=codec.decode_recorded(decision),
        by=codec.decode_principal(by),
        decided_at=real(decided_at),
        role=text(role),
        model=text(model),
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
                f"SELECT {_RULES_IN_FORCE} AND (?1 IS NULL OR session_id IS NULL OR session_id = ?1) "
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
    id_, scope, folder, role, tool, pattern, definition, source_call, uid, made_at, uses, used_at = row
    rule = RememberedRule(
        id=str(integer(id_)),
        scope=RuleScope(text(scope)),
        folder=text(folder),
        role=text(role),
        tool=text(tool),
        pattern=codec.decode_pattern(pattern),
        definition=text(definition),
        source_call=CallId(text(source_call)),
        uid=integer_or_none(uid),
    )
    return RuleRow(rule=rule, made_at=real(made_at), uses=integer(uses), used_at=real_or_none(used_at))
