"""Policy files: expected verdicts for CI, and those that follow from what was decided."""

import json
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.sanitize import reveal
from tests.support.command_line import CommandLine

COMMAND = {"tool": "shell_exec", "arguments": {"command": "touch made.txt"}}


def written(file: Path, *cases: dict[str, Any]) -> str:
    """Write a file of cases, one a line, and return its path."""
    lines = ",\n".join(json.dumps(case) for case in cases)
    file.write_text(f'{{"cases": [ // of CI\n{lines}]}}')
    return str(file)


def test_verdicts_as_expected_pass_whatever_the_level_of_who_tests(chatops: CommandLine) -> None:
    inner = chatops.workspace / "inner"
    inner.mkdir()
    (inner / "only.txt").write_text("x")
    link = {"tool": "file_read", "arguments": {"path": "out"}}
    (inner / "out").symlink_to("/etc/passwd")
    file = written(
        chatops.workspace / "policy.json",
        {"role": "coder", "level": "operator", "call": COMMAND, "verdict": "ask", "layer": "tool default"},
        {"role": "coder", "level": "user", "call": COMMAND, "verdict": "deny", "layer": "access level user"},
        {"role": "researcher", "level": "admin", "call": COMMAND, "verdict": ["deny"]},
        {"call": {"tool": "file_read", "arguments": {"path": "only.txt"}}, "workspace": "inner", "verdict": "allow"},
        {"call": link, "workspace": "inner", "verdict": ["ask", "deny"]},
        {"role": "coder", "call": {"tool": "bash"}, "verdict": "deny"},
    )
    ran = chatops("policy", "test", file)
    assert (ran.code, ran.out) == (0, ""), ran.err
    assert "6 cases: none differ." in ran.err
    lowered = chatops("--access", "viewer", "policy", "test", file, "--output-format", "json")
    assert lowered.code == 1, "the flag lowers the level of each case too"
    assert not (chatops.workspace / "made.txt").exists()
    assert chatops("sessions", "list", "--all", "--output-format", "json").json == []


def test_a_verdict_that_differs_is_named_with_the_layer_and_its_line(chatops: CommandLine) -> None:
    registry = chatops.workspace / "r.json"
    registry.write_text("""{"version": 3, "default_role": "coder",
  "roles": {"coder": {"tools": ["shell_exec", "web_search"], "rules": [
    {"tool": "shell_exec", "match": ["git", "push", "*"], "verdict": "deny"}]}},
  "users": {"*": {"access_level": "viewer"}, "ana": {"access_level": "operator", "confirm_deny": ["web_search"]}}}""")
    push = {"tool": "shell_exec", "arguments": {"command": "git push"}}
    file = written(
        chatops.workspace / "policy.json",
        {"name": "pushes\u202e", "level": "operator", "call": push, "verdict": "ask"},
        {"user": "ana", "call": COMMAND, "verdict": "ask", "layer": "access level operator"},
        {"user": "ana", "call": COMMAND, "verdict": "ask"},
    )
    ran = chatops("--registry", str(registry), "policy", "test", file)
    assert ran.code == 1
    shown = reveal("\u202e")
    assert ran.out.splitlines() == [
        f"{file}, line 2, column 1, key cases[0] (pushes{shown}): shell_exec as the default role",
        f"  expected ask, found deny, decided by rules of role coder  shell_exec:git push *  {registry}:3",
        f"{file}, line 3, column 1, key cases[1]: shell_exec as the default role",
        "  expected ask by access level operator, found ask, decided by tool default",
    ]
    value = chatops("--registry", str(registry), "policy", "test", "--output-format", "json", file)
    assert (value.code, value.json["differing"]) == (1, 2)
    first = value.json["cases"][0]
    assert (first["verdict"], first["layer"], first["rule"]) == ("deny", "rules of role coder", "shell_exec:git push *")
    assert [one["as_expected"] for one in value.json["cases"]] == [False, False, True]


@pytest.mark.parametrize(
    ("case", "said"),
    [
        (
            {"role": "codr", "call": COMMAND, "verdict": "ask"},
            "line 2, column 1, key cases[0]: There is no role 'codr'",
        ),
        ({"call": COMMAND, "verdit": "ask"}, "key cases[0].verdit: there is no such key here; 'verdict' may be meant"),
        ({"call": COMMAND, "verdict": []}, "cases[0].verdict"),
        ({"call": COMMAND, "verdict": "ask", "level": "root"}, "cases[0].level"),
        ({"call": COMMAND, "verdict": "ask", "workspace": "gone"}, "there is no folder 'gone'"),
    ],
)
def test_a_file_that_is_wrong_is_reported_by_place(case: dict[str, Any], said: str, chatops: CommandLine) -> None:
    ran = chatops("policy", "test", written(chatops.workspace / "policy.json", case))
    assert ran.code == 2
    assert said in ran.err
    assert "Traceback" not in ran.err


