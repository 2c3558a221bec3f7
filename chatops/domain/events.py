"""What faces are told. The events of a turn form a tree: turn, round, thought and tool calls.

Each event has the `id` of the thing it is about and the `parent_id` of what contains it; the first event of
an id opens it, its closing event carries `status`, so that a face draws one line per id and updates it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from typing import Literal

from chatops.domain.decisions import Decision, Principal
from chatops.domain.ids import CallId, RoundId, SessionId, TurnId
from chatops.domain.interruption import Interruption
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import CallFacts, Outcome, Problem, ToolCall
from chatops.domain.usage import Usage


class Status(StrEnum):
    """State of one node of the event tree."""

    STARTED = "started"
    SUCCESS = "success"
    ERROR = "error"


class TurnStatus(StrEnum):
    """How a turn stands or ended."""

    RUNNING = "running"
    PAUSED = "paused"
    """It waits for a person."""
    ANSWERED = "answered"
    LIMIT = "limit"
    FAILED = "failed"
    CANCELLED = "cancelled"


class AskReason(StrEnum):
    """Why a call waits for a person."""

    POLICY = "policy"
    CHANGED = "changed"
    """What the person approved is no longer what would run."""
    EDITED = "edited"
    OUTCOME_UNKNOWN = "outcome_unknown"
    COPIED = "copied"
    """It was permitted in another copy of the store, which may have run it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denial:
    """Why a pending call could not run under the rights in force now, even if it were approved."""

    role: str
    """The role in force."""
    by: str
    """The layer that denies it, in words for the user."""
    could_run: tuple[str, ...] = ()
    """Roles under which it could run. The engine knows no other roles; `runtime.denials` fills them in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCall:
    """A call that waits for a person, with all a dialog has to show."""

    call: ToolCall
    facts: CallFacts
    digest: str
    reason: AskReason
    why: str
    """Which layer asks, in words."""
    role: str
    model: str
    said: str
    """What the model said in that round: its words, not ours."""
    interruption: Interruption | None = None
    """What is known of an earlier attempt that may have taken effect."""
    denial: Denial | None = None
    """Set where an approval would let nothing run."""

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have taken effect: then to approve is to run it again."""
        return self.reason is AskReason.OUTCOME_UNKNOWN or self.interruption is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnStarted:
    """A person's message was taken."""

    id: TurnId
    parent_id: SessionId
    text: str
    role: str
    model: str
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundStarted:
    """A model is being asked."""

    id: RoundId
    parent_id: TurnId
    model: str
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    """A piece of the answer; `id` is the round's thought."""

    id: str
    parent_id: RoundId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    """A piece of the model's reasoning."""

    id: str
    parent_id: RoundId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ThoughtFinished:
    """The model's reply is complete or failed."""

    id: str
    parent_id: RoundId
    status: Status
    text: str
    reasoning: str = ""
    model: str = ""
    finish_reason: str = ""
    usage: Usage | None = None
    duration_ms: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProposed:
    """The model asks for a call."""

    id: CallId
    parent_id: RoundId
    tool: str
    arguments: str
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequested:
    """A call waits for a person."""

    id: CallId
    parent_id: RoundId
    pending: PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided:
    """A person, or a rule a person made, answered."""

    id: CallId
    parent_id: RoundId
    decision: Decision
    by: Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolStarted:
    """A tool is about to run; its intent is on disk."""

    id: CallId
    parent_id: RoundId
    tool: str
    arguments: str
    attempt: int
    decided_by: str
    sandbox: str = ""
    """The level that it runs at, in words; empty for what runs no program."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolOutput:
    """Output of a tool that still runs."""

    id: CallId
    parent_id: RoundId
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFinished:
    """A call has its one result, whether it ran or not."""

    id: CallId
    parent_id: RoundId
    status: Status
    tool: str
    arguments: str
    outcome: Outcome
    content: str
    problems: tuple[Problem, ...] = ()
    truncated: bool = False
    duration_ms: int = 0
    decided_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundClosed:
    """Model call and all its tool calls are done."""

    id: RoundId
    parent_id: TurnId
    status: Status
    model: str
    finish_reason: str = ""
    usage: Usage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnPaused:
    """Nothing runs; the turn goes on when a person has decided."""

    id: TurnId
    parent_id: SessionId
    pending: tuple[PendingCall, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnFinished:
    """Control is back with the person."""

    id: TurnId
    parent_id: SessionId
    status: Status
    result: TurnStatus
    answer: str
    usage: Usage | None = None
    detail: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSwitched:
    """Another role is in force from the next model call on."""

    id: str
    parent_id: SessionId
    switch: RoleSwitchMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something to tell the person."""

    id: str
    parent_id: str
    text: str
    advice: str = ""
    level: Literal["info", "warning", "error"] = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeChanged:
    """The notice of this id now reads so (a countdown, a wait that is over): for faces that draw in its place."""

    id: str
    parent_id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRefused:
    """The answer of a step's turn is not accepted; the model is told why and asked again while there is room."""

    id: RoundId
    parent_id: TurnId
    reason: str
    """What the model is told."""
    why: str = ""
    """The same for a person: what was wrong with it."""
    unproven: tuple[str, ...] = ()
    """The validations that have not passed, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStarted:
    """A run of a workflow begins; its id is that of its session."""

    id: SessionId
    parent_id: str
    workflow: str
    steps: tuple[str, ...]
    query: str
    role: str
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStarted:
    """An attempt at a step begins, as the turn `turn_id`. `id` belongs to this attempt."""

    id: str
    parent_id: SessionId
    step: int
    """From 0."""
    name: str
    attempt: int
    """From 1."""
    attempts: int
    """How many the step has before it has failed."""
    turn_id: TurnId
    validations: tuple[str, ...] = ()
    """The tools that have to pass."""
    status: Status = Status.STARTED


@dataclass(frozen=True, slots=True, kw_only=True)
class GateChecked:
    """The command of a gate has ended, as the turn `turn_id`."""

    id: TurnId
    parent_id: str
    """The attempt's id."""
    gate: str
    command: str
    status: Status
    """Success: it passed."""
    detail: str = ""


class StepResult(StrEnum):
    """What became of an attempt at a step."""

    ACCEPTED = "accepted"
    REPEATED = "repeated"
    """It was not accepted, and the next attempt begins."""
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
    """Nothing runs; the run goes on when a person has said how."""

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
    """Names of steps that the run passed over without a result."""


Event = (
    TurnStarted
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | ThoughtFinished
    | CallProposed
    | ApprovalRequested
    | CallDecided
    | ToolStarted
    | ToolOutput
    | ToolFinished
    | RoundClosed
    | TurnPaused
    | TurnFinished
    | RoleSwitched
    | Notice
    | NoticeChanged
    | AnswerRefused
    | WorkflowStarted
    | StepStarted
    | GateChecked
    | StepFinished
    | ReviewRequested
    | WorkflowFinished
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """An event with the time it was published at (seconds since the epoch, UTC)."""

    at: float
    event: Event


@cache
def event_type(kind: type[Event]) -> str:
    """The event's name in snake_case, as stream-json prints it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
