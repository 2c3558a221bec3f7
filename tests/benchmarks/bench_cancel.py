"""How soon Esc has stopped a command that ignores every signal it can, on the screen:
``pytest -s -m bench tests/benchmarks/bench_cancel.py``.

Not collected by default. From the key to the word on the card, beside the time that a typed letter takes to be seen on
the same terminal; Esc alone waits some 100 ms to be told from the start of a sequence. Nothing here fails by time.
"""

import statistics
import time
from collections.abc import Iterator

import pytest

from tests.faults.confinement import Bench, can_hide_bubblewrap, naming, sleeping
from tests.faults.entry_points import FaultyChat, Provider, flat
from tests.support.fake_openai import call, calls

pytestmark = pytest.mark.bench

RUNS = 9
DEAF = "trap '' TERM HUP INT; setsid sleep {n} & (setsid env -i sleep {n} &); while :; do sleep {n}; done"
AIM_S = 0.5


@pytest.fixture(params=[True, False], ids=["bubblewrap", "no sandbox"])
def bench(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A chat with a sandbox, or without."""
    if not request.param and not can_hide_bubblewrap():
        pytest.skip("no namespace to be had for a test")
    with Provider() as provider:
        opened = Bench(tmp_path_factory.mktemp("bench"), provider, sandbox=request.param)
        yield opened
        opened.close()


def test_the_time_from_esc_to_the_word(bench: Bench) -> None:
    chat = bench.chat
    echoes = [letter(chat, "qjxz"[run % 4]) for run in range(RUNS)]
    stops = [stopped(chat, f"{80_000 + run}.25") for run in range(RUNS)]
    echo, stop = statistics.median(echoes), statistics.median(stops)
    within = sum(1 for one in stops if one <= AIM_S)
    where = "bubblewrap" if bench.sandbox else "no sandbox"
    print(
        f"\n{where}: a letter is seen after {1000 * echo:.0f} ms, Esc has stopped after {1000 * stop:.0f} ms "
        f"(most {1000 * max(stops):.0f} ms, {within} of {RUNS} within {AIM_S:g} s): {stop / echo:.1f} times a letter"
    )


def letter(chat: FaultyChat, key: str) -> float:
    """Seconds until a letter is seen where one types."""
    began = time.perf_counter()
    chat.terminal.send(key * 3)
    chat.terminal.wait_for(key * 3)
    seconds = time.perf_counter() - began
    chat.terminal.press("ctrl+c")
    chat.terminal.wait_gone(key * 3)
    return seconds


def stopped(chat: FaultyChat, number: str) -> float:
    """Seconds from Esc until the card says that the command was interrupted; nothing of it runs then."""
    chat.say(f"go {number}", calls(call("shell_exec", command=DEAF.format(n=number))))
    chat.terminal.dialog()
    chat.terminal.press("a")
    chat.terminal.wait_until(lambda text: len(sleeping(number)) == 3, what="the command's processes")
    began = time.perf_counter()
    chat.terminal.send("\x1b")
    chat.terminal.wait_until(
        lambda text: "interrupted" in flat(text).rpartition(f"go {number}")[2], what="the word on the card"
    )
    seconds = time.perf_counter() - began
    assert naming(number) == []
    return seconds
