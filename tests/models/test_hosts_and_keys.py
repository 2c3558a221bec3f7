"""Addresses with the base path exactly once; keys that are read safely and never shown."""

import os
import re
import sys
from base64 import b64decode, b64encode
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote, unquote

import pytest

from chatops.domain.errors import ConfigError
from chatops.domain.known_keys import add_known_keys
from chatops.models.hosts import base_url, host_and_port, is_loopback
from chatops.models.keys import NO_KEY, read_key, redact
from chatops.policy.registry import HostType, KeySource, ModelSpec
from tests.models.asking import ask
from tests.support.cases import for_each
from tests.support.fake_openai import FakeOpenAI, Raw, call, calls, delta, error, says, sse, stream


@for_each(
    ("host", "given", "expected"),
    [
        ("openai", "https://api.openai.com", "https://api.openai.com/v1"),
        ("openai", "https://api.openai.com/v1/", "https://api.openai.com/v1"),
        ("openai", "http://h:1/v1/chat/completions", "http://h:1/v1"),
        ("openai", "http://h:1/openai", "http://h:1/openai/v1"),
        ("openai", "https://g.example/v1beta/openai/", "https://g.example/v1beta/openai"),
        ("ollama", "127.0.0.1:11434", "http://127.0.0.1:11434/v1"),
        ("ollama", "localhost:11434/v1", "http://localhost:11434/v1"),
        ("openrouter", "openrouter.ai/api", "https://openrouter.ai/api/v1"),
        ("openrouter", "https://openrouter.ai/api/v1", "https://openrouter.ai/api/v1"),
        ("openwebui", "http://h:3000", "http://h:3000/api"),
        ("openwebui", "http://h:3000/api/", "http://h:3000/api"),
        ("openwebui", "http://h:3000/api/v1", "http://h:3000/api"),
        ("openwebui", "http://h:3000/v1", "http://h:3000/api"),
        ("openwebui", "http://h:3000/api/chat/completions", "http://h:3000/api"),
        ("vllm", "http://[::1]:8000", "http://[::1]:8000/v1"),
    ],
)
def test_base_url(host: str, given: str, expected: str) -> None:
    spec = ModelSpec(name="m", api_url=given, model_name="x", host_type=HostType(host))
    assert base_url(spec) == expected


@for_each("url", ["ftp://h/v1", "http://", "http://h:port/v1", "http://h/v1\nX: y", "http://[::1/v1"])
def test_no_web_address(url: str) -> None:
    with pytest.raises(ConfigError, match="My model"):
        base_url(ModelSpec(name="m", label="My model", api_url=url, model_name="x"))


def test_missing_address_or_model_name_is_named_with_the_model() -> None:
    with pytest.raises(ConfigError, match=r"My model.*api_url"):
        base_url(ModelSpec(name="m", label="My model", model_name="x"))
    with pytest.raises(ConfigError, match=r"My model.*model_name"):
        base_url(ModelSpec(name="m", label="My model", api_url="http://h/v1"))


def test_messages_show_no_credentials_of_an_address() -> None:
    spec = ModelSpec(name="m", api_url="http://ana:secret@h:port/v1?token=secret", model_name="x")
    with pytest.raises(ConfigError, match="h:port") as caught:
        base_url(spec)
    assert "secret" not in str(caught.value)


def test_where_shows_no_credentials() -> None:
    assert host_and_port("https://ana:secret@h.example/v1?key=1") == "h.example:443"


