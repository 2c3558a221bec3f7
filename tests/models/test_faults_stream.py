"""Fault list B: the transport of the stream, over a real socket."""

import asyncio
import gzip
import json
import zlib

import pytest

from chatops.domain.model import FailureKind
from chatops.models.base import Waiting
from chatops.models.response import Pace
from chatops.policy.registry import Timeouts
from tests.models.asking import IMPATIENT, Events, ask, client_for, question, send, spec_for
from tests.support.fake_openai import Close, FakeOpenAI, Hang, Pause, Raw, Reset, Step, delta, says, sse, stream
from tests.support.waiting import PATIENCE

pytestmark = pytest.mark.fault("C05", *(f"B{n:02}" for n in range(1, 22) if n not in {15, 19, 20}))

HALF = sse(delta("first half "), done=False)
END = sse(delta(finish="stop"))


@pytest.mark.parametrize(
    ("steps", "kind", "words"),
    [
        pytest.param((HALF, Pause(seconds=0.05), Reset()), FailureKind.BROKEN_STREAM, "was lost", id="B01-reset"),
        pytest.param((HALF + b"data: {", Close()), FailureKind.BROKEN_STREAM, "closed", id="B02-close-mid-chunk"),
        pytest.param((HALF,), FailureKind.BROKEN_STREAM, "finish mark", id="B03-no-finish"),
        pytest.param((HALF, b"data: [DONE]\n\n"), FailureKind.BROKEN_STREAM, "finish mark", id="C05-finish-null"),
        pytest.param((HALF, Hang()), FailureKind.TIMEOUT, "no further data", id="B05-stall"),
        pytest.param((HALF + b"data: {oops\n\n", END), FailureKind.BROKEN_STREAM, "broken data", id="B07-bad-json"),
        pytest.param(
            (HALF + sse({"error": {"message": "GPU on fire", "type": "server_error"}}),),
            FailureKind.SERVER_ERROR,
            "GPU on fire",
            id="B08-error-object",
        ),
        pytest.param(
            (HALF + b"event: error\ndata: out of \x1bcheese\n\n", END),
            FailureKind.SERVER_ERROR,
            "out of cheese",
            id="B09-error-event",
        ),
        pytest.param((HALF + b'data: "\xff\xfe"\n\n', END), FailureKind.BROKEN_STREAM, "invalid bytes", id="B12-bytes"),
        pytest.param(
            (HALF + sse(delta(tool_calls=[{"index": 0, "function": {"name": "rm", "arguments": '{"p'}}]), done=False),),
            FailureKind.BROKEN_STREAM,
            "call was not run",
            id="B04-cut-in-arguments",
        ),
    ],
)
async def test_a_partial_reply_is_kept_and_not_requested_again(
    steps: tuple[Step, ...], kind: FailureKind, words: str
) -> None:
    async with FakeOpenAI([Raw(steps=steps), says("must not be asked")]) as server:
        idle = 0.15 if kind is FailureKind.TIMEOUT else 60
        events = await ask(server, timeout_s=Timeouts(connect=5, first_token=60, idle=idle))
        assert len(server.requests) == 1
    assert events.failure.kind is kind
    assert words in events.failure.message
    assert events.failure.partial_text == events.text == "first half "
    assert events.failure.advice.startswith("The partial reply is kept. ")
    assert events.failure.started


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(sse(delta("a\u00e9"), delta("\U0001f600b", finish="stop")), id="B10-LF"),
        pytest.param(sse(delta("aé"), delta("😀b", finish="stop")).replace(b"\n", b"\r\n"), id="B10-CRLF"),
        pytest.param(sse(delta("aé"), delta("😀b", finish="stop")).replace(b"\n", b"\r"), id="B10-CR"),
        pytest.param(sse(delta("aé"), delta("😀b", finish="stop")).replace(b"data: ", b"data:"), id="B10-no-space"),
        pytest.param(b"\xef\xbb\xbf" + sse(delta("aé"), delta("😀b", finish="stop")), id="B14-BOM"),
        pytest.param(b": hi\n\n" + sse(delta("aé"), delta("😀b", finish="stop")).rstrip(), id="no-last-empty-line"),
        pytest.param(
            sse(json.dumps(delta("aé😀b", finish="stop"), ensure_ascii=False, indent=1).replace("\n", "\ndata: ")),
            id="multi-line-data",
        ),
        pytest.param(sse(delta("aé\ud83d"), delta("\ude00b", finish="stop")), id="B13-pair-in-two-chunks"),
        pytest.param(sse(delta("aé😀b", finish="stop"), done=False), id="no-DONE"),
        pytest.param(sse(delta("aé😀b", finish="stop")) + sse(delta("late")), id="B16-data-after-DONE"),
    ],
)
@pytest.mark.parametrize("cut", [1, 7, 100_000])
async def test_same_text_however_it_is_spelled_and_cut(body: bytes, cut: int) -> None:
    steps = tuple(body[start : start + cut] for start in range(0, len(body), cut))
    async with FakeOpenAI([Raw(steps=steps)]) as server:
        assert (await ask(server)).reply.text == "aé😀b"


