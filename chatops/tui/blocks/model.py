"""The blocks of a transcript as values, and the operations that change a list of them.

Blocks hold text as it came: whoever draws it sanitises it. Ids are unique within a transcript.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from chatops.domain.tools import Outcome


class CardStatus(StrEnum):
    """Where a tool call stands, as far as a person has to know."""

    UNSETTLED = "unsettled"
    """There is no result yet and nobody is asked: it is checked, queued or about to run."""
    WAITING = "waiting"
    """It waits for a person."""
    UNKNOWN_WAITING = "unknown_waiting"
    """It was started once, nothing tells whether it took effect, and a person has to say."""
    PERMITTED = "permitted"
    """It may run and waits for earlier calls of its round; `decided_by` says who or what allowed it."""
    RUNNING = "running"
    SETTLED = "settled"
    """It has its result, see `outcome`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserBlock:
    """What the person wrote."""

    id: str
    text: str
    kind: Literal["user"] = "user"


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerBlock:
    """What the model said; `open` while more may come."""

    id: str
    text: str
    open: bool = False
    incomplete: bool = False
    """It was cut off."""
    kind: Literal["answer"] = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningBlock:
    """What the model thought; one line until it is opened."""

    id: str
    text: str
    open: bool = False
    kind: Literal["reasoning"] = "reasoning"


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCardBlock:
    """A tool call and what came of it; one line until it is opened."""

    id: str
    tool: str
    arguments: str
    """As the model wrote them, or as they ran."""
    status: CardStatus = CardStatus.UNSETTLED
    outcome: Outcome | None = None
    output: str = ""
    """The result, or the last of what it has printed while it runs."""
    truncated: bool = False
    duration_ms: int = 0
    decided_by: str = ""
    why: str = ""
    """Why it waits for a person."""
    reason: str = ""
    """Why it did not run, or what ended it; empty if it ended by itself, or if nothing more is known."""
    also: str = ""
    """What else there is to say of its end: what was stopped behind it, or how it failed."""
    kind: Literal["tool"] = "tool"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleDividerBlock:
    """The line that a role switch leaves."""

    id: str
    before: str
    after: str
    model: str = ""
    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    suspended: int = 0
    kind: Literal["role"] = "role"


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeBlock:
    """Something the person has to know, with the next step."""

    id: str
    text: str
    advice: str = ""
    level: Literal["info", "warning", "error"] = "info"
    kind: Literal["notice"] = "notice"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBlock:
    """The line at which a turn of a workflow's run begins; what its model was told is shown when it is opened."""

    id: str
    title: str
    text: str = ""
    kind: Literal["step"] = "step"


Block = UserBlock | AnswerBlock | ReasoningBlock | ToolCardBlock | RoleDividerBlock | NoticeBlock | StepBlock


@dataclass(frozen=True, slots=True, kw_only=True)
class Append:
    """Put `block` at the end, or in front of the block `before`."""

    block: Block
    before: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replace:
    """Put `block` in the place of the one with its id."""

    block: Block


@dataclass(frozen=True, slots=True, kw_only=True)
class Extend:
    """Add `text` to an open answer or reasoning."""

    id: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """No more text will come."""

    id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Remove:
    """Take the block away."""

    id: str


Op = Append | Replace | Extend | Close | Remove
