"""Bases of the screens over the chat screen, which tolerate late clicks and keys; their key legend; the palette."""

from enum import Enum, auto

from textual import events
from textual.await_complete import AwaitComplete
from textual.errors import NoWidget
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Input, Static

from chatops.tui.keys import KeyHint, KeyLegend
from chatops.tui.textual_internals import ErrorBoundary, LateClickHook, PaletteHooks

TYPING_S = 0.5
"""Seconds between two keys of the same text."""
TALL = 16
"""A window with at least this many lines has room for frames and empty lines."""


class Modal(ErrorBoundary, LateClickHook, ModalScreen[ScreenResultType]):
    """A screen whose result counts once: a late key or click cannot close the screen under it."""

    VERTICAL_BREAKPOINTS = [(0, "-lowest"), (9, "-low"), (TALL, "-tall")]  # noqa: RUF012
    """Classes by window height. In a low window, decoration is left out."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the screen if it is on top. Otherwise do nothing."""
        if not self.is_active:
            return AwaitComplete()
        return super().dismiss(result)


class KeyUse(Enum):
    """Use of a key on a page."""

    ACTS = auto()
    TYPES = auto()
    """A field takes it."""
    NONE = auto()


class Page(Modal[str]):
    """A page to read. What is typed on it, and means nothing there, closes it and goes to the message field."""

    def __init__(self) -> None:
        super().__init__()
        self._typed = ""
        self._typed_at = 0.0

    def act_on_key(self, key: str) -> KeyUse:
        """Handle a key, which is a character if it types one."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        """Handle a key. A letter that means something here is part of a text if another key follows soon."""
        character = event.character if event.is_printable and event.character else ""
        use = self.act_on_key(character or event.key)
        if use is KeyUse.NONE and (character or event.key) in ("escape", "q", "enter"):
            use = KeyUse.ACTS
            self.dismiss("")
        if use is not KeyUse.TYPES and character:
            before = self._typed if event.time - self._typed_at < TYPING_S else ""
            self._typed, self._typed_at = before + character, event.time
        if use is KeyUse.ACTS:
            event.stop()
            event.prevent_default()
        elif use is KeyUse.NONE and character and self._typed.strip():
            self.dismiss(self._typed)

    def on_paste(self, event: events.Paste) -> None:
        """Close the page for a paste, which goes to the message field."""
        event.stop()
        self.dismiss(event.text)


class Legend(Static):
    """The keys of a screen, on as many lines as they need."""

    def __init__(self, *keys: KeyHint, id: str) -> None:
        super().__init__("", id=id)
        self._keys = keys

    def show(self, *keys: KeyHint) -> None:
        """Show other keys."""
        self._keys = keys
        self.on_resize()

    def on_resize(self) -> None:
        """Break the lines between entries."""
        if width := self.content_size.width:
            self.update(KeyLegend([self._keys]).draw(width))


class Palette(ErrorBoundary, LateClickHook, PaletteHooks):
    """The list of all commands (ctrl+p). Tolerates paging, clicking and closing while its list is being built."""

    CSS_PATH = "dialogs.tcss"
    VERTICAL_BREAKPOINTS = Modal.VERTICAL_BREAKPOINTS

    def on_mount(self) -> None:
        """Turn off the blinking cursor. Follow a change of the theme, which Textual applies to other screens only."""
        self.query_one(Input).cursor_blink = False
        self.app.theme_changed_signal.subscribe(self, lambda _: self.app.stylesheet.update(self, animate=False))

    def on_click(self, event: events.Click) -> None:
        """Ignore a click next to every widget, for which Textual's handler raises an error."""
        try:
            self.get_widget_at(event.screen_x, event.screen_y)
        except NoWidget:
            event.prevent_default()
