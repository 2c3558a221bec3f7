"""What the machine wants done, and the step that carries it."""

from dataclasses import dataclass
from typing import Literal

from chatops.domain.decisions import Decision, Principal, RememberedGrant
from chatops.domain.events import Event
from chatops.domain.ids import CallId, RoundId
from chatops.domain.messages import Message
from chatops.domain.model import ModelRequest
from chatops.domain.tools import CallFacts, Exposure, ToolCall, ToolResult
from chatops.engine.state import TurnState
from chatops.policy.workflow import PatternGate


@dataclass(frozen=True, slots=True, kw_only=True)
class CallModel:
    """Ask a model; answer with ModelReplied or ModelFailed of the same round."""

    round_id: RoundId
    request: ModelRequest
    kind: Literal["call_model"] = "call_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckAnswer:
    """Read the answer of a step's turn as `AnswerFacts` describes; answer with AnswerChecked of the same round.

    It changes nothing, so after a restart it is simply asked again. Whoever performs it never raises: what cannot be
    read or compared is a problem.
    """

    round_id: RoundId
    text: str
    """The answer as the model wrote it."""
    schema: str
    """JSON Schema (text) of the result; empty: nothing is compared."""
    patterns: tuple[PatternGate, ...] = ()
    """What the result has to match, or must not."""
    kind: Literal["check_answer"] = "check_answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectCall:
    """Parse, validate and resolve a call; answer with CallInspected."""

    call: ToolCall
    kind: Literal["inspect_call"] = "inspect_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunTool:
    """Run a call; answer with ToolReturned. Its commit has stored the intent (call id, attempt)."""

    call: ToolCall
    facts: CallFacts
    attempt: int
    digest: str
    exposure: Exposure = Exposure.WHOLE
    kind: Literal["run_tool"] = "run_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReconcileTool:
    """Find out whether a started attempt took effect; answer with ToolReconciled."""

    call: ToolCall
    facts: CallFacts
    attempt: int
    kind: Literal["reconcile_tool"] = "reconcile_tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortModel:
    """Stop the model call of a round; its answer is no longer wanted."""

    round_id: RoundId
    kind: Literal["abort_model"] = "abort_model"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTool:
    """Stop a running tool; it still answers with ToolReturned."""

    call_id: CallId
    kind: Literal["cancel_tool"] = "cancel_tool"


Effect = CallModel | CheckAnswer | InspectCall | RunTool | ReconcileTool | AbortModel | CancelTool


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The journal's row for an attempt is closed with this."""

    call_id: CallId
    attempt: int
    result: ToolResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRecord:
    """A decision for the decision log: who, on which bytes, what."""

    call_id: CallId
    tool: str
    digest: str
    decision: Decision
    by: Principal


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The next state, what is to be stored with it, told of it and done because of it.

    One transaction holds the state, `messages`, `results`, `decisions`, `grants`, what `takes_kept` says and an intent
    for each RunTool among `effects`. An input that no longer applies gives the same state and nothing else.
    """

    state: TurnState
    effects: tuple[Effect, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Message, ...] = ()
    results: tuple[AttemptResult, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    grants: tuple[RememberedGrant, ...] = ()
    takes_kept: bool = False
    """It begins a turn with the oldest text that was kept for the session, which is not kept any longer."""
