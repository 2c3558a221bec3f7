"""The list of completions above the message field."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content
from textual.widgets import Static

from chatops.tui.error_boundary import ErrorBoundary

MAX_SHOWN = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One completion: the text to insert, the text to show, and a note."""

    insert: str
    text: str
    note: str = ""


class Completions(ErrorBoundary, Static):
    """Shows up to `MAX_SHOWN` completions around the highlighted one. Never takes the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False
        self._items: tuple[Completion, ...] = ()
        self._at = 0

    @property
    def current(self) -> Completion | None:
        """The highlighted completion, or None while the list is closed."""
        return self._items[self._at] if self.display and self._items else None

    def offer(self, items: Sequence[Completion]) -> None:
        """Show these completions. An empty sequence closes the list."""
        self._items = tuple(items)
        self._at = 0
        self.display = bool(items)
        self._draw()

    def move(self, by: int) -> None:
        """Move the highlight by `by` entries, wrapping around."""
        if self._items:
            self._at = (self._at + by) % len(self._items)
            self._draw()

    def _draw(self) -> None:
        first = max(0, min(self._at - MAX_SHOWN + 1, len(self._items) - MAX_SHOWN))
        shown = self._items[first : first + MAX_SHOWN]
        width = max((len(item.text) for item in shown), default=0)
        lines = []
        for offset, item in enumerate(shown):
            here = first + offset == self._at
            text = f"{'>' if here else ' '} {item.text.ljust(width)}  {item.note}".rstrip()
            lines.append(Content.styled(text, "bold" if here else ""))
        self.update(Content("\n").join(lines))
