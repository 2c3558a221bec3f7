"""Run as a process: waits for a line, then tries to start the one call of a turn; prints who it was."""

import sys
from dataclasses import replace
from pathlib import Path

from chatops.domain.errors import ConflictError
from chatops.domain.ids import TurnId
from chatops.engine.effects import TurnStep
from chatops.engine.state import CallState
from chatops.store.store import Store
from tests.store import storekit as kit


def main(path: str, turn_id: str) -> None:
    store = Store(Path(path))
    turn = TurnId(turn_id)
    call = kit.a_call(turn)
    state = store.load_turn(turn)
    print("ready", flush=True)
    sys.stdin.readline()
    step = kit.then(TurnStep(state=state), kit.in_round(CallState(call=call, status=kit.started())))
    try:
        store.commit(replace(step, effects=(kit.run(call),)))
    except ConflictError:
        print("conflict", flush=True)
    else:
        print("won", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
