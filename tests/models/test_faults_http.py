"""Fault list A: connection and status. Each case goes over a real socket, and the next question still works."""

import json
import socket
from dataclasses import dataclass, field

import pytest

from chatops.domain.errors import NotSavedError
from chatops.domain.model import FailureKind, ToolChoice
from chatops.models import failures
from chatops.models.client import RegistryClient
from chatops.models.memory import InMemoryTextStore
from chatops.policy.registry import Timeouts
from tests.models.asking import KEY, ask, client_for, question, send, spec_for
from tests.support.fake_openai import Close, FakeOpenAI, Pause, Raw, Reply, error, says

pytestmark = pytest.mark.fault(*(f"A{n:02}" for n in range(1, 23) if n != 14))

HTML = b"<!DOCTYPE html><html><head><title>502 Bad Gateway</title></head><body><h1>\x1b[31mnginx</h1></body></html>"


def page(status: int, body: bytes = HTML) -> Raw:
    return Raw(status=status, content_type="text/html", steps=(body,))


def as_json(status: int, value: object) -> Raw:
    return Raw(status=status, content_type="application/json", steps=(json.dumps(value).encode(),))


@dataclass(frozen=True, kw_only=True)
class Case:
    id: str
    reply: Reply
    kind: FailureKind
    says: tuple[str, ...]
    advises: str = ""
    requests: int = 1
    never: tuple[str, ...] = field(default=())


