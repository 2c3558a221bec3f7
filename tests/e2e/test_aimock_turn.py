"""Over HTTP against a server that we did not write: a role switch, then a gated call, killed and resumed.

``CHATOPS_AIMOCK`` names aimock's ``dist/cli.js`` (npm @copilotkit/aimock); without it, or without node, this
skips and says so.
"""

import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.installation import (
    ALLOWED_TO_CODER,
    ALLOWED_TO_RESEARCHER,
    CODER_SAYS,
    EFFECT,
    RESEARCHER_SAYS,
    Installation,
    registry,
)
from tests.support.waiting import PATIENCE

CLI = os.environ.get("CHATOPS_AIMOCK", "")
NODE = shutil.which("node")
pytestmark = [
    pytest.mark.skipif(NODE is None, reason="node is not installed, so aimock cannot run"),
    pytest.mark.skipif(not Path(CLI).is_file(), reason="CHATOPS_AIMOCK does not name aimock's dist/cli.js"),
]
WRITING = {"name": "shell_exec", "arguments": json.dumps({"command": EFFECT})}
FIXTURES: list[dict[str, Any]] = [
    {"match": {"userMessage": "write it down", "hasToolResult": True}, "response": {"content": "Written down."}},
    {"match": {"userMessage": "write it down"}, "response": {"toolCalls": [WRITING]}},
    {"match": {"userMessage": "who are you"}, "response": {"content": "A mock."}},
]


@pytest.fixture
def aimock(tmp_path: Path) -> Iterator[str]:
    """The address of a running aimock."""
    fixtures = tmp_path / "fixtures"
    fixtures.mkdir()
    (fixtures / "fixtures.json").write_text(json.dumps({"fixtures": FIXTURES}))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen(
        [str(NODE), CLI, "-p", str(port), "-h", "127.0.0.1", "-f", str(fixtures), "--strict", "-c", "8"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def _wait_for(port: int, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("aimock did not start")


def asked(address: str) -> list[dict[str, Any]]:
    """The bodies of the chat requests that aimock has seen."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(f"{address}/__aimock/journal") as answer:
        seen = json.load(answer)
    entries = seen if isinstance(seen, list) else seen["entries"]
    return [entry["body"] for entry in entries if entry["path"].endswith("/chat/completions")]


def system_of(body: dict[str, Any]) -> str:
    return str(next(message["content"] for message in body["messages"] if message["role"] == "system"))


def tools_of(body: dict[str, Any]) -> list[str]:
    return sorted(tool["function"]["name"] for tool in body["tools"])


@pytest.mark.more
def test_researcher_then_coder_then_a_call_that_outlives_its_terminal(aimock: str, installation: Installation) -> None:
    installation.use(registry(f"{aimock}/v1"))
    with installation.open("--role", "researcher") as terminal:
        terminal.ready("researcher")
        terminal.say("who are you")
        terminal.wait_for("A mock.")
        terminal.say("/role coder")
        terminal.wait_for("researcher → coder")
        terminal.say("write it down")
        shown = terminal.dialog()
        terminal.kill9()
    assert installation.count == 0
    with installation.open("-c") as terminal:
        assert terminal.decide("a") == shown
        terminal.wait_for("Written down.")
    assert installation.count == 1
    first, second, last = asked(aimock)
    assert tools_of(first) == sorted(ALLOWED_TO_RESEARCHER)
    assert system_of(first).endswith(f"--- Role Context ---\n{RESEARCHER_SAYS}")
    assert tools_of(second) == tools_of(last) == sorted(ALLOWED_TO_CODER)
    assert system_of(last).endswith(f"--- Role Context ---\n{CODER_SAYS}")
    results = [message for message in last["messages"] if message["role"] == "tool"]
    wanted = [call["id"] for message in last["messages"] for call in message.get("tool_calls", [])]
    assert [message["tool_call_id"] for message in results] == wanted
    assert len(wanted) == 1
