"""Identity of a store's file, kept in the file itself, so that a copy is recognised when it is opened.

A file that is copied, or restored from a backup, gets another inode and creation time. One that is renamed on its file
system keeps both. In a copy, no earlier approval lets anything run, because the approved work may have been done where
the copy comes from. An unknown part of the identity counts as equal. Not recognised are a file that was overwritten in
place (``cp`` onto it), or restored with the whole disk.
"""

import ctypes
import hashlib
import json
import sqlite3
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from chatops.domain.decisions import Approved, Edited
from chatops.domain.errors import UnreadableError
from chatops.domain.ids import TurnId
from chatops.engine.workflow.inputs import ReviewStep, Stop
from chatops.store.codec import decode_decision
from chatops.store.connection import Value
from chatops.store.mounts import file_system, is_network
from chatops.store.run_codec import decode_word
from chatops.store.transaction import transaction

MACHINE_ID = Path("/etc/machine-id")
"""See machine-id(5). Many containers have none."""

COPIED = "copied:"
"""Prefix of the settings that name turns of a copied store, see `copied_key`."""

_PLACE = "place"
_CHANGING_NUMBERS = frozenset({"cifs", "exfat", "fuse", "msdos", "ncpfs", "smb3", "smbfs", "vfat"})
"""File systems that may give a file another inode number the next time it is looked at."""

# statx(2): the offsets are those of `struct statx`.
_AT_FDCWD, _STATX_BTIME, _STATX_SIZE = -100, 0x800, 256
_MASK, _BTIME = struct.Struct("=I"), struct.Struct("=80xqI")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Identity of a file, beyond its name."""

    machine: str
    """Digest of the machine id; empty if the machine has none, or the file is on another machine."""
    inode: int
    born: int
    """Creation time in nanoseconds since the epoch; 0 if the file system does not tell."""

    def may_be(self, other: "Place") -> bool:
        """Return True if nothing known of both differs."""
        machines, births = {self.machine, other.machine} - {""}, {self.born, other.born} - {0}
        return self.inode == other.inode and len(machines) < 2 and len(births) < 2


_NOWHERE = Place(machine="", inode=-1, born=0)


def copied_key(turn_id: TurnId) -> str:
    """Return the setting that is not empty if the turn was already stored when this store was copied."""
    return f"{COPIED}{turn_id}"


def place_of(path: Path) -> Place | None:
    """Return the identity of the file with this name; None if it cannot be known."""
    kind = file_system(path)
    if kind.partition(".")[0] in _CHANGING_NUMBERS:
        return None
    try:
        return Place(machine="" if is_network(kind) else _machine(), inode=path.stat().st_ino, born=_born(path))
    except OSError:
        return None


def arrive(raw: sqlite3.Connection, path: Path) -> None:
    """Compare the stored identity of an open store with that of its file.

    If they differ, the store is a copy. Its unfinished turns are marked as copied, and posted decisions and reviews
    that would let something run are deleted. `raw` is in autocommit mode. Raises sqlite3.Error if that cannot be
    stored.
    """
    here = place_of(path)
    if here is None or _said(raw) == _text(here):
        return
    elsewhere = False
    try:
        with transaction(raw):
            said = _said(raw)
            elsewhere = said is not None and not _names(said, here)
            if elsewhere:
                _leave_words_behind(raw)
            _say(raw, here)
    except sqlite3.Error:
        # The identity can be stored another time (the disk may be full only for now). The marks of a copy cannot wait.
        if elsewhere:
            raise


def take_the_place(raw: sqlite3.Connection, file: Path, *, of: Place | None) -> None:
    """Make a new file, open as `raw` and filled from the one identified by `of`, stand for that one.

    It then does not count as a copy, unless the old one did already, or its stored identity was lost through damage.
    """
    said, here = _said(raw), place_of(file)
    if said is None:
        _say(raw, _NOWHERE)
    elif here is not None and of is not None and _names(said, of):
        _say(raw, here)


def disown(raw: sqlite3.Connection) -> None:
    """Make a store count as a copy wherever it is opened next."""
    _say(raw, _NOWHERE)


def _leave_words_behind(raw: sqlite3.Connection) -> None:
    """Mark the unfinished turns, and delete approvals and reviews that were not taken yet."""
    raw.execute(f"DELETE FROM settings WHERE substr(key, 1, {len(COPIED)}) = ?", (COPIED,))
    raw.execute(
        "INSERT INTO settings (key, value) SELECT ? || active_turn, '1' FROM sessions WHERE active_turn IS NOT NULL "
        "GROUP BY active_turn",
        (COPIED,),
    )
    for table, column, lets_run in (("posted", "decision", _runs), ("words", "body", _goes_on)):
        for seq, word in raw.execute(f"SELECT seq, {column} FROM {table}").fetchall():
            if lets_run(word):
                raw.execute(f"DELETE FROM {table} WHERE seq = ?", (seq,))


def _runs(decision: Value) -> bool:
    """Return True if a decision lets something run. One that cannot be read is void."""
    try:
        return isinstance(decode_decision(decision), Approved | Edited)
    except UnreadableError:
        return False


def _goes_on(word: Value) -> bool:
    """Return True if an input lets a workflow run continue. One that cannot be read is void."""
    try:
        said = decode_word(word)
    except UnreadableError:
        return False
    return isinstance(said, ReviewStep) and not isinstance(said.review, Stop)


def _said(raw: sqlite3.Connection) -> str | None:
    row = raw.execute("SELECT value FROM settings WHERE key = ?", (_PLACE,)).fetchone()
    return None if row is None else str(row[0])


def _say(raw: sqlite3.Connection, here: Place) -> None:
    raw.execute("INSERT OR REPLACE INTO settings (key, value) VALUES (?, ?)", (_PLACE, _text(here)))


def _text(place: Place) -> str:
    return json.dumps(asdict(place), sort_keys=True)


def _names(said: str, place: Place) -> bool:
    """Return True if `said`, as stored by `_say`, names that file. Damaged text names none."""
    try:
        stored = json.loads(said)
        there = Place(machine=str(stored["machine"]), inode=int(stored["inode"]), born=int(stored["born"]))
    except (ValueError, TypeError, KeyError):
        return False
    return there.may_be(place)


def _machine() -> str:
    try:
        known = MACHINE_ID.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""
    # The id itself must not be passed on with a store.
    return hashlib.sha256(f"chatops {known}".encode()).hexdigest()[:32] if len(known) == 32 else ""


def _born(path: Path) -> int:
    statx = getattr(ctypes.CDLL(None), "statx", None)
    found = ctypes.create_string_buffer(_STATX_SIZE)
    if statx is None or statx(_AT_FDCWD, bytes(path), 0, _STATX_BTIME, found) != 0:
        return 0
    if not _MASK.unpack_from(found)[0] & _STATX_BTIME:
        return 0
    seconds, nanoseconds = _BTIME.unpack_from(found)
    return int(seconds) * 1_000_000_000 + int(nanoseconds)
