"""Bounded text of tools for the model and the user: head and tail are kept, and it states how much was left out."""

from collections.abc import Sequence

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut

_SNIFF_BYTES = 8_192
"""Bytes at the start of data by which `is_binary` judges it."""
_MIN_LIMIT = 200
"""Smallest limit in characters: a smaller one could not hold the marker."""


@frozen_dataclass
class Capped:
    """Text within a limit."""

    text: str
    truncated: bool = False
    """True if something was left out."""


def marker(*, omitted: int, total: int, unit: str) -> str:
    """Return the line that replaces what was left out."""
    return f"\n[… {omitted:,} of {total:,} {unit} left out here …]\n"


def cap(text: str, *, limit: int) -> Capped:
    """Cut `text` to `limit` characters: two thirds head, one third tail, a marker between. Blank text becomes empty."""
    if not text.strip():
        return Capped(text="")
    limit = max(limit, _MIN_LIMIT)
    if len(text) <= limit:
        return Capped(text=text)
    room = limit - len(marker(omitted=len(text), total=len(text), unit="characters"))
    tail = room // 3
    head = room - tail
    middle = marker(omitted=len(text) - room, total=len(text), unit="characters")
    return Capped(text=text[:head] + middle + text[len(text) - tail :], truncated=True)


def is_binary(data: bytes) -> bool:
    """Return True if `data` is not text: a NUL byte, or over 30 % control bytes, in its first 8 KiB."""
    sample = data[:_SNIFF_BYTES]
    if b"\0" in sample:
        return True
    odd = sum(1 for byte in sample if byte < 32 and byte not in b"\t\n\r\f\b\x1b")
    return odd * 10 > len(sample) * 3


def visible(text: str, *, limit: int = 80) -> str:
    """Return `text` on one line, cut to `limit` characters before invisible ones are spelled out."""
    short = cut(text, most=limit)
    return "".join(
        char if char == " " or (char.isprintable() and not char.isspace()) else _spell(char) for char in short
    )


def _spell(char: str) -> str:
    escapes = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}
    return escapes.get(char, f"<U+{ord(char):04X}>")


def without_surrogates(text: str) -> str:
    """Return `text` with a question mark for each lone surrogate, which would break whatever stores or sends it."""
    return text.encode("utf-8", "replace").decode("utf-8")


def list_names(names: Sequence[str], *, most: int) -> str:
    """Return ``a, b and 3 more``: at most `most` names, and how many were left out."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class Collector:
    """Collects any number of bytes and keeps a bounded head and tail of them."""

    def __init__(self, *, limit: int) -> None:
        """Create a collector for `limit` characters. UTF-8 needs at most four bytes for each of them."""
        # Head and tail of this size hold `limit` characters of four bytes, two bytes per character each.
        self._room = max(limit, _MIN_LIMIT) * 2
        self._head = bytearray()
        self._tail = bytearray()
        """Ends with the last `_room` bytes. It is cut only when it is twice as long, which copies less."""
        self.total = 0
        """Bytes received so far."""

    def feed(self, data: bytes) -> None:
        """Add `data`; bytes that do not fit are dropped from the middle."""
        self.total += len(data)
        room = self._room - len(self._head)
        self._head += data[:room]
        self._tail += data[room:]
        if len(self._tail) > 2 * self._room:
            del self._tail[: -self._room]

    def text(self) -> str:
        """Return head and tail as text; this is the complete text only if nothing was dropped."""
        return (bytes(self._head) + bytes(self._tail)).decode("utf-8", "replace")

    def capped(self, *, limit: int) -> Capped:
        """Return the collected text within `limit` characters; binary data is described instead of shown."""
        tail = bytes(self._tail[-self._room :])
        if is_binary(bytes(self._head)):
            return Capped(text=f"[binary output, {self.total:,} bytes, not shown]", truncated=True)
        omitted = self.total - len(self._head) - len(tail)
        if not omitted:
            text = (bytes(self._head) + tail).decode("utf-8", "replace")
            return cap(text, limit=limit)
        limit = max(limit, _MIN_LIMIT)
        room = limit - len(marker(omitted=self.total, total=self.total, unit="bytes"))
        last = tail.decode("utf-8", "replace")[-(room // 3) :]
        first = self._head.decode("utf-8", "replace")[: room - room // 3]
        # A byte that is no UTF-8 became a character of three bytes, so `kept_bytes` may be too large.
        kept_bytes = len(first.encode("utf-8", "replace")) + len(last.encode("utf-8", "replace"))
        middle = marker(omitted=max(self.total - kept_bytes, omitted), total=self.total, unit="bytes")
        return Capped(text=first + middle + last, truncated=True)
