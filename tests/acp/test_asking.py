"""What an editor is asked, what its answers decide, and what they do not."""

import asyncio
import json
import socket
from pathlib import Path
from typing import Any

from acp import schema
from acp.agent.connection import AgentSideConnection

from chatops.acp.editor import Editor as Shown
from chatops.acp.show import Card
from chatops.acp.stdio import Stdio
from chatops.acp.wire import Agent
from chatops.store.process_identity import this_process
from chatops.wiring.stored import open_store
from tests.acp.editing import READS_FIRST_S, Editor, editing, prompted
from tests.support.command_line import program

ASKS = 'use scratch_write {"text": "Ana likes tea"}'
TITLE = 'scratch_write: text: "Ana likes tea"'


async def asking(editor: Editor, folder: Path) -> "tuple[str, asyncio.Task[Any], str]":
    """A prompt whose call the editor is asked about: session, prompt and call."""
    session = (await editor.agent.new_session(str(folder))).session_id
    prompt = prompted(editor, session, ASKS)
    await editor.until(lambda it: it.asked)
    return session, prompt, editor.asked[-1][0].tool_call_id


def log(folder: Path) -> list[dict[str, Any]]:
    """Every decision, as the audit log has it."""
    log = [json.loads(line) for line in program("audit", "export", cwd=folder).out.splitlines()]
    return [row for row in log if row["kind"] == "decision"]


async def test_a_plain_call_is_asked_about_reject_first_and_recorded_with_the_editor(
    folder: Path, registry: Path
) -> None:
    async with editing() as editor:
        session, prompt, call = await asking(editor, folder)
        question, options = editor.asked[0]
        assert question.title == TITLE
        assert [one.kind for one in options] == ["reject_once", "allow_once"]
        await asyncio.sleep(READS_FIRST_S)
        editor.answer("allow_once")
        assert (await prompt).stop_reason == "end_turn" and editor.last(call) == "completed"
        prompt = prompted(editor, session, ASKS)
        await editor.until(lambda it: len(it.asked) == 2)
        editor.answer("reject_once")
        assert (await prompt).stop_reason == "end_turn"
        assert editor.last(editor.asked[1][0].tool_call_id) == "failed"
    first, second = (row for row in log(folder) if row["tool"] == "scratch_write")
    assert (first["by"]["via"], first["by"]["tty"]) == ("acp", "test-editor 1.2")
    assert first["decision"] != second["decision"]
    assert "via acp (test-editor 1.2)" in program("audit", "list", cwd=folder).out
    doctor = program("doctor", cwd=folder).out
    assert "test-editor 1.2" in doctor and "2 answers" in doctor


async def test_answers_that_were_not_offered_or_came_at_once_leave_the_call_pending(
    folder: Path, registry: Path
) -> None:
    answers = iter(["allow_once", "zzz", None])

    def decide(call: Any, options: Any) -> Any:
        if (wanted := next(answers)) is None:
            return schema.DeniedOutcome(outcome="cancelled")
        chosen = next((one.option_id for one in options if one.kind == wanted), wanted)
        return schema.AllowedOutcome(outcome="selected", option_id=chosen)

    async with editing() as editor:
        editor.decides = decide
        session, prompt, call = await asking(editor, folder)
        await editor.until(lambda it: "Nothing was decided" in it.text)
        assert "test-editor 1.2 allowed this call" in editor.text and f"chatops approvals show {call}" in editor.text
        for asked in (2, 3):
            await editor.agent.cancel(session)
            assert (await prompt).stop_reason == "cancelled"
            prompt = prompted(editor, session, "and now?")
            await editor.until(lambda it, asked=asked: len(it.asked) == asked)  # type: ignore[misc]
            assert f"once this call is decided. Decide in chatops: chatops approvals show {call}" in editor.text
        assert call in program("approvals", "list", cwd=folder).out and not log(folder)
        assert program("approvals", "deny", call, cwd=folder).code == 0
        # The messages that waited behind the call are sent.
        assert (await prompt).stop_reason == "end_turn"
    assert "1 too soon" in program("doctor", cwd=folder).out


