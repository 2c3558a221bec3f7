"""Search through the blocks of a transcript."""

import re
from bisect import bisect_right
from collections.abc import Iterable

from rich.style import Style
from textual.strip import Strip

from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import Block
from chatops.tui.transcript.lines import marked
from chatops.tui.transcript.texts import searched_text

_CURRENT = Style(reverse=True, bold=True)


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
