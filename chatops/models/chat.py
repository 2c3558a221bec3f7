"""One request to one model: its attempts, and the stream of events.

A reply counts only if it is complete: a finish reason was given, or the server sent one whole object. Everything else
ends in a failure that keeps the partial reply. Attempts are repeated only before the first token.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, assert_never

from chatops.domain.errors import ConfigError
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelRequest, ToolChoice
from chatops.models.assemble import Assembler
from chatops.models.base import Failed, ModelEvent, Remark, Replied, Retrying
from chatops.models.body import Body, BodyBuilder
from chatops.models.calls import NO_OFFER, Offer, OfferMaker
from chatops.models.connection import Connection, StatusError
from chatops.models.failures import explain_not_found, trouble_of
from chatops.models.hosts import base_url, host_of
from chatops.models.keys import Secret
from chatops.models.masking import Mask, secrets_of
from chatops.models.memory import EndpointMemory, Notes
from chatops.models.response import Feed, Intake, Pace
from chatops.models.retry import (
    ATTEMPTS,
    DescribeTools,
    GiveReasoningBack,
    LeaveOut,
    Trouble,
    countdown,
    delay_before,
)
from chatops.models.statuses import about, trouble_of_status
from chatops.models.tool_delivery import FormatChoice, InField, InPrompt, Manner, Withheld
from chatops.models.wire import FIELDS, IN_CONTENT, GivenBack, Scope, scope_of
from chatops.policy.registry import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2

log = logging.getLogger(__name__)

COMPLETIONS = "/chat/completions"
MOST_REMEDIES = 5
BYTES_PER_TOKEN = 4
"""Estimated bytes per token, for messages only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """The way to send a request; changed by what the server refuses."""

    manner: Manner
    dropped: frozenset[str] = frozenset()
    reasoning_wanted: bool = False
    remedies: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stumbled:
    """The last event of an attempt without a reply."""

    trouble: Trouble


