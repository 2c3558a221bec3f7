"""A user at level viewer: no surface runs, fetches or writes anything, whatever the model asks for."""

import json
from pathlib import Path
from typing import Any

import pytest

from chatops import Chat
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, SeenRequest, call, calls, says
from tests.support.workflows import step

ABOVE = [
    "shell_exec",
    "python_exec",
    "file_write",
    "file_edit",
    "web_fetch",
    "memory_write",
    "delegate",
    "scratch_write",
]


def registry(folder: Path, url: str, level: str) -> str:
    """A registry in which everyone has that level, with roles and a workflow that name more."""
    model = {"type": "openai", "api_url": url, "model_name": "m", "timeout_s": {"connect": 5, "first_token": 60}}
    rules = [{"tool": "shell_exec", "match": ["touch", "*"], "verdict": "allow"}]
    roles = {"coder": {"primary": "fake", "rules": rules}, "other": {"primary": "fake", "tools": [*ABOVE, "file_read"]}}
    steps = [step("one", tools=["shell_exec", "file_write"])]
    value = {
        "version": 3,
        "default_role": "coder",
        "models": {"fake": model},
        "roles": roles,
        "users": {"*": {"access_level": level}},
        "workflows": {"flow": {"description": "A test", "steps": steps}},
        "mcp_servers": {
            "w": {"command": ["touch", str(folder / "project" / "made-by-server")], "accept_level": "none"}
        },
    }
    file = folder / "registry.json"
    file.write_text(json.dumps(value))
    return str(file)


def asks(request: SeenRequest) -> Any:
    """Ask for everything once, also for what was not offered."""
    if request.messages[-1]["role"] == "tool":
        return says("Done.")
    wanted = {
        "shell_exec": {"command": "touch made-by-shell"},
        "python_exec": {"code": "open('made-by-python', 'w')"},
        "file_write": {"path": "made-by-write", "content": "x"},
        "file_edit": {"path": "note.txt", "old": "Friday", "new": "Monday"},
        "web_fetch": {"url": "http://127.0.0.1:9/"},
        "memory_write": {"text": "x"},
        "delegate": {"role": "other", "task": "touch made-by-child"},
        "w__x": {},
    }
    return calls(*(call(name, **arguments) for name, arguments in wanted.items()))


@pytest.mark.more
def test_a_viewer_reaches_nothing_above_the_level_on_any_surface(chatops: CommandLine, tmp_path: Path) -> None:
    folder = chatops.workspace
    before = (folder / "note.txt").read_text()

    def untouched(where: object) -> None:
        assert sorted(one.name for one in folder.iterdir()) == ["note.txt"], where
        assert (folder / "note.txt").read_text() == before, where

    with FakeOpenAI(asks) as server:
        at_operator = ("--registry", registry(tmp_path, server.url, "operator"))
        waiting = chatops(*at_operator, "-p", "go", "--role", "other", "--output-format", "json").json
        assert waiting["status"] == "paused"
        ids, session = [one["id"] for one in waiting["pending"]], waiting["session_id"]
        untouched("operator")
        flags = ("--registry", registry(tmp_path, server.url, "viewer"))
        approve = ("--approve", "file_write", "--approve", "shell_exec:touch *")
        for words in (
            ("-p", "go"),
            ("-p", "go", "--role", "other"),
            ("-p", "go", "--access", "admin", *approve),
            ("-p", "go", "--role", "other", "--contain"),
            ("-p", "go", "--summary", *approve),
            ("-p", "go", "-c", *approve),
            ("workflow", "run", "flow", "go"),
            *(("approvals", "approve", one) for one in ids),
            ("resume", session),
            ("jobs", "resume", session),
        ):
            ran = chatops(*flags, *words)
            untouched((words, ran))
            assert "Traceback" not in ran.err and "unexpected error" not in ran.err, ran
        for role in ("coder", "other"):
            reply = Chat(role=role, workspace=folder, registry=flags[1]).send("go")

            assert not reply.pending, reply
            untouched(reply)
        offered = {tool["function"]["name"] for one in server.requests[1:] for tool in one.body.get("tools", ())}
        assert offered and not offered & {*ABOVE, "w__x"}, offered
        verdicts = chatops(*flags, "policy", "explain", "--role", "other", "shell_exec").out
        assert "deny" in verdicts and "viewer" in verdicts
