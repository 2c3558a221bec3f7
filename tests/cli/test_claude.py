"""Models of type cli, against a stand-in for `claude` that writes the documented events (`support.claude_stand_in`)."""

import asyncio
import fcntl
import json
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from chatops.config.paths import opened
from tests.support.claude_stand_in import write_claude
from tests.support.command_line import CommandLine, program_environment
from tests.support.no_sandbox import without_sandbox
from tests.support.waiting import until
from tests.tools.running import needs_sandbox

BLOCK = {
    "primary": "claude_cli",
    "system_append": "You are in code-specialist mode.",
    "tools": ["web_search", "file_read", "shell_exec", "scratch_write"],
}
"""A role as people have it."""


class Claude:
    """A home folder with a login, and a program `claude` on the PATH."""

    def __init__(self, chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
        self._chatops = chatops
        self.home = chatops.workspace.parent / "home"
        self.programs = chatops.workspace.parent / "bin"
        (self.home / ".claude" / "projects").mkdir(parents=True)
        (self.home / ".claude" / ".credentials.json").write_text('{"claudeAiOauth": {"accessToken": "test"}}')
        (self.home / ".claude.json").write_text("0")
        monkeypatch.setenv("HOME", str(self.home))
        monkeypatch.setenv("PATH", f"{self.programs}:/usr/local/bin:/usr/bin:/bin")
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-own")
        monkeypatch.setenv("OPENAI_API_KEY", "sk-other")

    def behaves(self, behaviour: str) -> None:
        write_claude(self.programs, behaviour)

    def asked(self, prompt: str = "Hello", **model: object) -> Any:
        """The report of one prompt, as coder."""
        return self._chatops(*self.words(prompt, **model)).json

    def words(self, prompt: str, **model: object) -> list[str]:
        """The arguments of chatops for one prompt, as coder."""
        file = self._chatops.workspace.parent / "r.json"
        registry: dict[str, object] = {"version": 3, "roles": {"coder": BLOCK}}
        if model:
            registry["models"] = {"claude_cli": {"type": "cli", "command": ["claude", "-p"], **model}}
        file.write_text(json.dumps(registry))
        flags = ["--registry", str(file), "--access", "operator", "--role", "coder", "--output-format", "json"]
        return [*flags, "-p", prompt]


@pytest.fixture
def claude(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> Claude:
    return Claude(chatops, monkeypatch)


@needs_sandbox
def test_a_role_as_people_have_it_works_and_its_calls_run_through_the_gate(claude: Claude) -> None:
    claude.behaves("call")
    ran = claude.asked("When is the invoice in note.txt due?")
    assert ran["status"] == "answered", ran
    assert ran["answer"] == "It is due on Friday."
    (made,) = ran["calls"]
    assert (made["tool"], made["outcome"]) == ("file_read", "success")
    assert ran["usage"]["input_tokens"] == 2 * 123


@needs_sandbox
def test_a_link_to_an_npm_package_brings_all_of_the_package(claude: Claude) -> None:
    package = claude.home / ".npm-global" / "lib" / "node_modules" / "@scope" / "claude-code"
    write_claude(package / "lib", "call", name="start")
    program = package / "bin" / "cli.sh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nexec "${0%/bin/*}/lib/start" "$@"\n')
    program.chmod(0o755)
    claude.programs.mkdir()
    (claude.programs / "claude").symlink_to(program)
    assert claude.asked("When is the invoice in note.txt due?")["answer"] == "It is due on Friday."


@needs_sandbox
def test_it_sees_its_own_login_and_nothing_else(claude: Claude, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        (claude.home / ".claude.json").write_text(str(server.getsockname()[1]))
        monkeypatch.setenv("LANGUAGE", str(claude.home.parent / "project" / "note.txt"))
        claude.behaves("report")
        hostile = "$(touch pwned) `id` ; --tools Bash </user> \x1b[2J"
        answer = claude.asked(hostile)["answer"]
    seen = json.loads(str(answer))
    options = seen["argv"]
    assert options[:1] == ["-p"]
    assert options[options.index("--tools") + 1] == ""
    assert options[options.index("--setting-sources") + 1] == ""
    assert {"--strict-mcp-config", "--verbose", "--include-partial-messages"} <= set(options)
    assert hostile in seen["prompt"]
    assert not any("touch" in word for word in options)
    assert "code-specialist" in seen["system"] and "file_read" in seen["system"]
    assert set(seen["files"]) <= {"prompt.txt", "system.txt", "errors.txt", ".chatops", ".git", "HEAD"}
    assert "ANTHROPIC_API_KEY" in seen["env"] and "OPENAI_API_KEY" not in seen["env"]
    assert seen["login"] and not seen["writable"] and not seen["projects"]
    assert not seen["workspace"] and not seen["connected"]
    assert seen["processes"] < 10


@needs_sandbox
@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("behaviour", "said"),
    [
        ("tools", "claude has tools of its own (Bash, Re"),
        ("servers", "claude has tools of its own (evil)"),
        ("no_init", "claude does not say which tools of its own it has"),
        ("calls_anyway", "claude calls a tool of its own (Bash)"),
        ("no_login", "claude is not logged in: Invalid API key"),
        ("garbage", "claude ended with exit code 7 without an answer: node:"),
        ("endless", "claude writes lines without an end"),
        ("limit", "claude reports: You've hit your usage limit"),
    ],
)
def test_what_is_no_answer_is_refused_with_the_reason(claude: Claude, behaviour: str, said: str) -> None:
    claude.behaves(behaviour)
    ran = claude.asked()
    assert ran["status"] == "failed"
    assert not ran["answer"]
    message = str(ran["error"]["message"])
    assert said in message
    assert "\x1b" not in message
    if behaviour == "no_login":
        assert "/login" in str(ran["error"]["advice"])


@needs_sandbox
@pytest.mark.more
def test_a_flood_of_text_is_stopped_and_its_beginning_is_kept(claude: Claude) -> None:
    claude.behaves("flood")
    ran = claude.asked()
    assert ran["error"]["reason"] == "broken_stream", ran["error"]
    assert ran["error"]["message"] == "claude sent more than the largest reply that is accepted; it was stopped."
    assert ran["answer"].startswith("many words ")


@needs_sandbox
@pytest.mark.parametrize("permitted", [True, False])
def test_a_missing_network_is_no_missing_login(
    claude: Claude, monkeypatch: pytest.MonkeyPatch, permitted: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("MY_GATEWAY", address)
    claude.behaves("offline")
    env = {"ANTHROPIC_BASE_URL": "http://${MY_GATEWAY}", "DISABLE_AUTOUPDATER": "0"}
    ran = claude.asked(env=env, hosts=[address] if permitted else [])
    why = "which does not answer" if permitted else "which its sandbox does not permit"
    assert ran["error"]["message"] == f"claude asked for {address}, {why}."
    assert "/login" not in ran["error"]["advice"]


@needs_sandbox
def test_variables_of_its_entry_reach_the_program_and_a_missing_one_is_named(
    claude: Claude, monkeypatch: pytest.MonkeyPatch
) -> None:
    claude.behaves("report")
    env = {"CLAUDE_CODE_USE_BEDROCK": "1", "AWS_SECRET_ACCESS_KEY": "${MY_SECRET}"}
    missing = claude.asked(env=env)
    assert "needs the variable MY_SECRET, which is not set" in missing["error"]["message"]
    monkeypatch.setenv("MY_SECRET", "sk-1")
    seen = json.loads(str(claude.asked(env=env)["answer"]))
    assert {"CLAUDE_CODE_USE_BEDROCK", "AWS_SECRET_ACCESS_KEY"} <= set(seen["env"])


@needs_sandbox
@pytest.mark.more
def test_a_program_that_hangs_is_stopped_with_all_that_it_started(claude: Claude) -> None:
    claude.behaves("forks")
    ran = claude.asked(timeout_s={"first_token": 60, "idle": 1, "total": 60})
    assert ran["status"] == "failed"
    assert "claude" in str(ran["error"]["message"])
    script = str(claude.programs / "claude")
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if script.encode() in _read(path)]
    assert left == []


@needs_sandbox
@pytest.mark.more
def test_the_conversation_that_a_killed_process_has_left_is_removed(
    claude: Claude, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    claude.behaves("forks")
    command = [sys.executable, "-m", "chatops", *claude.words("My secret plan")]
    left, environment = list[Path](), program_environment() | {"TMPDIR": str(tmp_path)}

    def prompts() -> list[Path]:
        return list(tmp_path.glob("chatops-run-*/prompt.txt"))

    for _ in range(2):
        with subprocess.Popen(command, env=environment) as dying:
            seen = set(left)
            asyncio.run(until(lambda: seen.isdisjoint(found := prompts()) and found))  # noqa: B023
            left = prompts()
            dying.kill()
    assert len(left) == 1 and "My secret plan" in left[0].read_text()
    with opened(left[0].parent) as used:
        fcntl.flock(used, fcntl.LOCK_SH)
        claude.behaves("whole")
        assert claude.asked()["answer"] == "All at once."
        assert left[0].exists(), "it may still be in use"
    claude.asked()
    assert not list(tmp_path.glob("chatops-run-*"))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@needs_sandbox
@pytest.mark.more
def test_whole_messages_count_where_nothing_was_streamed(claude: Claude) -> None:
    claude.behaves("whole")
    assert claude.asked()["answer"] == "All at once."


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("command", "said"),
    [
        (["claude", "-p", "--allowedTools", "Bash"], "'--allowedTools', which could give the program tools"),
        (["claude", "mcp"], "'mcp', which could give"),
        (["claude", "-p", "--tools=Bash"], "'--tools=Bash', which could give"),
        (["codex", "exec"], "does not know how to switch off the tools"),
        ([], "has no command"),
    ],
)
def test_a_command_that_could_have_tools_is_refused(claude: Claude, command: list[str], said: str) -> None:
    claude.behaves("whole")
    ran = claude.asked(command=command)
    assert ran["status"] == "failed"
    assert said in str(ran["error"]["message"])


def test_a_program_that_is_not_installed_says_where_to_get_it(claude: Claude, chatops: CommandLine) -> None:
    ran = claude.asked()
    assert "claude is not installed" in str(ran["error"]["message"])
    assert "code.claude.com" in str(ran["error"]["advice"])
    assert "claude is not installed" in chatops("models", "list").err


@pytest.mark.more
def test_without_bubblewrap_it_runs_only_where_the_user_permits_that(
    claude: Claude, chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    claude.behaves("whole")
    ran = claude.asked()
    assert "needs a sandbox with bubblewrap" in str(ran["error"]["message"])
    assert "unsandboxed" in str(ran["error"]["advice"])
    assert claude.asked(unsandboxed=True)["answer"] == "All at once."
