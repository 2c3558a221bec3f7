"""The list of completions above the message field."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.widgets import Static

from chatops.domain.wording import cut
from chatops.tui.error_boundary import ErrorBoundary

MAX_SHOWN = 6
_OTHERS = 4
"""Lines of the window that are not for the list: the message field, the status line and some of the transcript."""
_NARROW = 70
"""Columns below which a command is listed without its arguments."""
_WIDEST = 24
"""Maximum width of a text beside its note, in cells, so that a long syntax does not push the notes away."""


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
        self._note = ""

    @property
    def current(self) -> Completion | None:
        """The highlighted completion, or None if none is or the list is closed."""
        return self._items[self._at] if self.display and self._items and self._at >= 0 else None

    def offer(self, items: Sequence[Completion], *, highlight: bool = True, note: str = "") -> None:
        """Show these completions, the first one highlighted if wanted, and a note below them.

        Without completions and note the list is closed.
        """
        self._items = tuple(items)
        self._note = note
        self._at = 0 if highlight else -1
        self.display = bool(items or note)
        self.screen.set_class(self.display, "-completing")
        self._draw()

    def move(self, by: int) -> None:
        """Move the highlight by `by` entries, wrapping around."""
        if self._items:
            self._at = (max(self._at, 0 if by < 0 else -1) + by) % len(self._items)
            self._draw()

    def _draw(self) -> None:
        count = len(self._items)
        most = max(2, min(MAX_SHOWN, self.screen.size.height - _OTHERS))
        # The last line counts where not all fit.
        room = most if count <= most else most - 1
        first = max(0, min(self._at - room + 1, count - room))
        shown = self._items[first : first + room]
        # Where there is little room, what a command does says more than its arguments.
        names = [
            item.text.split(" ")[0] if item.note and self.screen.size.width < _NARROW else item.text for item in shown
        ]
        texts = [cut(name, most=_WIDEST) if item.note else name for item, name in zip(shown, names, strict=True)]
        width = min(max(map(cell_len, texts), default=0), _WIDEST)
        lines = []
        for offset, (item, shown_text) in enumerate(zip(shown, texts, strict=True)):
            here = first + offset == self._at
            gap = " " * (width - cell_len(shown_text))
            text = f"{'>' if here else ' '} {shown_text}{gap}  {item.note}".rstrip()
            lines.append(Content.styled(text, "bold" if here else ""))
        if count > room:
            place = f"{self._at + 1} of {count}" if self._at >= 0 else f"{count} in all"
            lines.append(Content(f"  {place}, Down for more"))
        if self._note:
            lines.append(Content(f"  {self._note}"))
        self.update(Content("\n").join(lines))
