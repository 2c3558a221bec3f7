"""chatops -p on the demo model: one prompt, one answer, documented objects and exit codes."""

import io
import json
import subprocess
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, registry_for
from tests.support.fake_openai import FakeOpenAI, says

KEYS = {
    "session_id", "turn_id", "role", "model", "status", "answer", "calls", "usage", "rounds", "files", "pending",
}  # fmt: skip


def test_reading_a_file_gives_the_documented_object(chatops: CommandLine) -> None:
    ran = chatops("-p", "read note.txt", "--output-format", "json")
    assert ran.code == 0
    value = ran.json
    assert set(value) == KEYS
    assert value["status"] == "answered"
    assert (value["role"], value["model"]) == ("assistant", "demo")
    assert "due on Friday" in value["answer"]
    (call,) = value["calls"]
    assert set(call) == {"id", "tool", "arguments", "verdict", "decided_by", "outcome", "duration_ms"}
    assert (call["tool"], call["arguments"], call["outcome"]) == ("file_read", {"path": "note.txt"}, "success")
    assert call["verdict"] == "allow"
    assert len(value["rounds"]) == 2
    assert value["usage"]["input_tokens"] == sum(one["usage"]["input_tokens"] for one in value["rounds"])
    assert value["pending"] == []
    assert value["turn_id"].startswith(value["session_id"])


def test_the_prompt_may_come_from_standard_input(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("read note.txt\n"))
    ran = chatops("-p")
    assert ran.code == 0
    assert "due on Friday" in ran.out


def test_files_are_attached_that_the_argument_names_and_none_that_the_input_does(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (chatops.workspace / ".netrc").write_text("KEY=canary-4711\n")
    (chatops.workspace / "piped.txt").write_text("named by the input\n")
    (tmp_path / "input").write_text("and @piped.txt")
    with FakeOpenAI([says("Yes."), says("Nothing.")]) as server, (tmp_path / "input").open() as stdin:
        monkeypatch.setattr("sys.stdin", stdin)
        registry = registry_for(chatops.workspace, server.url)
        ran = chatops("-p", "read @note.txt, @.netrc @gone.txt @ana", "--registry", registry)
        stdin.seek(0)
        assert chatops("-p", "--registry", registry).code == 0
    first, second = server.requests
    assert "The invoice is due on Friday." in first.last_user and "piped.txt [" not in first.last_user
    assert "canary" not in first.last_user and second.last_user == "and @piped.txt"
    assert "attached: note.txt (30 bytes)\n" in ran.err
    assert "not attached: .netrc: " in ran.err
    assert "not attached: gone.txt: no such file in this workspace\n" in ran.err
    assert "ana:" not in ran.err


@pytest.mark.parametrize(
    ("rule", "command", "reason"),
    [
        ("cat *", "cat /etc/hostname", "it names files outside of its folder, or places of secrets"),
        ("find *", "find . -fprint x", "may do harm, such as running or loading other files"),
        ("nothing-like-it x", "nothing-like-it x", "its program is not found, or only a shell can run it"),
        ("git remote *", "git remote -v", "which may hold keys or passwords"),
    ],
)
def test_a_rule_that_fits_the_words_and_does_not_apply_is_named_with_the_reason(
    chatops: CommandLine, rule: str, command: str, reason: str
) -> None:
    remote = ["config", "remote.origin.url", "https://user:secretpw@example.org/x.git"]
    # Without a sandbox a password in the folder is a reason of its own.
    for words in (["init", "-q"], remote) if rule.startswith("git") else ():
        subprocess.run(["git", *words], cwd=chatops.workspace, check=True)
    given = ("--role", "coder", "-p", f"run `{command}`", "--approve", f"shell_exec:{rule}")
    (asked,) = chatops(*given, "--output-format", "json").json["pending"]
    for told in (asked["why"], chatops(*given).err):
        assert f"--approve shell_exec:{rule} does not apply: " in told and reason in told
    other = chatops("--role", "coder", "-p", f"run `{command}`", "--approve", "shell_exec:touch x")
    assert other.code == 3 and "does not apply" not in other.err


def test_an_empty_prompt_is_a_usage_error(chatops: CommandLine) -> None:
    ran = chatops("-p", " ")
    assert ran.code == 2
    assert "The prompt is empty" in ran.err


@pytest.mark.parametrize("name", ["server.pem", "id_work", ".npmrc"])
def test_reading_a_file_that_tools_use_for_keys_asks(chatops: CommandLine, name: str) -> None:
    (chatops.workspace / name).write_text("hunter2")
    ran = chatops("-p", f"read {name}", "--role", "coder", "--output-format", "json")
    assert ran.code == 3
    assert "may hold keys or passwords" in ran.json["pending"][0]["why"]


@pytest.mark.parametrize(("ports", "port", "asks"), [([], 8080, False), ([8080], 8080, True), ([8080], 6379, False)])
def test_only_ports_that_the_registry_names_are_fetched_from(
    chatops: CommandLine, tmp_path: Path, ports: list[int], port: int, asks: bool
) -> None:
    value = {
        "version": 3,
        "default_role": "reader",
        "roles": {"reader": {"primary": "demo", "tools": ["web_fetch"]}},
        "users": {"*": {"access_level": "operator"}},
        "tools": {"web_fetch": {"ports": ports}},
    }
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(value))
    ran = chatops("-p", f"fetch http://example.org:{port}/", "--registry", str(registry), "--output-format", "json")
    if asks:
        assert (ran.code, len(ran.json["pending"])) == (3, 1)
    else:
        assert ran.json["calls"][0]["outcome"] == "denied"
        assert f"port {port}" in ran.json["answer"]


