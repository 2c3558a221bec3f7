"""The state of a turn: everything that is needed to go on with it, and nothing that cannot be stored."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from chatops.domain.decisions import RememberedGrant
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import MessageId, RoundId, SessionId, TurnId
from chatops.domain.interruption import Interruption
from chatops.domain.messages import AssistantMessage, Message
from chatops.domain.rights import Verdict
from chatops.domain.tools import CallFacts, ToolCall, ToolResult
from chatops.domain.usage import Usage
from chatops.engine.contract import StepContract
from chatops.policy.grant import Grant
from chatops.policy.workflow import CommandGate


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspecting:
    """Its arguments are being parsed, validated and resolved."""

    before_edit: "BeforeEdit | None" = None
    """Set while a person's edit is inspected: where to return to if the edit cannot run."""
    kind: Literal["inspecting"] = "inspecting"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deferred:
    """Inspection failed on the state of the world; it is repeated when all earlier calls are settled."""

    kind: Literal["deferred"] = "deferred"


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitingDecision:
    """It waits for a person, who is shown `facts` and approves `digest`."""

    facts: CallFacts
    digest: str
    reason: AskReason
    why: str
    attempt: int = 0
    """Attempts already made."""
    interruption: Interruption | None = None
    """The last of them may have taken effect, and this is known of it. None: it certainly has not, or the state was
    stored before this was kept, see `in_doubt`."""
    kind: Literal["awaiting_decision"] = "awaiting_decision"

    @property
    def in_doubt(self) -> bool:
        """Whether an earlier attempt may have taken effect."""
        return self.reason is AskReason.OUTCOME_UNKNOWN or self.interruption is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class Permitted:
    """It may run as `digest` says, when its place in the round comes."""

    facts: CallFacts
    digest: str
    verdict: Verdict
    decided_by: str
    attempt: int = 0
    """Attempts already made (after a crash, or an unknown outcome that a person wants retried)."""
    fresh: bool = False
    """Inspected in this very step, so it need not be inspected again if it starts at once."""
    interruption: Interruption | None = None
    """Of an earlier attempt that may have taken effect: a person wants it run again all the same."""
    kind: Literal["permitted"] = "permitted"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rechecking:
    """Its place has come: it is inspected a last time, and runs if nothing differs."""

    facts: CallFacts
    digest: str
    verdict: Verdict
    decided_by: str
    attempt: int = 0
    interruption: Interruption | None = None
    """As in `Permitted`."""
    kind: Literal["rechecking"] = "rechecking"


@dataclass(frozen=True, slots=True, kw_only=True)
class Started:
    """The intent to run it is on disk; it may have taken effect."""

    facts: CallFacts
    digest: str
    verdict: Verdict
    decided_by: str
    attempt: int
    interruption: Interruption | None = None
    """As in `Permitted`."""
    kind: Literal["started"] = "started"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciling:
    """After a crash: the tool is asked whether the started attempt took effect."""

    facts: CallFacts
    digest: str
    verdict: Verdict
    decided_by: str
    attempt: int
    interruption: Interruption | None = None
    """As in `Permitted`."""
    known: Interruption | None = None
    """Of the attempt that is asked about."""
    kind: Literal["reconciling"] = "reconciling"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settled:
    """It has its result."""

    result: ToolResult
    arguments: str
    verdict: Verdict | None = None
    decided_by: str = ""
    kind: Literal["settled"] = "settled"


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeEdit:
    """The call as it waited before a person edited its arguments."""

    arguments: str
    status: AwaitingDecision
    edited_by: str
    repairs: tuple[str, ...] = ()


CallStatus = Inspecting | Deferred | AwaitingDecision | Permitted | Rechecking | Started | Reconciling | Settled


@dataclass(frozen=True, slots=True, kw_only=True)
class CallState:
    """One call of the round and where it stands."""

    call: ToolCall
    status: CallStatus


