"""Read the objects of a configuration file into dataclasses, whose fields are the keys that an object may have.

The marks of `policy.spelled` on the fields say how a file spells their values. Two steps come before pydantic validates
an object. Notes (``x-…``) and unknown keys are taken out. An object whose dataclass has a field `name` that is no key,
such as a role, gets the key that it stands under as this name.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from chatops.config.document import Document, Json, Path, suggestion
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.policy.spelled import Spelled, Unwritten

EXPECTED = {
    "model_type": "expected an object {…}",
    "dataclass_type": "expected an object {…}",
    "dict_type": "expected an object {…}",
    "list_type": "expected a list […]",
    "tuple_type": "expected a list […]",
    "string_type": "expected text in double quotes",
    "bool_type": "expected true or false",
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "missing": "this key is missing",
    "too_short": "expected at least one entry",
}
"""Messages for pydantic's error types that describe the file instead of Python types."""

Value = TypeVar("Value")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
_VARIABLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def free_key(key: str) -> bool:
    """Return True if a key is for other programs or for notes: ``$schema`` and ``x-…``."""
    return key == "$schema" or key.startswith("x-")


def first_unfit_variable(variables: Sequence[tuple[str, str]]) -> str:
    """Return the name of the first environment variable that cannot be set for a program; empty if all can."""
    return next((name for name, value in variables if not _VARIABLE_NAME.fullmatch(name) or "\0" in value), "")


@cache
def keys_of(entry: type) -> dict[str, Any]:
    """Return the keys of an object that becomes an `entry`, each with its type."""
    hints = get_type_hints(entry, include_extras=True)
    names = (field.name for field in fields(entry))
    return {
        name: hints[name] for name in names if not any(isinstance(mark, Unwritten) for mark in _marks_of(hints[name]))
    }


def adapter_of(entry: type[Value]) -> TypeAdapter[Value]:
    """Return the pydantic adapter of `entry`. Made when it is first needed: a large one takes some 10 ms."""
    if entry not in _ADAPTERS:
        _ADAPTERS[entry] = TypeAdapter(entry)
    return _ADAPTERS[entry]


def encode_value(value: object) -> bytes:
    """Return a dataclass, or another value that JSON can hold, as JSON for `decode_value`."""
    return json.dumps(
        value, default=lambda entry: {key.name: getattr(entry, key.name) for key in fields(entry)}
    ).encode()


def decode_value(form: type[Value], data: bytes | str) -> Value:
    """Return the `form` that `encode_value` has encoded. Raises ValueError if `data` is not one."""
    # Names of files may hold lone surrogates, which pydantic's own JSON parser refuses. So pydantic gets Python values.
    # From these a dataclass marked `STRICT` would accept no dict, hence strict=False.
    return adapter_of(form).validate_python(json.loads(data), strict=False)