async def test_an_answer_after_the_turn_was_cancelled_decides_nothing_and_the_next_message_asks_again(
    folder: Path, registry: Path
) -> None:
    async with editing() as editor:
        session, prompt, call = await asking(editor, folder)
        await asyncio.sleep(READS_FIRST_S)
        await editor.agent.cancel(session)
        assert (await prompt).stop_reason == "cancelled"
        editor.answer("allow_once")
        prompt = prompted(editor, session, "and now?")
        await editor.until(lambda it: len(it.asked) == 2)
        assert call in program("approvals", "list", cwd=folder).out and not log(folder)
        editor.answer("reject_once")
        assert (await prompt).stop_reason == "end_turn" and editor.last(call) == "failed"


async def test_a_decision_elsewhere_ends_the_question_and_a_late_answer_is_void(folder: Path, registry: Path) -> None:
    async with editing() as editor:
        _, prompt, call = await asking(editor, folder)
        assert (await asyncio.to_thread(program, "approvals", "deny", call, "--reason", "no tea", cwd=folder)).code == 0
        assert (await prompt).stop_reason == "end_turn"
        shown = [one for one in editor.cards if one.tool_call_id == call]
        assert any("via approvals" in str(one.content) for one in shown) and shown[-1].status == "failed"
        await asyncio.sleep(READS_FIRST_S)
        editor.answer("allow_once")
        assert (await editor.agent.list_sessions()).sessions
    (row,) = log(folder)
    assert row["by"]["via"] == "approvals"


async def test_other_calls_say_where_they_are_decided_with_the_page_if_it_runs(folder: Path, registry: Path) -> None:
    with open_store() as store:
        store.announce_page("http://abc.localhost:8322", this_process())
    async with editing() as editor:
        session = (await editor.agent.new_session(str(folder))).session_id
        edit = 'use file_edit {"path": "note.txt", "old": "Friday", "new": "Monday"}'
        prompt = prompted(editor, session, edit)
        await editor.until(lambda it: "Decide in chatops" in it.text)
        call = editor.cards[-1].tool_call_id
        assert f"http://abc.localhost:8322/call/{call} or chatops approvals show {call}" in editor.text
        text, diff = editor.cards[-1].content
        assert "Approve file_edit?" in text.content.text
        assert (diff.path, diff.old_text, diff.new_text) == (
            str(folder / "note.txt"),
            "The invoice is due on Friday.\n",
            "The invoice is due on Monday.\n",
        )
        assert not editor.asked
        assert (await asyncio.to_thread(program, "approvals", "approve", call, cwd=folder)).code == 0
        assert (await prompt).stop_reason == "end_turn"
    assert "Monday" in (folder / "note.txt").read_text()


async def test_an_editor_with_forms_is_asked_for_the_reason_of_a_rejection(folder: Path, registry: Path) -> None:
    async with editing(forms=True) as editor:
        editor.fills = lambda message, mode: {"action": "accept", "content": {"reason": "Use the other pad"}}
        _, prompt, call = await asking(editor, folder)
        options = editor.asked[0][1]
        assert [(one.kind, one.name) for one in options] == [
            ("reject_once", "Reject"),
            ("reject_once", "Reject with a reason"),
            ("allow_once", "Allow once"),
        ]
        chosen = schema.AllowedOutcome(outcome="selected", option_id=options[1].option_id)
        editor.choose(chosen)
        assert (await prompt).stop_reason == "end_turn" and editor.last(call) == "failed"
        assert any("Use the other pad" in str(one.content) for one in editor.cards)


async def test_two_sessions_that_ask_about_one_call_are_timed_each_by_itself() -> None:
    ours, theirs = socket.socketpair()
    stdio = Stdio(*await asyncio.open_connection(sock=ours))
    client, answers = await asyncio.open_connection(sock=theirs)
    conn: Any = AgentSideConnection(Agent(None, stdio, too_broad=str), stdio)  # type: ignore[arg-type]
    card, asked, found = Card(id="s.1.1.1", title="Shell: ls"), [], []
    for _ in range(2):
        found.append(asyncio.create_task(Shown(conn, stdio, has_forms=False).ask(card)))
        asked.append(json.loads(await client.readline()))
    for question in asked:
        outcome = {"outcome": "selected", "optionId": question["params"]["options"][-1]["optionId"]}
        answers.write(json.dumps({"id": question["id"], "result": {"outcome": outcome}}).encode() + b"\n")
    for answer in await asyncio.gather(*found):
        assert answer is not None and answer.reply == "allow" and answer.after_s > 0
    answers.close()
    await conn.close()
