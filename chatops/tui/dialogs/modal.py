"""Bases of the screens over the chat screen (`Modal`, and `Page` for those that only show), and their key legend."""

from enum import Enum, auto
from itertools import pairwise

from textual import events
from textual.await_complete import AwaitComplete
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen, ScreenResultType
from textual.widget import Widget
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.keys import KeyHint, KeyLegend
from chatops.tui.textual_internals import ErrorBoundary, LateClickHook

_TYPING_GAP_S = 0.5
"""Maximum seconds between two keys of one text. With more, a letter pressed long before would be put into the text."""
TALL = 16
"""Lines from which on a window has room for frames and empty lines."""


class Modal(ErrorBoundary, LateClickHook, ModalScreen[ScreenResultType]):
    """A screen whose result counts once: a late key or click cannot close the screen under it."""

    VERTICAL_BREAKPOINTS = [(0, "-lowest"), (9, "-low"), (TALL, "-tall")]  # noqa: RUF012
    """CSS classes by the lines of the window. In a low window, decoration is left out."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the screen if it is on top. Otherwise do nothing."""
        if not self.is_active:
            return AwaitComplete()
        return super().dismiss(result)

    def match_covered(self) -> None:
        """Make the window as wide as the dialog that it covers, if it covers one."""
        covered = next((below for below, screen in pairwise(self.app.screen_stack) if screen is self), None)
        matches = isinstance(covered, Modal) and self.size.height >= TALL
        width = covered.query(Vertical).first().outer_size.width if covered is not None and matches else None
        self.query(Vertical).first().styles.max_width = width


class KeyUse(Enum):
    """The use that a page makes of a key."""

    ACTS = auto()
    """The page has acted on the key."""
    TYPES = auto()
    """A field of the page takes the key."""
    UNKNOWN = auto()
    """The key has no meaning on the page."""


class Page(Modal[str]):
    """A page to read. Its result is the text that was meant for the message field; empty if a key has closed the page.

    A user who starts to type a message closes the page by that. A letter can be a key of the page and the beginning of
    such a text. So the page acts on the letter, remembers it, and closes if a key without a meaning follows soon.
    """

    def __init__(self) -> None:
        super().__init__()
        self._typed = ""
        """The characters typed last, less than `_TYPING_GAP_S` apart."""
        self._typed_at = 0.0
        """Time of the last of them, by the clock of Textual's events."""

    def act_on_key(self, key: str) -> KeyUse:
        """Act on a key if it is one of the page. `key` is the character that it types, or else its name."""
        raise NotImplementedError

    def on_key(self, event: events.Key) -> None:
        """Act on a key, or close the page if it has no meaning here."""
        character = event.character if event.is_printable and event.character else ""
        use = self.act_on_key(character or event.key)
        if use is KeyUse.UNKNOWN and (character or event.key) in ("escape", "q", "enter"):
            use = KeyUse.ACTS
            self.dismiss("")
        if use is not KeyUse.TYPES and character:
            before = self._typed if event.time - self._typed_at < _TYPING_GAP_S else ""
            self._typed, self._typed_at = before + character, event.time
        if use is KeyUse.ACTS:
            event.stop()
            event.prevent_default()
        elif use is KeyUse.UNKNOWN and character and self._typed.strip():
            self.dismiss(self._typed)

    def on_paste(self, event: events.Paste) -> None:
        """Close the page for a paste, which goes to the message field."""
        event.stop()
        self.dismiss(event.text)


class Title(Static):
    """The title of a window, in bold, and what stands beside it: on its frame, or on a line of a window without one."""

    def __init__(self, title: str, beside: str = "") -> None:
        super().__init__()
        self._first = title, beside

    def on_mount(self) -> None:
        """Show the title, now that there is a frame."""
        self.show(*self._first)

    def show(self, title: str, beside: str = "") -> None:
        """Show a title."""
        named = Content.styled(sanitize(title, newlines=False), "bold")
        more = Content.styled(beside, "not bold $text-muted")
        self.update(Content("   ").join(part for part in (named, more) if part))
        if isinstance(self.parent, Widget):
            self.parent.border_title, self.parent.border_subtitle = named, more


class Legend(Static):
    """The keys of a screen, on as many lines as they need."""

    def __init__(self, *keys: KeyHint, id: str) -> None:
        super().__init__("", id=id)
        self._keys = keys

    def show(self, *keys: KeyHint) -> None:
        """Show other keys."""
        self._keys = keys
        self._draw()

    def on_resize(self) -> None:
        """Draw for the new width."""
        self._draw()

    def _draw(self) -> None:
        """Draw the keys, with line ends between entries only. Without a width yet, `on_resize` does so later."""
        if width := self.content_size.width:
            self.update(KeyLegend([self._keys]).draw(width))
