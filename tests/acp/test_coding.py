"""A coding session in an editor: with a scripted model, killed twice, continued in the terminal and back."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest
from acp import schema

from tests.acp.editing import CODING, READS_FIRST_S, editing, prompted, said
from tests.acp.test_leaving import editor_program, lines_until
from tests.acp.test_sessions import served
from tests.support.command_line import program
from tests.support.fake_openai import FakeOpenAI
from tests.support.processes import running
from tests.support.terminal import Terminal
from tests.support.waiting import until
from tests.tools.running import needs_sandbox

pytestmark = [pytest.mark.more, needs_sandbox]


async def test_a_coding_session(folder: Path, registry: Path) -> None:
    (folder / "app.py").write_text("VALUE = 1\n")
    with FakeOpenAI(CODING) as server:
        roles = {
            "assistant": {"primary": "fake", "tools": ["file_read", "file_edit", "shell_exec"]},
            "reader": {"primary": "fake", "tools": ["file_read"]},
        }
        served(registry, server, roles=roles)
        session = await _first_hour(folder)
        await _killed(folder, session)
        await _in_the_terminal_and_back(folder, registry, session)
    assert not server.violations and any("Name it right" in "".join(one.tool_results) for one in server.requests)
    assert [one.last_user for one in server.requests][-1] == "what does it say?"


async def _first_hour(folder: Path) -> str:
    """Read, an edit with its diff, a command denied with a reason, a command approved."""
    async with editing(forms=True) as editor:
        editor.fills = lambda message, mode: {"action": "accept", "content": {"reason": "Name it right"}}
        session: str = (await editor.agent.new_session(str(folder))).session_id
        prompt = prompted(editor, session, "count to two")
        await editor.until(lambda it: "Decide in chatops" in it.text)
        edit = editor.cards[-1]
        assert edit.kind == "edit" and edit.content[-1].new_text == "VALUE = 2\n"
        assert (await asyncio.to_thread(program, "approvals", "approve", edit.tool_call_id, cwd=folder)).code == 0
        await editor.until(lambda it: len(it.asked) == 1)
        assert editor.asked[0][0].title == "Shell: touch wrong.txt; writes wrong.txt"
        reason = editor.asked[0][1][1].option_id
        editor.choose(schema.AllowedOutcome(outcome="selected", option_id=reason))
        await editor.until(lambda it: len(it.asked) == 2)
        await asyncio.sleep(READS_FIRST_S)
        editor.answer("allow_once")
        assert (await prompt).stop_reason == "end_turn"
        assert editor.text.endswith("The value is 2 now.")
    assert (folder / "app.py").read_text() == "VALUE = 2\n"
    assert (folder / "right.txt").exists() and not (folder / "wrong.txt").exists()
    return session


async def _killed(folder: Path, session: str) -> None:
    """Kill the editor while a command waits, and the agent of the next one. A third one decides."""
    for whom, words in ((0, "and after that?"), (1, "")):
        process = editor_program(str(folder), words, session)
        try:
            begun = await asyncio.to_thread(lines_until, process, "session")
            await asyncio.to_thread(lines_until, process, "asked")
            os.kill((process.pid, begun["agent"])[whom], signal.SIGKILL)
            await until(lambda agent=begun["agent"]: not running(agent))  # type: ignore[misc]
        finally:
            process.kill()
            process.communicate()
    assert not (folder / "after.txt").exists()
    async with editing() as editor:
        await editor.agent.load_session(str(folder), session)
        await editor.until(lambda it: it.asked)
        assert [one.title for one in editor.of("tool_call")][:2] == ["Read: app.py", "Edit: app.py"]
        await asyncio.sleep(READS_FIRST_S)
        editor.answer("allow_once")
        await editor.until(lambda it: "Made it." in it.text)
    assert (folder / "after.txt").exists()


async def _in_the_terminal_and_back(folder: Path, registry: Path, session: str) -> None:
    """Switch the role in the terminal while an editor has the session, and go on in the editor."""
    async with editing() as editor:
        await editor.agent.resume_session(session, str(folder))

        def terminal() -> None:
            command = [sys.executable, "-m", "chatops", "-r", session]
            with Terminal(command, env={"CHATOPS_REGISTRY": str(registry)}, cwd=folder) as chat:
                chat.wait_for("Open elsewhere")
                chat.press("f2")
                chat.wait_gone("Open elsewhere")
                chat.wait_quiet(1.0)
                chat.trickle("/role reader", "\r")
                chat.wait_for("reader · level operator")
                chat.press("ctrl+c", "ctrl+c")
                chat.wait_exit()

        await asyncio.to_thread(terminal)
        await editor.agent.prompt(session, said("what does it say?"))
        assert editor.text.endswith("It says 2.")
        assert editor.of("current_mode_update")[-1].current_mode_id == "reader"
