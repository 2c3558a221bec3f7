"""Reachability of a model: whether a message that is sent to it now is expected to get an answer.

Nothing is sent except the request for a list of models. Keys are only reported as set or not set.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import assert_never

from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.wording import plural
from chatops.models.client import engine_package
from chatops.models.discover import KeyRefusedError, list_models
from chatops.models.hosts import without_secrets
from chatops.models.keys import read_key
from chatops.policy.registry import KeySource, ModelSpec, ModelType
from chatops.runtime.cli_program import program_state

Discover = Callable[[ModelSpec], Awaitable[Sequence[str]]]
"""Asks the server of a model for its list of models, within a few seconds. Raises ChatopsError."""


class Reachability(StrEnum):
    """Reachability of a model."""

    THERE = "there"
    UNLISTED = "unlisted"
    """The server answers but does not list the model."""
    SILENT = "silent"
    """The server returns no list of models."""
    REFUSED = "refused"
    """The server rejects the key, or requires one."""
    KEYLESS = "keyless"
    """The key is not set."""
    ABSENT = "absent"
    """The program is not installed, is refused, or lacks a sandbox."""


@frozen_dataclass
class ModelReach:
    """Reachability of one model, with a text for the user."""

    spec: ModelSpec
    reachability: Reachability
    text: str
    advice: str = ""
    available: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """True if a message sent to the model now is expected to get an answer."""
        return self.reachability is Reachability.THERE

    @property
    def missing(self) -> str:
        """The reason why no answer is expected, with the next step, in sentences; empty if one is."""
        end = "" if self.text.endswith((".", "!", "?")) else "."
        return "" if self.usable else f"{self.text[:1].upper()}{self.text[1:]}{end} {self.advice}".strip()


async def probe_model(
    spec: ModelSpec, *, discover: Discover = list_models, require: SandboxLevel = SandboxLevel.NONE
) -> ModelReach:
    """Check the key, then ask the server. Never raises for a server's errors and never shows a key.

    A program is not started; `require` is the sandbox level that programs need.
    """
    match spec.type:
        case ModelType.DEMO:
            return ModelReach(spec=spec, reachability=Reachability.THERE, text="built in, needs nothing")
        case ModelType.CLI:
            state = await asyncio.to_thread(program_state, spec, require=require)
            found = Reachability.THERE if state.ready else Reachability.ABSENT
            return ModelReach(spec=spec, reachability=found, text=state.text, advice=state.advice)
        case ModelType.OPENAI | ModelType.GEMINI:
            return await _probe_server(spec, discover)
        case str():
            package = await asyncio.to_thread(engine_package, spec.engine)
            text = (
                f"engine {spec.engine} of package {package}" if package else f"no package has an engine {spec.engine}"
            )
            return ModelReach(spec=spec, reachability=Reachability.THERE if package else Reachability.ABSENT, text=text)
        case kind:
            assert_never(kind)


async def _probe_server(spec: ModelSpec, discover: Discover) -> ModelReach:
    try:
        if spec.key != KeySource():
            await read_key(spec.key)
    except ConfigError as error:
        return ModelReach(spec=spec, reachability=Reachability.KEYLESS, text=str(error), advice=error.advice)
    try:
        names = tuple(await discover(spec))
    except KeyRefusedError as error:
        return ModelReach(spec=spec, reachability=Reachability.REFUSED, text=str(error), advice=error.advice)
    except ChatopsError as error:
        return ModelReach(spec=spec, reachability=Reachability.SILENT, text=str(error), advice=error.advice)
    if names and spec.model_name and spec.model_name not in names:
        text = f"the server answers, but does not list {spec.model_name}."
        advice = f"Name one that it has: chatops connect {without_secrets(spec.api_url)}"
        return ModelReach(spec=spec, reachability=Reachability.UNLISTED, text=text, advice=advice, available=names)
    text = f"the server answers and has {plural(len(names), 'model')}"
    return ModelReach(spec=spec, reachability=Reachability.THERE, text=text, available=names)
