"""Turns stored messages, and the state of an unfinished turn, into the events that were published with them.

Events are not stored. A UI that opens a session takes the events of `replay` first and then those that are published,
so that a session that is resumed looks like one that was watched. Events are left out that change nothing then: the
pieces of a text, what came before a result that is known, and the ends of rounds. How a turn ended is stored for the
last turn and for the turns of a run.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from chatops.domain.events import (
    AnswerRefused,
    ApprovalRequested,
    CallProposed,
    Event,
    Notice,
    PendingCall,
    RoleSwitched,
    RoundStarted,
    Status,
    ThoughtFinished,
    ToolFinished,
    TurnCorrected,
    TurnFinished,
    TurnStarted,
)
from chatops.domain.ids import CallId, RoundId, SessionId, TurnId, turn_of
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.tools import Outcome, ToolCall
from chatops.engine.pairing import Results, results_of
from chatops.engine.state import Finished, InRound, Settled, Started, Stopping, TurnState
from chatops.engine.view import settled_so_far, tool_started, turn_finished
from chatops.engine.workflow.progress import run_finished, run_started, step_started
from chatops.engine.workflow.state import RunFinished, RunningStep, WorkflowState


def replay(
    messages: Sequence[Message],
    turn: TurnState | None,
    *,
    session_id: SessionId,
    role: str,
    model: str,
    pending: Iterable[PendingCall] = (),
    executed: bool = False,
    run: WorkflowState | None = None,
) -> Iterator[Event]:
    """Yield the events of a session.

    `messages` include those of the last `turn` and the results of its open round. `role` and `model` are those in force
    now, and `pending` are the calls that wait for the user. If a process executes the turn (`executed`), its started
    calls run. `run` is the workflow run that the session belongs to, if any.
    """
    role = next((message.before for message in messages if isinstance(message, RoleSwitchMessage)), role)
    begun = _events_before_turns(run) if run is not None else {}
    ended = _events_after_turns(run) if run is not None else {}
    results = results_of(messages)
    calls = _CallEvents(turn, pending, executed=executed)
    current = ""
    yield from begun.get(current, ())
    for place, message in enumerate(messages):
        match message:
            case UserMessage() if (message_turn := turn_of(message.id) or message.id) != current:
                yield from ended.get(current, ())
                current = message_turn
                yield from begun.get(current, ())
                yield TurnStarted(
                    id=TurnId(current),
                    parent_id=session_id,
                    text=message.text,
                    by=message.by,
                    files=tuple(file.ref for file in message.files),
                    role=role,
                    model=_model_of_turn(message, messages[place + 1 : place + 2], model),
                )
            case UserMessage(by=Speaker.MACHINE):
                yield AnswerRefused(id=RoundId(message.id), parent_id=TurnId(current), reason=message.text)
            case UserMessage():
                files = tuple(file.ref for file in message.files)
                yield TurnCorrected(id=message.id, parent_id=TurnId(current), text=message.text, files=files, role=role)
            case AssistantMessage():
                yield from calls.reply(message, results.get(place, ()), turn=current)
            case ToolMessage():
                continue  # Its event follows the message that requested the call.
            case RoleSwitchMessage():
                role = message.after
                yield RoleSwitched(id=message.id, parent_id=session_id, switch=message)
            case SummaryMessage():
                yield Notice(id=message.id, parent_id=session_id, text=message.notice)
            case NoticeMessage():
                yield Notice(
                    id=message.id,
                    parent_id=current,
                    text=message.text,
                    advice=message.advice,
                    level=message.level,
                    not_chosen=message.not_chosen,
                )
            case _ as never:
                assert_never(never)
    yield from ended.get(current, ())
    if turn is not None and turn.turn_id not in ended:
        yield from _unstored_events(turn, calls, opened=turn.turn_id == current)


def _model_of_turn(opening: UserMessage, following: Sequence[Message], model: str) -> str:
    """Return the model of the turn that `opening` starts: that of the reply after it, else the one in force."""
    replies = [message.model for message in following if isinstance(message, AssistantMessage)]
    asked = replies[0] if replies else model
    # Only the turn of a gate, which chatops opens, has no model at all.
    return asked if opening.by is Speaker.MACHINE else asked or model


def replay_turn(turn: TurnState) -> Iterator[Event]:
    """Yield the events of one turn."""
    messages = (*turn.messages, *settled_so_far(turn))
    role, model = turn.grant.role, turn.grant.models[0].name
    return replay(messages, turn, session_id=turn.session_id, role=role, model=model)


class _CallEvents:
    """Makes the events of replies and their calls.

    Ids of stored calls repeat only if a store was damaged. Ids of events must not, so the later ones get a number.
    """

    def __init__(self, turn: TurnState | None, pending: Iterable[PendingCall], *, executed: bool) -> None:
        phase = turn.phase if turn is not None else None
        # A call that the user has edited is in the state only.
        self._now = {call.call.id: call for call in phase.calls} if isinstance(phase, InRound | Stopping) else {}
        self._executed = executed
        self._asked: Mapping[CallId, PendingCall] = {call.call.id: call for call in pending}
        self._seen: Counter[str] = Counter()
        self.rounds: set[str] = set()
        """The rounds with a call that has no result."""

    def reply(self, message: AssistantMessage, results: Results, *, turn: str) -> Iterator[Event]:
        """Yield the events of a reply of the model."""
        round_id = RoundId(message.calls[0].id.rpartition(".")[0] if message.calls else message.id)
        if None in results:
            yield self.round_started(round_id, turn=turn, model=message.model)
        if message.text.strip() or message.reasoning.strip():
            yield ThoughtFinished(
                id=message.id,
                parent_id=round_id,
                status=Status.ERROR if message.incomplete else Status.SUCCESS,
                text=message.text,
                reasoning=message.reasoning,
                model=message.model,
                finish_reason=message.finish_reason,
                usage=message.usage,
            )
        for call, result in zip(message.calls, results, strict=True):
            if result is None:
                yield from self.open(call, round_id)
                continue
            yield ToolFinished(
                id=self._event_id(call),
                parent_id=round_id,
                status=Status.SUCCESS if result.outcome is Outcome.SUCCESS else Status.ERROR,
                tool=result.tool,
                arguments=result.arguments,
                outcome=result.outcome,
                content=result.result,
                truncated=result.truncated,
                duration_ms=result.duration_ms,
                decided_by=result.decided_by,
                facts=result.facts,
            )

    def round_started(self, round_id: RoundId, *, turn: str, model: str) -> RoundStarted:
        """Return the event of a round that is still open."""
        self.rounds.add(round_id)
        return RoundStarted(id=round_id, parent_id=TurnId(turn), model=model)

    def open(self, call: ToolCall, round_id: RoundId) -> Iterator[Event]:
        """Yield the events of a call that has no result."""
        call_id = self._event_id(call)
        now = self._now.get(call.id)
        arguments = (now.call if now is not None else call).arguments
        yield CallProposed(id=call_id, parent_id=round_id, tool=call.name, arguments=arguments)
        if (waiting := self._asked.get(call.id)) is not None:
            yield ApprovalRequested(id=call_id, parent_id=round_id, pending=waiting)
        elif now is not None and isinstance(now.status, Started) and self._executed:
            yield tool_started(now.call, now.status, round_id)
            for asked in now.status.child.pending if now.status.child is not None else ():
                yield ApprovalRequested(id=call_id, parent_id=round_id, pending=asked)

    def _event_id(self, call: ToolCall) -> CallId:
        self._seen[call.id] += 1
        count = self._seen[call.id]
        return call.id if count == 1 else CallId(f"{call.id}#{count}")


def _events_before_turns(run: WorkflowState) -> Mapping[str, tuple[Event, ...]]:
    """Return the events before each turn of a run, by turn id, and under the empty id those before all turns."""
    begun: dict[str, tuple[Event, ...]] = {"": (run_started(run),)}
    begun |= {
        record.turn_id: (step_started(run, record.step, record.attempt, record.turn_id),)
        for record in run.attempts
        if not record.gate
    }
    phase = run.phase
    if isinstance(phase, RunningStep):
        begun[phase.turn_id] = (step_started(run, phase.step, phase.attempt, phase.turn_id),)
    return begun


def _events_after_turns(run: WorkflowState) -> Mapping[str, tuple[Event, ...]]:
    """Return the events after each turn of a run, by turn id."""
    ended: dict[str, tuple[Event, ...]] = {
        record.turn_id: (
            TurnFinished(
                id=record.turn_id,
                parent_id=run.session_id,
                status=Status.SUCCESS if record.status.has_answer else Status.ERROR,
                result=record.status,
                answer="",
                usage=record.usage,
                detail=record.detail,
                noticed=record.noticed,
            ),
        )
        for record in run.attempts
    }
    if isinstance(run.phase, RunFinished):
        last = f"{run.session_id}.{run.turns}"
        ended[last] = (*ended.get(last, ()), run_finished(run, run.phase))
    return ended


def _unstored_events(turn: TurnState, calls: _CallEvents, *, opened: bool) -> Iterator[Event]:
    """Yield what no message of the last turn says: the calls that chatops itself made, and how the turn ended."""
    phase = turn.phase
    if isinstance(phase, InRound | Stopping) and phase.round_id not in calls.rounds:
        if not opened:
            yield TurnStarted(id=turn.turn_id, parent_id=turn.session_id, text="", role=turn.grant.role, model="")
        yield calls.round_started(phase.round_id, turn=turn.turn_id, model=phase.model)
        for call in phase.calls:
            if not isinstance(call.status, Settled):
                yield from calls.open(call.call, phase.round_id)
    elif isinstance(phase, Finished):
        yield turn_finished(turn, phase)
