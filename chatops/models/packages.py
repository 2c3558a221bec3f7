"""Engines of installed packages: entry points of the group ``chatops.models``, each a type of models by its name."""

import contextlib
import logging
from collections.abc import AsyncGenerator

from chatops.config.extras import ENGINES, installed
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.model import FailureKind, ModelFailure, ModelRequest
from chatops.models.base import Failed, ModelClient, ModelEvent, Replied
from chatops.models.error_text import plain_line
from chatops.policy.registry import ModelSpec

log = logging.getLogger(__name__)


def package_of(engine: str) -> str:
    """Return the package that has an engine, with its version; empty if none is installed."""
    entry = next((one for one in installed(ENGINES) if one.name == engine), None)
    if entry is None:
        return ""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def package_engine(spec: ModelSpec) -> ModelClient:
    """Return the client that the package makes for `spec`. Imports the package. Raises ConfigError."""
    entry = next((one for one in installed(ENGINES) if one.name == spec.engine), None)
    if entry is None:
        raise ConfigError(
            f"Model {spec.name!r} is of type {spec.engine}, and no installed package has such an engine.",
            advice="Install it in the same environment as chatops, or choose another model.",
        )
    try:
        return _Guarded(entry.load()(spec), name=spec.engine)
    except ChatopsError:
        raise
    except Exception as error:
        log.exception("engine %s", spec.engine)
        raise ConfigError(
            f"The engine {spec.engine} cannot be used: {_line(error)}.", advice="The log has the details."
        ) from None


class _Guarded:
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
        except Exception as error:
            log.exception("engine %s", self._name)
            what = f"failed: {_line(error)}"
        else:
            what = "ended without a reply"
        failure = ModelFailure(
            kind=FailureKind.INTERNAL,
            message=f"The engine {self._name} {what}.",
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


def _line(error: Exception) -> str:
    return plain_line(f"{type(error).__name__}: {error}", limit=300).rstrip(".")
