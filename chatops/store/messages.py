"""The message tree: append-only, each message with its parent, shared by all sessions whose head is below it.

A message's row number is greater than its parent's. That is the order, and it ends every walk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatops.domain.errors import AlreadyStoredError, StoreError, UnreadableError
from chatops.domain.ids import MessageId, SessionId
from chatops.store.base import DailyUsage, Late
from chatops.store.connection import Connection, Value, number_or_zero, text, text_or, text_or_none

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chatops.domain.ids import TurnId
    from chatops.domain.messages import Message
    from chatops.store import codec
else:
    codec = Late("chatops.store.codec")

LARGEST = 16 * 1024 * 1024
"""Maximum characters of a stored message, far more than any user, model or tool produces."""

_CHAIN = """
    WITH RECURSIVE chain(seq, id, parent_id, depth) AS (
        SELECT seq, id, parent_id, 0 FROM messages WHERE id = ?1
        UNION ALL
        SELECT m.seq, m.id, m.parent_id, c.depth + 1
        FROM chain c JOIN messages m ON m.id = c.parent_id AND m.seq < c.seq
        WHERE ?2 IS NULL OR c.depth + 1 < ?2
    )
"""
"""The messages up to the first parameter, at most as many as the second one unless that is NULL."""


def append(
    rows: Connection,
    messages: Sequence[Message],
    *,
    session_id: SessionId,
    turn_id: TurnId | None,
    parent: MessageId | None,
    now: float,
    bodies: Sequence[str] | None = None,
) -> MessageId | None:
    """Add `messages` below `parent`, each below the one before, and return the new head.

    `bodies` are the encoded messages if the caller has them.

    Raises AlreadyStoredError for an id that is taken: nothing stored is ever overwritten.
    """
    if bodies is None:
        bodies = [codec.encode_message(message) for message in messages]
    for message, body in zip(messages, bodies, strict=True):
        if (found := rows.one("SELECT session_id FROM messages WHERE id = ?", message.id)) is not None:
            raise AlreadyStoredError(
                f"A message with the id {message.id} is stored already.",
                advice="Load the session again.",
                session_id=SessionId(text_or(found[0], "")),
            )
        if len(body) > LARGEST:
            raise StoreError("A message is too large to be saved.", advice="Send it in parts, or name a file instead.")
        rows.insert(
            "messages",
            id=message.id,
            parent_id=parent,
            session_id=session_id,
            turn_id=turn_id,
            kind=message.kind,
            body=body,
            created_at=now,
        )
        parent = message.id
    return parent


def chain(rows: Connection, head: MessageId | None, *, last: int | None = None) -> tuple[Message, ...]:
    """Return the messages up to `head`, oldest first. A damaged or missing one becomes a notice in its place.

    `last` limits them to the newest ones.
    """
    if head is None:
        return ()
    found = rows.all(
        _CHAIN + "SELECT c.id, m.parent_id, m.body FROM chain c JOIN messages m ON m.seq = c.seq ORDER BY c.depth DESC",
        head,
        last,
    )
    if not found:
        return (codec.damaged_message(head),)
    messages = [_decode_or_notice(body, MessageId(text(id_))) for id_, _, body in found]
    _, first_parent, _ = found[0]
    # Without `last`, the walk ends at the first message, or at one whose parent is not stored.
    lost = text_or_none(first_parent) if last is None else None
    return tuple(messages) if lost is None else (codec.damaged_message(MessageId(lost)), *messages)


def chain_ids(rows: Connection, head: MessageId | None) -> list[MessageId]:
    """Return the ids of all messages up to `head`, newest first."""
    if head is None:
        return []
    found = rows.all(_CHAIN + "SELECT id FROM chain ORDER BY depth", head, None)
    return [MessageId(text(id_)) for (id_,) in found]


def by_ids(rows: Connection, ids: Iterable[MessageId]) -> tuple[Message, ...]:
    """Return the messages with these ids, in this order. A damaged or missing one becomes a notice in its place."""
    ids = tuple(ids)
    stored = rows.all(f"SELECT id, body FROM messages WHERE id {rows.ONE_OF}", rows.listed(ids))
    found = {row[0]: row[1] for row in stored}
    return tuple(_decode_or_notice(found.get(id_), id_) for id_ in ids)


def decode_body(body: Value, message_id: MessageId) -> Message:
    """Decode a stored message. Raises UnreadableError.

    One that is larger than any real one is damaged, and is not even parsed.
    """
    if isinstance(body, str) and len(body) > LARGEST:
        raise UnreadableError("A stored message is damaged: it exceeds the size limit.")
    return codec.decode_message(body, message_id=message_id)


def _decode_or_notice(body: Value, message_id: MessageId) -> Message:
    """Return a stored message, or a notice in place of a damaged one, so that the rest can be read."""
    try:
        return decode_body(body, message_id)
    except UnreadableError:
        return codec.damaged_message(message_id)


def daily_usage(rows: Connection, *, workspace: str, since: float) -> list[DailyUsage]:
    """Return the rows of `Store.daily_usage`. What cannot be read counts as no usage."""
    model = rows.FIELD.format(column="m.body", field="model")
    tokens_in, tokens_out, cost = (
        rows.NUMBER.format(column="m.body", field=f"usage.{field}")
        for field in ("input_tokens", "output_tokens", "cost")
    )
    found = rows.all(
        f"SELECT {rows.DAY.format(column='m.created_at')} AS day, {model} AS model, "
        f"sum({tokens_in} + {tokens_out}), sum({cost}), count({tokens_in}) - count({cost}) "
        "FROM messages m JOIN sessions s ON s.id = m.session_id "
        "WHERE m.created_at >= ? AND s.workspace = ? AND m.kind IN ('assistant', 'summary') "
        f"AND {rows.IS_OBJECT.format(column='m.body')} "
        f"GROUP BY day, model HAVING count({tokens_in}) > 0 ORDER BY day DESC, 3 DESC",
        since,
        workspace,
    )
    return [
        DailyUsage(
            day=text_or(day, ""),
            model=text_or(name, ""),
            tokens=int(number_or_zero(tokens)),
            cost=None if price is None else number_or_zero(price),
            unpriced=int(number_or_zero(unpriced)),
        )
        for day, name, tokens, price, unpriced in found
    ]


def find_missing(rows: Connection, ids: Sequence[MessageId]) -> list[MessageId]:
    """Return those of `ids` that are not stored."""
    # Count first, which is quick: each step of a long turn asks for hundreds of messages, and none is ever missing.
    listed, among = rows.listed(ids), f"FROM messages WHERE id {rows.ONE_OF}"
    if rows.one(f"SELECT count(*) {among}", listed) == (len(set(ids)),):
        return []
    found = {id_ for (id_,) in rows.all(f"SELECT id {among}", listed)}
    return [id_ for id_ in ids if id_ not in found]


def delete_unshared(rows: Connection, head: MessageId | None) -> None:
    """Delete the messages up to `head` that no remaining session has in its history."""
    path = chain_ids(rows, head)
    gone = set(path)
    for message_id in path:
        # A message that another session has is followed by messages that it has, too.
        if rows.one("SELECT 1 FROM sessions WHERE head = ?", message_id) is not None:
            return
        children = rows.all("SELECT id FROM messages WHERE parent_id = ?", message_id)
        if any(MessageId(text(child)) not in gone for (child,) in children):
            return
        rows.run("DELETE FROM messages WHERE id = ?", message_id)
