"""Path rules relative to the workspace, in every place where a user can write one."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.command_line import CommandLine, registry_for
from tests.support.fake_openai import FakeOpenAI, call, calls, says

TOOLS = ["file_write", "file_list"]


def registry(workspace: Path, url: str, *, rules: Sequence[object] = (), allow: str = "") -> str:
    """The registry of `registry_for` with rules of the role, or a `confirm_allow`."""
    file = Path(registry_for(workspace, url, tools=TOOLS))
    value = json.loads(file.read_text())
    value["roles"]["coder"]["rules"] = list(rules)
    if allow:
        value["users"]["*"]["confirm_allow"] = [allow]
    file.write_text(json.dumps(value))
    return str(file)


@pytest.mark.some(3)
@pytest.mark.parametrize("given", ["approve", "role rule", "confirm_allow"])
@pytest.mark.parametrize(
    ("glob", "path", "runs"),
    [
        ("src/**", "src/a/b.md", True),
        ("src/**", "./src/../src/b.md", True),
        ("*.md", "b.md", True),
        ("**", "src/b.md", True),
        ("src/**", "b.md", False),
        ("src/**", "src/.hidden/b.md", False),
        ("src/**", "src/../b.md", False),
        ("*.md", "src/b.md", False),
        ("src/**", "link/b.md", False),
    ],
)
def test_a_relative_rule_allows_the_files_it_names(
    given: str, glob: str, path: str, runs: bool, chatops: CommandLine
) -> None:
    (chatops.workspace / "other").mkdir()
    (chatops.workspace / "link").symlink_to("other")
    rules = [{"tool": "file_write", "match": [glob], "verdict": "allow"}] if given == "role rule" else []
    with FakeOpenAI([calls(call("file_write", path=path, content="x")), says("Done.")]) as server:
        allow = f"file_write:{glob}" if given == "confirm_allow" else ""
        flags = ["--registry", registry(chatops.workspace, server.url, rules=rules, allow=allow)]
        flags += ["--approve", f"file_write:{glob}"] if given == "approve" else []
        ran = chatops("-p", "write", *flags)
    assert ran.code == (0 if runs else 3), ran.err
    assert (chatops.workspace / path).exists() is runs


def test_a_relative_rule_denies_the_files_it_names(chatops: CommandLine) -> None:
    rules = [{"tool": "file_write", "match": ["src/**"], "verdict": "deny"}]
    written = [call("file_write", path=path, content="x") for path in ("src/.hidden", "a.md")]
    with FakeOpenAI([calls(*written), says("Done.")]) as server:
        file = registry(chatops.workspace, server.url, rules=rules)
        ran = chatops("-p", "write", "--registry", file, "--approve", "file_write", "--output-format", "json")
    assert [one["outcome"] for one in ran.json["calls"]] == ["denied", "success"]


@pytest.mark.more
def test_the_rule_that_the_dialog_offers_is_the_folder(chatops: CommandLine) -> None:
    with FakeOpenAI([calls(call("file_write", path="src/a.md", content="x"))]) as server:
        file = registry(chatops.workspace, server.url)
        (waiting,) = chatops("-p", "write", "--registry", file, "--output-format", "json").json["pending"]
        shown = chatops("approvals", "show", waiting["id"], "--registry", file).out
    assert "r offers: rules up to file_write:src/**\n" in shown
    assert "s allows for this session: any file_write of this file\n" in shown
