"""Prices: from the registry, or known for models of public providers."""

import json

from chatops.models.client import RegistryClient
from chatops.models.memory import InMemoryTextStore, memory_of
from chatops.policy.registry import Price
from tests.models.asking import send, spec_for
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, says

OPENAI = {"type": "openai", "api_url": "https://api.openai.com/v1", "model_name": "gpt-5"}


def flags(chatops: CommandLine) -> list[str]:
    models = {
        "public": OPENAI,
        "own": {**OPENAI, "price": {"input": 3, "output": 4}},
        "local": {"api_url": "http://127.0.0.1:9/v1", "model_name": "gpt-5"},
    }
    file = chatops.workspace.parent / "r.json"
    file.write_text(json.dumps({"version": 3, "models": models, "roles": {"assistant": {"primary": "public"}}}))
    return ["--registry", str(file)]


def test_a_price_is_known_by_the_providers_address_and_the_registry_wins(chatops: CommandLine) -> None:
    listed = chatops(*flags(chatops), "models", "prices", "--output-format", "json")
    assert listed.code == 0, listed.err
    found = {one["name"]: one for one in listed.json}
    assert found["public"]["from"] == "genai-prices"
    assert found["public"]["price"]["output"] > found["public"]["price"]["input"] > 0
    assert found["own"] == {
        "name": "own",
        "price": {"input": 3.0, "output": 4.0, "cached_input": None},
        "from": "registry",
    }
    assert found["local"]["price"] is None
    assert "Per million tokens" in chatops(*flags(chatops), "models", "prices").err


async def test_a_known_price_gives_the_cost_of_a_reply() -> None:
    async with FakeOpenAI([says("Hello."), says("Hello.")]) as server:
        spec, store = spec_for(server), InMemoryTextStore()
        memory = memory_of(spec, store)
        assert memory is not None
        client = RegistryClient(lambda _: spec, remembered=store)
        before = (await send(client)).reply.usage
        memory.learn_price(Price(input=1.0, output=10.0, cached_input=0.1))
        usage = (await send(client)).reply.usage
        await client.aclose()
    assert before is not None and before.cost is None
    assert usage is not None
    assert usage.cost == (usage.input_tokens * 1.0 + usage.output_tokens * 10.0) / 1_000_000
