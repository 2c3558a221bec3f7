"""Inside tmux, which is a terminal of its own between the app and the user's (F07)."""

import shutil
import sys
import uuid
from pathlib import Path

import pytest

from tests.e2e.installation import ChatTerminal, Installation
from tests.faults.entry_points import FaultyChat, Provider, flat, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import call, calls, says

OF_TMUX = "mode 7727"
"""tmux switches this on for itself, as soon as it has heard what its terminal is: sooner or later than its shell."""


@pytest.mark.more
@pytest.mark.fault("F07")
@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
def test_inside_tmux_it_works_and_leaves_nothing_switched_on(
    installation: Installation, provider: Provider, tmp_path: Path
) -> None:
    installation.use(patient_registry(provider.server.url))
    socket = str(tmp_path / uuid.uuid4().hex[:8])
    env = {"PYTHONPATH": program_environment()["PYTHONPATH"], "SHELL": "/bin/sh", "ENV": "", "PS1": "shell> "}
    tmux = ["tmux", "-S", socket, "-f", "/dev/null", "new-session", "sh"]
    with ChatTerminal(tmux, env=env, cwd=installation.workspace, cols=110, rows=36) as terminal:
        terminal.wait_for("shell>")
        before = terminal.left_on()
        terminal.say(" ".join([sys.executable, "-m", "chatops", *installation.flags, "--role", "coder"]))
        terminal.ready("coder")
        chat = FaultyChat(installation, provider, terminal)
        chat.say("write it down", calls(call("shell_exec", command="printf x >> count.txt")), says("It is written."))
        chat.wait_for("a approve once")
        terminal.press("a")
        chat.wait_for("It is written")
        terminal.paste("one\rtwo\r" * 10)
        chat.wait_for(r"\[pasted \d+ lines")
        terminal.press("ctrl+c")
        chat.assert_well()
        terminal.press("ctrl+q")
        terminal.wait_for("To continue")
        terminal.say("stty -a | tr ' ;' '\\n\\n' | grep -cE '^(echo|icanon|isig|ixon)$'")
        terminal.wait_for("4")
        assert "still there" not in flat(terminal.text()), "the shell's screen is back"
        assert set(terminal.left_on()) <= {*before, OF_TMUX}
        terminal.say("exit")
        terminal.wait_exit()
        assert terminal.left_on() == []
    assert installation.count == 1
