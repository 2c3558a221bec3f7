"""One step of a workflow that is written in Python."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Literal

from pydantic import BaseModel

from chatops.api.tools import AnyTool
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
