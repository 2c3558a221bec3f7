"""Read one response: events while it arrives, then a complete reply or the reason why there is none.

Theory of operation

Why not the SDK's parser. It reports success for responses that are broken:

- a web page, an error object or a whole completion in place of a stream (no chunks, no error)
- an end without a finish reason, also one inside the arguments of a tool call; a finish reason that stays null
- an `error` event of another shape
- a byte order mark before the first event, which is then lost

It also builds a model object for each chunk, about 88 µs; reading the bytes with `SseReader` and `pydantic_core` takes
11 µs. So the SDK connects, authenticates and sends, and this module reads the bytes.

A `ResponseReader` reads the response of one attempt. `events` takes bytes from a `ByteFeed` and yields text and
reasoning as soon as they are certain, and `Waiting` while nothing comes. `close` must follow in any case: it returns
the text that was held back and sets `failure`. If that is None, `reply` returns the complete reply.

Forms of the body (`_Form`):

- Undecided until its first visible character. Content types are not trusted.
- Whole, if that character is `{`, `[` or `<`. The body is collected up to `BODY_LIMIT` and read at its end: a reply, an
  error object, or a web page, which means that api_url is wrong.
- Stream otherwise: server-sent events, each added to the `Assembler`. `[DONE]` ends the reading, and so does a failure.

A reply is complete if it has a finish reason or came as one whole object. `[DONE]` alone does not make it complete. A
connection error after the finish reason is ignored. A complete reply without text and calls is a failure only if a
filter or the token limit stopped it. Any other empty reply is a reply, and the turn decides what to do about it.

`clocks` has the limits of time.

Limits of size: `BODY_LIMIT` for a whole body, and those of `SseReader`, `Assembler` and `CallCollector`. A stream that
has not ended after `REPLY_TOKENS` pieces, or `max_output_tokens` if that is more, is stopped: some models never end. A
reply that repeats one short text endlessly is stopped, and its beginning is kept (`Repetition`).
"""

from codecs import BOM_UTF8
from collections.abc import AsyncGenerator
from enum import Enum, auto

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelReply
from chatops.models.assemble import Assembler, Repetition, ReplyTooLargeError
from chatops.models.base import CallChunk, ReasoningChunk, TextChunk, Waiting
from chatops.models.byte_feed import ByteFeed, EventTooLargeError, FeedState, ServerEvent, SseReader, loop_time
from chatops.models.calls import TooManyCallsError
from chatops.models.clocks import ReplyClocks
from chatops.models.error_text import error_of_body, error_of_object, looks_like_html, plain_line
from chatops.models.retry import AGAIN, AttemptFailure, failed_attempt
from chatops.models.server_json import BadDataError, as_object, parse
from chatops.models.statuses import Endpoint, stream_failure
from chatops.models.text_calls import NO_TEXT_TOOLS, TextTools

REPLY_TOKENS = 131_072
"""Tokens of a reply that are accepted in any case, as many as any common model writes at most."""
BODY_LIMIT = 64 * 1024 * 1024
"""Bytes of a body that is not a stream."""
DRAIN_S = 0.1
"""Seconds to wait for the end of the body after the last event, so that the connection can be reused."""
_SHOWN_BYTES = 4096
"""Bytes at the beginning of a whole body that show if it is a web page. An error quotes from them."""
Chunk = TextChunk | ReasoningChunk | CallChunk
DONE = b"[DONE]"
"""Data of the event that ends a stream."""


class _Form(Enum):
    """Form of a body, see above."""

    UNDECIDED = auto()
    WHOLE = auto()
    STREAM = auto()


@frozen_dataclass
class Pace:
    """Seconds between two `Waiting` events, and before the second attempt. Tests set them low."""

    waiting_s: float = 15.0
    retry_base_s: float = 1.0


