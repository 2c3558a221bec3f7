"""The dialog for a question of an MCP server, key by key: what is shown, and what reaches the session."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from chatops.domain.canonical import JsonValue, canonical
from chatops.domain.decisions import Answer, AnswerAction, OpenQuestion, ServerQuestion
from chatops.domain.errors import ChatopsError, StoreError
from chatops.domain.events import Notice, TurnStatus
from chatops.domain.ids import CallId
from chatops.domain.tools import Problem
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.server_question import AnswerForm, ServerQuestionScreen
from tests.support.mcp_server import ESCAPES
from tests.tui.app.fakes import FakeSession, pending_call
from tests.tui.app.support_app import Stage, stage

FORM: JsonValue = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": f"Who {ESCAPES}"},
        "boats": {"type": "integer", "default": 1},
        "api_key": {"type": "string"},
    },
    "required": ["name"],
}


class AskingSession(FakeSession):
    """A session in which a server asks."""

    def __init__(self, **question: Any) -> None:
        super().__init__(status=TurnStatus.RUNNING)
        self.actions = self  # type: ignore[assignment]
        self.sent: list[Answer] = []
        asked = ServerQuestion(**{"server": "tides", "message": f"Hello {ESCAPES}", "id": "q1", **question})
        self.change(questions=(OpenQuestion(call_id=CallId("s.1.1.1"), tool="tides__book", question=asked),))

    async def answer(self, asked: OpenQuestion, answer: Answer) -> tuple[Problem, ...]:
        if self.refuse:
            raise self.refuse
        if asked not in self.now.questions:
            raise ChatopsError("The server no longer waits.")
        self.sent.append(answer)
        if "77" in answer.content:
            return (Problem(path="boats", message="77 is greater than the maximum of 9"),)
        self.withdraw()
        return ()

    def withdraw(self) -> None:
        self.change(questions=())
        self.publish(Notice(id="n", parent_id="s.1", text="over"))


@asynccontextmanager
async def asked(session: AskingSession, size: tuple[int, int] = (80, 40)) -> AsyncIterator[tuple[Stage, AskingSession]]:
    async with stage(session, size=size) as running:
        session.publish(Notice(id="n0", parent_id="s.1", text="asked"))
        while not isinstance(running.app.screen, ServerQuestionScreen):
            running.clock.pass_(1.0)
            await running.pilot.pause(0.01)
        await running.settle()
        yield running, session


async def test_it_says_who_asks_and_warns_and_no_other_key_answers() -> None:
    async with asked(AskingSession(schema=canonical(FORM), secrets=("api_key",))) as (running, session):
        assert "The MCP server tides asks you" in running.text
        assert "An MCP server asks, not chatops and not the model." in running.text
        assert "tides__book" in running.text
        assert "It seems to ask for a secret: api_key." in running.text
        assert "│ │ Hello ␛]52;c;QQ==␇␛[2J<U+009B>31m<U+202E>[@click=app.bell]x[/x]" in running.text
        assert "\x1b" not in running.text
        await running.press("y", "n", "enter", "space", "s", "A")
        assert session.sent == []
        await running.press("d")
        assert session.sent == [Answer(action=AnswerAction.DECLINE)]
        assert not isinstance(running.app.screen, ServerQuestionScreen)


async def test_a_form_keeps_what_was_typed_until_it_fits() -> None:
    async with asked(AskingSession(schema=canonical(FORM))) as (running, session):
        await running.press("a")
        assert isinstance(running.app.screen, AnswerForm)
        await running.fill(name="Ana", boats="77")
        assert "77 is greater than the maximum of 9" in running.text
        session.refuse = StoreError("The disk is full.")
        await running.fill(boats="2")
        assert "The disk is full." in running.text
        session.refuse = None
        await running.press("escape")
        assert isinstance(running.app.screen, ServerQuestionScreen)
        await running.press("escape")
        assert "tides asks you, and its call waits" in running.text
        await running.press("escape")
        assert "ctrl+g answers, Esc again stops it" in running.text
        assert not session.cancelled
        await running.press("ctrl+g", "a", "ctrl+s")
        assert json.loads(session.sent[-1].content) == {"name": "Ana", "boats": 2}
        assert "asks you" not in running.text


async def test_a_form_whose_question_is_withdrawn_keeps_the_keyboard_and_sends_nothing() -> None:
    async with asked(AskingSession(schema=canonical(FORM))) as (running, session):
        await running.press("a")
        await running.type_fast(*"hunter")
        session.withdraw()
        await running.settle()
        assert "is void: nothing was sent" in running.text
        # What was meant for the server, such as a password, must not go on in a message to the model.
        await running.type_fast(*"two", "ctrl+s")
        assert "huntertwo" in running.text and "The server no longer waits." in running.text
        assert (running.draft, session.submitted) == ("", [])
        await running.press("escape")
        assert running.app.screen is running.app.chat


@pytest.mark.more
async def test_an_address_is_shown_whole_and_copied_when_the_user_agrees() -> None:
    url = "https://login.example.org/" + "x" * 100 + "/end"
    async with asked(AskingSession(url=url)) as (running, session):
        shown = "".join(line.strip("│ »") for line in running.text.split("\n"))
        assert url in shown
        assert "its host     login.example.org" in running.text
        await running.press("a")
        assert session.sent == [Answer(action=AnswerAction.ACCEPT)]
        assert running.app.clipboard == url


@pytest.mark.more
async def test_the_host_ends_where_a_browser_ends_it() -> None:
    async with asked(AskingSession(url="https://evil.org?.bank.org/login")) as (running, _):
        assert re.search(r"its host +evil\.org +│", running.text)


@pytest.mark.more
async def test_a_proposed_value_is_read_before_the_form_and_never_sent_in_place_of_what_is_shown() -> None:
    consent: JsonValue = {"type": "boolean", "default": True}
    form: JsonValue = {
        "type": "object",
        "properties": {"pay": consent, "sure": {"type": "boolean"}, "who": {"type": "string", "default": "x\u200b"}},
        "required": ["pay", "sure"],
    }
    async with asked(AskingSession(schema=canonical(form))) as (running, session):
        assert "pay (true, false) – it proposes true" in running.text
        assert 'who (text, optional) – it proposes "x<U+200B>"' in running.text
        await running.press("a", "right")
        assert "( ) true   (x) false" in running.text
        assert "(x) not given   ( ) true   ( ) false" in running.text
        await running.press("escape", "a", "tab", "right")
        assert "( ) true   (x) false" in running.text
        assert "( ) not given   (x) true   ( ) false" in running.text
        await running.press("ctrl+s")
        assert json.loads(session.sent[-1].content) == {"pay": False, "sure": True, "who": "x\u200b"}


@pytest.mark.more
async def test_a_question_put_off_makes_way_for_an_approval() -> None:
    session = AskingSession(schema=canonical(FORM))
    async with asked(session) as (running, _):
        session.change(pending=(pending_call(),))
        await running.press("escape")
        await running.settle()
        assert isinstance(running.app.screen_stack[-1], ApprovalScreen)
        await running.press("escape")
        assert running.app.screen_stack == [running.app.chat]
        session.change(pending=())
        await running.press("ctrl+g")
        assert isinstance(running.app.screen, ServerQuestionScreen)


@pytest.mark.more
async def test_nothing_is_agreed_to_before_its_end_was_on_screen() -> None:
    message = "\n".join(f"Line {n}" for n in range(60))
    async with asked(AskingSession(schema='{"type":"object"}', message=message), size=(80, 24)) as (running, session):
        await running.press("a")
        assert session.sent == []
        for _ in range(8):
            await running.press("a")
        assert session.sent == [Answer(action=AnswerAction.ACCEPT, content="{}")]
