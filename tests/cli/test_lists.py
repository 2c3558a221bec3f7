"""Sessions, roles, tools, policy, registry, doctor: what they print, for people and for scripts."""

import json
import os
import stat
from contextlib import closing
from pathlib import Path

import pytest

from chatops.commands.parser import build_parser
from chatops.domain.ids import SessionId
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from tests.support.command_line import CommandLine


def test_sessions_are_listed_shown_renamed_searched_forked_and_deleted(chatops: CommandLine) -> None:
    session = chatops("-p", "read note.txt", "--output-format", "json").json["session_id"]
    (listed,) = chatops("sessions", "list", "--output-format", "json").json
    assert listed["id"] == session
    assert chatops("sessions", "rename", session, "Invoices  of\nNovember").code == 0
    assert "Invoices of November" in chatops("sessions", "list").out
    shown = chatops("sessions", "show", session)
    assert "due on Friday" in shown.out
    assert "read note.txt" in shown.out

    found = chatops("sessions", "search", "DUE on friday", "--output-format", "json")
    assert {hit["session_id"] for hit in found.json} == {session}
    nothing = chatops("sessions", "search", "nowhere to be found")
    assert (nothing.code, nothing.out) == (0, "")
    assert "Nothing found" in nothing.err

    copy = chatops("sessions", "fork", session).out.strip()
    assert copy != session
    assert chatops("sessions", "delete", copy, "--yes").code == 0
    assert [one["id"] for one in chatops("sessions", "list", "--output-format", "json").json] == [session]


def test_a_list_of_many_sessions_says_what_it_leaves_out(chatops: CommandLine) -> None:
    for text in ("one", "two", "three"):
        chatops("-p", text)
    listed = chatops("sessions", "list", "--limit", "2")
    assert len(listed.out.splitlines()) == 3
    assert "The newest 2 of 3 sessions. All of them: --limit 3" in listed.err
    assert chatops("sessions", "list", "--limit", "3").err == ""


@pytest.mark.more
def test_a_search_finds_words_in_forks_too_and_titles_whatever_the_case(chatops: CommandLine) -> None:
    def found(text: str) -> set[str]:
        return {hit["session_id"] for hit in chatops("sessions", "search", text, "--output-format", "json").json}

    session = chatops("-p", "Where is the ÄRGER? 100% in the \\ cellar_room", "--output-format", "json").json[
        "session_id"
    ]
    other = chatops("-p", "hello", "--output-format", "json").json["session_id"]
    assert chatops("sessions", "rename", other, "Cellar door").code == 0
    fork = chatops("sessions", "fork", session).out.strip()
    assert found("ärger") == found("100%") == found("\\ CELLAR_") == {session, fork}
    assert found("cellar") == {session, fork, other}
    # As text, a message stands once, in the copy used last.
    assert [line.split("  ")[1] for line in chatops("sessions", "search", "100%").out.splitlines()[1:]] == [
        "↳ Where is the ÄRGER?"
    ]
    assert chatops("-p", "also 100%", "-r", fork).code == 0
    assert ["also 100%" in line for line in chatops("sessions", "search", "100%").out.splitlines()[1:]] == [True, False]
    assert found("cellarXroom") == set()
    assert chatops("sessions", "delete", session, "--yes").code == 0
    assert found("ÄRGER") == {fork}


