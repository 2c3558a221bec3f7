"""Frozen dataclasses that are made quickly.

A program start makes some 400 of them, and most never have an object. `dataclasses.dataclass` compiles six methods for
each, which takes a quarter of the time until a first request. Here all classes share five of the six, and `__init__`
is compiled when the first object is made. They have no slots, for which each class would be made twice and kept twice.
The rest is the standard library's own work: `fields`, `replace`, pattern matching, pydantic and type checkers see an
ordinary dataclass.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, field, fields
from functools import cache
from operator import attrgetter
from types import FunctionType
from typing import Any, TypeVar, dataclass_transform, overload

T = TypeVar("T")


@overload
def frozen_dataclass(cls: type[T], /) -> type[T]: ...


@overload
def frozen_dataclass(*, kw_only: bool) -> Callable[[type[T]], type[T]]: ...


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def frozen_dataclass(cls: type[T] | None = None, /, *, kw_only: bool = True) -> type[T] | Callable[[type[T]], type[T]]:
    """Make a class a frozen dataclass; its fields are given by name unless `kw_only` is false."""
    if cls is None:
        return lambda decorated: _make(decorated, kw_only=kw_only)
    return _make(cls, kw_only=kw_only)


def _make(cls: type[T], *, kw_only: bool) -> type[T]:
    for name in ("__eq__", "__hash__", "__repr__"):
        if cls.__dict__.get(name) is None:
            setattr(cls, name, vars(_SharedMethods)[name])
    made: type[T] = _dataclass(frozen=True, kw_only=kw_only, eq=False, repr=False)(cls)
    return made


class _SharedMethods:
    """Methods of all frozen dataclasses. They do, and refuse, what those of the standard library do."""

    def __eq__(self: Any, other: object) -> Any:
        values = _compared_values(self.__class__)
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: Any) -> int:
        return hash(_compared_values(self.__class__)(self))

    def __repr__(self: Any) -> str:
        shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(shown)})"

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"cannot delete field {name!r}")


@cache
def _compared_values(cls: Any) -> Callable[[object], Any]:
    """Return a function that returns the values of an object of `cls` that count in a comparison."""
    names = [one.name for one in fields(cls) if one.compare]
    return attrgetter(*names) if names else type


class _LateInit:
    """An `__init__` that the standard library compiles when it is first looked up, by the first object or a tool."""

    __slots__ = ("_given",)

    def __init__(self, *given: object) -> None:
        self._given = given

    def __get__(self, instance: object, owner: type) -> Any:
        init = dataclasses._init_fn(*self._given)  # type: ignore[attr-defined]
        for cls in owner.__mro__:
            if vars(cls).get("__init__") is self:
                init.__qualname__ = f"{cls.__qualname__}.__init__"
                cls.__init__ = init  # type: ignore[misc]
        return init.__get__(instance, owner)


def _with_shared_methods() -> Callable[..., Any]:
    """Return a copy of `dataclass` that takes the methods above instead of compiling the same.

    Python 3.13 and later compile all methods at once, which is quick, so they keep their own.
    """
    names = dict(vars(dataclasses))
    if "_create_fn" not in names:
        return dataclass
    # Copies, so that the dataclasses of other packages stay as they are.
    names["_frozen_get_del_attr"] = lambda *_: (_SharedMethods.__setattr__, _SharedMethods.__delattr__)
    names["_init_fn"] = _LateInit
    names["_process_class"] = FunctionType(names["_process_class"].__code__, names)
    copy = FunctionType(dataclass.__code__, names, argdefs=(None,))
    copy.__kwdefaults__ = dataclass.__kwdefaults__
    return copy


_dataclass = _with_shared_methods()
