"""The line below the transcript: what arrived below the view, and the keys of the selected block."""

from textual.message import Message
from textual.widgets import Static

from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.keys import BACK, KeyHint, KeyLegend


class TranscriptHint(ErrorBoundary, Static):
    """Hidden while there is nothing to say."""

    class Clicked(Message):
        """Posted on a click while blocks are out of view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id)
        self._unseen = 0
        self._selected = False
        self._has_files = False

    def count_unseen(self, count: int) -> None:
        """Show how many blocks arrived or grew below the view."""
        self._unseen = count
        self._show()

    def show_keys(self, *, selected: bool, has_files: bool = False) -> None:
        """Show or hide the keys of the selected block."""
        self._selected, self._has_files = selected, has_files
        self._show()

    def on_click(self) -> None:
        """Post `Clicked` if there is something to scroll to."""
        if self._unseen:
            self.post_message(self.Clicked())

    def _show(self) -> None:
        keys = [KeyHint(does=f"↓ {self._unseen} new"), KeyHint(does="shows the end", id="end")] if self._unseen else []
        if self._selected:
            files = [KeyHint("o", "open the file")] if self._has_files else []
            keys += [KeyHint("y", "copy"), KeyHint(does="open", id="open-block"), *files, BACK]
        self.update(KeyLegend([keys]).draw())
        self.display = bool(keys)
