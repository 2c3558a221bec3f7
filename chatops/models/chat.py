"""One request to one model: its attempts, and the stream of events.

A reply counts only if it is complete: a finish reason was given, or the server sent one whole object. Everything else
ends in a failure that keeps the partial reply. Attempts are repeated only before the first token.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import replace
from enum import Enum, auto
from itertools import pairwise
from typing import TYPE_CHECKING, assert_never

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import Message, ToolMessage, UserMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelRequest, ToolChoice
from chatops.models.assemble import Assembler
from chatops.models.base import Failed, ModelEvent, ModelNotice, Replied, Retrying
from chatops.models.body import Body, BodyBuilder
from chatops.models.byte_feed import ByteFeed
from chatops.models.clocks import ReplyClocks
from chatops.models.connection import ServerConnection, StatusError
from chatops.models.failures import error_failure, explain_not_found
from chatops.models.hosts import HOSTS, base_url, host_of, is_unloaded
from chatops.models.keys import Mask, Secret, secrets_of
from chatops.models.memory import EndpointMemory, TextStore
from chatops.models.response import Pace, ResponseReader
from chatops.models.retry import (
    ATTEMPTS,
    AttemptFailure,
    DescribeTools,
    LeaveOut,
    ReplayReasoning,
    countdown,
    delay_before,
)
from chatops.models.statuses import endpoint_of, status_failure
from chatops.models.text_calls import NO_TEXT_TOOLS, TextTools, TextToolsBuilder
from chatops.models.tool_delivery import DeliveryChoice, InField, InPrompt, ToolDelivery, Withheld
from chatops.models.wire import IMAGES, IN_CONTENT, REASONING, ReadFile, ReasoningReplay, ReplayScope, scope_of
from chatops.policy.registry import ModelSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import httpx2

log = logging.getLogger(__name__)

COMPLETIONS = "/chat/completions"
MAX_REMEDIES = 5
"""Maximum changes of one request after refusals: a server that refuses every field must not be asked without end."""
_LISTING_S = 1.0
"""Seconds that the first request may wait for the list of loaded models."""
BYTES_PER_TOKEN = 4
"""Estimated bytes per token. Only sentences for the user depend on it."""


class _ServerMemory(Enum):
    """State of a model in the memory of a server that loads it on the first request."""

    NOT_ASKED = auto()
    WITHOUT_MODEL = auto()
    """The server stated before the first reply that it has not loaded the model."""
    HAS_MODEL = auto()
    """It has, or is taken to have, because it says nothing about it or was asked for a reply."""


@frozen_dataclass
class _RequestPlan:
    """Settings of the next request; changed by what the server refuses."""

    delivery: ToolDelivery
    dropped: frozenset[str] = frozenset()
    reasoning_wanted: bool = False
    """True if the server has asked for the reasoning of earlier replies."""
    remedies: int = 0
    """Changes so far, at most `MAX_REMEDIES`."""
    notice: str = ""
    """The last change, in words for the user."""


class OpenAIChat:
    """Client for one model of the registry. `key` is called for every request."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        key: "Callable[[], Awaitable[Secret]]",
        agent: str,
        remembered: TextStore,
        pace: Pace | None = None,
        url: str = "",
        transport: "httpx2.AsyncBaseTransport | None" = None,
        read_file: ReadFile | None = None,
    ) -> None:
        """Create the client. `url` and `transport` replace the network (demo, tests). `read_file` reads images.

        Raises ConfigError if the spec cannot be used.
        """
        self._spec = spec
        self._key = key
        self._pace = pace or Pace()
        url = url or base_url(spec)
        self._endpoint = endpoint_of(spec, url=url)
        host = host_of(spec)
        self._body = BodyBuilder(spec, host=host, read_file=read_file)
        self._connection = ServerConnection(spec, url=url, agent=agent, transport=transport)
        self._memory = EndpointMemory(remembered, url=self._endpoint.url, model=spec.model_name)
        self._delivery = DeliveryChoice(spec, memory=self._memory, host=self._endpoint.host)
        self._text_tools = TextToolsBuilder(self._delivery.family)
        self._reasoning_scope = scope_of(spec.model_name)
        self._reasoning_field = host.reasoning_field
        self._slots = asyncio.Semaphore(spec.max_concurrent) if spec.max_concurrent else None
        self._server_memory = _ServerMemory.NOT_ASKED
        self._noticed: set[str] = set()
        """Subjects of the notices that were sent: each is sent once."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._connection.aclose()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        """Ask the model, see `ModelClient.stream`."""
        try:
            key = await self._key()
        except ConfigError as error:
            yield Failed.configuration(error)
            return
        mask = Mask(secrets_of(self._spec, key=key.reveal()))
        async with contextlib.aclosing(self._ask(request, key=key)) as events:
            async for event in events:
                for visible in mask.events(event):
                    yield visible

    async def _ask(self, request: ModelRequest, *, key: Secret) -> AsyncGenerator[ModelEvent]:
        if self._body.refused:
            text = f"extra_body may not set {', '.join(self._body.refused)}."
            if notice := self._notice_once("extra_body", text):
                yield notice
        attempt = 1
        plan = _RequestPlan(delivery=self._delivery.delivery())
        if notice := self._unseen_images(request, plan.delivery):
            yield notice
        while True:
            failed: AttemptFailure | None = None
            async with contextlib.aclosing(self._attempt(request, key=key, plan=plan)) as events:
                async for event in events:
                    if isinstance(event, AttemptFailure):
                        failed = event
                    else:
                        yield event
            if failed is None:
                return
            if (changed := self._plan_remedy(plan, failed)) is not None:
                # Asked again with another plan at once, which is no further attempt.
                plan = changed
                yield ModelNotice(text=plan.notice)
                continue
            attempt += 1
            delay = delay_before(failed, attempt=attempt, base_s=self._pace.retry_base_s)
            if delay is None:
                failure = failed.failure
                if failure.kind is FailureKind.NOT_FOUND:
                    failure = await explain_not_found(failure, self._connection, key=key, endpoint=self._endpoint)
                yield Failed(failure=failure)
                return
            reason = failed.failure.message
            for left, next_left in pairwise((*countdown(delay), 0.0)):
                yield Retrying(reason=reason, attempt=attempt, attempts=ATTEMPTS, delay_s=delay, left_s=left)
                await asyncio.sleep(left - next_left)

    def _plan_remedy(self, plan: _RequestPlan, failed: AttemptFailure) -> _RequestPlan | None:
        """Return the plan of the next attempt; None if nothing can be changed."""
        if failed.failure.started or plan.remedies >= MAX_REMEDIES:
            return None
        plan = replace(plan, remedies=plan.remedies + 1)
        match failed.remedy:
            case None:
                return None
            case LeaveOut(field=field):
                if field in plan.dropped | self._memory.refused():
                    return None
                text = f"{self._endpoint.host} does not take {field!r}; asking again without it."
                return replace(plan, dropped=plan.dropped | {field}, notice=text)
            case DescribeTools():
                change = self._delivery.after_refusal(plan.delivery)
                return None if change is None else replace(plan, delivery=change.delivery, notice=change.text)
            case ReplayReasoning():
                if plan.reasoning_wanted or self._replay_scope() is ReplayScope.EVERY_CALL:
                    return None
                text = f"{self._endpoint.host} wants to see what the model thought before its calls; it is sent along."
                return replace(plan, reasoning_wanted=True, notice=text)
            case _:
                assert_never(failed.remedy)

    def _replay_scope(self) -> ReplayScope:
        return ReplayScope.EVERY_CALL if self._memory.wants_reasoning() else self._reasoning_scope

    async def _attempt(
        self, request: ModelRequest, *, key: Secret, plan: _RequestPlan
    ) -> AsyncGenerator[ModelEvent | AttemptFailure]:
        """Ask once as `plan` says. The last event is Replied or an AttemptFailure."""
        replay = ReasoningReplay(
            scope=ReplayScope.EVERY_CALL if plan.reasoning_wanted else self._replay_scope(),
            field=self._reasoning_field,
            to=self._spec.name,
        )
        without = plan.dropped | self._memory.refused()
        body = self._body.build(request, delivery=plan.delivery, replay=replay, without=without)
        text_tools = self._callable_in_text(request, plan.delivery)
        window = self._memory.context_window(self._spec.context_window)
        endpoint = replace(self._endpoint, sent=math.ceil(len(body.data) / BYTES_PER_TOKEN), window=window)
        clocks = ReplyClocks(
            host=endpoint.host,
            timeouts=self._spec.timeout_s,
            waiting_s=self._pace.waiting_s,
            unloaded=lambda: self._server_memory is _ServerMemory.WITHOUT_MODEL,
        )
        max_tokens = self._spec.max_output_tokens
        reader = ResponseReader(clocks, endpoint=endpoint, text_tools=text_tools, max_output_tokens=max_tokens)
        feed = ByteFeed(self._response_bytes(body.data, key=key, clocks=clocks))
        error: AttemptFailure | None = None
        try:
            async for event in reader.events(feed):
                yield event
        except StatusError as refusal:
            error = status_failure(refusal.status, refusal.headers, refusal.body, endpoint=endpoint)
        except Exception as broken:
            error = error_failure(broken, endpoint=endpoint, timeouts=self._spec.timeout_s)
            if error.failure.kind is FailureKind.INTERNAL:
                log.exception("asking %s failed", self._endpoint.host)
        finally:
            # Also after a failure: what the server stated before this attempt says nothing about the next one.
            self._server_memory = _ServerMemory.HAS_MODEL
            await feed.aclose()
        for piece in reader.close(error):
            yield piece
        if (failed := reader.failure) is not None:
            self._memory.learn_limit(failed.failure.context_limit, window=self._spec.context_window)
            yield replace(failed, failure=_with_partial_reply(failed.failure, reader.assembler))
            return
        reply = reader.reply()
        for notice in self._learn(reply, plan=plan, assembler=reader.assembler, body=body):
            yield notice
        yield Replied(reply=self._with_cost(reply))

    def _callable_in_text(self, request: ModelRequest, delivery: ToolDelivery) -> TextTools:
        """Return the tools that the text of the reply may call."""
        match delivery:
            case InPrompt() | InField(reads_text=True):
                return self._text_tools.of(request.tools, may_call=request.tool_choice is not ToolChoice.NONE)
            case InField() | Withheld():
                return NO_TEXT_TOOLS
            case _:
                assert_never(delivery)

    def _learn(
        self, reply: ModelReply, *, plan: _RequestPlan, assembler: Assembler, body: Body
    ) -> Iterator[ModelNotice]:
        """Remember what the reply shows about the server; yield the notices for the user."""
        if plan.dropped:
            self._memory.refuse(plan.dropped)
        if plan.reasoning_wanted:
            self._memory.learn_reasoning()
        if assembler.reasoning_field in {*REASONING, IN_CONTENT}:
            self._reasoning_field = assembler.reasoning_field
        if plan.remedies:
            self._delivery.confirm(plan.delivery)
        text = self._delivery.observe(
            reply, plan.delivery, text_format=assembler.text_format, tools=body.tools, rest=body.messages
        )
        if text:
            yield ModelNotice(text=text)
        if notice := self._other_model(reply):
            yield notice

    async def _response_bytes(self, body: bytes, *, key: Secret, clocks: ReplyClocks) -> AsyncIterator[bytes]:
        async with self._slots or contextlib.nullcontext():
            if self._server_memory is _ServerMemory.NOT_ASKED:
                # Asked before the request, which makes the server load the model.
                unloaded = await self._ask_if_unloaded(key)
                self._server_memory = _ServerMemory.WITHOUT_MODEL if unloaded else _ServerMemory.HAS_MODEL
            clocks.start()
            yield b""  # Empty, to wake the reader, which waited without a limit until now.
            response = await self._connection.post(COMPLETIONS, body=body, key=key)
            try:
                async for part in response.aiter_bytes():
                    yield part
            finally:
                await response.aclose()

    async def _ask_if_unloaded(self, key: Secret) -> bool:
        """Return True if the server states that it has not loaded the model; False for any other answer, or none."""
        host = self._spec.host_type
        if not (path := HOSTS[host].loaded_list):
            return False
        address = self._endpoint.url.removesuffix("/v1") + path
        try:
            listing = await self._connection.get(address, key=key, timeout_s=_LISTING_S)
        except Exception:
            # The reply does not depend on this list.
            log.debug("%s does not say if the model is loaded", self._endpoint.host, exc_info=True)
            return False
        return is_unloaded(listing.decode(errors="replace"), host=host, model=self._spec.model_name)

    def _notice_once(self, subject: str, text: str) -> ModelNotice | None:
        if subject in self._noticed:
            return None
        self._noticed.add(subject)
        return ModelNotice(text=text)

    def _unseen_images(self, request: ModelRequest, delivery: ToolDelivery) -> ModelNotice | None:
        """Return a notice if this turn has brought an image that is not sent: the user sees it, the model does not."""
        if not _has_new_image(request.messages) or self._body.sends_images(delivery, without=self._memory.refused()):
            return None
        text = f"{self._spec.name} does not see images, only their names."
        if self._spec.images is None and not self._spec.takes_images:
            text += f" If it can, set images of {self._spec.name} to true in the registry."
        return self._notice_once(IMAGES, text)

    def _other_model(self, reply: ModelReply) -> ModelNotice | None:
        """Return a notice if another model has answered than was asked."""
        asked, answered = (name.rpartition("/")[2].lower() for name in (self._spec.model_name, reply.model_id))
        if not answered or asked in answered or answered in asked:
            return None
        return self._notice_once(
            f"answered as {reply.model_id}",
            f"{self._endpoint.host} answered with model {reply.model_id[:80]!r}, not {self._spec.model_name!r}.",
        )

    def _with_cost(self, reply: ModelReply) -> ModelReply:
        """Return the reply with its cost, if the registry has a price (per million tokens) or one is known."""
        price, usage = self._spec.price or self._memory.price(), reply.usage
        if price is None or usage is None:
            return reply
        cached = price.input if price.cached_input is None else price.cached_input
        fresh = usage.input_tokens - usage.cached_tokens
        cost = fresh * price.input + usage.cached_tokens * cached + usage.output_tokens * price.output
        return replace(reply, usage=replace(usage, cost=cost / 1_000_000))


def _has_new_image(messages: Sequence[Message]) -> bool:
    """Return True if the user's last message, or a result after it, has an image."""
    for message in reversed(messages):
        match message:
            case UserMessage(files=files):
                return any(file.ref.is_image for file in files)
            case ToolMessage(facts=facts) if any(file.is_image for file in facts.files):
                return True
            case _:
                pass
    return False


def _with_partial_reply(failure: ModelFailure, assembler: Assembler) -> ModelFailure:
    """Return the failure with the partial reply."""
    kept = "The partial reply is kept. " if assembler.text.strip() else ""
    return replace(
        failure,
        advice=f"{kept}{failure.advice}",
        partial_text=assembler.text,
        partial_reasoning=assembler.reasoning,
        started=failure.started or assembler.started,
    )
