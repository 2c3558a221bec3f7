"""Fault list C: messages and calls in every shape that servers give them, streamed and whole."""

import json
from typing import Any

import pytest

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, UserMessage
from chatops.domain.model import FailureKind
from chatops.domain.tools import RawCall, ToolCall
from chatops.models.assemble import Assembler
from chatops.models.base import TextChunk
from tests.models.asking import ask, client_for, question, send, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, delta, says, sse, stream

pytestmark = pytest.mark.fault("B15", "B20", *(f"C{n:02}" for n in range(1, 31) if n not in {5, 25}))

NO_CHOICES: list[dict[str, Any]] = [{"choices": []}, {"choices": None}, {"id": "x"}]
FINISH = delta(finish="tool_calls")


def piece(**call: Any) -> dict[str, Any]:
    return delta(tool_calls=[call])


def fn(name: str | None = None, arguments: Any = None, **call: Any) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    return {**call, "function": function}


async def calls_of(*chunks: object) -> list[tuple[str, str]]:
    async with FakeOpenAI([stream(*chunks)]) as server:
        return [(call.name, call.arguments) for call in (await ask(server)).reply.calls]


TWO = [("a", '{"x":1}'), ("b", '{"y":2}')]


@pytest.mark.parametrize(
    ("chunks", "expected"),
    [
        pytest.param([*NO_CHOICES, piece(**fn("a", "{}", index=0)), FINISH], [("a", "{}")], id="C01-C02-no-choices"),
        pytest.param(
            [{"choices": [{"index": 0, "delta": None}]}, piece(**fn("a", "{}", index=0)), FINISH],
            [("a", "{}")],
            id="C03-delta-null",
        ),
        pytest.param([piece(**fn("a", "{}", index=0)), delta(finish="stop")], [("a", "{}")], id="C04-finish-stop"),
        pytest.param(
            [
                delta(function_call={"name": "a", "arguments": '{"x"'}),
                delta(function_call={"arguments": ":1}"}),
                FINISH,
            ],
            [("a", '{"x":1}')],
            id="C09-legacy",
        ),
        pytest.param(
            [
                piece(**fn("a", "", index=0, id="1")),
                piece(**fn("b", "", index=1, id="2")),
                piece(**fn(None, '{"x"', index=0)),
                piece(**fn(None, '{"y"', index=1)),
                piece(**fn(None, ":2}", index=1)),
                piece(**fn(None, ":1}", index=0)),
                FINISH,
            ],
            TWO,
            id="C10-interleaved",
        ),
        pytest.param([piece(**fn("a", '{"x":1}')), piece(**fn("b", '{"y":2}')), FINISH], TWO, id="C11-no-index"),
        pytest.param(
            [
                delta(tool_calls=[fn("a", '{"x":1}', index=None, id="1"), fn("b", '{"y":2}', index=None, id="2")]),
                FINISH,
            ],
            TWO,
            id="C11-null-index-in-one-delta",
        ),
        pytest.param(
            [piece(**fn("a", '{"x"', id="1")), piece(**fn(None, ":1}")), piece(**fn("b", '{"y":2}')), FINISH],
            TWO,
            id="C11-fragments-without-index",
        ),
        pytest.param(
            [
                piece(**fn("a", "", index=0, id="1")),
                piece(**fn("b", "", index=0, id="2")),
                piece(**fn(None, '{"x":1}', index=0, id="1")),
                piece(**fn(None, '{"y":2}', index=0, id="2")),
                FINISH,
            ],
            TWO,
            id="C12-both-at-index-0",
        ),
        pytest.param(
            [piece(**fn("a", '{"x":1}', index=0, id="1")), piece(**fn("b", '{"y":2}', index=0, id="2")), FINISH],
            TWO,
            id="C12-one-after-the-other-at-index-0",
        ),
        pytest.param(
            [piece(**fn("a", '{"x":1}', index=0, id="")), piece(**fn("b", '{"y":2}', index=1, id=None)), FINISH],
            TWO,
            id="C13-no-id",
        ),
        pytest.param(
            [piece(**fn("a", '{"x":1}', index=0, id="s")), piece(**fn("b", '{"y":2}', index=1, id="s")), FINISH],
            TWO,
            id="C14-same-id",
        ),
        pytest.param(
            [piece(**fn("a", '{"x":1}', id="s")), piece(**fn("b", '{"y":2}', id="s")), FINISH],
            TWO,
            id="C14-same-id-no-index",
        ),
        pytest.param(
            [piece(**fn("a", '{"x"', index=0)), piece(**fn(None, ":1}", index=0, id="late")), FINISH],
            TWO[:1],
            id="C15-late-id",
        ),
        pytest.param(
            [piece(**fn("a", '{"x"', index=0, id="1")), piece(**fn(None, ":1}", index=0, id="2")), FINISH],
            TWO[:1],
            id="C15-id-changes",
        ),
        pytest.param(
            [piece(**fn("a", '{"x"', index=0, id="1")), piece(**fn("a", ":1}", index=0, id="2")), FINISH],
            TWO[:1],
            id="C15-id-changes-and-name-repeats",
        ),
        pytest.param([piece(**fn("a", {"x": 1}, index="0")), FINISH], [("a", '{"x": 1}')], id="C16-object"),
        pytest.param([piece(**fn("a", "", index=0)), FINISH], [("a", "")], id="C17-empty"),
        pytest.param([piece(**fn("", "{}", index=0, id="1")), FINISH], [("", "{}")], id="C20-no-name"),
        pytest.param(
            [piece(**fn("file_", "", index=0, id="1")), piece(**fn("read", "{}", index=0)), FINISH],
            [("file_read", "{}")],
            id="C20-name-in-pieces",
        ),
        pytest.param(
            [piece(**fn("read", '{"x"', index=0, id="1")), piece(**fn("read", ":1}", index=0, id="1")), FINISH],
            [("read", '{"x":1}')],
            id="C20-name-and-id-repeated",
        ),
        pytest.param(
            [piece(index=0, id="1", type="custom", custom={"name": "sql", "input": "select 1"}), FINISH],
            [("sql", "select 1")],
            id="custom-call",
        ),
        pytest.param([delta(tool_calls=[None, 3, {}]), delta("x"), FINISH], [], id="junk"),
    ],
)
async def test_calls(chunks: list[object], expected: list[tuple[str, str]]) -> None:
    assert await calls_of(*chunks) == expected


