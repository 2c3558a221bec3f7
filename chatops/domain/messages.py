"""The messages of a session, and their tokens and cost.

The class of a message is the kind of speaker; *role* means an access role such as coder here. `None` instead of a Usage
means that the server did not report it, never zero.
"""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, MessageId
from chatops.domain.tools import CallEnd, ToolCall, Verdict
from chatops.domain.usage import Usage as Usage
from chatops.domain.usage import total as total


class Speaker(StrEnum):
    """Author of a message that a model gets as a user message."""

    USER = "person"
    MACHINE = "machine"
    """chatops: in a workflow run the message that opens an attempt, and the feedback on an answer that is not
    accepted; in a child turn the task, which another role wrote."""
    COMMAND = "command"
    """The user, who ran a command: the text is the command with its sign, and its call follows."""


@frozen_dataclass
class AttachedFile:
    """A file with its content when the message was sent, or the listing of a folder."""

    ref: FileRef
    text: str
    """Empty for a file whose bytes are kept beside the session."""


@frozen_dataclass
class UserMessage:
    """A message that a model gets as a user message."""

    id: MessageId
    text: str
    files: tuple[AttachedFile, ...] = ()
    by: Speaker = Speaker.USER
    wants_json: bool = False
    """True for the feedback to an answer that held no JSON."""
    private: bool = False
    """True if no model gets this message and what follows it in its turn."""
    reads_workspace: bool = False
    """True if the text may contain data of the workspace: a role that had read it wrote the task."""
    kind: Literal["user"] = "user"

    @property
    def content(self) -> str:
        """The text with the attached files, as a model reads it."""
        text = f"[chatops] The user ran this command: {self.text}" if self.by is Speaker.COMMAND else self.text
        return "\n\n".join([text, *(_attached_text(file) for file in self.files if not file.ref.problem)])


@frozen_dataclass
class AssistantMessage:
    """A reply of a model. `calls` keeps the arguments as the model wrote them."""

    id: MessageId
    text: str
    calls: tuple[ToolCall, ...] = ()
    reasoning: str = ""
    model: str = ""
    """Registry name of the model that replied."""
    role: str = ""
    """The role (coder, researcher …) under which the model was asked."""
    finish_reason: str = ""
    incomplete: bool = False
    """True if cut off: kept for the user, marked as such, and not sent again in its own turn."""
    usage: Usage | None = None
    kind: Literal["assistant"] = "assistant"


@frozen_dataclass
class ToolMessage(CallEnd):
    """The only result of a call, and how it came about."""

    id: MessageId
    call_id: CallId
    verdict: Verdict | None = None
    """Verdict of the policy; None if the call was settled before."""
    before: int = 0
    """Number of characters that chatops put before the result, for the model."""
    after: int = 0
    """Number of characters that it put after the result."""
    kind: Literal["tool"] = "tool"

    @property
    def result(self) -> str:
        """The text that the tool returned."""
        return self.content[self.before : len(self.content) - self.after]


@frozen_dataclass
class RoleSwitchMessage:
    """A divider in the transcript for a role switch. It is never sent to a model."""

    id: MessageId
    before: str
    """The role before the switch."""
    after: str
    model: str
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    suspended: int = 0
    """Number of remembered grants of the old role that no longer answer."""
    kind: Literal["role_switch"] = "role_switch"


@frozen_dataclass
class NoticeMessage:
    """A notice for the user that belongs in the transcript (a failure, a limit, an elision)."""

    id: MessageId
    text: str
    advice: str = ""
    level: Literal["info", "warning", "error"] = "info"
    for_model: bool = False
    """True if the next request tells the model too."""
    to_model: str = ""
    """Text for the model instead of `text`; empty: the same."""
    not_chosen: tuple[str, ...] = ()
    """As in `ResultFacts`, if it tells the result of such a call."""
    kind: Literal["notice"] = "notice"


@frozen_dataclass
class SummaryMessage:
    """A summary that a model gets instead of the messages before it. Without text, it gets all of them again."""

    id: MessageId
    text: str
    replaces: int
    """Number of messages before it that a user would count: their own and the model's."""
    model: str = ""
    """Registry name of the model that wrote it."""
    usage: Usage | None = None
    kind: Literal["summary"] = "summary"

    @property
    def notice(self) -> str:
        """The effect of the summary, as a sentence for the transcript."""
        if not self.text:
            return "The model gets all messages above again."
        return "The model gets the summary instead of everything above. /compact undo takes it back."


Message = UserMessage | AssistantMessage | ToolMessage | RoleSwitchMessage | NoticeMessage | SummaryMessage


def count_for_user(messages: Iterable[Message]) -> int:
    """Return the number of messages that a user would count: their own, and the model's replies with text."""
    return sum(
        isinstance(message, UserMessage) or (isinstance(message, AssistantMessage) and bool(message.text.strip()))
        for message in messages
    )


def _attached_text(file: AttachedFile) -> str:
    """Return a file for the model. Its content cannot hold the last line, which quotes 12 digits of its own digest."""
    ref = file.ref
    if ref.type:
        return f"[Attached by the user: {ref}]"
    title = f"{ref.path} [{ref.digest[:12] or 'folder'}]"
    cut = f", first {len(file.text.encode()):,} of {ref.size:,} bytes" if ref.cut else ""
    return f"--- Attached by the user: {title}{cut} ---\n{file.text.rstrip(chr(10))}\n--- End of {title} ---"
