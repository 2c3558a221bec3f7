"""Search in the text of all sessions: SQLite compares the stored messages, and what it finds is compared again.

There is no index: a megabyte of messages takes some 6 ms. An index of trigrams in a file beside the store was tried. It
found a text in stores of gigabytes at once, and had to be kept up, private, and apart from those of other stores.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING

from chatops.domain.ids import MessageId, SessionId
from chatops.store import messages
from chatops.store.base import ALL, SearchHit
from chatops.store.connection import Connection, Value
from chatops.store.sessions import list_infos

if TYPE_CHECKING:
    from collections.abc import Iterator

_BATCH = 2_000
"""Messages that are searched in one transaction. The store is free between two of them, so that a turn can commit."""
_COMPARED_CHARACTERS = 200
"""Characters of the text that SQLite compares: a longer pattern with many gaps would take it too long."""


def search(rows: Connection, wanted: str, *, workspace: str | None, most: int) -> list[SearchHit]:
    """Return the hits of `Store.search`.

    A message is a hit in each session that has it. A session whose title contains the text, and none of whose messages
    do, comes last.
    """
    folded = wanted.casefold()
    with rows.read():
        infos = list_infos(rows, workspace=workspace, limit=ALL)

    @cache
    def chain(head: MessageId | None) -> frozenset[MessageId]:
        return frozenset(messages.chain_ids(rows, head))

    hits: list[SearchHit] = []
    for message_id, session_id, body in _find_candidates(rows, _pattern_of(wanted)):
        if folded in body.casefold():
            # The session that it was written in, and copies of that.
            candidates = (info for info in infos if info.id == session_id or info.forked_from is not None)
            with rows.read():
                found_in = [info for info in candidates if message_id in chain(info.head)]
            hits += (SearchHit(session=info, message_id=message_id, text=body) for info in found_in)
        if len(hits) >= most:
            return hits[:most]
    named = {hit.session.id for hit in hits}
    titled = (info for info in infos if folded in info.title.casefold() and info.id not in named)
    return [*hits, *(SearchHit(session=info, message_id=None, text=info.title) for info in titled)][:most]


def _pattern_of(wanted: str) -> str:
    """Return the pattern of stored messages that may contain a text.

    A gap stands for what is escaped in JSON, and for letters whose case SQLite does not know.
    """
    return f"%{''.join(map(_escape_letter, wanted[:_COMPARED_CHARACTERS]))}%"


def _escape_letter(char: str) -> str:
    has_other_case = not char.isascii() and char.lower() != char.upper()
    if not char.isprintable() or char in '"\\' or has_other_case:
        return "%"
    return f"!{char}" if char in "!%_" else char


def _find_candidates(rows: Connection, pattern: str) -> Iterator[tuple[MessageId, SessionId, str]]:
    """Yield messages that may contain the text of a pattern, newest first."""
    # LIKE compares 50 MB in 0.3 s, in PostgreSQL in 0.7 s.
    before: Value = None
    while True:
        with rows.read():
            batch = rows.all(rows.SEARCH, pattern, before, _BATCH)
        for _, message_id, session_id, body in batch:
            if isinstance(message_id, str) and isinstance(session_id, str) and isinstance(body, str):
                yield MessageId(message_id), SessionId(session_id), _text_of(body)
        if len(batch) < _BATCH:
            return
        before, *_ = batch[-1]


def _text_of(body: str) -> str:
    """Return the text of a stored message; empty if it is damaged."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    said = value.get("content" if value.get("kind") == "tool" else "text")
    return said if isinstance(said, str) else ""
