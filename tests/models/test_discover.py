"""Requests of `chatops connect URL` and `chatops models list` to servers."""

import json
import socket
from collections.abc import Mapping

import pytest

from chatops.domain.errors import ChatopsError
from chatops.domain.model import FailureKind
from chatops.models.discover import KeyRefusedError, details, list_models, probe
from chatops.policy.registry import HostType, Price
from tests.models.asking import KEY, ask, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, error


async def test_list_models() -> None:
    async with FakeOpenAI(models=("a", "nomic-embed-text", "b\x1b[2J"), api_key=KEY) as server:
        assert await list_models(spec_for(server, api_key=KEY)) == ["a", "b [2J"]
        own = spec_for(server, api_key=KEY, model_name="nomic-embed-text")
        assert "nomic-embed-text" in await list_models(own), "it is there, whatever it is good for"


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
        assert (found.host_type, found.base_url, found.names) == (host_type, server.root + prefix, ["m1"])
        assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.others)


async def test_a_refused_key_is_reported() -> None:
    async with FakeOpenAI(api_key="right") as server:
        with pytest.raises(ChatopsError, match="refuses the key") as caught:
            await probe(server.url, KEY)
    assert KEY not in str(caught.value) + caught.value.advice
    assert "registry" not in caught.value.advice, "a server that is only being tried is in no registry yet"


async def test_a_server_that_requires_a_key_is_reported_with_the_next_step() -> None:
    async with FakeOpenAI(api_key="right") as server:
        with pytest.raises(ChatopsError, match=r"requires a key \(401\)") as caught:
            await probe(server.url)
    assert "--key-env" in caught.value.advice


PAGE = Raw(content_type="text/html", steps=(b"<!doctype html><title>Open WebUI</title>",))


@pytest.mark.parametrize("host_type", [None, HostType.OPENWEBUI])
@pytest.mark.parametrize(("key", "said"), [("", "requires a key"), ("wrong", "refuses the key")])
@pytest.mark.parametrize("status", [401, 403])
async def test_open_webui_asks_for_a_key_behind_its_web_page(
    status: int, key: str, said: str, host_type: HostType | None
) -> None:
    refusal = error(status, "Not authenticated")
    async with FakeOpenAI(pages={"/v1/models": PAGE, "/api/models": refusal}) as server:
        with pytest.raises(KeyRefusedError, match=rf"{said} \({status}\)"):
            await probe(server.root, key, host_type=host_type)
        asked = [request.path for request in server.others]
    assert asked == (["/v1/models", "/api/models"] if host_type is None else ["/api/models"])


async def test_a_named_host_type_counts() -> None:
    async with FakeOpenAI(models=("m1",)) as server:
        found = await probe(f"{server.root}/v1", KEY, host_type=HostType.OPENWEBUI)
    assert (found.host_type, found.base_url) == (HostType.OPENWEBUI, f"{server.root}/api")


def page(value: object) -> Raw:
    return Raw(content_type="application/json", steps=(json.dumps(value).encode(),))


def listing(*models: Mapping[str, object]) -> Raw:
    return page({"object": "list", "data": [{"object": "model", **model} for model in models]})


LITELLM_INFO = page(
    {
        "data": [
            {
                "model_name": "m1",
                "litellm_params": {"model": "openai/gpt-4o"},
                "model_info": {
                    "max_input_tokens": 128_000,
                    "max_output_tokens": 16_384,
                    "input_cost_per_token": 2.5e-06,
                    "output_cost_per_token": 1e-05,
                    "cache_read_input_token_cost": 1.25e-06,
                    "mode": "chat",
                },
            },
            {"model_name": "m1", "litellm_params": {}, "model_info": {"max_input_tokens": 64_000}},
            {"model_name": "e1", "litellm_params": {}, "model_info": {"mode": "embedding"}},
        ]
    }
)
LMSTUDIO = page(
    {
        "data": [
            {
                "id": "m1",
                "type": "llm",
                "state": "loaded",
                "max_context_length": 131_072,
                "loaded_context_length": 8192,
            },
            {"id": "e1", "type": "embeddings", "max_context_length": 2048},
        ]
    }
)
OLLAMA_TAGS = page(
    {"models": [{"name": "m1", "details": {"families": ["qwen3"]}}, {"name": "e1", "details": {"families": ["bert"]}}]}
)
OPENROUTER = listing(
    {
        "id": "m1",
        "context_length": 200_000,
        "top_provider": {"context_length": 160_000, "max_completion_tokens": 64_000},
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"},
        "architecture": {"output_modalities": ["text"]},
    },
    {"id": "e1", "architecture": {"output_modalities": ["embeddings"]}},
)


