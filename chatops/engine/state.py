"""The state of a turn: everything that is needed to resume it, and only values that can be stored.

`TurnState.phase` says what the turn waits for. `turn.TRANSITIONS` lists how the phases follow each other. In the phases
InRound and Stopping each call has a `CallStatus` of its own:

    Inspecting ──> Permitted, AwaitingDecision, Settled; Deferred until earlier calls are settled
    AwaitingDecision ──> Permitted (approved), Inspecting (edited), Settled (rejected, marked as done)
    Permitted ──> Rechecking ──> Started; straight to Started if it starts in the step that inspected it
    Rechecking ──> AwaitingDecision (what would run has changed), Settled (denied)
    Started ──> Settled; after a crash Reconciling, Permitted (repeated) or AwaitingDecision (outcome unknown)
    Reconciling ──> Settled, Permitted, AwaitingDecision

A stopped turn settles each call that has not started. Field names and `kind` are stored, so they keep their spelling.
"""

from dataclasses import fields
from enum import StrEnum
from typing import Any, Literal, TypeVar

from chatops.domain.decisions import Principal, ServerQuestion
from chatops.domain.events import AskReason, PendingCall, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId, RoundId, SessionId, TurnId
from chatops.domain.messages import AssistantMessage, AttachedFile, Message, Usage
from chatops.domain.model import FailureKind
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import CallFacts, Interruption, ToolCall, ToolResult, Verdict
from chatops.engine.contract import StepContract
from chatops.policy.budget import NO_BUDGET, Budget, LimitName
from chatops.policy.grant import Grant
from chatops.policy.workflow import CommandGate


@frozen_dataclass
class Inspecting:
    """Status of a call whose arguments are being parsed, validated and resolved."""

    before_edit: "BeforeEdit | None" = None
    """Set while an edit by the user is inspected: the state to return to if the edited call cannot run."""
    kind: Literal["inspecting"] = "inspecting"


@frozen_dataclass
class Deferred:
    """Status of a call to inspect once all earlier calls are settled.

    Either inspection failed in a way that an earlier call may fix, or the step requires an earlier call first
    (`step_limits.waits_for_earlier_call`).
    """

    kind: Literal["deferred"] = "deferred"


@frozen_dataclass
class AwaitingDecision:
    """Status of a call that waits for the user, who is shown `facts` and approves `digest`."""

    facts: CallFacts
    digest: str
    reason: AskReason
    why: str
    """`reason` with its details, as a clause for the user."""
    attempt: int = 0
    """Number of attempts already made."""
    interruption: Interruption | None = None
    """What is known of the last attempt, which may have taken effect. None: it certainly has not, or the state was
    stored by a version without this field (see `outcome_unknown`)."""
    copied: bool = False
    """True if the store was copied while the call waited, which `why` then says too."""
    kind: Literal["awaiting_decision"] = "awaiting_decision"

    @property
    def outcome_unknown(self) -> bool:
        """True if an earlier attempt may have taken effect."""
        return self.reason is AskReason.OUTCOME_UNKNOWN or self.interruption is not None


@frozen_dataclass
class Permit:
    """The permission of a call, from the decision on it to its result. The base of the statuses in between."""

    facts: CallFacts
    digest: str
    """Binds the permission to what was shown."""
    verdict: Verdict
    decided_by: str
    attempt: int = 0
    """Number of attempts made so far, with the present one: after a crash, or when the user had a call with an unknown
    outcome run again."""
    interruption: Interruption | None = None
    """What is known of an earlier attempt that may have taken effect, although the user wants the call run again;
    None: there is none."""
    extra: SandboxSpec = NARROWEST
    """Limits that the user gave this one call in addition."""


_Status = TypeVar("_Status", bound=Permit)


def with_permit(permit: Permit, status: type[_Status], **changes: Any) -> _Status:
    """Return the `status` of a call with the fields of `permit`, apart from `changes`."""
    copied = {field.name: getattr(permit, field.name) for field in fields(Permit)}
    return status(**{**copied, **changes})


