"""Open WebUI in front of aimock: its endpoint below `/api`, its keys, and its export of chats.

It is large (3 GB), so it is installed only on request: ``python -m tests.servers --open-webui``.
"""

import json
import os
import shutil
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.installed import FOLDER, free_port, module_of, program_of, running
from tests.support.command_line import Ran, program

FIXTURES = [
    {"match": {"userMessage": "read it", "hasToolResult": True}, "response": {"content": "It was read."}},
    {
        "match": {"userMessage": "read it"},
        "response": {"toolCalls": [{"name": "file_read", "arguments": '{"path": "note.txt"}'}]},
    },
    {"match": {"userMessage": "hello"}, "response": {"content": "Hello from the mock."}},
]
QUESTION = {"id": "a", "parentId": None, "childrenIds": ["b"], "role": "user", "content": "When is it due?"}
ANSWER = {"id": "b", "parentId": "a", "childrenIds": [], "role": "assistant", "content": "On Friday.", "model": "gpt-4"}
CHAT = {
    "title": "Invoices",
    "models": ["gpt-4"],
    "history": {"currentId": "b", "messages": {"a": QUESTION, "b": ANSWER}},
    "messages": [],
}

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(
        not program_of("openwebui", "open-webui").exists() or not module_of("@copilotkit/aimock").exists(),
        reason=f"{FOLDER} has no Open WebUI or no aimock: python -m tests.servers --open-webui",
    ),
]


def asked(url: str, path: str, *, token: str = "", body: object = None) -> Any:
    """Send a request as a browser does."""
    request = urllib.request.Request(url + path, data=None if body is None else json.dumps(body).encode())
    request.add_header("Content-Type", "application/json")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The address of the running server, and the token of its only user."""
    folder = tmp_path_factory.mktemp("openwebui")
    (folder / "fixtures").mkdir()
    (folder / "fixtures" / "all.json").write_text(json.dumps({"fixtures": FIXTURES}))
    mock, port = free_port(), free_port()
    aimock = str(module_of("@copilotkit/aimock") / "dist" / "cli.js")
    env = os.environ | {
        "DATA_DIR": str(folder),
        "WEBUI_SECRET_KEY": "0123456789abcdef" * 2,
        "OPENAI_API_BASE_URLS": f"http://127.0.0.1:{mock}/v1",
        "OPENAI_API_KEYS": "k",
        "ENABLE_OLLAMA_API": "false",
        "RAG_EMBEDDING_ENGINE": "openai",
        "OFFLINE_MODE": "true",
        "HF_HUB_OFFLINE": "1",
        "DO_NOT_TRACK": "true",
        "ANONYMIZED_TELEMETRY": "false",
    }
    with (
        running(
            [str(shutil.which("node")), aimock, "-p", str(mock), "-h", "127.0.0.1", "-f", str(folder / "fixtures")],
            ready=f"http://127.0.0.1:{mock}/__aimock/journal",
            log=folder / "aimock.log",
        ),
        running(
            [str(program_of("openwebui", "open-webui")), "serve", "--host", "127.0.0.1", "--port", str(port)],
            ready=f"http://127.0.0.1:{port}/health",
            log=folder / "openwebui.log",
            env=env,
        ),
    ):
        url = f"http://127.0.0.1:{port}"
        person = {"name": "A", "email": "a@example.com", "password": "pass-word-1234"}
        yield url, asked(url, "/api/v1/auths/signup", body=person)["token"]


def ask(folder: Path, url: str, prompt: str) -> Ran:
    """Run one prompt in a folder with a note."""
    (folder / "note.txt").write_text("The invoice is due on Friday.\n")
    model = {"host_type": "openwebui", "api_url": url, "model_name": "gpt-4", "api_key_env": "OPENWEBUI_KEY"}
    roles = {"r": {"primary": "w", "tools": ["file_read"]}}
    registry = folder / "registry.json"
    registry.write_text(json.dumps({"version": 3, "default_role": "r", "models": {"w": model}, "roles": roles}))
    return program("--registry", str(registry), "-p", prompt, "--output-format", "json", cwd=folder)


def test_a_call_comes_through_the_server(
    server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = server
    monkeypatch.setenv("OPENWEBUI_KEY", token)
    ran = ask(tmp_path, url, "please read it")
    assert ran.code == 0, ran.err
    assert (ran.json["answer"], ran.json["calls"][0]["outcome"]) == ("It was read.", "success")


def test_connect_finds_the_endpoint_below_api(
    server: tuple[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, token = server
    monkeypatch.setenv("OPENWEBUI_KEY", token)
    ran = program("connect", url, "--key-env", "OPENWEBUI_KEY", "--model", "gpt-4", cwd=tmp_path)
    assert ran.code == 0, ran.err
    assert f"{url}/api" in ran.out


def test_its_export_is_imported(server: tuple[str, str], tmp_path: Path) -> None:
    url, token = server
    asked(url, "/api/v1/chats/new", token=token, body={"chat": CHAT})
    (tmp_path / "all.json").write_text(json.dumps(asked(url, "/api/v1/chats/all", token=token)))
    ran = program("sessions", "import", "all.json", cwd=tmp_path)
    assert ran.code == 0, ran.err
    shown = program("sessions", "show", ran.out.strip(), "--output-format", "json", cwd=tmp_path).json
    assert shown["title"] == "Invoices"
    assert [one["text"] for one in shown["message_list"]] == ["When is it due?", "On Friday."]
