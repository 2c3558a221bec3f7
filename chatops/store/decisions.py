"""Pending calls, the decisions posted for them by other processes, and the log of all decisions.

A posted decision is for the digest that was shown. It is consumed when the turn records a decision on the call or the
call has its result. A decision on a digest that is no longer pending is void.
"""

import logging

from chatops.config.failpoints import reach
from chatops.domain.errors import UnreadableError
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.engine.effects import DecisionRecord, TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.state import InRound, TurnState
from chatops.engine.view import pending_calls
from chatops.store import remembered
from chatops.store.base import DecisionRow, PendingCallRow
from chatops.store.codec import (
    decode_decision,
    decode_pending,
    decode_principal,
    decode_recorded,
    encode_pending,
    encode_principal,
    encode_recorded,
)
from chatops.store.connection import Connection, SqlRow, real, text
from chatops.store.rules import already_decided
from chatops.store.turn_rules import in_call_order, open_calls, overrules

log = logging.getLogger(__name__)


def follow(rows: Connection, step: TurnStep, *, now: float) -> None:
    """Update queue, posted decisions and log to the state after `step`. Raises AlreadyDecidedError."""
    for record in step.decisions:
        _must_be_first(rows, record)
        _log(rows, record, step.state, now=now)
        if record.by.rule:
            remembered.count_use(rows, record.by.rule, now=now)
    _consume(rows, step)
    waiting = {pending.call.id: pending for pending in pending_calls(step.state)}
    turn_id = step.state.turn_id
    for (stored,) in rows.all("SELECT call_id FROM pending WHERE turn_id = ?", turn_id):
        if CallId(text(stored)) not in waiting:
            rows.run("DELETE FROM pending WHERE call_id = ?", stored)
    for pending in waiting.values():
        _ask(rows, pending, turn_id=turn_id, session_id=step.state.session_id, now=now)


def _must_be_first(rows: Connection, record: DecisionRecord) -> None:
    """Raise AlreadyDecidedError if another decision was posted first, unless this one overrules it.

    A posted decision that cannot be read is void.
    """
    left = rows.one("SELECT decision, by FROM posted WHERE call_id = ? AND digest = ?", record.call_id, record.digest)
    if left is None:
        return
    try:
        first = (decode_decision(left[0]), decode_principal(left[1]))
    except UnreadableError:
        return
    if first != (record.decision, record.by) and not overrules(record.decision, first[0]):
        raise already_decided(record.call_id, by=first[1])


def _ask(rows: Connection, pending: PendingCall, *, turn_id: TurnId, session_id: SessionId, now: float) -> None:
    """Put a call into the queue.

    If it asks again with another digest, it keeps its position, and its waiting time restarts.
    """
    rows.run(
        "INSERT INTO pending (call_id, turn_id, session_id, tool, digest, role, model, body, requested_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (call_id) DO UPDATE SET "
        "requested_at = CASE WHEN digest = excluded.digest THEN requested_at ELSE excluded.requested_at END, "
        "tool = excluded.tool, digest = excluded.digest, role = excluded.role, model = excluded.model, "
        "body = excluded.body",
        pending.call.id,
        turn_id,
        session_id,
        pending.call.name,
        pending.digest,
        pending.role,
        pending.model,
        encode_pending(pending),
        now,
    )


def _consume(rows: Connection, step: TurnStep) -> None:
    still_open = open_calls(step.state) - {record.call_id for record in step.decisions}
    for (stored,) in rows.all("SELECT call_id FROM posted WHERE turn_id = ?", step.state.turn_id):
        if CallId(text(stored)) not in still_open:
            rows.run("DELETE FROM posted WHERE call_id = ?", stored)


def _log(rows: Connection, record: DecisionRecord, state: TurnState, *, now: float) -> None:
    """Add to the log. The time is when the user decided, which for a posted decision is before the turn took it."""
    proposed = (state.phase.proposed_under.role, state.phase.model) if isinstance(state.phase, InRound) else ("", "")
    asked = rows.one("SELECT role, model FROM pending WHERE call_id = ?", record.call_id) or proposed
    answered = rows.one(
        "SELECT decided_at FROM posted WHERE call_id = ? AND digest = ? AND by = ?",
        record.call_id,
        record.digest,
        encode_principal(record.by),
    )
    rows.insert(
        "decisions",
        call_id=record.call_id,
        session_id=state.session_id,
        tool=record.tool,
        digest=record.digest,
        role=asked[0],
        model=asked[1],
        decision=encode_recorded(record.decision),
        by_uid=record.by.uid,
        by=encode_principal(record.by),
        decided_at=now if answered is None else answered[0],
    )


