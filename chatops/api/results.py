"""Results of a run, for the program that started it."""

from dataclasses import dataclass
from typing import Any

from chatops.domain.events import PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """State of a step."""

    name: str
    status: str
    """``accepted``, ``failed``, ``skipped``, ``open`` (started and not over), or ``not begun``."""
    result: Any = None
    """The step's result: the value of its answer, or an instance of the class that is its output_schema."""
    attempts: int = 0
    """Attempts so far, including the current one."""
    detail: str = ""
    """Reason that it failed, or that its last attempt was not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """End of a run, or its state if the user is needed."""

    success: bool
    """True if the run ended and every step gave a result."""
    result: Any
    """Result of the last step that gave one; None unless the run ended with an answer."""
    steps: tuple[StepReport, ...]
    failed_steps: tuple[str, ...] = ()
    """Names of the steps that the run passed over: failed with ``on_fail: go_on``, or skipped by the user."""
    pending: tuple[PendingCall, ...] = ()
    """Calls that wait for a decision: ``chatops approvals``, then `Workflow.resume`."""
    review: str = ""
    """Name of the step that the user has to review before the run continues."""
    session_id: str = ""
    detail: str = ""
    """Reason that it did not succeed; empty if it did."""
