"""Events of a workflow run for UIs. A run's tree has the turns of its steps."""

from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.ids import SessionId, TurnId
from chatops.domain.status import Status
from chatops.domain.usage import Usage


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStarted:
    """A workflow run began. Its id is that of its session."""

    id: SessionId
    parent_id: str
    workflow: str
    steps: tuple[str, ...]
    query: str
    role: str
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """An attempt at a step began, as the turn `turn_id`. `id` belongs to this attempt."""

    id: str
    parent_id: SessionId
    step: int
    """From 0."""
    name: str
    attempt: int
    """From 1."""
    attempts: int
    """Number of attempts after which the step has failed."""
    turn_id: TurnId
    validations: tuple[str, ...] = ()
    """Tools that have to pass."""
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChecked:
    """The command of a gate ended; `id` is that of its turn."""

    id: TurnId
    parent_id: str
    """The attempt's id."""
    gate: str
    command: str
    status: Status
    """SUCCESS if it passed."""
    detail: str = ""


class StepResult(StrEnum):
    """Result of an attempt at a step."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It was not accepted, and the next attempt starts."""
    FAILED = "failed"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepFinished:
    """An attempt at a step is over."""

    id: str
    parent_id: SessionId
    status: Status
    step: int
    name: str
    attempt: int
    result: StepResult
    answer: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequested:
    """Nothing runs. The run continues when the user has reviewed it."""

    id: str
    """The attempt's id."""
    parent_id: SessionId
    step: int
    name: str
    attempt: int
    reason: str
    """``review``, ``failed``, ``stopped`` or ``unanswered``."""
    may_skip: bool
    answer: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowFinished:
    """The run is over. `result`: answered, failed or cancelled."""

    id: SessionId
    parent_id: str
    status: Status
    result: str
    answer: str
    usage: Usage | None = None
    detail: str = ""
    failed_steps: tuple[str, ...] = ()
    """Names of steps that the run passed without a result."""
