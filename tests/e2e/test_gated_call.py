"""One gated call on a real terminal, over HTTP and on the demo model: asked, killed, asked again, run once."""

import re
import shlex
from collections.abc import Callable

import pytest

from chatops.domain.tools import Outcome
from tests.e2e.installation import EFFECT, TITLE, ChatTerminal, Installation, answers_each_call_once, registry
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

SELECT_ALL = "\x1b[18~"
"""F7, in the field for arguments."""
ASKED = calls(call("shell_exec", command=EFFECT), text="I will write it down.")


def digest_of(installation: Installation) -> str:
    with installation.store() as store:
        (queued,) = store.pending_calls()
    return queued.pending.digest


def once_then(answer: str) -> Callable[[SeenRequest], Completion]:
    """Asks for the effect until there is a result."""
    return lambda request: says(answer) if request.tool_results else ASKED


@pytest.mark.fault("D05", "D12")
def test_killed_in_the_dialog_and_approved_after_the_restart_it_runs_once(installation: Installation) -> None:
    with FakeOpenAI(once_then("Written down.")) as server:
        installation.use(registry(server.url))
        with installation.open("--role", "coder") as before:
            before.ready("coder")
            before.say("write it down")
            shown = before.dialog()
            digest = digest_of(installation)
            elsewhere = installation.run("approvals", "show", installation.session().id)
            before.kill9()
        assert EFFECT in shown
        assert f"Digest:       {digest}" in elsewhere.out
        assert installation.count == 0
        with installation.open("-c") as after:
            assert after.dialog() == shown
            assert digest_of(installation) == digest
            assert installation.run("approvals", "show", installation.session().id) == elsewhere
            assert len(server.requests) == 1, "the model was asked again although its reply was stored"
            after.press("a")
            after.wait_for("Written down.")
            assert TITLE not in after.text()
            assert len(server.requests) == 2
            journal = installation.journal()
            after.say("is it?")
            after.wait_until(lambda text: text.count("Written down.") == 2, what="the next turn")
        last = server.requests[-1]
        assert server.violations == []
    assert installation.count == 1
    assert len(last.tool_results) == 1
    assert answers_each_call_once(last)
    assert [(row.attempt, row.outcome) for row in journal] == [(1, Outcome.SUCCESS)]


@pytest.mark.more
@pytest.mark.parametrize("killed", [False, True], ids=["live", "opened again"])
def test_an_allowed_call_behind_a_gated_one_says_that_it_may_run(installation: Installation, killed: bool) -> None:
    wanted = calls(
        call("shell_exec", command=EFFECT), call("file_read", path="note.txt"), call("shell_exec", command="ls -a")
    )
    with FakeOpenAI(lambda request: says("Read.") if request.tool_results else wanted) as server:
        contents = registry(server.url)
        contents["roles"]["coder"]["rules"] = [{"tool": "shell_exec", "match": ["ls", "*"], "verdict": "allow"}]
        installation.use(contents)
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            if killed:
                terminal.kill9()
            else:
                leaves_it_for_later(terminal)
                terminal.press("ctrl+q")
                terminal.wait_for(f"Waiting for your approval of shell_exec ({EFFECT}).\nTo continue: chatops -r ")
        with installation.open("-c") as terminal:
            terminal.dialog()
            leaves_it_for_later(terminal)
            terminal.press("ctrl+g")
            terminal.dialog()
            terminal.press("d")
            terminal.wait_for("Read.")
            assert "runs after the calls before it" not in terminal.text()


def leaves_it_for_later(terminal: ChatTerminal) -> None:
    terminal.press("escape")
    terminal.wait_for(re.compile("Read .* allowed, runs after the calls before it"))
    terminal.wait_for(re.compile("Shell  ls -a .* allowed by rule of role coder, runs after the calls before it"))


def test_no_key_acts_too_early_later_is_a_banner_and_ctrl_g_brings_it_back(installation: Installation) -> None:
    with installation.chat(once_then("Written down.")) as (server, terminal):
        terminal.say("write it down")
        terminal.wait_for(TITLE)
        terminal.send("a")
        terminal.wait_for("in the message field")
        assert installation.count == 0
        terminal.dialog()
        terminal.press("escape")
        terminal.wait_for("1 approval pending – ctrl+g  (Shell)")
        assert TITLE not in terminal.text()
        assert terminal.screen()[-3].strip("│").split() == ["a"], terminal.text()
        assert installation.count == 0
        assert len(server.requests) == 1
        terminal.press("ctrl+g")
        assert EFFECT in terminal.dialog()
        terminal.press("a")
        terminal.wait_for("Written down.")
        terminal.wait_gone("ctrl+g")
    assert installation.count == 1


def test_edited_arguments_are_judged_and_asked_about_again(installation: Installation) -> None:
    with FakeOpenAI(once_then("Written down.")) as server:
        installation.use(registry(server.url))
        # An editor that shows what it got, asks for a line end on its terminal, and then writes another command.
        script = 'head -c99 "$1"; printf " <"; read -r go; printf "printf yyy >> count.txt" >"$1"'
        editor = shlex.join(["sh", "-c", script, "editor"])
        with installation.open("--role", "coder", env={"VISUAL": editor}) as terminal:
            terminal.ready("coder")
            terminal.say("write it down")
            terminal.dialog()
            terminal.press("E")
            terminal.wait_for(f"{EFFECT} <")
            terminal.send("\x03\r")
            terminal.wait_for("ended with signal 2")
            terminal.dialog()
            terminal.press("E")
            terminal.wait_for(f"{EFFECT} <")
            terminal.send("\r")
            terminal.wait_for("The arguments were edited")
            assert "printf yyy >> count.txt" in terminal.dialog()
            terminal.press("e")
            terminal.wait_for("Edit the arguments of shell_exec")
            terminal.wait_for("timeout_s  whole number  optional")
            terminal.send(SELECT_ALL)
            terminal.send("printf yy >> count.txt")
            terminal.wait_for("printf yy >> count.txt")
            terminal.press("ctrl+s")
            terminal.wait_gone("Edit the arguments of shell_exec")
            assert "printf yy >> count.txt" in terminal.dialog()
            assert installation.count == 0
            terminal.press("a")
            terminal.wait_for("Written down.")
        (result,) = server.requests[-1].tool_results
        assert server.violations == []
    assert installation.count == 2
    assert "printf yy >> count.txt" in result, "the model was not told what ran"
    assert [row.attempt for row in installation.journal()] == [1]
