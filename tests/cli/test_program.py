"""The real program in a real process: pipes, signals, standard input, and what it loads."""

import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chatops.config.paths import find_paths
from chatops.domain.ids import SessionId
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from tests.support.command_line import CommandLine, program, program_environment, registry_for
from tests.support.fake_openai import FakeOpenAI, Hang, Raw, SeenRequest, says
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE


@pytest.mark.more
def test_context_from_standard_input_follows_the_prompt(workspace: Path) -> None:
    ran = program("-p", "read note.txt then", "--output-format", "json", stdin="list .", cwd=workspace)
    assert ran.code == 0, ran.err
    shown = program("sessions", "show", ran.json["session_id"], cwd=workspace)
    assert "read note.txt then\n\nStandard input:\n\nlist ." in shown.out


@pytest.mark.more
@pytest.mark.parametrize("arguments", [["-p", "hi"], ["registry", "schema"], ["--help"]], ids=" ".join)
def test_what_cannot_be_written_is_no_success(workspace: Path, arguments: list[str]) -> None:
    with Path("/dev/full").open("w", encoding="utf-8") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "chatops", *arguments],
            stdout=full, stderr=subprocess.PIPE, cwd=workspace, env=program_environment(), check=False,
        )  # fmt: skip
    assert ran.returncode == 1
    assert ran.stderr.endswith(b"Standard output cannot be written: No space left on device.\n")


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("CHATOPS registry schema >/dev/full 2>/dev/full", 1),
        ("CHATOPS sessions show nobody 2>/dev/full", 1),
        ("CHATOPS --bogus 2>/dev/full", 2),
        ("CHATOPS </dev/null 2>/dev/full", 2),
        ("CHATOPS registry schema >&- 2>&- <&-", 0),
        ("CHATOPS --version 2>/dev/full", 0),
    ],
)
def test_the_exit_code_is_right_where_nothing_can_be_said(workspace: Path, line: str, code: int) -> None:
    line = line.replace("CHATOPS", f'"{sys.executable}" -m chatops')
    ran = subprocess.run(["bash", "-c", line], cwd=workspace, env=program_environment(), check=False)
    assert ran.returncode == code


@pytest.mark.some(1)
@pytest.mark.parametrize("arguments", ["-p", "parse"])
def test_an_input_that_cannot_be_read_is_told_in_a_sentence(workspace: Path, arguments: str) -> None:
    line = f'"{sys.executable}" -m chatops {arguments} 0>"{workspace.parent / "only-written"}"'
    ran = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, cwd=workspace, env=program_environment(), check=False
    )
    assert ran.returncode == 2
    assert ran.stderr.startswith("chatops: Standard input cannot be read: Bad file descriptor.\n")


@pytest.mark.more
def test_an_interrupt_stops_the_answer_and_exits_with_130(workspace: Path) -> None:
    arrived = threading.Event()

    def silence(request: SeenRequest) -> Raw:
        arrived.set()
        return Raw(steps=(Hang(),))

    with FakeOpenAI(silence) as server:
        registry = registry_for(workspace, server.url)
        process = subprocess.Popen(
            [sys.executable, "-m", "chatops", "--registry", registry, "-p", "hello", "--output-format", "json"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            cwd=workspace, env=program_environment(),
        )  # fmt: skip
        assert arrived.wait(timeout=PATIENCE)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert json.loads(out)["status"] == "cancelled"
    assert "Traceback" not in err


@pytest.mark.more
def test_an_edit_is_left_to_the_window_that_has_the_session_open(chatops: CommandLine) -> None:
    session, call = chatops.paused("run `touch made.txt`")
    store = Store(find_paths(os.environ).store)
    store.acquire_lease(SessionId(session), this_process())
    try:
        ran = program("approvals", "approve", call, "--edit", '{"command": "touch other.txt"}', cwd=chatops.workspace)
        assert ran.code == 0, ran.err
        assert "another window" in ran.err
        (posted,) = store.posted_decisions(store.pending_calls()[0].turn_id)
        assert posted.decision.kind == "edited"
        resumed = program("resume", session, cwd=chatops.workspace)
        assert resumed.code == 1
        assert "Traceback" not in resumed.err
    finally:
        store.close()


def test_connect_asks_for_a_key_where_one_is_needed_and_keeps_it_private(
    chatops: CommandLine, chatops_home: Path
) -> None:
    key = "sk-typed-0123456789"
    with FakeOpenAI([says("Hello.")], api_key=key) as server:
        line = [sys.executable, "-m", "chatops", "connect", server.url, "--name", "mine"]
        with Terminal(line, cwd=chatops.workspace) as terminal:
            terminal.wait_for("requires a key. Key (not shown):")
            terminal.send("sk-mistyped")
            terminal.press("enter")
            terminal.wait_for("refuses the key (401). Try again")
            terminal.wait_until(lambda text: text.count("Key (not shown):") == 2, what="the second question")
            terminal.send(key)
            terminal.press("enter")
            shown = terminal.wait_for("Written to")
            assert terminal.wait_exit() == 0
        refused = chatops("connect", server.url)
        assert chatops("-p", "hello").out == "Hello.\n"
    assert "The key is in " in shown
    assert key not in shown and "context window unknown" in shown
    assert refused.code == 1 and "In a terminal, connect asks for it." in refused.err
    entry = json.loads((chatops_home / "config" / "model_registry.json").read_text())["models"]["mine"]
    file = Path(entry["api_key_file"])
    assert file.read_text() == f"{key}\n" and stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700


@pytest.mark.more
def test_connect_lets_a_user_pick(chatops: CommandLine) -> None:
    with FakeOpenAI([], models=("first-model", "second-model")) as server:
        refused = chatops("connect", server.url)
        assert refused.code == 2
        assert "--model" in refused.err
        program_line = [sys.executable, "-m", "chatops", "connect", server.url]
        with Terminal(program_line, cwd=chatops.workspace) as terminal:
            terminal.wait_for("Which one?")
            terminal.send("2")
            terminal.press("enter")
            terminal.wait_for("Written to")
            assert terminal.wait_exit() == 0
        models = chatops("models", "list", "--output-format", "json").json
    assert [one["model_name"] for one in models if one["default"]] == ["second-model"]
