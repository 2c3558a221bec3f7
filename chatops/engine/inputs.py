"""All that can happen to a turn."""

from dataclasses import dataclass
from typing import Literal

from chatops.domain.decisions import Decision, Principal, RememberedGrant
from chatops.domain.ids import CallId, RoundId
from chatops.domain.interruption import Interruption
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.model import ModelFailure, ModelReply
from chatops.domain.tools import CallFacts, ToolResult
from chatops.engine.contract import AnswerFacts
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Answer, Layer


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelReplied:
    """The model call of a round ended with a complete reply."""

    round_id: RoundId
    reply: ModelReply
    duration_ms: int = 0
    kind: Literal["model_replied"] = "model_replied"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailed:
    """The model call of a round ended without one; retries are over."""

    round_id: RoundId
    failure: ModelFailure
    duration_ms: int = 0
    kind: Literal["model_failed"] = "model_failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerChecked:
    """What was read out of the answer of a step's turn."""

    round_id: RoundId
    facts: AnswerFacts
    kind: Literal["answer_checked"] = "answer_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallInspected:
    """What inspection found out about a call."""

    call_id: CallId
    facts: CallFacts
    kind: Literal["call_inspected"] = "call_inspected"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallDecided:
    """A person's answer to the call as it was shown: `digest` says which bytes that was."""

    call_id: CallId
    digest: str
    decision: Decision
    by: Principal
    kind: Literal["call_decided"] = "call_decided"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReturned:
    """An attempt to run a call ended."""

    call_id: CallId
    attempt: int
    result: ToolResult
    kind: Literal["tool_returned"] = "tool_returned"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReconciled:
    """The tool looked at the world: `result` if the attempt took effect, None with `repeat` if it may run."""

    call_id: CallId
    attempt: int
    result: ToolResult | None
    repeat: bool = False
    """It certainly did not take effect, so running it is safe. Neither: nobody knows."""
    found: str = ""
    """What the tool saw, for a person, where nobody knows."""
    kind: Literal["tool_reconciled"] = "tool_reconciled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnCancelled:
    """The person stops the turn; `partial` is what had been streamed."""

    partial_text: str = ""
    partial_reasoning: str = ""
    kind: Literal["turn_cancelled"] = "turn_cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnRetried:
    """The person wants a failed turn to go on, under the grant in force now."""

    grant: Grant
    kind: Literal["turn_retried"] = "turn_retried"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSwitched:
    """Another role is in force from the next model call on."""

    grant: Grant
    switch: RoleSwitchMessage
    kind: Literal["role_switched"] = "role_switched"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantNarrowed:
    """Rights were taken away while the turn runs."""

    layers: tuple[Layer, ...]
    answers: tuple[Answer, ...] | None = None
    """Rules that still answer an ask, of those that do; None: all of them."""
    kind: Literal["grant_narrowed"] = "grant_narrowed"


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantsRevoked:
    """The person has taken remembered grants back: they answer nothing from now on."""

    grants: tuple[RememberedGrant, ...]
    kind: Literal["grants_revoked"] = "grants_revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """The turn was loaded from its checkpoint: nothing that was in flight is in flight any more.

    `grant` is what the registry gives now; the stored grant is met with it. `interrupted` is what is known of the
    attempts that were under way, whose left-over processes have been stopped. `copied`: the checkpoint was stored in
    another copy of the store, where the turn may have gone on.
    """

    grant: Grant
    interrupted: tuple[Interruption, ...] = ()
    copied: bool = False
    kind: Literal["recovered"] = "recovered"


Input = (
    ModelReplied
    | ModelFailed
    | AnswerChecked
    | CallInspected
    | CallDecided
    | ToolReturned
    | ToolReconciled
    | TurnCancelled
    | TurnRetried
    | RoleSwitched
    | GrantNarrowed
    | GrantsRevoked
    | Recovered
)
