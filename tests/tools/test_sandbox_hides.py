"""What no tool may touch is not to be seen in the sandbox either, wherever on the disk it lies."""

from pathlib import Path

import pytest

from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import ToolCall
from chatops.tools.base import ToolContext
from chatops.tools.sandbox import probe
from chatops.tools.shell import shell_tools


@pytest.mark.skipif(not probe()[0], reason=f"no sandbox here: {probe()[1]}")
async def test_a_key_file_in_a_readable_folder_is_hidden(tmp_path: Path) -> None:
    workspace, shown = tmp_path / "ws", tmp_path / "shown"
    workspace.mkdir()
    shown.mkdir()
    (shown / "key.txt").write_text("sk-secret")
    (shown / "readme.txt").write_text("hello")
    (tool,) = shell_tools()
    context = ToolContext(
        workspace=workspace,
        session_id=SessionId("s"),
        call_id=CallId("c"),
        protected=(shown / "key.txt",),
        sandbox=SandboxSpec(read=(str(shown),)),
    )
    arguments = f'{{"command":"cat {shown}/readme.txt {shown}/key.txt"}}'
    facts = await tool.inspect(ToolCall(id=CallId("c"), name="shell_exec", arguments=arguments), context)
    result = await tool.run(facts, context)
    assert "hello" in result.content
    assert "sk-secret" not in result.content