class Purpose(StrEnum):
    """What a model call is for."""

    GATHER = "gather"
    """Tools are on offer."""
    GATHER_AGAIN = "gather_again"
    """The same after an empty reply; a second empty one ends the turn."""
    CLOSE = "close"
    """The reserved last call, in which tools are withheld."""
    RESPOND = "respond"
    """The role's responder writes the final answer from what was gathered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AwaitingModel:
    """A model has been asked."""

    round_id: RoundId
    under: Grant
    """The grant the request was made under: the calls of its reply are judged by it too."""
    purpose: Purpose = Purpose.GATHER
    gathered: AssistantMessage | None = None
    """For a responder: the conclusion of the model that gathered, which is the answer if none comes."""
    kind: Literal["awaiting_model"] = "awaiting_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckingAnswer:
    """The answer of a step's turn is being read and compared with its schema; the contract is applied after that."""

    round_id: RoundId
    purpose: Purpose
    text: str
    """The answer as the model wrote it."""
    kind: Literal["checking_answer"] = "checking_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class InRound:
    """The calls of a reply are being dealt with, each judged by `proposed_under` and the grant in force."""

    round_id: RoundId
    proposed_under: Grant
    said: str
    model: str
    calls: tuple[CallState, ...]
    copied: bool = False
    """The store was copied since these calls were proposed: another copy may run them too, so that no rule lets one
    run that changes something."""
    kind: Literal["in_round"] = "in_round"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """Cancelled while tools ran: waiting for them to stop, so that each call has a true result."""

    round_id: RoundId
    model: str
    calls: tuple[CallState, ...]
    kind: Literal["stopping"] = "stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The turn is over; a failed one can be retried."""

    result: TurnStatus
    answer: str
    detail: str = ""
    advice: str = ""
    kind: Literal["finished"] = "finished"


Phase = AwaitingModel | CheckingAnswer | InRound | Stopping | Finished


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundRecord:
    """What a model call cost, for the report."""

    model: str
    finish_reason: str
    usage: Usage | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A call that could not run as written, since the last round in which one could."""

    signature: str
    """Digest of tool, arguments and what was wrong with them."""
    times: int
    """In how many rounds it was made."""
    request: int
    """The last of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """What bounds a turn. Waiting for a person counts nowhere."""

    requests: int = 0
    """Model calls made; numbers the rounds."""
    rounds: int = 0
    """Rounds that count against `max_rounds`."""
    repairs: int = 0
    """Rounds of only invalid calls in a row, since the last one that counted."""
    repairs_total: int = 0
    backup: int = 0
    """Index into the grant's models: how many of them have failed."""
    same_call: int = 0
    """How often in a row the model has made the call `last_call`."""
    last_call: str = ""
    """Digest of the last call's tool and arguments."""
    mistakes: tuple[Mistake, ...] = ()
    elided: int = 0
    """Tool results left out of the last request, or shortened in it, for want of room."""
    full: bool = False
    """The user was told in this turn that the context is nearly full."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnState:
    """One turn. Stored with ids in the place of message bodies, which have rows of their own."""

    turn_id: TurnId
    session_id: SessionId
    seq: int
    """Grows by one with each step; the store refuses a step that does not follow its predecessor."""
    parent_id: MessageId | None
    """The session's head when the turn began."""
    grant: Grant
    """In force for the next model call and for every check."""
    phase: Phase
    history: tuple[Message, ...] = ()
    """What was said before this turn, oldest first."""
    messages: tuple[Message, ...] = ()
    """What this turn has added."""
    remembered: tuple[RememberedGrant, ...] = ()
    """Of this session, all roles: those of another role are suspended, not gone."""
    counters: Counters = Counters()
    usage: Usage | None = None
    rounds: tuple[RoundRecord, ...] = ()
    contract: StepContract | None = None
    """What the answer has to fulfil, for an attempt at a step of a workflow."""
    gate: CommandGate | None = None
    """The gate whose command this turn runs: it has no model and ends with the one call."""
