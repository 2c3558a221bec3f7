"""Messages from the presenters to the chat screen."""

from typing import TYPE_CHECKING

from textual.message import Message

if TYPE_CHECKING:
    from collections.abc import Mapping

    from chatops.domain.events import Published
    from chatops.runtime.follower import SessionFollower
    from chatops.runtime.view import SessionView


class Changed(Message):
    """Posted when status line, banner or dialogs have to be updated."""


class PendingChanged(Message):
    """Posted when other questions are pending: a text for each, by a key that lasts as long as the question."""

    def __init__(self, pending: "Mapping[str, str]") -> None:
        super().__init__()
        self.pending = pending


class Batch(Message):
    """Events of a session, on their way from its bus to the screen."""

    def __init__(self, session: "SessionView", published: "list[Published]") -> None:
        super().__init__()
        self.session = session
        self.published = published


class FollowedChanged(Message):
    """Posted when the store or the owner of the followed session has changed."""

    def __init__(self, reader: "SessionFollower") -> None:
        super().__init__()
        self.reader = reader