def test_sessions_of_other_folders_are_listed_on_request(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = chatops("-p", "read note.txt", "--output-format", "json").json["session_id"]
    monkeypatch.chdir(tmp_path)
    assert chatops("sessions", "list", "--output-format", "json").json == []
    assert session in chatops("sessions", "list", "--all").out
    assert session in chatops("--workspace", str(chatops.workspace), "sessions", "list").out
    ran = chatops("-p", "hello", "-c")
    assert ran.code == 1
    assert "no session" in ran.err


def test_a_session_with_an_unfinished_turn_is_not_deleted_by_accident(chatops: CommandLine) -> None:
    session, _ = chatops.paused("run `touch made.txt`")
    refused = chatops("sessions", "delete", session)
    assert refused.code == 1
    assert "--yes" in refused.err
    assert chatops("approvals", "list", "--output-format", "json").json != []


def test_a_session_that_is_open_somewhere_is_not_deleted_under_it(chatops: CommandLine, chatops_home: Path) -> None:
    """Nothing typed or done there could be stored any more."""
    named, _ = chatops.paused("run `touch made.txt`")
    session = SessionId(named)
    with closing(Store(chatops_home / "data" / "chatops.db")) as store:
        lease = store.acquire_lease(session, this_process())
        refused = chatops("sessions", "delete", session, "--yes")
        assert refused.code == 1
        assert f"is open in another chatops (pid {os.getpid()} on " in refused.err
        assert chatops("approvals", "list", "--output-format", "json").json != []
        store.release_lease(session, this_process(), lease)
    assert chatops("sessions", "delete", session, "--yes").code == 0


@pytest.mark.parametrize("style", ["md", "html", "jsonl", "openai"])
def test_an_export_goes_to_stdout_or_to_a_new_file(style: str, chatops: CommandLine) -> None:
    session = chatops("-p", "read note.txt", "--output-format", "json").json["session_id"]
    printed = chatops("sessions", "export", session, "--format", style)
    assert "due on Friday" in printed.out
    target = chatops.workspace / "out.txt"
    written = chatops("sessions", "export", session, "--format", style, "--output", str(target))
    assert written.code == 0
    assert target.read_text() == printed.out
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    refused = chatops("sessions", "export", session, "--output", str(target))
    assert refused.code == 1
    assert "not overwritten" in refused.err


def test_roles_say_what_they_may_do_here(chatops: CommandLine) -> None:
    roles = {one["role"]: one for one in chatops("roles", "list", "--output-format", "json").json}
    assert {"assistant", "coder", "researcher", "reviewer", "operator"} <= set(roles)
    assert roles["coder"]["tools"]["shell_exec"] == "ask"
    assert "shell_exec" not in roles["researcher"]["tools"]
    lowered = chatops("--access", "viewer", "roles", "list", "--output-format", "json").json
    tools = {tool for one in lowered for tool in one["tools"]}
    assert tools <= {"file_read", "file_list", "file_search"}


def test_a_role_shows_where_each_line_of_its_prompt_comes_from(chatops: CommandLine) -> None:
    shown = chatops("roles", "show", "coder")
    assert shown.code == 0
    order = [shown.out.index(f"[{name}]") for name in ("base", "persona", "environment", "memory", "role context")]
    assert order == sorted(order)
    assert "--- Role Context ---" in shown.out
    value = chatops("roles", "show", "coder", "--output-format", "json").json
    assert value["prompt"][-1]["name"] == "role context"
    assert chatops("sessions", "list", "--all", "--output-format", "json").json == []


def test_tools_are_listed_with_the_layer_that_denies_them(chatops: CommandLine) -> None:
    tools = {
        one["tool"]: one for one in chatops("tools", "list", "--role", "researcher", "--output-format", "json").json
    }
    assert tools["file_read"]["verdict"] == "allow"
    assert tools["shell_exec"]["verdict"] == "deny"
    assert "tools of role researcher" in tools["shell_exec"]["reason"]
    assert "shell_exec" in chatops("tools", "list").out


def test_policy_explain_names_the_deciding_layer(chatops: CommandLine) -> None:
    explain = ["policy", "explain", "--role"]
    assert "deny, decided by tools of role researcher" in chatops(*explain, "researcher", "shell_exec").out
    assert "ask, decided by" in chatops(*explain, "coder", "shell_exec", '{"command": "git push"}').out
    allowed = chatops(*explain, "coder", "file_read", '{"path": "note.txt"}', "--output-format", "json").json
    assert allowed["verdict"] == "allow"
    outside = chatops(*explain, "coder", "file_read", '{"path": "/etc/shadow"}', "--output-format", "json").json
    assert outside["verdict"] == "deny" or outside["problems"]


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--role", "coder", "shel_exec"], 0, "shell_exec"),
        (["--role", "codr", "shell_exec"], 2, "Did you mean coder"),
        (["--role", "coder", "shell_exec", "{"], 2, "not valid JSON"),
        (["--role", "coder", "shell_exec", "[]"], 2, "not a JSON object"),
    ],
)
def test_policy_explain_of_what_is_not_there(arguments: list[str], code: int, said: str, chatops: CommandLine) -> None:
    ran = chatops("policy", "explain", *arguments)
    assert ran.code == code
    assert said in ran.err


