"""llama.cpp's server with SmolLM2-135M-Instruct, a real model, which answers and calls no tool by itself.

Under a grammar it writes real tool calls as text. Seen with this server, and met by these tests: it names its context
window under ``meta.n_ctx``; with a template that knows no tools it drops ``tools`` silently; it refuses ``grammar``
beside ``tools``; a conversation that does not fit is refused with the sizes.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.installed import FOLDER, free_port, python_of, running, weights
from tests.support.command_line import Ran, program

KEY = "key-for-llamacpp"
CALL = r"<tool_call>\n{\"name\": \"file_read\", \"arguments\": {\"path\": \"note.txt\"}}\n</tool_call>"
GRAMMAR = f'root ::= "{CALL}"'
"""GBNF that permits only this call."""

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not weights().exists(), reason=f"{FOLDER} has no weights: python -m tests.servers"),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the running server."""
    port = free_port()
    script = str(Path(__file__).with_name("llamacpp_server.py"))
    log = tmp_path_factory.mktemp("llamacpp") / "log"
    command = [str(python_of("llamacpp")), script, str(weights()), str(port), KEY]
    with running(command, ready=f"http://127.0.0.1:{port}/health", log=log):
        yield f"http://127.0.0.1:{port}"


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    """The key is where the registry says."""
    monkeypatch.setenv("LLAMACPP_KEY", KEY)


def ask(folder: Path, url: str, prompt: str, **model: Any) -> Ran:
    """Run one prompt in a folder with a note."""
    (folder / "note.txt").write_text("The invoice is due on Friday.\n")
    entry = {
        "type": "openai", "host_type": "llamacpp", "api_url": url, "model_name": "smollm2",
        "api_key_env": "LLAMACPP_KEY", "max_output_tokens": 64, "temperature": 0, **model,
    }  # fmt: skip
    role = {"primary": "smol", "tools": ["file_read"], "max_rounds": 2}
    registry = folder / "registry.json"
    registry.write_text(
        json.dumps({"version": 3, "default_role": "r", "models": {"smol": entry}, "roles": {"r": role}})
    )
    return program("--registry", str(registry), "-p", prompt, "--output-format", "json", cwd=folder)


def test_connect_finds_the_model_and_its_context_window(url: str, tmp_path: Path) -> None:
    ran = program("connect", url, "--key-env", "LLAMACPP_KEY", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert "context window 8,192 tokens" in ran.err


def test_a_real_model_answers_although_its_template_knows_no_tools(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "What is the capital of France? One word.")
    assert ran.code == 0, ran.err
    assert "Paris" in ran.json["answer"]
    assert ran.json["usage"]["output_tokens"] > 0


def test_a_text_call_of_a_real_model_is_read_and_run(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "When is the invoice due?", tool_format="hermes", extra_body={"grammar": GRAMMAR})
    first = ran.json["calls"][0]
    assert (first["tool"], first["arguments"], first["outcome"]) == ("file_read", {"path": "note.txt"}, "success")
    assert (ran.code, ran.json["status"]) == (4, "limit")
    assert "due on Friday" in ran.json["answer"]


def test_a_grammar_beside_native_tools_is_refused_in_the_servers_words(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "hello", tool_format="native", extra_body={"grammar": GRAMMAR})
    assert ran.code == 1
    assert "grammar" in ran.err


def test_a_conversation_that_does_not_fit_is_an_error_with_the_next_step(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "word " * 12_000, context_window=100_000)
    assert ran.code == 1
    assert "context" in ran.err


def test_a_wrong_key_is_named_and_not_shown(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMACPP_KEY", "not-the-key")
    ran = ask(tmp_path, url, "hello")
    assert ran.code == 1
    assert "LLAMACPP_KEY" in ran.err
    assert "not-the-key" not in ran.err
