"""The inputs of a turn: everything that can happen to it.

An input that asks for something is named in the imperative (`DecideCall`). One that reports the outcome of an effect
ends in `Input`.
"""

from typing import Literal

from chatops.domain.decisions import Answer, Decision, Principal, RememberedRule, RuleScope, ServerQuestion
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, RoundId
from chatops.domain.messages import AttachedFile, RoleSwitchMessage
from chatops.domain.model import ModelFailure, ModelReply
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts, Interruption, ToolResult
from chatops.engine.contract import AnswerFacts
from chatops.engine.effects import ComposerDraft
from chatops.engine.state import ChildTurn, RoundRecord
from chatops.policy.grant import Grant
from chatops.policy.remembered import SCOPES
from chatops.policy.verdicts import ApprovalRule, Layer


@frozen_dataclass
class ModelReplyInput:
    """The model call of a round ended with a complete reply."""

    round_id: RoundId
    reply: ModelReply
    duration_ms: int = 0
    kind: Literal["model_reply_input"] = "model_reply_input"


@frozen_dataclass
class ModelFailureInput:
    """The model call of a round ended without a complete reply, after all retries."""

    round_id: RoundId
    failure: ModelFailure
    duration_ms: int = 0
    kind: Literal["model_failure_input"] = "model_failure_input"


@frozen_dataclass
class AnswerCheckInput:
    """The answer of a step's turn was parsed and compared with its schema."""

    round_id: RoundId
    facts: AnswerFacts
    kind: Literal["answer_check_input"] = "answer_check_input"


@frozen_dataclass
class InspectionInput:
    """The inspection of a call has ended.

    `rules` are the remembered rules in force at that time. They are read with each inspection, and every call is
    inspected before it is judged, so a rule that was revoked meanwhile answers nothing.
    """

    call_id: CallId
    facts: CallFacts
    rules: tuple[RememberedRule, ...] = ()
    kind: Literal["inspection_input"] = "inspection_input"


@frozen_dataclass
class DecideCall:
    """The user's decision on a call. `digest` identifies the bytes that were shown."""

    call_id: CallId
    digest: str
    decision: Decision
    by: Principal
    kind: Literal["decide_call"] = "decide_call"


@frozen_dataclass
class ToolResultInput:
    """An attempt to run a call has ended."""

    call_id: CallId
    attempt: int
    result: ToolResult
    kind: Literal["tool_result_input"] = "tool_result_input"


@frozen_dataclass
class ReconcileInput:
    """The tool has checked whether an attempt took effect. Without `result` and `repeat` the outcome is unknown."""

    call_id: CallId
    attempt: int
    result: ToolResult | None
    """Set if the attempt took effect."""
    repeat: bool = False
    """True if the attempt certainly did not take effect, so that running it again is safe."""
    found: str = ""
    """Findings of the tool, for the user, if the outcome is unknown."""
    kind: Literal["reconcile_input"] = "reconcile_input"


@frozen_dataclass
class QuestionInput:
    """The server that runs an attempt asks the user something."""

    call_id: CallId
    attempt: int
    question: ServerQuestion
    kind: Literal["question_input"] = "question_input"


@frozen_dataclass
class QuestionWithdrawnInput:
    """The server no longer waits for the answer to its question."""

    call_id: CallId
    question_id: str
    kind: Literal["question_withdrawn_input"] = "question_withdrawn_input"


@frozen_dataclass
class AnswerQuestion:
    """The user's answer to a question of a server, or that there is none."""

    call_id: CallId
    question_id: str
    answer: Answer
    by: Principal
    why: str = ""
    """See `Answered`."""
    kind: Literal["answer_question"] = "answer_question"


@frozen_dataclass
class ChildInput:
    """The child turn of an attempt waits for the user, or no longer does."""

    call_id: CallId
    attempt: int
    child: ChildTurn
    kind: Literal["child_input"] = "child_input"


@frozen_dataclass
class SpentBeside:
    """Tokens, cost and time that the caller's other children spent since this one started."""

    children: tuple[RoundRecord, ...]
    """One record for each."""
    kind: Literal["spent_beside"] = "spent_beside"


@frozen_dataclass
class CancelTurn:
    """The user stopped the turn. The `partial_…` fields hold what had been streamed."""

    partial_text: str = ""
    partial_reasoning: str = ""
    kind: Literal["cancel_turn"] = "cancel_turn"


@frozen_dataclass
class CorrectTurn:
    """The user interrupts the turn, which continues with this message. `partial_…` hold what was streamed."""

    text: str
    files: tuple[AttachedFile, ...] = ()
    draft: ComposerDraft | None = None
    """Text that stays in the composer."""
    partial_text: str = ""
    partial_reasoning: str = ""
    kind: Literal["correct_turn"] = "correct_turn"


@frozen_dataclass
class RetryTurn:
    """The user resumed a failed turn, under the grant in force now."""

    grant: Grant
    kind: Literal["retry_turn"] = "retry_turn"


@frozen_dataclass
class SwitchRole:
    """Another role is in force from the next model call on."""

    grant: Grant
    switch: RoleSwitchMessage
    kind: Literal["switch_role"] = "switch_role"


@frozen_dataclass
class NarrowGrant:
    """Rights were taken away while the turn runs. A field that is left out takes nothing away."""

    layers: tuple[Layer, ...]
    answers: tuple[ApprovalRule, ...] | None = None
    """The rules that may still answer an ask; None: all of them."""
    sandbox: SandboxSpec | None = None
    """Limits of commands that hold from now on, in addition to those of the turn."""
    ceiling: SandboxSpec | None = None
    """The most that a call can get from now on, in addition to the turn's own ceiling."""
    rule_scopes: tuple[RuleScope, ...] = SCOPES
    """The scopes of remembered rules that may still answer."""
    may_contain: bool = True
    """False if turns may not be contained any more: calls in a copy ask again."""
    kind: Literal["narrow_grant"] = "narrow_grant"


@frozen_dataclass
class ContainTurn:
    """The user contains the turn from now on, or ends its containment (`on` is False)."""

    on: bool = True
    kind: Literal["contain_turn"] = "contain_turn"


@frozen_dataclass
class Recover:
    """The turn was loaded from its checkpoint. Nothing that was in flight is in flight any more.

    `grant` is what the registry gives now; the turn gets the intersection with the stored grant. `interrupted` holds
    what is known of the attempts that were running; their orphan processes have been stopped. `copied` is True if the
    checkpoint was stored in another copy of the store, where the turn may have been resumed too. `unsent` is the round
    whose request the last process left to this one.
    """

    grant: Grant
    interrupted: tuple[Interruption, ...] = ()
    copied: bool = False
    unsent: str = ""
    kind: Literal["recover"] = "recover"


CallInput = (
    InspectionInput
    | DecideCall
    | ToolResultInput
    | ReconcileInput
    | QuestionInput
    | QuestionWithdrawnInput
    | AnswerQuestion
    | ChildInput
)
"""Inputs about one call of the round, which has their `call_id`."""
Input = (
    CallInput
    | ModelReplyInput
    | ModelFailureInput
    | AnswerCheckInput
    | SpentBeside
    | CancelTurn
    | CorrectTurn
    | RetryTurn
    | SwitchRole
    | NarrowGrant
    | ContainTurn
    | Recover
)
