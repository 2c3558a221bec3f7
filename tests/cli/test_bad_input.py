"""Whatever is wrong: one clear sentence with the next step, nothing lost, no traceback."""

import json
import os
from pathlib import Path

import pytest

from chatops.domain.sandbox import SandboxLevel
from tests.support.command_line import REPOSITORY, CommandLine, Ran, registry_for
from tests.support.fake_openai import Call, FakeOpenAI, Raw, call, calls, error, says
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
    ("answer", "said"),
    [
        (error(401, "Incorrect API key provided"), "key"),
        (error(404, "The model `m` does not exist", code="model_not_found"), "m"),
        (Raw(status=200, content_type="text/html", steps=(b"<html>login</html>",)), "web page"),
    ],
)
def test_a_server_that_refuses(answer: Raw, said: str, chatops: CommandLine) -> None:
    with FakeOpenAI(lambda request: answer) as server:
        file = registry_for(chatops.workspace, server.url)
        ran = chatops("--registry", file, "-p", "hello", "--output-format", "json")
    assert_clear(ran, said, code=1)
    assert ran.json["status"] == "failed"


def test_stream_json_closes_its_tree_when_the_model_fails(chatops: CommandLine) -> None:
    with FakeOpenAI([error(401, "no")]) as server:
        file = registry_for(chatops.workspace, server.url)
        ran = chatops("--registry", file, "-p", "hello", "--output-format", "stream-json")
    assert ran.code == 1
    lines = [json.loads(line) for line in ran.out.splitlines()]
    opened = [line["id"] for line in lines if line.get("status") == "started"]
    closed = [line["id"] for line in lines if line.get("status") in ("success", "error")]
    assert sorted(opened) == sorted(closed)
    assert (lines[-1]["type"], lines[-1]["status"], lines[-1]["result"]) == ("turn_finished", "error", "failed")


def test_bad_calls_go_back_to_the_model_which_can_do_better(chatops: CommandLine) -> None:
    script = [
        calls(Call(name="file_read", arguments="{not json at all", id="a")),
        calls(call("fil_read", path="note.txt", id="b")),
        calls(call("shell_exec", command="touch made.txt", id="c")),
        calls(call("file_read", path="note.txt", id="d")),
        says("It is due on Friday."),
    ]
    with FakeOpenAI(script) as server:
        file = registry_for(chatops.workspace, server.url)
        ran = chatops("--registry", file, "-p", "when?", "--output-format", "json")
        results = server.requests[-1].tool_results
        assert server.violations == []
    assert ran.code == 0, ran.err
    assert ran.json["answer"] == "It is due on Friday."
    assert [one["outcome"] for one in ran.json["calls"]][-1] == "success"
    assert "success" not in [one["outcome"] for one in ran.json["calls"]][:-1]
    assert "Did you mean file_read" in results[1]
    assert "shell_exec" in results[2]
    assert not (chatops.workspace / "made.txt").exists()


def test_a_call_above_the_level_is_refused_even_if_the_role_lists_it(chatops: CommandLine) -> None:
    script = [calls(call("shell_exec", command="touch made.txt", id="c")), says("I may not.")]
    with FakeOpenAI(script) as server:
        file = registry_for(chatops.workspace, server.url, tools=["file_read", "shell_exec"])
        ran = chatops("--registry", file, "--access", "user", "-p", "x", "--approve", "shell_exec:touch *")
        assert server.requests[0].tool_names == ["file_read"]
    assert ran.code == 0, ran.err
    assert ran.out == "I may not.\n"
    assert not (chatops.workspace / "made.txt").exists()


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


def test_a_damaged_store_is_told_and_not_overwritten(chatops: CommandLine, chatops_home: Path) -> None:
    chatops("-p", "read note.txt")
    store = chatops_home / "data" / "chatops.db"
    for extra in store.parent.glob("chatops.db-*"):
        extra.unlink()
    store.write_bytes(b"this is no database, but it may be all that is left" * 100)
    ran = chatops("-p", "read note.txt")
    assert "Traceback" not in ran.err
    kept = [file for file in store.parent.glob("chatops.db*") if b"all that is left" in file.read_bytes()]
    assert kept, "the damaged file was overwritten"
