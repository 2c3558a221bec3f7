"""Signals from outside: told to leave, hung up, stopped and let go on, the terminal torn off (D15-D19, F09, F10)."""

import os
import re
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.installation import EFFECT, ChatTerminal, Installation
from tests.faults.entry_points import FaultyChat, Pipe, Provider, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import Close, Raw, Reset, Wait, call, calls, delta, says, sse

ASKS = calls(call("shell_exec", command=EFFECT))
SLOW = calls(call("shell_exec", command=f"{EFFECT}; sleep 300"))


def begun(*after: Wait | Reset | Close, rest: str = "") -> Raw:
    """A reply that has begun, waits for what comes `after`, and then says the rest."""
    end = sse(delta(rest), delta(finish="stop"))
    return Raw(steps=(sse(delta("These words have come. "), done=False), *after, end))


@contextmanager
def again(chat: FaultyChat) -> Iterator[FaultyChat]:
    """The same conversation on another terminal."""
    with chat.installation.open("-c") as terminal:
        terminal.ready("coder")
        yield FaultyChat(chat.installation, chat.provider, terminal)


def left(terminal: ChatTerminal) -> None:
    """Wait for the end of the program; the terminal is as it was, and nothing of it runs any more."""
    assert terminal.wait_exit() == 0
    terminal.wait_for("To continue: chatops -r ")
    assert terminal.left_on() == []
    assert terminal.processes() == []


def wait_for_effect(chat: FaultyChat) -> None:
    chat.terminal.wait_until(lambda text: chat.installation.count == 1, what="the effect")


@pytest.mark.more
@pytest.mark.fault("D15", "F10")
def test_sigterm_while_a_tool_runs_stops_it_and_leaves(chat: FaultyChat) -> None:
    chat.say("write it down", SLOW)
    chat.terminal.dialog()
    chat.terminal.press("a")
    wait_for_effect(chat)
    chat.terminal.send("half a thought")
    chat.wait_for("half a thought")
    os.kill(chat.terminal.pid, signal.SIGTERM)
    left(chat.terminal)
    with again(chat) as later:
        later.wait_for("it may have taken effect.*u tell the model it is unknown")
        later.provider.script(says("Understood."))
        later.terminal.press("u")
        later.wait_for("Understood.*half a thought")
        later.terminal.press("ctrl+c")
        later.terminal.wait_gone("half a thought")
        later.assert_well()
    assert chat.installation.count == 1


@pytest.mark.more
@pytest.mark.fault("D15", "F10")
def test_sigint_in_the_middle_of_an_answer_leaves(pipe: Pipe, chat: FaultyChat) -> None:
    chat.say("tell me", begun(Wait(event=threading.Event())))
    chat.wait_for("These words have come")
    os.kill(chat.terminal.pid, signal.SIGINT)
    left(chat.terminal)
    resumed = pipe.run("resume", chat.installation.session().id)
    assert (resumed.code, resumed.out) == (0, "You said: tell me\n")
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("D16", "F10")
def test_a_hang_up_answers_nothing_and_the_same_dialog_comes_back(chat: FaultyChat) -> None:
    chat.say("write it down", ASKS)
    shown = chat.terminal.dialog()
    chat.terminal.hang_up()
    chat.terminal.wait_exit()
    # The signal alone does not mean that nobody reads: what hangs up may be a program in between.
    assert chat.terminal.left_on() == []
    assert chat.terminal.processes() == []
    assert (chat.installation.session().pending, chat.installation.count) == (1, 0)
    with again(chat) as later:
        assert later.terminal.dialog() == shown
        later.provider.script(says("Understood."))
        later.terminal.press("d")
        later.wait_for("Understood")
        later.assert_well()
    assert chat.installation.count == 0


@pytest.mark.more
@pytest.mark.fault("D16", "F09")
def test_a_terminal_that_is_torn_off_while_it_is_written_to_is_a_hang_up(pipe: Pipe, chat: FaultyChat) -> None:
    chat.say("write it down", ASKS)
    chat.terminal.dialog()
    chat.terminal.press("escape")
    chat.wait_for("1 approval pending")
    for _ in range(50):
        # Each is drawn, and some of them into a terminal that is no longer there.
        chat.terminal.send("abc")
    chat.terminal.tear_off()
    assert chat.terminal.wait_exit() == 0
    assert chat.terminal.processes() == []
    assert (chat.installation.session().pending, chat.installation.count) == (1, 0)
    (call_id,) = re.findall(r"^\S+\.1\.1", pipe.run("approvals", "list").out, re.MULTILINE)
    assert pipe.run("approvals", "deny", call_id).code == 0
    assert "You said: write it down" in pipe.run("resume", chat.installation.session().id).out
    assert chat.installation.count == 0
    pipe.assert_well()


