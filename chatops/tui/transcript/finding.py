"""The text of a block, and the search for a text in it."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from typing import assert_never

from rich.style import Style
from textual.strip import Strip

from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import NO_CAPABILITIES, Capabilities
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import (
    AnswerBlock,
    Block,
    NoticeBlock,
    ReasoningBlock,
    StepBlock,
    ToolCardBlock,
    UserBlock,
)
from chatops.tui.transcript.card import parsed_arguments
from chatops.tui.transcript.lines import marked

_CURRENT = Style(reverse=True, bold=True)


def copied_text(block: Block, known: Capabilities = NO_CAPABILITIES) -> str:
    """Return what is copied of a block: a message as written; of a tool call its command and output, or its change.

    `known` are the capabilities of the tool.
    """
    match block:
        case UserBlock() | AnswerBlock() | ReasoningBlock():
            return block.text
        case ToolCardBlock():
            return _call_text(block, known)
        case RoleSwitchMessage():
            tools = {"+": block.added, "-": block.removed}
            named = [f"{sign} {', '.join(names)}" for sign, names in tools.items() if names]
            return "\n".join([f"{block.before} -> {block.after}", *named])
        case NoticeBlock():
            return "\n".join(part for part in (block.text, block.advice) if part)
        case StepBlock():
            return block.text or block.title
        case _ as never:
            assert_never(never)


def noun_of(block: Block) -> str:
    """Return what a block is, as the word that names it: "the answer"."""
    match block:
        case UserBlock():
            return "the message"
        case AnswerBlock():
            return "the answer"
        case ReasoningBlock():
            return "the model's reasoning"
        case ToolCardBlock():
            return "the call with its result"
        case RoleSwitchMessage():
            return "the change of role"
        case NoticeBlock():
            return "the notice"
        case StepBlock():
            return "the step"
        case _ as never:
            assert_never(never)


def searched_text(block: Block) -> str:
    """Return everything of a block that can be read on the screen once it is open."""
    if isinstance(block, RoleSwitchMessage):
        return " ".join([block.before, block.after, block.model, *block.added, *block.removed])
    if not isinstance(block, ToolCardBlock):
        return copied_text(block)
    values, end = _strings(block.arguments) or [block.arguments], block.end
    return "\n".join(
        [block.tool, *values, end.ended_because, end.error_line, end.likely_cause, block.diff, block.output]
    )


def _call_text(card: ToolCardBlock, known: Capabilities) -> str:
    if card.diff:
        return card.diff
    values = _strings(card.arguments)
    about = "\n".join(values) if values else card.arguments
    if known.command or not card.output:
        return f"{about}\n{card.output}".rstrip("\n")
    return card.output.rstrip("\n")


def _strings(arguments: str) -> list[str]:
    """Return the texts among the arguments of a call; none if they cannot be read."""
    return [value for value in (parsed_arguments(arguments) or {}).values() if isinstance(value, str)]


class TextSearch:
    """The places of a text in blocks, whatever the case. Blocks are added in the order of the transcript."""

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self._pattern = re.compile(re.escape(wanted), re.IGNORECASE)
        self._ids: list[str] = []
        self._starts = [0]
        """The number of the first place in each block that has one, then the number of all places."""
        self._places: list[int] = []
        """The place of each of these blocks in the transcript."""

    def __len__(self) -> int:
        """Return the number of places."""
        return self._starts[-1]

    def add(self, block: Block, *, at: int) -> bool:
        """Search the block that is the `at`-th of the transcript. Return True if it has the text."""
        count = sum(1 for _ in self._pattern.finditer(searched_text(block)))
        if count:
            self._ids.append(block.id)
            self._places.append(at)
            self._starts.append(self._starts[-1] + count)
        return count > 0

    def place(self, number: int) -> tuple[str, int]:
        """Return block and number within the block of the place `number`, which is counted from 0."""
        at = bisect_right(self._starts, number) - 1
        return self._ids[at], number - self._starts[at]

    def count_in(self, block_id: str) -> int:
        """Return the number of places in a block."""
        at = self._ids.index(block_id)
        return self._starts[at + 1] - self._starts[at]

    def last_up_to(self, index: int) -> int:
        """Return the last place in the blocks up to the `index`-th of the transcript, else the first place."""
        return max(0, self._starts[bisect_right(self._places, index)] - 1)

    def first_in(self, index: int) -> int:
        """Return the first place at or after the `index`-th block of the transcript, else the last place."""
        return min(self._starts[bisect_right(self._places, index - 1)], max(0, len(self) - 1))

    def spans(self, text: str) -> Iterable[tuple[int, int]]:
        """Return where a drawn line has the text."""
        return (found.span() for found in self._pattern.finditer(text))

    def drawn(self, strip: Strip, theme: BlockTheme, *, current: int | None) -> Strip:
        """Return a line with its places marked; `current` is the place in this line that is shown."""
        style = theme.warn + Style(underline=True)
        for number, span in enumerate(self.spans(strip.text)):
            strip = marked(strip, span, _CURRENT if number == current else style)
        return strip
