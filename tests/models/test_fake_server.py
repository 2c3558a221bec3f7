"""The server that the other tests lean on behaves like one."""

import json
import threading
import urllib.request

import httpx2
import pytest

from tests.support.fake_openai import FakeOpenAI, Hang, Raw, Wait, call, calls, says, sse


async def ask(server: FakeOpenAI, **body: object) -> str:
    async with httpx2.AsyncClient(trust_env=False) as client:
        return (await client.post(f"{server.url}/chat/completions", json={"messages": [], **body})).text


async def test_scripted_replies_stream_or_come_whole() -> None:
    async with FakeOpenAI([says("Hello"), calls(call("file_read", path="a"))]) as server:
        streamed = await ask(server, stream=True)
        whole = json.loads(await ask(server))
    assert streamed.endswith("data: [DONE]\n\n")
    assert whole["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"path": "a"}'
    assert [request.body.get("stream") for request in server.requests] == [True, None]


def test_in_a_thread() -> None:
    with FakeOpenAI(lambda request: says(request.last_user.upper())) as server:
        body = json.dumps({"messages": [{"role": "user", "content": "hi"}]}).encode()
        with urllib.request.urlopen(f"{server.url}/chat/completions", data=body) as answer:
            assert json.loads(answer.read())["choices"][0]["message"]["content"] == "HI"


async def test_it_sees_the_client_go_and_can_be_held() -> None:
    event = threading.Event()
    script = [Raw(steps=(b": x\n\n", Hang())), Raw(steps=(Wait(event=event), sse("late")))]
    async with FakeOpenAI(script) as server:
        async with httpx2.AsyncClient(trust_env=False) as client:
            async with client.stream("POST", f"{server.url}/chat/completions", json={"messages": []}) as reply:
                assert reply.status_code == 200
        async with httpx2.AsyncClient(trust_env=False) as client:
            event.set()
            assert "late" in (await client.post(f"{server.url}/chat/completions", json={"messages": []})).text
        assert await server.requests[0].left()
        assert not server.requests[1].gone.is_set()


def asks(name: str = "t", arguments: object = "{}", id: str = "a") -> dict[str, object]:
    wanted = {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": "assistant", "content": "", "tool_calls": [wanted]}


DONE = {"role": "tool", "tool_call_id": "a", "content": "ok"}


@pytest.mark.parametrize(
    ("messages", "complaint"),
    [
        ([asks()], "without a tool message"),
        ([DONE, asks()], "no open call"),
        ([asks(), DONE, DONE], "no open call"),
        ([asks(), DONE, asks(), DONE], "id repeats"),
        ([asks("a b"), DONE], "name of a call"),
        ([asks("n" * 65), DONE], "name of a call"),
        ([asks(arguments="{"), DONE], "no JSON object"),
        ([asks(arguments="[]"), DONE], "no JSON object"),
        ([asks(arguments={}), DONE], "no JSON object"),
        ([asks(id=""), {**DONE, "tool_call_id": ""}], "id of a call"),
        ([asks(), {**DONE, "content": ["ok"]}], "nothing in it"),
        ([{"role": "assistant", "content": " "}], "nothing in it"),
        ([{"role": "assistant", "content": None}], "nothing in it"),
        ([{"role": "user", "content": ""}], "nothing in it"),
        ([{"role": "user", "content": "a"}, {"role": "user", "content": "b"}], "without a reply"),
        ([{"role": "user", "content": "a"}, asks(), DONE, {"role": "user", "content": "b"}], "without a reply"),
        ([{"role": "tool", "tool_call_id": "a", "content": ""}], "no open call"),
        ([{"role": "assistant"}], "without content"),
    ],
)
async def test_strictness(messages: list[dict[str, object]], complaint: str) -> None:
    async with FakeOpenAI([says("no")]) as server:
        assert complaint in await ask(server, messages=messages)
    assert any(complaint in violation for violation in server.violations)
