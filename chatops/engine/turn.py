"""The state machine of a turn: `start` creates a turn, `advance` is the only way its state changes.

Theory of operation

A turn is one exchange: a message of the user, then rounds of model calls and tool calls until there is an answer. Its
whole state is one immutable value, `TurnState` (`state.py`). `advance(state, input)` returns a `TurnStep`: the next
state, the effects to perform, the events to publish, and the rows to store with them (`effects.py`). The runtime
commits the step, then publishes its events, then performs its effects. The outcome of each effect comes back as another
input (`inputs.py`).

The machine is pure. It reads no clock, disk or socket, and the same state and input always give the same step. So

- a checkpoint is complete: another process can load the state and continue the turn,
- a test can feed any inputs in any order and compare the steps (`tests/engine`),
- no tool runs before its intent is stored: `RunTool` is an effect, and its intent is in the step's transaction.

Phases (`TurnState.phase`):

- AwaitingModel: a model request is in flight.
- CheckingAnswer: only under a contract, that is in a step of a workflow. The answer is being parsed and validated.
- InRound: the calls of one reply are inspected, judged, decided and run. Each call has a status of its own.
- Stopping: the turn was cancelled or corrected while tools ran. It waits for them, so that each call has a true result.
- Finished: the turn is over. After a failure it still takes `RetryTurn` and `SwitchRole`.

A turn in InRound with nothing in flight is paused: calls wait for a decision of the user, as rows on disk.

Rules:

- `advance` is total. An input that no longer applies (a stale reply, a late result, a second decision) gives the same
  state and no effects. Inputs therefore carry the round id, the attempt number or the digest that they answer.
- A call is judged by the grant that it was proposed under and by the grant in force. The stricter verdict counts.
- An approval is bound to a digest of the call. A call that was not inspected in the same step is inspected again
  right before it starts, and asks again if anything differs.
- Every call of a reply gets exactly one result before the next model request. Model APIs require it.
- A tool that was started is never assumed to have had no effect (`recovery.py`).

`advance` dispatches to modules by subject: `replies` (model replies), `inspection`, `decisions` and `calls` (calls),
`questions` (of servers), `containment` (where a contained turn works), `budgets` (what it may spend), `rounds` (round
and turn ends), `acceptance` (answers under a contract), `interrupting` (cancelling, corrections), `recovery` (restart).
They all change a `StepDraft`, which becomes the step.

Tried and rejected:

- A task per call that awaits its decision: it dies with its process. A decision may come days later and from another
  process, so a waiting call is a row, and `advance` needs nothing else.
- Errors as exceptions inside the machine: a failed request or an unreadable call is ordinary, so it is an input.
- One status per turn instead of one per call: calls of a round wait, run and end independently.

`TRANSITIONS` lists the phases and the inputs that leave them. The diagram in `ARCHITECTURE.md` is generated from it.
"""

from dataclasses import replace

from chatops.domain.events import AskReason, RoleSwitched, TurnStarted
from chatops.domain.messages import AttachedFile, RoleSwitchMessage, Speaker, UserMessage
from chatops.domain.tools import Outcome, ToolResult
from chatops.engine import (
    acceptance,
    budgets,
    calls,
    containment,
    decisions,
    delegation,
    feedback,
    inspection,
    interrupting,
    questions,
    recovery,
    replies,
    rounds,
    validations,
)
from chatops.engine.contract import StepContract
from chatops.engine.draft import StepDraft
from chatops.engine.effects import TurnStep
from chatops.engine.inputs import (
    AnswerCheckInput,
    CallInput,
    CancelTurn,
    ChildInput,
    ContainTurn,
    CorrectTurn,
    DecideCall,
    Input,
    InspectionInput,
    ModelFailureInput,
    ModelReplyInput,
    NarrowGrant,
    ReconcileInput,
    Recover,
    RetryTurn,
    SpentBeside,
    SwitchRole,
    ToolResultInput,
)
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CheckingAnswer,
    Counters,
    Finished,
    InRound,
    Inspecting,
    Reconciling,
    Spending,
    Started,
    TurnState,
)
from chatops.engine.view import may_be_retried, own_pending_calls, skill_layers
from chatops.policy.grant import Grant

