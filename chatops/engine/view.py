"""Queries on a turn's state: is it paused, which calls wait for the user, how did it end."""

from collections.abc import Iterable
from itertools import dropwhile, islice
from typing import assert_never

from chatops.domain.decisions import OpenQuestion
from chatops.domain.events import Denial, PendingCall, Status, StepGate, ToolStarted, TurnFinished, TurnStatus
from chatops.domain.ids import CallId, MessageId, RoundId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.model import FailureKind
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Outcome, ToolCall, Verdict
from chatops.engine import pairing
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    BeforeEdit,
    CallStatus,
    CheckingAnswer,
    Containment,
    ContainmentKind,
    Deferred,
    Finished,
    InRound,
    Inspecting,
    Permitted,
    Rechecking,
    Reconciling,
    Settled,
    Started,
    Stopping,
    TurnState,
)
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Judgement, Layer, skill_layer

ALWAYS_ASKS = "the changes of a contained turn always ask"


def pending_calls(state: TurnState) -> tuple[PendingCall, ...]:
    """Return the calls that wait for the user, with everything that a dialog shows: its own, then its children's."""
    calls = state.phase.calls if isinstance(state.phase, InRound) else ()
    children = (call.status.child for call in calls if isinstance(call.status, Started))
    return (
        *own_pending_calls(state),
        *(pending for child in children if child is not None for pending in child.pending),
    )


def own_pending_calls(state: TurnState) -> tuple[PendingCall, ...]:
    """Return the calls of this very turn that wait for the user, in call order."""
    phase = state.phase
    if not isinstance(phase, InRound):
        return ()
    return tuple(
        PendingCall(
            call=call.call,
            facts=call.status.facts,
            digest=call.status.digest,
            reason=call.status.reason,
            why=call.status.why,
            role=phase.proposed_under.role,
            model=phase.model,
            said=phase.said,
            interruption=call.status.interruption,
            denial=_denial(state, phase, call.call.name, call.status.facts),
            known=spec.capabilities if (spec := phase.proposed_under.tool(call.call.name)) is not None else None,
            caller=state.caller,
            approvers=_approvers(state, phase, call.call.name),
            gate=StepGate(name=state.gate.name, step=state.gate_step) if state.gate and state.gate_step else None,
        )
        for call in phase.calls
        if isinstance(call.status, AwaitingDecision)
    )


def _approvers(state: TurnState, phase: InRound, tool: str) -> tuple[str, ...]:
    """Return who may let a call run. Applying the changes of a contained turn is like each call that made them."""
    tools = _changing_tools(state.containment) if tool == CONTAINED_APPLY else (tool,)
    grants = (phase.proposed_under, state.grant)
    return tuple(dict.fromkeys(approver for grant in grants for name in tools for approver in grant.approvers(name)))


def _changing_tools(containment: Containment | None) -> tuple[str, ...]:
    """Return the tools that made the changes. Taking changes back writes files, as `file_write` does."""
    if containment is not None and containment.kind is ContainmentKind.UNDO:
        return ("file_write",)
    return containment.used if containment is not None else ()


def _denial(state: TurnState, phase: InRound, tool: str, facts: CallFacts) -> Denial | None:
    """Return what denies a call under the grant it was proposed under or the one in force; None if nothing does."""
    grants = (phase.proposed_under, state.grant)
    if phase.budget is not None:
        return None
    if phase.applies:
        judged = judge_apply(state.containment, grants)
        return Denial(role=state.grant.role, by=judged.reason) if judged.verdict is Verdict.DENY else None
    for grant in grants:
        judged = grant.judge(tool, facts)
        if judged.verdict is Verdict.DENY:
            return Denial(role=state.grant.role, by=judged.reason)
    return None