def test_what_was_decided_becomes_cases_that_hold_now_and_fail_once_it_would_be_otherwise(chatops: CommandLine) -> None:
    _, approved = chatops.paused("run `touch yes.txt`")
    assert chatops("approvals", "approve", approved).code == 0
    _, denied = chatops.paused("run `touch no.txt`")
    assert chatops("approvals", "deny", denied).code == 0
    for session in chatops("sessions", "list", "--output-format", "json").json:
        chatops("resume", session["id"])
    # Not decided by a user.
    chatops("-p", "run `touch headless.txt`", "--role", "coder", "--on-approval", "deny")
    file = chatops.workspace / "policy.json"
    assert chatops("policy", "test", "--from-history", str(file)).code == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    cases = json.loads(file.read_text())["cases"]
    found = {case["call"]["arguments"]["command"]: (case["role"], case["level"], case["verdict"]) for case in cases}
    role = cases[0]["role"]
    assert found == {
        "touch yes.txt": (role, "operator", ["allow", "ask"]),
        "touch no.txt": (role, "operator", ["ask", "deny"]),
    }
    assert chatops("policy", "test", "--from-history", str(file)).code == 1, "nothing is overwritten"
    assert chatops("policy", "test", str(file)).code == 0
    registry = chatops.workspace / "r.json"
    rule = {"tool": "shell_exec", "match": ["touch", "no.txt"], "verdict": "allow"}
    other = {"version": 3, "default_role": role, "roles": {role: {"rules": [rule]}}}
    registry.write_text(json.dumps(other))
    ran = chatops("--registry", str(registry), "policy", "test", str(file))
    assert ran.code == 1
    assert "expected ask or deny, found allow" in ran.out and "rule of role" in ran.out
    assert "1 differs" in ran.err


def test_logged_calls_are_judged_again_and_only_what_differs_is_printed(
    chatops: CommandLine, chatops_home: Path
) -> None:
    chatops.paused("run `touch a.txt`")
    session, _ = chatops.paused("run `touch b.txt`")
    chatops("-p", "run `touch c.txt`", "--role", "coder", "--approve", "shell_exec:touch *")
    chatops("-p", "read note.txt", "--role", "coder")
    same = chatops("policy", "replay", "--output-format", "json").json
    assert (same["differing"], same["differences"]) == (0, []), "nothing has changed"
    assert same["judged"] == 4
    registry = chatops.workspace / "r.json"
    registry.write_text("""{"version": 3, "default_role": "assistant", "roles": {
  "assistant": {"tools": ["shell_exec"]},
  "coder": {"tools": ["shell_exec"], "rules": [
    {"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow"}]}},
  "users": {"*": {"access_level": "operator"}}}""")
    replay = ("--registry", str(registry), "policy", "replay", "--since", "1d")
    found = chatops(*replay, "--output-format", "json").json
    read = next(one for one in found["differences"] if one["tool"] == "file_read")
    assert (read["before"], read["layer_before"]) == ("allow", "tool default")
    assert (read["verdict"], read["layer"], read["count"]) == ("deny", "tools of role coder", 1)
    assert read["place"] == f"{registry}:3"
    (asked,) = [one for one in found["differences"] if one["before"] == "ask"]
    assert (asked["verdict"], asked["rule"], asked["count"]) == ("allow", "shell_exec:touch *", 2)
    assert asked["place"] == f"{registry}:4"
    (alone,) = [chatops(*replay, session, "--output-format", "json").json]
    assert (alone["judged"], alone["differing"]) == (1, 1), "of the named session only"
    printed = chatops(*replay)
    assert "allow -> deny" in printed.out and f"{registry}:3" in printed.out
    assert chatops("policy", "replay", "--since", "2999-01-01").err.startswith("0 calls judged, none differ.")
    with closing(sqlite3.connect(chatops_home / "data" / "chatops.db")) as base, base:
        base.execute("UPDATE audit SET body = '{' WHERE body LIKE '%file_read%' AND body LIKE '%verdict%'")
        base.execute("UPDATE audit SET body = json_remove(body, '$.facts') WHERE body LIKE '%touch b.txt%'")
    said = chatops("policy", "replay").err
    assert "Not judged: 1 (damaged rows)." in said and "Not judged: 1 (without kept facts)." in said
    with closing(sqlite3.connect(chatops_home / "data" / "chatops.db")) as base, base:
        changed = """json_set(body, '$.layers', json('[{"name": 1}]'), '$.verdict', json('{}'))"""
        base.execute(f"UPDATE audit SET body = {changed} WHERE body LIKE '%touch a.txt%' AND body LIKE '%verdict%'")
        base.execute("UPDATE audit SET body = json_remove(body, '$.at') WHERE body LIKE '%touch c.txt%'")
    replayed = chatops("policy", "replay")
    assert replayed.code == 0 and "Not judged: 3 (damaged rows)." in replayed.err, replayed.err
