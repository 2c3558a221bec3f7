"""Read a workflow's definition from a file or a registry into values, and say what is wrong with it.

A definition decides what runs, so every unknown key is an error, which names file, line, column and key. `check` finds
problems before a run, and names these too. An output schema has to compile, and its references have to be inside it.
"""

import json
from collections.abc import Iterator
from dataclasses import field
from pathlib import PurePath
from typing import Annotated, Literal

from annotated_types import Interval, Len, MaxLen
from pydantic import JsonValue

from chatops.config.document import MAX_DEPTH, Document, Json, Path, key_clause, parse, read_document
from chatops.config.entries import EntryReader, KeySchema, adapter_of
from chatops.config.yaml_document import parse_yaml
from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import tool_name
from chatops.policy.spelled import MAX_ROUNDS, STRICT, Name, Spelled, Tokens, strict_with
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
from chatops.policy.workflow_checks import (
    MAX_ATTEMPTS,
    MAX_TEMPERATURE,
    Known,
    ProblemSeverity,
    WorkflowProblem,
    check_workflow,
    step_name_fault,
    workflow_name_fault,
)

_ADVICE = "Correct it there; chatops registry check shows whether it can be read."
_MAX_REPORTED = 20
"""Maximum number of errors of a workflow that a message lists."""
_REFERENCE_KEYWORDS = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_DATA_KEYWORDS = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are data, not schemas."""
_LongText = Annotated[str, MaxLen(100_000)]
_Tools = Annotated[tuple[str, ...], Spelled(tuple[Name, ...], lambda names: tuple(map(tool_name, names)))]


def _parse_step_name(value: str) -> str:
    if fault := step_name_fault(value):
        raise ValueError(fault)
    return value


def _parse_iterations(value: int | str) -> int:
    if value in ITERATIONS:
        return ITERATIONS[str(value)]
    if isinstance(value, int) and 1 <= value <= MAX_ROUNDS:
        return value
    raise ValueError(f"expected a whole number from 1 to {MAX_ROUNDS}, or one of {', '.join(ITERATIONS)}")


_Iterations = Annotated[
    int,
    Spelled(
        int | str,
        _parse_iterations,
        schema={"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_ROUNDS}, {"enum": list(ITERATIONS)}]},
    ),
]


@frozen_dataclass
class ExitCodePass:
    """The exit code of a program that a validation runs."""

    __pydantic_config__ = STRICT

    exit_code: Literal[0]


@frozen_dataclass
class ValidationEntry:
    """A tool that has to be called and to pass."""

    __pydantic_config__ = STRICT

    tool: Name
    subject: dict[Name, str] = field(default_factory=dict)
    """Argument name to a JSON pointer into the answer, or to ``""``."""
    depends_on: _Tools | None = None
    passes_when: Literal["success"] | ExitCodePass | None = None
    """For a tool that is not a validator by contract; if None, the tool has to return ``{"valid": true, …}``."""


def _make_validation(given: ValidationEntry | str) -> Validation:
    if isinstance(given, str):
        return Validation(tool=tool_name(given))
    match given.passes_when:
        case None:
            passes = PassesWhen.VALID
        case "success":
            passes = PassesWhen.SUCCESS
        case _:
            passes = PassesWhen.EXIT_CODE_0
    return Validation(
        tool=tool_name(given.tool),
        subject=tuple(Subject(argument=name, pointer=pointer) for name, pointer in given.subject.items()),
        depends_on=given.depends_on,
        passes_when=passes,
    )


@frozen_dataclass
class GateEntry:
    """Either a pattern or a command."""

    __pydantic_config__ = strict_with(
        {
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
    command: Annotated[str, Len(1, 10_000)] | None = None
    timeout_s: Annotated[int, Interval(ge=1, le=86_400)] | None = None


def _make_gate(given: GateEntry) -> Gate:
    if (given.pattern is None) == (given.command is None):
        raise ValueError("a gate has either a pattern or a command")
    kind, foreign_keys = ("pattern", ("timeout_s",)) if given.command is None else ("command", ("pointer", "negated"))
    for key in foreign_keys:
        if getattr(given, key) is not None:
            raise ValueError(f"a gate with a {kind} has no {key}")
    if given.command is not None:
        return CommandGate(name=given.name, command=given.command, timeout_s=given.timeout_s)
    return PatternGate(
        name=given.name, pattern=given.pattern or "", pointer=given.pointer or "", negated=bool(given.negated)
    )


@frozen_dataclass
class StepEntry:
    """One step."""

    __pydantic_config__ = STRICT

    name: Annotated[str, Spelled(str, _parse_step_name)]
    system_prompt: _LongText
    role: str = ""
    model: str = ""
    tools: _Tools | None = None
    validation_tools: tuple[Annotated[Validation, Spelled(ValidationEntry | Name, _make_validation)], ...] = ()
    gates: tuple[Annotated[Gate, Spelled(GateEntry, _make_gate)], ...] = ()
    output_schema: dict[str, JsonValue] | None = None
    max_iterations: _Iterations = DEFAULT_ITERATIONS
    max_step_retries: Annotated[int, Interval(ge=1, le=MAX_ATTEMPTS)] = DEFAULT_ATTEMPTS
    """Number of attempts in all."""
    temperature: Annotated[float, Interval(ge=0, le=MAX_TEMPERATURE)] = DEFAULT_TEMPERATURE
    max_tokens: Tokens = DEFAULT_OUTPUT_TOKENS
    on_fail: Literal["stop", "ask", "go_on"] = "stop"
    may_skip: bool = False
    review: bool = False
    order: _Tools = ()
    once: _Tools = ()


def _make_step(given: StepEntry) -> StepSpec:
    return StepSpec(
        name=given.name,
        system_prompt=given.system_prompt.strip(),
        role=given.role,
        model=given.model,
        tools=given.tools,
        validations=given.validation_tools,
        gates=given.gates,
        # Keep the order as written: a model writes members in the order of the schema.
        output_schema="" if given.output_schema is None else json.dumps(given.output_schema, ensure_ascii=False),
        max_iterations=given.max_iterations,
        max_attempts=given.max_step_retries,
        temperature=given.temperature,
        max_output_tokens=given.max_tokens,
        on_fail=OnFail(given.on_fail),
        may_skip=given.may_skip,
        review=given.review,
        order=given.order,
        once=given.once,
    )


@frozen_dataclass
class WorkflowEntry:
    """A workflow: the value of its name in the registry, or the content of a file."""

    __pydantic_config__ = STRICT

    description: _LongText = ""
    steps: Annotated[tuple[Annotated[StepSpec, Spelled(StepEntry, _make_step)], ...], Len(1, 50)]


def read_workflow(data: bytes, *, source: str, most: int = 1_000_000) -> Definition:
    """Read the workflow in the file `source`, of at most `most` bytes. Its name is the file's stem.

    Raises ConfigError naming line, column and key.
    """
    path = PurePath(source)
    if fault := workflow_name_fault(path.stem):
        raise ConfigError(f"{source}: {fault}.", advice="The file name is the workflow's name; rename the file.")
    syntax = parse if path.suffix == ".json" else parse_yaml
    document = read_document(data, source=source, advice=_ADVICE, most=most, syntax=syntax)
    return definition_in(document, document.located.value, name=path.stem)


def definition_in(document: Document, value: Json, *, name: str, prefix: Keys = ()) -> Definition:
    """Read the workflow that `value`, at `prefix` of `document`, defines. Raises ConfigError."""
    if not isinstance(value, dict):
        raise document.error(prefix, "expected an object with steps")
    if fault := workflow_name_fault(name):
        raise document.error(prefix, fault)
    # An unknown key is always an error here, so nothing is warned of.
    entry = EntryReader(document, lambda path, why: None).read(WorkflowEntry, value, path=prefix)
    spec = WorkflowSpec(name=name, description=entry.description.strip(), source=document.source, steps=entry.steps)
    places = {path: place for path, place in document.located.places.items() if path[: len(prefix)] == prefix}
    return Definition(spec=spec, prefix=prefix, places=places)


def workflow_schema() -> dict[str, object]:
    """Return the JSON Schema of a workflow in a file of its own."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **adapter_of(WorkflowEntry).json_schema(schema_generator=KeySchema),
        "title": "chatops workflow",
    }


