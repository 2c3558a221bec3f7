"""Searching the web over whichever backend a user has set up."""

import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from chatops.domain.errors import ToolFailedError
from chatops.tools.service import DdgsBackend, SearchBackend, brave, choose_backend, search_web_tools, searxng, tavily
from tests.tools.toolkit import SECRET, context_for, done, inspected
from tests.tools.webserver import Server, answer, serving


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    """A server on the loopback."""
    async with serving() as running:
        yield running


def hits(text: str) -> list[dict[str, str]]:
    return [
        {"title": "A\x1b[2J title", "url": "https://example.org/a", text: "Some\n  text"},
        {"title": "bad", "url": "javascript:alert(1)", text: ""},
        {"url": "https://example.org/b"},
    ]


SHOWN = "1. A<U+001B>[2J title\n   https://example.org/a\n   Some text\n\n2. \n   https://example.org/b\n   "


async def searched(backend: SearchBackend, tmp_path: Path) -> str:
    return (await done(search_web_tools(backend)[0], context_for(tmp_path), {"query": "two words"})).content


async def test_searxng(server: Server, tmp_path: Path) -> None:
    server.answers["/s/search"] = answer(json.dumps({"results": hits("content")}), kind="application/json")
    assert await searched(searxng(f"http://127.0.0.1:{server.port}/s/"), tmp_path) == SHOWN
    assert server.asked[0].path == "/s/search?q=two+words&format=json"


async def test_brave(server: Server, tmp_path: Path) -> None:
    found = {"web": {"results": hits("description")}}
    server.answers["/res/v1/web/search"] = answer(json.dumps(found), kind="application/json")
    assert await searched(brave(SECRET, base=f"http://127.0.0.1:{server.port}"), tmp_path) == SHOWN
    assert server.asked[0].headers["x-subscription-token"] == SECRET
    assert SECRET not in server.asked[0].path


async def test_tavily(server: Server, tmp_path: Path) -> None:
    server.answers["/search"] = answer(json.dumps({"results": hits("content")}), kind="application/json")
    assert await searched(tavily(SECRET, base=f"http://127.0.0.1:{server.port}"), tmp_path) == SHOWN
    assert server.asked[0].headers["authorization"] == f"Bearer {SECRET}"
    assert json.loads(server.asked[0].body) == {"query": "two words", "max_results": 8}


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (answer("no", status="401 Unauthorized"), "key is wrong"),
        (answer("no", status="429 Too Many"), "Too many searches"),
        (answer("<html>"), "did not answer with JSON"),
        (answer("x", status="302 Found", more="Location: http://127.0.0.1:9/\r\n"), r"status 302"),
    ],
)
async def test_a_refusal_is_a_sentence_without_the_key(server: Server, tmp_path: Path, reply: bytes, says: str) -> None:
    server.answers["/search"] = reply
    with pytest.raises(ToolFailedError, match=says) as caught:
        await searched(tavily(SECRET, base=f"http://127.0.0.1:{server.port}"), tmp_path)
    assert SECRET not in str(caught.value)
    assert len(server.asked) == 1


async def test_a_server_that_is_not_there(tmp_path: Path, unused_tcp_port: int) -> None:
    with pytest.raises(ToolFailedError, match="could not be reached"):
        await searched(searxng(f"http://127.0.0.1:{unused_tcp_port}"), tmp_path)


@pytest.mark.parametrize("body", ["[]", "{}", '{"results": {"a": 1}}', '{"results": [1, null]}'])
async def test_answers_of_another_shape_are_no_hits(server: Server, tmp_path: Path, body: str) -> None:
    server.answers["/search"] = answer(body, kind="application/json")
    assert await searched(searxng(f"http://127.0.0.1:{server.port}"), tmp_path) == "[no results]"


async def test_the_query_is_bounded_and_the_host_is_a_fact(tmp_path: Path) -> None:
    tool = search_web_tools(brave(SECRET))[0]
    assert tool.spec.asks_after_reading
    facts = await inspected(tool, context_for(tmp_path), {"query": "x"})
    assert facts.hosts == ("api.search.brave.com",)
    assert SECRET not in repr(facts)
    for query in ("", "x" * 401):
        assert (await inspected(tool, context_for(tmp_path), {"query": query})).problems


def test_the_configuration_chooses_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {"CHATOPS_SEARXNG_URL": "http://127.0.0.1:8080", "BRAVE_API_KEY": "b", "TAVILY_API_KEY": "t"}
    assert choose_backend(keys) == searxng("http://127.0.0.1:8080")
    del keys["CHATOPS_SEARXNG_URL"]
    assert choose_backend(keys) == brave("b")
    del keys["BRAVE_API_KEY"]
    assert choose_backend(keys) == tavily("t")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert choose_backend({}) is None
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    assert choose_backend({}) == DdgsBackend()


async def test_a_keyless_search_that_fails_is_told_in_our_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ddgs.py").write_text(
        "class DDGS:\n    def __init__(self, timeout): raise OSError('<Response [202]> https://lib.example/errors')\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "ddgs", raising=False)
    with pytest.raises(ToolFailedError) as failed:
        await searched(DdgsBackend(), tmp_path)
    # Not by monkeypatch, which would put the module back for the tests that follow.
    del sys.modules["ddgs"]
    assert "lib.example" not in str(failed.value) and "chatops doctor" in str(failed.value)