@pytest.fixture
def in_a_shell(installation: Installation, provider: Provider) -> Iterator[FaultyChat]:
    """The chat as a job of a shell."""
    installation.use(patient_registry(provider.server.url))
    env = {"PS1": "shell> ", "PYTHONPATH": program_environment()["PYTHONPATH"]}
    with ChatTerminal(["sh", "-i"], env=env, cwd=installation.workspace, cols=110, rows=36) as terminal:
        terminal.wait_for("shell>")
        terminal.send(" ".join([sys.executable, "-m", "chatops", *installation.flags, "--role", "coder"]))
        terminal.press("enter")
        terminal.ready("coder")
        yield FaultyChat(installation, provider, terminal)


@pytest.mark.more
@pytest.mark.fault("D17", "F10")
def test_ctrl_z_gives_the_terminal_to_the_shell_and_fg_takes_it_again(in_a_shell: FaultyChat) -> None:
    chat, go_on = in_a_shell, threading.Event()
    chat.say("tell me", begun(Wait(event=go_on), rest="And these later."))
    chat.wait_for("These words have come")
    chat.terminal.send("half a thought")
    chat.wait_for("half a thought")
    chat.terminal.press("ctrl+z")
    text = chat.terminal.wait_for("shell>")
    assert "Stopped" in text and "These words" not in text
    assert chat.terminal.left_on() == []
    go_on.set()
    chat.terminal.say("echo as $((40 + 2))")
    chat.terminal.wait_for("as 42")
    chat.terminal.say("fg")
    chat.wait_for("These words have come. And these later. .*half a thought")
    assert "as 42" not in chat.terminal.text()
    chat.terminal.press("ctrl+c")
    chat.terminal.wait_gone("half a thought")
    chat.assert_well()
    chat.terminal.press("ctrl+q")
    chat.terminal.wait_for("To continue")
    chat.terminal.wait_for("shell>")
    assert chat.terminal.left_on() == []


def stopped(pid: int) -> bool:
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return file.read().rpartition(")")[2].split()[0] == "T"


@contextmanager
def asleep(chat: FaultyChat) -> Iterator[None]:
    """The program does not run meanwhile, as on a machine that sleeps; then it takes the screen again."""
    os.kill(chat.terminal.pid, signal.SIGSTOP)
    chat.terminal.wait_until(lambda text: stopped(chat.terminal.pid), what="the program to stop")
    yield
    taken = chat.terminal.raw.count(b"\x1b[?1049h")
    os.kill(chat.terminal.pid, signal.SIGCONT)
    chat.terminal.wait_until(lambda text: chat.terminal.raw.count(b"\x1b[?1049h") > taken, what="the screen")


@pytest.mark.more
@pytest.mark.fault("D19")
def test_an_answer_whose_server_went_away_during_sleep_is_told_and_one_whose_server_waited_goes_on(
    chat: FaultyChat,
) -> None:
    closes, goes_on = threading.Event(), threading.Event()
    chat.say("tell me", begun(Wait(event=closes), Reset()))
    chat.wait_for("These words have come")
    with asleep(chat):
        closes.set()
    chat.wait_for("(?i)These words have come.*(connection|closed|lost).*Press R to")
    chat.assert_well()
    chat.say("once more", begun(Wait(event=goes_on), rest="And these later."))
    chat.wait_for("once more These words have come")
    with asleep(chat):
        goes_on.set()
    chat.wait_for("once more These words have come. And these later.")
    chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("D19")
def test_a_call_that_waits_is_still_asked_about_after_sleep(chat: FaultyChat) -> None:
    chat.say("write it down", ASKS)
    shown = chat.terminal.dialog()
    with asleep(chat):
        pass
    assert chat.terminal.dialog() == shown
    # No shell could bring it back: then ctrl+z stops nothing.
    taken = chat.terminal.raw.count(b"\x1b[?1049h")
    chat.terminal.press("ctrl+z")
    chat.terminal.wait_until(lambda text: chat.terminal.raw.count(b"\x1b[?1049h") > taken, what="the screen")
    assert chat.terminal.dialog() == shown
    chat.provider.script(says("It is written."))
    chat.terminal.press("a")
    chat.wait_for("It is written")
    assert chat.installation.count == 1
    chat.assert_well()
