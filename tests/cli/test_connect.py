"""chatops connect: an endpoint's model lands in the user's registry, everything else in there stays."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from chatops.commands import connect
from chatops.config.paths import find_paths, packaged_registry
from tests.support.command_line import CommandLine
from tests.support.fake_openai import FakeOpenAI, Raw, says
from tests.support.terminal import Terminal
from tests.support.waiting import PATIENCE


def as_json(value: object) -> Raw:
    return Raw(content_type="application/json", steps=(json.dumps(value).encode(),))


def test_a_first_connection_writes_a_private_registry_and_is_used(chatops: CommandLine, chatops_home: Path) -> None:
    with FakeOpenAI(lambda request: says("Hello from afar")) as server:
        ran = chatops("connect", server.root, "--model", "fake-model", "--name", "mine")
        assert ran.code == 0, ran.err
        file = chatops_home / "config" / "model_registry.json"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        written = json.loads(file.read_text())
        entry = written["models"].pop("mine")
        assert (entry["model_name"], entry["api_url"]) == ("fake-model", server.url)
        assert written == json.loads(packaged_registry().read_text())
        answered = chatops("-p", "hello", "--output-format", "json")
    assert answered.json["answer"] == "Hello from afar"
    assert answered.json["model"] == "mine"
    assert chatops("registry", "check").code == 0


def test_the_first_line_comes_before_the_modules_are_loaded(chatops_home: Path) -> None:
    words = [sys.executable, "-X", "importtime", "-m", "chatops", "connect", "http://127.0.0.1:9"]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ran.returncode == 1 and ran.stderr.index("Connecting …\n") < ran.stderr.index("chatops.wiring.app\n")


def test_what_the_user_wrote_is_kept(chatops: CommandLine, chatops_home: Path) -> None:
    file = chatops_home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True)
    before = {
        "version": 3,
        "x-note": "ümlaut",
        "default_role": "solo",
        "models": {"old": {"type": "demo", "x-mine": 1}},
        "roles": {"solo": {"tools": []}},
    }
    file.write_text(json.dumps(before, ensure_ascii=False))
    with FakeOpenAI([]) as server:
        assert chatops("connect", server.url, "--model", "fake-model").code == 0
        assert chatops("connect", server.url, "--model", "fake-model").code == 0
    after = json.loads(file.read_text())
    added = {name: entry for name, entry in after["models"].items() if name != "old"}
    assert [entry["model_name"] for entry in added.values()] == ["fake-model"]
    after["models"] = {"old": after["models"]["old"]}
    assert after == before
    assert "ümlaut" in file.read_text()


def test_comments_and_layout_of_the_registry_are_kept(chatops: CommandLine, chatops_home: Path) -> None:
    file = chatops_home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True)
    lines = [
        "{ // mine",
        '  "roles": {"solo": {}}, // "one" is enough: http://127.0.0.1/',
        '  "models": {',
        "    // the old one",
        '    "old": {"type": "demo"}',
        "  }",
        "}",
    ]
    file.write_text("\n".join(lines))
    with FakeOpenAI([]) as server:
        assert chatops("connect", server.url, "--model", "fake-model", "--name", "new").code == 0
        assert chatops("connect", server.url, "--model", "fake-model", "--name", "new").code == 0
    written = file.read_text().splitlines()
    assert [line for line in written if line in lines] == lines
    assert chatops("registry", "check").out.count("warning") == 1
    assert "2 models, 1 role, 0 warnings" in chatops("registry", "check").out


def test_line_ends_and_a_byte_order_mark_are_kept(chatops: CommandLine, chatops_home: Path) -> None:
    file = chatops_home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True)
    before = b'\xef\xbb\xbf{\r\n  // mine\r\n  "roles": {"solo": {}}\r\n}\r\n'
    file.write_bytes(before)
    with FakeOpenAI([]) as server:
        assert chatops("connect", server.url, "--model", "fake-model", "--name", "new").code == 0
    after = file.read_bytes()
    assert after.startswith(before[:4]) and after.endswith(before[4:])
    assert after.count(b"\n") == after.count(b"\r\n") > before.count(b"\r\n")


def test_a_key_is_not_given_to_another_server(chatops: CommandLine, chatops_home: Path) -> None:
    file = chatops_home / "config" / "model_registry.json"
    file.parent.mkdir(parents=True)
    key = str(chatops_home / "key")
    Path(key).write_text("sk-of-the-first-server")
    entry = {
        "model_name": "m",
        "api_key_file": key,
        "headers": {"X-Token": "t"},
        "temperature": 1,
    }
    with FakeOpenAI([]) as first, FakeOpenAI(lambda request: says("hello")) as second:
        file.write_text(json.dumps({"models": {"mine": {**entry, "api_url": first.url}}, "roles": {"solo": {}}}))
        assert chatops("connect", first.url, "--model", "fake-model", "--name", "mine").code == 0
        assert json.loads(file.read_text())["models"]["mine"]["api_key_file"] == key
        assert chatops("connect", second.url, "--model", "fake-model", "--name", "mine").code == 0
        written = json.loads(file.read_text())["models"]["mine"]
        assert written["temperature"] == 1 and not {"api_key_file", "headers"} & set(written)
        assert chatops("-p", "hello").code == 0
    assert all("sk-of-the-first" not in str(request.headers) for request in second.requests)


def test_a_name_that_is_no_text_is_refused(chatops: CommandLine) -> None:
    with FakeOpenAI([]) as server:
        ran = chatops("connect", server.url, "--model", "fake-model", "--name", "n\udcff")
    assert ran.code == 2 and "not valid UTF-8" in ran.err


def test_the_key_stays_in_its_variable(
    chatops: CommandLine, chatops_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "sk-secret-0123456789")
    with FakeOpenAI([]) as server:
        ran = chatops("connect", server.url, "--model", "fake-model", "--key-env", "FAKE_KEY")
    assert ran.code == 0, ran.err
    text = (chatops_home / "config" / "model_registry.json").read_text()
    assert "FAKE_KEY" in text
    assert "sk-secret" not in text + ran.out + ran.err


def test_what_the_server_states_is_written(chatops: CommandLine, chatops_home: Path) -> None:
    model = {"id": "m1", "owned_by": "vllm", "max_model_len": 32_000}
    pages = {"/v1/models": as_json({"data": [model, {"id": "text-embedding-3-small", "owned_by": "vllm"}]})}
    with FakeOpenAI([], pages=pages) as server:
        ran = chatops("connect", server.root, "--name", "mine")
    assert ran.code == 0, ran.err
    assert "context window 32,000 tokens" in ran.err
    entry = json.loads((chatops_home / "config" / "model_registry.json").read_text())["models"]["mine"]
    assert entry == {
        "type": "openai",
        "host_type": "vllm",
        "api_url": server.url,
        "model_name": "m1",
        "context_window": 32_000,
    }
    assert chatops("registry", "check").code == 0


def test_an_embedding_model_is_not_offered_and_may_be_named(chatops: CommandLine) -> None:
    pages = {"/v1/models": as_json({"data": [{"id": "text-embedding-3-small"}]})}
    with FakeOpenAI([], pages=pages) as server:
        offered = chatops("connect", server.root)
        named = chatops("connect", server.root, "--model", "text-embedding-3-small")
    assert (offered.code, named.code) == (1, 0)
    assert "only embedding models" in offered.err


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["http://127.0.0.1:9/v1"], 1, "127.0.0.1:9"),
        (["ftp://example.org"], 2, "not a web address"),
        (["http://user:secret@127.0.0.1:9/v1"], 2, "--key-env"),
        (["http://127.0.0.1:9/v1", "--key-env", "NOT_SET_AT_ALL"], 2, "NOT_SET_AT_ALL is not set"),
    ],
)
def test_what_cannot_be_connected_writes_nothing(
    arguments: list[str], code: int, said: str, chatops: CommandLine, chatops_home: Path
) -> None:
    ran = chatops("connect", *arguments)
    assert ran.code == code, ran.err
    assert said in ran.err
    assert "secret" not in ran.err.replace("may be a secret", "")
    assert not (chatops_home / "config" / "model_registry.json").exists()


def test_an_unknown_model_of_the_endpoint_is_not_written(chatops: CommandLine, chatops_home: Path) -> None:
    with FakeOpenAI([]) as server:
        ran = chatops("connect", server.url, "--model", "no-such-model")
    assert ran.code == 2
    assert "no-such-model" in ran.err
    assert not (chatops_home / "config" / "model_registry.json").exists()


def test_models_list_names_a_refused_key(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_KEY", "right-0123456789")
    with FakeOpenAI([], api_key="right-0123456789") as server:
        assert chatops("connect", server.url, "--key-env", "FAKE_KEY", "--name", "mine").code == 0
        monkeypatch.setenv("FAKE_KEY", "wrong-0123456789")
        ran = chatops("models", "list")
        models = {one["name"]: one for one in chatops("models", "list", "--output-format", "json").json}
    row = next(line for line in ran.out.splitlines() if "mine" in line)
    assert row.endswith("key refused")
    assert models["mine"]["reachable"] is True
    assert "refuses the key" in models["mine"]["status"]


def test_credentials_in_an_address_are_not_shown(chatops: CommandLine, chatops_home: Path) -> None:
    with FakeOpenAI([]) as server:
        url = server.url.replace("://", "://me:pass-word-1234@") + "?api-key=query-secret-5678"
        file = chatops_home / "config" / "model_registry.json"
        file.parent.mkdir(parents=True)
        file.write_text(json.dumps({"version": 3, "models": {"mine": {"api_url": url, "model_name": "gone"}}}))
        listed = chatops("models", "list")
        checked = chatops("doctor")
    assert "does not list gone" in listed.err
    for text in (listed.out, listed.err, checked.out, checked.err):
        assert "pass-word" not in text and "query-secret" not in text


def test_models_list_says_what_answers(chatops: CommandLine) -> None:
    with FakeOpenAI([]) as server:
        chatops("connect", server.url, "--model", "fake-model", "--name", "mine")
        models = {one["name"]: one for one in chatops("models", "list", "--output-format", "json").json}
    assert models["mine"]["reachable"] is True
    assert models["mine"]["default"] is True
    assert models["demo"]["reachable"] is True
    gone = {one["name"]: one for one in chatops("models", "list", "--output-format", "json").json}
    assert gone["mine"]["reachable"] is False


def test_no_two_servers_share_the_file_of_a_key(chatops_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connect, "store_in_keyring", lambda key, *, entry: False)
    servers = ("münchen.example:443", "mänchen.example:443", "a:80", "a_80:80", "[::1]:80", "..:80", "x/../y:80")
    places = [
        Path(str(connect.store_key(server, server=server, paths=find_paths(os.environ))["api_key_file"]))
        for server in servers
    ]
    assert [place.read_text().strip() for place in places] == [*servers]
    assert len({place.parent for place in places}) == 1


def test_words_are_whole_at_the_edge_of_the_terminal(workspace: Path, chatops_home: Path) -> None:
    with FakeOpenAI([]) as server:
        argv = [sys.executable, "-m", "chatops", "connect", server.url, "--model", "fake-model"]
        with Terminal(argv, cwd=workspace, cols=50) as terminal:
            terminal.wait_exit()
            shown = terminal.text().split()
    assert not set("context window unknown (context_window of fake-model in the registry".split()) - set(shown)