def test_a_rule_for_this_run_answers_and_is_named(chatops: CommandLine) -> None:
    arguments = ["--role", "coder", "--output-format", "json", "--approve", "file_write"]
    ran = chatops("-p", "write hello to made.txt", *arguments)
    assert ran.code == 0
    assert (chatops.workspace / "made.txt").read_text().strip() == "hello"
    assert ran.json["files"] == ["made.txt"]
    assert ran.json["calls"][0]["decided_by"] == "--approve file_write"


def test_a_rule_does_not_answer_other_calls(chatops: CommandLine) -> None:
    arguments = ["--role", "coder", "--approve", "shell_exec:git status *"]
    assert chatops("-p", "run `touch made.txt`", *arguments).code == 3
    assert chatops("-p", "write hello to made.txt", *arguments).code == 3
    assert not (chatops.workspace / "made.txt").exists()


@pytest.mark.more
def test_c_continues_the_last_session_and_r_a_named_one(chatops: CommandLine) -> None:
    first = chatops("-p", "read note.txt", "--output-format", "json").json
    second = chatops("-p", "list .", "-c", "--output-format", "json").json
    assert second["session_id"] == first["session_id"]
    assert second["turn_id"] != first["turn_id"]
    other = chatops("-p", "list .", "--output-format", "json").json
    assert other["session_id"] != first["session_id"]
    third = chatops("-p", "list .", "-r", first["session_id"], "--output-format", "json").json
    assert third["session_id"] == first["session_id"]


def test_access_can_only_be_lowered(chatops: CommandLine) -> None:
    explain = ["policy", "explain", "--role", "coder", "shell_exec", "--output-format", "json"]
    assert chatops(*explain).json["verdict"] == "ask"
    assert chatops("--access", "admin", *explain).json["verdict"] == "ask"
    lowered = chatops("--access", "viewer", *explain).json
    assert (lowered["verdict"], lowered["reason"]) == ("deny", "access level viewer")
    ran = chatops("-p", "run `touch made.txt`", "--role", "coder", "--access", "viewer", "--output-format", "json")
    assert ran.code == 0
    assert ran.json["calls"] == []
    assert not (chatops.workspace / "made.txt").exists()
