"""Events for UIs, of turns and workflow runs. The events of a turn form a tree: turn, round, thought and tool calls.

Each event has the `id` of its subject and the `parent_id` of what contains it. The first event of an id opens it, and
its closing event carries `status`. So a UI draws one line per id and updates it.

A workflow run's tree has the turns of its steps.
"""

import re
from enum import StrEnum
from functools import cache
from typing import Literal

from chatops.domain.decisions import Decision, Principal
from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId, TurnId
from chatops.domain.messages import RoleSwitchMessage, Speaker, Usage
from chatops.domain.progress import Progress
from chatops.domain.tools import (
    CallEnd,
    CallFacts,
    Capabilities,
    Interruption,
    Problem,
    ToolCall,
    built_in_capabilities,
)


class Status(StrEnum):
    """State of the subject of an event: a turn, round, call, step or run. `TurnStatus` says more about a turn."""

    STARTED = "started"
    SUCCESS = "success"
    ERROR = "error"


class TurnStatus(StrEnum):
    """State of a turn, or how it ended."""

    RUNNING = "running"
    PAUSED = "paused"
    """It waits for the user."""
    ANSWERED = "answered"
    LIMIT = "limit"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_answer(self) -> bool:
        """True if the turn ended with an answer."""
        return self in (TurnStatus.ANSWERED, TurnStatus.LIMIT)


class AskReason(StrEnum):
    """Reason why a call waits for the user."""

    POLICY = "policy"
    CHANGED = "changed"
    """The call that would run now differs from the one that the user approved."""
    EDITED = "edited"
    OUTCOME_UNKNOWN = "outcome_unknown"
    COPIED = "copied"
    """It was permitted in another copy of the store, which may have run it."""
    BUDGET = "budget"
    """It is no call of the model: the turn has reached its budget."""


@frozen_dataclass
class Denial:
    """Reason why a pending call could not run under the rights in force now, even if it were approved."""

    role: str
    """The role in force."""
    by: str
    """Name of the layer that denies it, for display."""
    could_run: tuple[str, ...] = ()
    """Roles under which it could run. The engine knows no other roles; `runtime.descriptions` fills them in."""


@frozen_dataclass
class StepGate:
    """The gate of a workflow's step whose command a call runs."""

    name: str
    step: str

    def __str__(self) -> str:
        return f"{self.name} of step {self.step}"


@frozen_dataclass
class PendingCall:
    """A call that waits for the user, with everything that a dialog shows."""

    call: ToolCall
    facts: CallFacts
    digest: str
    reason: AskReason
    why: str
    """Name of the layer that asks."""
    role: str
    model: str
    said: str
    """Text of the model in that round; untrusted."""
    interruption: Interruption | None = None
    """Knowledge of an earlier attempt that may have taken effect."""
    denial: Denial | None = None
    """Set if an approval would not let the call run."""
    known: Capabilities | None = None
    """Capabilities of the tool as the grant offers it; None: it is not on offer."""
    caller: str = ""
    """The role that the turn of this call works for; empty: it is a turn of the user's own session."""
    approvers: tuple[str, ...] = ()
    """Its approvers, see `policy.approvers`; empty: everyone who may decide."""
    gate: StepGate | None = None
    """The gate whose command it is; None for any other call."""

    @property
    def outcome_unknown(self) -> bool:
        """True if an earlier attempt may have taken effect; approving then means running it again."""
        return self.reason is AskReason.OUTCOME_UNKNOWN or self.interruption is not None

    @property
    def capabilities(self) -> Capabilities:
        """Capabilities of the tool: as offered, else those of the built-in tool of that name."""
        return self.known if self.known is not None else built_in_capabilities(self.call.name)


@frozen_dataclass
class TurnStarted:
    """A turn began with a message of the user."""

    id: TurnId
    parent_id: SessionId
    text: str
    by: Speaker = Speaker.USER
    files: tuple[FileRef, ...] = ()
    """The files that the user named in the message."""
    role: str
    model: str
    """Empty if no model is asked: for the command of a gate, and for an undo."""
    status: Status = Status.STARTED


@frozen_dataclass
class TurnCorrected:
    """The turn continues with a message that the user sent while it ran. `id` is that of the message."""

    id: MessageId
    parent_id: TurnId
    text: str
    files: tuple[FileRef, ...] = ()
    role: str


@frozen_dataclass
class RoundStarted:
    """A model request was started."""

    id: RoundId
    parent_id: TurnId
    model: str
    status: Status = Status.STARTED


@frozen_dataclass
class TextDelta:
    """A chunk of the answer; `id` is the round's thought. An empty text marks its end."""

    id: str
    parent_id: RoundId
    text: str


@frozen_dataclass
class ReasoningDelta:
    """A chunk of the model's reasoning."""

    id: str
    parent_id: RoundId
    text: str


