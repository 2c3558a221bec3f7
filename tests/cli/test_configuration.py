"""Every command that depends on the registry reports its errors."""

import json
from pathlib import Path

import pytest

from chatops.domain.tools import BUILT_IN_TOOLS
from chatops.store.store import Store
from tests.support.command_line import CommandLine, registry_for
from tests.support.fake_openai import FakeOpenAI, says

DEPENDENT = [
    ["roles", "list"], ["roles", "show", "assistant"], ["tools", "list"], ["policy", "list"], ["models", "list"],
    ["policy", "explain", "--role", "assistant", "file_read"], ["-p", "hello"],
]  # fmt: skip
INDEPENDENT = [["sessions", "list"], ["approvals", "list"], ["audit", "list"]]


def registry(chatops: CommandLine, **keys: object) -> list[str]:
    file = chatops.workspace.parent / "r.json"
    file.write_text(json.dumps({"version": 3, "roles": {"assistant": {}}, **keys}))
    return ["--registry", str(file)]


def rule(tool: str, glob: str, **role: object) -> dict[str, object]:
    return {"roles": {"assistant": {"rules": [{"tool": tool, "match": [glob], "verdict": "allow"}], **role}}}


@pytest.mark.parametrize("command", DEPENDENT, ids=" ".join)
def test_a_broken_registry_stops_what_depends_on_it(command: list[str], chatops: CommandLine) -> None:
    (chatops.workspace / "r.json").write_text('{"roles": ')
    ran = chatops("--registry", "r.json", *command)
    assert (ran.code, ran.out) == (2, "")
    assert "line 1, column" in ran.err


@pytest.mark.parametrize("command", INDEPENDENT, ids=" ".join)
def test_a_broken_registry_is_no_reason_to_hide_what_is_stored(command: list[str], chatops: CommandLine) -> None:
    (chatops.workspace / "r.json").write_text('{"roles": ')
    assert chatops("--registry", "r.json", *command).code == 0


@pytest.mark.parametrize("command", DEPENDENT, ids=" ".join)
def test_a_doubtful_registry_is_spoken_of_on_stderr_once(command: list[str], chatops: CommandLine) -> None:
    ran = chatops(*registry(chatops, roles={"assistant": {"tools": ["file_reed"]}}), *command)
    assert ran.code == 0
    assert ran.err.count("'file_reed'") == 1 and "'file_reed'" not in ran.out


@pytest.mark.some(2)
@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"roles": {"assistant": {"tools": ["file_reed"]}}}, "Did you mean file_read?"),
        ({"roles": {"assistant": {"persona": "concize"}}}, "Did you mean concise?"),
        ({"users": {"*": {"confirm_allow": ["shel_exec:git status"]}}}, "Did you mean shell_exec?"),
        ({"models": {"m": {"type": "cli"}}, "roles": {"assistant": {"primary": "m"}}}, "m has no command; no other"),
        (rule("file_write", "src/"), "file_write:src/ of role assistant can never match: no path ends with a slash"),
        (rule("file_edit", "src//a"), "can never match: no path has two slashes"),
        (rule("scratch_write", "notes/**"), "can never match: calls of scratch_write name no file"),
        (rule("file_write", "src/**", tools=["file_read"]), "can never match: the role does not list"),
        (
            {"users": {"*": {"confirm_allow": ["scratch_read:src/**"]}}},
            "can never match: calls of scratch_read name no",
        ),
    ],
)
def test_check_says_what_a_run_would_warn_of(keys: dict[str, object], said: str, chatops: CommandLine) -> None:
    flags = registry(chatops, **keys)
    checked = chatops("registry", "check", flags[1])
    assert checked.code == 0
    assert said in checked.out and "1 warning. It " in checked.out
    (warning,) = chatops("registry", "check", flags[1], "--output-format", "json").json["warnings"]
    assert warning in chatops(*flags, "roles", "list").err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        pytest.param(["gemini", "-p"], "how to switch off the tools of that program", marks=pytest.mark.more),
        (["claude", "", "--dangerously-skip-permissions"], "could give the program tools of its own"),
    ],
)
def test_check_says_which_program_of_a_model_is_refused(command: list[str], said: str, chatops: CommandLine) -> None:
    flags = registry(chatops, models={"m": {"type": "cli", "command": command}})
    checked = chatops("registry", "check", flags[1])
    assert checked.code == 0
    assert said in checked.out


