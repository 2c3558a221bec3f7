"""LiteLLM's proxy in front of aimock: two servers that others wrote, one speaking to the other.

Seen with these servers, and met by these tests: the proxy answers a rate limit of its own as 429; calls that it mocks
end with ``finish_reason: stop``.
"""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.installed import FOLDER, free_port, module_of, program_of, running
from tests.support.command_line import Ran, program

MASTER_KEY = "sk-" + "0123456789abcdef" * 2
FIXTURES = [
    {"match": {"userMessage": "both", "hasToolResult": True}, "response": {"content": "Both were read."}},
    {
        "match": {"userMessage": "both"},
        "response": {
            "blocks": [
                {"type": "text", "text": "Let me look."},
                {"type": "toolCall", "name": "file_read", "arguments": '{"path": "a.txt"}'},
                {"type": "toolCall", "name": "file_read", "arguments": '{"path": "b.txt"}'},
            ]
        },
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello from the mock."}},
]
CALL = {"id": "c", "type": "function", "function": {"name": "file_read", "arguments": '{"path": "a.txt"}'}}

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        not program_of("litellm", "litellm").exists() or not module_of("@copilotkit/aimock").exists(),
        reason=f"{FOLDER} has no litellm or no aimock: python -m tests.servers",
    ),
]


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the proxy."""
    folder = tmp_path_factory.mktemp("litellm")
    (folder / "fixtures").mkdir()
    (folder / "fixtures" / "all.json").write_text(json.dumps({"fixtures": FIXTURES}))
    mock, port = free_port(), free_port()
    aimock = str(module_of("@copilotkit/aimock") / "dist" / "cli.js")
    behind = {"model": "openai/m", "api_base": f"http://127.0.0.1:{mock}/v1", "api_key": "k"}
    models = {
        "behind": behind,
        "limited": {"model": "openai/m", "api_key": "k", "mock_response": "litellm.RateLimitError"},
        "calling": {"model": "openai/m", "api_key": "k", "mock_response": "", "mock_tool_calls": [CALL]},
    }
    listed = [{"model_name": name, "litellm_params": parameters} for name, parameters in models.items()]
    (folder / "config.yaml").write_text(json.dumps({"model_list": listed}))
    env = os.environ | {"LITELLM_MASTER_KEY": MASTER_KEY, "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
    with (
        running(
            [str(shutil.which("node")), aimock, "-p", str(mock), "-h", "127.0.0.1", "-f", str(folder / "fixtures")],
            ready=f"http://127.0.0.1:{mock}/__aimock/journal",
            log=folder / "aimock.log",
        ),
        running(
            [
                *(str(program_of("litellm", "litellm")), "--config", str(folder / "config.yaml")),
                *("--host", "127.0.0.1", "--port", str(port), "--telemetry", "False"),
            ],
            ready=f"http://127.0.0.1:{port}/health/liveliness",
            log=folder / "litellm.log",
            env=env,
        ),
    ):
        yield f"http://127.0.0.1:{port}"


def ask(folder: Path, url: str, prompt: str, *, model: str, **entry: Any) -> Ran:
    """Run one prompt in a folder with two files."""
    for name in ("a.txt", "b.txt"):
        (folder / name).write_text(f"content of {name}\n")
    (folder / "key").write_text(MASTER_KEY)
    (folder / "key").chmod(0o600)
    spec = {
        "type": "openai", "host_type": "litellm", "api_url": url, "model_name": model,
        "api_key_file": str(folder / "key"), **entry,
    }  # fmt: skip
    role = {"primary": "proxy", "tools": ["file_read"]}
    registry = folder / "registry.json"
    registry.write_text(
        json.dumps({"version": 3, "default_role": "r", "models": {"proxy": spec}, "roles": {"r": role}})
    )
    return program("--registry", str(registry), "-p", prompt, "--output-format", "json", cwd=folder)


def test_an_answer_comes_through_the_proxy(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "hello", model="behind")
    assert (ran.code, ran.json["answer"]) == (0, "Hello from the mock."), ran.err


@pytest.mark.parametrize("stream", [True, False])
def test_parallel_calls_come_through_the_proxy(url: str, tmp_path: Path, stream: bool) -> None:
    ran = ask(tmp_path, url, "read both", model="behind", stream=stream)
    assert ran.code == 0, ran.err
    assert [(one["arguments"]["path"], one["outcome"]) for one in ran.json["calls"]] == [
        ("a.txt", "success"),
        ("b.txt", "success"),
    ]
    assert ran.json["answer"] == "Both were read."


def test_calls_that_end_with_stop_are_run(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "x", model="calling", stream=False)
    assert ran.json["calls"][0]["outcome"] == "success"


def test_a_rate_limit_of_the_proxy_is_an_error_with_the_next_step(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "x", model="limited")
    assert ran.code == 1
    assert "429" in ran.err or "rate" in ran.err.lower()


def test_a_model_that_the_proxy_does_not_have_is_named(url: str, tmp_path: Path) -> None:
    ran = ask(tmp_path, url, "x", model="no-such-model")
    assert ran.code == 1
    assert "no-such-model" in ran.err
