"""Effects that a turn asks for, and the `TurnStep` that carries them."""

from dataclasses import replace
from typing import Literal

from chatops.domain.decisions import Answer, Principal, Recorded, RememberedRule
from chatops.domain.events import Event
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, RoundId
from chatops.domain.messages import Message
from chatops.domain.model import ModelRequest
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure, ToolCall, ToolResult, Verdict
from chatops.engine.state import Spending, TurnState
from chatops.policy.budget import NO_BUDGET, Budget
from chatops.policy.grant import Grant
from chatops.policy.workflow import PatternGate


@frozen_dataclass
class CallModel:
    """Ask a model. Answered by ModelReplyInput or ModelFailureInput of the same round."""

    round_id: RoundId
    request: ModelRequest
    kind: Literal["call_model"] = "call_model"


@frozen_dataclass
class CheckAnswer:
    """Parse the answer of a step's turn as `AnswerFacts` describes. Answered by AnswerCheckInput of the same round.

    It changes nothing, so it is simply repeated after a restart. The performer never raises: an answer that cannot be
    read or compared is reported as a problem.
    """

    round_id: RoundId
    text: str
    """The answer as the model wrote it."""
    schema: str
    """JSON Schema (text) of the result; empty: no comparison."""
    patterns: tuple[PatternGate, ...] = ()
    """Patterns that the result must match, or must not match."""
    kind: Literal["check_answer"] = "check_answer"


@frozen_dataclass
class InspectCall:
    """Parse, validate and resolve a call. Answered by InspectionInput."""

    call: ToolCall
    sandbox: SandboxSpec = NARROWEST
    """Limits of the command that the call runs."""
    ceiling: SandboxSpec | None = None
    """The most that the user may give this call in addition; None: there is no ceiling."""
    contained: str = ""
    """As in `CallFacts`."""
    grant: Grant | None = None
    """The rights of the turn, for a call that delegates; None for any other."""
    kind: Literal["inspect_call"] = "inspect_call"


@frozen_dataclass
class RunTool:
    """Run a call. Answered by ToolResultInput. The commit of its step has stored the intent (call id, attempt)."""

    call: ToolCall
    facts: CallFacts
    attempt: int
    digest: str
    exposure: Exposure = Exposure.WHOLE
    sandbox: SandboxSpec = NARROWEST
    """The limits under which the call was inspected."""
    grant: Grant | None = None
    """As in `InspectCall`."""
    workspace_read: bool = False
    """True if the session has read the workspace."""
    spending: Spending | None = None
    """What the turn has spent, for a call that delegates; None for any other."""
    budget: Budget = NO_BUDGET
    """The budget of the turn, for a call that delegates."""
    kind: Literal["run_tool"] = "run_tool"


@frozen_dataclass
class ReconcileTool:
    """Find out whether a started attempt took effect. Answered by ReconcileInput."""

    call: ToolCall
    facts: CallFacts
    attempt: int
    stopping: bool = False
    """True if the turn has been stopped, so that nothing of the attempt may continue."""
    kind: Literal["reconcile_tool"] = "reconcile_tool"


ToolEffect = InspectCall | RunTool | ReconcileTool


@frozen_dataclass
class DeliverAnswer:
    """Give a running call the user's answer to its question. Not answered."""

    call_id: CallId
    question_id: str
    answer: Answer
    kind: Literal["deliver_answer"] = "deliver_answer"


@frozen_dataclass
class DiscardCopy:
    """Remove the copy of a contained turn. Not answered; what a crash leaves is removed at a later start."""

    name: str
    kind: Literal["discard_copy"] = "discard_copy"


@frozen_dataclass
class AbortModel:
    """Stop the model call of a round. Its reply is no longer wanted."""

    round_id: RoundId
    kind: Literal["abort_model"] = "abort_model"


@frozen_dataclass
class CancelTool:
    """Stop a running tool; it still answers with ToolResultInput."""

    call_id: CallId
    kind: Literal["cancel_tool"] = "cancel_tool"


Effect = (
    CallModel
    | CheckAnswer
    | InspectCall
    | RunTool
    | ReconcileTool
    | AbortModel
    | CancelTool
    | DeliverAnswer
    | DiscardCopy
)


@frozen_dataclass
class AttemptResult:
    """Closes the journal's row for an attempt."""

    call_id: CallId
    attempt: int
    result: ToolResult


@frozen_dataclass
class DecisionRecord:
    """An entry of the decision log: who decided what, on which bytes (`digest`).

    If a remembered rule has answered, `by` names it, and its use is counted.
    """

    call_id: CallId
    tool: str
    digest: str
    decision: Recorded
    by: Principal


@frozen_dataclass
class VerdictRecord:
    """A verdict of the policy on a call, for the decision log, with everything that it was judged by."""

    call: ToolCall
    verdict: Verdict
    why: str
    layer: str = ""
    """The deciding layer, as `Judgement.reason`; empty: no layer, but what `why` says."""
    grants: tuple[Grant, ...]
    """The grant that the call was proposed under, then the one in force if it differs."""
    model: str
    """Empty for a call that no model has made."""
    facts: CallFacts | None = None
    """None: denied before anything was known of its arguments."""
    digest: str = ""
    """Empty without `facts`."""
    answered_by: str = ""
    """The rule that answered an *ask*, as in `Judgement`."""
    workspace_read: bool = False
    """True if the session had read the workspace."""


@frozen_dataclass
class ComposerDraft:
    """Text left in the composer when a message is sent: `text`, stored as `setting` together with the message."""

    setting: str
    text: str


@frozen_dataclass
class TurnStep:
    """The next state, with what to store, publish and perform because of it.

    One transaction stores the state, `messages`, `results`, `verdicts`, `decisions`, `rules`, `draft`, the effect of
    `takes_queued`, and an intent for each RunTool among `effects`. An input that no longer applies gives the same state
    and nothing else.
    """

    state: TurnState
    effects: tuple[Effect, ...] = ()
    events: tuple[Event, ...] = ()
    messages: tuple[Message, ...] = ()
    results: tuple[AttemptResult, ...] = ()
    verdicts: tuple[VerdictRecord, ...] = ()
    decisions: tuple[DecisionRecord, ...] = ()
    rules: tuple[RememberedRule, ...] = ()
    takes_queued: bool = False
    """True if the step starts a turn with the oldest queued message of the session, which then leaves the queue."""
    draft: ComposerDraft | None = None
    """The draft without the message that the step starts a turn with."""


def only_inspects(step: TurnStep) -> bool:
    """Return True if all that the step asks for are inspections, and none of them makes the copy of a contained turn.

    Such inspections have no effect.
    """
    return bool(step.effects) and all(isinstance(one, InspectCall) and not one.contained for one in step.effects)


def joined(first: TurnStep, then: TurnStep) -> TurnStep:
    """Return the one step that stores, publishes and asks for what `first` and the step after it do."""
    return TurnStep(
        state=replace(then.state, seq=first.state.seq),
        effects=(*first.effects, *then.effects),
        events=(*first.events, *then.events),
        messages=(*first.messages, *then.messages),
        results=(*first.results, *then.results),
        verdicts=(*first.verdicts, *then.verdicts),
        decisions=(*first.decisions, *then.decisions),
        rules=(*first.rules, *then.rules),
        takes_queued=first.takes_queued or then.takes_queued,
        draft=then.draft or first.draft,
    )
