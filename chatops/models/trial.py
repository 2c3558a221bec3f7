"""Test if and how a model calls tools, by asking it to call a harmless one, which is never run."""

import asyncio
import contextlib
from dataclasses import replace
from enum import StrEnum

from chatops.dialects.families import family_of
from chatops.dialects.writing import WRITABLE
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId
from chatops.domain.messages import UserMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelRequest
from chatops.domain.tools import RawCall, ToolSpec
from chatops.models.base import Failed, Replied
from chatops.models.client import RegistryClient
from chatops.models.hosts import base_url, without_secrets
from chatops.models.memory import PROMPTED, CallStyle, EndpointMemory, InMemoryTextStore, Learned, TextStore
from chatops.models.tool_delivery import is_free
from chatops.policy.registry import ModelSpec

PATIENCE_S = 120.0
"""Seconds for one answer: a local server may have to load the model first."""
WORD = "heron"
"""The argument that the question asks for."""
PING = ToolSpec(
    name="ping",
    description="Gives back the word that it is called with.",
    schema='{"type":"object","properties":{"word":{"type":"string"}},"required":["word"],"additionalProperties":false}',
)
_SYSTEM = "You are being asked whether you can call tools."
_QUESTION = f"Call the tool ping with the word {WORD}. Do not answer in words; only call the tool."


class TrialOutcome(StrEnum):
    """Result of a trial."""

    NATIVE = "native"
    TEXT = "text"
    """Given the tool in its own field, the model called it in its text."""
    PROMPTED = "prompted"
    """Given the tool in its prompt, the model called it."""
    UNREADABLE = "unreadable"
    """The model tried, but its call could not be run."""
    NO_CALL = "no_call"
    FAILED = "failed"
    """There was no reply."""


@frozen_dataclass
class Trial:
    """Everything found out about a model's calls."""

    outcome: TrialOutcome
    format: str = ""
    """Format of calls in text, or the format that was requested without success."""
    answer_text: str = ""
    """The beginning of the answer, or the problem with the call."""
    calling: CallStyle | None = None
    """The way in which the model calls tools, if that was learned."""
    failure: ModelFailure | None = None


async def try_calling(spec: ModelSpec, *, remembered: TextStore) -> Trial:
    """Ask the model to call `PING`, and remember how it did. Without a reply, earlier knowledge is kept.

    Raises ConfigError if the spec cannot be used.
    """
    # Without earlier knowledge, which the client would use.
    fresh = InMemoryTextStore()
    trial = await _try_once(spec, fresh)
    learned = None if trial.outcome is TrialOutcome.FAILED else _memory_of(spec, fresh).learned()
    failed = trial.outcome in (TrialOutcome.NO_CALL, TrialOutcome.UNREADABLE)
    if failed and learned is None and is_free(spec):
        prompted = family_of(spec.model_name).prompted
        second = await _try_once(replace(spec, tool_format=prompted), InMemoryTextStore())
        if second.outcome is TrialOutcome.PROMPTED:
            learned = Learned(calling=CallStyle.IGNORED, format=prompted)
            trial = replace(second, calling=learned.calling)
    memory = _memory_of(spec, remembered)
    if learned is not None:
        memory.learn(learned)
    elif trial.outcome is not TrialOutcome.FAILED:
        memory.forget()
    return trial


def _memory_of(spec: ModelSpec, store: TextStore) -> EndpointMemory:
    return EndpointMemory(store, url=without_secrets(base_url(spec)), model=spec.model_name)


async def _try_once(spec: ModelSpec, store: TextStore) -> Trial:
    """Make one trial. The client keeps in `store` what it learns from it."""
    answer = await _answer(spec, store=store)
    learned = _memory_of(spec, store).learned()
    if isinstance(answer, ModelFailure):
        return Trial(outcome=TrialOutcome.FAILED, failure=answer)
    prompted_format = spec.tool_format if spec.tool_format in WRITABLE else ""
    format_ = learned.format if learned is not None else prompted_format
    calling = None if learned is None else learned.calling
    if not answer.calls:
        answer_text = answer.text.strip()[:200]
        return Trial(outcome=TrialOutcome.NO_CALL, format=format_, answer_text=answer_text, calling=calling)
    if problem := _problem_of(answer.calls[0]):
        return Trial(outcome=TrialOutcome.UNREADABLE, format=format_, answer_text=problem)
    if prompted_format or calling in PROMPTED:
        return Trial(outcome=TrialOutcome.PROMPTED, format=format_, calling=calling)
    if calling is CallStyle.TEXT:
        return Trial(outcome=TrialOutcome.TEXT, format=format_)
    return Trial(outcome=TrialOutcome.NATIVE)


def _problem_of(call: RawCall) -> str:
    """Return the problem with a call of `PING` for the user, without the advice for the model."""
    if call.name not in ("", PING.name):
        return f"it named another tool, {call.name[:80]!r}"
    return call.problem.partition(";")[0]


async def _answer(spec: ModelSpec, *, store: TextStore) -> ModelReply | ModelFailure:
    request = ModelRequest(
        model=spec.name, system=_SYSTEM, messages=(UserMessage(id=MessageId("trial"), text=_QUESTION),), tools=(PING,)
    )
    client = RegistryClient({spec.name: spec}.get, remembered=store)
    try:
        async with asyncio.timeout(PATIENCE_S), contextlib.aclosing(client.stream(request)) as events:
            async for event in events:
                match event:
                    case Replied(reply=reply):
                        return reply
                    case Failed(failure=failure):
                        return failure
    except TimeoutError:
        pass
    finally:
        await client.aclose()
    message = f"The model gave no answer within {PATIENCE_S / 60:.0f} min."
    return ModelFailure(kind=FailureKind.TIMEOUT, message=message, advice="Try again, or look at the server.")
