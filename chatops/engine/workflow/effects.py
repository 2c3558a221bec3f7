"""Effects that a workflow run asks for, and the step that carries them."""

from typing import Literal

from chatops.domain.events import Event
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import TurnId
from chatops.engine.contract import StepContract
from chatops.engine.workflow.inputs import CancelRun, ReviewStep
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.workflow import CommandGate, StepSpec


@frozen_dataclass
class StartAttempt:
    """Start the turn `turn_id` for a step, or resume it from its checkpoint. Answered by TurnEndInput.

    `after` is the turn of the attempt before, whose messages the model sees; None: it sees nothing of earlier turns.
    """

    turn_id: TurnId
    step: StepSpec
    text: str
    """The opening message: the user's request, results of earlier steps, and why the last attempt was not accepted."""
    contract: StepContract
    after: TurnId | None = None
    kind: Literal["start_attempt"] = "start_attempt"


@frozen_dataclass
class StartGate:
    """Run a gate's command as the turn `turn_id`, or resume it from its checkpoint. Answered by TurnEndInput.

    It needs a grant that offers ``shell_exec``, even if the step's own tools do not include it.
    """

    turn_id: TurnId
    step: StepSpec
    gate: CommandGate
    kind: Literal["start_gate"] = "start_gate"


@frozen_dataclass
class StopTurn:
    """Stop the turn in progress. The run does not wait for its end."""

    turn_id: TurnId
    kind: Literal["stop_turn"] = "stop_turn"


WorkflowEffect = StartAttempt | StartGate | StopTurn


@frozen_dataclass
class WorkflowStep:
    """The next state of a run, with the effects and events because of it.

    An input that no longer applies gives the same state and nothing else.
    """

    state: WorkflowState
    effects: tuple[WorkflowEffect, ...] = ()
    events: tuple[Event, ...] = ()
    user_input: ReviewStep | CancelRun | None = None
    """The input of the user that led to it; None: a turn ended, or the run began."""
