"""Textual messages that the presenters post to the chat screen.

The dataclasses among them have no `__eq__` and `__repr__`: nobody calls these, and making them costs time at the start.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.message import Message

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