def judge_apply(containment: Containment | None, grants: tuple[Grant, ...]) -> Judgement:
    """Return the judgement on applying the changes: DENY unless each tool that ran is still permitted, else ASK."""
    for grant in grants:
        for tool in _changing_tools(containment):
            if (judged := grant.permits(tool)).verdict is Verdict.DENY:
                return Judgement(verdict=Verdict.DENY, reason=f"{tool} is not permitted: {judged.reason}")
    return Judgement(verdict=Verdict.ASK, reason=ALWAYS_ASKS)


def open_questions(state: TurnState) -> tuple[OpenQuestion, ...]:
    """Return the questions of servers that wait for the user."""
    calls = state.phase.calls if isinstance(state.phase, InRound) else ()
    return tuple(
        OpenQuestion(call_id=call.call.id, tool=call.call.name, question=call.status.question)
        for call in calls
        if isinstance(call.status, Started) and call.status.question is not None
    )


def permitted_calls(state: TurnState) -> dict[CallId, str]:
    """Return the calls that may run and wait for earlier ones of the round, each with who or what allowed it."""
    phase = state.phase
    calls = phase.calls if isinstance(phase, InRound) else ()
    # The first call that is not settled waits for none.
    behind = dropwhile(lambda call: isinstance(call.status, Settled), calls)
    waiting = ((call.call.id, call.status) for call in islice(behind, 1, None))
    return {id_: status.decided_by for id_, status in waiting if isinstance(status, Permitted | Rechecking)}


def correction_of(state: TurnState | None) -> str:
    """Return the message that the turn continues with as soon as the running calls have stopped; empty if none."""
    phase = state.phase if state is not None else None
    return phase.correction.text if isinstance(phase, Stopping) and phase.correction is not None else ""


def is_in_flight(state: TurnState) -> bool:
    """Return True if an effect was asked for and has not been answered yet."""
    match state.phase:
        case AwaitingModel() | CheckingAnswer():
            return True
        case InRound(calls=calls):
            return any(not _is_waiting(call.status) for call in calls)
        case Stopping(calls=calls):
            return any(not isinstance(call.status, _WAITING) for call in calls)
        case Finished():
            return False


def runs_tools(state: TurnState) -> bool:
    """Return True if a tool has been started, by this process or by one that has died, and has no result."""
    calls = state.phase.calls if isinstance(state.phase, InRound | Stopping) else ()
    return any(isinstance(call.status, Started) for call in calls)


_WAITING = AwaitingDecision | Deferred | Permitted | Settled


def _is_waiting(status: CallStatus) -> bool:
    """Return True if no effect of a call in this status is under way, or only a child turn that waits for the user."""
    child = status.child if isinstance(status, Started) else None
    return isinstance(status, _WAITING) or (child is not None and child.paused)


def waits_for_child(state: TurnState) -> bool:
    """Return True if a call of the turn waits for a child turn that waits for the user."""
    calls = state.phase.calls if isinstance(state.phase, InRound) else ()
    return any(isinstance(call.status, Started) and _is_waiting(call.status) for call in calls)


def turn_status(state: TurnState) -> TurnStatus:
    """Return the status of the turn."""
    if isinstance(state.phase, Finished):
        return state.phase.result
    return TurnStatus.RUNNING if is_in_flight(state) else TurnStatus.PAUSED


def tool_started(call: ToolCall, started: Started, round_id: RoundId) -> ToolStarted:
    """Return the event of a call that runs."""
    return ToolStarted(
        id=call.id,
        parent_id=round_id,
        tool=call.name,
        arguments=started.facts.arguments,
        attempt=started.attempt,
        decided_by=started.decided_by,
        sandbox=started.facts.sandbox,
        sandboxed=started.facts.sandboxed,
    )


def turn_finished(state: TurnState, end: Finished) -> TurnFinished:
    """Return the event of a turn that is over."""
    return TurnFinished(
        id=state.turn_id,
        parent_id=state.session_id,
        status=Status.SUCCESS if end.result.has_answer else Status.ERROR,
        result=end.result,
        answer=end.answer,
        usage=state.usage,
        detail=end.detail,
        advice=end.advice,
        noticed=end.noticed,
    )


