"""The line in which a text to find in the transcript is typed."""

from collections.abc import Callable, Sequence

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widgets import Input, Static

from chatops.tui.composer.text_fields import LineField
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.keys import BACK, KeyHint, KeyLegend

_KEYS = frozenset({"escape", "up", "down", "pageup", "pagedown"})
_MOVE = (KeyHint("n", "older"), KeyHint("N", "newer"))
_MOVING = (
    KeyLegend([[*_MOVE, KeyHint(does="edit", id="find"), BACK]]),
    KeyLegend([[*_MOVE, BACK]], "  "),
    KeyLegend([[KeyHint("n N"), BACK]], "  "),
    KeyLegend([[KeyHint("n N Esc")]]),
)
_TYPING = (
    KeyLegend([[KeyHint(does="Enter, then n N"), BACK]]),
    KeyLegend([[KeyHint(does="Enter, n N"), KeyHint("escape")]], "  "),
    KeyLegend([[KeyHint("enter"), KeyHint("escape")]], "  "),
    KeyLegend([[KeyHint("enter")]]),
)
"""The keys, in as many words as there is room for."""
_OTHERS = 15
"""Cells of the line outside count and keys: the label, the edges and some of the text."""


class FindBar(ErrorBoundary, Horizontal, can_focus=True):
    """A field while the text is typed. After Enter the bar itself has the focus, and letters are keys."""

    def __init__(
        self, text: str, *, changed: Callable[[str], None], pressed: Callable[[str, str], None], id: str
    ) -> None:
        """Create it with a text to find.

        `changed` is called with another text to find. `pressed` is called with a key, `n`, `N`, `up`, `down`,
        `pageup`, `pagedown` or `escape`, and an empty text; or with no key and a letter that has no meaning.
        """
        super().__init__(id=id)
        self._text = text
        self._changed = changed
        self._pressed = pressed
        self._count = ""
        self._keys: Sequence[KeyLegend] = _TYPING

    def compose(self) -> ComposeResult:
        """Yield label, field, count and keys."""
        yield Static("find", id="find-label")
        yield LineField(self._text, placeholder="text", id="find-text", compact=True)
        yield Static("", id="find-count", markup=False)
        yield Static("", id="find-keys")

    def on_mount(self) -> None:
        """Turn off the blinking cursor, which would redraw while idle."""
        self.query_one(Input).cursor_blink = False

    @property
    def text(self) -> str:
        """The text to find."""
        return self.query_one(Input).value

    def edit(self, text: str | None = None) -> None:
        """Let the user type, after putting `text` into the field if it is given."""
        field = self.query_one(Input)
        if text is not None:
            field.value = text
        field.focus()

    def show_count(self, words: str) -> None:
        """Show how many places there are."""
        self.query_one("#find-count", Static).update(words)
        self._count = words
        self.show_keys()

    def on_focus(self) -> None:
        """Show the keys that move."""
        self._keys = _MOVING
        self.show_keys()

    def on_blur(self) -> None:
        """Show the keys of the field."""
        self._keys = _TYPING
        self.show_keys()

    @on(events.Resize)
    def show_keys(self) -> None:
        """Show the keys that act, in as many words as fit."""
        room = self.size.width - _OTHERS - len(self._count)
        fitting = (keys for keys in (legend.draw() for legend in self._keys) if keys.cell_length <= room)
        self.query_one("#find-keys", Static).update(next(fitting, ""))

    def move(self) -> None:
        """Let letters be keys."""
        self.focus()

    @on(Input.Changed)
    def typed(self, event: Input.Changed) -> None:
        """Pass on what is typed."""
        event.stop()
        self._changed(event.value)

    @on(Input.Submitted)
    def entered(self, event: Input.Submitted) -> None:
        """Move among the places from now on (Enter)."""
        event.stop()
        if event.value:
            self.move()

    def on_key(self, event: events.Key) -> None:
        """Pass on the keys that move."""
        typed = event.character if event.is_printable and event.character else ""
        if event.key in _KEYS:
            self._pressed(event.key, "")
        elif self.has_focus and event.key == "enter":
            self._pressed("n", "")
        elif self.has_focus and typed:
            self._pressed(typed if typed in "nN" else "", typed)
        else:
            return
        event.stop()
        event.prevent_default()
