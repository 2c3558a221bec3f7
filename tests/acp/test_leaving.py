"""Whatever dies, a question stays: shown by the next editor, the terminal and the list, and decided once."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import acp
import pytest

from tests.acp.editing import READS_FIRST_S, editing, prompted
from tests.acp.test_asking import ASKS, TITLE
from tests.serve.served import serving
from tests.support.command_line import REPOSITORY, program
from tests.support.processes import running
from tests.support.terminal import Terminal
from tests.support.waiting import until


def editor_program(*words: str) -> "subprocess.Popen[str]":
    """The editor as a program of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.acp.editing", *words], stdout=subprocess.PIPE, text=True, cwd=REPOSITORY
    )


def lines_until(process: "subprocess.Popen[str]", key: str) -> dict[str, Any]:
    """Read what an editor program prints, up to a line with this key."""
    assert process.stdout is not None
    for line in process.stdout:
        if key in (found := json.loads(line)):
            return dict(found)
    raise AssertionError(f"the editor ended without {key}")


@pytest.mark.parametrize("killed", ["editor", "agent"])
async def test_a_question_survives_the_editor_and_the_agent(killed: str, folder: Path, registry: Path) -> None:
    process = editor_program(str(folder), ASKS)
    try:
        begun = await asyncio.to_thread(lines_until, process, "session")
        assert (await asyncio.to_thread(lines_until, process, "asked"))["asked"] == TITLE
        os.kill(process.pid if killed == "editor" else begun["agent"], signal.SIGKILL)
        await until(lambda: not running(begun["agent"]))
    finally:
        process.kill()
        process.communicate()
    session = begun["session"]
    waiting = program("approvals", "list", cwd=folder).out
    assert waiting.count(f"{session}.1.1.1") == 1
    async with editing() as editor:
        loaded = await editor.agent.load_session(str(folder), session)
        assert loaded.modes.current_mode_id == "assistant"
        assert [one.content.text for one in editor.of("user_message_chunk")] == [ASKS]
        await editor.until(lambda it: it.asked)
        assert editor.asked[0][0].title == TITLE
        await asyncio.sleep(READS_FIRST_S)
        editor.answer("allow_once")
        await editor.until(lambda it: it.last(f"{session}.1.1.1") == "completed")
        await editor.agent.close_session(session)
        # The same session in another connection, without what was there before.
    async with editing() as editor:
        await editor.agent.resume_session(session, str(folder))
        assert not editor.of("user_message_chunk") and not editor.cards
        await editor.agent.prompt(session, [{"type": "text", "text": "read note.txt"}])
        assert "due on Friday" in editor.text


async def test_of_two_editors_on_one_session_one_decides_and_the_other_is_told(folder: Path, registry: Path) -> None:
    async with editing() as first, editing() as second:
        session = (await first.agent.new_session(str(folder))).session_id
        prompt = prompted(first, session, ASKS)
        await first.until(lambda it: it.asked)
        # What is not open in an editor is not its own: it can neither stop nor change it.
        with pytest.raises(acp.RequestError, match="is open here"):
            await second.agent.set_session_mode(session, "reader")
        with pytest.raises(acp.RequestError, match="is open here"):
            await second.agent.prompt(session, [{"type": "text", "text": "hello"}])
        await second.agent.cancel(session)
        await second.agent.load_session(str(folder), session)
        await second.until(lambda it: it.asked)
        call = second.asked[0][0].tool_call_id
        # The option of the other editor's question is not one of this question.
        foreign = first.asked[0][1][-1].option_id
        assert not prompt.done() and first.asked[0][0].tool_call_id == call
        assert foreign not in {one.option_id for one in second.asked[0][1]}
        await asyncio.sleep(READS_FIRST_S)
        second.answer("reject_once")
        assert (await prompt).stop_reason == "end_turn" and first.last(call) == "failed"
        assert any("via acp (test-editor 1.2)" in str(one.content) for one in first.cards if one.tool_call_id == call)
        first.answer("allow_once")
        await first.agent.prompt(session, [{"type": "text", "text": "read note.txt"}])
    rows = [json.loads(line) for line in program("audit", "export", cwd=folder).out.splitlines()]
    (decided,) = (row for row in rows if row["kind"] == "decision" and row["call_id"] == call)
    assert decided["decision"]["kind"] == "rejected"


@pytest.mark.more
async def test_a_question_of_a_dead_editor_is_shown_everywhere_and_the_first_decision_counts(
    folder: Path, registry: Path
) -> None:
    process = editor_program(str(folder), ASKS)
    try:
        session = (await asyncio.to_thread(lines_until, process, "session"))["session"]
        await asyncio.to_thread(lines_until, process, "asked")
    finally:
        process.kill()
        process.communicate()
    call = f"{session}.1.1.1"

    def terminal_and_desk() -> None:
        command = [sys.executable, "-m", "chatops", "-r", session]
        home = Path(os.environ["CHATOPS_HOME"])
        with (
            serving(home, folder) as desk,
            Terminal(command, env={"CHATOPS_REGISTRY": str(registry)}, cwd=folder) as chat,
        ):
            cookie = desk.log_in()
            assert call in desk.get("/", cookie=cookie).text
            chat.wait_for("1 approval pending")
            chat.press("ctrl+g")
            chat.wait_for("Approve")
            assert desk.decide(call, "deny", cookie).status == 303
            chat.wait_gone("Approve")
            chat.press("ctrl+c", "ctrl+c")
            chat.wait_exit()

    async with editing() as editor:
        await editor.agent.load_session(str(folder), session)
        await editor.until(lambda it: it.asked)
        assert editor.asked[0][0].tool_call_id == call
        await asyncio.to_thread(terminal_and_desk)
        await editor.until(lambda it: it.last(call) == "failed")
        editor.answer("allow_once")
        # The next answer comes after that one was read.
        await editor.agent.list_sessions()
    assert program("approvals", "approve", call, cwd=folder).code != 0
    rows = [json.loads(line) for line in program("audit", "export", cwd=folder).out.splitlines()]
    (decided,) = (row for row in rows if row["kind"] == "decision" and row["call_id"] == call)
    assert (decided["decision"]["kind"], decided["by"]["via"]) == ("rejected", "serve")


@pytest.mark.more
async def test_a_session_goes_on_in_the_terminal_and_back(folder: Path, registry: Path) -> None:
    async with editing() as editor:
        session = (await editor.agent.new_session(str(folder))).session_id
        prompt = prompted(editor, session, ASKS)
        await editor.until(lambda it: it.asked)

        def in_the_terminal() -> None:
            command = [sys.executable, "-m", "chatops", "-r", session]
            with Terminal(command, env={"CHATOPS_REGISTRY": str(registry)}, cwd=folder) as terminal:
                terminal.wait_for("Open elsewhere")
                terminal.press("f2")
                terminal.wait_for("Approve")
                terminal.wait_quiet(1.0)
                terminal.send("a")
                terminal.wait_for("scratch_write gave")
                terminal.trickle("/role reader", "\r")
                terminal.wait_for("reader · level operator")
                terminal.press("ctrl+c", "ctrl+c")
                terminal.wait_exit()

        await asyncio.to_thread(in_the_terminal)
        assert (await prompt).stop_reason == "end_turn"
        await editor.agent.prompt(session, [{"type": "text", "text": "read note.txt"}])
        assert "scratch_write gave" in editor.text and "due on Friday" in editor.text
        assert editor.of("current_mode_update")[-1].current_mode_id == "reader"