class ResponseReader:
    """Reader of one response. After `close`, `failure` is the reason why there is no reply; None if there is one."""

    def __init__(
        self,
        clocks: ReplyClocks,
        *,
        endpoint: Endpoint,
        text_tools: TextTools = NO_TEXT_TOOLS,
        max_output_tokens: int | None = None,
    ) -> None:
        self._clocks = clocks
        self._endpoint = endpoint
        self._max_pieces = max(REPLY_TOKENS, max_output_tokens or 0)
        self._form = _Form.UNDECIDED
        self._body = bytearray()
        """The body so far; empty if it is a stream, whose bytes go to `_reader` at once."""
        self._reader = SseReader()
        self._saw_data = False
        """True once an event of a stream had data."""
        self._done = False
        """True once the reply has ended, by `[DONE]` or as one whole object."""
        self.assembler = Assembler(text_tools)
        self.failure: AttemptFailure | None = None

    def reply(self) -> ModelReply:
        """Return the reply. Call it only after `close`, and only without a failure."""
        return self.assembler.reply()

    async def events(self, feed: ByteFeed) -> AsyncGenerator[Chunk | Waiting]:
        """Yield chunks and waiting notices as they arrive. Always call `close` afterwards.

        Raises network errors.
        """
        while not self._is_over():
            part = await feed.take(self._clocks.next_wait(started=self.assembler.started))
            if part is FeedState.END:
                for chunk in self._read(None):
                    yield chunk
                return
            if isinstance(part, bytes) and part:
                for chunk in self._read(part):
                    yield chunk
            if self._is_over():
                break
            match self._clocks.due(started=self.assembler.started):
                case Waiting() as waiting:
                    yield waiting
                case failure:
                    self.failure = failure
        if self._done:
            await _drain(feed)

    def close(self, error: AttemptFailure | None) -> list[Chunk]:
        """Return the chunks that were held back, and set `failure`. `error` is the failure of the connection."""
        chunks = self.assembler.close()
        if error is not None and not self.assembler.finish_reason:
            self.failure = self.failure or error
        self.failure = self.failure or self._failure_at_end()
        return chunks

    def _is_over(self) -> bool:
        return self._done or self.failure is not None

    def _read(self, data: bytes | None) -> list[Chunk]:
        """Read a part of the body, or its end (None), and return its chunks. Set `failure` if the reply must stop."""
        try:
            if data is None:
                self._read_end()
            else:
                self._read_part(data)
        except (EventTooLargeError, ReplyTooLargeError, TooManyCallsError):
            self.failure = self._broken_failure(
                f"{self._endpoint.host} sent more than the largest reply that is accepted; it was stopped."
            )
        except BadDataError as error:
            self.failure = self._broken_failure(f"{self._endpoint.host} sent {error}.")
        chunks = self.assembler.take()
        if self._is_over():
            return chunks
        if not self.assembler.finish_reason and (repetition := self.assembler.cut_repetition()):
            self.failure = self._repetition_failure(repetition)
        elif self.assembler.pieces > self._max_pieces:
            self.failure = self._length_failure()
        return chunks

    def _read_part(self, data: bytes) -> None:
        self._clocks.note_bytes()
        if self._form is _Form.STREAM:
            self._read_events(self._reader.feed(data))
            return
        self._body += data
        if len(self._body) > BODY_LIMIT:
            raise EventTooLargeError
        if self._form is _Form.UNDECIDED and (begin := self._body.removeprefix(BOM_UTF8).lstrip()[:1]):
            if begin in b"{[<":
                self._form = _Form.WHOLE
            else:
                self._form = _Form.STREAM
                data, self._body = bytes(self._body), bytearray()
                self._read_events(self._reader.feed(data))

    def _read_end(self) -> None:
        if self._form is _Form.WHOLE:
            self._read_whole(bytes(self._body))
        else:
            # An undecided body is white space alone, and as good as an empty stream.
            self._read_events(self._reader.close())

    def _read_events(self, events: list[ServerEvent]) -> None:
        for event in events:
            if self._is_over():
                return
            self._read_event(event)

    def _read_event(self, event: ServerEvent) -> None:
        data = event.data.strip()
        if data == DONE:
            self._done = True
            return
        if not data:
            return
        self._saw_data = True
        if event.name == "error":
            self.failure = stream_failure(error_of_body(data), endpoint=self._endpoint)
            return
        chunk = as_object(parse(data))
        # Beside `choices`, other fields that some servers use for errors (`detail`) may mean anything.
        may_be_error = "choices" not in chunk or bool(chunk.get("error"))
        if may_be_error and (error := error_of_object(chunk)) is not None:
            self.failure = stream_failure(error, endpoint=self._endpoint)
            return
        if self.assembler.add(chunk):
            self._clocks.note_data()

    def _read_whole(self, body: bytes) -> None:
        text = body[:_SHOWN_BYTES].decode("utf-8-sig", "replace")
        if looks_like_html(text) or text.lstrip().startswith("<"):
            title = plain_line(text)
            self.failure = self._broken_failure(
                f"{self._endpoint.host} sent a web page, not an API reply{f' ({title})' if title else ''}.",
                advice="Check api_url in the registry: it usually ends in /v1 (Open WebUI: /api).",
            )
            return
        value = as_object(parse(body.removeprefix(BOM_UTF8)))
        if value.get("choices"):
            self.assembler.add_whole(value)  # It has a finish reason then, "stop" if the server gave none.
            self._done = True
            return
        error = error_of_object(value)
        if error is not None:
            self.failure = stream_failure(error, endpoint=self._endpoint)
        else:
            self.failure = self._broken_failure(
                f"{self._endpoint.host} sent JSON that is not a reply: {plain_line(text)}",
                advice="Check api_url in the registry: this is not a chat completions endpoint.",
            )

    def _failure_at_end(self) -> AttemptFailure | None:
        """Return why a body that came without errors holds no complete reply; None if it holds one."""
        reply = self.assembler
        if not reply.finish_reason:
            return self._unfinished_failure()
        if reply.text or reply.has_calls:
            return None
        if reply.finish_reason == "content_filter":
            message, advice = "The provider's filter stopped the reply.", "Rephrase the message."
            return failed_attempt(FailureKind.REFUSED, message, advice)
        if reply.finish_reason == "length":
            message = f"{self._endpoint.model} used all its tokens without an answer."
            advice = "Allow it more with max_output_tokens in the registry, or start a new session."
            return failed_attempt(FailureKind.OUT_OF_TOKENS, message, advice)
        # An empty reply is a reply: the turn decides what to do about it.
        return None

    def _unfinished_failure(self) -> AttemptFailure:
        if not self._saw_data:
            return self._broken_failure(
                f"{self._endpoint.host} did not send a reply.",
                advice="Check api_url in the registry: this is not a chat completions endpoint.",
            )
        if self.assembler.has_calls:
            return self._broken_failure(
                f"The reply of {self._endpoint.host} ended without a finish mark, inside a tool call; "
                "the call was not run."
            )
        return self._broken_failure(f"The reply of {self._endpoint.host} ended without a finish mark.")

    def _broken_failure(self, message: str, *, advice: str = AGAIN) -> AttemptFailure:
        return failed_attempt(FailureKind.BROKEN_STREAM, message, advice)

    def _repetition_failure(self, repetition: Repetition) -> AttemptFailure:
        return failed_attempt(
            FailureKind.OUT_OF_TOKENS,
            f"{self._endpoint.model} wrote {repetition.shown!r} over and over, {repetition.length:,} characters of it; "
            "the reply was stopped.",
            "Rephrase the message, or choose another model.",
        )

    def _length_failure(self) -> AttemptFailure:
        return failed_attempt(
            FailureKind.OUT_OF_TOKENS,
            f"{self._endpoint.model} wrote more than {self._max_pieces:,} tokens in one reply; it was stopped.",
            "Ask for less at once; max_output_tokens in the registry allows more.",
        )


async def _drain(feed: ByteFeed) -> None:
    """Wait for the end of the body, so that the connection can be reused; its content is ignored."""
    deadline = loop_time() + DRAIN_S
    try:
        while (left := deadline - loop_time()) > 0:
            if await feed.take(left) is FeedState.END:
                return
    except Exception:
        return  # The reply is complete, so it does not matter how the connection ends.
