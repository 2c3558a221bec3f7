import re
import signal
import sys
from pathlib import Path

import pytest

from tests.support import processes
from tests.support.terminal import Terminal

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the terminal harness reads Linux's /proc")

ECHO_KEYS = """
import os, sys, termios, tty
tty.setraw(0)
print("ready", end="\\r\\n", flush=True)
while (data := os.read(0, 100)) != b"q":
    print(data.hex(), end="\\r\\n", flush=True)
"""


def _python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_a_shell_sees_a_controlling_terminal_of_the_given_size(tmp_path: Path) -> None:
    with Terminal(["sh", "-c", "stty size < /dev/tty; pwd; read x; echo got $x"], cwd=tmp_path, cols=70, rows=9) as t:
        t.wait_for("9 70")
        t.wait_for(str(tmp_path)[:60])
        t.send("words\r")
        t.wait_for("got words")
        assert t.wait_exit() == 0


def test_keys_arrive_as_a_terminal_sends_them() -> None:
    keys = {
        "ctrl+g": "07",
        "enter": "0d",
        "escape": "1b",
        "up": "1b5b41",
        "shift+tab": "1b5b5a",
        "alt+x": "1b78",
        "a": "61",
        "+": "2b",
        "backspace": "7f",
    }
    with Terminal(_python(ECHO_KEYS)) as t:
        t.wait_for("ready")
        for key, code in keys.items():
            t.press(key)
            t.wait_for(re.compile(rf"^{code}$", re.MULTILINE))
        t.press("q")
        assert t.wait_exit() == 0


def test_an_unknown_key_is_refused() -> None:
    with Terminal(["cat"]) as t, pytest.raises(ValueError, match="ctrl\\+banana"):
        t.press("ctrl+banana")


def test_a_paste_is_bracketed() -> None:
    with Terminal(_python(ECHO_KEYS)) as t:
        t.wait_for("ready")
        t.paste("x")
        t.wait_for(b"\x1b[200~x\x1b[201~".hex())


def test_a_query_from_the_program_is_answered() -> None:
    program = """
import os, tty
tty.setraw(0)
os.write(1, b"\\x1b[c")
print(os.read(0, 100).hex(), end="\\r\\n", flush=True)
"""
    with Terminal(_python(program)) as t:
        t.wait_for(b"\x1b[?62;22c".hex())
        assert t.raw.startswith(b"\x1b[c")


def test_a_resize_is_told_to_the_program() -> None:
    program = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGWINCH])
print("ready", flush=True)
signal.sigwait([signal.SIGWINCH])
print(os.get_terminal_size(), flush=True)
"""
    with Terminal(_python(program), cols=80, rows=24) as t:
        t.wait_for("ready")
        t.resize(cols=50, rows=12)
        t.wait_for("columns=50, lines=12")


def test_the_failure_shows_the_screen_and_why() -> None:
    with Terminal(["sh", "-c", "echo the last words; exit 3"]) as t:
        with pytest.raises(AssertionError, match=r"terminal closed.*\n\| the last words"):
            t.wait_for("never said")
        assert t.wait_exit() == 3
    with Terminal(["sh", "-c", "echo still here; sleep 60"]) as t:
        t.wait_for("still here")
        with pytest.raises(AssertionError, match=r"0\.1 s went by.*\n\| still here"):
            t.wait_for("never said", timeout=0.1)
        with pytest.raises(AssertionError, match=r"Still running"):
            t.wait_exit(timeout=0.1)


def test_what_the_program_said_last_is_on_the_screen_when_it_has_ended() -> None:
    with Terminal(_python("print('x' * 50 + chr(10), end='', flush=True)\n" * 200 + "print('the end')")) as t:
        assert t.wait_exit() == 0
        assert "the end" in t.text()


def test_kill9_kills_the_program_and_only_the_program() -> None:
    # It speaks for itself: one that is not in its own session yet dies with the program's terminal.
    with Terminal(["sh", "-c", "setsid sh -c 'echo child $$; exec sleep 300' & cat"]) as t:
        child = int(t.wait_for(re.compile(r"child \d+\n")).split()[1])
        t.kill9()
        assert t.wait_exit() == -signal.SIGKILL
        # `cat` ends by itself: the kernel hangs up on it when the session's leader is dead.
        t.wait_until(lambda _: t.processes() == [child], what="everything but the child in its own session to end")
        assert processes.running(child)
    assert not processes.running(child)


def test_hanging_up_sends_the_hang_up_signal() -> None:
    with Terminal(["sh", "-c", "trap 'exit 7' HUP; echo ready; while :; do sleep 0.05; done"]) as t:
        t.wait_for("ready")
        t.hang_up()
        assert t.wait_exit() == 7


def test_nothing_is_left_even_of_a_child_in_a_session_of_its_own(tmp_path: Path) -> None:
    script = "setsid sh -c 'env -i sleep 300 & echo $! > inner; sleep 300' & echo $! > outer; wait"
    with Terminal(["sh", "-c", script + "; true"], cwd=tmp_path) as t:
        t.wait_until(lambda _: all(_written(tmp_path / name) for name in ("inner", "outer")), what="the children")
    for name in ("inner", "outer"):
        assert not processes.running(int((tmp_path / name).read_text()))


def test_the_developers_environment_stays_out(monkeypatch: pytest.MonkeyPatch, chatops_home: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "a-secret")
    with Terminal(["env"], env={"EXTRA": "given"}) as t:
        assert t.wait_exit() == 0
    assert b"a-secret" not in t.raw
    assert b"EXTRA=given" in t.raw
    assert f"CHATOPS_HOME={chatops_home}".encode() in t.raw


def _written(path: Path) -> bool:
    return path.exists() and bool(path.read_text().strip())