TRANSITIONS: tuple[tuple[str, str, str], ...] = (
    ("[*]", "start", "awaiting_model"),
    ("[*]", "start, the budget asks", "in_round"),
    ("[*]", "start_gate", "in_round"),
    ("[*]", "start_gate, not permitted", "finished"),
    ("[*]", "start_command", "in_round"),
    ("[*]", "start_command, not permitted", "finished"),
    ("awaiting_model", "ModelReplyInput with calls", "in_round"),
    ("awaiting_model", "ModelReplyInput without calls", "finished"),
    ("awaiting_model", "ModelReplyInput empty, once", "awaiting_model"),
    ("awaiting_model", "ModelReplyInput, a responder answers", "awaiting_model"),
    ("awaiting_model", "ModelFailureInput, a backup is left", "awaiting_model"),
    ("awaiting_model", "ModelFailureInput, the server names a smaller context", "awaiting_model"),
    ("awaiting_model", "ModelFailureInput", "finished"),
    ("awaiting_model", "CancelTurn", "finished"),
    ("awaiting_model", "ModelReplyInput under a contract", "checking_answer"),
    ("checking_answer", "AnswerCheckInput, refused", "awaiting_model"),
    ("checking_answer", "AnswerCheckInput", "finished"),
    ("checking_answer", "CancelTurn", "finished"),
    ("in_round", "last call settled", "awaiting_model"),
    ("in_round", "call of a gate, or command of the user, settled", "finished"),
    ("awaiting_model", "the end of a contained turn that changed something", "in_round"),
    ("in_round", "changes of a contained turn decided", "finished"),
    ("awaiting_model", "another request is due, the budget asks", "in_round"),
    ("checking_answer", "AnswerCheckInput, refused, the budget asks", "in_round"),
    ("stopping", "last tool returned, a correction, the budget asks", "in_round"),
    ("finished", "RetryTurn after a failure, the budget asks", "in_round"),
    ("in_round", "more is spent by a decision of the user", "awaiting_model"),
    ("in_round", "no more is spent by a decision", "finished"),
    ("in_round", "CancelTurn, nothing runs", "finished"),
    ("in_round", "CancelTurn, tools run", "stopping"),
    ("awaiting_model", "CorrectTurn", "awaiting_model"),
    ("in_round", "CorrectTurn, nothing runs", "awaiting_model"),
    ("in_round", "CorrectTurn, tools run", "stopping"),
    ("stopping", "last tool returned", "finished"),
    ("stopping", "last tool returned, the user has sent a correction", "awaiting_model"),
    ("finished", "RetryTurn after a failure", "awaiting_model"),
    ("finished", "SwitchRole after a failure", "finished"),
    ("finished", "no other input", "[*]"),
)
"""(phase, input, next phase). Source of the diagram in ARCHITECTURE.md; a test compares it with what `advance` does."""


def start(
    turn: TurnState,
    text: str,
    *,
    files: tuple[AttachedFile, ...] = (),
    contract: StepContract | None = None,
    contained: bool = False,
    caller: str = "",
    reads_workspace: bool = False,
    spending: Spending | None = None,
) -> TurnStep:
    """Start a new turn (`new_turn`): record the message that opens it, with the files attached to it, and ask a model.

    `contract` makes the turn an attempt at a step of a workflow. Its answer has to fulfil the contract, and the history
    holds the messages of the step's earlier attempts. `contained` makes it a contained turn, see `containment`.
    `caller` is the role that wrote the text, after it had read the workspace if it `reads_workspace`,
    and `spending` what its turn had spent.
    """
    draft = StepDraft(replace(turn, contract=contract, caller=caller, spending=spending or turn.spending))
    by = Speaker.USER if contract is None and not caller else Speaker.MACHINE
    message = UserMessage(id=draft.next_message_id(), text=text, files=files, by=by, reads_workspace=reads_workspace)
    draft.add_message(message)
    draft.events.append(
        TurnStarted(
            id=turn.turn_id,
            parent_id=turn.session_id,
            text=text,
            by=by,
            files=tuple(file.ref for file in files),
            role=turn.grant.role,
            model=turn.grant.models[0].name,
        )
    )
    if contained and turn.grant.may_contain:
        containment.contain_turn(draft)
    rounds.ask_model(draft)
    return draft.step()


def advance(state: TurnState, turn_input: Input) -> TurnStep:
    """Return the step that `turn_input` causes in `state`. Pure and total."""
    draft = StepDraft(state)
    match turn_input:
        case ModelReplyInput() | ModelFailureInput():
            _handle_model_end(draft, turn_input)
        case AnswerCheckInput(round_id=round_id, facts=facts):
            if isinstance(state.phase, CheckingAnswer) and state.phase.round_id == round_id:
                acceptance.apply_check(draft, state.phase, facts)
        case CancelTurn() | CorrectTurn():
            interrupting.interrupt(draft, turn_input)
        case RetryTurn(grant=grant):
            _retry(draft, grant)
        case SwitchRole(grant=grant, switch=message):
            _switch_role(draft, grant, message)
        case SpentBeside(children=children):
            budgets.record_siblings(draft, children)
        case NarrowGrant():
            _narrow_grant(draft, turn_input)
        case ContainTurn(on=on):
            _apply_containment(draft, on=on)
        case Recover(grant=grant, interrupted=interrupted, copied=copied, unsent=unsent):
            recovery.recover(draft, grant, interrupted, copied=copied, unsent=unsent)
        case _:
            _handle_call_input(draft, turn_input)
    return draft.step()


def _handle_model_end(draft: StepDraft, ended: ModelReplyInput | ModelFailureInput) -> None:
    phase = draft.state.phase
    if not isinstance(phase, AwaitingModel) or phase.round_id != ended.round_id:
        return
    if isinstance(ended, ModelReplyInput):
        replies.handle_reply(draft, phase, ended.reply, ended.duration_ms)
    else:
        replies.handle_failure(draft, phase, ended.failure, ended.duration_ms)