PASTED = """{
  // the block as people have it
  "roles": {"coder": {"primary": "claude_cli", "system_append": "Code.", // stays
    "tools": ["web_search", "file_read", "shell_exec", "scratch_write"]}}
}"""
WITHHELD = [
    "Role coder does not get web_search: no search service is set up; chatops doctor lists the choices.",
    "Role coder does not get shell_exec: access level operator is needed, and yours is user",
]


@pytest.mark.parametrize("command", [["-p", "hello"], ["registry", "check"], ["roles", "show", "coder"]], ids=" ".join)
def test_a_pasted_role_names_its_program_and_each_tool_that_it_does_not_get(
    command: list[str], chatops: CommandLine, chatops_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    file = chatops_home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True)
    file.write_text(PASTED)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    ran = chatops(*command)
    assert ran.code == (1 if command[0] == "-p" else 0), ran.err
    assert command[0] != "-p" or "claude is not installed" in ran.err
    # A tool that is offered to no role here is no news for each message of a script.
    for sentence in WITHHELD[command[0] == "-p" :]:
        assert (ran.out + ran.err).count(sentence) == 1
    assert command[0] != "-p" or WITHHELD[0] not in ran.err


def test_a_role_whose_server_lacks_its_address_talks_to_no_other_server(chatops: CommandLine) -> None:
    with FakeOpenAI([says("from elsewhere")]) as server:
        file = Path(registry_for(chatops.workspace, server.url))
        value = json.loads(file.read_text())
        value["models"]["a"] = {"type": "openai", "model_name": "x"}
        value["roles"]["local"] = {"primary": "a"}
        file.write_text(json.dumps(value))
        assert (
            chatops("--registry", str(file), "connect", server.url, "--model", "fake-model", "--name", "mine").code == 0
        )
        asked = len(server.requests)
        ran = chatops("--registry", str(file), "--role", "local", "-p", "hello")
        assert (ran.code, len(server.requests)) == (1, asked), ran.err
    assert "a has no api_url; no other model answers in this role." in ran.err


def test_a_tool_that_the_user_is_denied_is_named_with_who_denies_it(chatops: CommandLine) -> None:
    users = {"*": {"access_level": "operator", "confirm_deny": ["shell_exec"]}}
    flags = registry(chatops, users=users, roles={"assistant": {"tools": ["shell_exec", "file_read"]}})
    said = "Role assistant does not get shell_exec: denied by confirm_deny in your registry."
    assert said in chatops("registry", "check", flags[1]).out
    assert said in chatops(*flags, "-p", "hello").err
    assert said in chatops(*flags, "roles", "show", "assistant", "--output-format", "json").json["withheld"]


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("model", "why"),
    [
        ({"type": "openai", "model_name": "x"}, "has no api_url"),
        ({"type": "openai", "api_url": "http://127.0.0.1:9/v1"}, "has no model_name"),
        ({"type": "gemini"}, "has no model_name"),
    ],
)
@pytest.mark.parametrize("used", [True, False])
def test_check_names_a_model_that_cannot_answer(
    used: bool, model: dict[str, str], why: str, chatops: CommandLine
) -> None:
    roles = {"assistant": {"primary": "m1", "backup_1": "demo"} if used else {}}
    flags = registry(chatops, models={"m1": model}, roles=roles)
    checked = chatops("registry", "check", flags[1])
    assert checked.code == 0
    said = f"Role assistant: m1 {why}; demo answers instead." if used else f"Model m1 {why}. No role uses it."
    assert f"warning: {said}\n" in checked.out
    assert "It can be used" not in checked.out
    assert "these models cannot answer: m1." in checked.out
    assert chatops("registry", "check", flags[1], "--output-format", "json").json["unusable_models"] == ["m1"]
    # Each command says what concerns a role; a model that nobody uses is for the check alone.
    assert (why in chatops(*flags, "roles", "list").err) is used


def test_a_role_whose_models_all_cannot_answer_is_told_of_no_other(chatops: CommandLine) -> None:
    models = {"a": {"type": "openai", "model_name": "x"}}
    flags = registry(chatops, models=models, roles={"assistant": {"primary": "a", "backup_1": "missing"}})
    assert "a has no api_url; no other model answers in this role." in chatops("registry", "check", flags[1]).out


