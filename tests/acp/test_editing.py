"""A session in an editor: the SDK's client and the real agent, each in a process of its own."""

from pathlib import Path

from tests.acp.editing import editing, said


async def test_a_message_is_answered_with_text_calls_and_usage(folder: Path) -> None:
    async with editing() as editor:
        session = await editor.agent.new_session(str(folder))
        assert session.modes.current_mode_id == "assistant"
        assert {"coder", "researcher"} <= {mode.id for mode in session.modes.available_modes}
        done = await editor.agent.prompt(session.session_id, said("read note.txt"))
        assert done.stop_reason == "end_turn" and done.usage.total_tokens > 0
        opened, *_, ended = editor.cards
        assert (opened.title, opened.kind, opened.status) == ("Read: note.txt", "read", "pending")
        assert opened.locations[0].path == str(folder / "note.txt")
        assert ended.status == "completed" and "due on Friday" in ended.content[0].content.text
        assert "due on Friday" in editor.text
        assert editor.of("usage_update")[-1].used > 0
