"""What is typed and not sent is stored while it is typed, so that a killed window loses a moment of it at most."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from chatops.domain.ids import SessionId
    from chatops.tui.screens.chat_face import ChatFace

KEEP_S = 0.5
"""Seconds of typing that may be lost."""


class Drafts:
    """The draft of the open conversation; that of one that was not stored yet moves with it when it is."""

    def __init__(self, chat: "ChatFace") -> None:
        self._chat = chat
        self._due = False
        self._under: SessionId | None = None
        """The conversation under which a text is kept."""
        self._sending = ""

    def recall(self) -> None:
        """Put back what was typed in the conversation that is open now."""
        session_id = self._chat.session.session_id
        draft = self._chat.host.draft(session_id)
        self._under = session_id if draft else None
        if draft and not self._chat.composer.text:
            self._chat.composer.put(draft)

    def changed(self) -> None:
        """Something was typed or deleted."""
        if not self._due:
            self._due = True
            self._chat.set_timer(KEEP_S, self.keep)

    @contextmanager
    def until_stored(self, text: str) -> Iterator[None]:
        """Within this block `text` is on its way and not stored yet: until it is, it stays a draft."""
        self._sending = text
        try:
            yield
        finally:
            self._sending = ""
        self.keep()

    def keep(self) -> None:
        """Store what there is now; what was sent is forgotten."""
        self._due = False
        if not self._chat.opened:
            return
        text = self._chat.composer.full_text or self._sending
        if self._chat.reads_along and not text:
            # What was typed where it is driven is not forgotten from here.
            return
        host, session_id = self._chat.host, self._chat.session.session_id
        if self._under is not None and self._under != session_id:
            host.keep_draft(self._under, text="")
        if text or self._under == session_id:
            host.keep_draft(session_id, text=text)
        self._under = session_id if text else None
