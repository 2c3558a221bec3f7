"""The command palette (ctrl+p), made safe against paging, clicking and closing while its list is being built."""

from textual import events
from textual.errors import NoWidget
from textual.widgets import Input

from chatops.tui.dialogs.modal import Modal
from chatops.tui.textual_internals import ErrorBoundary, LateClickHook, PaletteHooks


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
