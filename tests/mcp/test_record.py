"""The record of a server, which several windows write."""

from pathlib import Path

from chatops.mcp.catalogue import ListedTool, Record
from chatops.policy.servers import McpServerSpec, ServerTransport

SPEC = McpServerSpec(name="tickets", url="https://tickets.example/mcp", transport=ServerTransport.HTTP)


def test_a_changed_tool_is_reviewed_whichever_window_used_it_and_wrote_last(tmp_path: Path) -> None:
    one, other = Record(tmp_path, SPEC), Record(tmp_path, SPEC)
    one.keep_used("find", "before")
    assert other.has_changed("find", "after"), "a window that was open already knows it"
    third = Record(tmp_path, SPEC)
    one.keep_used("close", "before")
    third.keep_tools([ListedTool(name="new", description="", input_schema={})])
    again = Record(tmp_path, SPEC)
    assert again.has_changed("find", "after")
    assert again.has_changed("close", "after")
    assert not again.has_changed("find", "before")
    assert [tool.name for tool in again.tools] == ["new"]
    one.keep_used("find", "after")
    assert other.has_changed("find", "before")