@frozen_dataclass
class Checked:
    """Result of checking one workflow; one sentence per problem."""

    definition: Definition
    errors: tuple[str, ...] = ()
    """With any of these, the workflow does not start."""
    warnings: tuple[str, ...] = ()

    def or_raise(self) -> Definition:
        """Return the definition. Raises ConfigError with the errors, one per line, if there are any."""
        if not self.errors:
            return self.definition
        more = len(self.errors) - _MAX_REPORTED
        lines = (*self.errors[:_MAX_REPORTED], *((f"… and {more} more.",) if more > 0 else ()))
        raise ConfigError("\n".join(lines), advice="Correct the workflow; nothing of it was run.")


def check(definition: Definition, *, known: Known) -> Checked:
    """Check everything that can be checked before a run."""
    sentences: dict[ProblemSeverity, list[str]] = {severity: [] for severity in ProblemSeverity}
    for problem in check_workflow(definition.spec, known=known, schema_fault=schema_fault):
        sentences[problem.severity].append(describe_problem(definition, problem))
    errors, warnings = sentences[ProblemSeverity.ERROR], sentences[ProblemSeverity.WARNING]
    return Checked(definition=definition, errors=tuple(errors), warnings=tuple(warnings))


def describe_problem(definition: Definition, problem: WorkflowProblem) -> str:
    """Return a problem as a sentence. Without a file it names the workflow and the step."""
    place = definition.place(problem.keys)
    if place is None:
        return f"Workflow {definition.name}{key_clause(problem.keys)}: {problem.message}."
    (line, column), keys = place, key_clause((*definition.prefix, *problem.keys))
    return f"{definition.spec.source}, line {line}, column {column}{keys}: {problem.message}."


