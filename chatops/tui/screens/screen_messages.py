"""Textual messages that the presenters post to the chat screen, and the work in the background that ends in one.

The dataclasses among them have no `__eq__` and `__repr__`: nobody calls these, and making them costs time at the start.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from textual.message import Message
from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.key_order import KEYS_WAIT
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatops.domain.events import Published
    from chatops.domain.progress import Progress
    from chatops.runtime.session_follower import SessionFollower
    from chatops.runtime.view import SessionView


class RefreshNeeded(Message):
    """Posted when status line, banner or dialogs have to be updated."""


@dataclass(eq=False, repr=False)
class PendingChanged(Message):
    """Posted when the pending questions have changed."""

    pending: "Mapping[str, str]"
    """A text for each question, by a key that stays the same as long as the question is pending."""


@dataclass(eq=False, repr=False)
class EventBatch(Message):
    """Events of a session, on their way from its bus to the screen."""

    session: "SessionView"
    published: "list[Published]"


@dataclass(eq=False, repr=False)
class FollowedChanged(Message):
    """Posted when the store or the owner of the followed session has changed."""

    follower: "SessionFollower"


class WorkProgressed(Message):
    """Posted with the progress of a command that takes long; None at its end."""

    def __init__(self, progress: "Progress | None") -> None:
        super().__init__()
        self.progress = progress


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
