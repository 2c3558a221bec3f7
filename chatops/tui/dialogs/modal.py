"""Base classes of screens that tolerate late clicks and late keys."""

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType

from chatops.tui.error_boundary import ErrorBoundary

TALL = 16
"""A window with at least this many lines has room for frames and empty lines."""


class Standing(ErrorBoundary):
    """Mixin for screens: a late click does no harm."""

    def _forward_event(self, event: events.Event) -> None:
        try:
            super()._forward_event(event)  # type: ignore[misc]
        except AttributeError:
            # The click hit a toast that has just been removed, and Textual looks for its parent.
            if not isinstance(event, events.MouseDown):
                raise


class Modal(Standing, ModalScreen[ScreenResultType]):
    """A screen whose result counts once: a late key or click cannot close the screen under it."""

    VERTICAL_BREAKPOINTS = [(0, "-lowest"), (9, "-low"), (TALL, "-tall")]  # noqa: RUF012
    """Classes by window height. In a low window, decoration is left out."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close the screen if it is on top. Otherwise do nothing."""
        if not self.is_active:
            return AwaitComplete()
        return super().dismiss(result)
