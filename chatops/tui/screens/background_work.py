"""Work that the chat screen and its presenters start in the background."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.key_order import KEYS_WAIT
from chatops.tui.notice import show_notice
from chatops.tui.screens.screen_messages import RefreshNeeded, WorkProgressed

if TYPE_CHECKING:
    from chatops.domain.progress import Progress


class BackgroundWork:
    """Starts work for a screen. A ChatopsError becomes a notice, and the screen is updated after it."""

    def __init__(self, screen: Screen[Any]) -> None:
        self._screen = screen

    def start(
        self, work: Callable[[], Awaitable[None]], *, group: str, exclusive: bool = False, holds_keys: bool = True
    ) -> None:
        """Start `work`. `exclusive`: cancel what runs in its group. `holds_keys`: deliver later keys after it."""

        async def guarded() -> None:
            from chatops.toolkit.counting import shown_by  # not before the first paint

            try:
                with shown_by(self._show):
                    await work()
            except ChatopsError as error:
                show_notice(self._screen.app, error.full)
            self._screen.post_message(RefreshNeeded())

        # Not `guarded()`: nothing would await that coroutine if the app ended before the worker started.
        # Keys wait for workers by their name.
        name = KEYS_WAIT if holds_keys else ""
        self._screen.run_worker(guarded, name=name, group=group, exclusive=exclusive)  # type: ignore[arg-type]

    def _show(self, progress: "Progress | None") -> None:
        self._screen.post_message(WorkProgressed(progress))