def _handle_call_input(draft: StepDraft, call_input: CallInput) -> None:
    index = calls.find_call(draft, call_input.call_id)
    if index is None:
        return
    status = draft.calls()[index].status
    match call_input:
        case ToolResultInput(attempt=attempt, result=result):
            if isinstance(status, Started) and status.attempt == attempt:
                _handle_result(draft, index, status, result)
        case ReconcileInput():
            if isinstance(status, Reconciling) and status.attempt == call_input.attempt:
                recovery.apply_reconciliation(draft, index, status, call_input)
        case _ if not isinstance(draft.state.phase, InRound):
            pass
        case InspectionInput(facts=facts, rules=rules):
            draft.remembered = rules
            inspection.apply_inspection(draft, index, facts)
            rounds.continue_round(draft)
        case DecideCall(digest=digest, decision=decision, by=by):
            if isinstance(status, AwaitingDecision) and status.digest == digest:
                decisions.apply_decision(draft, index, decision, by)
                rounds.continue_round(draft)
        case ChildInput():
            delegation.apply_child_status(draft, index, call_input)
        case _:
            questions.apply_question_input(draft, index, call_input)


def _handle_result(draft: StepDraft, index: int, status: Started, result: ToolResult) -> None:
    tool = draft.calls()[index].call.name
    spec = draft.state.grant.tool(tool)
    result = validations.apply_validation(draft.state.contract, tool, result, spec=spec)
    questions.void_question(draft, index, "the call has ended")
    draft.close_attempt(index, status.attempt, result)
    if containment.is_apply_round(draft) and result.outcome is Outcome.INVALID:
        # Nothing was applied.
        calls.ask_user(draft, index, status.facts, AskReason.CHANGED, why=result.content, attempt=status.attempt)
        return
    result = feedback.mark_second_run(status.interruption, result)
    calls.settle_call(draft, index, result, verdict=status.verdict, decided_by=status.decided_by, facts=status.facts)
    rounds.continue_round(draft)


def _narrow_grant(draft: StepDraft, narrowing: NarrowGrant) -> None:
    before = draft.state
    if isinstance(before.phase, Finished):
        return
    narrowed = before.grant.narrowed(*narrowing.layers).answered_by(narrowing.answers)
    narrowed = narrowed.confined(narrowing.sandbox).capped(narrowing.ceiling)
    narrowed = replace(narrowed, may_contain=narrowed.may_contain and narrowing.may_contain)
    draft.set_grant(narrowed.remembering(narrowing.rule_scopes))
    _republish_denials(draft, before)


def _apply_containment(draft: StepDraft, *, on: bool) -> None:
    """Contain the turn, or end its containment. Calls that wait for the user are inspected in the copy."""
    phase = draft.state.phase
    if isinstance(phase, Finished) or containment.is_apply_round(draft):
        return
    if not on:
        containment.end_with_round(draft)
        return
    if not draft.state.grant.may_contain:
        return
    containment.contain_turn(draft)
    for index, call in enumerate(draft.calls()):
        waiting = isinstance(call.status, AwaitingDecision) and not call.status.outcome_unknown
        if waiting and call.call.name in containment.CHANGING and containment.copy_for(draft, call.call):
            draft.set_status(index, Inspecting())
            calls.inspect_call(draft, call.call)


def _retry(draft: StepDraft, grant: Grant) -> None:
    if not may_be_retried(draft.state):
        return
    draft.set_grant(grant.narrowed(*skill_layers(draft.state)))
    containment.contain_retry(draft)
    # A retry resets the backup, the repairs and the mistakes. It keeps the rounds used, and the request numbers, which
    # are part of ids.
    counters = draft.state.counters
    kept = Counters(requests=counters.requests, rounds=counters.rounds, elided=counters.elided, full=counters.full)
    draft.count(kept)
    rounds.ask_model(draft)


def _switch_role(draft: StepDraft, grant: Grant, message: RoleSwitchMessage) -> None:
    # A failed turn can still be retried. The retry uses the grant that is in force then.
    if isinstance(draft.state.phase, Finished) and not may_be_retried(draft.state):
        return
    before = draft.state
    # A role that the user switches to is restricted by the skills of the turn, too.
    draft.set_grant(grant.narrowed(*skill_layers(draft.state)))
    draft.count(replace(draft.state.counters, backup=0))
    draft.add_message(message)
    draft.events.append(RoleSwitched(id=message.id, parent_id=draft.state.session_id, switch=message))
    _republish_denials(draft, before)


def _republish_denials(draft: StepDraft, before: TurnState) -> None:
    """Publish the pending calls again whose denial differs under the grant in force now."""
    phase = draft.state.phase
    if not isinstance(phase, InRound):
        return
    for was, now in zip(own_pending_calls(before), own_pending_calls(draft.state), strict=True):
        if was.denial != now.denial:
            calls.request_approval(draft, phase.round_id, now.call)
