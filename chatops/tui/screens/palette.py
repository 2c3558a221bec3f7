"""The command palette, based on Textual's."""

from textual import events
from textual.errors import NoWidget

from chatops.tui.dialogs.modal import Modal
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.textual_internals import LateClickHook, PaletteHooks


class Palette(ErrorBoundary, LateClickHook, PaletteHooks):
    """Opened by ctrl+p. Tolerates paging, clicking and closing while its list is being built."""

    VERTICAL_BREAKPOINTS = Modal.VERTICAL_BREAKPOINTS

    def on_click(self, event: events.Click) -> None:
        """Ignore a click next to every widget, for which Textual's handler raises an error."""
        try:
            self.get_widget_at(event.screen_x, event.screen_y)
        except NoWidget:
            event.prevent_default()
