"""Selecting, copying and finding what was said."""

import os
from pathlib import Path

import pytest

from chatops.domain.ids import MessageId
from chatops.domain.messages import AssistantMessage, Message, UserMessage
from chatops.tui.clipboard import program
from tests.tui.app.fakes import FakeSession
from tests.tui.app.support_app import stage

CODE = "First:\n\n```python\na = 1\n```\n\nThen:\n\n~~~sh\nls -l\n~~~\n"


def said(*texts: str) -> FakeSession:
    """A session in which the user and the model take turns."""
    session = FakeSession()
    messages: list[Message] = []
    for number, text in enumerate(texts):
        key = MessageId(f"20261121-101512-k3f9.{number // 2 + 1}.m{number}")
        messages.append(AssistantMessage(id=key, text=text) if number % 2 else UserMessage(id=key, text=text))
    session.change(messages=tuple(messages))
    return session


async def test_y_copies_the_selected_block_and_types_a_letter_without_one() -> None:
    async with stage(said("What is it?", "An *answer*.")) as running:
        await running.press("y")
        assert running.draft == "y"
        await running.press("backspace", "ctrl+up", "ctrl+up")
        assert "y copy" in running.text
        await running.press("y")
        assert running.app.clipboard == "What is it?"
        await running.press("ctrl+down", "y")
        assert running.app.clipboard == "An *answer*."
        await running.press("escape", "y")
        assert "y copy" not in running.text
        assert running.draft == "y"


async def test_y_copies_nothing_in_a_dialog() -> None:
    from tests.tui.app.fakes import pending_call

    async with stage(said("What is it?", "An answer.")) as running:
        await running.press("ctrl+up")
        running.session.ask(pending_call())
        await running.settle()
        assert running.dialog_is_open
        await running.press("y")
        assert running.dialog_is_open
        assert not running.app.clipboard
        assert not running.session.taken


@pytest.mark.parametrize(
    ("command", "copied"), [("/copy", CODE), ("/copy 2", "An answer."), ("/copy 3", ""), ("/copy x", "")]
)
async def test_copy_counts_answers_from_the_end(command: str, copied: str) -> None:
    async with stage(said("one", "An answer.", "two", CODE)) as running:
        running.app.chat.run_command(command)
        await running.settle()
        assert running.app.clipboard == copied


async def test_copy_code_lets_the_user_choose_a_code_block() -> None:
    async with stage(said("one", CODE, "two", "No code here.")) as running:
        running.app.chat.run_command("/copy code")
        await running.settle()
        await running.press("down", "enter")
        assert running.app.clipboard == "ls -l"


def test_a_program_of_the_workspace_never_gets_what_is_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "xclip"
    fake.write_text("#!/bin/sh\n")
    fake.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    relative = {"DISPLAY": ":0", "PATH": f".{os.pathsep}{os.pathsep}"}
    assert program(relative) is None
    assert program({**relative, "PATH": str(tmp_path)}) == (str(fake), "-selection", "clipboard")
    assert program({"PATH": str(tmp_path)}) is None
