"""Base of the screens over the chat screen, which tolerates late clicks and late keys, and their line of keys."""

from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType
from textual.widgets import Static

from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.keys import wrapped_legend
from chatops.tui.textual_internals import LateClickHook

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


class Legend(Static):
    """The keys of a screen, on as many lines as they need."""

    def __init__(self, keys: str, *, id: str) -> None:
        super().__init__("", id=id)
        self._keys = keys

    def show(self, keys: str) -> None:
        """Show other keys."""
        self._keys = keys
        self.on_resize()

    def on_resize(self) -> None:
        """Break the lines between entries."""
        if width := self.content_size.width:
            self.update(wrapped_legend(self._keys, width))
