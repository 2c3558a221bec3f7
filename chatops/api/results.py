"""What a run gave, for the program that started it."""

from dataclasses import dataclass
from typing import Any

from chatops.domain.events import PendingCall


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """How a step stands."""

    name: str
    status: str
    """``accepted``, ``failed``, ``skipped``, ``open`` (begun and not over), or ``not begun``."""
    result: Any = None
    """What it gave: the value of its answer, or an instance of the class that is its output_schema."""
    attempts: int = 0
    """Attempts that were made, the present one included."""
    detail: str = ""
    """Why it failed, or why its last attempt was not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """How a run ended, or where it stands if a person is needed."""

    success: bool
    """True if the run ended and every step gave a result."""
    result: Any
    """Result of the last step that gave one; None unless the run ended with an answer."""
    steps: tuple[StepReport, ...]
    failed_steps: tuple[str, ...] = ()
    """Names of the steps that the run passed over: failed with ``on_fail: go_on``, or skipped by the user."""
    pending: tuple[PendingCall, ...] = ()
    """Calls that wait for a person: ``chatops approvals``, then `Workflow.resume`."""
    review: str = ""
    """Name of the step that a person has to look at before the run goes on."""
    session_id: str = ""
    detail: str = ""
    """Why it did not succeed; empty if it did."""