@frozen_dataclass
class Permitted(Permit):
    """Status of a call that may run as soon as its turn in the round comes."""

    fresh: bool = False
    """True if inspected in this very step, so that no second inspection is needed if the call starts at once."""
    kind: Literal["permitted"] = "permitted"


@frozen_dataclass
class Rechecking(Permit):
    """Status of a call whose turn has come: it is inspected a last time, and runs if nothing differs."""

    kind: Literal["rechecking"] = "rechecking"


@frozen_dataclass
class ChildTurn:
    """The turn in another session that a delegated call waits for, as far as the user has to know of it."""

    pending: tuple[PendingCall, ...] = ()
    """Its calls that wait for the user. Their decisions belong to its session."""
    paused: bool = False
    """True if nothing of it runs until the user decides."""


@frozen_dataclass
class Started(Permit):
    """Status of a call whose intent to run `attempt` is stored. It may have taken effect."""

    question: ServerQuestion | None = None
    """The open question of the server that runs it; None: none is open."""
    child: ChildTurn | None = None
    """The child turn that it waits for, once that has asked the user something."""
    kind: Literal["started"] = "started"


@frozen_dataclass
class Reconciling(Permit):
    """Status of a call after a crash: the tool is asked whether the started attempt took effect."""

    known: Interruption | None = None
    """What is known of the attempt that the tool is asked about; None: nothing."""
    kind: Literal["reconciling"] = "reconciling"


@frozen_dataclass
class Settled:
    """Status of a call that has its result."""

    result: ToolResult
    arguments: str
    """As run: an edit or the tool's own form of them may differ from those of the call."""
    verdict: Verdict | None = None
    """None: the call was settled before any verdict, or without one."""
    decided_by: str = ""
    """The user, rule or layer that decided; empty without a decision."""
    kind: Literal["settled"] = "settled"


@frozen_dataclass
class BeforeEdit:
    """A pending call as it was before the user edited its arguments."""

    arguments: str
    status: AwaitingDecision
    edited_by: str
    repairs: tuple[str, ...] = ()


CallStatus = Inspecting | Deferred | AwaitingDecision | Permitted | Rechecking | Started | Reconciling | Settled


@frozen_dataclass
class CallState:
    """One call of the round and its status."""

    call: ToolCall
    status: CallStatus


class Purpose(StrEnum):
    """The purpose of a model call."""

    GATHER = "gather"
    """Tools are offered."""
    GATHER_AGAIN = "gather_again"
    """Same as GATHER, after an empty reply. A second empty reply ends the turn."""
    CLOSE = "close"
    """The reserved last call, without tools."""
    RESPOND = "respond"
    """The role's responder writes the final answer from the gathered results."""


@frozen_dataclass
class AwaitingModel:
    """Phase: a model request is in flight."""

    round_id: RoundId
    under: Grant
    """The grant that the request was made under. The calls of its reply are judged by it too."""
    purpose: Purpose = Purpose.GATHER
    gathered: AssistantMessage | None = None
    """The gathering model's conclusion, which is the answer if the responder gives none. None unless `purpose` is
    RESPOND."""
    model: str = ""
    """The model that was asked, whatever role the user switches to meanwhile; empty: stored by an older version."""
    kind: Literal["awaiting_model"] = "awaiting_model"


@frozen_dataclass
class CheckingAnswer:
    """Phase: the answer under a contract is being parsed and compared with its schema.

    The contract is applied after that.
    """

    round_id: RoundId
    purpose: Purpose
    text: str
    """The answer as the model wrote it."""
    kind: Literal["checking_answer"] = "checking_answer"


