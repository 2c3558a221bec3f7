"""Read the entries of a git index without git, see gitformat-index(5). The index may be a stranger's."""

import os
from collections.abc import Iterator

from chatops.domain.frozen_dataclass import frozen_dataclass

SUBMODULE = 0o160000
"""Mode of a submodule."""
_TYPE_BITS = 0o170000
_HEADER_BYTES, _MODE_AT, _ID_AT = 12, 24, 40
"""Bytes of the header, and where in an entry the mode and the object's id are. Two bytes of flags follow the id."""
_EXTENDED = 0x4000
"""Flag of an entry that has two more bytes of flags."""
_LONGEST_PATH = 0xFFF
"""The longest path whose length an entry states, which is also the mask of the length in the flags."""
_NOT_BELOW = frozenset({"", ".", "..", ".git"})
"""Parts of a path that leads out of a work tree."""


@frozen_dataclass
class Tracked:
    """An entry of the index."""

    path: str
    mode: int
    """The bits for the kind of file."""


def index_entries(data: bytes, *, id_bytes: int) -> Iterator[Tracked]:
    """Yield the entries of an index whose object ids have `id_bytes` bytes. Raises ValueError and IndexError."""
    version = int.from_bytes(data[4:8], "big")
    if data[:4] != b"DIRC" or version not in (2, 3, 4):
        raise ValueError("not an index")
    at, path = _HEADER_BYTES, b""
    for _ in range(int.from_bytes(data[8:12], "big")):
        mode = int.from_bytes(data[at + _MODE_AT : at + _MODE_AT + 4], "big")
        flags_at = at + _ID_AT + id_bytes
        flags = int.from_bytes(data[flags_at : flags_at + 2], "big")
        start = flags_at + (4 if flags & _EXTENDED else 2)
        kept = 0
        if version == 4:
            # A path begins as the one before does, except for so many of its last bytes.
            cut, start = _read_number(data, start)
            kept = len(path) - cut
        end = data.index(b"\0", start)
        path = path[:kept] + data[start:end]
        # Git takes the length from the entry, and looks for the next entry behind it.
        if kept < 0 or flags & _LONGEST_PATH != min(len(path), _LONGEST_PATH):
            raise ValueError("not an index")
        # Git makes no such entries, but follows them. A shared index leaves names out, a sparse one names folders.
        if path and not _NOT_BELOW.isdisjoint(os.fsdecode(path).removesuffix("/").casefold().split("/")):
            raise ValueError("not an index of a work tree")
        # Before version 4 each entry is padded to a multiple of eight bytes, with at least one NUL.
        at = end + 1 if version == 4 else at + ((end - at) // 8 + 1) * 8
        yield Tracked(path=os.fsdecode(path), mode=mode & _TYPE_BITS)


def _read_number(data: bytes, at: int) -> tuple[int, int]:
    """Read an integer of variable width; return it and the offset after it."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = ((value + 1) << 7) | (data[at] & 127)
    return value, at + 1
