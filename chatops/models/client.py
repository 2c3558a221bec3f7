"""The models of a registry behind one client. Cheap to import: the SDK is loaded with the first request."""

import asyncio
import contextlib
import importlib
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from typing import TYPE_CHECKING

from chatops.domain import __version__
from chatops.domain.errors import ConfigError
from chatops.domain.model import ModelRequest
from chatops.models.base import Failed, ModelClient, ModelEvent
from chatops.models.engines import engine_client
from chatops.models.keys import Secret, read_key
from chatops.models.memory import InMemoryTextStore, TextStore, memory_of
from chatops.models.prices import known_price
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
        self._clients: dict[str, tuple[ModelSpec, ModelClient]] = {}
        """The client of each model by its name, and the spec that it was made for."""
        self._retired: list[ModelClient] = []
        """Clients that no further request uses, but that may still stream a reply."""

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask `request.model`; end with exactly one Replied or Failed."""
        try:
            client = await self._client(request.model)
        except ConfigError as error:
            yield Failed.configuration(error)
            return
        events = client.stream(request)
        try:
            async for event in events:
                yield event
        finally:
            # Not all iterators of packages can be closed; those of this package are generators.
            if isinstance(events, AsyncGenerator):
                await events.aclose()

    async def prepare(self, name: str) -> None:
        """Create the client of model `name` without a request: no key is read and nothing is sent.

        Raises ConfigError if the model cannot be used.
        """
        await self._client(name)

    def learn_price(self, name: str) -> None:
        """Look up the price of model `name` unless the registry has one. Run it in a thread: the data loads slowly."""
        spec = self._lookup(name)
        if spec is None or spec.price is not None or not spec.has_server:
            return
        if (memory := memory_of(spec, self._remembered)) is not None:
            known_price(spec, memory)

    async def aclose(self) -> None:
        """Close all connections."""
        clients = [*(client for _, client in self._clients.values()), *self._retired]
        self._clients.clear()
        self._retired.clear()
        for client in clients:
            await client.aclose()

    async def _client(self, name: str) -> ModelClient:
        spec = self._lookup(name)
        if spec is None:
            raise ConfigError(
                f"There is no model named {name!r} in the registry.", advice="To list them: chatops models list"
            )
        made_for, client = self._clients.get(name, (None, None))
        if client is not None and made_for == spec:
            return client
        new = await asyncio.to_thread(self._new_client, spec)
        made_for, client = self._clients.get(name, (None, None))
        if client is not None and made_for == spec:
            # Another request has created it meanwhile. Use that one, so that all requests share what it learns and its
            # notices.
            self._retired.append(new)
            return client
        if client is not None:
            # The registry has changed, perhaps while the old client still streams a reply: close it with all others.
            self._retired.append(client)
        self._clients[name] = (spec, new)
        return new

    def _new_client(self, spec: ModelSpec) -> ModelClient:
        """Return a client for `spec`. Run it in a thread: the import is slow.

        Raises ConfigError for a type that has none here.
        """
        if spec.has_server:
            from chatops.models.chat import OpenAIChat  # slow to import

            key = _KeyReader(spec.key, environ=self._environ)
            return OpenAIChat(
                spec, key=key, agent=AGENT, remembered=self._remembered, pace=self._pace, read_file=self._read_file
            )
        if spec.type is ModelType.DEMO and self._demo is not None:
            return self._demo(spec)
        if spec.engine:
            return engine_client(spec)
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


def warm_up() -> None:
    """Import the SDK, which takes about half a second. Run it in a thread, after the first paint."""
    importlib.import_module("chatops.models.chat")
    importlib.import_module("chatops.dialects.reader")
    with contextlib.suppress(ImportError):
        # The HTTP client would import this with its first request. If it is missing, that request reports it.
        importlib.import_module("anyio._backends._asyncio")