@pytest.mark.more
@pytest.mark.parametrize(
    ("name", "asked"),
    [("json", "<|python_tag|>{"), ("function_tag", "<function=file_read>{"), ("python_list", "[file_read(")],
)
def test_tool_format_takes_the_names_that_older_registries_use(name: str, asked: str, chatops: CommandLine) -> None:
    with FakeOpenAI([says(f"{asked}nothing")]) as server:
        file = Path(registry_for(chatops.workspace, server.url))
        value = json.loads(file.read_text())
        value["models"]["fake"]["tool_format"] = name
        file.write_text(json.dumps(value))
        checked = chatops("registry", "check", str(file))
        assert (checked.code, "0 warnings. It can be used." in checked.out) == (0, True)
        chatops("-p", "read it", "--registry", str(file))
        (request,) = server.requests[:1]
    assert request.tool_names == []
    assert "file_read" in request.system


def test_doctor_names_a_workflow_that_cannot_be_read(chatops: CommandLine, chatops_home: Path) -> None:
    folder = chatops_home / "config" / "workflows"
    folder.mkdir(parents=True)
    (folder / "fine.yaml").write_text("steps: [{name: a, system_prompt: p}]")
    (folder / "bad.yaml").write_text("steps:\n  - name: a\n   - b\n")
    report = {check["name"]: check for check in chatops("doctor", "--output-format", "json").json}
    assert report["workflow bad"]["grade"] == "warn"
    assert f"{folder / 'bad.yaml'}, line 3, column 4" in report["workflow bad"]["text"]
    assert "registry check" in report["workflow bad"]["advice"]
    assert "workflow fine" not in report


def test_a_backup_takes_over_visibly_from_a_program_that_is_not_installed(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    flags = registry(chatops, roles={"assistant": {"primary": "claude_cli", "backup_1": "demo"}})
    ran = chatops(*flags, "-p", "read note.txt")
    assert ran.code == 0
    assert "due on Friday" in ran.out
    assert "claude is not installed" in ran.err


def test_a_default_model_that_is_gone_is_said(chatops: CommandLine, chatops_home: Path) -> None:
    chatops("models", "list")
    store = Store(chatops_home / "data" / "chatops.db")
    store.set_setting("default_model", "gone")
    store.close()
    ran = chatops("-p", "hello")
    assert ran.code == 0
    assert "Your default model gone is not in the registry; the demo answers." in ran.err
    assert "Your default model" not in chatops("sessions", "list").err
    assert "warn  registry" in chatops("doctor").out and "default model gone" in chatops("doctor").out


def test_warnings_before_a_run_are_about_the_role_and_model_in_use_and_doctor_has_the_rest(
    chatops: CommandLine, tmp_path: Path
) -> None:
    many = [name for name in BUILT_IN_TOOLS if name.startswith(("file_", "scratch_", "shell_", "python_", "web_f"))]
    value = {
        "version": 3,
        "default_role": "used",
        "models": {"spare": {"api_url": "http://127.0.0.1:9", "model_name": "m", "api_key": "sk-1"}},
        "roles": {
            "used": {"primary": "demo", "tools": [*many, "knowledge_of_all"]},
            "other": {"primary": "gone", "persona": "nobody"},
        },
        "users": {"*": {"access_level": "admin", "confirm_deny": ["knowledge_of_some"]}},
    }
    file = tmp_path / "warned.json"
    file.write_text(json.dumps(value))
    spare, other, crowd, used = "a key in the file", "names the persona", "lists 9 tools", "knowledge_of_all"
    ran = chatops("-p", "hello", "--registry", str(file))
    assert used in ran.err and "knowledge_of_some" in ran.err
    assert (
        spare not in ran.err and other not in ran.err and "there is no model" not in ran.err and "lists" not in ran.err
    )
    check = chatops("registry", "check", str(file)).out
    assert all(text in check for text in (spare, other, used)) and crowd not in check
    doctor = chatops("doctor", "--registry", str(file)).out
    assert all(text in doctor for text in (spare, other, used)) and doctor.count("models choose badly") == 1
