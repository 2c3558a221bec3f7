"""A coding session through toad, a client for the terminal that others wrote: asked, killed twice, continued.

toad shows a question with the reject option selected, so that Enter rejects.
"""

import json
import os
import shlex
import signal
import sys
from pathlib import Path

import pytest

from chatops.wiring.stored import open_store
from tests.acp.editing import CODING, READS_FIRST_S
from tests.acp.test_sessions import served
from tests.acp.toad import PROGRAM, installed
from tests.support import document
from tests.support.command_line import REPOSITORY, program
from tests.support.fake_openai import FakeOpenAI
from tests.support.terminal import Terminal
from tests.tools.running import needs_sandbox

pytestmark = [
    pytest.mark.clients,
    pytest.mark.skipif(not installed(), reason="toad is not installed: python -m tests.acp.toad"),
    needs_sandbox,
]
AGENT = shlex.join([sys.executable, "-m", "chatops", "acp"])


def test_a_coding_session(folder: Path, registry: Path, tmp_path: Path) -> None:
    (folder / "app.py").write_text("VALUE = 1\n")
    with FakeOpenAI(CODING) as server:
        roles = {
            "assistant": {"primary": "fake", "tools": ["file_read", "file_edit", "shell_exec"]},
            "reader": {"primary": "fake", "tools": ["file_read"]},
        }
        served(registry, server, roles=roles)
        env = {"CHATOPS_REGISTRY": str(registry), "TOAD_LOG": str(tmp_path / "toad.log")}
        # The command of docs/editors.md, with this checkout's chatops.
        (command,) = document.block("toad", page=REPOSITORY / "docs" / "editors.md")
        with _toad(folder, env, *shlex.split(command.replace("chatops acp", AGENT))[1:]) as toad:
            toad.wait_for("assistant")
            _first_hour(toad, folder)
            # What toad does at the end of a turn closes its list of modes.
            log = tmp_path / "toad.log"
            toad.wait_until(lambda _: '"stopReason"' in log.read_text(), what="the turn to end")
            _switch(toad, to="reader", keys=["down"])
            _switch(toad, to="assistant", keys=["up"])
            _say(toad, "and after that?")
            toad.wait_for("Shell: touch after.txt")
            toad.wait_for("r Reject")
            toad.kill9()
        session = _waiting(folder, "touch after.txt")
        _agent_killed(folder, env)
        _in_the_terminal(folder, registry, session)
        with _resumed(folder, env) as toad:
            toad.wait_for("Made it.")
            # The cards of calls that were over before have their titles.
            toad.wait_for("Shell: touch right.txt")
            _say(toad, "what does it say?")
            toad.wait_for("It says 2.")
    assert not server.violations and [one.last_user for one in server.requests][-1] == "what does it say?"
    # Nobody used the files or terminals of the client, and every decision there names it.
    said = log.read_text()
    assert '"fs/' not in said and '"terminal/' not in said
    decided = program("audit", "list", "--output-format", "json", cwd=folder).out
    assert decided.count("toad 0.6.20") >= 2, decided


def _first_hour(toad: Terminal, folder: Path) -> None:
    """Read, an edit decided elsewhere, a command denied, a command approved."""
    _say(toad, "count to two")
    toad.wait_for("Decide in chatops: chatops approvals show")
    assert "r Reject" not in toad.text() and "Edit: app.py" in toad.text()
    with open_store() as store:
        (edit,) = store.pending_calls()
    assert program("approvals", "approve", edit.pending.call.id, cwd=folder).code == 0
    toad.wait_for("Shell: touch wrong.txt; writes wrong.txt")
    toad.wait_for("❯ r Reject")
    toad.trickle("\r")
    toad.wait_for("Shell: touch right.txt; writes right.txt")
    toad.wait_for("❯ r Reject")
    # Approving at once would be void.
    _rest(READS_FIRST_S)
    toad.press("a")
    toad.wait_for("The value is 2 now.")
    assert (folder / "app.py").read_text() == "VALUE = 2\n"
    assert (folder / "right.txt").exists() and not (folder / "wrong.txt").exists()


def _agent_killed(folder: Path, env: dict[str, str]) -> None:
    """Resume in another toad, which is asked again, and kill the agent under it."""
    with _resumed(folder, env) as toad:
        toad.wait_for("r Reject")
        (agent,) = [one for one in toad.processes() if b"chatops\0acp" in Path(f"/proc/{one}/cmdline").read_bytes()]
        os.kill(agent, signal.SIGKILL)
        toad.wait_until(lambda _: agent not in toad.processes(), what="the agent to end")
        _waiting(folder, "touch after.txt")
        assert not (folder / "after.txt").exists()


def _in_the_terminal(folder: Path, registry: Path, session: str) -> None:
    """Approve what waits in the terminal chat, and leave."""
    command = [sys.executable, "-m", "chatops", "-r", session]
    with Terminal(command, env={"CHATOPS_REGISTRY": str(registry)}, cwd=folder) as chat:
        chat.wait_for("Approve")
        chat.wait_quiet(1.0)
        chat.send("a")
        chat.wait_for("Made it.")
        chat.press("ctrl+c", "ctrl+c")
        chat.wait_exit()
    assert (folder / "after.txt").exists()


def _toad(folder: Path, env: dict[str, str], *arguments: str) -> Terminal:
    return Terminal([str(PROGRAM), *arguments], env=env, cwd=folder, cols=120, rows=50)


def _resumed(folder: Path, env: dict[str, str]) -> Terminal:
    """Start toad and choose the session in its list."""
    toad = _toad(folder, env)
    toad.wait_for("^r Resume")
    toad.trickle("\x12")
    toad.wait_for("Pick a session to resume")
    toad.wait_for("New Session")
    toad.trickle("\r")
    toad.wait_for("connected")
    return toad


def _say(toad: Terminal, text: str) -> None:
    toad.wait_for("How can I help")
    toad.trickle(text, "\r")


def _switch(toad: Terminal, *, to: str, keys: list[str]) -> None:
    toad.wait_quiet(1.0)
    toad.press("ctrl+o")
    toad.wait_for("Dismiss mode switcher")
    for key in (*keys, "enter"):
        _rest(READS_FIRST_S)
        toad.press(key)
    toad.wait_for(f"Mode changed to {to}")
    toad.wait_gone("Dismiss mode switcher")


def _waiting(folder: Path, command: str) -> str:
    """Return the session of the only call that waits."""
    with open_store() as store:
        (row,) = store.pending_calls()
    assert json.loads(row.pending.call.arguments) == {"command": command} and row.decided is None
    return row.session_id


def _rest(seconds: float) -> None:
    """Let as much time pass as a user takes."""
    signal.sigtimedwait([], seconds)
