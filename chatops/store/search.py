"""Search over the text of all sessions: SQLite compares the stored messages, and what it finds is compared again.

No index: a megabyte of messages takes some 6 ms. An index of trigrams in a file beside the store was tried. It found a
text in stores of gigabytes at once, and had to be kept up, private, and apart from those of other stores.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from chatops.domain.ids import MessageId, SessionId
from chatops.store import messages, sessions
from chatops.store.base import ALL, SearchHit
from chatops.store.connection import Connection, Value

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chatops.store.base import SessionInfo

_AT_ONCE = 2_000
"""Messages that are looked at in one transaction. The store is free between two of them, so that a turn can commit."""
_COMPARED = 200
"""Characters of the text that SQLite compares. A long pattern with many gaps takes it long."""
_LOOK = """
    SELECT seq, id, session_id, CASE WHEN kind IN ('user', 'assistant', 'tool', 'summary') AND {matches} THEN body END
    FROM messages WHERE ?2 IS NULL OR seq < ?2 ORDER BY seq DESC LIMIT ?3
"""


def search(rows: Connection, wanted: str, *, workspace: str | None, most: int) -> list[SearchHit]:
    """Return the hits of `Store.search`.

    A message is a hit in each session that has it. A session whose title contains the text, and none of whose messages
    do, comes last.
    """
    folded = wanted.casefold()
    with rows.read():
        listed = sessions.listed(rows, workspace=workspace, limit=ALL)
    places = _Places(rows, listed)
    hits: list[SearchHit] = []
    for message_id, session_id, text in _found(rows, _pattern(wanted)):
        if folded in text.casefold():
            with rows.read():
                found_in = places.of(session_id, message_id)
            hits += (SearchHit(session=info, message_id=message_id, text=text) for info in found_in)
        if len(hits) >= most:
            return hits[:most]
    named = {hit.session.id for hit in hits}
    titled = (info for info in listed if folded in info.title.casefold() and info.id not in named)
    return [*hits, *(SearchHit(session=info, message_id=None, text=info.title) for info in titled)][:most]


def _pattern(wanted: str) -> str:
    """Return the pattern of stored messages that may contain a text.

    A gap stands for what is escaped in JSON, and for letters whose case SQLite does not know.
    """
    return f"%{''.join(map(_part, wanted[:_COMPARED]))}%"


def _part(char: str) -> str:
    if not char.isprintable() or char in '"\\' or (not char.isascii() and char.lower() != char.upper()):
        return "%"
    return f"!{char}" if char in "!%_" else char


def _found(rows: Connection, pattern: str) -> Iterator[tuple[MessageId, SessionId, str]]:
    """Yield messages that may contain the text of a pattern, newest first."""
    look = _LOOK.format(matches=rows.MATCHES.format(column="body"))
    before: Value = None
    while True:
        with rows.read():
            batch = rows.all(look, pattern, before, _AT_ONCE)
        for _, message_id, session_id, body in batch:
            if isinstance(message_id, str) and isinstance(session_id, str) and isinstance(body, str):
                yield MessageId(message_id), SessionId(session_id), _text_of(body)
        if len(batch) < _AT_ONCE:
            return
        before = batch[-1][0]


def _text_of(body: str) -> str:
    """Return the text of a stored message; empty if it is damaged."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    text = value.get("content" if value.get("kind") == "tool" else "text")
    return text if isinstance(text, str) else ""


class _Places:
    """The sessions that a message is in: the one that it was written in, and copies of that."""

    def __init__(self, rows: Connection, listed: list[SessionInfo]) -> None:
        self._rows = rows
        self._listed = listed
        self._chains: dict[SessionId, frozenset[MessageId]] = {}

    def of(self, session_id: SessionId, message_id: MessageId) -> list[SessionInfo]:
        """Return the listed sessions with a message that was written in `session_id`."""
        may = (info for info in self._listed if info.id == session_id or info.forked_from is not None)
        return [info for info in may if message_id in self._chain(info)]

    def _chain(self, info: SessionInfo) -> frozenset[MessageId]:
        if info.id not in self._chains:
            self._chains[info.id] = frozenset(messages.chain_ids(self._rows, info.head))
        return self._chains[info.id]
