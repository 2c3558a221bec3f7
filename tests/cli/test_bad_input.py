"""Whatever is wrong: one clear sentence with the next step, nothing lost, no traceback."""

import json
import os
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel
from tests.support.command_line import REPOSITORY, CommandLine, Ran, registry_for
from tests.support.no_sandbox import at_level
from tests.tools.toolkit import SECRET


def assert_clear(ran: Ran, *said: str, code: int) -> None:
    assert ran.code == code, ran.err
    for expected in said:
        assert expected in ran.err
    assert "Traceback" not in ran.err + ran.out


def test_a_broken_registry_stops_headless_use_with_the_place(chatops: CommandLine) -> None:
    file = chatops.workspace / "broken.json"
    file.write_text('{\n  "roles": {,}\n}')
    assert_clear(chatops("--registry", str(file), "-p", "hello"), "line 2, column", code=2)
    assert chatops("sessions", "list", "--all", "--output-format", "json").json == []


def test_a_registry_that_is_not_there(chatops: CommandLine) -> None:
    assert_clear(chatops("--registry", "nowhere.json", "-p", "hello"), "nowhere.json", "--registry", code=2)


def test_a_workspace_that_is_not_there(chatops: CommandLine) -> None:
    assert_clear(chatops("--workspace", "nowhere", "-p", "hello"), "nowhere", "--workspace", code=2)


@pytest.mark.parametrize("level", [SandboxLevel.HARD, SandboxLevel.LANDLOCK])
def test_a_folder_of_credentials_is_given_to_no_command(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: SandboxLevel
) -> None:
    (tmp_path / "home" / ".ssh" / "sub").mkdir(parents=True)
    (tmp_path / "home" / ".ssh" / "id_rsa").write_text(SECRET)
    (tmp_path / "link").symlink_to("home/.ssh/sub")
    (Path(os.environ["CHATOPS_HOME"]) / "data").mkdir(exist_ok=True)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    at_level(level, monkeypatch)
    for given in ("~/.ssh", f"{tmp_path}/link:ro", f"{os.environ['CHATOPS_HOME']}/data"):
        name = given.removesuffix(":ro")
        assert_clear(chatops("-p", "hi", "--add-dir", given), f"--add-dir {name}: no command", code=2)
    registry, packaged = tmp_path / "registry.json", json.loads((REPOSITORY / "model_registry.json").read_text())
    for key in ("read", "write"):
        registry.write_text(json.dumps({**packaged, "sandbox": {key: [str(tmp_path / "link")]}}))
        ran = chatops("-p", "run `cat ../link/../id_rsa`", "--role", "coder", "--registry", str(registry))
        assert "holds credentials" in ran.out and "sandbox.read" in ran.out
        assert SECRET not in ran.out and "bwrap" not in ran.out + ran.err and "unsandboxed" not in ran.out + ran.err


def test_an_unknown_role_names_the_nearest_ones_or_all(chatops: CommandLine) -> None:
    assert_clear(chatops("-p", "hello", "--role", "codr"), "no role 'codr'", "Did you mean coder", code=2)
    assert_clear(chatops("-p", "hello", "--role", "zzz"), "no role 'zzz'", "Roles here: ", "coder", code=2)


def test_an_unknown_model_names_known_ones(chatops: CommandLine) -> None:
    assert_clear(chatops("-p", "hello", "--model", "demmo"), "no model 'demmo'", "demo", code=2)


def test_a_session_that_is_not_there(chatops: CommandLine) -> None:
    for arguments in (
        ["-p", "hello", "-r", "nope"],
        ["resume", "nope"],
        ["sessions", "show", "nope"],
        ["sessions", "export", "nope"],
        ["audit", "list", "--session", "nope"],
    ):
        assert_clear(chatops(*arguments), "no session 'nope'", "chatops sessions list", code=1)
    assert_clear(chatops("-p", "hello", "-r"), "needs a session", code=2)


def test_a_call_that_is_not_there(chatops: CommandLine) -> None:
    for action in ("show", "approve", "deny"):
        assert_clear(chatops("approvals", action, "nope"), "No pending call 'nope'", "chatops approvals list", code=1)


def test_a_refused_connection(chatops: CommandLine) -> None:
    file = registry_for(chatops.workspace, "http://127.0.0.1:9/v1")
    ran = chatops("--registry", file, "-p", "hello", "--output-format", "json")
    assert_clear(ran, "127.0.0.1:9", "refused", "Everything is saved", code=1)
    assert ran.json["status"] == "failed"
    session = ran.json["session_id"]
    assert "hello" in chatops("sessions", "show", session).out


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("shell_exec", "would let the model run anything"),
        ("shell_exec:git status && rm *", "cannot be read"),
        ("no_such_tool", "no tool 'no_such_tool'"),
        ("", "cannot be read"),
    ],
)
def test_a_rule_that_would_be_too_wide_or_means_nothing(rule: str, said: str, chatops: CommandLine) -> None:
    ran = chatops("-p", "run `touch made.txt`", "--role", "coder", "--approve", rule)
    assert_clear(ran, said, code=2)
    assert not (chatops.workspace / "made.txt").exists()
