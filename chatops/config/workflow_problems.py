"""Check a workflow before it runs, and describe problems with file, line, column and key.

An output schema has to compile, and all its references have to be inside it.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from chatops.config.document import MAX_DEPTH, Path, key_of
from chatops.domain.errors import ConfigError
from chatops.domain.wording import cut
from chatops.policy.workflow import Definition
from chatops.policy.workflow_checks import Known, ProblemSeverity, WorkflowProblem, check_workflow

MOST_TOLD = 20


_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})
_VALUES = frozenset({"const", "enum", "default", "examples"})
"""Keywords whose values are data, not schemas."""


@dataclass(frozen=True, slots=True, kw_only=True)
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
        more = len(self.errors) - MOST_TOLD
        lines = (*self.errors[:MOST_TOLD], *((f"… and {more} more.",) if more > 0 else ()))
        raise ConfigError("\n".join(lines), advice="Correct the workflow; nothing of it was run.")


def check(definition: Definition, *, known: Known) -> Checked:
    """Check everything that can be checked before a run."""
    problems = check_workflow(definition.spec, known=known, schema_fault=schema_fault)
    return Checked(
        definition=definition,
        errors=tuple(describe_problem(definition, one) for one in problems if one.severity is ProblemSeverity.ERROR),
        warnings=tuple(
            describe_problem(definition, one) for one in problems if one.severity is ProblemSeverity.WARNING
        ),
    )


def describe_problem(definition: Definition, problem: WorkflowProblem) -> str:
    """Return a problem as a sentence. Without a file it names the workflow and the step."""
    place = definition.place(problem.keys)
    if place is None:
        return f"Workflow {definition.name}{key_of(problem.keys)}: {problem.message}."
    keys = key_of((*definition.prefix, *problem.keys))
    return f"{definition.spec.source}, line {place[0]}, column {place[1]}{keys}: {problem.message}."


def schema_fault(text: str) -> WorkflowProblem | None:
    """Return what is wrong with the JSON Schema `text` (draft 2020-12 unless it says otherwise), or None.

    The problem's keys start at the schema. Nothing is ever fetched.
    """
    try:
        schema = json.loads(text)
    except (ValueError, RecursionError):
        return _fault((), "the schema is not JSON")
    if not isinstance(schema, dict):
        return _fault((), "the schema has to be an object")
    try:
        parts = list(_parts(schema, ()))
    except RecursionError:
        return _fault((), "the schema is nested too deeply")
    for path, value in parts:
        if path[-1] in _REFERENCES and not value.startswith("#"):
            return _fault(path, f"it refers to {value!r}, and only what is inside the schema is followed (#/$defs/…)")
        if path[-1] == "$id" and len(path) > 1:
            return _fault(path, "only the top of the schema may have an $id")
    return _compiled(schema, references=[(path, value) for path, value in parts if path[-1] in _REFERENCES])


def _compiled(schema: dict[str, Any], *, references: list[tuple[Path, str]]) -> WorkflowProblem | None:
    # Slow to import, and only a workflow with a schema needs it.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import validator_for
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012, specification_with

    kind = validator_for(schema, default=Draft202012Validator)
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        return _fault(tuple(error.absolute_path), f"the schema does not compile: {_short(error.message)}")
    registry: Registry[Any] = Registry()
    specification = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    resolver = registry.resolver_with_root(specification.create_resource(schema))
    for path, target in references:
        try:
            resolver.lookup(target)
        except Unresolvable:
            return _fault(path, f"it refers to {target!r}, which is not in the schema")
    try:
        list(kind(schema, registry=registry).iter_errors({}))
    except RecursionError:
        return _fault((), "the schema refers to itself without end")
    except Exception as error:  # a reference to something inside that is not a schema
        return _fault((), f"the schema cannot be used ({type(error).__name__})")
    return None


def _fault(path: Path, message: str) -> WorkflowProblem:
    return WorkflowProblem(keys=path, message=message)


def _parts(schema: object, path: Path) -> Iterator[tuple[Path, str]]:
    """Yield all strings in a schema that are not data, each with its path."""
    if len(path) > MAX_DEPTH:
        raise RecursionError
    if isinstance(schema, dict):
        for key, value in schema.items():
            if isinstance(value, str):
                yield (*path, key), value
            elif key not in _VALUES or (path and path[-1] == "properties"):
                yield from _parts(value, (*path, key))
    elif isinstance(schema, list):
        for index, value in enumerate(schema):
            yield from _parts(value, (*path, index))


def _short(text: str) -> str:
    return cut(text, most=200)
