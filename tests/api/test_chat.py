"""`Chat`: sessions, approvals and tools from Python, the same as in the terminal."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import chatops
from chatops import Chat, ChatopsError, ConfigError, tool
from chatops.domain.events import ApprovalRequested, CallProgressed, TurnFinished, TurnStatus
from chatops.toolkit.counting import count_work
from tests.support.command_line import program

READ = {"tools": ["file_read"], "model": "demo"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "note.txt").write_text("The invoice is due on Friday.\n")
    monkeypatch.chdir(workspace)
    return workspace


def book(city: str) -> str:
    """Book a trip."""
    with Path("booked.txt").open("a") as file:
        file.write(f"{city}\n")
    return f"booked: {city}"


def test_a_message_is_answered_with_the_tools_of_the_program(folder: Path) -> None:
    chat = Chat(tools=["file_read"], model="demo")
    reply = chat.send("read note.txt")
    assert reply.status is TurnStatus.ANSWERED and "due on Friday" in reply.text
    assert [call.tool for call in reply.calls] == ["file_read"]
    again = chat.send("read note.txt")
    assert again.session_id == reply.session_id
    shown = program("sessions", "show", reply.session_id, cwd=folder)
    assert shown.out.count("read note.txt") >= 2


def test_a_call_that_asks_runs_once_after_an_approval_of_what_was_shown(folder: Path) -> None:
    chat = Chat(tools=[book], model="demo")
    reply = chat.send('use book {"city": "Oban"}')
    (asked,) = reply.pending
    assert (reply.status, asked.tool, json.loads(asked.arguments)) == (TurnStatus.PAUSED, "book", {"city": "Oban"})
    assert "Oban" in asked.text and not (folder / "booked.txt").exists()
    with pytest.raises(ChatopsError, match="not what was approved"):
        asked.approve(digest="0" * 64)
    with pytest.raises(ChatopsError, match="last turn of this session is not over"):
        chat.send("hello")
    asked.approve(digest=asked.digest)
    with pytest.raises(ChatopsError, match="waits no longer"):
        asked.approve(digest=asked.digest)
    done = chat.resume()
    assert done.status is TurnStatus.ANSWERED and "booked: Oban" in done.text
    assert (folder / "booked.txt").read_text() == "Oban\n"
    assert "python" in program("audit", "list", cwd=folder).out


def test_long_work_of_a_tool_is_an_event_while_it_runs_and_is_stored_nowhere(folder: Path) -> None:
    def sort(pile: str) -> str:
        """Sort a pile."""
        with count_work("sorting", unit="card", total=52) as counter:
            counter.add(52)
        return f"sorted: {pile}"

    chat = Chat(tools=[tool(verdict="allow", read_only=True)(sort)], model="demo")
    events = list(chat.events('use sort {"pile": "left"}'))
    shown = [event.progress for event in events if isinstance(event, CallProgressed)]
    assert [at and (at.what, at.done, at.total) for at in shown] == [("sorting", 0, 52), None]
    assert isinstance(events[-1], TurnFinished) and "sorted: left" in events[-1].answer
    kept = [file.read_bytes() for file in Path(os.environ["CHATOPS_HOME"]).rglob("*") if file.is_file()]
    assert any(b"sorted: left" in data for data in kept) and not any(b"sorting" in data for data in kept)


def test_a_denial_gives_the_model_its_reason(folder: Path) -> None:
    chat = Chat(tools=[book], model="demo")
    chat.send('use book {"city": "Oban"}').pending[0].deny("too far")
    assert "too far" in chat.resume().text and not (folder / "booked.txt").exists()


def test_the_terminal_decides_what_a_program_asked_and_the_other_way_round(folder: Path) -> None:
    chat = Chat(role="coder", model="demo")
    asked = chat.send("run `echo one >> log.txt`").pending[0]
    assert program("approvals", "approve", asked.id, cwd=folder).code == 0
    assert chat.resume().status is TurnStatus.ANSWERED
    ran = program("--role", "coder", "-p", "run `echo two >> log.txt`", "--output-format", "json", cwd=folder)
    opened = Chat.open(ran.json["session_id"])
    (waiting,) = opened.resume().pending
    waiting.approve(digest=waiting.digest)
    assert opened.resume().status is TurnStatus.ANSWERED
    assert (folder / "log.txt").read_text() == "one\ntwo\n"


def test_only_a_user_applies_the_changes_of_a_contained_turn(folder: Path, tmp_path: Path) -> None:
    registry = tmp_path / "registry.json"
    roles = {"safe": {"primary": "demo", "tools": ["file_write"], "contain": True}}
    users = {"*": {"access_level": "operator"}}
    registry.write_text(json.dumps({"version": 3, "default_role": "safe", "roles": roles, "users": users}))
    reply = Chat(role="safe", registry=registry).send("write hello to out.txt")
    if reply.pending[0].tool != "contained_apply":
        pytest.skip("turns cannot be contained here")
    with pytest.raises(ChatopsError, match="Only a user decides"):
        reply.pending[0].approve(digest=reply.pending[0].digest)


def test_events_come_as_they_happen_and_the_result_afterwards(folder: Path) -> None:
    chat = Chat(tools=[book], model="demo")
    seen = [type(event) for event in chat.events('use book {"city": "Oban"}')]
    assert ApprovalRequested in seen and TurnFinished not in seen
    assert chat.reply is not None and chat.reply.status is TurnStatus.PAUSED


def test_the_async_twins_do_the_same_and_the_others_say_so(folder: Path) -> None:
    async def talk() -> str:
        chat = Chat(**READ)  # type: ignore[arg-type]
        with pytest.raises(RuntimeError, match="asend"):
            chat.send("hello")
        reply = await chat.asend("read note.txt")
        kinds = [type(event) async for event in chat.aevents("read note.txt")]
        assert TurnFinished in kinds
        return reply.text

    assert "due on Friday" in asyncio.run(talk())


def test_a_killed_program_leaves_a_session_that_another_one_continues(folder: Path) -> None:
    code = """
import os
from chatops import Chat
chat = Chat(role="coder", model="demo")
reply = chat.send("run `echo once >> log.txt`")
print(reply.session_id, flush=True)
os.kill(os.getpid(), 9)
"""
    died = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False)
    chat = Chat.open(died.stdout.strip())
    (asked,) = chat.resume().pending
    asked.approve(digest=asked.digest)
    chat.resume()
    assert (folder / "log.txt").read_text() == "once\n"
    with pytest.raises(ConfigError, match="the last turn of this session is over"):
        chat.resume()


def test_mistakes_are_named(folder: Path) -> None:
    with pytest.raises(ConfigError, match="nothing to resume"):
        Chat().resume()
    with pytest.raises(ConfigError, match="nobody"):
        Chat(role="nobody").send("hello")
    with pytest.raises(ChatopsError):
        Chat.open("20990101-000000-none")
    assert {"Chat", "Reply", "Asked"} <= {*chatops.__all__}
