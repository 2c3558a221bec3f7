"""A workflow's definition as pydantic models. It decides what runs, so every unknown key is an error."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, JsonValue, model_validator
from pydantic_core import PydanticCustomError

from chatops.config.locate import Path
from chatops.config.registry_model import FREE_IN_SCHEMA, Name, Strict, Tokens
from chatops.policy.resolve import MOST_ROUNDS
from chatops.policy.workflow import (
    DEFAULT_ATTEMPTS,
    DEFAULT_ITERATIONS,
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TEMPERATURE,
    ITERATIONS,
)
from chatops.policy.workflow_checks import MOST_ATTEMPTS, MOST_TEMPERATURE, step_name_fault

Text = Annotated[str, Field(max_length=100_000)]


def _step_name(value: str) -> str:
    if fault := step_name_fault(value):
        raise PydanticCustomError("name", "{fault}", {"fault": fault})
    return value


StepName = Annotated[str, AfterValidator(_step_name)]

_Rounds = Annotated[int, Field(ge=1, le=MOST_ROUNDS)]
_Preset = Literal["quick", "normal", "complex"]


def _iterations(value: object) -> object:
    if isinstance(value, str):
        if value not in ITERATIONS:
            raise PydanticCustomError("preset", "a whole number or one of quick, normal, complex has to stand here")
        return ITERATIONS[value]
    return value


def _named_only(value: object) -> object:
    return {"tool": value} if isinstance(value, str) else value


class ExitCode(Strict):
    """The exit code of a program that a validation runs."""

    exit_code: Literal[0]


class ValidationEntry(Strict):
    """A tool that has to be called and to pass."""

    tool: Name
    subject: dict[Name, str] = Field(default_factory=dict)
    """Argument name to a JSON pointer into the answer, or to ``""``."""
    depends_on: list[Name] | None = None
    passes_when: Literal["success"] | ExitCode | None = None
    """For a tool that is not a validator by contract; if None, the tool has to return ``{"valid": true, …}``."""


class GateEntry(Strict):
    """Either a pattern or a command."""

    model_config = ConfigDict(
        json_schema_extra={
            **FREE_IN_SCHEMA,
            "oneOf": [{"required": ["pattern"]}, {"required": ["command"]}],
            "dependentSchemas": {
                "command": {"properties": {"pointer": False, "negated": False}},
                "pattern": {"properties": {"timeout_s": False}},
            },
        }
    )

    name: Name
    pattern: str | None = None
    pointer: str | None = None
    negated: bool | None = None
    command: Annotated[str, Field(min_length=1, max_length=10_000)] | None = None
    timeout_s: Annotated[int, Field(ge=1, le=86_400)] | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> "GateEntry":
        if (self.pattern is None) == (self.command is None):
            raise PydanticCustomError("gate", "a gate has either a pattern or a command")
        foreign = ("pointer", "negated") if self.command is not None else ("timeout_s",)
        for key in foreign:
            if getattr(self, key) is not None:
                kind = "command" if self.command is not None else "pattern"
                raise PydanticCustomError("gate", "a gate with a {kind} has no {key}", {"kind": kind, "key": key})
        return self


class StepEntry(Strict):
    """One step."""

    name: StepName
    system_prompt: Text
    role: str = ""
    model: str = ""
    tools: list[Name] | None = None
    validation_tools: list[
        Annotated[ValidationEntry, BeforeValidator(_named_only, json_schema_input_type=Name | ValidationEntry)]
    ] = Field(default_factory=list)
    gates: list[GateEntry] = Field(default_factory=list)
    output_schema: dict[str, JsonValue] | None = None
    max_iterations: Annotated[_Rounds, BeforeValidator(_iterations, json_schema_input_type=_Rounds | _Preset)] = (
        DEFAULT_ITERATIONS
    )
    max_step_retries: Annotated[int, Field(ge=1, le=MOST_ATTEMPTS)] = DEFAULT_ATTEMPTS
    """Number of attempts in all."""
    temperature: Annotated[float, Field(ge=0, le=MOST_TEMPERATURE)] = DEFAULT_TEMPERATURE
    max_tokens: Tokens = DEFAULT_OUTPUT_TOKENS
    on_fail: Literal["stop", "ask", "go_on"] = "stop"
    may_skip: bool = False
    review: bool = False
    order: list[Name] = Field(default_factory=list)
    once: list[Name] = Field(default_factory=list)


class WorkflowEntry(Strict):
    """A workflow: what stands under its name in the registry, or alone in a file."""

    description: Text = ""
    steps: Annotated[list[StepEntry], Field(min_length=1, max_length=50)]


def keys_beside(path: Path) -> Sequence[str]:
    """Return the keys that are valid beside the last one of `path`, which starts at the workflow's object."""
    words = [part for part in path[:-1] if isinstance(part, str)]
    models: dict[str, type[BaseModel]] = {"steps": StepEntry, "validation_tools": ValidationEntry, "gates": GateEntry}
    model = models.get(words[-1], WorkflowEntry) if words else WorkflowEntry
    return list(model.model_fields)
