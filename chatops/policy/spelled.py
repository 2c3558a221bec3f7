"""Marks on fields that say how a file spells their values, for dataclasses that a registry or a workflow file fills.

A dataclass here is the only definition of its keys: names, types, bounds, defaults and what they are for. `config` has
pydantic read files into it. Bounds are those of `annotated_types`; the marks below add what these cannot say. They are
plain objects with the methods that pydantic looks for, so that nothing here needs pydantic.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal

from annotated_types import Ge, Interval, Len

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import AccessLevel, LevelWord
from chatops.policy.sandbox import host_problem

_FREE_KEYS = {"patternProperties": {r"^(\$schema$|x-)": True}}
"""JSON Schema of the keys that every object may have: ``$schema`` and the user's own, such as ``x-note``."""


def strict_with(extra: Mapping[str, object]) -> dict[str, object]:
    """Return `STRICT` with more in the JSON Schema."""
    return {"strict": True, "json_schema_extra": {"additionalProperties": False, **_FREE_KEYS, **extra}}


STRICT = strict_with({})
"""For objects that decide rights: an unknown key is an error. Not even ``"10"`` is a number, nor ``1`` a boolean."""
LENIENT: dict[str, object] = {"strict": True, "json_schema_extra": {"additionalProperties": True}}
"""For objects that decide no rights: an unknown key is a warning.

Their attribute `rights_keys` names the keys that would widen rights if misspelled, so a near miss is an error.
"""


@frozen_dataclass(kw_only=False)
class Spelled:
    """A value that a file spells as a `form`; `meaning` makes the value of it, or raises ValueError."""

    form: Any
    meaning: Callable[[Any], object]
    schema: Mapping[str, object] | None = None
    """JSON Schema of the form; None: as of its type."""

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> dict[str, object]:
        """Read the form, then its meaning."""
        function = {"type": "no-info", "function": self.meaning}
        return {"type": "function-after", "schema": handler.generate_schema(self.form), "function": function}

    def __get_pydantic_json_schema__(self, schema: object, handler: Any) -> dict[str, object]:
        """Describe the form."""
        return dict(handler(schema) if self.schema is None else self.schema)


@frozen_dataclass(kw_only=False)
class Matches:
    """Text that matches a regular expression."""

    pattern: str

    def __get_pydantic_core_schema__(self, source: object, handler: Any) -> dict[str, object]:
        """Return the schema of text with this pattern."""
        return {**handler(source), "pattern": self.pattern}


class Unwritten:
    """Marks a field that is no key: the name, which is the key of the object, or something that is added later."""


def items(given: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    """Return the members of an object in order."""
    return tuple(given.items())


def members(given: Mapping[str, object]) -> tuple[object, ...]:
    """Return the values of an object in order. Those that have a `name` know their key."""
    return tuple(given.values())


EntryName = Annotated[str, Unwritten()]
"""The key of the object that it is a field of."""
Name = Annotated[str, Len(1, 200)]
MAX_ROUNDS = 99
"""The highest limit of model calls of a turn that can be set."""
Rounds = Annotated[int, Interval(ge=1, le=MAX_ROUNDS)]
Seconds = Annotated[float, Interval(gt=0, le=86_400)]
Tokens = Annotated[int, Ge(1)]
OneOrMore = Annotated[
    tuple[str, ...], Spelled(str | tuple[str, ...], lambda given: (given,) if isinstance(given, str) else given)
]
"""A text or a list of texts."""
Texts = Annotated[tuple[tuple[str, str], ...], Spelled(dict[str, str], items)]
"""An object of texts."""

RequiredLevel = Literal["none", "landlock", "basic", "bubblewrap", "hard"]
"""Names of `SandboxLevel`; ``bubblewrap`` is another name of ``basic``."""
LEVELS: Mapping[str, SandboxLevel] = {level.word: level for level in SandboxLevel} | {"bubblewrap": SandboxLevel.BASIC}
Required = Annotated[SandboxLevel, Spelled(RequiredLevel, LEVELS.__getitem__)]
Access = Annotated[AccessLevel, Spelled(LevelWord, {level.word: level for level in AccessLevel}.__getitem__)]


def _checked_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for entry in hosts:
        if problem := host_problem(entry):
            raise ValueError(f"{entry!r} is not a valid entry of hosts: {problem}")
    return tuple(host.lower() for host in hosts)


Hosts = Annotated[tuple[str, ...], Spelled(tuple[Name, ...], _checked_hosts)]
"""Hosts that a program reaches through the proxy."""
