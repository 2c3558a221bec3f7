"""Screens that stand what comes late: a click on what has just gone, a key for what has just been closed."""

from textual import events
from textual.await_complete import AwaitComplete
from textual.screen import ModalScreen, ScreenResultType

from chatops.tui.accidents import Sturdy

TALL = 16
"""From so many lines on a window has room for frames and empty lines."""


class Standing(Sturdy):
    """For screens: a click that comes late does no harm."""

    def _forward_event(self, event: events.Event) -> None:
        try:
            super()._forward_event(event)  # type: ignore[misc]
        except AttributeError:
            # It hit a toast that has just gone, and Textual looks for what was around that.
            if not isinstance(event, events.MouseDown):
                raise


class Modal(Standing, ModalScreen[ScreenResultType]):
    """A screen whose result counts once: what was typed or clicked behind it does not close what lies under it."""

    VERTICAL_BREAKPOINTS = [(0, "-lowest"), (9, "-low"), (TALL, "-tall")]  # noqa: RUF012
    """Classes by the height of the window: where there is little, what only looks nice is left out."""

    def dismiss(self, result: ScreenResultType | None = None) -> AwaitComplete:
        """Close it, if it is the one on top."""
        if not self.is_active:
            return AwaitComplete()
        return super().dismiss(result)
