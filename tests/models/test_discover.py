"""What `chatops connect URL` and `chatops models list` ask servers."""

import socket

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.model import FailureKind
from chatops.models.discover import KeyRefused, list_models, probe
from chatops.policy.registry import HostType, KeySource
from tests.models.asking import KEY, ask, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, error


async def test_list_models() -> None:
    async with FakeOpenAI(models=("a", "b\x1b[2J"), api_key=KEY) as server:
        assert await list_models(spec_for(server, key=KeySource(literal=KEY))) == ["a", "b [2J"]


@pytest.mark.parametrize(
    ("given", "prefix", "host_type"),
    [
        ("", "/v1", HostType.OPENAI),
        ("/v1", "/v1", HostType.OPENAI),
        ("/v1/chat/completions", "/v1", HostType.OPENAI),
        ("", "/api", HostType.OPENWEBUI),
        ("/api", "/api", HostType.OPENWEBUI),
        ("/deep/path", "/deep/path/v1", HostType.OPENAI),
    ],
)
async def test_probe_finds_the_base_path(given: str, prefix: str, host_type: HostType) -> None:
    async with FakeOpenAI(models=("m1",), prefixes=(prefix,)) as server:
        found = await probe(server.root + given, KEY)
        assert found == (host_type, server.root + prefix, ["m1"])
        assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.others)


async def test_a_refused_key_is_said_as_such() -> None:
    async with FakeOpenAI(api_key="right") as server:
        with pytest.raises(ChatopsError, match="refuses the key") as caught:
            await probe(server.url, KEY)
    assert KEY not in str(caught.value) + caught.value.advice
    assert "registry" not in caught.value.advice, "a server that is only being tried is in no registry yet"


async def test_a_server_that_wants_a_key_says_how_to_give_one() -> None:
    async with FakeOpenAI(api_key="right") as server:
        with pytest.raises(ChatopsError, match=r"wants a key \(401\)") as caught:
            await probe(server.url)
    assert "--key-env" in caught.value.advice


PAGE = Raw(content_type="text/html", steps=(b"<!doctype html><title>Open WebUI</title>",))


@pytest.mark.parametrize("host_type", [None, HostType.OPENWEBUI])
@pytest.mark.parametrize(("key", "said"), [("", "wants a key"), ("wrong", "refuses the key")])
@pytest.mark.parametrize("status", [401, 403])
async def test_open_webui_asks_for_a_key_behind_its_web_page(
    status: int, key: str, said: str, host_type: HostType | None
) -> None:
    refusal = error(status, "Not authenticated")
    async with FakeOpenAI(pages={"/v1/models": PAGE, "/api/models": refusal}) as server:
        with pytest.raises(KeyRefused, match=rf"{said} \({status}\)"):
            await probe(server.root, key, host_type=host_type)
        asked = [request.path for request in server.others]
    assert asked == (["/v1/models", "/api/models"] if host_type is None else ["/api/models"])


async def test_a_named_host_type_counts() -> None:
    async with FakeOpenAI(models=("m1",)) as server:
        found = await probe(f"{server.root}/v1", KEY, host_type=HostType.OPENWEBUI)
    assert found == (HostType.OPENWEBUI, f"{server.root}/api", ["m1"])


NO_DATABASE = Raw(
    status=400,
    content_type="application/json",
    steps=(b'{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}',),
)


async def test_litellm_without_a_database_refuses_a_key_with_400() -> None:
    async with FakeOpenAI(lambda _: NO_DATABASE, models_reply=NO_DATABASE) as server:
        with pytest.raises(KeyRefused, match=r"refuses the key \(400\)"):
            await probe(server.root, "wrong")
        with pytest.raises(KeyRefused):
            await list_models(spec_for(server, key=KeySource(literal=KEY)))
        assert (await ask(server)).failure.kind is FailureKind.UNAUTHORIZED


async def test_litellm_names_its_models_for_one_that_it_does_not_have() -> None:
    message = "/chat/completions: Invalid model name passed in model=fake-modell. Call `/v1/models` to view available"
    async with FakeOpenAI(lambda _: error(400, message), models=("fake-model", "other")) as server:
        failure = (await ask(server, model_name="fake-modell")).failure
    assert failure.kind is FailureKind.NOT_FOUND
    assert "known: fake-model, other" in failure.message


async def test_nobody_there() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        with pytest.raises(ChatopsError, match="Nothing listens at"):
            await probe(f"http://127.0.0.1:{held.getsockname()[1]}")


async def test_a_web_page_is_no_api() -> None:
    page = Raw(content_type="text/html", steps=(b"<html><body>hello</body></html>",))
    async with FakeOpenAI(models_reply=page) as server:
        with pytest.raises(ChatopsError, match="sent a web page"):
            await probe(server.root)


async def test_nothing_that_lists_models() -> None:
    async with FakeOpenAI(prefixes=()) as server:
        with pytest.raises(ChatopsError, match="no list of models"):
            await probe(server.root)


async def test_no_web_address() -> None:
    with pytest.raises(ChatopsError, match="not a web address"):
        await probe("gopher://x")