async def test_b13_lone_surrogate_is_replaced() -> None:
    async with FakeOpenAI([stream(delta("x\ud83dy"), delta("z\ud83d", finish="stop"))]) as server:
        reply = (await ask(server)).reply
    assert reply.text == "x\ufffdyz\ufffd"


@pytest.mark.parametrize(
    "sign", [b": PROCESSING\n\n", sse({"choices": [{"index": 0, "delta": {"content": ""}}]}, done=False)]
)
async def test_b06_signs_of_life_do_not_reset_the_clock(sign: bytes) -> None:
    steps = (HALF, *(step for _ in range(100) for step in (sign, Pause(seconds=0.01))))
    async with FakeOpenAI([Raw(steps=steps)]) as server:
        events = await ask(server, timeout_s=Timeouts(connect=5, first_token=60, idle=0.5), pace=IMPATIENT)
    waits = [event for event in events.events if isinstance(event, Waiting)]
    assert any(wait.alive for wait in waits)
    assert events.failure.kind is FailureKind.TIMEOUT


async def test_silence_is_shown_as_such() -> None:
    async with FakeOpenAI([Raw(steps=(Hang(),))]) as server:
        events = await ask(server, timeout_s=Timeouts(connect=1, first_token=0.12, idle=5), pace=IMPATIENT)
    waits = [event for event in events.events if isinstance(event, Waiting)]
    assert waits
    assert not any(wait.alive for wait in waits)
    assert "no first token" in events.failure.message
    assert not events.failure.started
    assert not events.retries


async def test_the_limit_for_the_first_token_is_shorter_than_the_pace_of_waiting() -> None:
    async with FakeOpenAI([Raw(steps=(Hang(),))]) as server, asyncio.timeout(300):
        events = await ask(server, timeout_s=Timeouts(connect=1, first_token=0.2, idle=5), pace=Pace(waiting_s=3_000))
    assert events.failure.kind is FailureKind.TIMEOUT
    assert "timeout_s.first_token" in events.failure.advice


@pytest.mark.some(1)
@pytest.mark.parametrize("field", ["content", "reasoning_content"])
async def test_a_reply_without_an_end_is_stopped(field: str) -> None:
    pieces = (sse(delta(**{field: f"w{number} "}), done=False) for number in range(20_000))
    steps = tuple(step for piece in pieces for step in (piece, Pause(seconds=0.01)))
    async with FakeOpenAI([Raw(steps=steps)]) as server, asyncio.timeout(600):
        events = await ask(server, timeout_s=Timeouts(connect=60, first_token=60, idle=60, total=1.0))
        assert len(server.requests) == 1
    assert events.failure.kind is FailureKind.TIMEOUT
    assert "timeout_s.total" in events.failure.advice
    assert (events.failure.partial_text or events.failure.partial_reasoning).startswith("w0 w1 ")


async def test_b17_small_pieces_and_one_huge_one() -> None:
    words = [f"w{number} " for number in range(3000)]
    huge = "h" * 2_000_000
    chunks = [delta(word) for word in words]
    async with FakeOpenAI([stream(*chunks, delta(huge), delta(finish="stop"))]) as server:
        events = await ask(server)
    assert events.reply.text == "".join(words) + huge
    assert events.text == events.reply.text
    # Faces are told per network read, not per token.
    assert len(events.events) < 1500