def may_be_retried(state: TurnState) -> bool:
    """Return True if the turn has failed and the user may retry it.

    Turns of a workflow are excluded: the run decides what follows a failed attempt.
    """
    failed = isinstance(state.phase, Finished) and state.phase.result is TurnStatus.FAILED
    return failed and state.contract is None and state.gate is None


def workspace_was_read(state: TurnState) -> bool:
    """Return True if a tool that reads the workspace has run in this session, including the current round."""
    return any_read_workspace((*state.history, *state.messages, *settled_so_far(state)))


def any_read_workspace(messages: Iterable[Message]) -> bool:
    """Return True if a result may contain data of the workspace, whatever tool gave it, or the user attached some."""
    return any(
        (isinstance(message, ToolMessage) and message.facts.reads_workspace)
        or (
            isinstance(message, UserMessage)
            and (message.reads_workspace or any(not file.ref.problem for file in message.files))
        )
        for message in messages
    )


def skill_layers(state: TurnState) -> tuple[Layer, ...]:
    """Return the layers of the skills that calls of this turn have put in use."""
    results = (message for message in (*state.messages, *settled_so_far(state)) if isinstance(message, ToolMessage))
    return tuple(
        skill_layer(message.facts.skill)
        for message in results
        if message.facts.skill is not None and message.outcome is Outcome.SUCCESS
    )


def failure_of(state: TurnState) -> FailureKind | None:
    """Return why the last model call of a failed turn gave no reply; None if it gave one or the reason is unknown."""
    phase = state.phase
    if not isinstance(phase, Finished) or phase.result not in (TurnStatus.FAILED, TurnStatus.LIMIT):
        return None
    return state.rounds[-1].failure if state.rounds else None


def settled_so_far(state: TurnState) -> tuple[ToolMessage, ...]:
    """Return the results of the open round, for display. They are not part of the history until the round closes."""
    phase = state.phase
    if not isinstance(phase, InRound | Stopping):
        return ()
    return tuple(
        result_message(MessageId(f"{call.call.id}.settled"), call.call, call.status)
        for call in phase.calls
        if isinstance(call.status, Settled)
    )


def result_message(id: MessageId, call: ToolCall, settled: Settled) -> ToolMessage:
    """Return the message with the result of a settled call."""
    result = settled.result
    return ToolMessage(
        id=id,
        call_id=call.id,
        tool=call.name,
        arguments=settled.arguments,
        outcome=result.outcome,
        content=result.content,
        truncated=result.truncated,
        verdict=settled.verdict,
        decided_by=settled.decided_by,
        duration_ms=result.duration_ms,
        facts=result.facts,
    )


def results_in_copy(state: TurnState) -> tuple[ToolMessage, ...]:
    """Return the results that a copy of the session can give to the calls of a turn it does not continue.

    A call whose attempt may have taken effect gets none.
    """
    phase = state.phase
    if not isinstance(phase, InRound) or phase.budget is not None:
        return settled_so_far(state)
    held = tuple(pairing.held_result(call.call) for call in phase.calls if _never_started(call.status))
    return (*settled_so_far(state), *held)


def _never_started(status: CallStatus) -> bool:
    match status:
        case Inspecting(before_edit=BeforeEdit(status=asked)) | (AwaitingDecision() as asked):
            return not asked.outcome_unknown
        case Inspecting() | Deferred():
            return True
        case Permitted(attempt=attempt) | Rechecking(attempt=attempt):
            return attempt == 0
        case Started() | Reconciling() | Settled():
            return False
        case _:
            assert_never(status)


def answer_so_far(state: TurnState) -> str:
    """Return the answer of a finished turn, else the latest text of the model."""
    if isinstance(state.phase, Finished):
        return state.phase.answer
    texts = (m.text for m in reversed(state.messages) if isinstance(m, AssistantMessage) and m.text)
    return next(texts, "")