@frozen_dataclass(kw_only=False)
class EntryReader:
    """Reads the objects of one document. An unknown key is an error, or a warning where no rights are decided."""

    document: Document
    warn: Callable[[Path, str], None]

    def read(self, entry: type[Value], value: Json, *, path: Path = ()) -> Value:
        """Read the value at `path` as an `entry`. Raises ConfigError."""
        keys_only = self._known_part(value, entry, path)
        try:
            return adapter_of(entry).validate_json(json.dumps(keys_only))
        except ValidationError as error:
            detail = error.errors(include_url=False, include_input=False)[0]
            where = (*path, *error_path(detail["loc"], value, missing=detail["type"] == "missing"))
            message = EXPECTED.get(detail["type"]) or detail["msg"].removeprefix("Value error, ")
            raise self.document.error(where, message[:1].lower() + message[1:]) from None

    def _known_part(self, value: Json, hint: Any, path: Path) -> Json:
        """Return the part of `value`, of a field with the type `hint`, that pydantic validates."""
        form = _written_type(hint, value)
        if isinstance(value, list):
            type_of_items = get_args(form)[0] if get_origin(form) is tuple else None
            return [self._known_part(item, type_of_items, (*path, index)) for index, item in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if is_dataclass(form) and isinstance(form, type):
            return self._known_members(value, form, path)
        if get_origin(form) is dict and is_dataclass(entry := get_args(form)[1]):
            entries = {key: item for key, item in value.items() if not _is_note(key, item, path)}
            return {key: self._known_part(item, entry, (*path, key)) for key, item in entries.items()}
        return value

    def _known_members(self, value: dict[str, Json], entry: type, path: Path) -> Json:
        """Return the keys of `value`, an object that becomes an `entry`, that pydantic validates; report the unknown.

        An `entry` with `rights_keys` is lenient, see `policy.spelled.LENIENT`.
        """
        keys, rights = keys_of(entry), getattr(entry, "rights_keys", None)
        for key in value:
            if key in keys or free_key(key):
                continue
            if rights is None:
                raise self.document.error((*path, key), f"there is no such key here{suggestion(key, list(keys))}")
            if near := get_close_matches(key.casefold(), sorted(rights), n=1, cutoff=0.7):
                why = f"there is no such key; {near[0]!r} is meant, and it decides rights"
                raise self.document.error((*path, key), why)
            self.warn((*path, key), f"this key is not known{suggestion(key, list(keys))}")
        parts = {key: self._known_part(value[key], hint, (*path, key)) for key, hint in keys.items() if key in value}
        is_named_by_key = "name" not in keys and any(field.name == "name" for field in fields(entry))
        return {**parts, "name": str(path[-1])} if is_named_by_key else parts


def _is_note(key: str, item: Json, path: Path) -> bool:
    """Return True if a member of the object at `path`, which holds entries by name, is a note.

    Only the sections of the registry have notes. An object there stays an entry, whatever its name: a user or role may
    be called x-ray, and a restriction on it must not be dropped as a note.
    """
    is_section = len(path) < 2
    return is_section and free_key(key) and not isinstance(item, dict)


def _marks_of(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _written_type(hint: Any, value: Json) -> Any:
    """Return the type of `value` in a file, for a field with the type `hint`.

    That is the form of a `Spelled` mark. Of several alternatives it is the one for a list or an object, as `value` is.
    """
    if get_origin(hint) is Annotated:
        spelled = next((mark.form for mark in _marks_of(hint) if isinstance(mark, Spelled)), get_args(hint)[0])
        return _written_type(spelled, value)
    if get_origin(hint) in (Union, UnionType):
        forms = [_written_type(member, value) for member in get_args(hint)]
        kind = tuple if isinstance(value, list) else dict
        return next((form for form in forms if get_origin(form) is kind or (kind is dict and is_dataclass(form))), None)
    return hint


def error_path(location: Path, value: object, *, missing: bool) -> Path:
    """Return the part of pydantic's location of an error that is a path in the value.

    The rest names the alternatives of a type, and the keys of an object. `missing`: the last part is not there.
    """
    path: Path = ()
    for index, part in enumerate(location):
        absent = missing and index == len(location) - 1
        if isinstance(value, Mapping) and (part in value or absent):
            path, value = (*path, part), value.get(part)
        elif isinstance(value, list) and isinstance(part, int) and (part < len(value) or absent):
            path, value = (*path, part), None if absent else value[part]
    return path


class KeySchema(GenerateJsonSchema):
    """JSON Schema of keys as a file spells them."""

    def dataclass_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out the fields that are no keys."""
        schema_of_entry = super().dataclass_schema(schema)
        keys = keys_of(schema["cls"])
        schema_of_entry["properties"] = {
            key: inner for key, inner in schema_of_entry["properties"].items() if key in keys
        }
        required = [key for key in schema_of_entry.pop("required", ()) if key in keys]
        return {**schema_of_entry, **({"required": required} if required else {})}

    def default_schema(self, schema: Any) -> dict[str, Any]:
        """Leave out defaults that are lists or objects: nearly all are empty."""
        schema_of_field = super().default_schema(schema)
        default = schema_of_field.get("default")
        if isinstance(default, list | dict) or default == "{}":
            del schema_of_field["default"]
        return schema_of_field

    def encode_default(self, dft: Any) -> Any:
        """Spell a level by its word."""
        return super().encode_default(getattr(dft, "word", dft))
