"""A run and its steps as values to show, for the panel as well as for reports, read from what is committed.

Nothing is collected from events, so a run that was reopened is shown like one that was watched from the start.
"""

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import assert_never

from chatops.domain.events import TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Usage, total
from chatops.engine.state import AwaitingModel, CheckingAnswer, Finished, Purpose, TurnState
from chatops.engine.validations import ValidationState, ValidationStatus, validation_states
from chatops.engine.view import turn_status
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
from chatops.policy.workflow import PatternGate, StepSpec


class StepMark(StrEnum):
    """The state of a run, a step, a validation or a gate."""

    WAITING = "waiting"
    """It has not started yet."""
    RUNNING = "running"
    ASKING = "asking"
    """It waits for the user."""
    DONE = "done"
    FAILED = "failed"
    SKIPPED = "skipped"


@frozen_dataclass
class StepCheck:
    """A validation or a gate of the present attempt."""

    name: str
    mark: StepMark
    about: str = ""
    """The subject of a validation: ``id="a"``."""


@frozen_dataclass
class StepView:
    """One step."""

    number: int
    name: str
    mark: StepMark
    status: str = "pending"
    """The state for scripts: ``pending`` (not started), ``running``, ``paused`` (a call is pending), ``review`` (the
    user is asked), ``answered``, ``failed``, ``skipped`` or ``cancelled``.
    """
    word: str = ""
    """The word beside the mark, such as ``to review``, ``decision pending`` or ``failed``."""
    attempt: int = 0
    """The present or last attempt, counted from 1; 0: none was made."""
    attempts: int = 0
    """Maximum number of attempts, as `iterations` is of iterations."""
    iteration: int = 0
    """Round of the model, counted from 1; 0 unless a model is at work."""
    iterations: int = 0
    validations: tuple[StepCheck, ...] = ()
    gates: tuple[StepCheck, ...] = ()
    requests: int = 0
    """Model calls of all attempts, as far as their turns are known here."""
    usage: Usage | None = None
    seconds: float | None = None
    """Working time without waiting for users; None if it is not known here."""
    output: str = ""
    """The accepted result, as the run stores it."""
    has_schema: bool = False
    detail: str = ""
    """The reason why the step, or its last attempt, was not accepted."""
    refused_attempt: int = 0
    """The attempt that `detail` is about, if another one has started since; else 0."""

    @property
    def closing(self) -> bool:
        """True during the reserved last model call, in which no tool can be called."""
        return self.iteration > self.iterations > 0

    @property
    def refusal(self) -> str:
        """`detail`, with the number of its attempt if another one has started since."""
        return f"attempt {self.refused_attempt}: {self.detail}" if self.refused_attempt else self.detail

    @property
    def tokens(self) -> int | None:
        """Number of tokens of all attempts; None if it is not known."""
        return self.usage.input_tokens + self.usage.output_tokens if self.usage is not None else None

    @property
    def passed(self) -> int:
        """Number of validations that have passed."""
        return sum(1 for validation in self.validations if validation.mark is StepMark.DONE)

    @property
    def failing(self) -> tuple[StepCheck, ...]:
        """Validations that were called and do not hold."""
        return tuple(validation for validation in self.validations if validation.mark is StepMark.FAILED)


@frozen_dataclass
class RunView:
    """One run."""

    workflow: str
    word: str
    mark: StepMark
    steps: tuple[StepView, ...]
    at: int | None
    """Index of the current step; None when the run is over."""
    tokens: int | None = None
    seconds: float = 0.0
    working: bool = False
    """True while working time passes."""
    problem: str = ""
    """The error that blocks the run here, if any."""


@frozen_dataclass
class CurrentStep:
    """State of the current step, or of a run that is over."""

    mark: StepMark
    word: str
    working: bool
    """True while working time passes."""


_REVIEW_STATES = {
    ReviewReason.REVIEW: CurrentStep(mark=StepMark.ASKING, word="to review", working=False),
    ReviewReason.FAILED: CurrentStep(mark=StepMark.FAILED, word="failed", working=False),
    ReviewReason.UNANSWERED: CurrentStep(mark=StepMark.ASKING, word="no model could be asked", working=False),
    ReviewReason.STOPPED: CurrentStep(mark=StepMark.ASKING, word="stopped", working=False),
}
_VALIDATION_MARKS = {
    ValidationStatus.PASSED: StepMark.DONE,
    ValidationStatus.FAILED: StepMark.FAILED,
    ValidationStatus.STALE: StepMark.FAILED,
    ValidationStatus.NEVER: StepMark.WAITING,
}
_GATE_MARKS = {
    TurnStatus.ANSWERED: StepMark.DONE,
    TurnStatus.FAILED: StepMark.FAILED,
    TurnStatus.LIMIT: StepMark.FAILED,
}


