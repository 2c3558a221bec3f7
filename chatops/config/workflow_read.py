"""Read a workflow's definition into values, or raise an error that names file, line, column and key."""

import json
from pathlib import PurePath
from typing import Literal

from pydantic import ValidationError

from chatops.config.document import Document, read_document
from chatops.config.locate import parse
from chatops.config.workflow_model import ExitCode, GateEntry, StepEntry, ValidationEntry, WorkflowEntry, keys_beside
from chatops.config.workflow_yaml import parse_yaml
from chatops.domain.errors import ConfigError
from chatops.domain.tools import tool_name
from chatops.policy.workflow import (
    CommandGate,
    Gate,
    OnFail,
    PassesWhen,
    PatternGate,
    StepSpec,
    Subject,
    Validation,
    WorkflowSpec,
)
from chatops.policy.workflow_checks import workflow_name_fault
from chatops.policy.workflow_definition import Definition, Keys

_CHECK = "Correct it there; chatops registry check shows whether it can be read."


def read_workflow(data: bytes, *, source: str, most: int = 1_000_000) -> Definition:
    """Read the workflow in the file `source`, of at most `most` bytes. Its name is the file's stem.

    Raises ConfigError naming line, column and key.
    """
    path = PurePath(source)
    if fault := workflow_name_fault(path.stem):
        raise ConfigError(f"{source}: {fault}.", advice="The file is called as its workflow is; rename it.")
    syntax = parse if path.suffix == ".json" else parse_yaml
    document = read_document(data, source=source, advice=_CHECK, most=most, syntax=syntax)
    return definition_in(document, document.located.value, name=path.stem)


def definition_in(document: Document, value: object, *, name: str, prefix: Keys = ()) -> Definition:
    """Read the workflow that `value`, at `prefix` of `document`, defines. Raises ConfigError."""
    if not isinstance(value, dict):
        raise document.error(prefix, "an object with steps has to stand here")
    if fault := workflow_name_fault(name):
        raise document.error(prefix, fault)
    try:
        entry = WorkflowEntry.model_validate(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        # Report a misspelt key first, because it explains a missing one.
        detail = next((one for one in details if one["type"] == "extra_forbidden"), details[0])
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


def _passes_when(given: Literal["success"] | ExitCode | None) -> PassesWhen:
    match given:
        case None:
            return PassesWhen.VALID
        case ExitCode():
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
