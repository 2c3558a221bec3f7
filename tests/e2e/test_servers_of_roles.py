"""MCP servers in the chat: the first message waits for them, on a real terminal."""

import json
from typing import Any

import pytest

from tests.e2e.installation import Installation, registry
from tests.mcp.conftest import entry, tool
from tests.support.fake_openai import FakeOpenAI, says

WAITS = "Waiting for the MCP server h to connect. Esc continues without."


def with_server(installation: Installation, url: str, *words: str) -> dict[str, Any]:
    """Give role coder the tools of the server, and role researcher none of them. Return the registry."""
    (installation.workspace / "tools.json").write_text(json.dumps([tool("echo")]))
    contents = registry(url)
    contents["mcp_servers"] = {"h": entry(*words)}
    contents["roles"]["coder"]["tools"] = ["h__*"]
    contents["roles"]["researcher"]["tools"] = ["file_read"]
    installation.use(contents)
    return contents


def offered(request: Any) -> list[str]:
    return [one["function"]["name"] for one in request.body.get("tools", ())]


@pytest.mark.more
@pytest.mark.parametrize("waits", [True, False])
def test_the_first_message_waits_for_a_server_unless_escape_sends_it(installation: Installation, waits: bool) -> None:
    with FakeOpenAI([says("Hello."), says("Again.")]) as server:
        with_server(installation, server.url, "late")
        with installation.open("--role", "coder") as terminal:
            terminal.ready("coder")
            terminal.say("go")
            shown = terminal.wait_for(WAITS)
            assert "mcp check" not in shown, "it is still connecting"
            assert not server.requests
            if not waits:
                terminal.press("escape")
            else:
                (installation.workspace / "go").touch()
            terminal.wait_for("Hello.")
            assert offered(server.requests[0]) == (["h__echo"] if waits else [])
