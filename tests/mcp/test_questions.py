"""Questions of servers to the user: both generations of the protocol, hostile forms, time limits."""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from chatops.domain.decisions import Answer, AnswerAction, ServerQuestion
from chatops.domain.tools import CallFacts, Outcome, ToolCall, ToolResult, ToolSpec
from chatops.runtime import performer
from chatops.toolkit.base import Reconciled, ToolContext
from tests.mcp.conftest import World, entry, tool
from tests.mcp.test_servers import processes
from tests.support import asking_server
from tests.support.cases import for_each
from tests.support.waiting import until

SDK = {
    "command": [sys.executable, "-I", asking_server.__file__],
    "accept_level": "none",
    "sandbox": {"read": [str(Path(asking_server.__file__).parent), sys.prefix]},
}
"""A server of the second generation; the hostile one is of the first."""


def yes(**values: Any) -> Answer:
    return Answer(action=AnswerAction.ACCEPT, content=json.dumps(values))


class User:
    """Answers questions in turn, and remembers them. Waits for ever when it has no answer left."""

    def __init__(self, *answers: Answer) -> None:
        self.asked: list[ServerQuestion] = []
        self.given_up = False
        self._answers = list(answers)

    async def __call__(self, question: ServerQuestion) -> Answer:
        self.asked.append(question)
        if self._answers:
            return self._answers.pop(0)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.given_up = True
            raise
        raise AssertionError


@pytest.mark.more
async def test_where_nobody_is_a_question_is_declined_and_the_result_says_so(world: World) -> None:
    world.lists(tool("ask"))
    async with world.servers(h=entry(), sdk=SDK) as servers:
        note, told = (await world.run(servers, "h__ask")).content.split("\n", 1)
        second = await world.run(servers, "sdk__book")
    assert json.loads(told)["result"] == {"action": "decline"}
    assert note == "[chatops declined a question of the server to the user: no user is present to answer it]"
    assert second.content.startswith(note)
    assert second.outcome is Outcome.FAILED


@pytest.mark.more
async def test_a_question_for_a_key_is_asked_with_a_warning_and_answered(world: World) -> None:
    world.lists(tool("ask"))
    world.ask = user = User(yes(key="x"))
    async with world.servers(h=entry()) as servers:
        told = json.loads((await world.run(servers, "h__ask")).content)
    assert told["result"] == {"action": "accept", "content": {"key": "x"}}
    (asked,) = user.asked
    assert (asked.server, asked.secrets) == ("h", ("key",))


@pytest.mark.more
async def test_questions_of_the_second_generation_come_one_after_the_other(world: World) -> None:
    world.ask = user = User(yes(name="Ana", boats=2), yes(sure=True))
    async with world.servers(h=SDK) as servers:
        (status,) = servers.statuses()
        assert status.protocol == "2026-07-28"
        assert (await world.run(servers, "h__book")).content == "Ana: 2 small, True"
        assert [one.message for one in user.asked] == ["Who are you?", "Are you sure, Ana?"]
        world.ask = User(Answer(action=AnswerAction.DECLINE))
        assert (await world.run(servers, "h__book")).outcome is Outcome.FAILED


@pytest.mark.more
@pytest.mark.parametrize("new", [False, True])
async def test_a_server_that_ends_while_it_asks_leaves_an_unknown_outcome(world: World, *, new: bool) -> None:
    world.lists(tool("ask_exit"))
    world.ask = user = User()
    name = f"h{os.getpid()}"  # Its processes are found by it, and other tests run on this machine.
    async with world.servers(**{name: SDK if new else entry()}) as servers:
        call = asyncio.create_task(world.run(servers, f"{name}__book" if new else f"{name}__ask_exit"))
        await until(lambda: bool(user.asked))
        if new:
            for pid in processes(f"CHATOPS_CALL=mcp.{name}/".encode()):
                os.kill(int(pid), 9)
        result = await call
    assert result.outcome is Outcome.UNKNOWN
    assert f"The connection to the MCP server {name} was lost" in result.content
    assert user.given_up


@pytest.mark.more
async def test_a_question_that_may_belong_to_another_call_is_declined(world: World) -> None:
    world.lists(tool("ask"), tool("hang"))
    world.ask = user = User()
    async with world.servers(h=entry()) as servers:
        other = asyncio.create_task(world.run(servers, "h__hang", seconds=300))
        await until(lambda: "hang" in world.calls)
        result = await world.run(servers, "h__ask")
        other.cancel()
        await other
    assert "it does not say which one asks" in result.content
    assert user.asked == []


