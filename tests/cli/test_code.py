"""Code that a model writes, over the real program's commands: what is asked, what runs, what the model hears."""

import json
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, registry_for
from tests.support.fake_openai import Call, FakeOpenAI, calls, says

BROKEN = "{'code': 'print(6 * 7)',}"
"""Python's spelling of arguments: two repairs."""


def wrote(arguments: str, name: str = "python_exec") -> Call:
    return Call(name=name, arguments=arguments)


def registry(workspace: Path, server: FakeOpenAI, *tools: str) -> str:
    return registry_for(workspace, server.url, tools=list(tools) or ["python_exec"])


def test_repaired_code_under_its_other_name_is_shown_with_its_repairs_and_runs_once_approved(
    chatops: CommandLine,
) -> None:
    with FakeOpenAI([calls(wrote(BROKEN, "code_interpreter")), says("It is 42.")]) as server:
        file = registry(chatops.workspace, server, "code_interpreter")
        exact = 'python_exec:{"code": "print(6 * 7)"}'
        ran = chatops("-p", "work it out", "--registry", file, "--approve", exact, "--output-format", "stream-json")
        assert ran.code == 3, ran.err
        lines = [json.loads(line) for line in ran.out.splitlines()]
        [asked] = [line for line in lines if line["type"] == "approval_requested"]
        assert asked["pending"]["facts"]["repairs"] == [
            "single quotes were read as double quotes",
            "a comma before a closing bracket was dropped",
        ]
        [waiting] = chatops("approvals", "list", "--output-format", "json").json
        assert (waiting["tool"], waiting["command"], waiting["cwd"]) == (
            "python_exec", "print(6 * 7)", str(chatops.workspace),
        )  # fmt: skip
        shown = chatops("approvals", "show", waiting["id"]).out
        assert "Repaired:     single quotes were read as double quotes" in shown
        assert "Code, exactly as it would run:\n  print(6 * 7)\n" in shown
        assert "Program:" in shown
        assert "Sandbox:" in shown
        assert chatops("approvals", "approve", waiting["id"], "--registry", file).code == 0
        resumed = chatops("resume", waiting["session_id"], "--registry", file, "--output-format", "json")
        assert (resumed.code, resumed.json["answer"]) == (0, "It is 42."), resumed.err
        assert server.requests[-1].tool_results == ["42"]
        assert server.violations == []
    assert "code_interpreter is another name of python_exec" in ran.err


def test_exactly_the_approved_code_runs_in_a_script_and_other_code_waits(chatops: CommandLine) -> None:
    replies = [
        calls(wrote('{"code": "print(6 * 7)"}')),
        calls(wrote('{"code": "print(6 * 8)"}')),
    ]
    with FakeOpenAI(replies) as server:
        file = registry(chatops.workspace, server)
        exact = 'python_exec:{"code": "print(6 * 7)"}'
        ran = chatops("-p", "work it out", "--registry", file, "--approve", exact, "--output-format", "json")
        assert ran.code == 3
        first = ran.json["calls"][0]
        assert (first["outcome"], first["decided_by"]) == ("success", f"--approve {exact}")
        assert [one["arguments"] for one in ran.json["pending"]] == [{"code": "print(6 * 8)"}]
        assert server.requests[-1].tool_results == ["42"]


@pytest.mark.parametrize("rule", ["python_exec", "code_interpreter", "python_exec:print*"])
def test_no_rule_for_any_code_is_taken(chatops: CommandLine, rule: str) -> None:
    with FakeOpenAI([]) as server:
        file = registry(chatops.workspace, server)
        ran = chatops("-p", "work it out", "--registry", file, "--approve", rule)
        assert ran.code == 2
        assert "python_exec" in ran.err
        assert not server.requests


def test_the_other_name_is_understood_where_rights_are_explained(chatops: CommandLine) -> None:
    said = chatops("policy", "explain", "--role", "coder", "code_interpreter", '{"code": "1"}')
    assert "python_exec: deny" in said.out
    listed = chatops("tools", "list").out
    assert "python_exec" in listed
