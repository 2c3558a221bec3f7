"""Frozen dataclasses that are made quickly.

A program start makes some 450 of them. `dataclasses.dataclass` compiles six methods for each, which takes a fifth of
the time until a first request. Five of the six need not be compiled. They are closures here and do the same. The rest
is the standard library's own work: `fields`, `replace`, pattern matching, pydantic and type checkers see an ordinary
dataclass.
"""

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import Field, FrozenInstanceError, dataclass, field, fields
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
    """Make a class a frozen dataclass with slots; its fields are given by name unless `kw_only` is false."""
    if cls is None:
        return lambda decorated: _make(decorated, kw_only=kw_only)
    return _make(cls, kw_only=kw_only)


def _make(cls: type[T], *, kw_only: bool) -> type[T]:
    own_methods = {name for name in ("__eq__", "__repr__", "__hash__") if cls.__dict__.get(name) is not None}
    made: type[T] = _dataclass(frozen=True, slots=True, kw_only=kw_only, eq=False, repr=False)(cls)
    compared = [one.name for one in fields(made) if one.compare]  # type: ignore[arg-type]
    values: Callable[[object], Any] = attrgetter(*compared) if compared else lambda _: ()

    def equals(self: object, other: object) -> Any:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_values(self: object) -> int:
        return hash(values(self))

    for name, method in (("__eq__", equals), ("__hash__", hash_values), ("__repr__", _repr)):
        if name not in own_methods:
            setattr(made, name, method)
    return made


def _repr(self: Any) -> str:
    shown = (f"{one.name}={getattr(self, one.name)!r}" for one in fields(self) if one.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _frozen_methods(cls: Any, own_fields: Sequence[Field[Any]], _: object) -> tuple[Callable[..., None], ...]:
    """Return the methods that `dataclasses` would compile for a frozen class; they refuse what those refuse."""
    names = frozenset(one.name for one in own_fields)

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in names:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


def _with_shared_methods() -> Callable[..., Any]:
    """Return a copy of `dataclass` that calls `_frozen_methods` instead of compiling the same.

    Python 3.13 and later compile all methods at once, which is quick, so they keep their own.
    """
    names = dict(vars(dataclasses))
    if "_frozen_get_del_attr" not in names:
        return dataclass
    # Copies, so that the dataclasses of other packages stay as they are.
    names["_frozen_get_del_attr"] = _frozen_methods
    names["_process_class"] = FunctionType(names["_process_class"].__code__, names)
    copy = FunctionType(dataclass.__code__, names, argdefs=(None,))
    copy.__kwdefaults__ = dataclass.__kwdefaults__
    return copy


_dataclass = _with_shared_methods()
