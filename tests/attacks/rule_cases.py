"""Hostile calls against remembered rules, as cases of the corpus: each tries to get more out of a rule than it says.

``policy.rules`` are rules that an earlier session has stored: the rule as after ``--approve``, its scope, and fields
that make it one of somebody or something else. ``policy.between`` are commands that run before the call is made.
"""

from typing import Any

from tests.attacks.command_cases import a_case

_GIT = {"rule": "shell_exec:git status *", "scope": "role"}
_LS = {"rule": "shell_exec:ls *", "scope": "folder"}
_CAT = {"rule": "shell_exec:cat *", "scope": "role"}
_EDIT = {"rule": "file_write:src/**", "scope": "role"}


def rule_cases() -> list[dict[str, Any]]:
    """The cases, attacks first."""
    attacks = [
        _shell("an assignment before the command", _GIT, "GIT_DIR={OUT} git status"),
        _shell("env as a wrapper", _GIT, "env GIT_EXTERNAL_DIFF={OUT}/victim.sh git status"),
        _shell("sudo as a wrapper", _GIT, "sudo git status"),
        _shell("xargs as a wrapper", _GIT, "xargs git status"),
        _shell("sh -c as a wrapper", _GIT, "sh -c 'git status; touch {OUT}/PWNED'"),
        _shell("a second command", _GIT, "git status; touch {OUT}/PWNED"),
        _shell("a second line", _GIT, "git status\ntouch {OUT}/PWNED"),
        _shell("a carriage return that hides the rest", _GIT, "git status\r; touch {OUT}/PWNED"),
        _shell("an option of git before its verb", _GIT, "git -c core.fsmonitor={OUT}/victim.sh status"),
        _shell("a program of that name in the workspace", _GIT, "./git status", files={"git": "#!/bin/sh\ntouch x"}),
        _shell("a look-alike name", _GIT, "gіt status"),
        _shell(
            "a glob that becomes an option", {"rule": "shell_exec:sort *", "scope": "folder"}, "sort *",
            files={"--output=count.txt": "", "a": "x\n"}, invariants=["I-NOT-RUN"],
        ),
        _shell("a path out of the folder", _CAT, "cat ../out/canary.txt", invariants=["I-CANARY-READ"]),
        _shell("an absolute path", _CAT, "cat {OUT}/canary.txt", invariants=["I-CANARY-READ"]),
        _shell(
            "a symlink out of the folder", _CAT, "cat notes.txt", symlinks={"notes.txt": "{OUT}/canary.txt"},
            invariants=["I-CANARY-READ"],
        ),
        _shell(
            "an exact rule for a name that is a symlink here", {"rule": "shell_exec:cat notes.txt", "scope": "role"},
            "cat notes.txt", symlinks={"notes.txt": "{OUT}/canary.txt"}, invariants=["I-CANARY-READ"],
        ),
        _shell("another folder to run in", _GIT, "git status", cwd="vendor", dirs=["vendor"]),
        _shell("a rule of another role", {**_LS, "role": "operator"}, "ls -la"),
        _shell("a rule of another user", {**_LS, "uid": 4242}, "ls -la"),
        _shell("a rule for the tool as it was", {**_LS, "definition": "0" * 64}, "ls -la"),
        _shell("a rule that does not know its tool", {**_LS, "definition": ""}, "ls -la"),
        _shell("a rule of a folder of the same name", {**_LS, "folder": "1:1:{WS}"}, "ls -la"),
        _shell("a rule that names no folder", {**_LS, "folder": ""}, "ls -la"),
        _shell("scopes that are switched off", _LS, "ls -la", remember=["session"]),
        _shell("rules that are switched off", _LS, "ls -la", remember=[]),
        _shell(
            "the folder was replaced", _LS, "ls -la",
            between=["mv {WS} {WS}.old", "mkdir {WS}", "cp -a {WS}.old/. {WS}"],
        ),
        _shell(
            "the folder became a symlink to another one", _LS, "ls -la",
            between=["mv {WS} {WS}.old", "mkdir {WS}.other", "ln -s {WS}.other {WS}"],
        ),
        _shell("a test runner everywhere", {"rule": "shell_exec:pytest *", "scope": "role"}, "pytest -q"),
        _shell("an option of a test runner", {"rule": "shell_exec:pytest *", "scope": "folder"}, "pytest -p evil"),
        _shell("an interpreter", {"rule": "shell_exec:python3 *", "scope": "role"}, "python3 evil.py"),
        _shell("a rule for everything", {"rule": "shell_exec", "scope": "role"}, "ls -la"),
        _shell("a repaired call", _LS, "ls -la", raw="{'command': 'ls -la'}"),
        _write("a file beside the folder of the rule", _EDIT, "src/../.git/hooks/pre-commit"),
        _write("a symlink in the folder of the rule", _EDIT, "src/out/new.txt", symlinks={"src/out": "{OUT}"}),
        _write("a hidden file in the folder of the rule", _EDIT, "src/.envrc"),
    ]  # fmt: skip
    controls = [
        _shell("control: a rule answers in its folder", _LS, "ls -la", benign=True),
        _shell("control: a rule answers everywhere", _CAT, "cat a.txt", files={"a.txt": "x\n"}, benign=True),
        _shell("control: git with a rule for everywhere", _GIT, "git status --short", benign=True),
        _write("control: a file in the folder of the rule", _EDIT, "src/a.txt", benign=True),
    ]
    return [{"id": f"RULE-{number:03}", **case} for number, case in enumerate([*attacks, *controls], 1)]


def _shell(about: str, rule: dict[str, Any], command: str, *, cwd: str = "", **more: Any) -> dict[str, Any]:
    arguments = {"command": command, "cwd": cwd} if cwd else {"command": command}
    return _case(about, rule, "shell_exec", arguments, **more)


def _write(about: str, rule: dict[str, Any], path: str, **more: Any) -> dict[str, Any]:
    return _case(about, rule, "file_write", {"path": path, "content": "x"}, dirs=["src"], **more)


def _case(
    about: str,
    rule: dict[str, Any],
    tool: str,
    arguments: dict[str, Any],
    *,
    benign: bool = False,
    raw: str = "",
    between: list[str] | None = None,
    remember: list[str] | None = None,
    invariants: list[str] | None = None,
    **setup: Any,
) -> dict[str, Any]:
    case = a_case(about, "", benign=benign, **setup)
    case |= {"class": "remembered_rule", "tool": tool, "arguments": arguments}
    case["policy"] |= {"rules": [rule], "between": between or []}
    case["invariants"] += invariants or []
    if raw:
        case["arguments_raw"] = raw
    if remember is not None:
        case["policy"]["remember"] = remember
    return case