CASES = [
    Case(
        id="A02-retry-after-an-hour",
        reply=error(429, "slow down", headers=(("Retry-After", "3600"),)),
        kind=FailureKind.RATE_LIMITED,
        says=("1 h",),
        advises="ry again",
    ),
    Case(
        id="A03-insufficient-quota",
        reply=error(429, "You exceeded your current quota.", code="insufficient_quota"),
        kind=FailureKind.QUOTA,
        says=("quota", "used up"),
    ),
    Case(
        id="A04-500-json",
        reply=error(500, "the model crashed"),
        kind=FailureKind.SERVER_ERROR,
        says=("500 from 127.0.0.1", "the model crashed"),
        requests=3,
    ),
    Case(
        id="A05-502-html",
        reply=page(502),
        kind=FailureKind.SERVER_ERROR,
        says=("502 from 127.0.0.1", "502 Bad Gateway"),
        requests=3,
        never=("<", "\x1b"),
    ),
    Case(
        id="A05-503-html-without-a-title",
        reply=page(503, b"<html><body><p>No <b>room</b></p></body></html>"),
        kind=FailureKind.SERVER_ERROR,
        says=("503 from 127.0.0.1", "No"),
        requests=3,
        never=("<",),
    ),
    Case(
        id="A06-401",
        reply=error(401, f"Incorrect API key provided: {KEY[:6]}****{KEY[-4:]}"),
        kind=FailureKind.UNAUTHORIZED,
        says=("refuses the key", "127.0.0.1"),
        advises="THE_KEY",
    ),
    Case(
        id="A07-403",
        reply=error(403, f"{KEY} may not use this model"),
        kind=FailureKind.UNAUTHORIZED,
        says=("does not allow", "may not use this model"),
    ),
    Case(
        id="A08-404-model",
        reply=error(404, "model not found"),
        kind=FailureKind.NOT_FOUND,
        says=("'fake-model' is unknown", "other-model"),
    ),
    *(
        Case(
            id=f"A09-too-long-{number}",
            reply=error(400, message, code=code),
            kind=FailureKind.CONTEXT_TOO_LONG,
            says=("longer than", message[:20], "tokens were sent"),
            advises="new session",
        )
        for number, (message, code) in enumerate(
            [
                ("This model's maximum context length is 8192 tokens, you sent 9000.", "context_length_exceeded"),
                ("the request exceeds the available context size (n_ctx=4096)", ""),
                ("prompt is too long: 210000 tokens > 200000 maximum", ""),
                ("too many tokens in the prompt", ""),
            ]
        )
    ),
    Case(
        id="A11-413",
        reply=page(413, b"Request Entity Too Large"),
        kind=FailureKind.REFUSED,
        says=("413", "Request Entity Too Large"),
    ),
    Case(
        id="A11-422",
        reply=as_json(422, {"detail": [{"loc": ["body", "messages", 0], "msg": "Input should be valid"}]}),
        kind=FailureKind.REFUSED,
        says=("422", "messages.0: Input should be valid"),
    ),
    Case(
        id="A16-closed-before-headers",
        reply=Raw(bare=True, steps=(Close(),)),
        kind=FailureKind.BROKEN_STREAM,
        says=("closed the connection without an answer",),
        requests=3,
    ),
    Case(
        id="A16-something-else-than-http",
        reply=Raw(bare=True, steps=(b"220 mail.example.org ESMTP\r\n\r\n",)),
        kind=FailureKind.BROKEN_STREAM,
        says=("does not answer in valid HTTP",),
        requests=3,
    ),
    Case(
        id="A17-redirect",
        reply=Raw(status=307, headers=(("Location", "http://198.51.100.7/v1/chat/completions?token=x"),)),
        kind=FailureKind.REFUSED,
        says=("redirects to http://198.51.100.7/v1/chat/completions", "key was not sent"),
        never=("token=x",),
    ),
    Case(
        id="A19-200-html",
        reply=page(200, b"\n <html><body>Please log in to the hotel</body></html>"),
        kind=FailureKind.BROKEN_STREAM,
        says=("web page", "Please log in"),
        advises="/v1",
    ),
    Case(
        id="A20-200-json-error",
        reply=as_json(200, {"error": {"message": "engine is asleep"}}),
        kind=FailureKind.SERVER_ERROR,
        says=("engine is asleep",),
    ),
    Case(
        id="A20-200-json-of-something-else",
        reply=as_json(200, {"hello": "world"}),
        kind=FailureKind.BROKEN_STREAM,
        says=("not a reply",),
    ),
    Case(id="A20-200-empty", reply=Raw(), kind=FailureKind.BROKEN_STREAM, says=("did not send a reply",)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
async def test_failure(case: Case) -> None:
    healthy: list[bool] = []
    async with FakeOpenAI(
        lambda _: says("well again") if healthy else case.reply, models=("other-model", "fake-model-2")
    ) as server:
        client = client_for(spec_for(server, api_key_env="THE_KEY"), environ={"THE_KEY": KEY})
        events = await send(client)
        assert len(server.requests) == case.requests
        assert len(events.retries) == case.requests - 1
        healthy.append(True)
        assert (await send(client)).reply.text == "well again"
        await client.aclose()
    failure = events.failure
    assert failure.kind is case.kind
    for words in case.says:
        assert words in failure.message
    assert case.advises in failure.advice
    assert failure.advice
    for words in (KEY, KEY[-4:], "Traceback", *case.never):
        assert words not in failure.message + failure.advice


async def test_a01_retry_after_is_honoured_and_shown() -> None:
    async with FakeOpenAI([error(429, "slow", headers=(("Retry-After", "0.01"),)), says("there")]) as server:
        events = await ask(server)
    (retry,) = events.retries
    assert (retry.attempt, retry.attempts, retry.delay_s) == (2, 3, 0.01)
    assert "limits the rate" in retry.reason
    assert events.reply.text == "there"


@pytest.mark.parametrize("field", ["stream_options", "temperature"])
async def test_a10_refused_field_is_dropped_once_and_remembered(field: str) -> None:
    refusal = error(400, f"Unknown parameter: '{field}'.")
    store = InMemoryTextStore()

    def reply(request: object) -> Reply:
        return refusal if field in server.requests[-1].body else says("fine")

    async with FakeOpenAI(reply) as server:
        spec = spec_for(server, temperature=0.1)
        for expected, notices in ((2, 1), (3, 0)):
            client = RegistryClient({"test": spec}.get, remembered=store, environ={})
            events = await send(client)
            await client.aclose()
            assert events.reply.text == "fine"
            assert len(server.requests) == expected
            assert len(events.notices) == notices


async def test_a_model_answers_although_what_is_remembered_about_it_cannot_be_read() -> None:
    class Away(InMemoryTextStore):
        def get(self, key: str) -> str | None:
            raise NotSavedError("The database cannot be reached.")

    async with FakeOpenAI([says("fine")]) as server:
        client = RegistryClient({"test": spec_for(server)}.get, remembered=Away(), environ={})
        events = await send(client)
        await client.aclose()
    assert events.reply.text == "fine"


async def test_a10_a_refused_tool_choice_is_sent_again_after_the_next_start() -> None:
    store = InMemoryTextStore()

    def reply(_: object) -> Reply:
        refusal = error(400, "Unknown parameter: 'tool_choice'.")
        return refusal if "tool_choice" in server.requests[-1].body else says("fine")

    async with FakeOpenAI(reply) as server:
        for expected in (2, 4):
            client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
            events = await send(client, question(tool_choice=ToolChoice.NONE))
            await client.aclose()
            assert events.reply.text == "fine"
            assert len(server.requests) == expected
            assert len(events.notices) == 1


async def test_a10_what_reasoning_models_refuse_at_the_end_of_a_sentence_is_no_field_of_that_name() -> None:
    async with FakeOpenAI([error(400, "Reasoning models do not support temperature."), says("ok")]) as server:
        events = await ask(server, temperature=0.1)
        assert "temperature" not in server.requests[1].body
    assert events.reply.text == "ok"


async def test_a10_with_the_native_format_tools_are_left_out_and_offered_again_at_the_next_start() -> None:
    store = InMemoryTextStore()

    def reply(_: object) -> Reply:
        return error(400, "this model does not support tools") if "tools" in server.requests[-1].body else says("ok")

    async with FakeOpenAI(reply) as server:
        for expected in (2, 5):
            spec = spec_for(server, tool_format="native")
            client = RegistryClient({"test": spec}.get, remembered=store, environ={})
            events = await send(client)
            assert "does not accept tools" in events.notices[0] and '"tool_format": "auto"' in events.notices[0]
            assert len(server.requests) == expected
            assert (await send(client)).notices == []
            await client.aclose()
        assert ["tools" in request.body for request in server.requests] == [True, False, False] * 2
        assert all("<tools>" not in request.system for request in server.requests)


async def test_a10_no_loop_when_the_server_keeps_refusing() -> None:
    async with FakeOpenAI(lambda _: error(400, "Unknown parameter: 'tools'.")) as server:
        events = await ask(server)
        assert len(server.requests) == 2
        assert "tools" not in server.requests[1].body
    assert events.failure.kind is FailureKind.REFUSED
    assert len(events.notices) == 1


async def test_a10_the_other_name_of_the_token_limit() -> None:
    message = (
        "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead."
    )
    async with FakeOpenAI([error(400, message), says("ok")]) as server:
        events = await ask(server, max_output_tokens=99)
        assert server.requests[0].body["max_tokens"] == 99
        assert server.requests[1].body["max_completion_tokens"] == 99
        assert "max_tokens" not in server.requests[1].body
    assert events.reply.text == "ok"


async def test_a12_connection_refused() -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        async with FakeOpenAI() as server:
            events = await ask(server, api_url=f"http://127.0.0.1:{port}/v1")
    assert events.failure.kind is FailureKind.UNREACHABLE
    assert f"Nothing listens at 127.0.0.1:{port}" in events.failure.message
    assert not events.retries


async def test_a13_unknown_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with FakeOpenAI() as server:
        events = await ask(server, api_url="http://no-such-host.invalid/v1")
    assert events.failure.kind is FailureKind.UNREACHABLE
    assert "no-such-host.invalid is unknown" in events.failure.message


async def test_a15_plain_http_where_tls_is_expected() -> None:
    async with FakeOpenAI() as server:
        url = server.url.replace("http://", "https://")
        events = await ask(server, api_url=url, timeout_s=Timeouts(connect=0.3))
        assert not server.requests
    assert events.failure.kind is FailureKind.UNREACHABLE
    assert events.failure.message.endswith("accepted the connection and did not answer in TLS within 0.3 s.")
    assert "http://" in events.failure.advice


async def test_a18_loopback_bypasses_a_broken_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "ALL_PROXY", "http_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with FakeOpenAI([says("direct")]) as server:
        assert (await ask(server)).reply.text == "direct"


async def test_a18_a_dead_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://user:secret@127.0.0.1:9")
    async with FakeOpenAI() as server:
        events = await ask(server, api_url="http://models.example.org/v1")
    assert "proxy 127.0.0.1:9" in events.failure.message
    assert "secret" not in events.failure.message


async def test_a21_a_whole_completion_is_used() -> None:
    whole = {
        "model": "fake-model",
        "choices": [{"message": {"role": "assistant", "content": "whole"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1},
    }
    async with FakeOpenAI([as_json(200, whole)]) as server:
        events = await ask(server)
    assert events.text == events.reply.text == "whole"
    assert events.reply.usage is not None
    assert events.reply.usage.input_tokens == 3


@pytest.mark.parametrize("path", ["/wrong/v1", "/v1/chat", "/v1beta"])
async def test_a22_wrong_base_path(path: str) -> None:
    async with FakeOpenAI(prefixes=("/v1",)) as server:
        events = await ask(server, api_url=f"{server.root}{path}")
        # One look at each address that may be meant, beside the list at the one that was written.
        assert len(server.requests) == 0
        assert len(server.others) <= 5
    assert events.failure.kind is FailureKind.NOT_FOUND
    assert events.failure.message.startswith(f"The server has nothing at {server.root}{path} (404).")
    assert events.failure.message.endswith(f"Did you mean {server.url}?")


async def test_a22_a_list_of_models_that_never_ends_holds_up_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(failures, "QUICK_S", 0.2)
    drops = Raw(steps=(b'{"data":[', *(step for _ in range(9_999) for step in (b'{"id":"a"},', Pause(seconds=0.02)))))
    async with FakeOpenAI([error(404, "no such model")], models_reply=drops) as server:
        events = await ask(server)
    assert events.failure.kind is FailureKind.NOT_FOUND
    assert "404" in events.failure.message


async def test_a22_an_open_webui_that_was_called_something_else() -> None:
    async with FakeOpenAI(prefixes=("/api",)) as server:
        events = await ask(server)
    assert events.failure.message.endswith(f"Did you mean {server.root}/api?")
    assert '"host_type": "openwebui"' in events.failure.advice


async def test_a22_nothing_on_that_host_that_may_be_meant() -> None:
    async with FakeOpenAI(prefixes=("/deep/v1",)) as server:
        events = await ask(server)
    assert events.failure.message == f"The server has nothing at {server.url} (404)."
    assert f"chatops connect {server.root}" in events.failure.advice


async def test_credentials_in_an_address_are_not_shown() -> None:
    async with FakeOpenAI() as server:
        events = await ask(server, api_url=f"http://ana:secret@127.0.0.1:{server.port}/wrong/v1?token=secret")
    assert events.failure.kind is FailureKind.NOT_FOUND
    assert "secret" not in events.failure.message + events.failure.advice


@pytest.mark.parametrize(
    ("refusal", "limit"),
    [
        (error(400, "This model's maximum context length is 8192 tokens. You requested 9001 tokens."), 8_192),
        (
            error(400, "request (5000 tokens) exceeds the available context size (4096 tokens), try increasing it"),
            4_096,
        ),
        (error(400, "Requested tokens (5000) exceed context window of 2,048"), 2_048),
        (error(400, "prompt is too long: 210000 tokens > 200000 maximum"), 200_000),
        (
            error(400, "Trying to keep the first 5000 tokens; the model is loaded with context length of only 4096"),
            4_096,
        ),
        (as_json(400, {"error": {"message": "the request exceeds the available context size", "n_ctx": 1024}}), 1_024),
        (error(400, "too many tokens in the prompt"), 0),
    ],
)
async def test_the_limit_that_a_server_names_is_read(refusal: Raw, limit: int) -> None:
    async with FakeOpenAI(lambda _: refusal) as server:
        failure = (await ask(server)).failure
    assert (failure.kind, failure.context_limit) == (FailureKind.CONTEXT_TOO_LONG, limit)
