"""Turns: one step is one transaction; what was begun and what came of it."""

from dataclasses import replace

from chatops.domain.errors import ConflictError, NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.ids import MessageId, TurnId
from chatops.domain.messages import Message
from chatops.domain.tools import Outcome
from chatops.engine.effects import AttemptResult, RunTool, TurnStep
from chatops.engine.state import Finished, TurnState
from chatops.engine.workflow.state import RunFinished
from chatops.store.base import Holder, JournalRow, SessionInfo
from chatops.store.turn_rules import awaited_turn, carries_nothing, intents
from tests.store.memory import decisions, remembered, sessions
from tests.store.memory.tables import Memory, StoredTurn


def commit(memory: Memory, step: TurnStep, *, now: float, writer: object, process: Holder) -> None:
    """Store `step` within the present transaction. Raises ConflictError and NoSuchSessionError, see `Store.commit`."""
    state = step.state
    session = memory.sessions.get(state.session_id)
    if session is None:
        raise NoSuchSessionError(f"There is no session {state.session_id}.", advice="It was deleted.")
    stored = memory.turns.get(state.turn_id)
    if stored is not None and _repeats(step, stored, writer=writer):
        return
    _must_follow(state, stored, session)
    if stored is None:
        _may_begin(memory, state, session)
        last = memory.turns.get(session.last_turn) if session.last_turn is not None else None
        if last is not None and not any(one.contract or one.gate for one in (state, last.step.state)):
            memory.turns[last.step.state.turn_id] = replace(last, pruned=True)
    sessions.append(memory, state.session_id, step.messages, now=now)
    if any(message.id not in memory.messages for message in state.messages):
        raise StoreError(f"Turn {state.turn_id} names messages that were never stored.")
    memory.turns[state.turn_id] = StoredTurn(step=step, writer=writer)
    for result in step.results:
        _close_attempt(memory, result, now=now)
    for run in intents(step):
        _put_intent(memory, run, state.turn_id, now=now, process=process)
    for rule in step.rules:
        remembered.add(memory, state.session_id, rule, now=now)
    if step.takes_queued and (kept := [row for row in memory.texts if row[0] == state.session_id]):
        memory.texts.remove(kept[0])
    if step.draft is not None:
        memory.settings[step.draft.setting] = step.draft.text
    decisions.follow(memory, step, now=now)
    memory.sessions[state.session_id] = replace(
        memory.sessions[state.session_id],
        active_turn=None if isinstance(state.phase, Finished) else state.turn_id,
        last_turn=state.turn_id,
        updated_at=now,
    )
    sessions.touch(memory, state.session_id)


def load(memory: Memory, turn_id: TurnId) -> TurnState:
    """The state as last committed, with message bodies. Raises UnreadableError."""
    if turn_id not in memory.turns:
        raise UnreadableError(f"There is no turn {turn_id}.")
    if memory.turns[turn_id].pruned:
        raise UnreadableError(f"Turn {turn_id} is over.")
    state = memory.turns[turn_id].step.state
    return replace(
        state,
        history=_before(memory, state),
        messages=tuple(memory.messages[message.id].message for message in state.messages),
    )


def _before(memory: Memory, state: TurnState) -> tuple[Message, ...]:
    """Messages before the turn: the whole session, or the earlier attempts at a step."""
    if state.parent_id is None or state.contract is None:
        return sessions.chain(memory, state.parent_id)
    owners = (turn.step.state for turn in memory.turns.values())
    owner = next(one for one in owners if state.parent_id in {message.id for message in one.messages})
    before = load(memory, owner.turn_id)
    return (*before.history, *before.messages)


def _may_begin(memory: Memory, state: TurnState, session: SessionInfo) -> None:
    run = memory.runs.get(state.session_id)
    if run is not None and not isinstance(run.state.phase, RunFinished):
        if awaited_turn(run.state) != state.turn_id:
            raise ConflictError(f"Session {state.session_id} is a run that does not wait for turn {state.turn_id}.")
    elif state.parent_id != session.head:
        raise ConflictError(f"The session has changed since turn {state.turn_id} was started.")


def _must_follow(state: TurnState, stored: StoredTurn | None, session: SessionInfo) -> None:
    if stored is not None and stored.step.state.session_id != state.session_id:
        raise ConflictError(f"Turn {state.turn_id} belongs to another session.")
    if state.seq != (0 if stored is None else stored.step.state.seq + 1):
        raise ConflictError(f"Step {state.seq} of turn {state.turn_id} does not follow the stored one.")
    if session.active_turn not in {None, state.turn_id}:
        raise ConflictError(f"Another turn of this session is not finished: {session.active_turn}.")


def _repeats(step: TurnStep, stored: StoredTurn, *, writer: object) -> bool:
    """Return True if this step is stored already. Raises ConflictError if another one with its number is."""
    if stored.step.state.seq != step.state.seq:
        return False
    same_state = _without_bodies(stored.step.state) == _without_bodies(step.state)
    same_step = replace(stored.step, state=step.state, effects=intents(stored.step), events=()) == replace(
        step, effects=intents(step), events=()
    )
    if same_state and (carries_nothing(step) or (same_step and stored.writer is writer)):
        return True
    raise ConflictError(f"Turn {step.state.turn_id} has another step {step.state.seq} already.")


def _without_bodies(state: TurnState) -> tuple[TurnState, tuple[MessageId, ...]]:
    return replace(state, history=(), messages=()), tuple(message.id for message in state.messages)


def _put_intent(memory: Memory, run: RunTool, turn_id: TurnId, *, now: float, process: Holder) -> None:
    key = (run.call.id, run.attempt)
    if key in memory.journal:
        raise ConflictError(f"Attempt {run.attempt} of call {run.call.id} was started already.")
    row = JournalRow(
        call_id=run.call.id,
        attempt=run.attempt,
        tool=run.call.name,
        arguments=run.facts.arguments,
        digest=run.digest,
        boot_id=process.boot_id,
        pid=process.pid,
        pid_started=process.pid_started,
        started_at=now,
        outcome=None,
        result="",
        finished_at=None,
    )
    memory.journal[key] = (turn_id, row)


def _close_attempt(memory: Memory, closing: AttemptResult, *, now: float) -> None:
    """The first certain outcome stays; `unknown` gives way to what turns out later."""
    key = (closing.call_id, closing.attempt)
    if key not in memory.journal:
        raise StoreError(f"Attempt {closing.attempt} of call {closing.call_id} was never started.")
    turn_id, row = memory.journal[key]
    if row.outcome in {None, Outcome.UNKNOWN}:
        closed = replace(row, outcome=closing.result.outcome, result=closing.result.content, finished_at=now)
        memory.journal[key] = (turn_id, closed)
