"""Fields to write in whose keys act in the order in which they come, and whose cursor is always somewhere."""

from typing import ClassVar, cast

from textual import events
from textual.binding import Binding
from textual.widget import Widget
from textual.widgets import TextArea

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


class TextField(InOrder, TextArea):
    """A text area. ctrl+z is the shell's, so undoing has the key that shells give it."""

    BINDINGS: ClassVar = [Binding("ctrl+underscore", "undo", "undo", show=False)]

    def _recompute_cursor_offset(self) -> None:
        """Undoing may take the line away that the cursor is in, and look at it before the cursor has moved."""
        if self.cursor_location[0] < self.document.line_count:
            super()._recompute_cursor_offset()  # type: ignore[no-untyped-call]
