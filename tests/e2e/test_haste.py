"""Keys pressed in haste at a real terminal: each decides the call that was on the screen, or none."""

import os
import random
import re
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from chatops.tui.dialogs.key_gate import PAUSE_S
from tests.e2e.installation import ChatTerminal, Installation, dialog_of
from tests.support.fake_openai import call, calls, says

SHOWN = re.compile(r"^> (\d)  \w+", re.MULTILINE)
NAMED = "not taken: {}, too early"
DRAWN_S = 0.2
"""Seconds that the terminal may take to show what the program has drawn, on a busy machine."""


@contextmanager
def asked(installation: Installation, count: int) -> Iterator[ChatTerminal]:
    """Open the chat on so many calls. Each writes its number into `ran.txt`."""
    wanted = calls(*(call("shell_exec", command=f"printf {number} >> ran.txt") for number in range(1, count + 1)))
    done = says("All decided.")
    with installation.chat(lambda request: done if request.tool_results else wanted, rows=44) as (_, terminal):
        terminal.say("go")
        terminal.dialog()
        terminal.wait_quiet(0.6)
        yield terminal


def ran(installation: Installation) -> set[int]:
    """Return the calls that were approved, once each of those has run."""
    file = installation.workspace / "ran.txt"
    written = file.read_text() if file.exists() else ""
    assert len(written) == len(set(written)), "a call ran twice"
    return {int(number) for number in written}


def undecided(installation: Installation) -> set[int]:
    with installation.store() as store:
        return {int(queued.pending.call.id.rpartition(".")[2]) for queued in store.pending_calls()}


def shows(terminal: ChatTerminal) -> int:
    """Return the number of the call on the screen, 0 without one."""
    text = dialog_of(terminal.text())
    found = SHOWN.search(text)
    return int(found[1]) if found else 0


def type_keys(terminal: ChatTerminal, *strokes: tuple[float, str]) -> None:
    """Press keys, each so many seconds after the one before."""
    for gap, key in strokes:
        time.sleep(gap)
        terminal.send(key)


def test_three_calls_get_the_answers_that_were_meant_for_them_or_none(installation: Installation) -> None:
    with asked(installation, 3) as terminal:
        type_keys(terminal, (0, "d"), (0.25, "d"), (0.8, "a"))
        terminal.wait_until(lambda text: "not taken: " in text or "All decided." in text, what="the answers")
        terminal.wait_quiet(0.5)
        # On a busy machine a key may be too late for its call. Then it is named.
        assert ran(installation) <= {3}
        assert 1 not in undecided(installation)


@pytest.mark.more
@pytest.mark.parametrize("gap", [0.0, 0.05, 0.09, 0.12, 0.16, 0.4])
def test_at_no_gap_a_key_that_was_not_taken_makes_the_next_one_approve_another_call(
    installation: Installation, gap: float
) -> None:
    with asked(installation, 3) as terminal:
        type_keys(terminal, (0, "d"), (gap, "d"), (0.8, "a"))
        terminal.wait_quiet(1.0)
        assert ran(installation) <= {3}


@pytest.mark.some(1)
@pytest.mark.parametrize(("delay", "interval"), [(0.25, 0.033), (0.5, 0.033), (0.375, 0.09)])
def test_a_key_that_is_held_down_denies_one_call(installation: Installation, delay: float, interval: float) -> None:
    with asked(installation, 3) as terminal:
        type_keys(terminal, (0, "d"), (delay, "d"), *((interval, "d") for _ in range(30)))
        terminal.wait_for("not taken: d, ")
        assert undecided(installation) == {2, 3}
        assert "ddd" not in terminal.text()


@pytest.mark.more
def test_after_fg_and_after_a_decision_elsewhere_no_key_answers_at_once(installation: Installation) -> None:
    with asked(installation, 4) as terminal:
        os.kill(terminal.pid, signal.SIGCONT)
        time.sleep(0.2)
        terminal.send("d")
        terminal.wait_for(NAMED.format("d"))
        assert undecided(installation) == {1, 2, 3, 4}
        terminal.dialog()
        terminal.wait_quiet(0.6)
        terminal.send("d")
        terminal.wait_until(lambda _: shows(terminal) == 2, what="the second call")
        terminal.wait_quiet(0.6)
        with installation.store() as store:
            (second,) = (one.pending.call.id for one in store.pending_calls() if one.pending.call.id.endswith(".2"))
        assert installation.run("approvals", "deny", second).code == 0
        terminal.wait_until(lambda _: shows(terminal) == 3, what="the third call")
        terminal.send("d")
        terminal.wait_for(NAMED.format("d"))
        assert undecided(installation) == {3, 4}


# Random keys at random gaps


@dataclass(frozen=True)
class Press:
    """A key, the call that was on the screen and for how many seconds, and the call that was drawn right after it.

    The program may have drawn that one before the key was pressed.
    """

    key: str
    call: int
    seconds: float
    drawn: int


def press_at_random(terminal: ChatTerminal, chance: random.Random) -> list[Press]:
    """Press keys until the dialog is gone, and take down what was on the screen."""
    keys, seen = [], [(time.monotonic() - 1, shows(terminal))]

    def look(seconds: float) -> None:
        until = time.monotonic() + seconds
        while True:
            if (now := shows(terminal)) and now != seen[-1][1]:
                seen.append((time.monotonic(), now))
            if time.monotonic() >= until:
                return
            time.sleep(0.005)

    for _ in range(14):
        look(chance.choice((0, 0.03, 0.09, 0.15, 0.25, 0.4, 0.6, 0.8, 1.2)))
        if not dialog_of(terminal.text()):
            break
        keys.append((time.monotonic(), chance.choice("dddddaaa\t"), *seen[-1]))
        terminal.send(keys[-1][1])
    look(1.0)
    presses = []
    for at, key, since, number in keys:
        drawn = (later for shown_at, later in seen if at < shown_at < at + DRAWN_S)
        presses.append(Press(key, number, at - since, next(drawn, number)))
    return presses


@pytest.mark.more
@pytest.mark.parametrize("seed", range(20))
def test_no_key_decides_another_call_than_the_one_on_the_screen(installation: Installation, seed: int) -> None:
    chance = random.Random(seed)
    count = chance.randint(2, 5)
    with asked(installation, count) as terminal:
        presses = press_at_random(terminal, chance)
        terminal.wait_quiet(1.0)
        run = ran(installation)
        decided = set(range(1, count + 1)) - undecided(installation)
    approving = {one.call for one in presses if one.key == "a" and one.seconds >= PAUSE_S - DRAWN_S}
    denying = {number for one in presses if one.key == "d" for number in (one.call, one.drawn)}
    # An approved call runs once those before it are decided.
    assert run <= approving, presses
    assert decided <= approving | denying, presses