def schema_fault(text: str) -> WorkflowProblem | None:
    """Return what is wrong with the JSON Schema `text` (draft 2020-12 unless it says otherwise), or None.

    The problem's keys start at the schema. Nothing is ever fetched.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return WorkflowProblem(keys=(), message="the schema is not JSON")
    if not isinstance(schema, dict):
        return WorkflowProblem(keys=(), message="the schema has to be an object")
    try:
        strings = list(_schema_strings(schema, ()))
    except RecursionError:
        return WorkflowProblem(keys=(), message="the schema is nested too deeply")
    for path, value in strings:
        if path[-1] in _REFERENCE_KEYWORDS and not value.startswith("#"):
            why = f"it refers to {value!r}, and only what is inside the schema is followed (#/$defs/…)"
            return WorkflowProblem(keys=path, message=why)
        if path[-1] == "$id" and len(path) > 1:
            return WorkflowProblem(keys=path, message="only the top of the schema may have an $id")
    from chatops.config.json_schema import compile_fault  # slow to import, and few workflows have a schema

    references = [(path, value) for path, value in strings if path[-1] in _REFERENCE_KEYWORDS]
    if (fault := compile_fault(schema, references=references)) is None:
        return None
    keys, message = fault
    return WorkflowProblem(keys=keys, message=message)


def _schema_strings(schema: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield all strings in a schema that are not data, each with its path."""
    if len(path) > MAX_DEPTH:
        raise RecursionError
    if isinstance(schema, dict):
        for key, value in schema.items():
            if isinstance(value, str):
                yield (*path, key), value
            elif key not in _DATA_KEYWORDS or (path and path[-1] == "properties"):
                yield from _schema_strings(value, (*path, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _schema_strings(value, (*path, index))