async def test_c06_length_cuts_the_last_call_even_if_it_parses() -> None:
    chunks = [piece(**fn("a", "{}", index=0)), piece(**fn("b", "{}", index=1)), delta(finish="length")]
    async with FakeOpenAI([stream(*chunks)]) as server:
        first, last = (await ask(server)).reply.calls
    assert not first.problem
    assert "length limit" in last.problem


async def test_c07_a_filter_inside_a_call_cuts_it_and_leaves_a_whole_one() -> None:
    chunks = [piece(**fn("a", "{}", index=0)), piece(**fn("b", '{"x": "rm', index=1)), delta(finish="content_filter")]
    async with FakeOpenAI([stream(*chunks), stream(chunks[0], chunks[2])]) as server:
        first, last = (await ask(server)).reply.calls
        (whole,) = (await ask(server)).reply.calls
    assert not first.problem and not whole.problem
    assert "filter" in last.problem


async def test_c18_two_objects_in_one() -> None:
    async with FakeOpenAI([stream(piece(**fn("a", '{"x":1} {"x":2}', index=0)), FINISH)]) as server:
        (call,) = (await ask(server)).reply.calls
    assert "two JSON values in a row" in call.problem
    assert call.arguments == '{"x":1} {"x":2}'


@pytest.mark.parametrize(
    ("written", "arguments", "repair"),
    [
        pytest.param('"{\\"x\\": 1}"', '{"x": 1}', "given as a JSON string", id="encoded-twice"),
        pytest.param('"\\"{\\\\\\"x\\\\\\": 1}\\""', '{"x": 1}', "given as a JSON string", id="encoded-three-times"),
        pytest.param('```json\n{"x": 1}\n```', '{"x": 1}', "code fence", id="in-a-fence"),
        pytest.param('{"x": "a\nb"}', '{"x": "a\nb"}', "", id="raw-line-break"),
        pytest.param('{"x": "rm -rf bui', '{"x": "rm -rf bui', "", id="cut-off"),
        pytest.param('```json\n{"x": "rm -rf bui\n```', '```json\n{"x": "rm -rf bui\n```', "", id="cut-off-in-a-fence"),
        pytest.param('"only text"', '"only text"', "", id="a-text"),
        pytest.param("[1]", "[1]", "", id="a-list"),
        pytest.param("```\n" + " " * 100_000, "```\n" + " " * 100_000, "", id="a-fence-without-end"),
    ],
)
async def test_c19_arguments_with_one_possible_meaning_are_repaired_and_the_repair_is_listed(
    written: str, arguments: str, repair: str
) -> None:
    async with FakeOpenAI([stream(piece(**fn("a", written, index=0)), FINISH)]) as server:
        (call,) = (await ask(server)).reply.calls
    assert call.arguments == arguments
    assert repair in "; ".join(call.repairs)
    assert bool(call.repairs) == bool(repair)


