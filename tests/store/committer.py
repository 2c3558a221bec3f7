"""Run as a process: for each line it forks a child that commits without end until it is killed.

A child says its pid and then what has been acknowledged, each line in one write, so that no line is cut; and, if it is
asked to, up to where the write-ahead log held it then. Forking saves the start of Python; the store is only ever opened
in the child.
"""

import os
import sys
from pathlib import Path

from chatops.domain.ids import SessionId, TurnId
from chatops.engine.state import CallState
from chatops.store.store import Store
from tests.store import storekit as kit


def say(text: str) -> None:
    os.write(1, f"{text}\n".encode())


def commit_for_ever(path: str, session_id: str, *, where: bool) -> None:
    store = Store(Path(path))

    def done(what: str, turn: TurnId) -> None:
        say(f"{what} {turn} {' '.join(log_of(path)) if where else ''}".rstrip())

    while True:
        info = store.session(SessionId(session_id))
        turn = store.next_turn_id(info.id)
        call = kit.a_call(turn)
        step = kit.first(turn, info.id, parent=info.head)
        store.commit(step)
        done("begun", turn)
        step = kit.then(
            step,
            kit.in_round(CallState(call=call, status=kit.started())),
            kit.assistant(turn, calls=(call,)),
            effects=(kit.run(call),),
            decisions=(kit.record(call),),
        )
        store.commit(step)
        done("started", turn)
        store.commit(kit.then(step, kit.finished(), results=(kit.closing(call),)))
        done("done", turn)


def log_of(path: str) -> tuple[str, str]:
    """Of the write-ahead log: its salt, which is another one whenever it begins anew, and how many frames of it are
    committed; from the index beside it, see "WAL-mode File Format", section 2.1."""
    with open(f"{path}-shm", "rb") as index:
        header = index.read(48)
    return header[32:40].hex(), str(int.from_bytes(header[16:20], sys.byteorder))


def main(path: str, session_id: str, where: str = "") -> None:
    for _ in sys.stdin:
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            commit_for_ever(path, session_id, where=bool(where))
        os.waitpid(child, 0)
        say("ended")


if __name__ == "__main__":
    main(*sys.argv[1:])
