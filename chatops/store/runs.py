"""Runs of workflows: a run is one row beside the session whose turns they are.

A step of a run follows its predecessor or is refused, as a turn's does. The run determines the next turn, and no other
one may start in its session until the run is over.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.errors import AlreadyDecidedError, ConflictError, NoSuchSessionError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId, TurnId
from chatops.store import audit, decisions, leases, sessions
from chatops.store.base import Late, StorePart
from chatops.store.connection import Connection, Value, integer, text, text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chatops.engine.workflow import machine
    from chatops.engine.workflow.effects import WorkflowStep
    from chatops.engine.workflow.inputs import CancelRun, ReviewStep
    from chatops.engine.workflow.state import WorkflowState
    from chatops.store import codec
    from chatops.store.base import SessionInfo
else:
    codec, machine = (Late("chatops.store.codec"), Late("chatops.engine.workflow.machine"))

_RELOAD_RUN = "Another chatops has continued it. To see its state: chatops workflow show"


class Runs(StorePart):
    """The methods of `Store` about runs of workflows."""

    def commit_run(self, step: WorkflowStep, lease: str = "") -> None:
        """Store a run's step: its state, without the posted inputs that no longer apply.

        The first one has seq 0 and makes the session a run. Until the run is over, only the turn that the run waits for
        may start in its session, even if it does not start at the head.

        Raises ConflictError as `commit` does. Raises AlreadyDecidedError for an input of the user
        (`WorkflowStep.user_input`) if another one of its kind was posted for the run first.
        """
        with self._rows.write():
            leases.must_not_be_taken(self._rows, step.state.session_id, lease)
            _commit_step(self._rows, step, now=self._clock(), writer=self._writer)

    def load_run(self, session_id: SessionId) -> WorkflowState:
        """Return the run as last committed.

        Raises NoSuchSessionError for a session that is not a run, and UnreadableError.
        """
        with self._rows.read():
            return _read_run(self._rows, sessions.full_id(self._rows, session_id))

    def runs(self, *, workspace: str | None = None, limit: int = 200) -> list[SessionInfo]:
        """Return the sessions that are runs, by newest activity."""
        with self._rows.read():
            return sessions.list_infos(self._rows, workspace=workspace, limit=limit, runs_only=True)

    def post_review(self, session_id: SessionId, review: ReviewStep | CancelRun) -> bool:
        """Post a review or a cancellation for the owner of the run.

        Returns False if it does not apply to the run as stored, or another one of its kind was first. Raises
        NoSuchSessionError.
        """
        with self._rows.write():
            full = sessions.full_id(self._rows, session_id)
            state = _read_run(self._rows, full)
            if not _changes_run(review, state):
                return False
            if any(type(earlier) is type(review) for _, earlier in _posted_reviews(self._rows, full)):
                return False
            body = codec.encode_review(replace(review, by=replace(review.by, member="")))
            # In PostgreSQL a function posts it, because members may not insert into the table.
            if self._rows.POST_REVIEW:
                return self._rows.one(self._rows.POST_REVIEW, full, state.seq, body) == (True,)
            self._rows.insert("posted_reviews", session_id=full, body=body)
            return True

    def withdraw_review(self, session_id: SessionId, review: ReviewStep | CancelRun | None) -> None:
        """Remove a posted input that the run does not take, so that another one can be posted."""
        with self._rows.write():
            for seq, posted in _posted_reviews(self._rows, session_id):
                if posted == review:
                    self._rows.run("DELETE FROM posted_reviews WHERE seq = ?", seq)

    def posted_reviews(self, session_id: SessionId) -> list[ReviewStep | CancelRun | None]:
        """Return the inputs posted for a run and not consumed by a commit yet, oldest first; None: one is damaged."""
        with self._rows.read():
            return [posted for _, posted in _posted_reviews(self._rows, sessions.full_id(self._rows, session_id))]


def _commit_step(rows: Connection, step: WorkflowStep, *, now: float, writer: str) -> None:
    state = step.state
    if rows.one("SELECT 1 FROM sessions WHERE id = ?", state.session_id) is None:
        raise NoSuchSessionError(f"There is no session {state.session_id}.", advice="It was deleted; start a new run.")
    body = codec.encode_run(state)
    if _is_repeated(rows, step, body=body, writer=writer):
        return
    if (review := step.user_input) is not None:
        if waiting := _posted_reviews(rows, state.session_id):
            _refuse_later_review(review, _read_run(rows, state.session_id), (posted for _, posted in waiting))
        audit.append(rows, state.session_id, [{"kind": "review", "review": review, "by": review.by}], now=now)
    _put_run(rows, state, body=body, writer=writer)
    # No later turn of this session may get the id of one that the run has asked for.
    rows.run(
        f"UPDATE sessions SET turn_counter = {rows.GREATEST}(turn_counter, ?), "
        "activity = (SELECT max(activity) + 1 FROM sessions), updated_at = ? WHERE id = ?",
        state.turns,
        now,
        state.session_id,
    )
    if state.seq == 0:
        # In the queue, the request is the oldest message until the run is stored.
        oldest = "SELECT min(seq) FROM queued_texts WHERE session_id = ?"
        rows.run(f"DELETE FROM queued_texts WHERE seq = ({oldest}) AND text = ?", state.session_id, state.query)
    _drop_void_reviews(rows, state)
    # Tests end the process here, before the transaction does.
    reach("in_run_commit")


def _is_repeated(rows: Connection, step: WorkflowStep, *, body: str, writer: str) -> bool:
    """Return True if this very step is stored. Raises ConflictError unless it is, or follows the stored one."""
    state = step.state
    stored = rows.one("SELECT seq, writer, state FROM runs WHERE session_id = ?", state.session_id)
    following = 0
    if stored is not None:
        last_seq, stored_writer, stored_body = stored
        following = integer(last_seq) + 1
        if last_seq == state.seq:
            # If another process stored the step, that one performs the effects.
            may_repeat = stored_writer == writer or not step.effects
            if stored_body == body and may_repeat:
                return True
            raise ConflictError(f"Run {state.session_id} has another step {state.seq} already.", advice=_RELOAD_RUN)
    if state.seq != following:
        raise ConflictError(
            f"Step {state.seq} of run {state.session_id} does not follow the stored one.", advice=_RELOAD_RUN
        )
    return False


def _put_run(rows: Connection, state: WorkflowState, *, body: str, writer: str) -> None:
    # By kind: the classes of the phases are not imported here.
    phase = state.phase
    rows.upsert(
        "runs",
        "session_id",
        session_id=state.session_id,
        seq=state.seq,
        version=codec.RUN_VERSION,
        workflow=state.spec.name,
        phase=phase.kind,
        step="" if phase.kind == "run_finished" else state.spec.step(phase.step).name,
        result=phase.result.value if phase.kind == "run_finished" else "",
        turn_id=phase.turn_id if phase.kind == "running_step" or phase.kind == "checking_gate" else None,
        state=body,
        writer=writer,
    )


def _read_run(rows: Connection, session_id: SessionId) -> WorkflowState:
    row = rows.one("SELECT state, version FROM runs WHERE session_id = ?", session_id)
    if row is None:
        raise NoSuchSessionError(
            f"Session {session_id} is not a workflow run.", advice="`chatops workflow list` shows the runs."
        )
    body, version = row
    return codec.decode_run(body, version=integer(version))


def _posted_reviews(rows: Connection, session_id: SessionId) -> list[tuple[int, ReviewStep | CancelRun | None]]:
    """Return the inputs posted for a run, each with its row number; None stands for one that cannot be read.

    In a database, `by` of an input has the role that the database has recorded.
    """

    def read(body: Value, member: Value) -> ReviewStep | CancelRun | None:
        with suppress(UnreadableError):
            review = codec.decode_review(body)
            return replace(review, by=decisions.with_member(review.by, member))
        return None

    sql = f"SELECT seq, body, {rows.PRINCIPAL} FROM posted_reviews WHERE session_id = ? ORDER BY seq"
    return [(integer(seq), read(body, member)) for seq, body, member in rows.all(sql, session_id)]


def _changes_run(review: ReviewStep | CancelRun, state: WorkflowState) -> bool:
    """Return True if a review or cancellation changes the run's state."""
    return machine.advance_run(state, review).state is not state


