"""The client as the runtime uses it: whose keys go where, costs, specs that change, one slot at a time."""

import asyncio
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from chatops.domain.model import FailureKind
from chatops.models.base import Retrying, Waiting
from chatops.models.client import RegistryClient
from chatops.models.discover import list_models
from chatops.policy.registry import HostType, ModelSpec, ModelType, Price
from tests.models.asking import IMPATIENT, KEY, ask, client_for, question, send, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, Wait, delta, error, says, sse

FOREIGN = {
    "OPENAI_API_KEY": "sk-foreign",
    "OPENAI_ADMIN_KEY": "foreign-admin",
    "OPENAI_ORG_ID": "foreign-org",
    "OPENAI_PROJECT_ID": "foreign-project",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/foreign",
    "OPENAI_CUSTOM_HEADERS": "X-Foreign: foreign\nAuthorization: Bearer foreign\nCookie: foreign=1\n"
    "HostProfile: foreign.example\nAccept: foreign/*\nContent-Type: foreign/json\nUser-Agent: foreign",
}


@pytest.mark.parametrize("key", ["", KEY])
async def test_nothing_of_another_provider_leaks(monkeypatch: pytest.MonkeyPatch, key: str) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    async with FakeOpenAI([says("hi")]) as server:
        events = await ask(server, api_key=key)
        (request,) = server.requests
    assert events.reply.text == "hi"
    assert "foreign" not in repr(request.headers).lower()
    assert request.headers["authorization"] == f"Bearer {key or 'none'}"
    assert set(request.headers) == {
        "host",
        "accept",
        "accept-encoding",
        "authorization",
        "connection",
        "content-length",
        "content-type",
        "user-agent",
    }


async def test_nothing_of_another_provider_leaks_when_models_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in FOREIGN.items():
        monkeypatch.setenv(name, value)
    async with FakeOpenAI(models=("m1",)) as server:
        assert await list_models(spec_for(server, api_key=KEY)) == ["m1"]
        (request,) = server.others
    assert "foreign" not in repr(request.headers).lower()
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert set(request.headers) == {"host", "accept", "accept-encoding", "authorization", "connection", "user-agent"}


async def test_headers_of_the_registry_are_sent() -> None:
    headers = (("X-Team", "blue"), ("Content-Length", "1"), ("Host", "evil"))
    async with FakeOpenAI([says("hi")]) as server:
        await ask(server, headers=headers)
        assert server.requests[0].headers["x-team"] == "blue"
        assert server.requests[0].headers["host"] == f"127.0.0.1:{server.port}"


async def test_impossible_headers_are_a_configuration_error() -> None:
    async with FakeOpenAI() as server:
        events = await ask(server, headers=(("X", "a\r\nY: b"),))
    assert events.failure.kind is FailureKind.CONFIGURATION


async def test_extra_body_cannot_set_reserved_fields_and_a_notice_says_so() -> None:
    async with FakeOpenAI([says("hi")]) as server:
        events = await ask(server, extra_body='{"model": "other", "seed": 1}')
        assert server.requests[0].body["model"] == "fake-model"
        assert server.requests[0].body["seed"] == 1
    assert events.notices == ["extra_body may not set model."]


async def test_cost() -> None:
    async with FakeOpenAI([says("hi", usage={"prompt_tokens": 1_000_000, "completion_tokens": 500_000})]) as server:
        usage = (await ask(server, price=Price(input=2.0, output=6.0))).reply.usage
    assert usage is not None
    assert usage.cost == 5.0


async def test_open_webui_path() -> None:
    async with FakeOpenAI([says("hi")]) as server:
        await ask(server, api_url=server.root, host_type=HostType.OPENWEBUI)
        assert server.requests[0].path == "/api/chat/completions"


LISTS = {
    HostType.OLLAMA: ("/api/ps", '{"models":[{"model":"other:8b"}]}', '{"models":[{"model":"fake-model:latest"}]}'),
    HostType.LMSTUDIO: (
        "/api/v0/models",
        '{"data":[{"id":"other","state":"loaded"},{"id":"fake-model","state":"not-loaded"}]}',
        '{"data":[{"id":"fake-model","state":"loaded"}]}',
    ),
}


@pytest.mark.parametrize("host", LISTS)
@pytest.mark.parametrize("stated", ["unloaded", "loaded", "nonsense", "nothing"])
async def test_loading_is_said_only_where_the_server_states_that_the_model_is_not_loaded(
    host: HostType, stated: str
) -> None:
    path, unloaded, loaded = LISTS[host]
    body = {"unloaded": unloaded, "loaded": loaded, "nonsense": '{"models":{},"data":[[]]}'}.get(stated)
    pages = {path: Raw(steps=(body.encode(),))} if body is not None else {}
    said = [threading.Event(), threading.Event()]
    late = [Raw(steps=(Wait(event=event), sse(delta("hi", finish="stop")))) for event in said]
    async with FakeOpenAI(late, pages=pages) as server:
        client = client_for(spec_for(server, host_type=host), pace=IMPATIENT)

        async def waits(event: threading.Event, *, loading: bool) -> list[bool]:
            """Return what is said while the reply is kept back: until `loading` was said twice after the question."""
            told, counted = list[bool](), 0
            async for one in client.stream(question()):
                if isinstance(one, Waiting):
                    told.append(one.loading)
                    counted += bool(server.others) and one.loading == loading
                    if counted == 2:
                        event.set()
            return told

        first = await waits(said[0], loading=stated == "unloaded")
        second = await waits(said[1], loading=False)
        await client.aclose()
    # Until the server has answered, it is not known.
    assert stated == "unloaded" or not any(first)
    assert not any(second) and [one.path for one in server.others] == [path], "it is asked once"


