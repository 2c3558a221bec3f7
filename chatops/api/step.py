"""Values of a workflow in Python: the steps that a program gives, and the results that it gets."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from pydantic import BaseModel

from chatops.api.tools import AnyTool
from chatops.domain.events import PendingCall
from chatops.policy.workflow import (
    DEFAULT_ATTEMPTS,
    DEFAULT_ITERATIONS,
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TEMPERATURE,
)

Validator = AnyTool | Mapping[str, Any]
"""A validator tool; or, as in a file, ``{"tool": …, "subject": {…}, "depends_on": […], "passes_when": …}``."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step. Every field means the same as in a file. It is checked when its `Workflow` is created."""

    name: str
    system_prompt: str
    _: KW_ONLY
    tools: Sequence[AnyTool] | None = ()
    """Functions, or names of existing tools. None: all that the role permits."""
    validation_tools: Sequence[Validator] = ()
    gates: Sequence[Mapping[str, Any]] = ()
    output_schema: Mapping[str, Any] | type[BaseModel] | None = None
    """A JSON Schema, or a class that the result becomes an instance of."""
    role: str = ""
    model: str = ""
    max_iterations: int | Literal["quick", "normal", "complex"] = DEFAULT_ITERATIONS
    max_step_retries: int = DEFAULT_ATTEMPTS
    """Total number of attempts, including the first."""
    temperature: float = DEFAULT_TEMPERATURE
    max_tokens: int = DEFAULT_OUTPUT_TOKENS
    on_fail: Literal["stop", "ask", "go_on"] = "stop"
    may_skip: bool = False
    review: bool = False
    order: Sequence[AnyTool] = ()
    once: Sequence[AnyTool] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """State of a step."""

    name: str
    status: str
    """``accepted``, ``failed``, ``skipped``, ``open`` (started and not over), or ``not begun``."""
    result: Any = None
    """The step's result: the value of its answer, or an instance of the class that is its output_schema."""
    reasoning: str = ""
    """The reason that the model gives for its answer."""
    attempts: int = 0
    """Attempts so far, including the current one."""
    detail: str = ""
    """Reason that it failed, or that its last attempt was not accepted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowResult:
    """Result of a run, or its state if it needs the user."""

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
