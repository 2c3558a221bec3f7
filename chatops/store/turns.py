"""Turns: each step is committed in one transaction, and its checkpoint is what a resumed turn starts from.

Theory of operation

A turn is a sequence of steps numbered from 0 (`seq`). Committing a step writes, in one transaction:

- the checkpoint: the turn's whole state, without message bodies, in place of the one before, and its usage;
- the grants of the state, each once for each session: the checkpoint names them by digest;
- the new messages, appended to the message tree, and the session's new head;
- the journal: an intent for each tool run that the step starts, and the outcome of each attempt that has ended;
- the decisions, remembered rules and pending calls that follow from the step, see `decisions`;
- the rows of the audit log about all of these, see `audit`;
- for a turn that starts with a queued message: the removal of that message from the queue;
- the composer's draft, without the message that the turn starts with.

The first step of a turn also prunes the checkpoint of the finished turn before. Only its result and its usage stay,
because nothing reads the rest any more. Turns of workflow runs stay whole.

All of it is stored or nothing, so a process that resumes the turn needs the checkpoint and the journal only.

Invariants

- A step has the number after the stored one, or it is refused with ConflictError. A process with an outdated state can
  therefore not commit.
- A session has at most one unfinished turn (`active_turn`). A turn starts at the session's head, or is the one that the
  session's workflow run waits for.
- The same step may be committed again, for example if the caller did not learn that the commit had worked. It is
  recognised by its fingerprint, but only from the connection (`writer`) that stored it: two processes may well compute
  the same step, and only one of them may perform it. A step that stores nothing but its state has nothing to perform,
  so it is recognised from any connection.
- An attempt of a call has one intent. A second one is a ConflictError: this rules out a second run.
- The first certain outcome of an attempt stays. `unknown` is replaced by an outcome that is found out later.
- The state refers to stored messages only.

The caller checks the lease in the same transaction, see `leases.must_not_be_taken`.
"""

from __future__ import annotations

from dataclasses import fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from chatops.config.failpoints import reach
from chatops.domain.errors import ConflictError, NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import Usage, count_for_user
from chatops.domain.tools import Outcome
from chatops.store import audit, decisions, leases, messages
from chatops.store.base import Holder, JournalRow, Late, StorePart
from chatops.store.connection import Connection, SqlRow, integer, real, real_or_none, text, text_or, text_or_none
from chatops.store.runs import active_run
from chatops.store.sessions import title_from, turn_number

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chatops.domain.messages import Message
    from chatops.engine.effects import AttemptResult, RunTool, TurnStep
    from chatops.engine.state import TurnState
    from chatops.store import codec
else:
    codec = Late("chatops.store.codec")

_RELOAD = "Load the session again: another chatops has continued it."
_TOKEN_FIELDS = tuple(field.name for field in fields(Usage) if field.name != "cost")


class Turns(StorePart):
    """The methods of `Store` about turns."""

    def commit(self, step: TurnStep, lease: str = "") -> None:
        """Store a step in one transaction. Committing the very same step again has no effect.

        `lease` is the token of the session's lease. If anything is raised, nothing is stored.

        Raises ConflictError if an invariant above does not hold, or if the session has another lease.

        Raises AlreadyDecidedError if the step decides a call for which another decision was posted first. The step may
        still deny a call whose posted decision approves it.
        """
        with self._rows.write():
            leases.must_not_be_taken(self._rows, step.state.session_id, lease)
            process = self._process()
            commit(self._rows, step, now=self._clock(), writer=self._writer, process=process, via=self.surface)

    def load_turn(self, turn_id: TurnId) -> TurnState:
        """Return the turn as last committed, with message bodies. Raises UnreadableError."""
        with self._rows.read():
            return load(self._rows, turn_id)

    def unfinished_turns(self) -> list[TurnId]:
        """Return the unfinished turns of all sessions, also of those without messages."""
        with self._rows.read():
            found = self._rows.all("SELECT t.turn_id FROM turns t JOIN sessions s ON s.active_turn = t.turn_id")
        return [TurnId(text(turn_id)) for (turn_id,) in found]

    def usage(self, session_id: SessionId, *, besides: TurnId | None = None) -> Usage | None:
        """Return the usage of all turns of a session except `besides`; None if no server reported any.

        A fork starts without usage. A turn whose usage cannot be read counts as none.
        """
        # SQLite adds them up, because there may be thousands.
        rows = self._rows
        sums = ", ".join(f"sum({rows.NUMBER.format(column='usage', field=name)})" for name in (*_TOKEN_FIELDS, "cost"))
        with rows.query():
            found = rows.one(
                f"SELECT count(*), {sums} FROM turns WHERE session_id = ? AND turn_id IS DISTINCT FROM ? "
                f"AND {rows.IS_OBJECT.format(column='usage')}",
                session_id,
                besides,
            )
        turns, *tokens, cost = found or (0, None)
        if not turns:
            return None
        counts = {name: int(real_or_none(value) or 0) for name, value in zip(_TOKEN_FIELDS, tokens, strict=True)}
        return Usage(**counts, cost=real_or_none(cost))

    def journal(self, turn_id: TurnId) -> list[JournalRow]:
        """Return all attempts of a turn, in the order they were started."""
        with self._rows.read():
            found = self._rows.all(
                "SELECT call_id, attempt, tool, arguments, digest, boot_id, pid, pid_started, started_at, outcome, "
                "result, finished_at, machine FROM journal WHERE turn_id = ? ORDER BY seq",
                turn_id,
            )
        return [_decode_journal_row(row) for row in found]