@frozen_dataclass
class CallStreamed:
    """A chunk of a call, which is not shown before the call is complete."""

    id: str
    parent_id: RoundId
    characters: int
    tool: str = ""
    """The name of the tool as far as it is known."""
    path: str = ""
    """The file that it is for, once the model has written its path; empty if the call does not begin with one."""


@frozen_dataclass
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


@frozen_dataclass
class CallProposed:
    """The model proposed a call."""

    id: CallId
    parent_id: RoundId
    tool: str
    arguments: str
    status: Status = Status.STARTED


@frozen_dataclass
class ApprovalRequested:
    """A call waits for the user."""

    id: CallId
    parent_id: RoundId
    pending: PendingCall


@frozen_dataclass
class CallDecided:
    """The user, or a rule of a user, decided on a call."""

    id: CallId
    parent_id: RoundId
    decision: Decision
    by: Principal


@frozen_dataclass
class ToolStarted:
    """A tool is about to run. Its intent is stored."""

    id: CallId
    parent_id: RoundId
    tool: str
    arguments: str
    attempt: int
    decided_by: str
    sandbox: str = ""
    """The sandbox level, for display; empty if the call runs no program."""
    sandboxed: bool = False
    """True if a sandbox confines the program that the call runs."""


@frozen_dataclass
class ToolOutput:
    """A chunk of output of a running tool."""

    id: CallId
    parent_id: RoundId
    text: str


@frozen_dataclass
class CallProgressed:
    """Progress of long work of a call, or of its inspection. It is never stored."""

    id: CallId
    parent_id: RoundId
    progress: Progress | None
    """None at the end of the work."""


@frozen_dataclass
class ToolFinished(CallEnd):
    """A call has its only result, whether it ran or not."""

    id: CallId
    parent_id: RoundId
    status: Status
    problems: tuple[Problem, ...] = ()


@frozen_dataclass
class RoundClosed:
    """The model call and all its tool calls are done."""

    id: RoundId
    parent_id: TurnId
    status: Status
    model: str
    finish_reason: str = ""
    usage: Usage | None = None


@frozen_dataclass
class TurnPaused:
    """Nothing runs. The turn continues when the user has decided."""

    id: TurnId
    parent_id: SessionId
    pending: tuple[PendingCall, ...]


@frozen_dataclass
class TurnFinished:
    """The turn is over."""

    id: TurnId
    parent_id: SessionId
    status: Status
    result: TurnStatus
    answer: str
    usage: Usage | None = None
    detail: str = ""
    advice: str = ""
    noticed: bool = False
    """True if a notice of the turn gives `detail` already."""


@frozen_dataclass
class RoleSwitched:
    """Another role is in force from the next model call on."""

    id: str
    parent_id: SessionId
    switch: RoleSwitchMessage


@frozen_dataclass
class Notice:
    """A notice for the user."""

    id: str
    parent_id: str
    text: str
    advice: str = ""
    level: Literal["info", "warning", "error"] = "info"
    not_chosen: tuple[str, ...] = ()
    """Paths of a contained turn whose changes the user did not choose to apply, if the notice is about that."""


@frozen_dataclass
class NoticeChanged:
    """The notice of this id has a new text (a countdown, a wait that is over). For UIs that redraw in place."""

    id: str
    parent_id: str
    text: str


@frozen_dataclass
class AnswerRefused:
    """The answer of a step's turn was not accepted. The model is told why and asked again, unless it is `final`."""

    id: RoundId
    parent_id: TurnId
    reason: str
    """The feedback to the model."""
    why: str = ""
    """The same for the user."""
    unproven: tuple[str, ...] = ()
    """Validations that have not passed, as sentences."""
    final: bool = False
    """True if the attempt ends with it."""


@frozen_dataclass
class WorkflowStarted:
    """A workflow run began. Its id is that of its session."""

    id: SessionId
    parent_id: str
    workflow: str
    steps: tuple[str, ...]
    query: str
    role: str
    status: Status = Status.STARTED


@frozen_dataclass
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


@frozen_dataclass
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


@frozen_dataclass
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


@frozen_dataclass
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


@frozen_dataclass
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


Event = (
    TurnStarted
    | TurnCorrected
    | RoundStarted
    | TextDelta
    | ReasoningDelta
    | CallStreamed
    | ThoughtFinished
    | CallProposed
    | ApprovalRequested
    | CallDecided
    | ToolStarted
    | ToolOutput
    | CallProgressed
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


@frozen_dataclass
class Published:
    """An event with the time of its publication (seconds since the epoch, UTC)."""

    at: float
    event: Event


@cache
def event_type(kind: type[Event]) -> str:
    """Return the event's name in snake_case, as stream-json prints it."""
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
