"""Workflow runs: one row beside the session whose turns they are, and the reviews and cancellations posted for them.

A run's step follows its predecessor or is refused, as a turn's does. The run determines the next turn, and no other one
may start in its session until the run is over: see `turns.commit`.
"""

import logging
from dataclasses import dataclass

from chatops.config.failpoints import reach
from chatops.domain.errors import ConflictError, NoSuchSessionError, UnreadableError
from chatops.domain.ids import SessionId, TurnId
from chatops.engine.workflow.effects import WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.store.codec import RUN_VERSION, decode_review, decode_run, encode_review, encode_run
from chatops.store.connection import Connection, integer, text, text_or_none
from chatops.store.turn_rules import applies, awaited_turn, mark_of, must_be_first

log = logging.getLogger(__name__)

_RELOAD = "Another chatops has continued it. To see its state: chatops workflow show"


def commit(rows: Connection, step: WorkflowStep, *, now: float, writer: str) -> None:
    """Store `step` within the current transaction. See `Store.commit_run`.

    Raises ConflictError, AlreadyDecidedError and NoSuchSessionError.
    """
    state = step.state
    if rows.one("SELECT 1 FROM sessions WHERE id = ?", state.session_id) is None:
        raise NoSuchSessionError(f"There is no session {state.session_id}.", advice="It was deleted; start a new run.")
    body = encode_run(state)
    stored = rows.one("SELECT seq, writer, state FROM runs WHERE session_id = ?", state.session_id)
    if stored is not None and stored[0] == state.seq:
        if stored[2] == body and (stored[1] == writer or not step.effects):
            return
        raise ConflictError(f"Run {state.session_id} has another step {state.seq} already.", advice=_RELOAD)
    if state.seq != (0 if stored is None else integer(stored[0]) + 1):
        raise ConflictError(
            f"Step {state.seq} of run {state.session_id} does not follow the stored one.", advice=_RELOAD
        )
    if step.word is not None and (waiting := posted(rows, state.session_id)):
        must_be_first(step, load(rows, state.session_id), waiting)
    mark = mark_of(state)
    rows.upsert(
        "runs",
        "session_id",
        session_id=state.session_id,
        seq=state.seq,
        version=RUN_VERSION,
        workflow=mark.workflow,
        phase=mark.phase,
        step=mark.step,
        result=mark.result,
        turn_id=awaited_turn(state),
        state=body,
        writer=writer,
    )
    # No later turn of this session may get the id of one that the run has asked for.
    rows.run(
        "UPDATE sessions SET turn_counter = max(turn_counter, ?), "
        "activity = (SELECT max(activity) + 1 FROM sessions), updated_at = ? WHERE id = ?",
        state.turns,
        now,
        state.session_id,
    )
    _consume(rows, state)
    reach("in_run_commit")


def load(rows: Connection, session_id: SessionId) -> WorkflowState:
    """Return the run as last committed.

    Raises NoSuchSessionError for a session that is not a run, and UnreadableError.
    """
    row = rows.one("SELECT state, version FROM runs WHERE session_id = ?", session_id)
    if row is None:
        raise NoSuchSessionError(
            f"Session {session_id} is not a workflow run.", advice="`chatops workflow list` shows the runs."
        )
    return decode_run(row[0], version=integer(row[1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActiveRun:
    """A run that is not over, and the turn that it waits for, if any."""

    workflow: str
    turn_id: TurnId | None


def active_run(rows: Connection, session_id: SessionId) -> ActiveRun | None:
    """Return the run that determines the next turn of this session; None if there is none, or it is over."""
    row = rows.one("SELECT workflow, turn_id FROM runs WHERE session_id = ? AND result = ''", session_id)
    if row is None:
        return None
    turn = text_or_none(row[1])
    return ActiveRun(workflow=text(row[0]), turn_id=None if turn is None else TurnId(turn))


def post(rows: Connection, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
    """Post an input for the run. Returns False if it does not apply, or another one of its kind was first."""
    if not applies(review, load(rows, session_id)):
        return False
    if any(type(earlier) is type(review) for earlier in posted(rows, session_id)):
        return False
    rows.insert("posted_reviews", session_id=session_id, body=encode_review(review))
    return True


def posted(rows: Connection, session_id: SessionId) -> list[ReviewStep | CancelRun]:
    """Return the inputs not consumed yet, oldest first. A damaged one is void."""
    found: list[ReviewStep | CancelRun] = []
    for (body,) in rows.all("SELECT body FROM posted_reviews WHERE session_id = ? ORDER BY seq", session_id):
        try:
            found.append(decode_review(body))
        except UnreadableError as error:
            log.warning("a posted review of run %s is left out: %s", session_id, error)
    return found


def _consume(rows: Connection, state: WorkflowState) -> None:
    for seq, body in rows.all("SELECT seq, body FROM posted_reviews WHERE session_id = ?", state.session_id):
        try:
            still = applies(decode_review(body), state)
        except UnreadableError:
            still = False
        if not still:
            rows.run("DELETE FROM posted_reviews WHERE seq = ?", seq)
