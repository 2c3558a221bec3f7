"""Search over the text of all sessions: SQLite's FTS5 with the trigram tokenizer, in a file of its own.

The index is a cache beside the store, ``chatops.db.search``. It holds no text, only where each sequence of three
characters occurs. Messages that are newer than the index are added while the app is idle, so that nothing is indexed
while a turn waits for the disk, and for two seconds before each search. The search reads the messages that are missing
then, because the first index of a store of gigabytes takes many minutes. The index is deleted with any session, and
whenever it does not belong to this store, and made again by the next search. Each hit is checked against the stored
message, so a wrong index can miss something and never invents anything.

Texts of fewer than three characters, and every text where FTS5 is absent or the index cannot be written, are searched
for in all messages one by one.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from contextlib import closing, contextmanager, suppress
from typing import TYPE_CHECKING

from chatops.domain.ids import MessageId, SessionId
from chatops.store import messages, sessions
from chatops.store.base import SearchHit
from chatops.store.connection import Connection, Value, connect
from chatops.store.identity import IDENTITY_KEY
from chatops.store.opening import uri

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from chatops.store.base import SessionInfo

log = logging.getLogger(__name__)

LEAST = 3
"""Characters of a text that the index can find."""
_AT_ONCE = 200
"""Messages that are read in one transaction."""
_MOST_INDEXED = 2_000_000
"""Characters that are indexed in one transaction, about half a second. A single longer message is indexed whole."""
_MOST_CHECKED = 20_000
"""Hits of the index that are compared with their messages; the newest come first."""
_MOST_THREES = 60
_KINDS = "('user', 'assistant', 'tool', 'summary')"
_EVERYTHING = 1_000_000


NO_INDEX = "The SQLite of this Python has no FTS5 with trigrams, so every message is read for each search"


def can_index() -> bool:
    """Return True if SQLite has what the index needs: FTS5 with the trigram tokenizer (SQLite 3.34)."""
    with closing(connect(":memory:")) as probe:
        try:
            probe.execute("CREATE VIRTUAL TABLE probe USING fts5(text, content='', tokenize='trigram')")
        except sqlite3.Error:
            return False
    return True


def index_of(path: Path) -> Path:
    """Return the name of the index of the store at `path`."""
    return path.with_name(f"{path.name}.search")


def remove_index(path: Path) -> None:
    """Delete the index of the store at `path`, which may hold traces of a deleted session."""
    for suffix in ("", "-journal"):
        with suppress(OSError):
            index_of(path).with_name(f"{index_of(path).name}{suffix}").unlink()


def search(rows: Connection, wanted: str, *, workspace: str | None, most: int) -> list[SearchHit]:
    """Return hits in what `update_index` has indexed, newest first, whatever the case.

    A message is a hit in each session that has it. A session whose title contains the text, and none of whose messages
    do, comes last.
    """
    folded = wanted.casefold()
    with rows.read():
        listed = sessions.listed(rows, workspace=workspace, limit=_EVERYTHING)
    places = _Places(rows, listed)
    hits: list[SearchHit] = []
    for message_id, session_id, text in _found(rows, wanted):
        if folded in text.casefold():
            with rows.read():
                found_in = places.of(session_id, message_id)
            hits += (SearchHit(session=info, message_id=message_id, text=text) for info in found_in)
        if len(hits) >= most:
            return hits[:most]
    named = {hit.session.id for hit in hits}
    titled = (info for info in listed if folded in info.title.casefold() and info.id not in named)
    return [*hits, *(SearchHit(session=info, message_id=None, text=info.title) for info in titled)][:most]


def update_index(rows: Connection, *, go_on: Callable[[], bool] = lambda: True) -> bool:
    """Add new messages to the index, in steps, as long as `go_on` returns True. Return False if there is no index."""
    try:
        with rows.read():
            owner = _owner(rows)
        with _opened(rows, owner=owner) as index:
            more = True
            while more and go_on():
                # The lock is free between the steps, so that a turn can commit.
                with rows.read():
                    more = _add(rows, index)
            return True
    except sqlite3.Error as error:
        log.info("no index for searching: %s", error)
        return False


def _found(rows: Connection, wanted: str) -> Iterator[tuple[MessageId, SessionId, str]]:
    """Yield messages that may contain `wanted`, newest first. Between two steps the store is free for others."""
    with rows.read():
        numbers, last = _indexed(rows, wanted) if len(wanted) >= LEAST else ([], 0)
    # Messages that the index does not have: all without one, and the newest where it cannot be written.
    before: Value = None
    while True:
        with rows.read():
            batch = rows.all(
                f"SELECT seq FROM messages WHERE kind IN {_KINDS} AND seq > ?1 AND (?2 IS NULL OR seq < ?2) "
                "ORDER BY seq DESC LIMIT ?3",
                last,
                before,
                _AT_ONCE,
            )
        if not batch:
            break
        before = batch[-1][0]
        yield from _read(rows, [int(str(row[0])) for row in batch])
    for start in range(0, len(numbers), _AT_ONCE):
        yield from _read(rows, numbers[start : start + _AT_ONCE])


def _indexed(rows: Connection, wanted: str) -> tuple[list[int], int]:
    """Return the numbers of indexed messages that may contain `wanted`, newest first, and the last indexed number.

    The latter is 0 if there is no index.
    """
    owner = _owner(rows)
    try:
        with _opened(rows, owner=owner, only_read=bool(rows.unsaved)) as index:
            sql = "SELECT rowid FROM texts WHERE texts MATCH ? ORDER BY rowid DESC LIMIT ?"
            numbers = [int(row[0]) for row in index.execute(sql, (_query(wanted), _MOST_CHECKED))]
            return numbers, int(index.execute("SELECT last FROM belongs").fetchone()[0])
    except sqlite3.Error as error:
        log.info("searching without an index: %s", error)
        if not (rows.unsaved or isinstance(error, sqlite3.OperationalError)):
            remove_index(rows.path)
        return [], 0


def _query(wanted: str) -> str:
    """Return the query for messages that have all sequences of three characters of a text, wherever they are."""
    text = _plain(wanted)
    threes = dict.fromkeys(text[at : at + LEAST].replace('"', '""') for at in range(len(text) - LEAST + 1))
    return " AND ".join(f'"{three}"' for three in list(threes)[:_MOST_THREES])


def _read(rows: Connection, numbers: Sequence[int]) -> Iterator[tuple[MessageId, SessionId, str]]:
    sql = f"SELECT id, session_id, body FROM messages WHERE seq = ? AND kind IN {_KINDS}"
    with rows.read():
        found = [rows.one(sql, number) for number in numbers]
    for row in found:
        if row is not None and isinstance(row[0], str) and isinstance(row[1], str):
            yield MessageId(row[0]), SessionId(row[1]), _text_of(row[2])


@contextmanager
def _opened(rows: Connection, *, owner: str, only_read: bool = False) -> Iterator[sqlite3.Connection]:
    """Open the index, new if it is not of this `owner`. Raises sqlite3.Error, also if FTS5 is absent."""
    path = index_of(rows.path)
    if only_read:
        place = rows.one("PRAGMA database_list")
        if place is None or not place[2]:
            raise sqlite3.OperationalError("the store is a copy in memory, whose numbers may be others")
        with closing(connect(uri(path, mode="ro"))) as index:
            if index.execute("SELECT owner FROM belongs").fetchone() != (owner,):
                raise sqlite3.OperationalError("the index is of another store")
            yield index
        return
    if rows.unsaved:
        raise sqlite3.OperationalError("the store is in memory")
    try:
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
    except OSError as error:
        raise sqlite3.OperationalError(str(error)) from error
    with closing(connect(path)) as index:
        index.execute("PRAGMA synchronous = OFF")  # It is only a cache.
        try:
            known = index.execute("SELECT owner FROM belongs").fetchone()
        except sqlite3.DatabaseError:
            known = None
        if known is None or known[0] != owner:
            index.execute("BEGIN IMMEDIATE")
            for table in ("belongs", "texts"):
                index.execute(f"DROP TABLE IF EXISTS {table}")
            index.execute("CREATE TABLE belongs (owner TEXT, last INTEGER)")
            index.execute("CREATE VIRTUAL TABLE texts USING fts5(text, content='', detail='none', tokenize='trigram')")
            index.execute("INSERT INTO belongs VALUES (?, 0)", (owner,))
            index.execute("COMMIT")
        yield index


def _owner(rows: Connection) -> str:
    """Return what tells this store from one that was put in its place."""
    place = rows.one("SELECT value FROM settings WHERE key = ?", IDENTITY_KEY)
    return str(place[0]) if place is not None else ""


def _add(rows: Connection, index: sqlite3.Connection) -> bool:
    """Index the next messages, and return False if there are none left."""
    index.execute("BEGIN IMMEDIATE")
    try:
        (last,) = index.execute("SELECT last FROM belongs").fetchone()
        batch = rows.all(
            f"SELECT seq, body, kind IN {_KINDS} FROM messages WHERE seq > ? ORDER BY seq LIMIT ?", last, _AT_ONCE
        )
        size = 0
        for number, body, counts in batch:
            if counts and (text := _text_of(body)):
                index.execute("INSERT INTO texts(rowid, text) VALUES (?, ?)", (number, _plain(text)))
                size += len(text)
            index.execute("UPDATE belongs SET last = ?", (number,))
            if size >= _MOST_INDEXED:
                break
        index.execute("COMMIT")
    except BaseException:
        if index.in_transaction:
            index.execute("ROLLBACK")
        raise
    return len(batch) == _AT_ONCE or size >= _MOST_INDEXED


def _text_of(body: Value) -> str:
    """Return the text of a stored message; empty if it is damaged."""
    try:
        value = json.loads(body) if isinstance(body, str) else None
    except (ValueError, RecursionError):
        return ""
    if not isinstance(value, dict):
        return ""
    text = value.get("content" if value.get("kind") == "tool" else "text")
    return text if isinstance(text, str) else ""


def _plain(text: str) -> str:
    """Return `text` as SQLite takes it: no lone surrogates, no NUL."""
    return text.encode("utf-8", "replace").decode("utf-8").replace("\0", " ")


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
