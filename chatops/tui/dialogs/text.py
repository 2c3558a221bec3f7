"""A text to read: scrolls, copies, closes."""

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.dialogs.hanging import HangingText
from chatops.tui.dialogs.modal import Modal
from chatops.tui.legend import legend


class TextScreen(Modal[None]):
    """Shows a read-only text, which is never read as markup."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#text-body"

    def __init__(self, title: str, *, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield title, text and keys."""
        with Vertical(id="text"):
            yield Static(Content(sanitize(self._title, newlines=False)), id="text-title")
            with VerticalScroll(id="text-body"):
                yield HangingText(sanitize(self._text), id="text-content")
            yield Static(legend("PgUp PgDn scroll   c copies   Esc back"), id="text-keys")

    def on_key(self, event: events.Key) -> None:
        """Close on Esc, q or Enter, copy on c."""
        match event.key:
            case "escape" | "q" | "enter":
                self.dismiss(None)
            case "c":
                self.app.copy_to_clipboard(self._text)
                self.app.notify("Copied, if this terminal lets programs do that.", markup=False)
            case _:
                return
        event.stop()