def pending(rows: Connection, *, session_id: SessionId | None) -> list[PendingCallRow]:
    """Return all pending calls, oldest turn first. A damaged row is left out, so it cannot be approved."""
    found = rows.all(
        "SELECT q.session_id, q.turn_id, q.body, q.requested_at, p.decision, p.by, p.decided_at "
        "FROM pending q LEFT JOIN posted p ON p.call_id = q.call_id AND p.digest = q.digest "
        "WHERE ?1 IS NULL OR q.session_id = ?1 ORDER BY q.seq",
        session_id,
    )
    queued: list[PendingCallRow] = []
    for row in found:
        try:
            queued.append(_queued(row))
        except UnreadableError as error:
            log.warning("a row of the queue is left out: %s", error)
    return in_call_order(queued)


def _queued(row: SqlRow) -> PendingCallRow:
    pending = decode_pending(row[2])
    session_id = SessionId(text(row[0]))
    decided = None
    if row[4] is not None:
        decided = DecisionRow(
            call_id=pending.call.id,
            session_id=session_id,
            tool=pending.call.name,
            digest=pending.digest,
            decision=decode_decision(row[4]),
            by=decode_principal(row[5]),
            decided_at=real(row[6]),
            role=pending.role,
            model=pending.model,
        )
    return PendingCallRow(
        session_id=session_id,
        turn_id=TurnId(text(row[1])),
        pending=pending,
        requested_at=real(row[3]),
        decided=decided,
    )


def post(rows: Connection, decided: DecideCall, *, now: float) -> bool:
    """Post a decision. Returns False if the call is not pending under this digest or was decided already."""
    waiting = rows.one("SELECT turn_id FROM pending WHERE call_id = ? AND digest = ?", decided.call_id, decided.digest)
    if waiting is None:
        return False
    first = rows.one("SELECT digest FROM posted WHERE call_id = ?", decided.call_id)
    if first is not None and first[0] == decided.digest:
        return False
    rows.run("DELETE FROM posted WHERE call_id = ?", decided.call_id)
    rows.insert(
        "posted",
        call_id=decided.call_id,
        turn_id=waiting[0],
        digest=decided.digest,
        decision=encode_recorded(decided.decision),
        by=encode_principal(decided.by),
        decided_at=now,
    )
    reach("in_posting")
    return True


def posted(rows: Connection, turn_id: TurnId) -> list[DecideCall]:
    """Return the decisions not consumed yet, in the order they were posted. A damaged one is void."""
    answers: list[DecideCall] = []
    for call_id, digest, decision, by in rows.all(
        "SELECT call_id, digest, decision, by FROM posted WHERE turn_id = ? ORDER BY seq", turn_id
    ):
        try:
            answers.append(
                DecideCall(
                    call_id=CallId(text(call_id)),
                    digest=text(digest),
                    decision=decode_decision(decision),
                    by=decode_principal(by),
                )
            )
        except UnreadableError as error:
            log.warning("a posted answer is left out: %s", error)
    return answers


def decisions(rows: Connection, *, session_id: SessionId | None, limit: int) -> list[DecisionRow]:
    """Return the newest `limit` entries of the log, oldest first. A damaged one is left out; doctor reports it."""
    found = rows.all(
        "SELECT call_id, session_id, tool, digest, decision, by, decided_at, role, model FROM decisions "
        "WHERE ?1 IS NULL OR session_id = ?1 ORDER BY seq DESC LIMIT ?2",
        session_id,
        limit,
    )
    entries: list[DecisionRow] = []
    for row in reversed(found):
        try:
            entries.append(_entry(row))
        except UnreadableError as error:
            log.warning("an entry of the decision log is left out: %s", error)
    return entries


def _entry(row: SqlRow) -> DecisionRow:
    return DecisionRow(
        call_id=CallId(text(row[0])),
        session_id=SessionId(text(row[1])),
        tool=text(row[2]),
        digest=text(row[3]),
        decision=decode_recorded(row[4]),
        by=decode_principal(row[5]),
        decided_at=real(row[6]),
        role=text(row[7]),
        model=text(row[8]),
    )