def commit(rows: Connection, step: TurnStep, *, now: float, writer: str, process: Holder, via: str = "") -> None:
    """Store `step`, taken by the surface `via`, within the current transaction.

    Raises as `Turns.commit` does, and NoSuchSessionError.
    """
    state = step.state
    session = rows.one("SELECT head, active_turn, title, last_turn FROM sessions WHERE id = ?", state.session_id)
    if session is None:
        raise NoSuchSessionError(f"There is no session {state.session_id}.", advice="It was deleted; start a new one.")
    head, active, title, last = (text_or_none(value) for value in session)
    encoded = _encode(step, writer=writer)
    stored = _stored_checkpoint(rows, state.turn_id)
    if stored is not None and _is_repeated(step, encoded.checkpoint, stored):
        return
    _must_follow(state, stored, active=active)
    if stored is None:
        _must_start_at_head(rows, state, head=head)
        if state.contract is None and state.gate is None:
            _prune(rows, last)

    new_head = messages.append(
        rows,
        step.messages,
        session_id=state.session_id,
        turn_id=state.turn_id,
        parent=None if head is None else MessageId(head),
        now=now,
        bodies=encoded.messages,
    )
    if unknown := messages.find_missing(rows, [message.id for message in state.messages]):
        raise StoreError(f"Turn {state.turn_id} names messages that were never stored: {', '.join(unknown)}.")
    _put_grants(rows, state.session_id, encoded.grants)
    _put_checkpoint(rows, state, encoded.checkpoint, now=now)
    _put_attempts(rows, step, now=now, process=process)
    for rule in step.rules:
        decisions.add_rule(rows, state.session_id, rule, now=now)
    if step.takes_queued:
        oldest = "SELECT min(seq) FROM queued_texts WHERE session_id = ?"
        rows.run(f"DELETE FROM queued_texts WHERE seq = ({oldest})", state.session_id)
    if step.draft is not None:
        rows.put_setting(step.draft.setting, step.draft.text)
    # The log reads the posted decisions that the next line removes.
    audit.append_step(rows, step, now=now, via=via)
    decisions.store_decisions(rows, step, now=now)
    _update_session(rows, step, head=new_head, title=title or title_from(step.messages), now=now)
    reach("in_commit")


@frozen_dataclass
class _Checkpoint:
    """The encoded state of a turn after step `seq`, with the fingerprint of the whole step."""

    session_id: str
    seq: int
    body: str
    fingerprint: str
    writer: str
    """The connection that stored the step."""


@frozen_dataclass
class _Encoded:
    """The values that a step stores, as texts."""

    checkpoint: _Checkpoint
    grants: Mapping[str, str]
    """Those of the state, by digest."""
    messages: Sequence[str]


def _encode(step: TurnStep, *, writer: str) -> _Encoded:
    grants: dict[str, str] = {}
    body = codec.encode_state(step.state, grants=grants)
    bodies = [codec.encode_message(message) for message in step.messages]
    checkpoint = _Checkpoint(
        session_id=step.state.session_id,
        seq=step.state.seq,
        body=body,
        fingerprint=codec.fingerprint(step, state=body, messages=bodies),
        writer=writer,
    )
    return _Encoded(checkpoint=checkpoint, grants=grants, messages=bodies)


def _stored_checkpoint(rows: Connection, turn_id: TurnId) -> _Checkpoint | None:
    row = rows.one("SELECT session_id, seq, state, fingerprint, writer FROM turns WHERE turn_id = ?", turn_id)
    if row is None:
        return None
    session_id, seq, *others = row
    # A damaged text equals no other one, and the next step replaces it.
    body, fingerprint, writer = (text_or(value, "") for value in others)
    return _Checkpoint(
        session_id=text_or(session_id, ""), seq=integer(seq), body=body, fingerprint=fingerprint, writer=writer
    )