def test_lists_say_of_a_tool_what_explain_says_of_it(chatops: CommandLine) -> None:
    file = chatops.workspace / "r.json"
    role = {"tools": ["file_read"], "rules": [{"tool": "file_read", "verdict": "ask"}]}
    file.write_text(json.dumps({"version": 3, "default_role": "coder", "roles": {"coder": role}}))
    named = ("--registry", str(file))
    listed = {tool["tool"]: tool for tool in chatops(*named, "tools", "list", "--output-format", "json").json}
    explained = chatops(*named, "policy", "explain", "file_read", "--output-format", "json").json
    (row,) = chatops(*named, "roles", "list", "--output-format", "json").json
    assert (listed["file_read"]["verdict"], explained["verdict"], row["tools"]) == ("ask", "ask", {"file_read": "ask"})


def test_policy_list_names_each_standing_answer_and_its_source(chatops: CommandLine) -> None:
    file = chatops.workspace / "r.json"
    rule = {"tool": "shell_exec", "match": ["git", "status", "*"], "verdict": "allow"}
    role = {"tools": ["shell_exec"]}
    file.write_text(json.dumps({"version": 3, "default_role": "coder", "roles": {"coder": role}}))
    listing = ["--registry", str(file), "policy", "list", "--output-format", "json"]
    assert chatops(*listing).json == []
    file.write_text(json.dumps({"version": 3, "default_role": "coder", "roles": {"coder": {**role, "rules": [rule]}}}))
    (granted,) = chatops(*listing).json
    assert granted == {"role": "coder", "rule": "shell_exec:git status *", "source": "rule of role coder"}


def test_policy_matrix_agrees_with_what_explain_says_of_each_cell(chatops: CommandLine) -> None:
    rows = chatops("policy", "matrix", "--role", "coder", "--output-format", "json").json
    assert all(next(iter(row["verdicts"])) == "coder" for row in rows), "the named role comes first"
    found = {row["tool"]: row["verdicts"] for row in rows}
    assert (found["shell_exec"]["coder"], found["file_write"]["researcher"]) == ("ask", "deny")
    for role in ("assistant", "coder"):
        why = chatops("policy", "explain", "--role", role, "file_write", "--output-format", "json").json
        assert found["file_write"][role] == why["verdict"]
    lines = chatops("policy", "matrix", "--role", "coder").out.splitlines()
    assert lines[0].split()[:2] == ["TOOL", "coder"]
    assert next(line.split()[1] for line in lines if line.startswith("shell_exec")) == "ask"


