"""Assemble a reply from the chunks of a stream, or from one complete body, in all shapes that servers use.

A reply that repeats one short text over and over is detected here too. Models fall into such loops, and some servers
never end them. The limit is fifty thousand characters of one repeated unit, written token by token. A shorter
repetition, one with any change, and text that comes in large pieces are not stopped.
"""

from itertools import groupby
from typing import assert_never

from chatops.dialects import ContentSegment, ReasoningSegment, ReclassifiedSegment, Segment
from chatops.domain.messages import Usage
from chatops.domain.model import ModelReply
from chatops.domain.tools import RawCall
from chatops.models.base import CallChunk, ReasoningChunk, TextChunk
from chatops.models.calls import CallCollector
from chatops.models.server_json import JsonObject, as_object, as_text, call_deltas, first_choice, text_parts, usage_of
from chatops.models.text_calls import NO_TEXT_TOOLS, TextReader, TextTools
from chatops.models.wire import IN_CONTENT, scrub

LONGEST_UNIT = 50
"""Maximum length of the repeated unit in characters, so that it has come at least a thousand times."""
MAX_REPEATED = 50_000
"""Maximum number of characters that may be only repetition."""
LONGEST_CHUNK = 256
"""Maximum number of characters that come at once while a model writes; a larger piece was ready on the server."""
_SEARCH_EVERY = 1_000
"""Characters from one search for a repeated unit to the next: each takes some 50 comparisons."""
_SEARCHED = 4 * LONGEST_UNIT
"""Characters at the end of the text in which a unit is looked for: it has to come at least four times in them."""
SIZE_LIMIT = 7_000_000
"""Maximum length of one reply in characters; beyond it a server is broken or hostile. In the JSON that is stored a
character may take two, and `store.messages.LARGEST` is about 16 million."""
KEPT_OF_REPETITION = 200
"""Number of characters to keep of an endless repetition."""


