"""A rule that lets a command read files lets it read no secrets, whatever they are called on the way."""

import os
from pathlib import Path

import pytest

from chatops.domain.decisions import ArgvPattern
from chatops.domain.sandbox import SandboxLevel
from chatops.policy.patterns import matches
from chatops.tools.shell import shell_tools
from tests.tools.toolkit import context_for, inspected

CAT = ArgvPattern(words=("cat", "*"))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace with a harmless file, an .env, our own data, and links to both."""
    for name in ("a.txt", ".env", "state/chatops.db"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "link.txt").symlink_to(".env")
    (tmp_path / "store.txt").symlink_to("state/chatops.db")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "answered"),
    [
        ("grep x a.txt", True),
        ("grep --recursive x", False),
        ("grep -r x", False),
        ("diff plain plain", True),
        ("diff links plain", False),
        ("diff plain/b.txt links", False),
        ("uv run cat a.txt", True),
        ("uv run grep -r x", False),
        ("uv run git status", False),
    ],
)
async def test_a_search_or_comparison_by_rule_stops_at_what_it_would_find(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, command: str, answered: bool
) -> None:
    for folder in ("plain", "links", "bin"):
        (workspace / folder).mkdir()
    (workspace / "plain" / "b.txt").write_text("x")
    (workspace / "links" / "b.txt").symlink_to("../.env")
    (workspace / "bin" / "uv").write_text("#!/bin/sh\n")
    (workspace / "bin" / "uv").chmod(0o755)
    monkeypatch.setenv("PATH", f"{workspace / 'bin'}:{os.environ['PATH']}")
    (shell,) = shell_tools(SandboxLevel.NONE)
    words = command.split()
    rule = ArgvPattern(words=(*words[: 3 if words[0] == "uv" else 1], "*"))
    facts = await inspected(shell, context_for(workspace), {"command": command})
    assert matches(rule, facts) is answered


@pytest.mark.parametrize(
    ("command", "answered"),
    [
        ("cat a.txt", True),
        ("cat .env", False),
        ("cat link.txt", False),
        ("cat a.txt link.txt", False),
        ("cat l*.txt", False),
        ("cat state/chatops.db", False),
        ("cat store.txt", False),
    ],
)
async def test_reading_by_rule_stops_at_secrets(workspace: Path, command: str, answered: bool) -> None:
    (shell,) = shell_tools(SandboxLevel.NONE)
    context = context_for(workspace, protected=(workspace / "state",))
    assert matches(CAT, await inspected(shell, context, {"command": command})) is answered