def _update_session(rows: Connection, step: TurnStep, *, head: MessageId | None, title: str, now: float) -> None:
    state = step.state
    rows.run(
        f"UPDATE sessions SET head = ?, active_turn = ?, last_turn = ?, "
        f"turn_counter = {rows.GREATEST}(turn_counter, ?), title = ?, message_count = message_count + ?, "
        "activity = (SELECT max(activity) + 1 FROM sessions), updated_at = ? WHERE id = ?",
        head,
        None if state.phase.kind == "finished" else state.turn_id,
        state.turn_id,
        turn_number(state.turn_id),
        title,
        count_for_user(step.messages),
        now,
        state.session_id,
    )


def _is_repeated(step: TurnStep, checkpoint: _Checkpoint, stored: _Checkpoint) -> bool:
    """Return True if this very step is stored. Raises ConflictError if another one has its number."""
    if stored.seq != checkpoint.seq:
        return False
    if (stored.writer, stored.fingerprint) == (checkpoint.writer, checkpoint.fingerprint):
        return True
    has_only_state = not (step.messages or step.results or step.decisions or step.rules or step.effects)
    if has_only_state and stored.body == checkpoint.body:
        return True
    raise ConflictError(f"Turn {step.state.turn_id} has another step {stored.seq} already.", advice=_RELOAD)


def _must_start_at_head(rows: Connection, state: TurnState, *, head: str | None) -> None:
    """Raise ConflictError unless the turn starts at the head, or is the one that the session's workflow run waits for.

    A turn of a run is an attempt at a step. It sees the earlier attempts and nothing else, so it may start elsewhere.
    """
    run = active_run(rows, state.session_id)
    if run is not None and run.turn_id != state.turn_id:
        raise ConflictError(
            f"Session {state.session_id} is a run of workflow {run.workflow}, which does not wait for turn "
            f"{state.turn_id}.",
            advice=f"Resume it with: chatops workflow resume {state.session_id}",
        )
    if run is None and state.parent_id != head:
        raise ConflictError(f"The session has changed since turn {state.turn_id} was started.", advice=_RELOAD)


def _must_follow(state: TurnState, stored: _Checkpoint | None, *, active: str | None) -> None:
    """Raise ConflictError unless the step is the next one of the session's one unfinished turn."""
    if stored is not None and stored.session_id != state.session_id:
        raise ConflictError(f"Turn {state.turn_id} belongs to another session.", advice=_RELOAD)
    if state.seq != (0 if stored is None else stored.seq + 1):
        raise ConflictError(f"Step {state.seq} of turn {state.turn_id} does not follow the stored one.", advice=_RELOAD)
    if active not in {None, state.turn_id}:
        raise ConflictError(f"Another turn of this session is not finished: {active}.", advice=_RELOAD)


def load(rows: Connection, turn_id: TurnId) -> TurnState:
    """Return the turn as last committed, with message bodies. Raises UnreadableError."""
    row = rows.one("SELECT state, version, session_id FROM turns WHERE turn_id = ?", turn_id)
    if row is None:
        raise UnreadableError(f"There is no turn {turn_id}.", advice="`chatops sessions list` shows what there is.")
    body, version, owner = row
    try:
        session_id = text(owner)
        stored = codec.decode_state(
            text(body), version=integer(version), grant_of=cache(partial(stored_grant, rows, session_id))
        )
        # A state under a false id would not count as copied, for example: facts about a turn are stored by its id.
        if (stored.state.turn_id, stored.state.session_id) != (turn_id, session_id):
            raise UnreadableError(f"The stored turn {turn_id} is damaged: it is another turn, or another session's.")
    except UnreadableError as error:
        way_on = f"To continue in a copy: chatops sessions fork {owner}"
        raise UnreadableError(str(error), advice=f"{error.advice} {way_on}".strip()) from error
    return replace(
        stored.state, history=_read_history(rows, stored.state), messages=messages.by_ids(rows, stored.messages)
    )


def stored_grant(rows: Connection, session_id: str, digest: str) -> str | None:
    """Return the body of a session's grant, or None if it is not stored."""
    row = rows.one("SELECT body FROM turn_grants WHERE session_id = ? AND digest = ?", session_id, digest)
    return None if row is None else text(row[0])


