"""Text fields that handle keys in the order they arrive and show hidden characters."""

import re
from typing import ClassVar, cast

from rich.text import Text
from textual import events
from textual.reactive import reactive
from textual.widgets.text_area import EditResult

from chatops.domain.sanitize import HIDDEN
from chatops.tui.textual_internals import Edit, ErrorBoundary, InputHooks, TextAreaHooks, bound_actions

_SCROLLING = ("scroll_", "page_")
"""Prefixes of the scrolling actions that Textual binds by default; these keys are left to the screen."""


class _OrderedKeys(ErrorBoundary):
    """Mixin that runs a field's own bindings as soon as their key arrives, and takes characters without a picture.

    In Textual a key bubbles up to the app first and its action runs later. On a slow line, where several keys arrive at
    once, Enter would then send text that was deleted just before it. Textual also drops a typed character that Python
    does not call printable, such as a no-break space or the joiner in an emoji.
    """

    async def on_key(self, event: events.Key) -> None:
        """Run the actions that the field binds to the key, or insert its character if Textual would not."""
        field = cast("TextField | LineField", self)
        if event.character is not None and types_invisible(event):
            field.replace_selection(event.character)
            event.stop()
            event.prevent_default()
            return
        edits = [action for action in bound_actions(field, event.key) if not action.startswith(_SCROLLING)]
        for action in edits:
            await field.run_action(action)
        if edits:
            event.stop()
            event.prevent_default()


def types_invisible(event: events.Key) -> bool:
    """Return True for a key that types a character without a picture of its own. Control characters are keys."""
    return event.character is not None and event.character > "\x9f" and not event.is_printable


_FIRST_MASK = 0xF0000
_PRIVATE_USE = "\U000f0000-\U0010fffd"
"""The characters from `_FIRST_MASK` on that Unicode leaves to programs, as a range of a pattern."""
_NEEDS_MASK = f"{HIDDEN}|[{_PRIVATE_USE}]"
_MASK = re.compile(f"[{_PRIVATE_USE}]")
HIDDEN_SIGN = "\ufffd"
"""Drawn in place of a hidden character."""
_mask_of: dict[str, str] = {}
"""The private-use character that masks each hidden one typed or pasted so far."""
_masked_by: dict[str, str] = {}
"""The inverse of `_mask_of`."""


def _mask(found: re.Match[str]) -> str:
    """Return the mask of a hidden character; `HIDDEN_SIGN`, which loses it, once there are no masks left."""
    mask = _mask_of.get(found[0])
    if mask is None:
        mask = chr(_FIRST_MASK + len(_mask_of))
        if not _MASK.match(mask):
            return HIDDEN_SIGN
        _mask_of[found[0]], _masked_by[mask] = mask, found[0]
    return mask


def _unmask(text: str) -> str:
    return _MASK.sub(lambda found: _masked_by.get(found[0], found[0]), text)


class TextField(_OrderedKeys, TextAreaHooks):
    """A text area that makes hidden characters visible. Undo is ctrl+underscore, as in shells, because ctrl+z suspends.

    Textual writes typed or pasted text to the terminal unchanged: a bidirectional control reverses the line, and a tag
    or zero-width character is invisible. The document therefore holds a mask for each such character, one cell wide,
    which is drawn as `HIDDEN_SIGN`. `text` and `selected_text` return the real characters. A private-use character gets
    a mask too, so that no text can contain a mask of its own.
    """

    BINDINGS: ClassVar = [
        ("ctrl+underscore", "undo"),
        ("alt+d", "delete_word_right"),
        ("ctrl+home", "to_start"),
        ("ctrl+end", "to_end"),
    ]
    cursor_blink = reactive(False, init=False)
    """A cursor that blinks would redraw while idle."""

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

    def action_to_start(self) -> None:
        """Move the cursor to the start of the text."""
        self.move_cursor((0, 0))

    def action_to_end(self) -> None:
        """Move the cursor to the end of the text."""
        self.move_cursor(self.document.end)

    def edit(self, edit: Edit) -> EditResult:
        """Apply an edit, masking hidden characters."""
        edit.text = self.masked(edit.text)
        return super().edit(edit)

    def replace_selection(self, text: str) -> None:
        """Insert `text` at the cursor, in place of what is selected."""
        result = self.replace(text, *sorted(self.selection))
        self.move_cursor(result.end_location)

    def get_line(self, line_index: int) -> Text:
        """Return a line as it is drawn, with `HIDDEN_SIGN` for each mask."""
        line = super().get_line(line_index)
        masked = [found.start() for found in _MASK.finditer(line.plain)]
        if masked:
            line.plain = _MASK.sub(HIDDEN_SIGN, line.plain)
            for at in masked:
                line.stylize("reverse", at, at + 1)
        return line

    def masked(self, text: str) -> str:
        """Return `text` with a mask for each hidden character."""
        return text if text.isascii() and text.isprintable() else re.sub(_NEEDS_MASK, _mask, text)


class LineField(_OrderedKeys, InputHooks):
    """A one-line input that shows hidden characters and handles keys in the order they arrive."""

    cursor_blink = reactive(False, init=False)

    def replace_selection(self, text: str) -> None:
        """Insert `text` at the cursor, in place of what is selected."""
        self.replace(text, *sorted(self.selection))

    def shown(self, value: str) -> str:
        """Return `value` with `HIDDEN_SIGN` for each hidden character."""
        return re.sub(HIDDEN, HIDDEN_SIGN, value)
