"""One call of a model: publish what streams in, keep it until the end, and return the end as an input for the turn.

While no data comes, one notice says so and counts down. It changes in place.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, assert_never

from chatops.config.failpoints import reach
from chatops.domain.events import CallStreamed, Event, Notice, NoticeChanged, ReasoningDelta, TextDelta
from chatops.domain.ids import RoundId, thought_id
from chatops.domain.model import FailureKind, ModelFailure, ModelRequest
from chatops.domain.wording import describe_error
from chatops.engine.inputs import ModelFailureInput, ModelReplyInput
from chatops.models.base import (
    CallChunk,
    Failed,
    ModelClient,
    ModelEvent,
    ModelNotice,
    ReasoningChunk,
    Replied,
    Retrying,
    TextChunk,
    Waiting,
)
from chatops.models.retry import in_words
from chatops.runtime.services import retry_while_away

log = logging.getLogger(__name__)


class PartialReply(NamedTuple):
    """Part of a reply that has streamed."""

    text: str = ""
    reasoning: str = ""


@dataclass(slots=True)
class ModelCall:
    """The model call of round `round_id`. `publish` takes the events until it ends."""

    round_id: RoundId
    publish: Callable[[Event], None]
    text: list[str] = field(default_factory=list)
    """Text streamed so far, in case the call is stopped."""
    reasoning: list[str] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    notices: int = 0
    """Number of notices about the server so far."""
    waiting: Waiting | Retrying | None = None
    """The event behind the notice that is shown while no data comes."""

    def partial(self) -> PartialReply:
        """Return what has streamed so far."""
        return PartialReply("".join(self.text), "".join(self.reasoning))

    async def run(self, models: ModelClient, request: ModelRequest) -> ModelReplyInput | ModelFailureInput:
        """Ask the model and follow the reply to its end. Raises nothing but CancelledError."""
        reach("before_model")
        ended: ModelReplyInput | ModelFailureInput | None = None
        try:
            # What the request needs, such as images, may be in the store.
            ended = await retry_while_away(lambda: self._follow(models, request), self.round_id, self.publish)
        except asyncio.CancelledError:
            if (waiting := self.waiting) is not None:
                self._change_notice(waiting_over_notice(waiting, stopped=True))
            raise
        except Exception as error:
            log.exception("the model client failed")
            ended = self._failure_input(describe_error(error))
        reach("after_model")
        return ended or self._failure_input("the reply did not end")

    async def _follow(self, models: ModelClient, request: ModelRequest) -> ModelReplyInput | ModelFailureInput | None:
        ended = None
        async for event in models.stream(request):
            ended = self._take_event(event) or ended
        return ended

    def _take_event(self, event: ModelEvent) -> ModelReplyInput | ModelFailureInput | None:
        thought = thought_id(self.round_id)
        self._update_notice(event)
        match event:
            case TextChunk(text=text):
                reach("in_stream")
                self.text.append(text)
                self.publish(TextDelta(id=thought, parent_id=self.round_id, text=text))
            case ReasoningChunk(text=text):
                self.reasoning.append(text)
                self.publish(ReasoningDelta(id=thought, parent_id=self.round_id, text=text))
            case CallChunk(characters=characters, tool=tool, path=path):
                self.publish(
                    CallStreamed(id=thought, parent_id=self.round_id, characters=characters, tool=tool, path=path)
                )
            case Retrying() | Waiting():
                pass
            case ModelNotice(text=text):
                # These notices stay. Only those about waiting and retrying replace each other.
                self.notices += 1
                self.publish(Notice(id=f"{self.round_id}.remark{self.notices}", parent_id=self.round_id, text=text))
            case Replied(reply=reply):
                if self.text:
                    # The end of the answer is shown before the step is stored.
                    self.publish(TextDelta(id=thought, parent_id=self.round_id, text=""))
                return ModelReplyInput(round_id=self.round_id, reply=reply, duration_ms=self._duration_ms())
            case Failed(failure=failure):
                return ModelFailureInput(round_id=self.round_id, failure=failure, duration_ms=self._duration_ms())
            case _ as never:
                assert_never(never)
        return None

    def _update_notice(self, event: ModelEvent) -> None:
        """Update the one notice about waiting and retrying. Once data comes, it says what happened."""
        before = self.waiting
        match event:
            case Retrying(left_s=left, delay_s=whole) if left < whole:  # The countdown goes on.
                self._change_notice(waiting_notice(event))
            case Retrying() | Waiting():
                self.publish(Notice(id=self._notice_id, parent_id=self.round_id, text=waiting_notice(event)))
            case _ if before is not None:
                self._change_notice(waiting_over_notice(before, failed=isinstance(event, Failed)))
            case _:
                return
        self.waiting = event if isinstance(event, Retrying | Waiting) else None

    @property
    def _notice_id(self) -> str:
        return f"{self.round_id}.note"

    def _change_notice(self, text: str) -> None:
        self.publish(NoticeChanged(id=self._notice_id, parent_id=self.round_id, text=text))

    def _failure_input(self, why: str) -> ModelFailureInput:
        text, reasoning = self.partial()
        failure = ModelFailure(
            kind=FailureKind.INTERNAL,
            message=f"Talking to the model failed: {why}.",
            advice="Try again; the log has the details (chatops doctor shows where).",
            partial_text=text,
            partial_reasoning=reasoning,
            started=bool(text or reasoning),
        )
        return ModelFailureInput(round_id=self.round_id, failure=failure, duration_ms=self._duration_ms())

    def _duration_ms(self) -> int:
        return round((time.monotonic() - self.began) * 1000)


def waiting_notice(event: Retrying | Waiting) -> str:
    """Return the notice to show while no data comes."""
    if isinstance(event, Retrying):
        attempt = f"{event.attempt} of {event.attempts}"
        return f"{event.reason} Trying again in {in_words(event.left_s)} ({attempt})."
    if event.limit_s is None:
        return f"Waiting for {in_words(event.seconds)} until other requests to this model are over."
    but = ", but the server is alive" if event.alive else ""
    end = in_words(event.limit_s)
    if event.loading:
        return f"Loading the model … No data for {in_words(event.seconds)}. chatops gives up after {end}."
    return f"No data for {in_words(event.seconds)}{but}. chatops gives up after {end}."


def waiting_over_notice(event: Retrying | Waiting, *, stopped: bool = False, failed: bool = False) -> str:
    """Return the final text of the same notice, once waiting is over.

    `stopped`: no data came and the user stopped waiting. `failed`: the call ended with an error, which names the reason
    itself.
    """
    if isinstance(event, Retrying):
        tried = "It was not tried again." if stopped else f"Tried again ({event.attempt} of {event.attempts})."
        return tried if failed else f"{event.reason} {tried}"
    if event.limit_s is None:
        return f"Waited for {in_words(event.seconds)} until other requests to this model were over."
    loaded = "The server had not loaded the model. " if event.loading else ""
    return f"{loaded}There was no data for {in_words(event.seconds)}."