class Asking:
    """A tool that asks once and returns the answer."""

    spec = ToolSpec(name="asks", description="Asks.", schema="{}")

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        return CallFacts(arguments=call.arguments)

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        assert context.ask is not None
        answer = await context.ask(ServerQuestion(server="h", message="?"))
        return ToolResult(outcome=Outcome.SUCCESS, content=answer.action.value)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        return Reconciled(result=None)


async def test_the_time_limit_stands_still_while_the_user_is_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(performer, "GRACE_S", 0.0)

    async def slow(question: ServerQuestion) -> Answer:
        await asyncio.sleep(0.2)  # Ten times the limit.
        return yes()

    world.ask = slow
    result = await performer.run_attempt(Asking(), CallFacts(arguments="{}"), world.context(0.02))
    assert (result.outcome, result.content) == (Outcome.SUCCESS, "accept")


def form(properties: object, message: str = "?", **more: Any) -> dict[str, Any]:
    return {"message": message, "requested_schema": {"properties": properties, **more}}


def address(url: str) -> dict[str, Any]:
    return {"message": "?", "url": url, "elicitation_id": "1"}


def question(params: dict[str, Any]) -> ServerQuestion:
    """Read what the SDK hands over, which takes a second to import."""
    from mcp import types

    from chatops.mcp.questions import question_of

    made = types.ElicitRequestURLParams if "url" in params else types.ElicitRequestFormParams
    return question_of("h", made(**params))


@for_each(
    "params",
    [
        form({"a": {"type": "object", "properties": {}}}),
        form({"a": {"type": "array", "items": {"type": "string"}}}),
        form({"a": {"type": ["string", "null"]}}),
        form({"a": {"$ref": "#/$defs/a"}}),
        form({"a": {"type": "string", "enum": ["x", "x\u200b"]}}),
        form({"a": {"type": "string", "enum": ["\u0440ay"]}}),
        form({"a": {"type": "string", "enum": []}}),
        form({"a": {"type": "string", "enum": [str(n) for n in range(51)]}}),
        form({"a": {"type": "string", "description": "x" * 301}}),
        form({"a": {"type": "number", "minimum": float("nan")}}),
        form({"a\x1b[2J": {"type": "string"}}),
        form({"": {"type": "string"}}),
        form({"x" * 61: {"type": "string"}}),
        form({str(n): {"type": "string"} for n in range(21)}),
        form({"a": {"type": "string"}}, required=["b"]),
        form([]),
        form({}, message="x" * 2_001),
        address("file:///etc/passwd"),
        address("javascript:x"),
        address("https://bank.org@evil.org/"),
        address("https://b\u0430nk.org/"),
        address("https://evil.org\\.bank.org/"),
        address("https://bank.org%2eevil.org/"),
        address("https://x/" + "y" * 2_000),
        address("https://x/\x1b]52;c;QQ==\x07"),
    ],
)
def test_what_cannot_be_shown_in_full_is_not_asked(params: dict[str, Any]) -> None:
    with pytest.raises(Exception, match=r"\w") as error:
        question(params)
    assert error.type.__name__ == "UnclearQuestionError"
    assert len(str(error.value)) < 200
    assert str(error.value).isprintable()


def test_a_form_is_rebuilt_from_what_is_understood() -> None:
    field = {"type": "string", "title": "Port", "description": "Where?", "pattern": "(a+)+$", "maxLength": 9, "x": 1}
    sizes = {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]}
    several = {"type": "array", "items": {"anyOf": [{"const": "a", "title": "A"}, {"const": "b"}]}, "maxItems": 2}
    asked = question(form({"port": field, "size": sizes, "extras": several}, required=["port"]))
    assert json.loads(asked.schema) == {
        "type": "object",
        "additionalProperties": False,
        "required": ["port"],
        "properties": {
            "port": {"type": "string", "maxLength": 9, "description": "Where? (at most 9 characters)"},
            "size": {"type": "string", "enum": ["s", "l"], "description": "s (Small), l (Large)"},
            "extras": {
                "type": "array",
                "items": {"type": "string", "enum": ["a", "b"]},
                "maxItems": 2,
                "uniqueItems": True,
                "description": "A JSON list of: a (A), b (at most 2 values)",
            },
        },
    }
    assert asked.secrets == ()
    assert question(form({"a": {"type": "string"}}, message="Your passphrase?")).secrets == ("a",)
    for word in ("Введите пароль", "请输入密码", "パスワード", "비밀번호", "Şifre", "Lösenord"):
        assert question(form({"a": {"type": "string", "title": word}})).secrets == ("a",), word