def _put_grants(rows: Connection, session_id: SessionId, grants: Mapping[str, str]) -> None:
    for digest, body in grants.items():
        if stored_grant(rows, session_id, digest) is None:
            rows.insert("turn_grants", session_id=session_id, digest=digest, body=body)


def _prune(rows: Connection, turn_id: str | None) -> None:
    """Keep only the result and the usage of a turn if it is a finished one of a chat. None: there is no turn."""
    row = rows.one("SELECT state FROM turns WHERE turn_id = ? AND phase = 'finished'", turn_id)
    result = codec.prune(row[0]) if row is not None else ""
    if result:
        rows.run("UPDATE turns SET state = ? WHERE turn_id = ?", result, turn_id)


def _read_history(rows: Connection, state: TurnState) -> tuple[Message, ...]:
    """Return the messages before the turn: the whole session, or for an attempt at a step the earlier attempts."""
    if state.parent_id is None or state.contract is None:
        return messages.chain(rows, state.parent_id)
    (earlier,) = rows.one("SELECT turn_id FROM messages WHERE id = ?", state.parent_id) or (None,)
    if earlier in {None, state.turn_id}:
        return (codec.damaged_message(state.parent_id),)
    before = load(rows, TurnId(text(earlier)))
    return (*before.history, *before.messages)


def _put_checkpoint(rows: Connection, state: TurnState, checkpoint: _Checkpoint, *, now: float) -> None:
    rows.upsert(
        "turns",
        "turn_id",
        turn_id=state.turn_id,
        session_id=state.session_id,
        seq=state.seq,
        version=codec.STATE_VERSION,
        phase=state.phase.kind,
        state=checkpoint.body,
        usage=codec.encode_usage(state.usage) if state.usage is not None else "",
        writer=checkpoint.writer,
        fingerprint=checkpoint.fingerprint,
        updated_at=now,
    )


def _put_attempts(rows: Connection, step: TurnStep, *, now: float, process: Holder) -> None:
    """Store the outcomes of attempts that have ended, and an intent for each that the step starts."""
    for result in step.results:
        _close_attempt(rows, result, now=now)
    for effect in step.effects:
        if effect.kind == "run_tool":
            _put_intent(rows, effect, turn_id=step.state.turn_id, now=now, process=process)


def _put_intent(rows: Connection, run: RunTool, *, turn_id: TurnId, now: float, process: Holder) -> None:
    taken = rows.one("SELECT 1 FROM journal WHERE call_id = ? AND attempt = ?", run.call.id, run.attempt)
    if taken is not None:
        raise ConflictError(f"Attempt {run.attempt} of call {run.call.id} was started already.", advice=_RELOAD)
    rows.insert(
        "journal",
        call_id=run.call.id,
        attempt=run.attempt,
        turn_id=turn_id,
        tool=run.call.name,
        arguments=run.facts.arguments,
        digest=run.digest,
        boot_id=process.boot_id,
        pid=process.pid,
        pid_started=process.pid_started,
        machine=process.machine,
        started_at=now,
    )


def _close_attempt(rows: Connection, closing: AttemptResult, *, now: float) -> None:
    """Store an attempt's outcome. The first certain one stays; `unknown` is replaced by a later one."""
    row = rows.one("SELECT outcome FROM journal WHERE call_id = ? AND attempt = ?", closing.call_id, closing.attempt)
    if row is None:
        raise StoreError(f"Attempt {closing.attempt} of call {closing.call_id} has a result and was never started.")
    if row[0] in {None, Outcome.UNKNOWN.value}:
        rows.run(
            "UPDATE journal SET outcome = ?, result = ?, finished_at = ? WHERE call_id = ? AND attempt = ?",
            closing.result.outcome.value,
            closing.result.content,
            now,
            closing.call_id,
            closing.attempt,
        )


def _decode_journal_row(row: SqlRow) -> JournalRow:
    call_id, attempt, tool, arguments, digest, boot, pid, pid_started, started, ended_as, result, ended, machine = row
    outcome: Outcome | None = None
    if ended_as is not None:
        # A later version may have stored an outcome that this one does not know.
        stored = text(ended_as)
        known = stored in {member.value for member in Outcome}
        outcome = Outcome(stored) if known else Outcome.UNKNOWN
    return JournalRow(
        call_id=CallId(text(call_id)),
        attempt=integer(attempt),
        tool=text(tool),
        arguments=text(arguments),
        digest=text(digest),
        boot_id=text(boot),
        pid=integer(pid),
        pid_started=text(pid_started),
        started_at=real(started),
        outcome=outcome,
        result=text(result),
        finished_at=real_or_none(ended),
        machine=text(machine),
    )