def test_each_layer_is_named_with_its_rule_and_the_line_it_stands_in(chatops: CommandLine) -> None:
    file = chatops.workspace / "r.json"
    file.write_text("""{"version": 3, "default_role": "coder", // lines count
  "roles": {"coder": {
    "tools": ["shell_exec"],
    "rules": [
      {"tool": "shell_exec", "match": ["ls", "*"], "verdict": "allow"},
      {"tool": "shell_exec", "match": ["git", "push", "*"], "verdict": "deny"}]}},
  "users": {"*": {"access_level": "operator",
    "confirm_deny": ["file_write"]}},
  "tools": {"shell_exec": {
    "verdict": "ask"}}
}""")
    named = ("--registry", str(file), "policy")
    explain = (*named, "explain", "--output-format", "json", "shell_exec")
    pushed = chatops(*explain, '{"command": "git push -f"}').json
    assert (pushed["verdict"], pushed["reason"]) == ("deny", "rules of role coder")
    place = {key: pushed[key] for key in ("rule", "file", "line", "key")}
    deny = "shell_exec:git push *"
    assert place == {"rule": deny, "file": str(file), "line": 6, "key": "roles.coder.rules[1]"}
    lines = {layer["reason"]: (layer["line"], layer["key"]) for layer in pushed["layers"] if layer["file"]}
    assert lines == {
        "tools of your registry": (10, "tools.shell_exec.verdict"),
        "access level operator": (7, "users.*.access_level"),
        "confirm_deny in your registry": (8, "users.*.confirm_deny"),
        "tools of role coder": (3, "roles.coder.tools"),
        "rules of role coder": (6, "roles.coder.rules[1]"),
    }
    assert chatops(*explain, '{"command": "ls"}').json["line"] == 5, "the rule that answers"
    assert (
        f"deny   rules of role coder  {deny}  {file}:6"
        in chatops(*named, "explain", "shell_exec", '{"command": "git push"}').out
    )
    (cell,) = [
        row["why"]["coder"]
        for row in chatops(*named, "matrix", "--output-format", "json").json
        if row["tool"] == "file_write"
    ]
    assert cell == {
        "layer": "confirm_deny in your registry",
        "rule": None,
        "file": str(file),
        "line": 8,
        "key": "users.*.confirm_deny",
    }


def test_the_packaged_registry_is_in_order_and_has_a_schema(chatops: CommandLine) -> None:
    checked = chatops("registry", "check", "--output-format", "json")
    assert checked.code == 0
    assert checked.json["ok"] is True
    # A search service is up to the user.
    assert [warning for warning in checked.json["warnings"] if "does not get web_search" not in warning] == []
    assert "roles" in chatops("registry", "schema").json["properties"]


def test_a_broken_registry_is_reported_with_line_and_column(chatops: CommandLine) -> None:
    file = chatops.workspace / "broken.json"
    file.write_text('{\n  "version": 3,\n  "users": {"*": {"acces_level": "admin"}}\n}\n')
    ran = chatops("registry", "check", str(file))
    assert ran.code == 2
    assert "line 3, column" in ran.err
    assert "acces_level" in ran.err
    value = chatops("registry", "check", str(file), "--output-format", "json")
    assert value.code == 2
    assert value.json["ok"] is False


