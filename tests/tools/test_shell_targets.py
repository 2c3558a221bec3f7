"""The targets of a simple command's words are judged and shown: links are no way around."""

import os
from pathlib import Path

from chatops.domain.decisions import ArgvPattern
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel
from chatops.domain.tools import CallFacts, ToolCall
from chatops.policy.patterns import matches
from chatops.toolkit.base import ToolContext
from chatops.tools.shell import shell_tools

ANY_CAT = ArgvPattern(words=("cat", "*"))


async def facts_of(command: str, *, workspace: Path) -> CallFacts:
    (tool,) = shell_tools(SandboxLevel.NONE)
    context = ToolContext(workspace=workspace, session_id=SessionId("s"), call_id=CallId("c"))
    return await tool.inspect(
        ToolCall(id=CallId("c"), name="shell_exec", arguments=f'{{"command":"{command}"}}'), context
    )


async def test_a_link_out_of_the_workspace_is_no_harmless_word(tmp_path: Path) -> None:
    workspace, outside = tmp_path / "ws", tmp_path / "outside.txt"
    workspace.mkdir()
    outside.write_text("secret")
    os.symlink(outside, workspace / "link.txt")
    (workspace / "plain.txt").write_text("hello")
    plain = await facts_of("cat plain.txt", workspace=workspace)
    link = await facts_of("cat link.txt", workspace=workspace)
    assert plain.paths == (str(workspace / "plain.txt"),)
    assert matches(ANY_CAT, plain)
    assert link.paths == (str(outside),)
    assert not matches(ANY_CAT, link)
