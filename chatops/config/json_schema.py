"""Validators of JSON Schemas (draft 2020-12 unless a schema says otherwise). Nothing is ever fetched.

Slow to import: only workflows and foreign tools with a schema need it.
"""

from collections.abc import Iterable
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import DRAFT202012, specification_with

from chatops.config.document import Path
from chatops.domain.wording import cut


def validator_of(schema: Any) -> Validator:
    """Return a validator that looks references up in the schema alone: its registry is empty."""
    registry: Registry[Any] = Registry()
    return validator_for(schema, default=Draft202012Validator)(schema, registry=registry)


def compile_fault(schema: dict[str, Any], *, references: Iterable[tuple[Path, str]]) -> tuple[Path, str] | None:
    """Return where a schema or one of its `references` cannot be used, and why; None if all can."""
    try:
        validator_for(schema, default=Draft202012Validator).check_schema(schema)
    except SchemaError as error:
        return tuple(error.absolute_path), f"the schema does not compile: {cut(error.message, most=200)}"
    registry: Registry[Any] = Registry()
    specification = specification_with(str(schema.get("$schema", "")), default=DRAFT202012)
    resolver = registry.resolver_with_root(specification.create_resource(schema))
    for path, target in references:
        try:
            resolver.lookup(target)
        except Unresolvable:
            return path, f"it refers to {target!r}, which is not in the schema"
    try:
        list(validator_of(schema).iter_errors({}))
    except RecursionError:
        return (), "the schema refers to itself without end"
    except Exception as error:  # a reference to something inside that is not a schema
        return (), f"the schema cannot be used ({type(error).__name__})"
    return None
