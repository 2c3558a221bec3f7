"""Make a long session through the engine and the store, or measure rounds in one, in a process of its own.

``sessions.py make REGISTRY WORKSPACE EXCHANGES`` prints the bytes of the store for each exchange.
``sessions.py rounds REGISTRY WORKSPACE`` prints the CPU milliseconds of an exchange in the last session.
"""

import asyncio
import gc
import sys
import time
from pathlib import Path

from chatops.domain.messages import Usage
from chatops.domain.model import ModelReply
from chatops.engine.effects import CallModel
from chatops.engine.inputs import ModelReplyInput
from chatops.engine.state import new_turn
from chatops.engine.turn import advance, start
from chatops.wiring.app import App
from chatops.wiring.stored import Options, Storage
from tests.benchmarks.floor.server import tokens

TOKENS = 60
ROUNDS = 20


def make(app: App, exchanges: int) -> None:
    store, grant, head = app.store, app.grant_for("assistant"), None
    session = store.create_session(workspace=str(app.workspace), role="assistant", persona="")
    for number in range(exchanges):
        text = f"stream:{TOKENS}:0:S{number:05d}"
        turn = store.next_turn_id(session.id)
        step = start(new_turn(turn, session.id, grant=grant, parent_id=head), text)
        store.commit(step)
        asked = next(effect for effect in step.effects if isinstance(effect, CallModel))
        usage = Usage(input_tokens=100, output_tokens=TOKENS)
        reply = ModelReply(text="".join(tokens(TOKENS, f"S{number:05d}")), finish_reason="stop", usage=usage)
        step = advance(step.state, ModelReplyInput(round_id=asked.round_id, reply=reply, duration_ms=10))
        store.commit(step)
        head = step.state.messages[-1].id
    store.close()
    print(app.paths.store.stat().st_size / exchanges)


async def rounds(app: App) -> None:
    last = app.store.sessions(workspace=str(app.workspace), limit=1)[0]
    session = await app.open_session(app.store.fork_session(last.id).id, attended=False)
    begun = 0.0
    for number in range(-3, ROUNDS):
        if number == 0:
            gc.collect()
            begun = time.process_time()
        await session.submit(f"stream:10:0:R{number}")
        await session.settle()
        session.snapshot()
    print((time.process_time() - begun) / ROUNDS * 1e3)
    await app.aclose()


def main(what: str, registry: str, workspace: str, exchanges: str = "") -> None:
    options = Options(registry=Path(registry), workspace=Path(workspace), storage=Storage.WANTED, via="headless")
    if what == "make":
        make(App(options), int(exchanges))
    else:
        asyncio.run(_rounds(options))


async def _rounds(options: Options) -> None:
    await rounds(App(options))


if __name__ == "__main__":
    main(*sys.argv[1:])
