"""The command palette, based on Textual's."""

import contextlib
from typing import Any

from textual import events
from textual.command import CommandPalette
from textual.css.query import NoMatches
from textual.errors import NoWidget

from chatops.tui.dialogs.modal import Modal, Standing


class Palette(Standing, CommandPalette):
    """Opened by ctrl+p. Tolerates paging, clicking and closing while its list is being built."""

    VERTICAL_BREAKPOINTS = Modal.VERTICAL_BREAKPOINTS

    def _action_command_list(self, action: str) -> None:
        with contextlib.suppress(KeyError):
            super()._action_command_list(action)

    def _refresh_command_list(self, *arguments: Any, **named: Any) -> None:
        with contextlib.suppress(NoMatches):
            super()._refresh_command_list(*arguments, **named)

    def _on_click(self, event: events.Click) -> None:  # type: ignore[override]
        event.prevent_default()
        with contextlib.suppress(NoWidget):
            super()._on_click(event)