def run_view(
    run: WorkflowState, turns: Sequence[TurnState], *, seconds: Sequence[float] = (), problem: str = ""
) -> RunView:
    """Return the view of a run.

    `turns` are the known turns of its session, at least the last one. `seconds` are the known working times of the
    steps.
    """
    phase = run.phase
    current = current_step(phase, present_turn(phase, turns))
    steps = tuple(
        replace(_step_view(run, index, turns, current), seconds=_step_seconds(seconds, index))
        for index in range(len(run.spec.steps))
    )
    counted = [step.tokens for step in steps if step.tokens is not None]
    if problem and not isinstance(phase, RunFinished):
        current = CurrentStep(mark=StepMark.FAILED, word="blocked", working=False)
    return RunView(
        workflow=run.spec.name,
        word=current.word or current.mark.value,
        mark=current.mark,
        steps=steps,
        at=None if isinstance(phase, RunFinished) else phase.step,
        tokens=sum(counted) if counted else None,
        seconds=sum(seconds),
        working=current.working,
        problem=problem,
    )


def current_step(phase: RunPhase, turn: TurnState | None) -> CurrentStep:
    """Return the state of the current step; for a run that is over, that of the run."""
    match phase:
        case RunningStep() | CheckingGate():
            if turn is not None and turn.turn_id == phase.turn_id and turn_status(turn) is TurnStatus.PAUSED:
                return CurrentStep(mark=StepMark.ASKING, word="decision pending", working=False)
            return CurrentStep(mark=StepMark.RUNNING, word="running", working=True)
        case AwaitingReview(reason=reason):
            return _REVIEW_STATES[reason]
        case RunFinished(result=result):
            mark = StepMark.DONE if result is RunResult.ANSWERED else StepMark.FAILED
            return CurrentStep(mark=mark, word=result.value, working=False)
        case _ as never:
            assert_never(never)


def present_turn(phase: RunPhase, turns: Sequence[TurnState]) -> TurnState | None:
    """Return the turn that the run waits for, if it has started and the run does not know its end yet."""
    if not isinstance(phase, RunningStep | CheckingGate):
        return None
    return next((turn for turn in turns if turn.turn_id == phase.turn_id), None)


def _step_view(run: WorkflowState, index: int, turns: Sequence[TurnState], current: CurrentStep) -> StepView:
    spec, phase = run.spec.step(index), run.phase
    records = [record for record in run.attempts if record.step == index]
    # Attempts are counted from 1; 0: this is not the current step.
    current_attempt = phase.attempt if not isinstance(phase, RunFinished) and phase.step == index else 0
    present = present_turn(phase, turns) if current_attempt else None
    last_refused = next((record for record in reversed(records) if record.detail), None)
    turn_ids = {record.turn_id for record in records} | ({present.turn_id} if present is not None else set())
    own_turns = [turn for turn in turns if turn.turn_id in turn_ids]
    usage_of_turns = {turn.turn_id: turn.usage for turn in own_turns}
    usage_of_turns.update({record.turn_id: record.usage for record in records if record.usage is not None})
    known = StepView(
        number=index + 1,
        name=spec.name,
        mark=StepMark.WAITING,
        attempt=current_attempt or max((record.attempt for record in records), default=0),
        attempts=spec.max_attempts,
        requests=sum(turn.counters.requests for turn in own_turns),
        usage=total(*usage_of_turns.values()),
        has_schema=bool(spec.output_schema),
    )
    if last_refused is not None:
        known = replace(known, detail=last_refused.detail)
        if last_refused.attempt < current_attempt:
            known = replace(known, refused_attempt=last_refused.attempt)
    if (output := next((output for output in run.outputs if output.step == index), None)) is not None:
        return _ended_step(known, spec, output, records)
    if current_attempt:
        return _current_step_view(known, spec, run, present, current)
    if isinstance(phase, RunFinished) and index == len(run.outputs):
        # The run ended at this step, which has no result.
        gates = _gate_checks(spec, records, known.attempt)
        return replace(known, mark=StepMark.FAILED, word=phase.result.value, status=phase.result.value, gates=gates)
    return known


