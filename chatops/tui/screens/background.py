"""Work of the chat screen that runs in the background."""

from collections.abc import Awaitable, Callable
from typing import Any

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.key_order import WAITED_FOR
from chatops.tui.notice import show_notice
from chatops.tui.screens.messages import Changed

Work = Callable[[], Awaitable[None]]


class BackgroundWork:
    """Starts work for a screen. A ChatopsError becomes a notice, and the screen is updated after it."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen

    def start(self, work: Work, *, group: str, exclusive: bool = False, holds_keys: bool = True) -> None:
        """Start `work`. `exclusive`: cancel what runs in its group. `holds_keys`: deliver later keys after it."""

        async def guarded() -> None:
            try:
                await work()
            except ChatopsError as error:
                show_notice(self._screen.app, error.full)
            self._screen.post_message(Changed())

        # Not `guarded()`: nothing would await that coroutine if the app ended before the worker started.
        name = WAITED_FOR if holds_keys else ""
        self._screen.run_worker(guarded, name=name, group=group, exclusive=exclusive)  # type: ignore[arg-type]
