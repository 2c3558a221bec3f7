"""Engines of installed packages: types of models that a package adds.

A package has an entry point of the group ``chatops.models`` with the name of the type. What that loads makes the client
of a model from its spec.
"""

import contextlib
import logging
from collections.abc import AsyncGenerator
from importlib.metadata import EntryPoint

from chatops.config.extras import ENGINES, installed_entries
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.model import FailureKind, ModelFailure, ModelRequest
from chatops.models.base import Failed, ModelClient, ModelEvent, Replied
from chatops.models.error_text import plain_line
from chatops.policy.registry import ModelSpec

log = logging.getLogger(__name__)


def engine_package(engine: str) -> str:
    """Return name and version of the package that provides an engine; empty if none is installed."""
    if (entry := _entry_point(engine)) is None:
        return ""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def engine_client(spec: ModelSpec) -> ModelClient:
    """Return the client that the package makes for `spec`. Imports the package. Raises ConfigError."""
    if (entry := _entry_point(spec.engine)) is None:
        raise ConfigError(
            f"Model {spec.name!r} is of type {spec.engine}, and no installed package has such an engine.",
            advice="Install it in the same environment as chatops, or choose another model.",
        )
    try:
        return _GuardedEngine(entry.load()(spec), name=spec.engine)
    except ChatopsError:
        raise
    except Exception as error:
        log.exception("engine %s", spec.engine)
        raise ConfigError(
            f"The engine {spec.engine} cannot be used: {_error_line(error)}.", advice="The log has the details."
        ) from None


def _entry_point(engine: str) -> EntryPoint | None:
    return next((entry for entry in installed_entries(ENGINES) if entry.name == engine), None)


class _GuardedEngine:
    """An engine that keeps the protocol whatever it does: exactly one last event, and no exception."""

    def __init__(self, engine: ModelClient, *, name: str) -> None:
        self._engine = engine
        self._name = name

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Pass the events on until the last one."""
        try:
            async with contextlib.aclosing(self._events(request)) as events:
                async for event in events:
                    yield event
                    if isinstance(event, Replied | Failed):
                        return
        except Exception as error:  # The package's code may raise anything.
            log.exception("engine %s", self._name)
            ending = f"failed: {_error_line(error)}"
        else:
            ending = "ended without a reply"
        failure = ModelFailure(
            kind=FailureKind.INTERNAL,
            message=f"The engine {self._name} {ending}.",
            advice="The log has the details; press R to try again.",
        )
        yield Failed(failure=failure)

    async def _events(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        async for event in self._engine.stream(request):
            yield event

    async def aclose(self) -> None:
        """Close the engine."""
        try:
            await self._engine.aclose()
        except Exception:
            log.exception("closing engine %s", self._name)


def _error_line(error: Exception) -> str:
    return plain_line(f"{type(error).__name__}: {error}", limit=300).rstrip(".")
