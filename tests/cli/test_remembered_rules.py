"""Remembered rules in commands: listed, explained, used without a screen, logged and revoked."""

import asyncio
import os

from chatops.domain.decisions import RuleScope
from tests.runtime.test_remembered_rules import make_rule
from tests.support.command_line import CommandLine
from tests.tools.running import needs_sandbox


@needs_sandbox
def test_commands_list_explain_use_and_revoke_the_same_rules(chatops: CommandLine) -> None:
    asyncio.run(make_rule(chatops.workspace, RuleScope.FOLDER))
    (row,) = [one for one in chatops("policy", "list", "--output-format", "json").json if "id" in one]
    assert (row["id"], row["rule"], row["scope"], row["role"]) == ("1", "shell_exec:touch one", "folder", "coder")
    assert row["folder"] == str(chatops.workspace.resolve()) and row["uses"] == 0
    explain = ("policy", "explain", "--role", "coder", "shell_exec", '{"command": "touch one"}')
    assert "answered by rule 1 (this folder, as coder)" in chatops(*explain).out
    ran = chatops("--role", "coder", "-p", "run `touch one`", "--output-format", "json")
    assert ran.code == 0 and ran.json["calls"][0]["decided_by"].startswith("rule 1")
    log = chatops("audit", "list").out
    assert "rule 1 of uid" in log and "approved, with a rule of scope folder: shell_exec:touch one" in log
    assert chatops("policy", "revoke", "7").code == 2
    revoked = chatops("policy", "revoke", "1")
    assert revoked.code == 0 and "Revoked rule 1: shell_exec:touch one: this folder, as coder" in revoked.err
    (row,) = [one for one in chatops("audit", "list", "--output-format", "json").json if one["kind"] == "revoked"]
    assert (row["rule"], row["by"]) == ("1", {"uid": os.getuid(), "via": "headless"})
    assert chatops("--role", "coder", "-p", "run `touch one`").code == 3
    assert "answered by" not in chatops(*explain).out
