"""Drafts of a step of a run: functions that add a turn, a review or an end to one, each with its events.

`machine` decides what follows; this module writes it down. Steps, attempts and gates are given by number: a step and a
gate by its index, an attempt counted from 1.
"""

from dataclasses import replace

from chatops.domain.events import (
    Event,
    GateChecked,
    ReviewRequested,
    Status,
    StepFinished,
    StepResult,
    StepStarted,
    TurnStatus,
    WorkflowFinished,
    WorkflowStarted,
)
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import total
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.workflow import texts
from chatops.engine.workflow.effects import StartAttempt, StartGate, WorkflowEffect, WorkflowStep
from chatops.engine.workflow.inputs import TurnEndInput
from chatops.engine.workflow.state import (
    AttemptRecord,
    AwaitingReview,
    CheckingGate,
    ReviewReason,
    RunFinished,
    RunningStep,
    RunPhase,
    RunResult,
    StepOutput,
    WorkflowState,
)
from chatops.policy.workflow import CommandGate, PatternGate, StepSpec


class RunDraft:
    """Builder of one step of the run. Mutable only between an input and its step; never stored, never shared."""

    def __init__(self, state: WorkflowState) -> None:
        self.before = state
        self.state = state
        self.effects: list[WorkflowEffect] = []
        self.events: list[Event] = []

    def set_phase(self, phase: RunPhase) -> None:
        """Set the phase."""
        self.state = replace(self.state, phase=phase)

    def next_turn(self) -> TurnId:
        """Return the id of the next turn of the run, and count it as begun."""
        turns = self.state.turns + 1
        self.state = replace(self.state, turns=turns)
        return TurnId(f"{self.state.session_id}.{turns}")

    def step(self) -> WorkflowStep:
        """Return the finished step. An input that changed nothing gives the same state and nothing else."""
        if self.state == self.before:
            return WorkflowStep(state=self.before)
        return WorkflowStep(
            state=replace(self.state, seq=self.before.seq + 1), effects=tuple(self.effects), events=tuple(self.events)
        )


def attempt_id(session_id: SessionId, step: int, attempt: int) -> str:
    """Return the id of an attempt in the tree of events: ``<session>.step<n>.<attempt>``, both numbered from 1."""
    return f"{session_id}.step{step + 1}.{attempt}"


def contract_of(step: StepSpec, done: tuple[DoneCall, ...] = ()) -> StepContract:
    """Return the contract of an attempt at `step`."""
    return StepContract(
        output_schema=step.output_schema,
        validations=step.validations,
        patterns=tuple(gate for gate in step.gates if isinstance(gate, PatternGate)),
        order=step.order,
        once=step.once,
        done=done,
        temperature=step.temperature,
        max_output_tokens=step.max_output_tokens,
    )


def opening_events(state: WorkflowState) -> tuple[Event, ...]:
    """Return the events that announce a stored run to a UI: the run, and its current attempt."""
    started, phase = run_started(state), state.phase
    if isinstance(phase, RunFinished):
        return (started,)
    # The first turn of the current attempt: later ones are those of its gates.
    turn_ids = [
        record.turn_id for record in state.attempts if (record.step, record.attempt) == (phase.step, phase.attempt)
    ]
    turn_id = phase.turn_id if isinstance(phase, RunningStep) else turn_ids[0]
    return started, step_started(state, phase.step, phase.attempt, turn_id)


def run_started(state: WorkflowState) -> WorkflowStarted:
    """Return the event of a run that begins."""
    return WorkflowStarted(
        id=state.session_id,
        parent_id="",
        workflow=state.spec.name,
        steps=tuple(step.name for step in state.spec.steps),
        query=state.query,
        role=state.role,
    )


def step_started(state: WorkflowState, step: int, attempt: int, turn_id: TurnId) -> StepStarted:
    """Return the event of `attempt` at `step`, which begins as the turn `turn_id`."""
    spec = state.spec.step(step)
    return StepStarted(
        id=attempt_id(state.session_id, step, attempt),
        parent_id=state.session_id,
        step=step,
        name=spec.name,
        attempt=attempt,
        attempts=spec.max_attempts,
        turn_id=turn_id,
        validations=tuple(dict.fromkeys(validation.tool for validation in spec.validations)),
    )


def awaited_turn(state: WorkflowState) -> StartAttempt | StartGate | None:
    """Return the effect, performed again on resume, of the turn that the run waits for; None if it waits for none."""
    phase = state.phase
    return _turn_effect(state, phase) if isinstance(phase, RunningStep | CheckingGate) else None


def _turn_effect(state: WorkflowState, phase: RunningStep | CheckingGate) -> StartAttempt | StartGate:
    step = state.spec.step(phase.step)
    if isinstance(phase, CheckingGate):
        return StartGate(turn_id=phase.turn_id, step=step, gate=command_gate(state, phase))
    earlier = [record for record in state.attempts if record.step == phase.step and not record.gate]
    # An attempt that no model could be asked for is recorded, and repeated under its number.
    retaken = bool(earlier) and earlier[-1].attempt == phase.attempt
    return StartAttempt(
        turn_id=phase.turn_id,
        step=step,
        text=texts.opening_message(state, step=phase.step, attempt=phase.attempt, retaken=retaken),
        contract=contract_of(step, state.done),
        after=earlier[-1].turn_id if earlier else None,
    )