@pytest.mark.parametrize(
    ("pages", "host_type", "window", "output", "price"),
    [
        pytest.param(
            {"/v1/models": listing({"id": "m1", "owned_by": "llamacpp", "meta": {"n_ctx": 8192, "n_ctx_train": 4096}})},
            HostType.LLAMACPP, 8192, None, None,
            id="llama.cpp",
        ),
        pytest.param(
            {"/v1/models": listing({"id": "m1", "owned_by": "vllm", "max_model_len": 32_000})},
            HostType.VLLM, 32_000, None, None,
            id="vLLM",
        ),
        pytest.param(
            {
                "/v1/models": listing({"id": "m1", "owned_by": "openai"}, {"id": "e1", "owned_by": "openai"}),
                "/v1/model/info": LITELLM_INFO,
            },
            HostType.LITELLM, 64_000, 16_384, Price(input=2.5, output=10.0, cached_input=1.25),
            id="LiteLLM",
        ),
        pytest.param(
            {
                "/v1/models": listing(*({"id": id_, "owned_by": "organization_owner"} for id_ in ("m1", "e1"))),
                "/api/v0/models": LMSTUDIO,
            },
            HostType.LMSTUDIO, 8192, None, None,
            id="LM-Studio",
        ),
        pytest.param(
            {
                "/v1/models": listing(*({"id": id_, "owned_by": "library"} for id_ in ("m1", "e1"))),
                "/api/tags": OLLAMA_TAGS,
                "/api/show": page({"model_info": {"general.architecture": "qwen3", "qwen3.context_length": 40_960}}),
            },
            HostType.OLLAMA, 40_960, None, None,
            id="Ollama",
        ),
        pytest.param(
            {
                "/v1/models": listing({"id": "m1", "owned_by": "library"}),
                "/api/show": page({"parameters": "stop \"x\"\nnum_ctx                        8192", "model_info": {}}),
            },
            HostType.OLLAMA, 8192, None, None,
            id="Ollama-num_ctx",
        ),
        pytest.param(
            {"/v1/models": OPENROUTER},
            HostType.OPENAI, 160_000, 64_000, Price(input=3.0, output=15.0, cached_input=0.3),
            id="OpenRouter-format",
        ),
        pytest.param(
            {"/v1/models": listing({"id": "m1"}, {"id": "nomic-embed-text"})},
            HostType.OPENAI, None, None, None,
            id="ids-only",
        ),
        pytest.param(
            {"/v1/models": listing({"id": "m1", "context_length": "big", "pricing": {"prompt": "-1"}, "meta": []})},
            HostType.OPENAI, None, None, None,
            id="nonsense",
        ),
    ],
)  # fmt: skip
async def test_limits_and_prices_come_from_the_server(
    pages: dict[str, Reply], host_type: HostType, window: int | None, output: int | None, price: Price | None
) -> None:
    async with FakeOpenAI(pages=pages) as server:
        found = await probe(server.root, KEY)
        model = await details(found, "m1", KEY)
        assert all(request.headers["authorization"] == f"Bearer {KEY}" for request in server.others)
    assert (found.host_type, found.names) == (host_type, ["m1"])
    assert (model.context_window, model.max_output_tokens, model.price) == (window, output, price)


async def test_a_limit_of_answers_as_large_as_the_context_is_not_taken() -> None:
    models = listing({"id": "m1", "context_length": 32_768, "top_provider": {"max_completion_tokens": 32_768}})
    async with FakeOpenAI(pages={"/v1/models": models}) as server:
        found = await probe(server.root)
    assert (found.models[0].context_window, found.models[0].max_output_tokens) == (32_768, None)


NO_DATABASE = Raw(
    status=400,
    content_type="application/json",
    steps=(b'{"error":{"message":"No connected db.","type":"no_db_connection","param":null,"code":"400"}}',),
)


async def test_litellm_without_a_database_refuses_a_key_with_400() -> None:
    async with FakeOpenAI(lambda _: NO_DATABASE, models_reply=NO_DATABASE) as server:
        with pytest.raises(KeyRefusedError, match=r"refuses the key \(400\)"):
            await probe(server.root, "wrong")
        with pytest.raises(KeyRefusedError):
            await list_models(spec_for(server, api_key=KEY))
        assert (await ask(server)).failure.kind is FailureKind.UNAUTHORIZED


async def test_litellm_names_its_models_for_one_that_it_does_not_have() -> None:
    message = "/chat/completions: Invalid model name passed in model=fake-modell. Call `/v1/models` to view available"
    async with FakeOpenAI(lambda _: error(400, message), models=("fake-model", "other")) as server:
        failure = (await ask(server, model_name="fake-modell")).failure
    assert failure.kind is FailureKind.NOT_FOUND
    assert "known: fake-model, other" in failure.message


async def test_no_server_is_there() -> None:
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
