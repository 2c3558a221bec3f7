"""While the demo answers, a line offers other models; none is picked silently."""

import asyncio
import socket

import pytest

from chatops.domain.events import Notice, Published
from chatops.wiring.first_session import open_for_tui
from chatops.wiring.stored import Options
from chatops.wiring.upkeep import USUAL_PORTS, offer_text
from tests.support.fake_openai import FakeOpenAI
from tests.wiring.conftest import Bench


async def test_a_server_that_lists_models_is_offered_with_the_command() -> None:
    async with FakeOpenAI([]) as server:
        port = server.port
        line = await offer_text({}, [(port, "Ollama")])
        assert f"Ollama answers at http://127.0.0.1:{port} (chatops connect http://127.0.0.1:{port})" in line
        assert not any("authorization" in request.headers for request in server.others)


async def test_a_silent_port_a_closed_one_and_another_program_are_no_offer() -> None:
    async def page(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b'HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n<p>"data"</p>')
        writer.close()

    website = await asyncio.start_server(page, "127.0.0.1", 0)
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("127.0.0.1", 0)) as closed:
        gone = closed.getsockname()[1]
        closed.close()
        ports = [silent.getsockname()[1], gone, website.sockets[0].getsockname()[1]]
        assert await offer_text({}, [(port, "x") for port in ports]) == ""
    website.close()
    await website.wait_closed()


def test_the_usual_ports_are_looked_at() -> None:
    assert [port for port, _ in USUAL_PORTS] == [11434, 8000, 1234, 8080, 4000]


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({}, ""),
        ({"OPENAI_API_KEY": " "}, ""),
        ({"OPENAI_API_KEY": "sk-very-secret", "OPENAI_MODEL": "m"}, "/model env uses it"),
        ({"OPENAI_API_KEY": "sk-very-secret"}, "OPENAI_MODEL"),
    ],
)
async def test_a_key_is_offered_and_not_shown(environ: dict[str, str], said: str) -> None:
    line = await offer_text(environ, [])
    assert said in line and bool(line) == bool(said)
    assert "very-secret" not in line


async def test_a_key_and_a_server_are_offered_side_by_side() -> None:
    async with FakeOpenAI([]) as server:
        line = await offer_text({"OPENAI_API_KEY": "sk-very-secret"}, [(server.port, "Ollama")])
    assert line.count("The demo answers.") == 1
    assert "OPENAI_API_KEY is set" in line and "Ollama answers" in line


async def opened_with(bench: Bench, server: FakeOpenAI, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[str]]:
    """Return the chat's notices on opening and a moment later."""
    monkeypatch.setattr("chatops.wiring.upkeep.WARM_UP_AFTER_S", 0.0)
    monkeypatch.setattr("chatops.wiring.upkeep.offer_text.__defaults__", (((server.port, "Ollama"),),))
    monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
    opened = await open_for_tui(Options(workspace=bench.workspace), session=None, last=False, pick=False)
    warned: list[str] = []

    def collect(published: Published) -> None:
        if isinstance(published.event, Notice):
            warned.append(published.event.text)

    opened.session.subscribe(collect)
    for task in asyncio.all_tasks():
        if task.get_name() in ("offer models", "warm-up"):
            await task
    await opened.workspace.aclose()
    return "\n".join(opened.notices), warned


async def test_the_chat_offers_while_the_demo_answers(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.write()
    async with FakeOpenAI([]) as server:
        _, warned = await opened_with(bench, server, monkeypatch)
    assert len(warned) == 1
    assert "OPENAI_API_KEY is set" in warned[0] and "Ollama answers" in warned[0]


async def test_a_chat_with_a_model_of_its_own_asks_nobody(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    models = {"m": {"api_url": "http://127.0.0.1:9/v1", "model_name": "m"}}
    bench.write(models=models, roles={"assistant": {"primary": "m"}})
    async with FakeOpenAI([]) as server:
        notices, warned = await opened_with(bench, server, monkeypatch)
        assert server.connections == 0
    assert "OPENAI_API_KEY" not in notices and warned == []


async def test_a_server_that_wants_a_key_first_is_offered_too() -> None:
    async with FakeOpenAI([], api_key="k") as server:
        assert "LiteLLM answers" in await offer_text({}, [(server.port, "LiteLLM")])