def _refuse_later_review(
    review: ReviewStep | CancelRun, before: WorkflowState, posted: Iterable[ReviewStep | CancelRun | None]
) -> None:
    """Raise AlreadyDecidedError if another input of the same kind was posted for the run first.

    `before` is the run before `review`. The process that posted the first input has told its user that it counts.
    """
    for first in posted:
        if first is not None and type(first) is type(review) and first != review and _changes_run(first, before):
            raise AlreadyDecidedError(
                f"Run {before.session_id} was already reviewed or cancelled by {first.by}; the first one counts.",
                advice=f"To see its state: chatops workflow show {before.session_id}",
            )


def _drop_void_reviews(rows: Connection, state: WorkflowState) -> None:
    for seq, body in rows.all("SELECT seq, body FROM posted_reviews WHERE session_id = ?", state.session_id):
        with suppress(UnreadableError):
            if _changes_run(codec.decode_review(body), state):
                continue
        rows.run("DELETE FROM posted_reviews WHERE seq = ?", seq)


@frozen_dataclass
class ActiveRun:
    """A run that is not over, and the turn that it waits for, if any."""

    workflow: str
    turn_id: TurnId | None


def active_run(rows: Connection, session_id: SessionId) -> ActiveRun | None:
    """Return the run that determines the next turn of this session; None if there is none, or it is over."""
    row = rows.one("SELECT workflow, turn_id FROM runs WHERE session_id = ? AND result = ''", session_id)
    if row is None:
        return None
    workflow, turn_id = row
    turn = text_or_none(turn_id)
    return ActiveRun(workflow=text(workflow), turn_id=None if turn is None else TurnId(turn))
