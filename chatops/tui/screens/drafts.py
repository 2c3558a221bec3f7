"""Drafts: text typed and not sent is stored while it is typed, so that a killed window loses little of it.

A window that follows a session stores its draft apart, so that two windows on one session do not overwrite each other.
The next owner of the session gets both.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from chatops.tui.composer.composer import Composer

if TYPE_CHECKING:
    from chatops.domain.ids import SessionId
    from chatops.runtime.view import SessionView
    from chatops.tui.host import Host

KEEP_S = 0.5
"""Seconds of typing that may be lost."""
_BETWEEN = "\n\n"


class Drafts:
    """The draft of the open session. A draft of a session not stored yet moves with it when it is."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._open: tuple[Host, SessionView] | None = None
        self._followed = False
        self._due = False
        self._under: tuple[SessionId, bool] | None = None
        """The session a draft is stored under, and True if it is only followed here."""
        self.taking_back = False
        """True while a queued message is on its way into the composer: the store has it as the draft already."""
        self._sending: list[tuple[SessionView, str]] = []
        """Messages sent and not stored yet, oldest first, with their session."""

    @property
    def on_its_way(self) -> list[str]:
        """The messages sent and not stored yet, oldest first."""
        return [text for _, text in self._sending]

    def show(self, host: "Host", session: "SessionView", *, followed: bool) -> None:
        """Keep what is typed as the draft of this session from now on. `followed`: another process owns it."""
        self._open, self._followed = (host, session), followed

    def recall(self) -> None:
        """Put stored drafts of the open session before the typed text, except those it already contains."""
        if self._open is None:
            return
        (host, session), reading = self._open, self._followed
        session_id, typed = session.session_id, self._composer.full_text
        places = (True,) if reading else (False, True)
        kept = [host.draft(session_id, reading=place) for place in places]
        texts = [text for text in dict.fromkeys(kept) if text and not (typed.startswith(text) or _holds(typed, text))]
        if texts:
            self._composer.put(_together(*texts, typed))
        self._under = (session_id, reading) if any(kept) else None
        if not reading and kept[-1]:
            self.keep()
            host.keep_draft(session_id, reading=True, text="")

    def changed(self) -> None:
        """Store the draft soon, after something was typed or deleted."""
        if not self._due:
            self._due = True
            self._composer.set_timer(KEEP_S, self.keep)

    @contextmanager
    def until_stored(self, text: str) -> Iterator[None]:
        """Treat `text` as part of the open session's draft within this block, until the session has stored it."""
        assert self._open is not None
        (host, session), reading = self._open, self._followed
        self._sending.append((session, text))
        try:
            yield
        finally:
            self._sending.remove((session, text))
        self.keep()
        if session is not self._open[1]:
            _forget(text, host, session.session_id, reading=reading)

    def put_before(self, text: str) -> None:
        """Put `text` before what is typed, and store both."""
        self._composer.put(_together(text, self._composer.full_text))
        self.keep()

    def keep(self) -> None:
        """Store the current draft. QueuedMessages messages are no longer part of it."""
        self._due = False
        if self._open is None or self.taking_back:
            return
        host, shown = self._open
        sent = [text for session, text in self._sending if session is shown]
        text = _together(*sent, self._composer.full_text)
        session_id, reading = shown.session_id, self._followed
        before, now = self._under, (session_id, reading)
        # The session was stored since and has an id now, or is owned from here now. The owner's draft is left to the
        # new owner.
        if before is not None and before in (("", False), (session_id, True)) and before != now:
            host.keep_draft(before[0], reading=before[1], text="")
        if text or before == now:
            host.keep_draft(session_id, reading=reading, text=text)
        self._under = now if text else None


def leave_behind(text: str, host: "Host", session: "SessionView") -> None:
    """Append `text` to the stored draft of a session that is not shown here."""
    from chatops.runtime.follower import SessionFollower

    session_id, reading = session.session_id, isinstance(session, SessionFollower)
    kept = host.draft(session_id, reading=reading)
    if text and not _holds(kept, text):
        host.keep_draft(session_id, reading=reading, text=_together(kept, text))


def _forget(text: str, host: "Host", session_id: "SessionId", *, reading: bool) -> None:
    """Remove a sent text from the draft of a session that was left while the text was being stored."""
    kept = host.draft(session_id, reading=reading)
    if kept == text or kept.startswith(f"{text}{_BETWEEN}"):
        host.keep_draft(session_id, reading=reading, text=kept[len(text) + len(_BETWEEN) :])


def _holds(whole: str, text: str) -> bool:
    """Return True if `text` is one of the parts that `whole` was joined from."""
    return f"{_BETWEEN}{text}{_BETWEEN}" in f"{_BETWEEN}{whole}{_BETWEEN}"


def _together(*texts: str) -> str:
    return _BETWEEN.join(text for text in texts if text)
