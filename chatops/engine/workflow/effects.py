"""What the machine of workflows wants done, and the step that carries it."""

from dataclasses import dataclass
from typing import Literal

from chatops.domain.events import Event
from chatops.domain.ids import TurnId
from chatops.engine.contract import StepContract
from chatops.engine.workflow.inputs import Reviewed, RunCancelled
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.workflow import CommandGate, StepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """Begin the turn `turn_id` for a step, or take it up where it was stored; answer with TurnEnded.

    `after` is the turn of the attempt before, whose messages the model sees; None: it sees nothing of earlier turns.
    """

    turn_id: TurnId
    step: StepSpec
    text: str
    """The message that opens it: the person's request, what earlier steps gave, what the last attempt lacked."""
    contract: StepContract
    after: TurnId | None = None
    kind: Literal["start_attempt"] = "start_attempt"


@dataclass(frozen=True, slots=True, kw_only=True)
class StartGate:
    """Run a gate's command as the turn `turn_id`, or take it up where it was stored; answer with TurnEnded.

    It needs a grant that offers ``shell_exec``, which the step's own tools need not hold.
    """

    turn_id: TurnId
    step: StepSpec
    gate: CommandGate
    kind: Literal["start_gate"] = "start_gate"


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTurn:
    """Stop the turn under way; nothing is waited for."""

    turn_id: TurnId
    kind: Literal["cancel_turn"] = "cancel_turn"


WorkflowEffect = StartAttempt | StartGate | CancelTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowStep:
    """The next state of a run with what is told and done because of it. An input that no longer applies gives the
    same state and nothing else."""

    state: WorkflowState
    effects: tuple[WorkflowEffect, ...] = ()
    events: tuple[Event, ...] = ()
    word: Reviewed | RunCancelled | None = None
    """The person's word that led to it."""