def start_attempt(run: RunDraft, step: int, attempt: int) -> None:
    """Start an attempt at a step, as a turn of its own."""
    turn_id = run.next_turn()
    _start_turn(run, RunningStep(step=step, attempt=attempt, turn_id=turn_id))
    run.events.append(step_started(run.state, step, attempt, turn_id))


def _start_turn(run: RunDraft, phase: RunningStep | CheckingGate) -> None:
    run.set_phase(phase)
    run.effects.append(_turn_effect(run.state, phase))


def record_turn(run: RunDraft, phase: RunningStep | CheckingGate, ended: TurnEndInput, *, gate: str = "") -> None:
    """Record how a turn ended and what it cost."""
    record = AttemptRecord(
        step=phase.step,
        attempt=phase.attempt,
        turn_id=phase.turn_id,
        status=ended.status,
        detail=texts.cut_middle(ended.detail),
        noticed=ended.noticed,
        rounds=ended.rounds,
        usage=ended.usage,
        gate=gate,
    )
    run.state = replace(run.state, attempts=(*run.state.attempts, record))


def record_cancelled(run: RunDraft, phase: RunningStep | CheckingGate) -> None:
    """Record that a turn was in progress when the run was ended. What it did and cost is stored with the turn."""
    gate = command_gate(run.state, phase).name if isinstance(phase, CheckingGate) else ""
    record_turn(run, phase, TurnEndInput(turn_id=phase.turn_id, status=TurnStatus.CANCELLED), gate=gate)


def next_command_gate(run: RunDraft, step: int, first: int) -> int | None:
    """Return the index of the next gate that has a command, from index `first` on; None if there is none."""
    gates = run.state.spec.step(step).gates
    return next((index for index in range(first, len(gates)) if isinstance(gates[index], CommandGate)), None)


def command_gate(state: WorkflowState, phase: CheckingGate) -> CommandGate:
    """Return the gate whose command runs."""
    gate = state.spec.step(phase.step).gates[phase.gate]
    if not isinstance(gate, CommandGate):
        raise AssertionError(f"gate {gate.name} has no command")
    return gate


def start_gate_turn(run: RunDraft, step: int, attempt: int, gate: int, answer: str) -> None:
    """Run the command of the gate with index `gate`, as a turn of its own."""
    _start_turn(run, CheckingGate(step=step, attempt=attempt, gate=gate, turn_id=run.next_turn(), answer=answer))


def publish_gate(run: RunDraft, phase: CheckingGate, gate: CommandGate, *, passed: bool, detail: str) -> None:
    """Publish the result of a gate."""
    run.events.append(
        GateChecked(
            id=phase.turn_id,
            parent_id=attempt_id(run.state.session_id, phase.step, phase.attempt),
            gate=gate.name,
            command=gate.command,
            status=Status.SUCCESS if passed else Status.ERROR,
            detail=detail,
        )
    )


def request_review(
    run: RunDraft, step: int, attempt: int, reason: ReviewReason, *, answer: str = "", detail: str = ""
) -> None:
    """Wait for the user's review. The attempt stays open."""
    spec = run.state.spec.step(step)
    run.set_phase(AwaitingReview(step=step, attempt=attempt, reason=reason, answer=answer, detail=detail))
    run.events.append(
        ReviewRequested(
            id=attempt_id(run.state.session_id, step, attempt),
            parent_id=run.state.session_id,
            step=step,
            name=spec.name,
            attempt=attempt,
            reason=reason.value,
            may_skip=spec.may_skip and reason is not ReviewReason.REVIEW,
            answer=answer,
            detail=detail,
        )
    )


def close_attempt(
    run: RunDraft, step: int, attempt: int, result: StepResult, *, answer: str = "", detail: str = ""
) -> None:
    """Publish that an attempt is over."""
    run.events.append(
        StepFinished(
            id=attempt_id(run.state.session_id, step, attempt),
            parent_id=run.state.session_id,
            status=Status.SUCCESS if result is StepResult.ACCEPTED else Status.ERROR,
            step=step,
            name=run.state.spec.step(step).name,
            attempt=attempt,
            result=result,
            answer=answer,
            detail=detail,
        )
    )


def has_result(output: StepOutput) -> bool:
    """Return True if the step has a result."""
    return not (output.failed or output.skipped)


def failed_steps(state: WorkflowState) -> tuple[str, ...]:
    """Return the names of the steps that the run passed without a result: failed, or skipped by the user."""
    return tuple(state.spec.step(output.step).name for output in state.outputs if not has_result(output))


def finish_run(run: RunDraft, result: RunResult, *, detail: str = "") -> None:
    """End the run. Only a run that answered has an answer. Without a `detail` the failed steps are named."""
    failed = failed_steps(run.state)
    if failed and not detail:
        detail = f"Failed steps: {', '.join(failed)}."
    results = [output.text for output in run.state.outputs if has_result(output)]
    answer = results[-1] if results and result is RunResult.ANSWERED else ""
    end = RunFinished(result=result, answer=answer, detail=detail)
    run.set_phase(end)
    run.events.append(run_finished(run.state, end))


def run_finished(state: WorkflowState, end: RunFinished) -> WorkflowFinished:
    """Return the event of a run that is over."""
    return WorkflowFinished(
        id=state.session_id,
        parent_id="",
        status=Status.SUCCESS if end.result is RunResult.ANSWERED else Status.ERROR,
        result=end.result.value,
        answer=end.answer,
        usage=total(*(record.usage for record in state.attempts)),
        detail=end.detail,
        failed_steps=failed_steps(state),
    )
