"""A workflow's definition: its form as pydantic models, and how a file of that form becomes values.

It decides what runs, so every unknown key is an error, which names file, line, column and key.
"""

import json
from collections.abc import Sequence
from pathlib import PurePath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationError,
    model_validator,
)
from pydantic.config import JsonDict
from pydantic_core import PydanticCustomError

from chatops.config.document import Document, Path, free_key, parse, read_document
from chatops.config.workflow_yaml import parse_yaml
from chatops.domain.errors import ConfigError
from chatops.domain.tools import tool_name
from chatops.policy.resolve import MOST_ROUNDS
from chatops.policy.spelled import Name, Tokens
from chatops.policy.workflow import (
    DEFAULT_ATTEMPTS,
    DEFAULT_ITERATIONS,
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TEMPERATURE,
    ITERATIONS,
    CommandGate,
    Definition,
    Gate,
    Keys,
    OnFail,
    PassesWhen,
    PatternGate,
    StepSpec,
    Subject,
    Validation,
    WorkflowSpec,
)
from chatops.policy.workflow_checks import MOST_ATTEMPTS, MOST_TEMPERATURE, step_name_fault, workflow_name_fault

_CHECK = "Correct it there; chatops registry check shows whether it can be read."

_FREE: JsonDict = {"patternProperties": {r"^(\$schema$|x-)": True}}


class Strict(BaseModel):
    """Base of objects that decide rights: an unknown key is an error."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra=_FREE, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_free_keys(cls, value: object) -> object:
        if isinstance(value, dict):
            return {key: inner for key, inner in value.items() if not free_key(str(key))}
        return value


LongText = Annotated[str, Field(max_length=100_000)]


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
            raise PydanticCustomError("preset", "expected a whole number or one of quick, normal, complex")
        return ITERATIONS[value]
    return value


def _named_only(value: object) -> object:
    return {"tool": value} if isinstance(value, str) else value


class ExitCodePass(Strict):
    """The exit code of a program that a validation runs."""

    exit_code: Literal[0]


class ValidationEntry(Strict):
    """A tool that has to be called and to pass."""

    tool: Name
    subject: dict[Name, str] = Field(default_factory=dict)
    """Argument name to a JSON pointer into the answer, or to ``""``."""
    depends_on: list[Name] | None = None
    passes_when: Literal["success"] | ExitCodePass | None = None
    """For a tool that is not a validator by contract; if None, the tool has to return ``{"valid": true, …}``."""


class GateEntry(Strict):
    """Either a pattern or a command."""

    model_config = ConfigDict(
        json_schema_extra={
            **_FREE,
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
    system_prompt: LongText
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
    """A workflow: the value of its name in the registry, or the content of a file."""

    description: LongText = ""
    steps: Annotated[list[StepEntry], Field(min_length=1, max_length=50)]


def keys_beside(path: Path) -> Sequence[str]:
    """Return the keys that are valid beside the last one of `path`, which starts at the workflow's object."""
    words = [part for part in path[:-1] if isinstance(part, str)]
    models: dict[str, type[BaseModel]] = {"steps": StepEntry, "validation_tools": ValidationEntry, "gates": GateEntry}
    model = models.get(words[-1], WorkflowEntry) if words else WorkflowEntry
    return list(model.model_fields)


def read_workflow(data: bytes, *, source: str, most: int = 1_000_000) -> Definition:
    """Read the workflow in the file `source`, of at most `most` bytes. Its name is the file's stem.

    Raises ConfigError naming line, column and key.
    """
    path = PurePath(source)
    if fault := workflow_name_fault(path.stem):
        raise ConfigError(f"{source}: {fault}.", advice="The file name is the workflow's name; rename the file.")
    syntax = parse if path.suffix == ".json" else parse_yaml
    document = read_document(data, source=source, advice=_CHECK, most=most, syntax=syntax)
    return definition_in(document, document.located.value, name=path.stem)


def definition_in(document: Document, value: object, *, name: str, prefix: Keys = ()) -> Definition:
    """Read the workflow that `value`, at `prefix` of `document`, defines. Raises ConfigError."""
    if not isinstance(value, dict):
        raise document.error(prefix, "expected an object with steps")
    if fault := workflow_name_fault(name):
        raise document.error(prefix, fault)
    try:
        entry = WorkflowEntry.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        # Report a misspelt key first, because it explains a missing one.
        detail = next((detail for detail in details if detail["type"] == "extra_forbidden"), details[0])
        raise document.invalid(detail, keys=keys_beside, prefix=prefix) from None
    spec = spec_of(entry, name=name, source=document.source)
    places = {path: place for path, place in document.located.places.items() if path[: len(prefix)] == prefix}
    return Definition(spec=spec, prefix=prefix, places=places)


def spec_of(entry: WorkflowEntry, *, name: str, source: str) -> WorkflowSpec:
    """Convert a validated entry to values."""
    return WorkflowSpec(
        name=name,
        description=entry.description.strip(),
        source=source,
        steps=tuple(_step(step) for step in entry.steps),
    )


def workflow_schema() -> dict[str, object]:
    """Return the JSON Schema of a workflow in a file of its own."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **WorkflowEntry.model_json_schema(mode="validation"),
        "title": "chatops workflow",
    }


def _step(entry: StepEntry) -> StepSpec:
    return StepSpec(
        name=entry.name,
        system_prompt=entry.system_prompt.strip(),
        role=entry.role,
        model=entry.model,
        tools=None if entry.tools is None else _tools(entry.tools),
        validations=tuple(_validation(validation) for validation in entry.validation_tools),
        gates=tuple(_gate(gate) for gate in entry.gates),
        # Keep the order as written: a model writes members in the order of the schema.
        output_schema="" if entry.output_schema is None else json.dumps(entry.output_schema, ensure_ascii=False),
        max_iterations=entry.max_iterations,
        max_attempts=entry.max_step_retries,
        temperature=entry.temperature,
        max_output_tokens=entry.max_tokens,
        on_fail=OnFail(entry.on_fail),
        may_skip=entry.may_skip,
        review=entry.review,
        order=_tools(entry.order),
        once=_tools(entry.once),
    )


def _validation(entry: ValidationEntry) -> Validation:
    return Validation(
        tool=tool_name(entry.tool),
        subject=tuple(Subject(argument=name, pointer=pointer) for name, pointer in entry.subject.items()),
        depends_on=None if entry.depends_on is None else _tools(entry.depends_on),
        passes_when=_passes_when(entry.passes_when),
    )


def _passes_when(given: Literal["success"] | ExitCodePass | None) -> PassesWhen:
    match given:
        case None:
            return PassesWhen.VALID
        case ExitCodePass():
            return PassesWhen.EXIT_CODE_0
        case _:
            return PassesWhen.SUCCESS


def _gate(entry: GateEntry) -> Gate:
    if entry.command is not None:
        return CommandGate(name=entry.name, command=entry.command, timeout_s=entry.timeout_s)
    return PatternGate(
        name=entry.name, pattern=entry.pattern or "", pointer=entry.pointer or "", negated=bool(entry.negated)
    )


def _tools(names: list[str]) -> tuple[str, ...]:
    return tuple(tool_name(name) for name in names)
