"""Questions of a hostile MCP server on a real terminal: for a key, and killed while one is open."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import ChatTerminal, Installation, registry
from tests.mcp.conftest import entry, tool
from tests.support.fake_openai import Completion, FakeOpenAI, SeenRequest, call, calls, says

ANSWER = "a answer"
NAME = f"h{os.getpid()}"
"""Of the server. Its processes are found by it, and other tests run on this machine."""
ASKS = f"The MCP server {NAME} asks you"
VOID = f"The question of the MCP server {NAME} is void"


def asking(request: SeenRequest) -> Completion:
    return says("Noted.") if request.tool_results else calls(call(f"{NAME}__ask"))


def with_server(installation: Installation, url: str, **more: Any) -> None:
    """Let a role call the hostile server without an approval, which other tests are about."""
    (installation.workspace / "tools.json").write_text(json.dumps([tool("ask")]))
    contents = registry(url)
    contents["mcp_servers"] = {NAME: entry(tools={"ask": {"verdict": "allow"}}, **more)}
    contents["roles"]["coder"]["tools"] = [f"{NAME}__*"]
    installation.use(contents)


def open_question(terminal: ChatTerminal) -> str:
    terminal.ready("coder")
    terminal.wait_for("coder  calls 1 other tool")  # It is connected.
    terminal.say("go")
    return terminal.dialog(ANSWER)


def stored(home: Path) -> bytes:
    return b"".join(file.read_bytes() for file in (home / "data").glob("chatops.db*"))


@pytest.mark.more
def test_a_question_for_a_key_names_its_server_and_warns_and_later_leaves_it_open(installation: Installation) -> None:
    with FakeOpenAI(asking) as server:
        with_server(installation, server.url, timeout_s=2)
        with installation.open("--role", "coder") as terminal:
            shown = open_question(terminal)
            assert "An MCP server asks, not chatops and not the model." in shown
            assert f"{NAME}__ask" in shown
            assert "It seems to ask for a secret: key." in shown
            assert "│ │ chatops needs your API key ␛" in terminal.text()
            terminal.press("escape")
            terminal.wait_for(f"{NAME} asks you, and its call waits – ctrl+g")
            terminal.wait_for("waits for your answer – ctrl+g")
            time.sleep(3)  # longer than the call may take
            terminal.press("ctrl+g")
            terminal.dialog(ANSWER)
            terminal.press("a")
            terminal.wait_for("ctrl+s sends")
            terminal.send("sk-canary")
            terminal.wait_for("sk-canary")
            assert b"sk-canary" not in stored(installation.home)
            terminal.press("ctrl+s")
            terminal.wait_for("Noted.")
            terminal.wait_for("key: (not stored)")
            assert b"\x1b]52" not in terminal.raw
        assert server.violations == []
        told = json.loads(server.requests[-1].tool_results[-1])
    assert told["result"] == {"action": "accept", "content": {"key": "sk-canary"}}, "the limit of 2 s stood still"
    logged = installation.run("audit", "list", "--decision", "answered").out
    assert "question of the server: accept, sent key" in logged
    assert "sk-canary" not in logged


@pytest.mark.more
def test_killed_while_it_is_asked_the_question_is_void_and_the_outcome_unknown(installation: Installation) -> None:
    with FakeOpenAI(asking) as server:
        with_server(installation, server.url)
        with installation.open("--role", "coder") as terminal:
            open_question(terminal)
            terminal.kill9()
        with installation.open("-c") as terminal:
            assert "a question of its server to you was open" in terminal.dialog("u tell the model")
            terminal.press("u")
            terminal.wait_for("Noted.")
            assert VOID in terminal.text()
            assert ASKS in terminal.text()
        assert server.violations == []
    assert (installation.workspace / "calls.log").read_text().split() == ["ask"]
