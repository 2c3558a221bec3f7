"""Fields to write in whose keys act in the order in which they come, and whose cursor is always somewhere."""

import re
from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.binding import Binding
from textual.document._edit import Edit
from textual.widget import Widget
from textual.widgets import TextArea
from textual.widgets.text_area import EditResult

from chatops.domain.sanitize import HIDDEN
from chatops.tui.accidents import Sturdy

_SCROLLING = ("scroll_", "page_")
"""What every widget that scrolls binds keys to; whoever is around the field may have better use for them."""


class InOrder(Sturdy):
    """For widgets: runs a field's own bindings when their key arrives.

    As Textual does it a key goes up to the app first and its action comes back later: on a slow line, where several
    keys arrive at once, what was deleted before Enter would be sent.
    """

    async def _on_key(self, event: events.Key) -> None:
        field = cast(Widget, self)
        bindings = field._bindings.key_to_bindings.get(event.key, [])
        edits = [binding.action for binding in bindings if not binding.action.startswith(_SCROLLING)]
        for action in edits:
            await field.run_action(action)
        if edits:
            event.stop()
            event.prevent_default()


_PRIVATE = "\U000f0000-\U0010fffd"
_MASKED = re.compile(f"{HIDDEN.pattern}|[{_PRIVATE}]")
_MASKS = re.compile(f"[{_PRIVATE}]")
SIGN = "\ufffd"
"""Drawn for a hidden character."""
_masks: dict[str, str] = {}
"""A private-use character for each hidden one that was typed or pasted so far."""
_hidden: dict[str, str] = {}
"""The way back."""


def _mask(found: re.Match[str]) -> str:
    mask = _masks.get(found[0])
    if mask is None:
        mask = chr(0xF0000 + len(_masks))
        if not _MASKS.match(mask):
            return SIGN
        _masks[found[0]], _hidden[mask] = mask, found[0]
    return mask


def _unmask(text: str) -> str:
    return _MASKS.sub(lambda found: _hidden.get(found[0], found[0]), text)


class TextField(InOrder, TextArea):
    """A text area that hides nothing. ctrl+z is the shell's, so undoing has the key that shells give it.

    Textual writes what is typed or pasted to the terminal as it is: a bidirectional control turns the line around, a
    tag or a zero-width character is not seen. The document holds a mask for each such character, one cell wide, which
    is drawn as a sign. `text` and `selected_text` have the characters themselves. A private-use character has a mask
    too, so that no text can hold one that is not ours.
    """

    BINDINGS: ClassVar = [Binding("ctrl+underscore", "undo", "undo", show=False)]

    @property
    def text(self) -> str:
        """The whole text."""
        return _unmask(self.document.text)

    @text.setter
    def text(self, value: str) -> None:
        self.load_text(value)

    @property
    def selected_text(self) -> str:
        """The selected part of the text."""
        return _unmask(super().selected_text)

    def edit(self, edit: Edit) -> EditResult:
        """Change the document."""
        edit.text = _MASKED.sub(_mask, edit.text)
        return super().edit(edit)

    def get_line(self, line_index: int) -> Text:
        """A line as it is drawn."""
        line = super().get_line(line_index)
        masked = [found.start() for found in _MASKS.finditer(line.plain)]
        if masked:
            line.plain = _MASKS.sub(SIGN, line.plain)
            for at in masked:
                line.stylize("reverse", at, at + 1)
        return line

    def _set_document(self, text: str, language: str | None) -> None:
        super()._set_document(_MASKED.sub(_mask, text), language)

    def _recompute_cursor_offset(self) -> None:
        """Undoing may take the line away that the cursor is in, and look at it before the cursor has moved."""
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]