class OpenAIChat:
    """Client for one model of the registry. `key` is called for every request."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        key: "Callable[[], Awaitable[Secret]]",
        agent: str,
        remembered: Notes,
        pace: Pace | None = None,
        url: str = "",
        transport: "httpx2.AsyncBaseTransport | None" = None,
    ) -> None:
        """Create the client. `url` and `transport` replace the network (demo, tests).

        Raises ConfigError if the spec cannot be used.
        """
        self._spec = spec
        self._key = key
        self._pace = pace or Pace()
        url = url or base_url(spec)
        self._about = about(spec, url=url)
        host = host_of(spec)
        self._body = BodyBuilder(spec, host=host)
        self._connection = Connection(spec, url=url, agent=agent, transport=transport)
        self._memory = EndpointMemory(remembered, url=self._about.url, model=spec.model_name)
        self._formats = FormatChoice(spec, memory=self._memory, host=self._about.host)
        self._offers = OfferMaker(self._formats.family)
        self._reasoning_scope = scope_of(spec.model_name)
        self._reasoning_field = host.reasoning_field
        self._slots = asyncio.Semaphore(spec.max_concurrent) if spec.max_concurrent else None
        self._remarked: set[str] = set()

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask the model, see `ModelClient.stream`."""
        try:
            key = await self._key()
        except ConfigError as error:
            yield Failed(failure=_configuration(error))
            return
        mask = Mask(secrets_of(self._spec, key=key.reveal()))
        async with contextlib.aclosing(self._ask(request, key=key)) as events:
            async for event in events:
                for visible in mask.events(event):
                    yield visible

    async def _ask(self, request: ModelRequest, *, key: Secret) -> AsyncGenerator[ModelEvent]:
        if self._body.refused and (remark := self._once(f"extra_body may not set {', '.join(self._body.refused)}")):
            yield remark
        attempt = 1
        way = _Way(manner=self._formats.manner())
        while True:
            stumbled: _Stumbled | None = None
            async with contextlib.aclosing(self._attempt(request, key=key, way=way)) as events:
                async for event in events:
                    if isinstance(event, _Stumbled):
                        stumbled = event
                    else:
                        yield event
            if stumbled is None:
                return
            trouble = stumbled.trouble
            if (changed := self._remedied(way, trouble)) is not None:
                way, remark = changed
                yield remark
                continue
            attempt += 1
            delay = delay_before(trouble, attempt=attempt, base_s=self._pace.retry_base_s)
            if delay is None:
                yield Failed(failure=await self._explained(trouble.failure, key=key))
                return
            reason = trouble.failure.message
            lefts = countdown(delay)
            for left, after in zip(lefts, [*lefts[1:], 0.0], strict=True):
                yield Retrying(reason=reason, attempt=attempt, of=ATTEMPTS, delay_s=delay, left_s=left)
                await asyncio.sleep(left - after)

    def _remedied(self, way: _Way, trouble: Trouble) -> tuple[_Way, Remark] | None:
        """Return the next way to ask, and the notice about it; None if there is none or the reply had begun."""
        if trouble.failure.started or way.remedies >= MOST_REMEDIES:
            return None
        way = replace(way, remedies=way.remedies + 1)
        match trouble.remedy:
            case None:
                return None
            case LeaveOut(field=field):
                if field in way.dropped | self._memory.refused():
                    return None
                told = f"{self._about.host} does not take {field!r}; asking again without it."
                return replace(way, dropped=way.dropped | {field}), Remark(text=told)
            case DescribeTools():
                change = self._formats.after_refusal(way.manner)
                if change is None:
                    return None
                return replace(way, manner=change.manner), Remark(text=change.text)
            case GiveReasoningBack():
                if way.reasoning_wanted or self._scope() is Scope.EVERY_CALL:
                    return None
                told = f"{self._about.host} wants to see what the model thought before its calls; it is sent along."
                return replace(way, reasoning_wanted=True), Remark(text=told)
            case _:
                assert_never(trouble.remedy)

    def _scope(self) -> Scope:
        return Scope.EVERY_CALL if self._memory.wants_reasoning() else self._reasoning_scope

    async def _attempt(
        self, request: ModelRequest, *, key: Secret, way: _Way
    ) -> AsyncGenerator[ModelEvent | _Stumbled]:
        given_back = GivenBack(
            scope=Scope.EVERY_CALL if way.reasoning_wanted else self._scope(),
            field=self._reasoning_field,
            to=self._spec.name,
        )
        without = way.dropped | self._memory.refused()
        body = self._body.build(request, manner=way.manner, given_back=given_back, without=without)
        offer = self._offer(request, way.manner)
        window = self._memory.context_window(self._spec.context_window)
        of = replace(self._about, sent=-(-len(body.data) // BYTES_PER_TOKEN), window=window)
        intake = Intake(of=of, timeouts=self._spec.timeouts, pace=self._pace, offer=offer)
        feed = Feed(self._bytes(body.data, key=key, intake=intake))
        error: Trouble | None = None
        try:
            async for event in intake.events(feed):
                yield event
        except StatusError as refusal:
            error = trouble_of_status(refusal.status, refusal.headers, refusal.body, of=of)
        except Exception as broken:
            error = trouble_of(broken, of=of, timeouts=self._spec.timeouts)
            if error.failure.kind is FailureKind.INTERNAL:
                log.exception("asking %s failed", self._about.host)
        finally:
            await feed.aclose()
        for piece in intake.close(error):
            yield piece
        if (trouble := intake.trouble) is not None:
            self._memory.learn_limit(trouble.failure.context_limit, window=self._spec.context_window)
            yield _Stumbled(trouble=replace(trouble, failure=_kept(trouble.failure, intake.assembler)))
            return
        reply = intake.reply()
        for remark in self._learned(reply, way=way, got=intake.assembler, body=body):
            yield remark
        yield Replied(reply=self._priced(reply))

    def _offer(self, request: ModelRequest, manner: Manner) -> Offer:
        """Return the tools that the text of the reply may call."""
        match manner:
            case InPrompt() | InField(reads_text=True):
                return self._offers.of(request.tools, may_call=request.tool_choice is not ToolChoice.NONE)
            case InField() | Withheld():
                return NO_OFFER
            case _:
                assert_never(manner)

    def _learned(self, reply: ModelReply, *, way: _Way, got: Assembler, body: Body) -> Iterator[Remark]:
        """Remember what the reply shows about the server; yield the notices for the user."""
        if way.dropped:
            self._memory.refuse(way.dropped)
        if way.reasoning_wanted:
            self._memory.learn_reasoning()
        if got.reasoning_field in {*FIELDS, IN_CONTENT}:
            self._reasoning_field = got.reasoning_field
        if way.remedies:
            self._formats.worked(way.manner)
        told = self._formats.heard(reply, way.manner, text_format=got.text_format, tools=body.tools, rest=body.messages)
        if told:
            yield Remark(text=told)
        if remark := self._other_model(reply):
            yield remark

    async def _bytes(self, body: bytes, *, key: Secret, intake: Intake) -> AsyncIterator[bytes]:
        async with self._slots or contextlib.nullcontext():
            intake.sent()
            yield b""  # Empty, to wake the reader, which waited without a limit until now.
            response = await self._connection.post(COMPLETIONS, body=body, key=key)
            try:
                async for part in response.aiter_bytes():
                    yield part
            finally:
                await response.aclose()

    async def _explained(self, failure: ModelFailure, *, key: Secret) -> ModelFailure:
        """Return the failure; for an unknown model, with the names of known ones."""
        if failure.kind is not FailureKind.NOT_FOUND:
            return failure
        return await explain_not_found(failure, self._connection, key=key, of=self._about)

    def _once(self, text: str) -> Remark | None:
        if text in self._remarked:
            return None
        self._remarked.add(text)
        return Remark(text=f"{text}.")

    def _other_model(self, reply: ModelReply) -> Remark | None:
        asked, answered = (name.rpartition("/")[2].lower() for name in (self._spec.model_name, reply.model_id))
        if not answered or asked in answered or answered in asked:
            return None
        return self._once(
            f"{self._about.host} answered with model {reply.model_id[:80]!r}, not {self._spec.model_name!r}"
        )

    def _priced(self, reply: ModelReply) -> ModelReply:
        """Return the reply with its cost if the registry has a price (per million tokens)."""
        price, usage = self._spec.price, reply.usage
        if price is None or usage is None:
            return reply
        cached = price.input if price.cached_input is None else price.cached_input
        fresh = usage.input_tokens - usage.cached_tokens
        cost = fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output
        return replace(reply, usage=replace(usage, cost=cost / 1_000_000))


def _configuration(error: ConfigError) -> ModelFailure:
    return ModelFailure(kind=FailureKind.CONFIGURATION, message=str(error), advice=error.advice)


def _kept(failure: ModelFailure, assembler: Assembler) -> ModelFailure:
    """Return the failure with the partial reply."""
    kept = "What has come is kept. " if assembler.text.strip() else ""
    return replace(
        failure,
        advice=f"{kept}{failure.advice}",
        partial_text=assembler.text,
        partial_reasoning=assembler.reasoning,
        started=failure.started or assembler.started,
    )
