"""MCP servers in the chat: started for the role in force, and waited for by the first message, on a real terminal."""

import json
from typing import Any

import pytest

from tests.e2e.installation import Installation, registry
from tests.e2e.test_role_switch import switch
from tests.mcp.conftest import entry, tool
from tests.support.fake_openai import FakeOpenAI, says
from tests.support.workflows import answer, step

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


@pytest.mark.more
def test_a_server_starts_once_a_role_with_its_tools_is_in_force(installation: Installation) -> None:
    def started() -> int:
        return len(list(installation.workspace.glob("started.*")))

    with FakeOpenAI([says("Hello."), says("Again.")]) as server:
        with_server(installation, server.url)
        with installation.open("--role", "researcher") as terminal:
            terminal.ready("researcher")
            terminal.say("go")
            terminal.wait_for("Hello.")
            assert not started()
            switch(terminal, "coder")
            terminal.wait_for("researcher → coder")
            terminal.say("more")
            terminal.wait_for("Again.")
            assert offered(server.requests[-1]) == ["h__echo"]
            assert started() == 1


@pytest.mark.more
def test_a_run_starts_the_servers_of_the_tools_that_its_steps_list(installation: Installation) -> None:
    with FakeOpenAI([answer("first"), answer("second")]) as server:
        contents = with_server(installation, server.url)
        steps = [step("look"), step("call", role="coder", tools=["h__echo"])]
        contents["workflows"] = {"flow": {"description": "A test", "steps": steps}}
        installation.use(contents)
        with installation.open("--role", "researcher") as terminal:
            terminal.ready("researcher")
            terminal.say("/workflow run flow go")
            terminal.wait_for("second")
    assert [offered(one) for one in server.requests] == [[], ["h__echo"]]
