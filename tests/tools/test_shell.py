"""Commands: what runs, with what environment, how it ends, and that nothing is left of it."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Outcome, ToolResult
from chatops.sandbox.confinement import probe
from chatops.sandbox.process import clean_environment, harden_process
from chatops.tools.function import FunctionTool
from chatops.tools.shell import shell_tools
from tests.support.waiting import PATIENCE, until, until_good
from tests.tools.running import MODES, marked, needs_sandbox, none_left, sleepers
from tests.tools.toolkit import SECRET, cases, context_for, done, inspected


def shell(best: SandboxLevel) -> FunctionTool:
    return shell_tools(best)[0]


@pytest.fixture(params=MODES)
def tool(request: pytest.FixtureRequest) -> FunctionTool:
    """The shell, with and without a sandbox."""
    return shell(request.param)


@pytest.fixture
def mark() -> Iterator[str]:
    """See `marked`."""
    yield from marked()


async def test_a_command_gives_its_output(tool: FunctionTool, tmp_path: Path) -> None:
    streamed: list[str] = []
    result = await done(tool, context_for(tmp_path, output=streamed.append), {"command": "echo hi; echo there >&2"})
    assert (result.outcome, result.content) == (Outcome.SUCCESS, "hi\nthere")
    assert "".join(streamed) == "hi\nthere\n"
    # Bash must not take the first word for an option of its own.
    assert (await done(tool, context_for(tmp_path), {"command": "-n 2>/dev/null; echo hi"})).content == "hi"


async def test_failure_keeps_output_and_code(tool: FunctionTool, tmp_path: Path) -> None:
    result = await done(tool, context_for(tmp_path), {"command": "echo err >&2; exit 3"})
    assert (result.outcome, result.content) == (Outcome.FAILED, "err\n[exit code 3]")
    assert "SIGSEGV" in (await done(tool, context_for(tmp_path), {"command": "kill -SEGV $$"})).content


@pytest.mark.parametrize(
    ("command", "content"),
    [
        ("echo a | tail -1", "a\n[exit code 0; of the pipeline only tail counts in it]"),
        ("cat <<END | head -1\na\nEND\n", "a\n[exit code 0; of the pipeline only head counts in it]"),
        ("echo a | head -1 && true", "a\n[exit code 0; of the pipeline only head counts in it]"),
        ("echo a | (exit 2)", "[exit code 2; of the pipeline only the last program counts in it]"),
        ("set -o pipefail; echo a | tail -1", "a"),
        ("echo $(echo a | cat)", "a"),
        ("echo a | cat; echo b", "a\nb"),
    ],
)
async def test_the_result_of_a_pipeline_says_whose_exit_code_it_is(
    tool: FunctionTool, tmp_path: Path, command: str, content: str
) -> None:
    assert (await done(tool, context_for(tmp_path), {"command": command})).content == content


async def test_a_program_of_a_pipeline_that_was_not_found_is_named(tool: FunctionTool, tmp_path: Path) -> None:
    result = await done(tool, context_for(tmp_path), {"command": "no-such-check --all | tail -3"})
    assert result.outcome is Outcome.SUCCESS
    assert result.content.endswith("[exit code 0; of the pipeline only tail counts in it]\n[not found: no-such-check]")
    assert result.facts.ending is not None
    assert result.facts.ending.further_words == "no-such-check not found, exit code of tail"


async def test_no_core_files_and_no_endless_files(tool: FunctionTool, tmp_path: Path) -> None:
    result = await done(tool, context_for(tmp_path), {"command": "ulimit -c; ulimit -f"})
    assert result.content == f"0\n{4 * 1024**2}"


async def test_silence_is_success(tool: FunctionTool, tmp_path: Path) -> None:
    assert (await done(tool, context_for(tmp_path), {"command": "true"})).content == ""


async def test_a_simple_command_runs_without_a_shell_and_with_exactly_its_words(
    tool: FunctionTool, tmp_path: Path
) -> None:
    context = context_for(tmp_path)
    facts = await inspected(tool, context, {"command": "printf '%s|' 'a b' ''"})
    assert facts.argv == ("printf", "%s|", "a b", "")
    assert (await tool.run(facts, context)).content == "a b||"


async def test_a_glob_is_judged_and_run_as_the_names_it_expands_to(tool: FunctionTool, tmp_path: Path) -> None:
    for name in ("b.txt", "a b.txt", "--output=x.txt", ".hidden.txt"):
        (tmp_path / name).touch()
    context = context_for(tmp_path)
    facts = await inspected(tool, context, {"command": "printf '%s|' *.txt"})
    assert facts.argv == ("printf", "%s|", "--output=x.txt", "a b.txt", "b.txt")
    assert (await tool.run(facts, context)).content == "--output=x.txt|a b.txt|b.txt|"


@pytest.mark.parametrize("command", ["echo a; echo b", "cd .", "echo $HOME", "no-such-program x", "a=1", "echo x > f"])
async def test_only_simple_commands_have_argv(tool: FunctionTool, tmp_path: Path, command: str) -> None:
    facts = await inspected(tool, context_for(tmp_path), {"command": command})
    assert (facts.argv, facts.command) == ((), command)


async def test_the_folder_is_inside_the_workspace(tool: FunctionTool, tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    context = context_for(tmp_path)
    assert (await done(tool, context, {"command": "pwd", "cwd": "sub"})).content == str(tmp_path / "sub")
    assert "outside" in (await inspected(tool, context, {"command": "pwd", "cwd": ".."})).refusal
    assert (await inspected(tool, context, {"command": "pwd", "cwd": "no"})).problems[0].path == "cwd"


async def test_a_script_is_bound_by_its_content(tool: FunctionTool, tmp_path: Path) -> None:
    script = tmp_path / "do.sh"
    script.write_text("echo safe\n", encoding="utf-8")
    context = context_for(tmp_path)
    before = await inspected(tool, context, {"command": "bash do.sh && ls"})
    script.write_text("echo evil\n", encoding="utf-8")
    after = await inspected(tool, context, {"command": "bash do.sh && ls"})
    assert len(before.hashes) == 1
    assert before.hashes != after.hashes


@pytest.mark.parametrize(
    "command",
    [
        "bash task",
        "python3 -u task 1",
        "ls; . ./task",
        "env A=b /bin/sh -e task <x",
        "./sh/../task || node task",
        "bash -euo pipefail +O extglob task",
        "python3 -W ignore -X dev task",
        "perl -I lib task; bash --rcfile none task",
    ],
)
async def test_a_file_run_by_an_interpreter_is_a_script_whatever_its_name(
    tool: FunctionTool, tmp_path: Path, command: str
) -> None:
    (tmp_path / "task").write_text("safe", encoding="utf-8")
    context = context_for(tmp_path)
    before = await inspected(tool, context, {"command": command})
    (tmp_path / "task").write_text("evil", encoding="utf-8")
    assert before.hashes != (await inspected(tool, context, {"command": command})).hashes


async def test_files_that_a_command_only_reads_may_change(tool: FunctionTool, tmp_path: Path) -> None:
    (tmp_path / "app.log").write_text("one", encoding="utf-8")
    facts = await inspected(
        tool, context_for(tmp_path), {"command": "tail app.log; python3 -c pass app.log; awk 1 app.log"}
    )
    assert facts.hashes == ()


@pytest.mark.parametrize("command", ["", "  ", "git status\0; touch x", "echo " + "A" * 200_000])
async def test_what_cannot_run_is_a_problem(tool: FunctionTool, tmp_path: Path, command: str) -> None:
    facts = await inspected(tool, context_for(tmp_path), {"command": command})
    assert [problem.path for problem in facts.problems] == ["command"]


@pytest.mark.fault("G04")
async def test_a_command_has_empty_stdin_and_no_terminal(tool: FunctionTool, tmp_path: Path) -> None:
    assert (await done(tool, context_for(tmp_path), {"command": "cat"})).outcome is Outcome.SUCCESS
    result = await done(tool, context_for(tmp_path), {"command": "echo x > /dev/tty"})
    assert result.outcome is Outcome.FAILED


async def test_keys_do_not_reach_a_command(tool: FunctionTool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "credentials.json").write_text(SECRET, encoding="utf-8")
    for name in ("OPENAI_API_KEY", "CHATOPS_CANARY_TOKEN", "AWS_SECRET_ACCESS_KEY", "LD_PRELOAD_X", "BASH_ENV_X"):
        monkeypatch.setenv(name, SECRET)
    ws = tmp_path / "ws"
    ws.mkdir()
    tried = 0
    for case in cases("secret_leak"):
        if not case["policy"].get("sandbox_required") and not case.get("sandbox_required"):
            command = case["arguments"]["command"].replace("{HOME}", str(home))
            result = await done(tool, context_for(ws), {"command": command})
            assert SECRET not in result.content, case["id"]
            tried += 1
    assert tried >= 6


@needs_sandbox
async def test_the_sandbox_hides_home_other_processes_and_the_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / ".config" / "chatops").mkdir(parents=True)
    (home / ".config" / "chatops" / "credentials.json").write_text(SECRET, encoding="utf-8")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    ws = tmp_path / "ws"
    (ws / ".git" / "hooks").mkdir(parents=True)
    (ws / "state").mkdir()
    (ws / "state" / "db").write_text(SECRET, encoding="utf-8")
    context = context_for(ws, protected=(ws / "state",))
    tool = shell(SandboxLevel.HARD)
    for case in cases("secret_leak"):
        command = case["arguments"]["command"].replace("{HOME}", str(home))
        assert SECRET not in (await done(tool, context, {"command": command})).content, case["id"]
    for command in ("cat state/db", "touch .git/hooks/post-commit", "touch /etc/x", "exec 3<>/dev/tcp/127.0.0.1/22"):
        assert (await done(tool, context, {"command": command})).outcome is Outcome.FAILED, command
    assert (await done(tool, context, {"command": "echo $HOME; ls -A ~; touch made"})).content == str(home)
    assert (ws / "made").exists()
    assert sorted(path.name for path in ws.iterdir()) == [".git", "made", "state"]


async def test_the_sandbox_level_is_described_and_can_be_required(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demanding = context_for(tmp_path, sandbox=SandboxSpec(require=SandboxLevel.BASIC))
    off = await inspected(shell(SandboxLevel.NONE), context_for(tmp_path), {"command": "true"})
    assert (off.sandbox, off.network) == ("off (switched off in the settings)", True)
    probe.cache_clear()
    monkeypatch.setattr("chatops.sandbox.confinement._BWRAP_FOLDERS", ("/nonexistent",))
    monkeypatch.setattr("chatops.sandbox.confinement.landlock_fault", lambda: "this kernel has no Landlock")
    try:
        missing = await inspected(shell(SandboxLevel.HARD), context_for(tmp_path), {"command": "true"})
        assert missing.sandbox == "off (bubblewrap is not installed)"
        required = await inspected(shell(SandboxLevel.HARD), demanding, {"command": "true"})
        assert "bubblewrap is not installed" in required.refusal
    finally:
        probe.cache_clear()


@needs_sandbox
async def test_a_repository_behind_a_link_is_not_called_read_only(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    tool, context = shell(SandboxLevel.HARD), context_for(tmp_path)
    assert "its .git read-only" in (await inspected(tool, context, {"command": "true"})).sandbox
    (tmp_path / ".git").symlink_to("real")
    facts = await inspected(tool, context, {"command": "rm .git; mkdir .git; touch .git/config"})
    assert "its .git too" in facts.sandbox
    assert (await tool.run(facts, context)).outcome is Outcome.SUCCESS


@needs_sandbox
async def test_a_sandbox_lost_after_the_approval_stops_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = shell(SandboxLevel.HARD)
    facts = await inspected(tool, context_for(tmp_path), {"command": "touch made"})
    assert "no network" in facts.sandbox
    probe.cache_clear()
    monkeypatch.setattr("chatops.sandbox.confinement._BWRAP_FOLDERS", ("/nonexistent",))
    monkeypatch.setattr("chatops.sandbox.confinement.landlock_fault", lambda: "this kernel has no Landlock")
    try:
        with pytest.raises(Exception, match="sandbox has changed since the approval"):
            await tool.run(facts, context_for(tmp_path))
    finally:
        probe.cache_clear()
    assert not (tmp_path / "made").exists()


TRICKS = {
    "foreground": "sleep {mark}",
    "background": "sleep {mark} & wait",
    "nohup": "nohup sleep {mark} >/dev/null 2>&1 & sleep {mark}",
    "setsid": "setsid sleep {mark} & sleep {mark}",
    "double fork": "(setsid env -i sleep {mark} & ) ; sleep {mark}",
    "deaf": "trap '' TERM HUP INT; while :; do sleep {mark}; done",
    "kills its parent": "kill -9 $PPID; sleep {mark}",
    "stops its parent": "kill -STOP $PPID; sleep {mark}",
}


@pytest.mark.some(1)
@pytest.mark.parametrize("trick", TRICKS)
async def test_nothing_survives_the_time_limit(tool: FunctionTool, tmp_path: Path, mark: str, trick: str) -> None:
    command = TRICKS[trick].format(mark=mark)
    result = await done(tool, context_for(tmp_path, timeout_s=0.4), {"command": command})
    assert result.outcome is Outcome.FAILED
    assert await none_left(mark)


@pytest.mark.some(3)
@pytest.mark.parametrize("trick", ["setsid", "double fork", "deaf", "stops its parent"])
async def test_nothing_survives_cancellation(tool: FunctionTool, tmp_path: Path, mark: str, trick: str) -> None:
    command = f"echo up; {TRICKS[trick].format(mark=mark)}"
    up = asyncio.Event()
    context = context_for(tmp_path, output=lambda text: up.set())
    running = asyncio.ensure_future(done(tool, context, {"command": command}))
    await asyncio.wait_for(up.wait(), PATIENCE)
    await until(lambda: sleepers(mark))
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert await none_left(mark)


@pytest.mark.parametrize("command", ["sleep {mark} & disown; echo done", "setsid sleep {mark} & echo done"])
async def test_a_child_that_holds_the_pipe_does_not_delay_the_result(
    tool: FunctionTool, tmp_path: Path, mark: str, command: str
) -> None:
    result = await done(tool, context_for(tmp_path), {"command": command.format(mark=mark)})
    assert result.outcome is Outcome.SUCCESS
    assert result.content == "done\n[1 background process was stopped when the command ended]"
    assert await none_left(mark)


@pytest.mark.some(1)
@pytest.mark.parametrize("mode", MODES)
def test_nothing_survives_the_death_of_the_app(tmp_path: Path, mark: str, mode: SandboxLevel) -> None:
    app = (
        "import asyncio, sys\nfrom pathlib import Path\nfrom chatops.domain.sandbox import SandboxLevel\n"
        "from chatops.tools.shell import shell_tools\nfrom tests.tools.toolkit import context_for, done\n"
        f"tool = shell_tools(SandboxLevel({mode.value!r}))[0]\n"
        "context = context_for(Path(sys.argv[1]), output=lambda text: print(text, flush=True))\n"
        "asyncio.run(done(tool, context, sys.argv[2]))\n"
    )
    command = json.dumps({"command": f"setsid sleep {mark} & echo up; sleep {mark}"})
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", app, str(tmp_path), command], stdout=subprocess.PIPE, cwd=root, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.kill()
    assert asyncio.run(none_left(mark))


async def test_processes_that_end_right_after_the_command_do_not_count_as_stopped(
    tool: FunctionTool, tmp_path: Path
) -> None:
    # On a busy machine it may end later than that.
    result, _ = await until_good(
        lambda limit: done(tool, context_for(tmp_path, timeout_s=limit), {"command": "(sleep 0.02 &) ; echo hi"}),
        30.0,
        good=lambda result: result.content == "hi",
    )
    assert result.content == "hi"


@pytest.mark.some(1)
async def test_endless_and_binary_output_is_bounded(tool: FunctionTool, tmp_path: Path) -> None:
    shown: list[str] = []

    async def stopped_after(limit: float) -> ToolResult:
        shown.clear()
        return await done(tool, context_for(tmp_path, timeout_s=limit, output=shown.append), {"command": "yes"})

    result, _ = await until_good(stopped_after, 0.6, good=lambda result: result.truncated)
    assert len(result.content) <= 16_000
    assert result.truncated
    assert "bytes left out" in result.content
    assert sum(map(len, shown)) < 400_000
    binary = await done(tool, context_for(tmp_path), {"command": "head -c 3000000 /dev/urandom"})
    assert binary.content == "[binary output, 3,000,000 bytes, not shown]"


async def test_head_and_tail_of_long_output_are_kept(tool: FunctionTool, tmp_path: Path) -> None:
    result = await done(tool, context_for(tmp_path, max_output_chars=2_000), {"command": "seq 1 100000"})
    assert result.content.startswith("1\n2\n3\n")
    assert result.content.endswith("99999\n100000")
    assert len(result.content) <= 2_000


@pytest.mark.fault("G04")
def test_the_environment_is_an_allow_list() -> None:
    given = {"PATH": "bin:/usr/bin::/opt/x", "LC_ALL": "C", "HOME": "/h", "OPENAI_API_KEY": SECRET, "LD_PRELOAD": "/x"}
    assert clean_environment(given) == {
        "PATH": "/usr/bin:/opt/x",
        "LC_ALL": "C",
        "HOME": "/h",
        "TERM": "dumb",
        "GIT_TERMINAL_PROMPT": "0",
    }


def test_a_hardened_process_is_closed_to_others_and_can_still_run_commands() -> None:
    pid = os.fork()
    if pid == 0:
        ok = harden_process() and os.stat("/proc/self/environ").st_uid == 0
        os._exit(0 if ok and subprocess.run([shutil.which("true") or "true"], check=False).returncode == 0 else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