@for_each(
    ("host", "expected"),
    [("localhost", True), ("127.9.9.9", True), ("::1", True), ("x.localhost", True), ("10.0.0.1", False), ("h", False)],
)
def test_loopback(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


async def test_keys_from_everywhere(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("  from-file\n")
    file.chmod(0o600)
    command = (sys.executable, "-c", "print('from-command')")
    assert (await read_key(KeySource(env="K"), environ={"K": "from-env"})).reveal() == "from-env"
    assert (await read_key(KeySource(file=str(file)))).reveal() == "from-file"
    assert (await read_key(KeySource(command=command))).reveal() == "from-command"
    assert (await read_key(KeySource(literal="from-registry"))).reveal() == "from-registry"
    assert (await read_key(KeySource())).reveal() == NO_KEY


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (KeySource(env="NOT_SET_HERE"), "NOT_SET_HERE, which is not set"),
        (KeySource(env="TWO_LINES"), "cannot be a key"),
        (KeySource(file="/no/such/key"), "cannot be read"),
        (KeySource(command=("/no/such/command",)), "cannot be started"),
        (KeySource(command=(sys.executable, "-c", "raise SystemExit(3)")), "status 3"),
        (KeySource(command=(sys.executable, "-c", "pass")), "holds no key"),
        (KeySource(keyring="service/user"), "keyring"),
    ],
)
async def test_unusable_keys_say_what_to_do(source: KeySource, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        await read_key(source, environ={"TWO_LINES": "a\r\nX-Evil: b"})
    assert caught.value.advice


async def test_a_command_that_hangs_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.models.keys.COMMAND_TIMEOUT_S", 0.3)
    # No other run of this test has the same command.
    command = ("sleep", f"3600.{os.getpid()}")
    with pytest.raises(ConfigError, match="did not end"):
        await read_key(KeySource(command=command))
    assert "\0".join((*command, "")).encode() not in [*_running_commands()]


def _running_commands() -> Iterator[bytes]:
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            yield path.read_bytes()


async def test_a_pipe_in_place_of_a_key_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with pytest.raises(ConfigError, match="not a plain file"):
        await read_key(KeySource(file=str(tmp_path / "key")))


async def test_a_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("sk-secret")
    file.chmod(0o640)
    with pytest.raises(ConfigError, match="can be read by others") as caught:
        await read_key(KeySource(file=str(file)))
    assert "chmod 600" in caught.value.advice


async def test_a_key_does_not_show_itself() -> None:
    key = await read_key(KeySource(literal="sk-very-secret"))
    assert "very" not in f"{key} {key!r} {[key]} {key:}"


def test_redact() -> None:
    assert redact("key abcdef123 is bad", "abcdef123") == "key [key] is bad"
    assert "wxyz" not in redact("Incorrect API key provided: sk-ab****wxyz.", "other-key")
    assert redact("none of it", NO_KEY) == "none of it"


LONG_KEY = "8f2c61d0-team/alpha+key?91ab"
SPELLINGS = {
    "plain": LONG_KEY,
    "percent": quote(LONG_KEY, safe=""),
    "hex": LONG_KEY.encode().hex(),
    "base64": b64encode(LONG_KEY.encode()).decode(),
    "bearer": b64encode(f"Bearer {LONG_KEY}".encode()).decode(),
    "basic": b64encode(f"me:{LONG_KEY}".encode()).decode(),
}


def shows(text: str) -> bool:
    """Return True if eight characters of the key can be read out of `text`, in any spelling."""
    words = [text, unquote(text)]
    for word in re.findall(r"[A-Za-z0-9+/=_-]{8,}", text):
        for offset in range(4):
            piece = word[offset:].rstrip("=")
            words.append(b64decode(piece[: len(piece) // 4 * 4], altchars=b"-_").decode("latin-1"))
        words.append(bytes.fromhex(word).decode("latin-1") if re.fullmatch(r"(?:[0-9a-f]{2})+", word) else "")
    return any(LONG_KEY[at : at + 8] in word for word in words for at in range(len(LONG_KEY) - 7))


@pytest.mark.parametrize("spelling", SPELLINGS)
async def test_a_key_in_an_error_is_hidden(spelling: str) -> None:
    assert shows(f"x {SPELLINGS[spelling]} y")
    async with FakeOpenAI(lambda _: error(400, f"bad request with {SPELLINGS[spelling]} in it")) as server:
        failure = (await ask(server, api_key=LONG_KEY)).failure
    assert "[key]" in failure.message and not shows(failure.message), failure.message


async def test_the_key_of_another_model_in_an_error_is_hidden() -> None:
    other = "c41d77ab-other/key+of?another"
    add_known_keys(other)
    async with FakeOpenAI(lambda _: error(400, f"bad request with {other} in it")) as server:
        failure = (await ask(server, api_key=LONG_KEY)).failure
    assert "[key]" in failure.message and other not in failure.message, failure.message


async def test_a_key_is_hidden_where_the_error_was_cut() -> None:
    for before in range(270, 300, 4):
        async with FakeOpenAI([error(400, "x" * before + LONG_KEY)]) as server:
            failure = (await ask(server, api_key=LONG_KEY)).failure
        assert not shows(failure.message), failure.message


@pytest.mark.parametrize("field", ["content", "reasoning_content"])
@pytest.mark.parametrize("spelling", ["plain", "base64"])
async def test_a_key_in_an_answer_is_hidden_however_it_is_cut(spelling: str, field: str) -> None:
    text = f"Your key is {SPELLINGS[spelling]}, keep it."
    for size in (1, 5, 1_000):
        pieces = [delta(**{field: text[at : at + size]}) for at in range(0, len(text), size)]
        async with FakeOpenAI([stream(*pieces, delta("." * (field != "content")), delta(finish="stop"))]) as server:
            events = await ask(server, api_key=LONG_KEY)
        streamed, whole = (
            (events.text, events.reply.text) if field == "content" else (events.reasoning, events.reply.reasoning)
        )
        assert streamed == whole == "Your key is [key], keep it."


async def test_a_key_in_the_arguments_of_a_call_and_in_a_cut_answer_is_hidden() -> None:
    broken = Raw(steps=(sse(delta(f"It is {LONG_KEY} and "), done=False),))
    async with FakeOpenAI([calls(call("file_read", path=LONG_KEY)), broken]) as server:
        called = await ask(server, api_key=LONG_KEY)
        cut = await ask(server, api_key=LONG_KEY)
    assert called.reply.calls[0].arguments == '{"path": "[key]"}'
    assert cut.failure.partial_text == cut.text == "It is [key] and "


async def test_credentials_in_the_address_and_in_headers_are_hidden() -> None:
    held = ("url-password-1", "query-secret-2", "header-secret-3")
    async with FakeOpenAI(lambda _: error(400, f"bad {' '.join(held)}")) as server:
        url = server.url.replace("://", f"://me:{held[0]}@") + f"?version=2024-10-21&api-key={held[1]}"
        failure = (await ask(server, api_url=url, headers=(("x-api-key", held[2]),))).failure
        answer = await ask(server, api_url=url)
    assert failure.message.count("[key]") == 3
    assert not any(secret in f"{failure} {answer.failure}" for secret in held[:2])


@pytest.mark.parametrize("user", ["token-as-user-1", "token-as-user-1:x-oauth-basic"])
async def test_a_token_in_place_of_the_user_name_is_hidden(user: str) -> None:
    async with FakeOpenAI(lambda _: error(400, "bad token-as-user-1")) as server:
        failure = (await ask(server, api_url=server.url.replace("://", f"://{user}@"))).failure
    assert "[key]" in failure.message
    assert "token-as-user-1" not in str(failure)


async def test_a_placeholder_for_no_key_is_not_masked() -> None:
    async with FakeOpenAI(lambda _: says("Run ollama serve.")) as server:
        assert (await ask(server, api_key="ollama")).text == "Run ollama serve."
