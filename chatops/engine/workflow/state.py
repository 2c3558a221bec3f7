"""The state of a run of a workflow: everything that is needed to go on with it."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from chatops.domain.events import TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.usage import Usage
from chatops.engine.contract import DoneCall
from chatops.policy.workflow import WorkflowSpec


class RunResult(StrEnum):
    """How a run ended."""

    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReviewReason(StrEnum):
    """Why a run waits for a person between two turns."""

    REVIEW = "review"
    """The step's answer is to be accepted."""
    FAILED = "failed"
    """The step has used up its attempts."""
    STOPPED = "stopped"
    """A person has stopped the step's turn (Esc): neither a failure nor the end of the run."""
    UNANSWERED = "unanswered"
    """No model could be asked; that costs the step no attempt."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningStep:
    """An attempt at a step: the turn `turn_id` is under way, or is to be begun if it is not stored."""

    step: int
    attempt: int
    turn_id: TurnId
    kind: Literal["running_step"] = "running_step"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckingGate:
    """The command of a gate runs, as a turn of its own."""

    step: int
    attempt: int
    gate: int
    """Index into the step's gates."""
    turn_id: TurnId
    answer: str
    kind: Literal["checking_gate"] = "checking_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitingReview:
    """A person has to say how it goes on."""

    step: int
    attempt: int
    reason: ReviewReason
    answer: str = ""
    detail: str = ""
    kind: Literal["awaiting_review"] = "awaiting_review"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFinished:
    """The run is over."""

    result: RunResult
    answer: str
    """The result of the last step that has one."""
    detail: str = ""
    kind: Literal["run_finished"] = "run_finished"


RunPhase = RunningStep | CheckingGate | AwaitingReview | RunFinished


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptRecord:
    """What became of a turn of the run."""

    step: int
    attempt: int
    turn_id: TurnId
    status: TurnStatus
    detail: str = ""
    """Why it was not accepted."""
    rounds: int = 0
    usage: Usage | None = None
    gate: str = ""
    """Name of the gate, for the turn of a gate's command."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepOutput:
    """The accepted result of a step, or that it failed or was skipped."""

    step: int
    text: str
    """JSON text, or plain text where the step has no schema."""
    failed: bool = False
    skipped: bool = False
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowState:
    """One run. Its turns are turns of the session `session_id`, numbered in the order in which they were begun."""

    session_id: SessionId
    seq: int
    """Grows by one with each step of the machine; the store refuses one that does not follow its predecessor."""
    spec: WorkflowSpec
    """As it was when the run began: a changed definition does not change a run."""
    query: str
    """What the person asked for; every step is told."""
    role: str
    phase: RunPhase
    model: str = ""
    """Pinned for steps that name none; empty: as the roles say."""
    outputs: tuple[StepOutput, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    done: tuple[DoneCall, ...] = ()
    """Side effects of earlier attempts at the present step."""
    told: str = ""
    """What the next attempt has to know: why the last one was not accepted, or what a person said."""
    turns: int = 0
    """Turns begun so far."""
