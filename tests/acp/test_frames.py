"""Frames that are no messages, too many of them, or too large: each is refused, and the next one is answered."""

import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from chatops.acp.stdio import MAX_FRAME_BYTES, MAX_REQUESTS
from chatops.wiring.stored import open_store
from tests.acp.test_sessions import served
from tests.mcp.conftest import entry, tool
from tests.support.command_line import program
from tests.support.fake_openai import FakeOpenAI, call, calls, says
from tests.support.waiting import PATIENCE

NO_MESSAGES = [
    b"",
    b"[]",
    b"nonsense",
    b"1",
    b'{"id":[1],"result":{}}',
    b'{"id":true,"result":{}}',
    b'{"id":0,"error":"x"}',
    b'{"id":0,"error":{"message":3}}',
    b'{"id":0,"result":{},"error":{"message":"x"}}',
    b'{"id":0,"result":{},"result":{"outcome":{"outcome":"cancelled"}}}',
    b'{"id":1,"method":["initialize"]}',
    b'{"id":{},"method":"initialize"}',
    b'{"id":1,"method":"initialize","params":[1]}',
    b"[" * 100_000,
    b"\xff\xfe",
    b'{"x":"' + b"a" * (MAX_FRAME_BYTES + 1) + b'"}',
]


class Wire:
    """The agent, and frames as any program may write them."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        assert process.stdin is not None and process.stdout is not None
        self.process, self._in, self._out = process, process.stdin, process.stdout
        self.answers: dict[int | None, dict[str, Any]] = {}
        self.asked: list[dict[str, Any]] = []

    def send(self, *frames: bytes) -> None:
        self._in.write(b"".join(frame + b"\n" for frame in frames))
        self._in.flush()

    def request(self, id: int, method: str, **params: Any) -> dict[str, Any]:
        self.send(json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode())
        return self.until(id)

    def until(self, id: int | None) -> dict[str, Any]:
        """The answer to a request, in whatever order they come."""
        while id not in self.answers:
            self.read()
        return self.answers.pop(id)

    def read(self) -> None:
        """Read the next message."""
        found = json.loads(self._out.readline())
        if "method" not in found:
            self.answers[found["id"]] = found
        self.asked += [found] if found.get("method") == "session/request_permission" else []

    def fill(self, frames: bytes) -> None:
        """Read nothing, and write until the agent has read nothing for a while: it keeps some of it in memory."""
        os.set_blocking(self._in.fileno(), False)
        try:
            while select.select([], [self._in], [], 3.0)[1]:
                os.write(self._in.fileno(), frames * 1000)
        finally:
            os.set_blocking(self._in.fileno(), True)

    def rest(self) -> bytes:
        """Everything until the end that is no message."""
        return b"".join(line for line in self._out if not line.startswith(b'{"jsonrpc"'))

    def end(self, rest: bytes) -> int:
        """Close the connection amid a frame."""
        self._in.write(rest)
        self._in.close()
        return self.process.wait(PATIENCE)


@contextmanager
def wire(folder: Path) -> Iterator[Wire]:
    process = subprocess.Popen(
        [sys.executable, "-m", "chatops", "acp"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=folder
    )
    try:
        yield Wire(process)
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()


def test_frames_that_are_no_messages_are_refused_and_the_next_is_answered(folder: Path, registry: Path) -> None:
    with wire(folder) as agent:
        for frame in NO_MESSAGES:
            agent.send(frame)
            assert agent.until(None)["error"]["code"] == -32700, frame[:60]
        # What a client answers to a notification is not answered again.
        agent.send(b'{"id":null,"error":{"code":-32602,"message":"x"}}')
        early = agent.request(1, "session/new", cwd=str(folder), mcpServers=[])
        assert "not initialized" in early["error"]["message"]
        info = {"name": "evil\u202e) via tui (", "version": "1\n2\ud800"}
        agent.request(2, "initialize", protocolVersion=1, clientInfo=info, _meta={"client_info": None})
        # What the SDK has checked is not replaced by what it has not.
        opened = agent.request(3, "session/new", cwd=str(folder), mcpServers=[], _meta={"cwd": "/", "replay": 1})
        session = opened["result"]["sessionId"]
        asks = {"type": "text", "text": 'use scratch_write {"text": "x"} \ud800'}
        prompt = {"jsonrpc": "2.0", "method": "session/prompt", "params": {"sessionId": session, "prompt": [asks]}}
        agent.send(*(json.dumps({**prompt, "id": 100 + number}).encode() for number in range(3 * MAX_REQUESTS)))
        # One of them, no matter which, is answered once it is cancelled, the others at once.
        while len(agent.answers) < 3 * MAX_REQUESTS - 1:
            agent.read()
        (first,) = {100 + number for number in range(3 * MAX_REQUESTS)} - agent.answers.keys()
        assert {one["error"]["message"].partition(".")[0] for one in agent.answers.values()} <= {
            "The last message is still being answered",
            "Too many requests at a time",
        }
        while not agent.asked:
            agent.read()
        # Answers that nobody asked for, one that was not offered, and a second one, which comes too late for any.
        (question,) = agent.asked
        allow = question["params"]["options"][-1]["optionId"]
        for id, option in ((77, allow), (question["id"], "allow"), (question["id"], allow)):
            outcome = {"outcome": "selected", "optionId": option}
            agent.send(json.dumps({"jsonrpc": "2.0", "id": id, "result": {"outcome": outcome}}).encode())
        agent.send(json.dumps({"method": "session/cancel", "params": {"sessionId": session}}).encode())
        assert agent.until(first)["result"]["stopReason"] == "cancelled"
        assert agent.request(4, "session/close", sessionId=session)["result"] == {}
        assert None not in agent.answers
        assert agent.end(b'{"jsonrpc":"2.0","id":5,"meth') == 0
    with open_store() as store:
        (waiting,) = store.pending_calls()
        assert waiting.session_id == session and waiting.decided is None


NOISY = """
import logging, os, sys, warnings
print("loaded")
from chatops import tool

