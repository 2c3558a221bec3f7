"""Messages for a model request: all of them, as far as they fit.

Over the budget the oldest tool results are replaced by a marker. User messages are never replaced, and the stored
messages stay as they are. The decision is replayed over the whole history: a result is left out at the first request
that had no room for it, and stays out. So each request extends the one before it, which prompt caches of providers
need, and nothing about it has to be stored. Another model, prompt or set of tools replays to another result.

Requests of a session begin alike, so the last replay is kept and continued: the cost of a round does not grow with the
history.

A summary that the user has taken stands for everything before it, as the first two messages. A later summary without
text takes it back.

A result that the model has not seen yet is shortened rather than left out, and only if nothing else can give way. Sizes
are estimates: four characters per token.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import assert_never

from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId, turn_of
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    Speaker,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ModelTarget
from chatops.domain.tools import ToolSpec

CHARACTERS_PER_TOKEN = 4
SHARE_OF_WINDOW = 0.75
"""Share of the context window that the input may fill by our estimate, which is coarse."""
SHARE_AFTER_ELIDING = 0.8
"""Share of the budget to go below when eliding, so that the next rounds keep the same prefix (provider caches)."""
LARGEST_REPLY = 0.5
"""Maximum share of the context window reserved for the reply: a default limit may be larger than the window."""
_SUMMARY = "[chatops] The session so far was replaced by this summary:"
_SUMMARY_REPLY = "I continue from this summary."
_TOOL_TOKENS, _MESSAGE_TOKENS, _CALL_CHARS = 12, 4, 40
"""Estimates of what servers put around each tool and message (tokens) and around each call (characters)."""
TOKENS_OF_AN_IMAGE = 1_500
"""Estimate: servers scale images down to about this size."""
SMALL_RESULT_CHARS = 400
"""Tool results of at most this many characters are not left out."""


@frozen_dataclass
class Fitted:
    """The messages to send, what was left out, and the estimated size in tokens."""

    messages: tuple[Message, ...]
    tokens: int
    tokens_before: int = 0
    """Size of the previous request under the same model, prompt and tools; 0: there was none."""
    elided: int = 0
    """Number of tool results left out or shortened."""
    given_up: tuple[ToolMessage, ...] = ()
    """The results that are left out or shortened for the first time in this request, as they are stored."""


def tokens(text_length: int) -> int:
    """Return the estimated number of tokens for this many characters."""
    return -(-text_length // CHARACTERS_PER_TOKEN)


def tools_tokens(tools: Sequence[ToolSpec]) -> int:
    """Return the estimated tokens of the tools' descriptions."""
    return sum(tokens(len(tool.schema) + len(tool.description)) + _TOOL_TOKENS for tool in tools)


def input_budget(model: ModelTarget) -> int:
    """Return the token budget of the input: the window minus the reply, and at most its safe share."""
    reply = min(model.max_output_tokens, int(model.effective_window * LARGEST_REPLY))
    return max(1_000, min(int(model.effective_window * SHARE_OF_WINDOW), model.effective_window - reply))


