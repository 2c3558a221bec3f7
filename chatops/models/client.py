"""The models of a registry behind one client. Cheap to import: the SDK is loaded with the first request.

Engines are types of models that a package adds. It has an entry point of the group ``chatops.models`` with the name of
the type. What that loads makes the client of a model from its spec.
"""

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from importlib.metadata import EntryPoint
from typing import TYPE_CHECKING

from chatops.config.extras import ENGINES, installed_entries
from chatops.domain import __version__
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.model import FailureKind, ModelFailure, ModelRequest
from chatops.models.base import Failed, ModelClient, ModelEvent, Replied
from chatops.models.error_text import plain_line
from chatops.models.keys import Secret, read_key
from chatops.models.memory import InMemoryTextStore, TextStore, known_price, memory_of
from chatops.policy.registry import KeySource, ModelSpec, ModelType

if TYPE_CHECKING:
    from chatops.models.chat import OpenAIChat
    from chatops.models.response import Pace
    from chatops.models.wire import ReadFile

log = logging.getLogger(__name__)

AGENT = f"chatops/{__version__}"
KEY_KEPT_S = 300.0
"""Seconds for which a key from a command or a keyring is reused; keys from other sources are read every time."""


class RegistryClient:
    """`ModelClient` for all types of models. Specs are looked up again for every request.

    `remembered` stores what was learned about endpoints (texts by key). A caller that persists it avoids a refused
    request after the next start. `api_key_env` is looked up in `environ`. `read_file` reads images of messages.
    `demo` and `cli` create the client of a model whose type is DEMO or CLI; without them, such a model is refused.
    """

    def __init__(
        self,
        lookup: Callable[[str], ModelSpec | None],
        *,
        remembered: TextStore | None = None,
        environ: Mapping[str, str] | None = None,
        pace: "Pace | None" = None,
        demo: "Callable[[ModelSpec], OpenAIChat] | None" = None,
        read_file: "ReadFile | None" = None,
        cli: "Callable[[ModelSpec], OpenAIChat] | None" = None,
    ) -> None:
        self._lookup = lookup
        self._remembered: TextStore = InMemoryTextStore() if remembered is None else remembered
        self._environ = os.environ if environ is None else environ
        self._pace = pace
        self._demo = demo
        self._read_file = read_file
        self._cli = cli
        self._clients: dict[str, tuple[ModelSpec, OpenAIChat | _GuardedEngine]] = {}
        """The client of each model by its name, and the spec that it was made for."""
        self._retired: list[OpenAIChat | _GuardedEngine] = []
        """Clients that no further request uses, but that may still stream a reply."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask `request.model`; end with exactly one Replied or Failed."""
        try:
            client = await self._client(request.model)
        except ConfigError as error:
            yield Failed.configuration(error)
            return
        async with contextlib.aclosing(client.stream(request)) as events:
            async for event in events:
                yield event

    async def prepare(self, name: str) -> None:
        """Create the client of model `name` without a request: no key is read and nothing is sent.

        Raises ConfigError if the model cannot be used.
        """
        await self._client(name)

    def learn_price(self, name: str) -> None:
        """Find and remember the price of model `name` unless the registry has it. Run it in a thread: it is slow."""
        spec = self._lookup(name)
        if spec is None or spec.price is not None:
            return
        if (memory := memory_of(spec, self._remembered)) is not None:
            known_price(spec, memory)  # Stores it in `memory`, where requests look for it.

    async def aclose(self) -> None:
        """Close all connections."""
        clients = [*(client for _, client in self._clients.values()), *self._retired]
        self._clients.clear()
        self._retired.clear()
        for client in clients:
            await client.aclose()

    async def _client(self, name: str) -> "OpenAIChat | _GuardedEngine":
        spec = self._lookup(name)
        if spec is None:
            raise ConfigError(
                f"There is no model named {name!r} in the registry.", advice="To list them: chatops models list"
            )
        if (known := self._known_client(name, spec)) is not None:
            return known
        new = await asyncio.to_thread(self._new_client, spec)
        if (known := self._known_client(name, spec)) is not None:
            # Another request has created it meanwhile. Use that one, so that all requests share what it learns and its
            # notices.
            self._retired.append(new)
            return known
        if name in self._clients:
            # The registry has changed, perhaps while the old client still streams a reply: close it with all others.
            self._retired.append(self._clients[name][1])
        self._clients[name] = (spec, new)
        return new

    def _known_client(self, name: str, spec: ModelSpec) -> "OpenAIChat | _GuardedEngine | None":
        made_for, client = self._clients.get(name, (None, None))
        return client if made_for == spec else None

    def _new_client(self, spec: ModelSpec) -> "OpenAIChat | _GuardedEngine":
        """Return a client for `spec`. Run it in a thread: the import is slow.

        Raises ConfigError for a type that has none here.
        """
        if spec.has_server:
            from chatops.models.chat import OpenAIChat  # slow to import

            key = _KeyReader(spec.key, environ=self._environ)
            return OpenAIChat(
                spec, key=key, agent=AGENT, remembered=self._remembered, pace=self._pace, read_file=self._read_file
            )
        if spec.engine:  # The type is none of the built-in ones then.
            return _engine_client(spec)
        if spec.type is ModelType.DEMO and self._demo is not None:
            return self._demo(spec)
        if spec.type is ModelType.CLI and self._cli is not None:
            return self._cli(spec)
        raise ConfigError(
            f"Model {spec.name!r} is of type {spec.type}, which is not available here.",
            advice="Choose another model, or connect one: chatops connect URL",
        )


class _KeyReader:
    """Reads a key for each request, from a command or a keyring only once in `KEY_KEPT_S` seconds."""

    def __init__(self, source: KeySource, *, environ: Mapping[str, str]) -> None:
        self._source = source
        self._environ = environ
        self._kept: Secret | None = None
        self._kept_until = 0.0
        """Time of the monotonic clock."""

    async def __call__(self) -> Secret:
        if self._kept is not None and time.monotonic() < self._kept_until:
            return self._kept
        key = await read_key(self._source, environ=self._environ)
        if self._source.command or self._source.keyring:
            self._kept, self._kept_until = key, time.monotonic() + KEY_KEPT_S
        return key


def engine_package(engine: str) -> str:
    """Return name and version of the package that provides an engine; empty if none is installed."""
    if (entry := _entry_point(engine)) is None:
        return ""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist is not None else entry.value


def _engine_client(spec: ModelSpec) -> "_GuardedEngine":
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
            # It is not closed here: an engine has to return an `AsyncIterator`, which may have no `aclose`.
            async for event in self._engine.stream(request):
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

    async def aclose(self) -> None:
        """Close the engine."""
        try:
            await self._engine.aclose()
        except Exception:
            log.exception("closing engine %s", self._name)


def _error_line(error: Exception) -> str:
    return plain_line(f"{type(error).__name__}: {error}", limit=300).rstrip(".")


def warm_up() -> None:
    """Import the SDK, which takes about half a second. Run it in a thread, after the first paint."""
    importlib.import_module("chatops.models.chat")
    # `chat` imports this only for the first reply whose text may hold calls.
    importlib.import_module("chatops.dialects.reader")
    with contextlib.suppress(ImportError):
        # The HTTP client would import this with its first request. If it is missing, that request reports it.
        importlib.import_module("anyio._backends._asyncio")