async def test_a_query_in_the_address_goes_behind_the_path() -> None:
    async with FakeOpenAI([says("hi")]) as server:
        await ask(server, api_url=f"{server.root}?api-version=1")
        assert server.requests[0].path == "/v1/chat/completions?api-version=1"


async def test_a_model_that_does_not_stream_is_a_stream_of_one() -> None:
    async with FakeOpenAI([says("all at once")]) as server:
        events = await ask(server, stream=False)
        assert server.requests[0].body["stream"] is False
        assert "stream_options" not in server.requests[0].body
    assert events.text == events.reply.text == "all at once"


async def test_a_changed_spec_counts_from_the_next_question_on() -> None:
    async with FakeOpenAI(lambda request: says(str(request.body["model"]))) as server:
        specs = {"test": spec_for(server)}
        client = RegistryClient(specs.get, environ={})
        assert (await send(client)).reply.text == "fake-model"
        specs["test"] = replace(specs["test"], model_name="other")
        assert (await send(client)).reply.text == "other"
        await client.aclose()


async def test_simultaneous_requests_share_a_notice() -> None:
    async with FakeOpenAI(lambda request: says("hi", model="another")) as server:
        client = client_for(spec_for(server))
        first, second, _ = await asyncio.gather(send(client), send(client), client.prepare("test"))
        await client.aclose()
    assert len(first.notices) + len(second.notices) == 1


async def test_the_key_is_read_for_every_question() -> None:
    environ = {"K": "first"}
    async with FakeOpenAI(lambda _: says("hi")) as server:
        client = client_for(spec_for(server, api_key_env="K"), environ=environ)
        await send(client)
        environ["K"] = "second"
        await send(client)
        del environ["K"]
        events = await send(client)
        await client.aclose()
        assert [request.headers["authorization"] for request in server.requests] == ["Bearer first", "Bearer second"]
    assert events.failure.kind is FailureKind.CONFIGURATION
    assert "K, which is not set" in events.failure.message


async def test_a_key_from_a_command_is_read_again_after_five_minutes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clock = SimpleNamespace(now=1_000.0)
    monkeypatch.setattr("chatops.models.client.time", SimpleNamespace(monotonic=lambda: clock.now))
    runs = tmp_path / "runs"
    runs.mkdir()
    script = (
        f"import os; n = len(os.listdir({str(runs)!r})) + 1; open(f'{runs}/{{n}}', 'x').close(); print(f'key-{{n}}')"
    )
    async with FakeOpenAI(lambda _: says("hi")) as server:
        client = client_for(spec_for(server, api_key_command=(sys.executable, "-c", script)))
        for seconds in (0.0, 299.0, 2.0, 298.0, 301.0):
            clock.now += seconds
            assert (await send(client)).reply.text == "hi"
        await client.aclose()
        sent = [request.headers["authorization"] for request in server.requests]
    assert sent == [f"Bearer key-{number}" for number in (1, 1, 2, 2, 3)]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (None, "no model named"),
        (ModelSpec(name="test", type=ModelType.CLI, command=("claude", "-p")), "type cli"),
        (ModelSpec(name="test", model_name="x"), "api_url"),
        (ModelSpec(name="test", api_url="http://127.0.0.1:1"), "model_name"),
        (ModelSpec(name="test", api_url="https://127.0.0.1:1", model_name="x", ca_file="/no/such.pem"), "/no/such.pem"),
    ],
)
async def test_an_unusable_spec_fails_before_anything_is_sent(spec: ModelSpec | None, words: str) -> None:
    client = RegistryClient(lambda _: spec)
    events = await send(client)
    await client.aclose()
    assert events.failure.kind is FailureKind.CONFIGURATION
    assert words in events.failure.message
    assert events.failure.advice


async def test_max_concurrent() -> None:
    release = threading.Event()
    async with FakeOpenAI([says("one", wait=Wait(event=release)), says("two")]) as server:
        client = client_for(spec_for(server, max_concurrent=1))
        first = asyncio.create_task(send(client))
        await server.arrived()
        second = asyncio.create_task(send(client))
        await asyncio.sleep(0.1)
        assert len(server.requests) == 1
        release.set()
        assert {(await first).reply.text, (await second).reply.text} == {"one", "two"}
        await client.aclose()


async def test_cancelling_the_task_closes_the_connection() -> None:
    async with FakeOpenAI([says("never", wait=Wait(event=threading.Event()))]) as server:
        client = client_for(spec_for(server))
        task = asyncio.create_task(send(client))
        await server.arrived()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await server.requests[0].left()
        await client.aclose()


async def test_waiting_for_a_retry_can_be_cancelled() -> None:
    async with FakeOpenAI(lambda _: error(503, "busy", headers=(("Retry-After", "25"),))) as server:
        client = client_for(spec_for(server))
        events = client.stream(question())
        assert isinstance(await anext(events), Retrying)
        task = asyncio.ensure_future(anext(events))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(server.requests) == 1
        await client.aclose()


def test_importing_the_client_loads_neither_sdk_nor_http_nor_formats() -> None:
    heavy = "{'openai', 'httpx2', 'textual', 'chatops.dialects'}"
    code = f"import sys, chatops.models.client as c; assert not {heavy} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