@frozen_dataclass
class BudgetQuestion:
    """The question whether the turn may continue although it has reached its budget, see `engine.budgets`."""

    limit: LimitName
    spent: float = 0.0
    """The amount that was spent when the turn asked."""
    more: float = 0.0
    """The amount that approving permits on top of that."""
    model: str = ""
    """The model of which it is not known what it spends; empty: the limit is reached."""
    purpose: Purpose = Purpose.GATHER
    """Of the request that follows an approval."""
    gathered: AssistantMessage | None = None
    """As in `AwaitingModel`."""


@frozen_dataclass
class InRound:
    """Phase: the calls of a reply are processed, each judged by `proposed_under` and by the grant in force.

    Or one call of the engine is, see `applies` and `budget`. At most one of the two is set.
    """

    round_id: RoundId
    proposed_under: Grant
    said: str
    """Text of the reply beside its calls. Like `model` it is empty if no model made the calls."""
    model: str
    calls: tuple[CallState, ...]
    applies: bool = False
    """True if the one call, made by the engine, asks about the changes of a contained turn."""
    ending: "Finished | None" = None
    """Only with `applies`: the end of the turn that follows the decision. None: the model is asked again, as after any
    other round."""
    budget: BudgetQuestion | None = None
    """Set if the one call, made by the engine, asks whether the turn may spend more; else None."""
    copied: bool = False
    """True if the store was copied since these calls were proposed. Another copy may run them too, so no rule allows a
    call that changes something."""
    kind: Literal["in_round"] = "in_round"


@frozen_dataclass
class Correction:
    """A message from the user that interrupted the turn. The turn continues with it once running calls have stopped."""

    text: str
    files: tuple[AttachedFile, ...] = ()


@frozen_dataclass
class Stopping:
    """Phase: the turn was interrupted while tools ran. It waits until they stop, so that each call has a true result.

    Then the turn ends, or continues with the `correction`.
    """

    round_id: RoundId
    model: str
    calls: tuple[CallState, ...]
    correction: Correction | None = None
    """None: the turn ends."""
    kind: Literal["stopping"] = "stopping"


@frozen_dataclass
class Finished:
    """Phase: the turn is over. A failed turn can be retried."""

    result: TurnStatus
    answer: str
    detail: str = ""
    advice: str = ""
    noticed: bool = False
    """True if a notice of the turn gives `detail` already."""
    kind: Literal["finished"] = "finished"


Phase = AwaitingModel | CheckingAnswer | InRound | Stopping | Finished


@frozen_dataclass
class RoundRecord:
    """The cost of one model call, for the report."""

    model: str
    finish_reason: str
    """The server's value; ``error`` if there was no reply."""
    usage: Usage | None
    """None: the server reported none, or there was no reply."""
    failure: FailureKind | None = None
    """Reason for a missing reply; None: there was a reply."""
    duration_ms: int = 0


@frozen_dataclass
class Mistake:
    """A call that could not run as written. Kept until a round has a call that could run."""

    signature: str
    """Digest of the tool, the arguments and the error."""
    times: int
    """Number of rounds in which it was made."""
    request: int
    """Number of the last such round."""


@frozen_dataclass
class Counters:
    """The counters that bound a turn. Time spent waiting for the user is not counted."""

    requests: int = 0
    """Model calls made. Numbers the rounds."""
    rounds: int = 0
    """Rounds that count against `max_rounds`."""
    repairs: int = 0
    """Consecutive rounds of only invalid calls that were not counted in `rounds`."""
    repairs_total: int = 0
    """Rounds of only invalid calls in this turn, counted or not."""
    backup: int = 0
    """Index into the grant's models, which is the number of models that have failed."""
    same_call: int = 0
    """Number of times in a row that the model has made the call `last_call`."""
    last_call: str = ""
    """Digest of the tool and arguments of the last call."""
    mistakes: tuple[Mistake, ...] = ()
    elided: int = 0
    """Number of tool results left out of the last request, or shortened in it, to save room."""
    full: bool = False
    """True if the user was notified in this turn that the context is nearly full."""


