"""The inputs of a workflow run: everything that can happen to it."""

from typing import Literal

from chatops.domain.decisions import Principal
from chatops.domain.events import TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import TurnId
from chatops.domain.messages import Usage
from chatops.domain.model import FailureKind
from chatops.domain.tools import Outcome
from chatops.engine.contract import DoneCall


@frozen_dataclass
class TurnEndInput:
    """A turn of the run is over. Built by `turn_end_input` from the turn's state."""

    turn_id: TurnId
    status: TurnStatus
    answer: str = ""
    detail: str = ""
    advice: str = ""
    noticed: bool = False
    """As in `Finished`."""
    rounds: int = 0
    usage: Usage | None = None
    done: tuple[DoneCall, ...] = ()
    """Calls of this turn that may have changed something."""
    outcome: Outcome | None = None
    """Outcome of the command, for the turn of a gate."""
    unanswered: FailureKind | None = None
    """Reason why no model replied in the end, if it does not concern the step."""
    over_budget: bool = False
    """True if the user has refused to let it spend more."""
    kind: Literal["turn_end_input"] = "turn_end_input"


@frozen_dataclass
class Accept:
    """Accept the answer under review. Has no effect on a step that failed."""

    kind: Literal["accept"] = "accept"


@frozen_dataclass
class TryAgain:
    """Repeat the step, with `told` for the model (why the answer is refused, or an edited input).

    Grants one more attempt, even if the step has used up its own.
    """

    told: str = ""
    kind: Literal["try_again"] = "try_again"


@frozen_dataclass
class Skip:
    """Continue without this step's result. Only after a failure or a stop, and only if the step allows it."""

    kind: Literal["skip"] = "skip"


@frozen_dataclass
class StopRun:
    """End the run as failed."""

    kind: Literal["stop_run"] = "stop_run"


Review = Accept | TryAgain | Skip | StopRun


@frozen_dataclass
class ReviewStep:
    """The user's review of attempt `attempt` at step `step`, as they were shown."""

    step: int
    attempt: int
    review: Review
    by: Principal
    kind: Literal["review_step"] = "review_step"


@frozen_dataclass
class CancelRun:
    """The user ended the run."""

    by: Principal
    kind: Literal["cancel_run"] = "cancel_run"


WorkflowInput = TurnEndInput | ReviewStep | CancelRun
