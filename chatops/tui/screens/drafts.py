"""Drafts: text typed and not sent is stored while it is typed, so that a killed window loses little of it.

A window that follows a session stores its draft apart, so that two windows on one session do not overwrite each other.
The next owner of the session gets both.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from chatops.tui.composer import Composer

if TYPE_CHECKING:
    from chatops.domain.ids import SessionId
    from chatops.engine.effects import ComposerDraft
    from chatops.runtime.view import SessionView
    from chatops.wiring.user_state import UserState

STORE_AFTER_S = 0.5
"""Seconds of typing that may be lost."""
_SEPARATOR = "\n\n"


class _Key(NamedTuple):
    """The key under which a draft is stored."""

    session_id: "SessionId"
    followed: bool
    """True for the draft of a window that follows the session."""


class _Stored(NamedTuple):
    """A draft that is stored."""

    key: _Key
    text: str | None
    """None if it is not known, because a commit with it may have failed."""


class _Open(NamedTuple):
    """The session whose draft is typed."""

    user: "UserState"
    session: "SessionView"
    followed: bool
    """True if another process owns it."""

    @property
    def key(self) -> _Key:
        """The key of its draft. A session without messages has no id yet."""
        return _Key(self.session.session_id, self.followed)

    def save(self, key: _Key, text: str) -> None:
        """Store a draft, which an empty text removes."""
        self.user.save_draft(key.session_id, followed=key.followed, text=text)


@dataclass(eq=False, repr=False, slots=True)
class _Sent:
    """A message sent and not stored yet."""

    session: "SessionView"
    text: str
    storing: bool = False
    """True from when its commit is under way: whatever is stored now is stored after it."""


class Drafts:
    """The draft of the open session. A session that is stored gets the draft that it had before."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._open: _Open | None = None
        self._due = False
        """True while a timer runs that stores the draft."""
        self._stored: _Stored | None = None
        """The stored draft of the open session; None if no draft is stored."""
        self.taking_back = False
        """True while a queued message is on its way into the composer: the store has it as the draft already."""
        self._sending: list[_Sent] = []
        """Messages sent and not stored yet, oldest first."""

    @property
    def being_stored(self) -> list[str]:
        """The messages sent and not stored yet, oldest first."""
        return [sent.text for sent in self._sending]

    def show(self, user: "UserState", session: "SessionView", *, followed: bool) -> None:
        """Keep what is typed as the draft of this session from now on. `followed`: another process owns it."""
        self._open = _Open(user, session, followed)

    def recall(self) -> None:
        """Put stored drafts of the open session before the typed text, except those it already contains."""
        if (current := self._open) is None:
            return
        user, typed = current.user, self._composer.full_text
        session_id, followed = current.key
        # The owner gets the draft of a window that has followed the session too.
        drafts_of = (True,) if followed else (False, True)
        stored = [user.draft(session_id, followed=by_follower) for by_follower in drafts_of]
        texts = [
            text for text in dict.fromkeys(stored) if text and not (typed.startswith(text) or _contains(typed, text))
        ]
        if texts:
            self._composer.set_text(_join_texts(*texts, typed))
        self._stored = _Stored(current.key, None) if any(stored) else None
        if not followed and stored[-1]:
            self.keep()
            current.save(_Key(session_id, followed=True), "")

    def changed(self) -> None:
        """Store the draft soon, after something was typed or deleted."""
        if not self._due:
            self._due = True
            self._composer.set_timer(STORE_AFTER_S, self.keep)

    @contextmanager
    def until_stored(self, text: str) -> Iterator["Callable[[], ComposerDraft | None]"]:
        """Treat `text` as part of the open session's draft within this block, until the session stores it.

        Yields a function that the session calls when it is about to store the message. It returns the draft without the
        message. Both belong into one commit, so that a killed window has the text either sent or typed.
        """
        assert self._open is not None
        sent_in, sent = self._open, _Sent(self._open.session, text)
        self._sending.append(sent)

        def take_draft() -> "ComposerDraft | None":
            sent.storing = True
            return self._draft_left(sent_in, text)

        try:
            yield take_draft
        except BaseException:
            # The store may have the draft with the message or without it.
            self._stored = self._stored._replace(text=None) if self._stored is not None else None
            raise
        finally:
            self._sending.remove(sent)
        self.keep()

    def _draft_left(self, sent_in: _Open, text: str) -> "ComposerDraft | None":
        """Return the draft of a session without its sent message `text`; None if none is stored."""
        from chatops.engine.effects import ComposerDraft

        user, key = sent_in.user, sent_in.key
        if self._open is None or sent_in.session is not self._open.session:
            # The session was left since. What was typed in it is stored.
            kept = user.draft(key.session_id, followed=key.followed)
            rest = _without_sent(text, kept)
            if rest == kept:
                return None
        elif self._stored is None:
            return None
        else:
            key, rest = self._stored.key, self._text(sent_in.session)
            self._stored = _Stored(key, rest)
        return ComposerDraft(setting=user.draft_setting(key.session_id, followed=key.followed), text=rest)

    def put_before(self, text: str) -> None:
        """Put `text` before what is typed, and store both."""
        self._composer.set_text(_join_texts(text, self._composer.full_text))
        self.keep()

    def keep(self) -> None:
        """Store the current draft. Sent messages are no longer part of it."""
        self._due = False
        if (current := self._open) is None or self.taking_back:
            return
        text, key, before = self._text(current.session), current.key, self._stored
        # The draft moves if the session has got an id, or is owned here now. The owner's is left to another owner.
        if before is not None and before.key != key and before.key in (("", False), (key.session_id, True)):
            if before.text != "":
                current.save(before.key, "")
            before = None
        if before != (key, text) and (text or (before is not None and before.key == key)):
            current.save(key, text)
        self._stored = _Stored(key, text) if text else None

    def _text(self, session: "SessionView") -> str:
        """Return the draft of the open session: messages sent and not being stored yet, and what is typed."""
        sent = [sent.text for sent in self._sending if sent.session is session and not sent.storing]
        return _join_texts(*sent, self._composer.full_text)


def append_to_draft(text: str, user: "UserState", session: "SessionView") -> None:
    """Append `text` to the stored draft of a session that is not shown here."""
    session_id, followed = session.session_id, session.is_followed
    kept = user.draft(session_id, followed=followed)
    if text and not _contains(kept, text):
        user.save_draft(session_id, followed=followed, text=_join_texts(kept, text))


def _without_sent(text: str, draft: str) -> str:
    """Return a draft without the sent message that it starts with."""
    starts = draft == text or draft.startswith(f"{text}{_SEPARATOR}")
    return draft[len(text) + len(_SEPARATOR) :] if starts else draft


def _contains(whole: str, text: str) -> bool:
    """Return True if `text` is one of the parts that `whole` was joined from."""
    return f"{_SEPARATOR}{text}{_SEPARATOR}" in f"{_SEPARATOR}{whole}{_SEPARATOR}"


def _join_texts(*texts: str) -> str:
    return _SEPARATOR.join(text for text in texts if text)