async def test_one_event_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.models.assemble.SIZE_LIMIT", 1000)
    async with FakeOpenAI([stream(*[delta("x" * 100)] * 20, delta(finish="stop"))]) as server:
        events = await ask(server)
    assert "more than the largest reply" in events.failure.message


async def test_a_stream_of_more_tokens_than_any_model_writes_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.models.response.REPLY_TOKENS", 1000)
    words = [delta(f"w{number} ") for number in range(1100)]
    async with FakeOpenAI(
        [stream(*words[:900], delta(finish="stop")), Raw(steps=(sse(*words, done=False),))]
    ) as server:
        assert (await ask(server)).reply.text
        events = await ask(server)
    assert "more than 1,000 tokens in one reply; it was stopped" in events.failure.message


async def test_b18_compressed_body_that_is_not() -> None:
    async with FakeOpenAI([Raw(steps=(b"no gzip",), headers=(("content-encoding", "gzip"),))]) as server:
        events = await ask(server)
    assert "compressed" in events.failure.message


async def test_b18_an_encoding_that_was_not_requested() -> None:
    async with FakeOpenAI([Raw(steps=(b"\x0b\x02\x80",), headers=(("content-encoding", "br"),))]) as server:
        events = await ask(server)
        assert "br" not in server.requests[0].headers["accept-encoding"].split(", ")
    assert "compressed its answer as br" in events.failure.message


@pytest.mark.parametrize(
    ("packing", "data"),
    [
        pytest.param("gzip", gzip.compress(sse(delta("packed", finish="stop"))), id="gzip"),
        pytest.param("deflate", zlib.compress(sse(delta("packed", finish="stop"))), id="deflate"),
        pytest.param("identity", sse(delta("packed", finish="stop")), id="identity"),
    ],
)
@pytest.mark.parametrize("cut", [1, 100_000])
async def test_b18_a_packed_stream_is_unpacked(packing: str, data: bytes, cut: int) -> None:
    steps = tuple(data[start : start + cut] for start in range(0, len(data), cut))
    async with FakeOpenAI([Raw(steps=steps, headers=(("content-encoding", packing),))]) as server:
        assert (await ask(server)).reply.text == "packed"


@pytest.mark.parametrize(
    ("length", "words"),
    [
        pytest.param(5000, "closed the connection before the reply was complete", id="too-long"),
        pytest.param(len(HALF), "ended without a finish mark", id="too-short"),
    ],
)
async def test_b18_a_wrong_content_length(length: int, words: str) -> None:
    head = f"HTTP/1.1 200 x\r\ncontent-type: text/event-stream\r\ncontent-length: {length}\r\n\r\n".encode()
    body = HALF if length > len(HALF) else HALF + END
    async with FakeOpenAI([Raw(bare=True, steps=(head + body,)), says("fresh")]) as server:
        client = client_for(spec_for(server))
        events = await send(client)
        assert words in events.failure.message
        assert events.failure.partial_text == "first half "
        # What stood behind the promised length is no part of the next answer.
        assert (await send(client)).reply.text == "fresh"
        await client.aclose()


async def test_b21_stopping_closes_the_connection() -> None:
    async with FakeOpenAI([Raw(steps=(HALF, Hang()))]) as server:
        client = client_for(spec_for(server))
        stream_ = client.stream(question())
        first = await anext(stream_)
        # Nothing more ever comes: whoever waited for it here would wait in vain.
        async with asyncio.timeout(PATIENCE):
            await stream_.aclose()
        assert await server.requests[0].left()
        await client.aclose()
    assert Events(events=(first,)).text == "first half "


async def test_reset_after_the_finish_mark_loses_nothing() -> None:
    whole = sse(delta("all", finish="stop"), done=False)
    async with FakeOpenAI([Raw(steps=(whole, Close()))]) as server:
        assert (await ask(server)).reply.text == "all"


async def test_connections_are_used_again() -> None:
    async with FakeOpenAI([says("one"), says("two"), says("three")]) as server:
        client = client_for(spec_for(server))
        for _ in range(3):
            async for _event in client.stream(question()):
                pass
        await client.aclose()
        assert server.connections == 1