@tool(verdict="allow", read_only=True)
def noisy() -> str:
    \"""Make noise.\"""
    print("a print")
    os.write(1, b"a write")
    os.system("echo a program")
    sys.__stdout__.write("a stream")
    warnings.warn("a warning", stacklevel=1)
    logging.getLogger("library").critical("a record")
    logging.StreamHandler(sys.stdout).emit(logging.makeLogRecord({"msg": "a handler"}))
    return "quiet"
"""


def test_nothing_but_the_protocol_reaches_stdout(folder: Path, registry: Path) -> None:
    """A tool of the user prints in every way, and so does an MCP server. `Wire` parses each line of standard output."""
    tools = Path(os.environ["CHATOPS_HOME"]) / "config" / "tools"
    tools.mkdir(parents=True)
    (tools / "noisy.py").write_text(NOISY)
    (digest,) = re.findall(r"--digest (\w+)", program("trust", str(tools), cwd=folder).err)
    assert program("trust", str(tools), "--digest", digest, cwd=folder).code == 0
    (folder / "tools.json").write_text(json.dumps([tool("echo", text={"type": "string"})]))
    with FakeOpenAI([calls(call("noisy")), calls(call("loud__echo", text="hi")), says("Done.")]) as server:
        loud = entry("garbage", tools={"echo": {"verdict": "allow"}})
        roles = {"assistant": {"primary": "fake", "tools": ["noisy", "loud__echo"]}}
        served(registry, server, roles=roles, mcp_servers={"loud": loud})
        with wire(folder) as agent:
            agent.request(1, "initialize", protocolVersion=1)
            session = agent.request(2, "session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]
            text = [{"type": "text", "text": "make noise"}]
            assert agent.request(3, "session/prompt", sessionId=session, prompt=text)["result"]
            assert agent.end(b"") == 0 and agent.rest() == b""
        assert "quiet" in "".join(server.requests[-1].tool_results)
        assert "echo: hi" in "".join(server.requests[-1].tool_results)


@pytest.mark.more
def test_an_editor_that_goes_while_it_is_flooding_ends_the_agent(folder: Path, registry: Path) -> None:
    with wire(folder) as agent:
        agent.request(1, "initialize", protocolVersion=1)
        assert agent.process.stdin is not None and agent.process.stdout is not None
        agent.process.stdout.close()
        agent.send(*[b"nonsense"] * 1000)
        assert agent.end(b"") == 0


@pytest.mark.more
@pytest.mark.parametrize("how", ["closes", "terminates"])
def test_an_editor_that_reads_nothing_ends_the_agent_and_the_question_stays(
    how: str, folder: Path, registry: Path
) -> None:
    with wire(folder) as agent:
        agent.request(1, "initialize", protocolVersion=1)
        session = agent.request(2, "session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]
        asks = [{"type": "text", "text": 'use scratch_write {"text": "x"}'}]
        params = {"sessionId": session, "prompt": asks}
        agent.send(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": params}).encode())
        while not agent.asked:
            agent.read()
        agent.fill(b'{"jsonrpc":"2.0","id":4,"method":"session/list","params":{}}\n')
        if how == "terminates":
            agent.process.terminate()
            assert agent.process.wait(PATIENCE) == 0
        else:
            assert agent.end(b"") == 0
    with open_store() as store:
        (waiting,) = store.pending_calls()
        assert waiting.session_id == session and waiting.decided is None


@pytest.mark.more
def test_a_prompt_of_100_mb_is_refused_in_words_and_not_kept(folder: Path, registry: Path) -> None:
    with wire(folder) as agent:
        agent.request(1, "initialize", protocolVersion=1)
        session = agent.request(2, "session/new", cwd=str(folder), mcpServers=[])["result"]["sessionId"]
        large = {"sessionId": session, "prompt": [{"type": "text", "text": "x" * 100_000_000}]}
        agent.send(json.dumps({"jsonrpc": "2.0", "id": 3, "method": "session/prompt", "params": large}).encode())
        assert "longer than 32 MB" in agent.until(None)["error"]["message"]
        less = agent.request(4, "session/prompt", sessionId=session, prompt=[{"type": "text", "text": "x" * 2_000_000}])
        assert "more than 1,000,000 characters" in less["error"]["message"]
        text = Path(f"/proc/{agent.process.pid}/status").read_text()
        (peak,) = (int(line.split()[1]) for line in text.splitlines() if line.startswith("VmHWM"))
        assert peak < 400_000, "KB"
