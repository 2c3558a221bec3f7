"""Read objects of a file into the dataclasses of `policy` that say which keys there are, see `policy.spelled`.

What pydantic gets is without notes and unknown keys, and with the names that the keys of objects give.
"""

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from difflib import get_close_matches
from functools import cache
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter, ValidationError

from chatops.config.document import Document, Json, Path, nearest
from chatops.policy.spelled import Spelled, Unwritten

Value = TypeVar("Value")
_ADAPTERS: dict[type, TypeAdapter[Any]] = {}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def free_key(key: str) -> bool:
    """Return True if a key is for other programs or for notes: ``$schema`` and ``x-…``."""
    return key == "$schema" or key.startswith("x-")


def variable_fault(variables: Sequence[tuple[str, str]]) -> str:
    """Return the name of the first variable that cannot be one of a program; empty if all can."""
    return next((name for name, value in variables if not _VARIABLE.fullmatch(name) or "\0" in value), "")


@cache
def keys_of(entry: type) -> dict[str, Any]:
    """Return the keys of an object that becomes an `entry`, each with its type."""
    hints = get_type_hints(entry, include_extras=True)
    found = {one.name: hints[one.name] for one in fields(entry)}
    return {key: hint for key, hint in found.items() if not any(isinstance(mark, Unwritten) for mark in _marks(hint))}


def adapter_of(entry: type[Value]) -> TypeAdapter[Value]:
    """Return what validates an `entry`. Made when it is first needed: a large one takes some 10 ms."""
    if entry not in _ADAPTERS:
        _ADAPTERS[entry] = TypeAdapter(entry)
    return _ADAPTERS[entry]


@dataclass(frozen=True, slots=True)
class EntryReader:
    """Reads the objects of one document. An unknown key is an error, or a warning where no rights are decided."""

    document: Document
    warn: Callable[[Path, str], None]

    def read(self, entry: type[Value], value: Json, *, path: Path = ()) -> Value:
        """Read the value at `path` as an `entry`. Raises ConfigError."""
        known = self._known(value, entry, path)
        try:
            return adapter_of(entry).validate_json(json.dumps(known))
        except ValidationError as error:
            raise self.document.invalid(error.errors(include_url=False, include_input=False)[0], prefix=path) from None

    def _known(self, value: Json, form: Any, path: Path) -> Json:
        form = _form(form, value)
        if isinstance(value, list):
            inner = get_args(form)[0] if get_origin(form) is tuple else None
            return [self._known(one, inner, (*path, index)) for index, one in enumerate(value)]
        if not isinstance(value, dict):
            return value
        if is_dataclass(form) and isinstance(form, type):
            return self._object(value, form, path)
        if get_origin(form) is not dict or not is_dataclass(inner := get_args(form)[1]):
            return value
        # An object stays an entry, whatever its name: a user or role may be called x-ray, and a restriction on it must
        # not be dropped as a note.
        entries = {key: one for key, one in value.items() if isinstance(one, dict) or not free_key(key)}
        return {key: self._known(one, inner, (*path, key)) for key, one in entries.items()}

    def _object(self, value: dict[str, Json], entry: type, path: Path) -> Json:
        keys, rights = keys_of(entry), getattr(entry, "rights_keys", None)
        for key in value:
            if key in keys or free_key(key):
                continue
            if rights is None:
                raise self.document.error((*path, key), f"there is no such key here{nearest(key, list(keys))}")
            if near := get_close_matches(key.casefold(), sorted(rights), n=1, cutoff=0.7):
                why = f"there is no such key; {near[0]!r} is meant, and it decides rights"
                raise self.document.error((*path, key), why)
            self.warn((*path, key), f"this key is not known{nearest(key, list(keys))}")
        known = {key: self._known(value[key], hint, (*path, key)) for key, hint in keys.items() if key in value}
        named = "name" not in keys and any(one.name == "name" for one in fields(entry))
        return {**known, "name": str(path[-1])} if named else known


def _marks(hint: Any) -> tuple[Any, ...]:
    return get_args(hint)[1:] if get_origin(hint) is Annotated else ()


def _form(hint: Any, value: Json) -> Any:
    """Return the type of what a file has for a field: that of its spelling, of several the one that fits `value`."""
    if get_origin(hint) is Annotated:
        spelled = next((mark.form for mark in _marks(hint) if isinstance(mark, Spelled)), get_args(hint)[0])
        return _form(spelled, value)
    if get_origin(hint) in (Union, UnionType):
        forms = [_form(one, value) for one in get_args(hint)]
        kind = tuple if isinstance(value, list) else dict
        return next((form for form in forms if get_origin(form) is kind or (kind is dict and is_dataclass(form))), None)
    return hint