def test_doctor_says_what_is_there_and_never_shows_a_key(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TEST_KEY", "sk-very-secret-0123456789")
    file = chatops.workspace / "r.json"
    model = {"type": "openai", "api_url": "http://127.0.0.1:9/v1", "model_name": "m", "api_key_env": "MY_TEST_KEY"}
    roles = {"assistant": {"primary": "gone", "tools": []}}
    file.write_text(json.dumps({"version": 3, "default_role": "assistant", "models": {"gone": model}, "roles": roles}))
    ran = chatops("--registry", str(file), "doctor", "--output-format", "json")
    assert ran.code == 1
    grades = {(check["name"], check["grade"]) for check in ran.json}
    assert {("model gone", "fail"), ("store", "ok"), ("registry", "ok")} <= grades
    assert "very-secret" not in ran.out + ran.err
    assert "its key is set" in ran.out


def test_doctor_and_models_list_say_the_same_of_a_model(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    file = chatops.workspace / "r.json"
    model = {"type": "openai", "api_url": "http://127.0.0.1:9/v1", "model_name": "m"}
    roles = {"assistant": {"primary": "gone", "tools": []}}
    file.write_text(json.dumps({"version": 3, "default_role": "assistant", "models": {"gone": model}, "roles": roles}))
    listed = chatops("--registry", str(file), "models", "list", "--output-format", "json").json
    (status,) = [one["status"] for one in listed if one["name"] == "gone"]
    offline = chatops("--registry", str(file), "models", "list", "--offline", "--output-format", "json").json
    assert [(one["name"], "status" in one) for one in offline] == [(one["name"], False) for one in listed]
    ran = chatops("--registry", str(file), "models", "list")
    rows = {line[2:].split()[0]: line for line in ran.out.splitlines()}
    assert rows["gone"].endswith("  no answer")
    assert rows["demo"].endswith("  ready") and rows["claude_cli"].endswith("  not available here")
    assert f"gone: {status}" in ran.err and "demo: " not in ran.err
    checks = chatops("--registry", str(file), "doctor", "--output-format", "json").json
    assert status in [f"{one['text']} {one['advice']}" for one in checks if one["name"] == "model gone"]


def test_doctor_is_content_with_a_fresh_machine(chatops: CommandLine) -> None:
    ran = chatops("doctor")
    assert ran.code == 0, ran.out
    assert all(line.split()[0] in ("ok", "warn") for line in ran.out.splitlines())


def test_doctor_reports_a_registry_that_cannot_be_used(chatops: CommandLine) -> None:
    (chatops.workspace / "r.json").write_text("{")
    broken = chatops("--registry", "r.json", "doctor")
    assert broken.code == 1
    assert "fail  registry" in broken.out
    missing = chatops("--registry", "nowhere.json", "doctor")
    assert missing.code == 1
    assert "fail  configuration" in missing.out


def test_policy_explain_judges_a_call_as_the_run_would(chatops: CommandLine) -> None:
    key = chatops.workspace / "key.txt"
    key.write_text("sk-1")
    file = chatops.workspace / "r.json"
    models = {"m": {"api_url": "http://h/v1", "api_key_file": str(key)}}
    roles = {"coder": {"primary": "demo", "tools": ["file_read", "shell_exec"]}}
    users = {"*": {"access_level": "operator"}}
    value = {"version": 3, "default_role": "coder", "models": models, "roles": roles, "users": users}
    file.write_text(json.dumps(value))
    explain = ["--registry", str(file), "policy", "explain", "--output-format", "json", "file_read"]
    assert chatops(*explain, '{"path": "key.txt"}').json["verdict"] == "deny"
    assert chatops(*explain, '{"path": "note.txt"}').json["verdict"] == "allow"


def test_a_role_that_is_named_before_the_command_counts() -> None:
    parser = build_parser()
    for command in (["policy", "explain", "shell_exec"], ["tools", "list"]):
        assert parser.parse_args(["--role", "coder", *command]).role == "coder"
        assert parser.parse_args(["--role", "coder", *command, "--role", "reviewer"]).role == "reviewer"
        assert parser.parse_args(command).role is None
    run = parser.parse_args(["--role", "coder", "--model", "demo", "workflow", "run", "research", "a flow"])
    assert (run.role, run.model) == ("coder", "demo")


@pytest.mark.parametrize("arguments", [[], ['{"path": "a"}']])
def test_explaining_a_tool_that_is_not_registered_is_an_answer(arguments: list[str], chatops: CommandLine) -> None:
    explain = ["policy", "explain", "--role", "coder", "file_reed", *arguments]
    ran = chatops(*explain)
    assert (ran.code, ran.out) == (0, "file_reed: deny, no tool of this name is registered\n")
    assert "file_read" in ran.err
    value = chatops(*explain, "--output-format", "json").json
    assert (value["verdict"], value["reason"]) == ("deny", "no tool of this name is registered")


def test_a_tool_is_shown_with_its_arguments(chatops: CommandLine) -> None:
    shown = chatops("tools", "show", "shell_exec", "--role", "coder")
    assert shown.code == 0
    for expected in ("command", "string", "timeout_s", "optional", "Role coder, level operator: ask."):
        assert expected in shown.out
    denied = chatops("tools", "show", "shell_exec", "--role", "researcher").out
    assert "denied by tools of role researcher" in denied
    value = chatops("tools", "show", "file_edit", "--output-format", "json").json
    assert sorted(value["schema"]["properties"]) == ["new", "old", "path"]
    unknown = chatops("tools", "show", "file_reed")
    assert (unknown.code, unknown.out) == (2, "")
    assert "file_read" in unknown.err
