"""Rows read straight from the pages of a database whose B-trees are damaged.

Follows "Database File Format", sections 1.6, 2.1 and 4. Only messages and their sessions are looked for: they can be
recognised by their form, and nothing can be run because of them. Stores overwrite what is deleted, so nothing deleted
is found.
"""

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from chatops.store.connection import Row, Value
from chatops.store.schema import APPLICATION_ID, MAGIC, application_id

PAGE = 4096
"""Page size of every store, in bytes."""
COLUMNS = {
    "messages": ("seq", "id", "parent_id", "session_id", "turn_id", "kind", "body", "created_at"),
    "sessions": (
        *("seq", "id", "workspace", "title", "role", "model_pin", "persona", "head", "forked_from", "active_turn"),
        *("last_turn", "turn_counter", "message_count", "activity", "created_at", "updated_at"),
    ),
}
"""The tables whose rows are looked for, with their columns in order."""
_LEAF = 0x0D
_LOG_HEADER, _FRAME_HEADER = 32, 24
_KINDS = frozenset({"user", "assistant", "tool", "role_switch", "notice"})
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
"""Bytes of integers by their serial type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """A row and the table it must have been in. Its row number is its first value."""

    table: str
    row: Row


def rows_on_pages(path: Path) -> Iterator[Found]:
    """Yield the messages and sessions on the pages of a file and of the log beside it, in no order.

    The file must not be open in this process. Raises OSError.
    """
    pages = _pages(path.read_bytes())
    log = Path(f"{path}-wal")
    if log.exists():
        pages.update(_logged(log.read_bytes()))
    for number, page in pages.items():
        for cell in _cells(page, start=100 if number == 1 else 0):
            found = _told_apart(_record(cell, page, pages))
            if found is not None:
                yield found


def image_with_magic(path: Path) -> bytes | None:
    """Return the database of a file and its log, with the magic bytes of the header restored.

    None if the header is intact, or is not a store's. The file must not be open in this process. Raises OSError.
    """
    data = path.read_bytes()
    if data.startswith(MAGIC) or application_id(data) != APPLICATION_ID:
        return None
    log = Path(f"{path}-wal")
    pages = _pages(data) | (_logged(log.read_bytes()) if log.exists() else {})
    if 1 not in pages:
        return None
    first = bytearray(pages[1])
    first[: len(MAGIC)] = MAGIC
    # Rollback mode: a database in memory has no log.
    first[18:20] = b"\x01\x01"
    pages[1] = bytes(first)
    return b"".join(pages.get(number, bytes(PAGE)) for number in range(1, max(pages) + 1))


def _pages(data: bytes) -> dict[int, bytes]:
    return {1 + at // PAGE: data[at : at + PAGE] for at in range(0, len(data) - PAGE + 1, PAGE)}


def _logged(data: bytes) -> dict[int, bytes]:
    """Return the newest committed version of each page in a write-ahead log."""
    committed: dict[int, bytes] = {}
    waiting: dict[int, bytes] = {}
    salt = data[16:24]
    for at in range(_LOG_HEADER, len(data) - _FRAME_HEADER - PAGE + 1, _FRAME_HEADER + PAGE):
        number, size = struct.unpack_from(">II", data, at)
        if data[at + 8 : at + 16] != salt:
            break
        waiting[number] = data[at + _FRAME_HEADER : at + _FRAME_HEADER + PAGE]
        if size:
            committed.update(waiting)
            waiting.clear()
    return committed


def _cells(page: bytes, *, start: int) -> Iterator[int]:
    """Yield the positions of the rows of a leaf page; none on any other page."""
    if page[start] != _LEAF:
        return
    count = int.from_bytes(page[start + 3 : start + 5], "big")
    for place in range(start + 8, min(start + 8 + 2 * count, PAGE - 1), 2):
        yield int.from_bytes(page[place : place + 2], "big")


def _record(at: int, page: bytes, pages: dict[int, bytes]) -> Sequence[Value]:
    """Return the row at a position of a page, its number first; empty if it cannot be read."""
    try:
        size, at = _varint(page, at)
        number, at = _varint(page, at)
        payload = _payload(size, at, page, pages)
        return (number, *_values(payload)[1:])
    except (IndexError, struct.error, OverflowError, ValueError):
        return ()


def _payload(size: int, at: int, page: bytes, pages: dict[int, bytes]) -> bytes:
    """Return a row's bytes, including those on overflow pages. Raises ValueError if some are lost."""
    most = PAGE - 35
    local = size
    if size > most:
        least = (PAGE - 12) * 32 // 255 - 23
        local = least + (size - least) % (PAGE - 4)
        local = local if local <= most else least
    parts = [page[at : at + local]]
    left = size - local
    following = int.from_bytes(page[at + local : at + local + 4], "big") if left else 0
    while left > 0:
        if following not in pages:
            raise ValueError("a page of the row is lost")
        further = pages[following]
        following = int.from_bytes(further[:4], "big")
        parts.append(further[4 : 4 + left])
        left -= PAGE - 4
    payload = b"".join(parts)
    if len(payload) != size:
        raise ValueError("the row is cut off")
    return payload


def _values(payload: bytes) -> list[Value]:
    end, at = _varint(payload, 0)
    types = []
    while at < end:
        kind, at = _varint(payload, at)
        types.append(kind)
    values: list[Value] = []
    at = end
    for kind in types:
        value, at = _value(kind, payload, at)
        values.append(value)
    return values


def _value(kind: int, payload: bytes, at: int) -> tuple[Value, int]:
    match kind:
        case 0:
            return None, at
        case 8 | 9:
            return kind - 8, at
        case 7:
            return struct.unpack_from(">d", payload, at)[0], at + 8
        case _ if kind in _INTEGERS:
            length = _INTEGERS[kind]
            return int.from_bytes(payload[at : at + length], "big", signed=True), at + length
        case _ if kind >= 12:
            length = (kind - 12) // 2
            if at + length > len(payload):
                raise ValueError("a value is cut off")
            return payload[at : at + length].decode("utf-8", "surrogatepass"), at + length
        case _:
            raise ValueError(f"there is no serial type {kind}")


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return a varint of one to nine bytes, and the position after it."""
    value = 0
    for length in range(8):
        byte = data[at + length]
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at + length + 1
    return value << 8 | data[at + 8], at + 9


def _told_apart(values: Sequence[Value]) -> Found | None:
    """Return the row with its table, which is recognised by the row's form."""
    length = len(values)
    if length == len(COLUMNS["messages"]) and values[5] in _KINDS and _texts(values[1], values[3], values[6]):
        return Found(table="messages", row=tuple(values))
    if length == len(COLUMNS["sessions"]) and _texts(*values[1:7]) and isinstance(values[13], int):
        return Found(table="sessions", row=tuple(values))
    return None


def _texts(*values: Value) -> bool:
    return all(isinstance(value, str) for value in values)
