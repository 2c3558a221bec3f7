"""Something moves on a real terminal while something runs, and nothing is written while nothing does."""

import threading
import time

import pytest

from chatops.tui.theme import SPINNER
from tests.e2e.installation import APPROVE, EFFECT, Installation, registry
from tests.support.fake_openai import FakeOpenAI, Hang, Raw, Reply, Wait, call, calls, delta, sse
from tests.support.terminal import Terminal

REST_S = 2.5
"""Seconds of rest: two and a half times as long as the longest step of a time that is shown."""


def writes_nothing(chat: Terminal) -> bool:
    chat.wait_quiet(1.0)
    before = len(chat.raw)
    time.sleep(REST_S)
    return len(chat.raw) == before


def test_a_sign_moves_while_the_model_is_awaited_and_rest_and_a_waiting_dialog_write_nothing(
    installation: Installation,
) -> None:
    go_on = threading.Event()
    late = Raw(steps=(Wait(event=go_on), sse(delta("Done waiting"), done=False), sse(delta(finish="stop"))))
    script: list[Reply] = [late, calls(call("shell_exec", command=EFFECT))]
    with FakeOpenAI(script) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as chat:
            chat.wait_for("sandbox")
            chat.send("wait\r")
            chat.wait_for("1 s · Esc to stop")
            moved = chat.raw.decode(errors="replace")
            assert sum(sign in moved for sign in SPINNER) > 2
            go_on.set()
            chat.wait_for("Done waiting")
            chat.wait_gone("Esc")
            assert writes_nothing(chat)
            chat.send("go on\r")
            chat.wait_for(APPROVE)
            assert writes_nothing(chat)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0"}])
@pytest.mark.some(1)
def test_without_colours_or_on_an_ascii_terminal_words_and_seconds_are_shown(
    installation: Installation, environment: dict[str, str]
) -> None:
    with FakeOpenAI([Raw(steps=(Hang(),))]) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder", env=environment) as chat:
            chat.wait_for("sandbox")
            chat.send("wait\r")
            chat.wait_for("2 s")
            shown = chat.raw.decode(errors="replace")
            assert not any(sign in shown for sign in SPINNER)
            lines = chat.wait_for("Esc to stop").splitlines()
            assert any(line.strip().startswith("waiting for the model") and "Esc to stop" in line for line in lines)