def _ended_step(known: StepView, spec: StepSpec, output: StepOutput, records: Sequence[AttemptRecord]) -> StepView:
    if output.skipped:
        return replace(known, mark=StepMark.SKIPPED, word="skipped", status="skipped", detail=output.detail)
    if output.failed:
        gates = _gate_checks(spec, records, known.attempt)
        return replace(known, mark=StepMark.FAILED, word="failed", status="failed", detail=output.detail, gates=gates)
    return replace(
        known,
        mark=StepMark.DONE,
        status="answered",
        output=output.text,
        detail="",
        validations=_passed_checks(spec),
        gates=_gate_checks(spec, records, known.attempt, answered=True),
    )


def _current_step_view(
    known: StepView, spec: StepSpec, run: WorkflowState, present: TurnState | None, current: CurrentStep
) -> StepView:
    phase = run.phase
    records = [record for record in run.attempts if record.step == known.number - 1]
    # The contract has accepted the answer: a gate runs, or the answer is reviewed, or a gate has ended.
    answered = (
        isinstance(phase, CheckingGate)
        or (isinstance(phase, AwaitingReview) and phase.reason is ReviewReason.REVIEW)
        or any(record.gate and record.attempt == known.attempt for record in records)
    )
    gates = _gate_checks(spec, records, known.attempt, answered=answered)
    if isinstance(phase, CheckingGate):
        gates = tuple(replace(gate, mark=current.mark) if i == phase.gate else gate for i, gate in enumerate(gates))
    status = TurnStatus.PAUSED if current.mark is StepMark.ASKING else TurnStatus.RUNNING
    word = "" if current.mark is StepMark.RUNNING else current.word
    view = replace(known, mark=current.mark, word=word, status=status.value, gates=gates)
    if isinstance(phase, AwaitingReview):
        view = replace(view, status="review")
        if phase.detail:
            view = replace(view, detail=phase.detail, refused_attempt=0)
    if answered:
        return replace(view, validations=_passed_checks(spec))
    if isinstance(phase, RunningStep):
        most = spec.max_iterations if present is None else present.grant.max_rounds
        view = replace(view, iteration=_iteration_of(present, most=most), iterations=most)
    return replace(view, validations=_validation_checks(spec, present))


def _iteration_of(turn: TurnState | None, *, most: int) -> int:
    """Return the current iteration of a step's turn, of at most `most`. One more is the closing call."""
    if turn is None:
        # It has not started yet, and begins with the first one.
        return 1
    phase = turn.phase
    if isinstance(phase, AwaitingModel | CheckingAnswer) and phase.purpose is Purpose.CLOSE:
        return most + 1
    # The counter has the rounds that are over.
    current = 0 if isinstance(phase, Finished) else 1
    return min(turn.counters.rounds + current, most)


def _validation_checks(spec: StepSpec, turn: TurnState | None) -> tuple[StepCheck, ...]:
    if turn is None or turn.contract is None:
        return tuple(StepCheck(name=validation.tool, mark=StepMark.WAITING) for validation in spec.validations)
    return tuple(_validation_check(state) for state in validation_states(turn.contract, turn.messages, turn.grant))


def _validation_check(state: ValidationState) -> StepCheck:
    about = [f"{name}={value}" for name, value in state.subject]
    if state.status is ValidationStatus.STALE:
        about.append(f"stale after {state.changed_by}")
    return StepCheck(name=state.tool, mark=_VALIDATION_MARKS[state.status], about=", ".join(about))


def _passed_checks(spec: StepSpec) -> tuple[StepCheck, ...]:
    return tuple(StepCheck(name=validation.tool, mark=StepMark.DONE) for validation in spec.validations)


def _gate_checks(
    spec: StepSpec, records: Sequence[AttemptRecord], attempt: int, *, answered: bool = False
) -> tuple[StepCheck, ...]:
    """Return the gates of an attempt. `answered`: the contract has accepted the answer, so pattern gates passed."""
    marks = {
        record.gate: _GATE_MARKS.get(record.status, StepMark.WAITING)
        for record in records
        if record.gate and record.attempt == attempt
    }
    of_pattern = StepMark.DONE if answered else StepMark.WAITING
    return tuple(
        StepCheck(
            name=gate.name,
            mark=of_pattern if isinstance(gate, PatternGate) else marks.get(gate.name, StepMark.WAITING),
        )
        for gate in spec.gates
    )


def _step_seconds(seconds: Sequence[float], index: int) -> float | None:
    return seconds[index] if index < len(seconds) and seconds[index] else None
