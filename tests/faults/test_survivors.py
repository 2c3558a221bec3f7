"""Nothing that a command started outlives it: six ways to get away, four ends, with a sandbox and without (G01, T12).

All 24 with and 24 without a sandbox belong to the tier `kill`; a few of each are in the default tier.
"""

import itertools
import os
import re
import signal
import time
from collections.abc import Iterator

import pytest

from chatops.sandbox.confinement import landlock_fault
from tests.faults.confinement import Bench, can_hide_bubblewrap, naming, needs_sandbox, sleeping
from tests.faults.entry_points import FaultyChat, Provider, flat
from tests.support.fake_openai import call, calls
from tests.support.figures import Count
from tests.support.waiting import GROWING, PATIENCE

LIMIT_S = 3
TRICKS = {
    "foreground": ("sleep {n}", 1),
    "background": ("echo so far {n}; sleep {n} & wait", 1),
    "nohup": ("echo so far {n}; nohup sleep {n} >/dev/null 2>&1 & sleep {n}", 2),
    "setsid": ("echo so far {n}; setsid sleep {n} & sleep {n}", 2),
    "double fork": ("echo so far {n}; (setsid env -i sleep {n} &) ; sleep {n}", 2),
    "deaf": ("echo so far {n}; trap '' TERM HUP INT; while :; do sleep {n}; done", 1),
}
"""Commands, and how many processes sleep in each once it is under way."""
QUITS = dict(zip(TRICKS, itertools.cycle(("ctrl+q", "ctrl+c twice", "SIGTERM")), strict=False))
ENDS = ("timeout", "cancel", "quit", "SIGKILL")
SHORT = {
    True: {("double fork", "timeout"), ("deaf", "cancel"), ("setsid", "quit"), ("nohup", "SIGKILL")},
    False: {("deaf", "cancel"), ("double fork", "SIGKILL")},
}
"""Cases of the default tier, with and without a sandbox."""
NUMBERS = itertools.count(1)


def cases(*, sandbox: bool) -> list[object]:
    """All 24; what is not in the short form is marked."""
    return [
        pytest.param(trick, end, marks=() if (trick, end) in SHORT[sandbox] else pytest.mark.kill)
        for trick in TRICKS
        for end in ENDS
    ]


@pytest.fixture(scope="module")
def confined(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A chat whose commands are in a sandbox."""
    with Provider() as provider:
        bench = Bench(tmp_path_factory.mktemp("confined"), provider, sandbox=True)
        yield bench
        bench.close()


@pytest.fixture(scope="module")
def free(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A chat on a machine without bubblewrap."""
    with Provider() as provider:
        bench = Bench(tmp_path_factory.mktemp("free"), provider, sandbox=False)
        yield bench
        bench.close()


@pytest.mark.more
@pytest.mark.fault("G01")
@needs_sandbox
@pytest.mark.parametrize(("trick", "end"), cases(sandbox=True))
def test_nothing_survives_in_a_sandbox(confined: Bench, trick: str, end: str, figure: Count) -> None:
    number, limit = begun(confined.chat, trick, end, sandbox="bubblewrap: no network, workspace writable")
    ended(confined, trick, end, number, limit)
    left = survivors(number)
    figure("survivors (bubblewrap)", bad=bool(left), of=1)
    confined.left(end)
    assert not left
    confined.chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("G01")
@pytest.mark.skipif(not can_hide_bubblewrap(), reason="no namespace to be had for a test")
@pytest.mark.parametrize(("trick", "end"), cases(sandbox=False))
def test_nothing_survives_without_a_sandbox(free: Bench, trick: str, end: str, figure: Count) -> None:
    number, limit = begun(
        free.chat,
        trick,
        end,
        sandbox="Landlock: no network, workspace writable"
        if not landlock_fault()
        else "off (bubblewrap is not installed)",
    )
    ended(free, trick, end, number, limit)
    left = survivors(number)
    figure("survivors (no sandbox)", bad=bool(left), of=1)
    free.left(end)
    assert not left
    free.chat.assert_well()


def begun(chat: FaultyChat, trick: str, end: str, *, sandbox: str) -> tuple[str, int]:
    """Have the command run, and all its processes be up; the number that they sleep for, and the time limit."""
    command, processes = TRICKS[trick]
    number, limit = "", 0
    for limit in [LIMIT_S * factor for factor in GROWING] if end == "timeout" else [600]:
        number = f"{60_000 + next(NUMBERS)}.{os.getpid()}{time.monotonic_ns() % 1000}"
        chat.say(f"go {number}", calls(call("shell_exec", command=command.format(n=number), timeout_s=limit)))
        dialog = chat.terminal.dialog()
        assert sandbox in dialog or re.search("as before .*sandbox", flat(dialog)), dialog
        chat.terminal.press("a")
        if up(chat, number, processes, stopped=rf"go {number}.*stopped after {limit} s"):
            break
        chat.wait_for(f"You said: go {number}")
    return number, limit


def up(chat: FaultyChat, number: str, processes: int, *, stopped: str) -> bool:
    """Wait until so many processes sleep; False if the command was stopped before that."""
    chat.terminal.wait_until(
        lambda text: len(sleeping(number)) >= processes or re.search(stopped, flat(text)) is not None,
        what="the command's processes",
    )
    return len(sleeping(number)) >= processes


def ended(bench: Bench, trick: str, end: str, number: str, limit: int) -> None:
    """End it, and see that the end is told."""
    terminal = bench.chat.terminal
    match end, QUITS[trick]:
        case "timeout", _:
            bench.chat.wait_for(rf"stopped after {limit} s.*You said: go {number}")
            (*_, result) = bench.provider.requests[-1].tool_results
            assert result.startswith(f"so far {number}" if trick != "foreground" else "[")
            assert result.endswith(f"[stopped after {limit} s: the time limit; above is the output so far]")
        case "cancel", _:
            terminal.press("escape")
            bench.chat.wait_for(rf"go {number}.*interrupted.*Stopped")
        case "quit", "ctrl+q":
            terminal.press("ctrl+q", "ctrl+q")
            terminal.wait_exit()
        case "quit", "ctrl+c twice":
            terminal.press("ctrl+c", "ctrl+c")
            terminal.wait_exit()
        case "quit", _:
            os.kill(terminal.pid, signal.SIGTERM)
            terminal.wait_exit()
        case _:
            terminal.kill9()
            terminal.wait_exit()


def survivors(number: str) -> list[int]:
    """Return the processes that still name the number after a while; they do not outlive the test."""
    deadline = time.monotonic() + PATIENCE
    while (left := naming(number)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left
