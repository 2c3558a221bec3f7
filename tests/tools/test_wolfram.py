"""Wolfram|Alpha by its documented wire, answered by a server on the loopback."""

from pathlib import Path

import pytest

from chatops.domain.errors import ToolFailedError
from chatops.tools.catalog import CatalogSettings, builtin_catalog
from chatops.tools.service import wolfram_tools
from tests.tools.toolkit import SECRET, context_for, done, inspected
from tests.tools.webserver import answer, serving

PATH = "/api/v1/llm-api"
ANSWER = 'Query:\n"10 densest elemental metals"\n\nInput interpretation:\n10 densest metallic elements\n'


async def test_the_question_goes_to_the_llm_api_and_the_key_into_a_header(tmp_path: Path) -> None:
    async with serving() as server:
        server.answers[PATH] = answer(f"{ANSWER}appid={SECRET}", kind="text/plain;charset=utf-8")
        (tool,) = wolfram_tools(SECRET, base=f"http://127.0.0.1:{server.port}")
        facts = await inspected(tool, context_for(tmp_path), {"query": "10 densest elemental metals"})
        assert facts.hosts == ("127.0.0.1",)
        result = await done(tool, context_for(tmp_path), {"query": "10 densest elemental metals"})
        assert result.content == f"{ANSWER}appid=[key]"
        (asked,) = server.asked
        assert asked.path == f"{PATH}?input=10+densest+elemental+metals&maxchars=6800"
        assert asked.headers["authorization"] == f"Bearer {SECRET}"


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (answer("Things to try instead:\nmass of Mars", status="501 Not Implemented"), "Things to try instead"),
        (answer(f"Error 1: Invalid appid {SECRET}", status="403 Forbidden"), "refuses the key"),
        (answer("Error", status="400 Bad Request"), "status 400"),
        (answer("x", status="302 Found", more="Location: http://127.0.0.1:9/\r\n"), "status 302"),
        (answer("x" * 3_000_000), "too much"),
    ],
)
async def test_a_refusal_is_a_sentence_without_the_key(tmp_path: Path, reply: bytes, says: str) -> None:
    async with serving() as server:
        server.answers[PATH] = reply
        (tool,) = wolfram_tools(SECRET, base=f"http://127.0.0.1:{server.port}")
        with pytest.raises(ToolFailedError, match=says) as caught:
            await done(tool, context_for(tmp_path), {"query": "mars"})
        assert SECRET not in str(caught.value)
        assert len(server.asked) == 1


def test_it_is_offered_with_a_key_only(tmp_path: Path) -> None:
    without = builtin_catalog(CatalogSettings(scratch_dir=tmp_path))
    assert without.get("wolfram_alpha") is None
    assert "WOLFRAM_APP_ID" in without.absent["wolfram_alpha"]
    with_key = builtin_catalog(CatalogSettings(scratch_dir=tmp_path, environ={"WOLFRAM_APP_ID": "k"}))
    assert with_key.get("wolfram_alpha") is not None
