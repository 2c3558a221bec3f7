"""The state of a workflow run: everything that is needed to resume it."""

from enum import StrEnum
from typing import Literal

from chatops.domain.events import TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.engine.contract import DoneCall
from chatops.policy.workflow import WorkflowSpec


class RunResult(StrEnum):
    """Result of a run."""

    ANSWERED = "answered"
    FAILED = "failed"
    CANCELLED = "cancelled"


class ReviewReason(StrEnum):
    """Reason why a run waits for the user between two turns."""

    REVIEW = "review"
    """The step's answer needs approval."""
    FAILED = "failed"
    """The step has used up its attempts."""
    STOPPED = "stopped"
    """The user stopped the step's turn (Esc). That is neither a failure nor the end of the run."""
    UNANSWERED = "unanswered"
    """No model could be asked. That uses up no attempt."""


@frozen_dataclass
class RunningStep:
    """Phase: an attempt at a step. The turn `turn_id` is in progress, or is to be started if it is not stored."""

    step: int
    attempt: int
    turn_id: TurnId
    kind: Literal["running_step"] = "running_step"


@frozen_dataclass
class CheckingGate:
    """Phase: the command of a gate runs, as a turn of its own."""

    step: int
    attempt: int
    gate: int
    """Index into the step's gates."""
    turn_id: TurnId
    answer: str
    kind: Literal["checking_gate"] = "checking_gate"


@frozen_dataclass
class AwaitingReview:
    """Phase: the run waits for the user's review."""

    step: int
    attempt: int
    reason: ReviewReason
    answer: str = ""
    detail: str = ""
    kind: Literal["awaiting_review"] = "awaiting_review"


@frozen_dataclass
class RunFinished:
    """Phase: the run is over."""

    result: RunResult
    answer: str
    """The result of the last step that has one; empty unless the run answered."""
    detail: str = ""
    kind: Literal["run_finished"] = "run_finished"


RunPhase = RunningStep | CheckingGate | AwaitingReview | RunFinished


@frozen_dataclass
class AttemptRecord:
    """A turn of the run that has ended: an attempt at a step, or the command of a gate."""

    step: int
    attempt: int
    turn_id: TurnId
    status: TurnStatus
    detail: str = ""
    """Why its answer was not accepted; empty: it was."""
    noticed: bool = False
    """True if a notice of the turn gives `detail` already."""
    rounds: int = 0
    usage: Usage | None = None
    gate: str = ""
    """Name of the gate, for the turn of a gate's command."""


@frozen_dataclass
class StepOutput:
    """The accepted result of a step, or the record that it failed or was skipped."""

    step: int
    text: str
    """JSON text, or plain text if the step has no schema."""
    failed: bool = False
    skipped: bool = False
    detail: str = ""


@frozen_dataclass
class WorkflowState:
    """The state of one run.

    Its turns belong to the session `session_id` and are numbered in the order they were started.
    """

    session_id: SessionId
    seq: int
    """Number of the last change of this state. The store refuses a change that does not follow the stored one."""
    spec: WorkflowSpec
    """The definition as it was when the run began. Later changes to the definition do not change a run."""
    query: str
    """The user's request; every step gets it."""
    role: str
    phase: RunPhase
    model: str = ""
    """Model for steps that name none; empty: as the roles say."""
    outputs: tuple[StepOutput, ...] = ()
    attempts: tuple[AttemptRecord, ...] = ()
    done: tuple[DoneCall, ...] = ()
    """Calls with side effects of earlier attempts at the current step."""
    told: str = ""
    """Information for the next attempt: why the last one was not accepted, or what the user said."""
    turns: int = 0
    """Number of turns started so far."""