def start_at_summary(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `messages` with the summary in force, if any, in place of the messages before it."""
    if not _has_kind(SummaryMessage, messages):
        return messages
    at, last = [(at, message) for at, message in enumerate(messages) if isinstance(message, SummaryMessage)][-1]
    if not last.text:
        return messages
    text = UserMessage(id=last.id, text=f"{_SUMMARY}\n\n{last.text}")
    reply = AssistantMessage(id=MessageId(f"{last.id}.taken"), text=_SUMMARY_REPLY)
    return (text, reply, *messages[at + 1 :])


def _has_kind(kind: type[Message], messages: tuple[Message, ...]) -> bool:
    """Return True if one of `messages` is of this kind, a summary or a notice. Fast: there may be ten thousand."""
    return not _all_plain(messages) and kind in set(map(type, messages))


def _all_plain(messages: tuple[Message, ...]) -> bool:
    """Return True if no message is a summary, a notice or private. The plain ones of the last call are known."""
    known = _plain[0]
    unknown = messages[len(known) :] if messages[: len(known)] == known else messages
    for message in unknown:
        private = isinstance(message, UserMessage) and message.private
        if private or isinstance(message, SummaryMessage | NoticeMessage):
            return False
    _plain[0] = messages
    return True


_plain: list[tuple[Message, ...]] = [()]
"""The messages that `_all_plain` has found plain last."""


def without_private(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `messages` without the private commands of the user, their calls and results."""
    if _all_plain(messages):
        return messages
    private = {turn_of(message.id) for message in messages if type(message) is UserMessage and message.private}
    return tuple(message for message in messages if turn_of(message.id) not in private) if private else messages


def place_notes(messages: tuple[Message, ...]) -> tuple[Message, ...]:
    """Return `messages` with the notes for the model put before the next user message, or after the last message."""
    if not _has_kind(NoticeMessage, messages):
        return messages
    sent: list[Message] = []
    notes: list[NoticeMessage] = []
    for message in messages:
        if isinstance(message, NoticeMessage) and message.for_model:
            notes.append(message)
        elif isinstance(message, UserMessage) and notes:
            sent.append(replace(message, text=f"{_notes_text(notes)}\n\n{message.text}"))
            notes = []
        else:
            sent.append(message)
    if notes:
        sent.append(UserMessage(id=notes[-1].id, text=_notes_text(notes), by=Speaker.MACHINE))
    return tuple(sent)


def _notes_text(notes: Sequence[NoticeMessage]) -> str:
    return "\n\n".join(f"[chatops] {note.to_model or note.text}" for note in notes)


def fit_messages(messages: Sequence[Message], *, system: str, tools: Sequence[ToolSpec], model: ModelTarget) -> Fitted:
    """Return the messages to send for `messages`, with the oldest tool results left out as far as needed."""
    fixed = tokens(len(system)) + tools_tokens(tools)
    messages, limit = without_private(start_at_summary(tuple(messages))), input_budget(model)
    replay = _Replay(fixed, limit=limit, sees_images=model.sees_images)
    if (last := _last[0]) is not None and last.is_continued_by(replay, messages):
        replay = last.copy()
    for message in messages[len(replay.messages) :]:
        if isinstance(message, RoleSwitchMessage | NoticeMessage | SummaryMessage):
            continue
        if isinstance(message, AssistantMessage):
            replay.make_room()
            replay.before = replay.total
        replay.add(message)
    replay.messages = messages
    _last[0] = replay
    now = replay.copy()
    now.make_room()
    return Fitted(
        messages=tuple(now.kept),
        tokens=now.total,
        tokens_before=now.before,
        elided=len(now.elided),
        given_up=tuple(original for place, original in now.elided.items() if place not in replay.elided),
    )


class _Replay:
    """Replays the requests of a session in order, and what each had to leave out."""

    def __init__(self, fixed: int, *, limit: int, sees_images: bool) -> None:
        self.messages: tuple[Message, ...] = ()
        """The messages replayed so far. The next request for the last of them is still to come."""
        self.kept: list[Message] = []
        self.total = fixed
        self.before = 0
        """The total of the last request."""
        self.elided: dict[int, ToolMessage] = {}
        """The original messages that were left out or shortened, by index."""
        self._fixed = fixed
        self._limit = limit
        self._sees_images = sees_images
        self._seen: list[int] = []
        """Indexes of results that the model has replied to and that may be left out, oldest first."""
        self._unseen: list[int] = []

    def is_continued_by(self, other: "_Replay", messages: tuple[Message, ...]) -> bool:
        """Return True if `other`, which is empty, leads to this replay on the way to `messages`."""
        return self._made_for == other._made_for and messages[: len(self.messages)] == self.messages

    @property
    def _made_for(self) -> tuple[int, int, bool]:
        return self._fixed, self._limit, self._sees_images

    def copy(self) -> "_Replay":
        copied = _Replay(self._fixed, limit=self._limit, sees_images=self._sees_images)
        copied.messages, copied.kept, copied.elided = self.messages, [*self.kept], self.elided
        copied.total, copied.before = self.total, self.before
        copied._seen, copied._unseen = [*self._seen], [*self._unseen]
        return copied

    def add(self, message: Message) -> None:
        if isinstance(message, AssistantMessage):
            self._seen += self._unseen
            self._unseen = []
        elif isinstance(message, ToolMessage) and (len(message.content) > SMALL_RESULT_CHARS or message.facts.files):
            self._unseen.append(len(self.kept))
        self.kept.append(message)
        self.total += self._size(message)

    def _size(self, message: Message) -> int:
        return size(message, sees_images=self._sees_images)

    def make_room(self) -> None:
        """Leave out or shorten results until a request fits, as far as that goes."""
        if self.total <= self._limit:
            return
        self.elided = dict(self.elided)  # Copies share it.
        while self._seen and self.total > self._limit * SHARE_AFTER_ELIDING:
            self._replace(self._seen.pop(0), _leave_out)
        # Largest first: one small result that stays complete is worth more than two halves.
        for place in sorted(self._unseen, key=lambda place: self._size(self.kept[place]), reverse=True):
            if (excess := self.total - self._limit) <= 0:
                return
            self._replace(place, partial(_shorten, by=excess))

    def _replace(self, place: int, make: Callable[[ToolMessage], ToolMessage]) -> None:
        message = self.kept[place]
        if not isinstance(message, ToolMessage):
            return
        original = self.elided.get(place, message)
        marker = make(original)
        if self._size(marker) >= self._size(message):
            return
        self.elided[place] = original
        self.total += self._size(marker) - self._size(message)
        self.kept[place] = marker


_last: list[_Replay | None] = [None]
"""The last replay, as a cache."""


def size(message: Message, *, sees_images: bool = True) -> int:
    """Return the estimated tokens of one message for a model that sees images, or to which they are only named."""
    image = TOKENS_OF_AN_IMAGE if sees_images else 0
    match message:
        case AssistantMessage():
            written = sum(len(call.name) + len(call.arguments) + _CALL_CHARS for call in message.calls)
            return tokens(len(message.text) + written) + _MESSAGE_TOKENS
        case ToolMessage():
            return tokens(len(message.content)) + image * _count_images(message.facts.files) + _MESSAGE_TOKENS
        case RoleSwitchMessage() | NoticeMessage() | SummaryMessage():
            return 0
        case UserMessage():
            images = _count_images([file.ref for file in message.files])
            return tokens(len(message.content)) + image * images + _MESSAGE_TOKENS
        case _:
            assert_never(message)


def _count_images(files: Iterable[FileRef]) -> int:
    return sum(file.is_image for file in files)


def _leave_out(message: ToolMessage) -> ToolMessage:
    text = (
        f"[result of {message.tool} left out to save room: {len(message.content)} characters; call it again if needed]"
    )
    return replace(message, content=text, facts=replace(message.facts, files=()))


def _shorten(message: ToolMessage, *, by: int) -> ToolMessage:
    """Return `message` cut to its beginning, `by` tokens smaller if it is large enough."""
    whole = len(message.content)
    note = f"\n[result of {message.tool} cut here to save room: {whole} characters in all; ask for less at once]"
    kept = max(SMALL_RESULT_CHARS, whole - by * CHARACTERS_PER_TOKEN - len(note))
    return replace(message, content=message.content[:kept] + note)
