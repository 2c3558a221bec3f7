"""The cards of calls in which something happens, with a moving sign each, and the notes that say how far calls are."""

from collections.abc import Iterable

from rich.text import Text

from chatops.domain.events import CallProgressed, Published, ToolFinished
from chatops.domain.progress import Progress
from chatops.tui.transcript.blocks import Block, CardStatus, ToolCardBlock
from chatops.tui.transcript.layout import BlockLayout
from chatops.tui.transcript.lines import GUTTER
from chatops.tui.transcript.sign import progress_text


class RunningCalls:
    """The calls of a layout that run or say how far they are. It sets the notes of entries, and draws nothing."""

    def __init__(self, layout: BlockLayout) -> None:
        self._layout = layout
        self.cards: set[str] = set()
        """The ids of the cards whose calls run, all of them in the layout."""
        self._unsettled: set[str] = set()
        """The ids of the cards whose calls are checked and prepared, if a turn works. That may take long too."""
        self._progress: dict[str, Progress] = {}
        """Progress of calls, by the ids of cards. A call that was given up may still work, and is not in `cards`."""

    def clear(self) -> None:
        """Forget all calls, because the layout gets other blocks."""
        for known in (self.cards, self._unsettled, self._progress):
            known.clear()

    def put(self, block: Block) -> None:
        """Take note of a block that has come into the layout, or was replaced there."""
        status = block.status if isinstance(block, ToolCardBlock) else None
        for cards, moving in ((self.cards, CardStatus.RUNNING), (self._unsettled, CardStatus.UNSETTLED)):
            (cards.add if status is moving else cards.discard)(block.id)

    def remove(self, block_id: str) -> None:
        """Forget a block that leaves the layout."""
        self.cards.discard(block_id)
        self._unsettled.discard(block_id)
        self._progress.pop(block_id, None)

    def follow(self, batch: Iterable[Published]) -> list[str]:
        """Take note of how far calls are. Return the cards that have lost their note."""
        ended: list[str] = []
        for published in batch:
            match published.event:
                case CallProgressed(id=key, progress=Progress() as progress):
                    entry = self._layout.entry(key)
                    card = entry.block if entry is not None else None
                    if isinstance(card, ToolCardBlock) and card.status in (CardStatus.UNSETTLED, CardStatus.RUNNING):
                        self._progress[key] = progress
                case CallProgressed(id=key) | ToolFinished(id=key):
                    self._progress.pop(key, None)
                    ended += self._set_notes({key: None})
                case _:
                    pass
        return ended

    def update_notes(self, now: float) -> list[str]:
        """Put a note below each card whose call takes long. Return those whose note has changed."""
        layout = self._layout
        if (theme := layout.theme) is None:
            return []
        width = layout.width - GUTTER - 2
        due = {key: progress for key, progress in self._progress.items() if progress.is_due(now)}
        return self._set_notes({key: progress_text(due[key], theme, width=width, now=now) for key in due})

    def _set_notes(self, notes: dict[str, Text | None]) -> list[str]:
        """Set the notes of cards, None for no note. Return the cards whose note was another one."""
        entries = {key: entry for key in notes if (entry := self._layout.entry(key)) is not None}
        changed = [key for key, entry in entries.items() if entry.note != notes[key]]
        for key in changed:
            entries[key].note = notes[key]
        return changed

    def lines(self, *, turn_works: bool) -> list[int]:
        """Return the lines with a moving sign: the first one of each card in whose call something happens."""
        layout, cards = self._layout, {*self.cards, *self._progress, *(self._unsettled if turn_works else ())}
        return [layout.start(layout.index[key]) for key in cards]
