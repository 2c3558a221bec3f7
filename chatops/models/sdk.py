"""Imports openai without the types of its requests and responses.

`import openai` loads over 500 modules, and most of them describe requests and responses of single endpoints. Ours are
bytes, so these types took half of the time between the start of `chatops -p` and its first request. While openai is
imported here, the packages that collect them stay empty. Each is executed when a name is taken from it, so that a tool
or a program that uses the SDK itself finds everything in place.

Other modules import openai from here.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from threading import RLock
from types import ModuleType
from typing import Any

_TYPES = frozenset({"openai.types", "openai.types.chat", "openai.types.responses"})


class _OnDemand(ModuleType):
    """A package that is executed when the first name is taken from it."""

    def __init__(self, name: str, loader: Loader) -> None:
        super().__init__(name)
        self.__dict__["_waiting"] = loader
        self.__dict__["_lock"] = RLock()

    def __getattr__(self, name: str) -> Any:
        # Called only for names that are missing. `__all__` is asked for by `import *`; other dunder names name nothing
        # in these packages.
        if name == "__all__" or not name.startswith("__"):
            with self.__dict__["_lock"]:
                waiting: Loader | None = self.__dict__.pop("_waiting", None)
                if waiting is not None:
                    waiting.exec_module(self)
                if name in self.__dict__:
                    return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _LateLoader(Loader):
    def __init__(self, loader: Loader) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _OnDemand(spec.name, self._loader)

    def exec_module(self, module: ModuleType) -> None:
        pass


class _LateFinder:
    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name in _TYPES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LateLoader(spec.loader)
        return spec


@contextmanager
def _types_on_demand() -> Iterator[None]:
    finder = _LateFinder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


with _types_on_demand():
    import openai as openai