@frozen_dataclass
class Spending:
    """What counts against the budget of a turn, beside its own rounds."""

    earlier: tuple[RoundRecord, ...] = ()
    """Of the turns before it in a workflow run, of its caller before it started, and of its own children that ended."""
    beside: tuple[RoundRecord, ...] = ()
    """Of the other children of its caller since it started, one for each."""
    tools_ms: int = 0
    """Time in which tools ran. Calls that ran side by side count once."""
    added: Budget = NO_BUDGET
    """What the user has added to the limits."""
    uncounted: tuple[str, ...] = ()
    """A limit and a model each, such as ``cost haiku``: the user lets it continue, and its spending is not known."""
    cut_off: int = 0
    """Requests that broke off, or that had to be sent again after a restart. What they cost is not known."""
    denied: bool = False
    """True if the user has refused to let the turn spend more, which has ended it."""


@frozen_dataclass
class OwnCommand:
    """A shell command that the user has typed. Its turn has no model and ends after its one call."""

    by: Principal
    decides: bool = True
    """True if typing it was the decision on an *ask*: all of it could be read, and the app has not restarted since."""


class ContainmentKind(StrEnum):
    """Kind of the decision: applying the changes of the turn, or taking back those of an earlier one."""

    APPLY = "apply"
    UNDO = "undo"


class ContainmentPhase(StrEnum):
    """Phase of a containment, see the table in `engine.containment`."""

    WORKING = "working"
    ENDING = "ending"
    """It ends with the round."""
    SENT_BACK = "sent_back"
    """The user has sent the present list back; the model continues when its round is closed."""


@frozen_dataclass
class Containment:
    """A contained turn: its calls work on a copy of the workspace, see `engine.containment`."""

    name: str
    """Name of the copy."""
    kind: ContainmentKind = ContainmentKind.APPLY
    phase: ContainmentPhase = ContainmentPhase.WORKING
    used: tuple[str, ...] = ()
    """Tools that can change something and ran in the copy; empty: there may be no copy yet."""
    lists: int = 0
    """Number of change lists that the user has sent back."""
    reason: str = ""
    """The reason that the user gave with the last one sent back."""


@frozen_dataclass
class TurnState:
    """One turn. Stored with message ids instead of message bodies, which have their own rows."""

    turn_id: TurnId
    session_id: SessionId
    seq: int
    """Grows by one with each step. The store refuses a step that does not follow its predecessor."""
    parent_id: MessageId | None
    """The head of the session when the turn began."""
    grant: Grant
    """The grant in force for the next model call and for every check."""
    phase: Phase
    history: tuple[Message, ...] = ()
    """Messages before this turn, oldest first."""
    messages: tuple[Message, ...] = ()
    """Messages that this turn has added."""
    counters: Counters = Counters()
    usage: Usage | None = None
    """Of all its model calls and child turns, as far as servers report it; None: nothing was reported."""
    rounds: tuple[RoundRecord, ...] = ()
    spending: Spending = Spending()
    contract: StepContract | None = None
    """Requirements on the answer. None unless the turn is an attempt at a step of a workflow."""
    gate: CommandGate | None = None
    """The gate whose command this turn runs, without a model: it ends after its one call. None for any other turn."""
    gate_step: str = ""
    """Name of the gate's step."""
    containment: Containment | None = None
    """None: the turn is not contained, now."""
    command: OwnCommand | None = None
    """The command of the user that this turn runs, as a gate's turn does. None for any other turn."""
    caller: str = ""
    """The role that a child turn works for; empty: it works for the user."""


def new_turn(
    turn_id: TurnId,
    session_id: SessionId,
    *,
    grant: Grant,
    parent_id: MessageId | None = None,
    history: tuple[Message, ...] = (),
) -> TurnState:
    """Return a turn before its first step. The phase is a placeholder, which that step replaces."""
    return TurnState(
        turn_id=turn_id,
        session_id=session_id,
        seq=-1,
        parent_id=parent_id,
        grant=grant,
        phase=Finished(result=TurnStatus.RUNNING, answer=""),
        history=history,
    )
