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
"""The style of the place that the search has brought into view."""


def copied_text(block: Block, capabilities: Capabilities = NO_CAPABILITIES) -> str:
    """Return what is copied of a block: a message as written; of a tool call its command and output, or its change.

    `capabilities` are those of the tool.
    """
    match block:
        case UserBlock() | AnswerBlock() | ReasoningBlock():
            return block.text
        case ToolCardBlock():
            return _copied_call(block, capabilities)
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
    end, texts = block.end, _argument_texts(block.arguments)
    return "\n".join([block.tool, texts, end.ended_because, end.error_line, end.likely_cause, block.diff, block.output])


def _copied_call(card: ToolCardBlock, capabilities: Capabilities) -> str:
    if card.diff:
        return card.diff
    if capabilities.command or not card.output:
        return f"{_argument_texts(card.arguments)}\n{card.output}".rstrip("\n")
    return card.output.rstrip("\n")


def _argument_texts(arguments: str) -> str:
    """Return the texts among the arguments of a call, one below the other; all as written if there is none."""
    texts = [value for value in (parsed_arguments(arguments) or {}).values() if isinstance(value, str)]
    return "\n".join(texts or [arguments])


class TextSearch:
    """The places where blocks have a text, in any case. Places are counted from 0, in the order of the transcript.

    Blocks are added in that order. `_ids`, `_starts` and `_indexes` have an item for each block with the text.
    """

    def __init__(self, wanted: str) -> None:
        self.wanted = wanted
        self._pattern = re.compile(re.escape(wanted), re.IGNORECASE)
        self._ids: list[str] = []
        self._starts = [0]
        """The number of the first place in each of these blocks, then the number of all places."""
        self._indexes: list[int] = []
        """The index of each of these blocks in the transcript."""

    def __len__(self) -> int:
        """Return the number of places."""
        return self._starts[-1]

    def add(self, block: Block, *, index: int) -> bool:
        """Search the block that has this index in the transcript. Return True if it has the text."""
        count = sum(1 for _ in self._pattern.finditer(searched_text(block)))
        if count:
            self._ids.append(block.id)
            self._indexes.append(index)
            self._starts.append(self._starts[-1] + count)
        return count > 0

    def place(self, number: int) -> tuple[str, int]:
        """Return the block of a place, and the number of the place within the block."""
        nth = bisect_right(self._starts, number) - 1
        return self._ids[nth], number - self._starts[nth]

    def count_in(self, block_id: str) -> int:
        """Return the number of places in a block."""
        nth = self._ids.index(block_id)
        return self._starts[nth + 1] - self._starts[nth]

    def last_up_to(self, index: int) -> int:
        """Return the last place in the blocks of the transcript up to `index`, else the first place."""
        return max(0, self._starts[bisect_right(self._indexes, index)] - 1)

    def first_from(self, index: int) -> int:
        """Return the first place in the blocks of the transcript from `index` on, else the last place."""
        return min(self._starts[bisect_right(self._indexes, index - 1)], max(0, len(self) - 1))

    def spans(self, text: str) -> Iterable[tuple[int, int]]:
        """Return where a drawn line has the text."""
        return (match.span() for match in self._pattern.finditer(text))

    def drawn(self, strip: Strip, theme: BlockTheme, *, current: int | None) -> Strip:
        """Return a line with its places marked. `current` is the number of the shown one within it; None: none is."""
        other = theme.warn + Style(underline=True)
        for number, span in enumerate(self.spans(strip.text)):
            strip = marked(strip, span, _CURRENT if number == current else other)
        return strip