class SurrogateJoiner:
    """Buffer for the first half of a surrogate pair until the second half has come."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return `text` without an unfinished pair at its end; an unpaired surrogate becomes U+FFFD."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return scrub(text)

    def close(self) -> str:
        """Return the text that was held back, with an unpaired surrogate as U+FFFD."""
        half, self._half = self._half, ""
        return scrub(half)


class Repetition:
    """The repetition at the end of one growing text."""

    def __init__(self) -> None:
        self._tail = ""
        """The end of the text, as much of it as the next check needs."""
        self._unread = 0
        """Number of characters since the end was last checked for a unit."""
        self.unit = ""
        """The repeated unit, as it is at the end of the text; empty if nothing is repeated."""
        self.length = 0
        """Number of characters at the end of the text that repeat `unit`."""

    @property
    def is_endless(self) -> bool:
        """True if the repetition has reached `MAX_REPEATED`."""
        return self.length >= MAX_REPEATED

    @property
    def shown(self) -> str:
        """The unit for messages, from the beginning of a word."""
        space = self.unit.find(" ") + 1
        return (self.unit[space:] + self.unit[:space]).strip(" ") or self.unit

    def feed(self, text: str) -> None:
        """Add the next piece of the text, in the size in which it came."""
        if len(text) > LONGEST_CHUNK:
            self.unit, self.length, self._tail, self._unread = "", 0, "", 0
            return
        if self.unit and self._continue_with(text):
            self.length += len(text)
            return
        self.unit, self.length = "", 0
        self._unread += len(text)
        self._tail = (self._tail + text)[-_SEARCHED:]
        if self._unread >= _SEARCH_EVERY:
            self._unread = 0
            self._find_unit()

    def cut_out_of(self, text: str, *, keep: int) -> str:
        """Return `text` with at most `keep` characters of repetition at its end."""
        size, start = len(self.unit), len(text)
        while size and start > size and text[start - 1] == text[start - 1 - size]:
            start -= 1
        return text[: start + keep]

    def _continue_with(self, text: str) -> bool:
        """Rotate `unit` to the new end of the text, and return True, if `text` continues the repetition."""
        size = len(self.unit)
        times = len(text) // size + 2
        if not (self.unit * times).startswith(text):
            return False
        begun = len(text) % size
        self.unit = self.unit[begun:] + self.unit[:begun]
        return True

    def _find_unit(self) -> None:
        tail = self._tail
        for size in range(1, LONGEST_UNIT + 1):
            # Equal to itself when moved by `size` characters: it repeats a unit of that length.
            if tail[size:] == tail[:-size]:
                self.unit, self.length = tail[-size:], len(tail)
                return


class _Written:
    """All of one kind that the model has written: its text, or its reasoning."""

    def __init__(self) -> None:
        self._parts: list[str] = []
        self.joiner = SurrogateJoiner()
        self.repetition = Repetition()
        """Of the text as it comes, before calls are read out of it."""

    @property
    def whole(self) -> str:
        """The parts, joined."""
        return "".join(self._parts)

    def add(self, text: str) -> None:
        """Add the next part."""
        self._parts.append(text)

    def replace(self, text: str) -> None:
        """Put `text` in the place of all parts."""
        self._parts = [text]

    def take_back(self, count: int) -> None:
        """Remove the last `count` characters."""
        while count > 0 and self._parts:
            last = self._parts.pop()
            if len(last) > count:
                self._parts.append(last[:-count])
            count -= len(last)


class ReplyTooLargeError(Exception):
    """The reply is larger than any valid reply."""


class Assembler:
    """Builder of one reply. Calls count if they are present, whatever the finish reason says.

    Native calls win. Without any, the calls in the text count, as far as `text_tools` allows.
    """

    def __init__(self, text_tools: TextTools = NO_TEXT_TOOLS) -> None:
        self._text, self._reasoning = _Written(), _Written()
        self._reader = TextReader(text_tools)
        self._text_calls: tuple[RawCall, ...] = ()
        self._unread: list[str] = []
        """Text that the reader of calls has not received yet."""
        self._new: list[TextChunk | ReasoningChunk] = []
        """Chunks that were not taken yet."""
        self._calls = CallCollector()
        self._refused = False
        self._size = self._size_taken = 0
        """Characters of the reply so far, and when chunks were last taken."""
        self.pieces = 0
        """Number of pieces that came. Servers send at least one token in each, so there were no fewer tokens."""
        self.finish_reason = ""
        self.model_id = ""
        self.usage: Usage | None = None
        self.started = False
        """True once a token of any kind has come."""
        self.reasoning_field = ""
        """The field that reasoning came in, see `ReasoningReplay`; empty if none came."""
        self.text_format = ""
        """The format of the calls that were read from the text; empty if there are none."""

    @property
    def text(self) -> str:
        """The answer so far."""
        return self._text.whole

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return self._reasoning.whole

    @property
    def has_calls(self) -> bool:
        """True once a call has begun; for calls in the text, only after `close`."""
        return len(self._calls) > 0 or bool(self._text_calls)

    def cut_repetition(self) -> Repetition | None:
        """Cut an endless repetition to its beginning and return it; return None if there is none."""
        for written in (self._text, self._reasoning):
            if written.repetition.is_endless:
                written.replace(written.repetition.cut_out_of(written.whole, keep=KEPT_OF_REPETITION))
                return written.repetition
        return None

    def add(self, chunk: JsonObject) -> bool:
        """Add one chunk of a stream. Return False if it brought nothing new.

        Raises ReplyTooLargeError and TooManyCallsError.
        """
        before = (self._size, self.finish_reason)
        self._note_metadata(chunk)
        choice = first_choice(chunk)
        # Some servers name the field in a stream as in a whole reply, or the other way round.
        self._add_message(choice, as_object(choice.get("delta")) or as_object(choice.get("message")), whole=False)
        return before != (self._size, self.finish_reason)

    def add_whole(self, body: JsonObject) -> None:
        """Add a complete reply.

        Raises ReplyTooLargeError and TooManyCallsError.
        """
        self._note_metadata(body)
        choice = first_choice(body)
        self._add_message(choice, as_object(choice.get("message")) or as_object(choice.get("delta")), whole=True)
        # A complete body is a complete reply, even without a finish reason.
        self.finish_reason = self.finish_reason or "stop"

    def take(self) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the chunks that are certain and new, with adjacent chunks of one kind joined.

        If the reply has grown without any, it is a call that grows, native or in the text. The text is read here, once
        per network read, and not once per token.
        """
        self._read_text()
        new, self._new = self._new, []
        grown, self._size_taken = self._size - self._size_taken, self._size
        if new or not grown:
            return _merge_adjacent(new)
        return [CallChunk(characters=grown, tool=self._calls.last_name, path=self._calls.last_path)]

    def close(self) -> list[TextChunk | ReasoningChunk | CallChunk]:
        """Return the chunks that were held back while their meaning was open."""
        self._unread.append(self._text.joiner.close())
        self._read_text()
        end = self._reader.close(finish_reason=self.finish_reason, called_natively=len(self._calls) > 0)
        self._pass_on(end.segments)
        if end.prose is not None:
            # Passed on is what is missing on the screen. The reply has the whole prose, even if it differs from that.
            shown = self.text
            self._add_text(end.prose[len(shown) :] if end.prose.startswith(shown) else "")
            self._text.replace(end.prose)
        self._text_calls, self.text_format = end.calls, end.format
        self._add_reasoning(self._reasoning.joiner.close())
        return self.take()

    def reply(self) -> ModelReply:
        """Return the reply. Call it once, after `close`."""
        finish = "refusal" if self._refused and self.finish_reason in {"", "stop"} else self.finish_reason
        return ModelReply(
            text=self.text,
            reasoning=self.reasoning,
            calls=self._calls.finish(finish_reason=finish) or self._text_calls,
            finish_reason=finish,
            usage=self.usage,
            model_id=self.model_id,
        )

    def _note_metadata(self, chunk: JsonObject) -> None:
        self.usage = usage_of(chunk) or self.usage
        self.model_id = self.model_id or as_text(chunk.get("model"))

    def _add_message(self, choice: JsonObject, message: JsonObject, *, whole: bool) -> None:
        """Add the `message` of a choice: all of it, or if not `whole` the next part of it."""
        for kind, text, field in text_parts(message):
            self._count(len(text))
            (self._reasoning if kind == "reasoning" else self._text).repetition.feed(text)
            if kind == "text":
                self._unread.append(self._text.joiner.feed(text))
                continue
            # What comes now stands after the text so far.
            self._read_text()
            if kind == "reasoning":
                self.reasoning_field = field
                self._add_reasoning(self._reasoning.joiner.feed(text))
            else:
                self._refused = True
                self._add_text(scrub(text))
        for delta in call_deltas(message):
            # One more, so that a delta with nothing in it is a piece too.
            self._count(len(delta.arguments) + len(delta.name) + len(delta.id) + len(delta.extra_content) + 1)
            self._calls.add(delta, whole=whole)
            self.started = True
        self.finish_reason = as_text(choice.get("finish_reason")) or self.finish_reason

    def _read_text(self) -> None:
        if self._unread:
            text, self._unread = "".join(self._unread), []
            self._pass_on(self._reader.feed(text))

    def _pass_on(self, read: list[Segment]) -> None:
        """Add what the reader has made of the text: prose, or reasoning that the model wrote as text."""
        for segment in read:
            match segment:
                case ContentSegment(text=text):
                    self._add_text(text)
                case ReasoningSegment(text=text):
                    self.reasoning_field = IN_CONTENT
                    self._add_reasoning(text)
                case ReclassifiedSegment(text=text, removed=removed):
                    # Text that was passed on as prose is reasoning after all. The screen is corrected at the end.
                    self._text.take_back(removed)
                    self.reasoning_field = IN_CONTENT
                    self._add_reasoning(text)
                case _:
                    assert_never(segment)

    def _add_text(self, text: str) -> None:
        if text:
            self._text.add(text)
            self._new.append(TextChunk(text=text))

    def _add_reasoning(self, text: str) -> None:
        if text:
            self._reasoning.add(text)
            self._new.append(ReasoningChunk(text=text))

    def _count(self, size: int) -> None:
        """Count a piece of the reply of `size` characters."""
        self._size += size
        self.pieces += size > 0
        self.started = self.started or size > 0
        if self._size > SIZE_LIMIT:
            raise ReplyTooLargeError


def _merge_adjacent(chunks: list[TextChunk | ReasoningChunk]) -> list[TextChunk | ReasoningChunk | CallChunk]:
    """Return `chunks` with adjacent ones of one kind joined."""
    return [kind(text="".join(chunk.text for chunk in group)) for kind, group in groupby(chunks, key=type)]
