"""A path of the limits gives nothing beyond itself, whatever links a command has made."""

import json
from pathlib import Path

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import ToolCall, ToolResult
from chatops.sandbox.confinement import landlock_fault, probe
from chatops.toolkit.base import ToolContext
from chatops.tools.shell import shell_tools

LEVELS = [
    pytest.param(SandboxLevel.HARD, marks=pytest.mark.skipif(bool(probe().fault), reason="no bubblewrap here")),
    pytest.param(SandboxLevel.LANDLOCK, marks=pytest.mark.skipif(bool(landlock_fault()), reason="no Landlock here")),
]


async def ran(command: str, workspace: Path, sandbox: SandboxSpec, level: SandboxLevel) -> ToolResult | str:
    """Run a command, or return why it is refused."""
    (tool,) = shell_tools(level)
    context = ToolContext(workspace=workspace, session_id=SessionId("s"), call_id=CallId("c"), sandbox=sandbox)
    call = ToolCall(id=CallId("c"), name="shell_exec", arguments=json.dumps({"command": command}))
    facts = await tool.inspect(call, context)
    return facts.refusal or await tool.run(facts, context)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("inside", ["ws", "more"])
async def test_a_link_that_a_command_has_made_widens_nothing(inside: str, level: SandboxLevel, tmp_path: Path) -> None:
    workspace, more, outside = (tmp_path / name for name in ("ws", "more", "outside"))
    for folder in (workspace, more, outside):
        folder.mkdir()
    (outside / "secret.txt").write_text("SECRET")
    build = tmp_path / inside / "build"
    sandbox = SandboxSpec(write=(str(more), str(build)))
    first = await ran(f"ln -s {outside} {build}", workspace, sandbox, level)
    assert build.is_symlink(), first
    for command in (f"cat {build}/secret.txt", f"echo planted > {build}/new"):
        second = await ran(command, workspace, sandbox, level)
        text = second if isinstance(second, str) else second.content
        assert "SECRET" not in text
        assert f"follow the link {build}" in text
    assert sorted(path.name for path in outside.iterdir()) == ["secret.txt"]
