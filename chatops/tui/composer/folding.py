"""Fold long pastes to one short item, and unfold them when the message is sent."""

import re
from dataclasses import dataclass, field

FOLD_LINES = 10
FOLD_CHARACTERS = 2_000
_ITEM = re.compile(r"\[pasted (\d+) lines?, [^\]#]* #(\d+)\]")


@dataclass(slots=True)
class Folds:
    """The pastes of the message being written, by number. A number is never used twice."""

    _texts: dict[int, str] = field(default_factory=dict)
    _count: int = 0

    def fold(self, text: str) -> str:
        """Return the text to insert for a paste: the paste itself if short, otherwise an item in its place."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= FOLD_LINES and len(text) <= FOLD_CHARACTERS:
            return text
        self._count += 1
        self._texts[self._count] = text
        return f"[pasted {lines} line{'s' if lines != 1 else ''}, {_size(text)} #{self._count}]"

    def unfold(self, text: str) -> str:
        """Return `text` with each known item replaced by its paste. Anything else stays as typed."""
        return _ITEM.sub(lambda found: self._texts.get(int(found[2]), found[0]), text)

    def clear(self) -> None:
        """Forget the pastes after the message was sent."""
        self._texts.clear()


def _size(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size < 1_000:
        return f"{size} bytes"
    if size < 1_000_000:
        return f"{size / 1_000:.0f} kB"
    return f"{size / 1_000_000:.1f} MB"
