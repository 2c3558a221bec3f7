"""Commands while they run: what they leave and print, and what happens without a sandbox (G02, G03, G05, G06).

Mostly one chat on a terminal, kept open.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import ChatTerminal, Installation
from tests.faults.confinement import (
    Bench,
    can_hide_bubblewrap,
    hiding_bubblewrap,
    naming,
    needs_sandbox,
)
from tests.faults.entry_points import FaultyChat, Provider, flat, patient_registry
from tests.support.command_line import program_environment
from tests.support.fake_openai import call, calls

OPENS_A_CARD = ("\x1b[1;5A", "\x1b[1;5A", "\x0f")
"""ctrl+Up to the answer, ctrl+Up to the call before it, ctrl+o."""
MOST_MEMORY_KB = 400_000
"""Maximum memory of the chat; it needs about 100,000 when idle."""
NEEDS_NAMESPACES = pytest.mark.skipif(not can_hide_bubblewrap(), reason="no namespace to be had for a test")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A chat for all the faults here."""
    with Provider() as provider:
        opened = Bench(tmp_path_factory.mktemp("tools"), provider, sandbox=True)
        yield opened
        opened.close()


def ran(chat: FaultyChat, command: str, *, result: str, **more: Any) -> str:
    """Have a command run, and wait until the screen says `result` and the turn is over; what the model was given."""
    name = f"run {time.monotonic_ns()}"
    chat.say(name, calls(call("shell_exec", command=command, **more)))
    chat.terminal.dialog()
    chat.terminal.press("a")
    chat.wait_for(rf"{name} .*{result}.*You said: {name}")
    return str(chat.provider.requests[-1].tool_results[-1])


@contextmanager
def opened_card(chat: FaultyChat) -> Iterator[FaultyChat]:
    """The last call's card, opened, in a turn that ended with an answer."""
    for keys in OPENS_A_CARD:
        chat.terminal.send(keys)
    yield chat
    chat.terminal.send(OPENS_A_CARD[-1])
    chat.terminal.press("escape")


# G02


@pytest.mark.more
@pytest.mark.fault("G02")
def test_a_child_that_holds_the_pipe_does_not_hold_the_turn(bench: Bench) -> None:
    number = f"7200.{os.getpid()}"
    result = ran(bench.chat, f"sleep {number} & disown; echo done", result="1 background process stopped")
    assert result == "done\n[1 background process was stopped when the command ended]"
    assert naming(number) == []
    bench.chat.assert_well()


# G03


@pytest.mark.more
@pytest.mark.fault("G03")
def test_an_endless_output_leaves_the_chat_free_and_is_kept_at_both_ends(bench: Bench) -> None:
    chat = bench.chat
    name = f"endless {time.monotonic_ns()}"
    chat.say(name, calls(call("shell_exec", command="seq 1 100000; yes", timeout_s=2)))
    chat.terminal.dialog()
    chat.terminal.press("a")
    chat.wait_for(rf"{name} .*running")
    chat.terminal.send("typed meanwhile")
    screen = chat.wait_for("typed meanwhile")
    assert f"You said: {name}" not in flat(screen), "it was over before anything was typed"
    chat.wait_for(rf"stopped after 2 s, result shortened.*You said: {name}")
    chat.terminal.press("ctrl+c")
    chat.terminal.wait_gone("typed meanwhile")
    result = str(chat.provider.requests[-1].tool_results[-1])
    assert result.startswith("1\n2\n3\n")
    assert result.endswith("y\ny\n[stopped after 2 s: the time limit; above is the output so far]")
    assert re.search(r"\[… [\d,]{8,} of [\d,]{8,} bytes left out here …\]", result)
    assert len(result) <= 16_000
    with opened_card(chat):
        chat.wait_for(r"y │ \[stopped after 2 s: the time limit; above is the output so far\]|y \[stopped after 2 s")
    assert peak_memory(chat) < MOST_MEMORY_KB
    chat.assert_well()


@pytest.mark.more
@pytest.mark.fault("G03")
@pytest.mark.parametrize("size", [20_000_000, pytest.param(2**30, marks=pytest.mark.kill)])
def test_one_line_of_any_length_takes_bounded_memory(bench: Bench, size: int) -> None:
    chat = bench.chat
    result = ran(chat, f"head -c {size} /dev/zero | tr '\\0' x", result="result shortened")
    assert re.fullmatch(rf"x+\n\[… [\d,]+ of {size:,} bytes left out here …\]\nx+\n\[exit code 0; .*\]", result)
    assert len(result) <= 16_000
    assert peak_memory(chat) < MOST_MEMORY_KB
    chat.assert_well()


