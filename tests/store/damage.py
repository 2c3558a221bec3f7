"""A store with something in it, and damage done to its file."""

import sqlite3
from contextlib import closing
from pathlib import Path

from chatops.domain.ids import CallId, SessionId
from chatops.engine.state import CallState
from chatops.store.store import Store
from tests.store import storekit as kit

PAGE = 4096
MESSAGES = 120


def filled(path: Path, *, sessions: int = 2) -> list[SessionId]:
    """A closed store with conversations of many pages, the last of them with a call that waits."""
    with closing(Store(path)) as store:
        ids = [store.create_session(workspace="/w", role="coder", persona="p").id for _ in range(sessions)]
        for number in range(MESSAGES):
            for session_id in ids:
                store.append_message(session_id, kit.user(session_id, f"text {number} " + "x" * 700, number))
        waiting(store, ids[-1])
    return ids


def waiting(store: Store, session_id: SessionId) -> CallId:
    """Begin a turn whose call waits for a user."""
    turn = store.next_turn_id(session_id)
    history = store.history(session_id)
    step = kit.first(turn, session_id, parent=history[-1].id if history else None, history=history)
    store.commit(step)
    call = kit.a_call(turn)
    store.commit(kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting()))))
    return call.id


def pages_of(path: Path, table: str) -> list[int]:
    """The numbers of the pages of a table: its root first."""
    with closing(sqlite3.connect(path)) as raw:
        (root,) = raw.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)).fetchone()
    data = path.read_bytes()
    found, unread = [], [int(root)]
    while unread:
        number = unread.pop()
        found.append(number)
        page = data[(number - 1) * PAGE : number * PAGE]
        if page[0] in (2, 5):
            cells = [
                int.from_bytes(page[12 + 2 * n : 14 + 2 * n], "big") for n in range(int.from_bytes(page[3:5], "big"))
            ]
            unread += [int.from_bytes(page[at : at + 4], "big") for at in cells] + [int.from_bytes(page[8:12], "big")]
    return found


def spoil_index(path: Path, index: str) -> None:
    """Overwrite the header of each entry in the leaves of an index: the pages stay sound, the entries unreadable."""
    data = bytearray(path.read_bytes())
    for start in ((number - 1) * PAGE for number in pages_of(path, index)):
        page = data[start : start + PAGE]
        if page[0] == 10:
            for n in range(int.from_bytes(page[3:5], "big")):
                data[start + int.from_bytes(page[8 + 2 * n : 10 + 2 * n], "big") + 1] = 0x7F
    path.write_bytes(data)


def flip(path: Path, *pages: int) -> None:
    """Overwrite whole pages."""
    with path.open("r+b") as file:
        for number in pages:
            file.seek((number - 1) * PAGE)
            file.write(b"\xff" * PAGE)
