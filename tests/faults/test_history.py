"""Conversations as an older crash, a damaged file or a copy may have left them: going on sends what a strict server
takes, and what was mended stays mended.
"""

import json
from collections.abc import Callable
from typing import Any

import pytest

from chatops.domain.ids import CallId, MessageId, SessionId
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome, ToolCall
from chatops.engine.pairing import LOST_RESULT
from tests.e2e.installation import EFFECT, Installation, answers_each_call_once
from tests.faults.entry_points import FaultyChat, Pipe, Provider, flat, patient_registry
from tests.support.fake_openai import call, calls, violations_of

SHELL = json.dumps({"command": EFFECT})


def said(text: str) -> Callable[[str], UserMessage]:
    return lambda at: UserMessage(id=MessageId(at), text=text)


def asks(*ids: str, text: str = "", name: str = "shell_exec", arguments: str = SHELL) -> Callable[[str], Message]:
    asked = tuple(ToolCall(id=CallId(id), name=name, arguments=arguments, provider_id="call_0") for id in ids)
    return lambda at: AssistantMessage(id=MessageId(at), text=text, calls=asked, model="local", role="coder")


def result(of: str, content: str) -> Callable[[str], Message]:
    return lambda at: ToolMessage(
        id=MessageId(at),
        call_id=CallId(of),
        tool="shell_exec",
        arguments=SHELL,
        outcome=Outcome.SUCCESS,
        content=content,
    )


def left(installation: Installation, *made: Callable[[str], Message]) -> SessionId:
    """A stored conversation of these messages."""
    with installation.store() as store:
        info = store.create_session(
            workspace=str(installation.workspace), role="coder", persona="", title="left behind"
        )
        for number, make in enumerate(made, start=1):
            store.append_message(info.id, make(f"{info.id}.0.m{number}"))
    return info.id


def exported(pipe: Pipe, session: SessionId) -> list[dict[str, Any]]:
    ran = pipe.run("sessions", "export", session, "--format", "openai")
    assert ran.code == 0, ran.err
    messages = json.loads(ran.out)
    assert violations_of({"messages": messages}) == []
    return list(messages)


def prompts(messages: list[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages if message["role"] == "tool"]


@pytest.mark.some(1)
@pytest.mark.fault("C30")
@pytest.mark.parametrize(
    ("messages", "results", "mended"),
    [
        pytest.param(
            [said("go"), asks("x.1", "x.2"), result("x.1", "one")], ["one", LOST_RESULT], 1, id="a-call-without-one"
        ),
        pytest.param(
            [said("go"), asks("x.1"), said("hello?"), said("hello?")], [LOST_RESULT], 1, id="and-the-user-continued"
        ),
        pytest.param(
            [said("go"), asks("x.1"), result("x.1", "one"), result("x.1", "two")], ["one"], 0, id="two-results"
        ),
        pytest.param([said("go"), asks(text=""), said("?"), asks(text=" \n")], [], 0, id="replies-without-a-word"),
        pytest.param(
            [said("go"), asks("x.1"), result("x.1", "one"), said("go"), asks("x.1"), result("x.1", "two")],
            ["one", "two"],
            0,
            id="an-id-given-twice",
        ),
        pytest.param(
            [said("go"), asks("x.1"), said("go"), asks("x.1"), result("x.1", "two")],
            [LOST_RESULT, "two"],
            1,
            id="an-id-given-twice-and-one-result",
        ),
        pytest.param(
            [said(" "), asks("x.1", name="a b c", arguments="{broken"), result("x.1", " \n"), result("y.9", "whose?")],
            [None],
            0,
            id="what-no-server-takes",
        ),
    ],
)
def test_what_a_crash_has_left_is_mended_once_and_for_good(
    installation: Installation,
    pipe: Pipe,
    messages: list[Callable[[str], Message]],
    results: list[str | None],
    mended: int,
) -> None:
    session = left(installation, *messages)
    ran = pipe.ask("still there?", more=("-r", session, "--output-format", "json"))
    assert ran.code == 0, ran.err
    report = json.loads(ran.out)
    assert (report["status"], report["answer"], report["calls"]) == ("answered", "You said: still there?", [])
    assert ("no recorded result" in ran.err) == bool(mended)
    assert pipe.provider.server.violations == []
    (request,) = pipe.asked
    assert [want or got for want, got in zip(results, request.tool_results, strict=True)] == request.tool_results
    assert answers_each_call_once(request)

    after = exported(pipe, session)
    assert all(want is None or want == got for want, got in zip(results, prompts(after), strict=True))
    if mended:
        again = pipe.ask("and now?", more=("-r", session))
        assert "no recorded result" not in again.err
        assert pipe.asked[0].tool_results == request.tool_results
        assert pipe.provider.server.violations == []
    with installation.store() as store:
        stored = [message for message in store.history(session) if isinstance(message, ToolMessage)]
    assert sum(message.content == LOST_RESULT for message in stored) == mended
    assert installation.count == 0


@pytest.mark.fault("C30")
def test_a_result_whose_row_is_damaged_is_lost_and_the_conversation_goes_on(
    installation: Installation, pipe: Pipe
) -> None:
    session = left(installation, said("go"), asks("x.1"), result("x.1", "one"), said("thanks"))
    with installation.store() as store:
        store._rows.run("UPDATE messages SET body = '{broken' WHERE kind = 'tool'")
    ran = pipe.ask("still there?", more=("-r", session))
    assert "You said: still there?" in ran.out
    assert "no recorded result" in ran.err
    assert pipe.asked[0].tool_results == [LOST_RESULT]
    assert prompts(exported(pipe, session)) == [LOST_RESULT]
    pipe.assert_well()


@pytest.mark.more
@pytest.mark.fault("C30")
def test_a_copy_made_in_the_middle_of_a_round_goes_on_and_the_original_still_asks(
    installation: Installation, pipe: Pipe
) -> None:
    paused = pipe.ask("go", calls(call("shell_exec", command=EFFECT)))
    assert paused.code == 3
    original = installation.session().id
    copy = SessionId(pipe.run("sessions", "fork", original).out.strip())
    ran = pipe.ask("still there?", more=("-r", copy))
    assert "You said: still there?" in ran.out
    assert "no recorded result" in ran.err
    assert pipe.asked[0].tool_results == [LOST_RESULT]
    assert prompts(exported(pipe, copy)) == [LOST_RESULT]
    waiting = json.loads(pipe.run("approvals", "list", "--output-format", "json").out)
    (one,) = waiting
    assert pipe.run("approvals", "approve", one["id"]).code == 0
    pipe.provider.script()
    assert pipe.run("resume", original).code == 0
    assert installation.count == 1
    assert LOST_RESULT not in prompts(exported(pipe, original))
    assert pipe.provider.server.violations == []


@pytest.mark.more
@pytest.mark.fault("C30")
def test_the_chat_shows_what_is_not_known_before_and_after_it_goes_on(
    installation: Installation, provider: Provider
) -> None:
    installation.use(patient_registry(provider.server.url))
    session = left(installation, said("go"), asks("x.1", "x.1", text="I run it."), result("x.1", "one"))
    for first in (True, False):
        with installation.open("-r", session) as terminal:
            terminal.ready("coder")
            chat = FaultyChat(installation, provider, terminal)
            chat.wait_for(r"Shell printf x >> count.txt outcome unknown")
            chat.assert_well()
            seen = flat(terminal.text())
            assert seen.count("outcome unknown") == 1
            assert seen.count("A call has no recorded result (shell_exec): whether it took effect is not known") == 1
            assert provider.requests[-1].tool_results == ["one", LOST_RESULT], first
    assert installation.count == 0