def peak_memory(chat: FaultyChat) -> int:
    """The most that the program has taken, in kB."""
    status = Path(f"/proc/{chat.terminal.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None
    return int(found[1])


# G05


@pytest.mark.more
@pytest.mark.fault("G05")
@NEEDS_NAMESPACES
@pytest.mark.parametrize("demanded", [False, True])
def test_no_sandbox_is_said_without_a_terminal_and_a_registry_can_demand_one(
    installation: Installation, provider: Provider, demanded: bool
) -> None:
    installation.use(
        {**patient_registry(provider.server.url), "sandbox": {"require": "bubblewrap" if demanded else "none"}}
    )
    provider.script(calls(call("shell_exec", command="touch made")))
    command = [sys.executable, "-m", "chatops", *installation.flags, "--role", "coder", "-p", "go"]
    argv = (hiding_bubblewrap if demanded else without_namespaces)([*command, "--approve", "shell_exec:touch made"])
    env = {**program_environment(), "CHATOPS_HOME": str(installation.home)}
    done = subprocess.run(argv, capture_output=True, text=True, cwd=installation.workspace, env=env, check=False)
    assert (done.returncode, done.stdout) == (0, "You said: go\n"), done.stderr
    if demanded:
        assert re.search("The settings require a sandbox of level basic, and it does not work: bubblewrap", done.stderr)
    else:
        # Where nobody may make a namespace, Landlock takes over if the kernel has it.
        assert re.search(r"sandbox: (Landlock|off \(bubblewrap does not work here: bwrap: )", done.stderr)
    assert (installation.workspace / "made").exists() is not demanded
    assert provider.server.violations == []


def without_namespaces(argv: Sequence[str]) -> tuple[str, ...]:
    """`argv` where nobody may make a namespace."""
    return ("unshare", "-r", "sh", "-c", 'echo 0 >/proc/sys/user/max_user_namespaces && exec "$0" "$@"', *argv)


# G06


@pytest.mark.more
@pytest.mark.fault("G06")
@needs_sandbox
@NEEDS_NAMESPACES
def test_a_sandbox_that_fails_for_one_command_is_no_reason_to_run_it_without(
    installation: Installation, provider: Provider
) -> None:
    whole = patient_registry(provider.server.url)
    whole["roles"]["coder"]["rules"] = [{"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow"}]
    installation.use(whole)
    touch = calls(call("shell_exec", command="touch made"))
    with namespaces_run_out(installation, provider) as (chat, run_out):
        chat.say("first", calls(call("shell_exec", command="touch works")))
        chat.wait_for("You said: first")
        assert (installation.workspace / "works").exists()
        run_out()
        chat.say("second", touch, touch)
        shown = chat.terminal.dialog()
        assert not (installation.workspace / "made").exists()
        assert re.search(r"sandbox +off \(it could not be set up for this command: bwrap: ", shown)
        assert "it would run outside the sandbox, which could not be set up for it" in shown
        chat.terminal.press("a")
        chat.wait_for("The command was not run, because its sandbox could not be set up: bwrap: .*You said: second")
        assert (installation.workspace / "made").exists()
        chat.assert_well()


@contextmanager
def namespaces_run_out(
    installation: Installation, provider: Provider
) -> Iterator[tuple[FaultyChat, Callable[[], None]]]:
    """A chat on a machine on which no namespace can be made any more once the second thing is called."""
    folder = installation.workspace.parent
    os.mkfifo(folder / "go")
    script = '(read x <"$0/go"; echo 0 >/proc/sys/user/max_user_namespaces; : >"$0/gone") & exec "$@"'
    command = [sys.executable, "-m", "chatops", *installation.flags, "--role", "coder"]
    env = {
        "PYTHONPATH": program_environment()["PYTHONPATH"],
        "CHATOPS_HOME": str(installation.home),
        "HOME": str(folder),
    }
    argv = ["unshare", "-r", "sh", "-c", script, str(folder), *command]
    with ChatTerminal(argv, env=env, cwd=installation.workspace, cols=110, rows=36) as terminal:
        terminal.ready("coder")

        def run_out() -> None:
            (folder / "go").write_text("now\n")
            terminal.wait_until(lambda text: (folder / "gone").exists(), what="the end of namespaces")

        yield FaultyChat(installation, provider, terminal), run_out