async def test_c26_many_calls_all_arrive() -> None:
    assert len(await calls_of(*[piece(**fn(f"t{n}", "{}", index=n)) for n in range(200)], FINISH)) == 200


async def test_c26_a_reply_of_endless_calls_is_stopped() -> None:
    chunks = [delta(tool_calls=[fn(f"t{n}.{m}", "{}") for m in range(50)]) for n in range(30)]
    async with FakeOpenAI([stream(*chunks, FINISH)]) as server:
        events = await ask(server)
    assert "more than the largest reply" in events.failure.message


async def test_c28_one_token_for_ever_can_be_stopped_and_is_stopped_at_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chatops.models.assemble.SIZE_LIMIT", 40_000)
    async with FakeOpenAI(lambda _: stream(*[delta("the ")] * 20_000, done=False)) as server:
        events = await ask(server)
        client = client_for(spec_for(server))
        unfinished = client.stream(question())
        first = await anext(unfinished)
        await unfinished.aclose()
        await client.aclose()
    assert "more than the largest reply" in events.failure.message
    assert events.failure.partial_text == events.text
    assert set(events.text.split()) == {"the"} and len(events.text) >= 39_000
    assert isinstance(first, TextChunk)


@pytest.mark.parametrize(
    ("chunks", "text", "reasoning", "finish"),
    [
        pytest.param([delta("part"), delta(finish="content_filter")], "part", "", "content_filter", id="C07-filter"),
        pytest.param([delta(refusal="I will not."), delta(finish="stop")], "I will not.", "", "refusal", id="C08"),
        pytest.param([delta("hi", role="tool"), delta(finish="stop")], "hi", "", "stop", id="C21-role"),
        pytest.param(
            [
                delta(content=[{"type": "text", "text": "a"}, "b", {"type": "output_text", "text": "c"}]),
                delta(finish="stop"),
            ],
            "abc",
            "",
            "stop",
            id="C22-parts",
        ),
        pytest.param([delta(reasoning_content="hm"), delta("x", finish="stop")], "x", "hm", "stop", id="C23-content"),
        pytest.param(
            [delta(reasoning="hm", reasoning_content="hm"), delta("x", finish="stop")],
            "x",
            "hm",
            "stop",
            id="C23-twice",
        ),
        pytest.param(
            [delta(" <th"), delta("ink>h"), delta("m</thi"), delta("nk>\n\nx `<think>`"), delta(finish="stop")],
            "x `<think>`",
            "hm",
            "stop",
            id="C23-think",
        ),
        pytest.param(
            [delta("see `<think>x</think>`"), delta(finish="stop")], "see `<think>x</think>`", "", "stop", id="C23-not"
        ),
        pytest.param(
            [delta("<thinking is hard"), delta(finish="stop")], "<thinking is hard", "", "stop", id="C23-nearly"
        ),
        pytest.param([delta("<"), delta(finish="stop")], "<", "", "stop", id="C23-held"),
        pytest.param(
            [
                {"choices": [{"index": 0, "delta": {"content": "A"}}, {"index": 1, "delta": {"content": "B"}}]},
                {"choices": [{"index": 1, "delta": {"content": "B"}, "finish_reason": "length"}]},
                {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
            ],
            "A",
            "",
            "stop",
            id="B20-n-2",
        ),
        pytest.param([delta("\x00\x1b[2J\x9b"), delta(finish="stop")], "\x00\x1b[2J\x9b", "", "stop", id="B15-as-sent"),
    ],
)
async def test_text(chunks: list[object], text: str, reasoning: str, finish: str) -> None:
    async with FakeOpenAI([stream(*chunks)]) as server:
        events = await ask(server)
    assert (events.text, events.reasoning) == (text, reasoning)
    assert (events.reply.text, events.reply.reasoning, events.reply.finish_reason) == (text, reasoning, finish)


async def test_c23_calls_written_inside_reasoning_are_not_calls() -> None:
    thought = '<think><tool_call>{"name":"rm"}</tool_call></think>no'
    async with FakeOpenAI([stream(delta(thought), delta(finish="stop"))]) as server:
        reply = (await ask(server)).reply
    assert (reply.calls, reply.text) == ((), "no")


async def test_an_integer_of_thousands_of_digits_is_no_count_and_no_broken_reply() -> None:
    usage = '{"prompt_tokens": ' + "9" * 6_000 + ', "completion_tokens": -' + "9" * 6_000 + "}"
    last = json.dumps({**delta(finish="stop"), "usage": None}).replace('"usage": null', f'"usage": {usage}')
    async with FakeOpenAI([Raw(steps=(sse(delta("fine"), last),))]) as server:
        reply = (await ask(server)).reply
    assert (reply.text, reply.usage) == ("fine", None)


@pytest.mark.parametrize(
    ("usages", "expected"),
    [
        pytest.param([], None, id="C24-missing"),
        pytest.param([{"prompt_tokens": 0, "completion_tokens": 0}], None, id="C24-zeros"),
        pytest.param(
            [{"prompt_tokens": 5, "completion_tokens": n} for n in (1, 2, 3)],
            (5, 3, 0),
            id="C24-cumulative-last-counts",
        ),
        pytest.param(
            [{"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 4}}, None],
            (5, 9, 4),
            id="C24-reasoning",
        ),
        pytest.param([{"prompt_tokens": "many", "completion_tokens": None}], None, id="C24-junk"),
    ],
)
async def test_usage(usages: list[Any], expected: tuple[int, int, int] | None) -> None:
    chunks = [{**delta("x"), "usage": usage} for usage in usages] or [delta("x")]
    async with FakeOpenAI([stream(*chunks, delta(finish="stop"))]) as server:
        usage = (await ask(server)).reply.usage
    assert (usage and (usage.input_tokens, usage.output_tokens, usage.reasoning_tokens)) == expected


@pytest.mark.parametrize(
    ("chunks", "words"),
    [
        pytest.param([delta(finish="content_filter")], "filter", id="C27-filter"),
        pytest.param([delta(finish="length")], "used all its tokens", id="C27-length"),
    ],
)
async def test_c27_empty(chunks: list[object], words: str) -> None:
    async with FakeOpenAI([stream(*chunks)]) as server:
        events = await ask(server)
        assert len(server.requests) == 1
    assert events.failure.kind in (FailureKind.REFUSED, FailureKind.OUT_OF_TOKENS)
    assert words in events.failure.message


@pytest.mark.parametrize("reasoning", ["", "hm"])
async def test_c27_an_empty_reply_is_the_turns_matter(reasoning: str) -> None:
    async with FakeOpenAI([stream(delta(reasoning=reasoning), delta(finish="stop"))]) as server:
        events = await ask(server)
    assert events.reply.text == ""
    assert events.reply.reasoning == reasoning


async def test_c29_another_model_answers_and_one_notice_says_so() -> None:
    chunk = {**delta("x", finish="stop"), "model": "cheap-one"}
    async with FakeOpenAI(lambda _: stream(chunk)) as server:
        client = client_for(spec_for(server))
        first, second = await send(client), await send(client)
        await client.aclose()
    assert "cheap-one" in first.notices[0]
    assert second.notices == []


async def test_c30_a_call_without_a_result_is_answered_before_anything_is_sent() -> None:
    asked = AssistantMessage(
        id=MessageId("m2"),
        text="",
        calls=tuple(ToolCall(id=CallId(f"c{n}"), name="a", arguments='{"x": "rm', provider_id="same") for n in (1, 2)),
    )
    history = (UserMessage(id=MessageId("m1"), text="hi"), asked, UserMessage(id=MessageId("m3"), text="still there?"))
    async with FakeOpenAI([says("yes")]) as server:
        assert (await ask(server, request=question(*history))).reply.text == "yes"
        assert server.violations == []
        sent = server.requests[0].messages[2]["tool_calls"]
        assert len(server.requests[0].tool_results) == len({call["id"] for call in sent}) == 2
        assert all(isinstance(json.loads(call["function"]["arguments"]), dict) for call in sent)


async def test_whole_message_with_calls_that_have_no_index() -> None:
    message = {"content": None, "tool_calls": [fn("a", {"x": 1}, id="s"), fn("a", {"x": 2}, id="s")]}
    body = {"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    raw = Raw(content_type="application/json", steps=(json.dumps(body).encode(),))
    async with FakeOpenAI([raw]) as server:
        reply = (await ask(server, stream=False)).reply
    assert [call.arguments for call in reply.calls] == ['{"x": 1}', '{"x": 2}']


def test_every_call_keeps_the_providers_id() -> None:
    assembler = Assembler()
    assembler.add(piece(**fn("a", "{}", index=0, id="call_9")))
    assert assembler.reply().calls == (RawCall(name="a", arguments="{}", provider_id="call_9"),)
