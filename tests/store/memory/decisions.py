"""Calls that wait for a user, the answers left for them, and the log of all answers."""

from dataclasses import replace

from chatops.domain.events import PendingCall
from chatops.domain.ids import SessionId
from chatops.engine.effects import DecisionRecord, TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.state import InRound, TurnState
from chatops.engine.view import pending_calls
from chatops.store.base import DecisionRow, PendingCallRow
from chatops.store.rules import already_decided
from chatops.store.turn_rules import in_call_order, open_calls, overrules
from tests.store.memory import remembered
from tests.store.memory.tables import Memory


def follow(memory: Memory, step: TurnStep, *, now: float) -> None:
    """Bring queue, posted answers and log to where `step` leaves its turn."""
    state = step.state
    for record in step.decisions:
        left = memory.posted.get(record.call_id)
        if left is not None and left[1].digest == record.digest:
            first = left[1]
            if (first.decision, first.by) != (record.decision, record.by) and not overrules(
                record.decision, first.decision
            ):
                raise already_decided(record.call_id, by=left[1].by)
        _log(memory, record, state, now=now)
        if record.by.rule:
            remembered.count_use(memory, record.by.rule, now=now)
    still_open = open_calls(state) - {record.call_id for record in step.decisions}
    memory.posted = {key: row for key, row in memory.posted.items() if row[0] != state.turn_id or key in still_open}
    waiting = {pending.call.id: pending for pending in pending_calls(state)}
    memory.pending = {key: row for key, row in memory.pending.items() if row.turn_id != state.turn_id or key in waiting}
    for pending in waiting.values():
        _ask(memory, pending, state, now=now)


def queue(memory: Memory, *, session_id: SessionId | None) -> list[PendingCallRow]:
    """All pending calls, oldest turn first."""
    rows = [row for row in memory.pending.values() if session_id is None or row.session_id == session_id]
    return in_call_order([replace(row, decided=_posted_row(memory, row)) for row in rows])


def post(memory: Memory, decided: DecideCall, *, now: float) -> bool:
    """Leave an answer; False if the call does not wait with this digest or has an answer to it already."""
    waiting = memory.pending.get(decided.call_id)
    if waiting is None or waiting.pending.digest != decided.digest:
        return False
    first = memory.posted.get(decided.call_id)
    if first is not None and first[1].digest == decided.digest:
        return False
    memory.posted.pop(decided.call_id, None)
    memory.posted[decided.call_id] = (waiting.turn_id, decided, now)
    return True


def _ask(memory: Memory, pending: PendingCall, state: TurnState, *, now: float) -> None:
    before = memory.pending.get(pending.call.id)
    asked_anew = before is None or before.pending.digest != pending.digest
    memory.pending[pending.call.id] = PendingCallRow(
        session_id=state.session_id,
        turn_id=state.turn_id,
        pending=pending,
        requested_at=now if before is None or asked_anew else before.requested_at,
        decided=None,
    )


def _log(memory: Memory, record: DecisionRecord, state: TurnState, *, now: float) -> None:
    asked = memory.pending.get(record.call_id)
    answered = memory.posted.get(record.call_id)
    taken = answered is not None and (answered[1].digest, answered[1].by) == (record.digest, record.by)
    phase = state.phase
    proposed = (phase.proposed_under.role, phase.model) if isinstance(phase, InRound) else ("", "")
    memory.decisions.append(
        DecisionRow(
            call_id=record.call_id,
            session_id=state.session_id,
            tool=record.tool,
            digest=record.digest,
            decision=record.decision,
            by=record.by,
            decided_at=answered[2] if answered is not None and taken else now,
            role=proposed[0] if asked is None else asked.pending.role,
            model=proposed[1] if asked is None else asked.pending.model,
        )
    )


def _posted_row(memory: Memory, row: PendingCallRow) -> DecisionRow | None:
    answer = memory.posted.get(row.pending.call.id)
    if answer is None or answer[1].digest != row.pending.digest:
        return None
    return DecisionRow(
        call_id=row.pending.call.id,
        session_id=row.session_id,
        tool=row.pending.call.name,
        digest=row.pending.digest,
        decision=answer[1].decision,
        by=answer[1].by,
        decided_at=answer[2],
        role=row.pending.role,
        model=row.pending.model,
    )
