"""Runs of workflows, and the words that people leave for them."""

from dataclasses import replace

from chatops.domain.errors import ConflictError, NoSuchSessionError
from chatops.domain.ids import SessionId
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.store.turn_rules import applies, must_be_first
from tests.store.memory import sessions
from tests.store.memory.tables import Memory, StoredRun


def commit(memory: Memory, step: WorkflowStep, *, now: float, writer: object) -> None:
    """Store a run's step. Raises ConflictError, AlreadyDecidedError and NoSuchSessionError, see `Store.commit_run`."""
    state = step.state
    if state.session_id not in memory.sessions:
        raise NoSuchSessionError(f"There is no session {state.session_id}.")
    stored = memory.runs.get(state.session_id)
    if stored is not None and stored.state.seq == state.seq:
        if stored.state == state and (stored.writer is writer or not step.effects):
            return
        raise ConflictError(f"Run {state.session_id} has another step {state.seq} already.")
    if state.seq != (0 if stored is None else stored.state.seq + 1):
        raise ConflictError(f"Step {state.seq} of run {state.session_id} does not follow the stored one.")
    if stored is not None and step.word is not None:
        must_be_first(step, stored.state, [word for owner, word in memory.words if owner == state.session_id])
    memory.runs[state.session_id] = StoredRun(state=state, writer=writer)
    number = max(memory.turn_numbers.get(state.session_id, 0), state.turns)
    memory.turn_numbers[state.session_id] = number
    memory.sessions[state.session_id] = replace(memory.sessions[state.session_id], updated_at=now)
    sessions.touch(memory, state.session_id)
    memory.words = [row for row in memory.words if row[0] != state.session_id or applies(row[1], state)]


def load(memory: Memory, session_id: SessionId) -> WorkflowState:
    """The run as last committed. Raises NoSuchSessionError for a session that is not a workflow run."""
    if session_id not in memory.runs:
        raise NoSuchSessionError(f"Session {session_id} is not a workflow run.", advice="`chatops workflow list`")
    return memory.runs[session_id].state


def post(memory: Memory, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
    """Leave a word; False if it does not apply, or another one of its kind was first."""
    earlier = [type(said) for owner, said in memory.words if owner == session_id]
    if not applies(review, load(memory, session_id)) or type(review) in earlier:
        return False
    memory.words.append((session_id, review))
    return True
