"""Calls in the text of a reply, over a real connection: what is shown, what is run, what is only words."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.dialects.families import family_of
from chatops.domain.model import FailureKind, ToolChoice
from chatops.domain.tools import BUILT_IN_TOOLS, RawCall, ToolSpec
from chatops.models.assemble import Assembler
from chatops.models.base import CallChunk, ReasoningChunk, TextChunk
from chatops.models.client import RegistryClient
from chatops.models.memory import InMemoryTextStore
from chatops.models.text_calls import UNSURE, TextToolsBuilder
from tests.models.asking import Events, ask, question, send, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, call, calls, delta, says, sse, stream

pytestmark = pytest.mark.fault("C25")

READ = ToolSpec(
    name="file_read",
    description="Read a file.",
    schema='{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
)
CALL = '<tool_call>\n{"name": "file_read", "arguments": {"path": "a.txt"}}\n</tool_call>'
READS_A = RawCall(name="file_read", arguments='{"path": "a.txt"}')
ASKED = question(tools=(READ,))
END = delta(finish="stop")


def spoken(text: str, *, pieces: int = 7, finish: str = "stop") -> Raw:
    """A reply whose text comes in chunks of so many characters."""
    return stream(*[delta(text[at : at + pieces]) for at in range(0, len(text), pieces)], delta(finish=finish))


async def heard_from(reply: Reply, **changes: Any) -> Events:
    async with FakeOpenAI([reply]) as server:
        return await ask(server, request=changes.pop("request", ASKED), **changes)


@pytest.mark.parametrize("tool_format", ["auto", "hermes", "qwen3_xml"])
@pytest.mark.parametrize("pieces", [1, 5, 1000])
async def test_prose_flows_and_the_call_is_held_back_and_read(tool_format: str, pieces: int) -> None:
    events = await heard_from(spoken(f"<think>Where?</think>I look.\n{CALL}", pieces=pieces), tool_format=tool_format)
    assert events.reply.calls == (READS_A,)
    assert events.text == events.reply.text and events.text.strip() == "I look."
    assert events.reasoning == events.reply.reasoning == "Where?"


@pytest.mark.parametrize("native", [True, False])
async def test_a_call_is_told_to_grow_while_nothing_of_it_is_shown(native: bool) -> None:
    arguments = READS_A.arguments
    function = {"name": READS_A.name, "arguments": arguments}
    chunks = [delta(tool_calls=[{"index": 0, "id": "c", "function": function}]), END]
    events = await heard_from(stream(*chunks) if native else spoken(CALL))
    assert events.reply.calls[0].arguments == arguments and not events.text
    grown = [event.characters for event in events.events if isinstance(event, CallChunk)]
    assert sum(grown) >= len(arguments)
    named = [(event.tool, event.path) for event in events.events if isinstance(event, CallChunk)]
    assert set(named) == {(READS_A.name, "a.txt") if native else ("", "")}


@pytest.mark.parametrize(
    ("written", "path"),
    [
        ('{"path" : "a\\"b.py", "content": "', 'a"b.py'),
        ('{"content": "{\\"path\\": 1}', ""),
        ('{"path": "\\u12", ', ""),
    ],
)
async def test_a_growing_call_is_told_with_the_path_that_it_begins_with(written: str, path: str) -> None:
    fragments = [{"index": 0, "id": "c", "function": {"name": "file_write", "arguments": piece}} for piece in written]
    events = await heard_from(stream(*(delta(tool_calls=[fragment]) for fragment in fragments), END))
    told = [event.path for event in events.events if isinstance(event, CallChunk)]
    assert told[-1] == path and set(told) <= {"", path}


async def test_a_reply_that_is_not_streamed_is_read_too() -> None:
    events = await heard_from(says(f"I look.\n{CALL}"), stream=False)
    assert events.reply.calls == (READS_A,)
    assert events.text.strip() == "I look."


async def test_tools_stay_in_their_field_and_one_notice_says_so() -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI(lambda _: says(CALL)) as server:
        notices: list[str] = []
        for _ in range(2):
            client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
            notices += [text for _ in range(2) for text in (await send(client, ASKED)).notices]
            await client.aclose()
        assert all(request.tool_names == ["file_read"] for request in server.requests)
    (notice,) = notices
    assert "gives the calls of test as text (hermes)" in notice


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"tool_format": "native"}, id="native"),
        pytest.param({"request": question(tools=())}, id="no-tools"),
        pytest.param({"request": question(tools=()), "tool_format": "hermes"}, id="no-tools-prompted"),
    ],
)
async def test_without_an_offer_to_read_call_text_is_text(changes: dict[str, Any]) -> None:
    events = await heard_from(spoken(f"I look.\n{CALL}"), **changes)
    assert events.reply.calls == ()
    assert events.text == events.reply.text == f"I look.\n{CALL}"


@pytest.mark.parametrize("tool_format", ["auto", "hermes"])
async def test_what_may_not_call_is_not_shown_calling(tool_format: str) -> None:
    request = question(tools=(READ,), tool_choice=ToolChoice.NONE)
    events = await heard_from(spoken(f"Here is all.\n{CALL}"), request=request, tool_format=tool_format)
    assert events.reply.calls == ()
    assert events.reply.text.strip() == events.text.strip() == "Here is all."


async def test_native_calls_win_and_the_text_is_plain() -> None:
    chunks = [
        delta(f"I look.\n{CALL}\nThere."),
        delta(tool_calls=[{"index": 0, "function": {"name": "file_read"}}]),
        END,
    ]
    events = await heard_from(stream(*chunks))
    assert [(one.name, one.arguments) for one in events.reply.calls] == [("file_read", "")]
    assert events.reply.text == f"I look.\n{CALL}\nThere."


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([delta(reasoning_content=CALL)], id="field"),
        pytest.param([delta(f"<think>{CALL}</think>")], id="tags"),
        pytest.param([delta(f"<think>{CALL}")], id="open-tag"),
        pytest.param([delta(f"I could {CALL} or not.\n</think>")], id="tag-opened-in-the-prompt"),
    ],
)
async def test_nothing_is_run_out_of_reasoning(chunks: list[Any]) -> None:
    events = await heard_from(stream(*chunks, delta("No."), END))
    assert events.reply.calls == ()
    assert "file_read" not in events.reply.text


async def test_nothing_is_run_out_of_a_refusal() -> None:
    events = await heard_from(stream(delta(refusal=CALL), END))
    assert events.reply.calls == ()
    assert events.reply.finish_reason == "refusal"
    assert events.reply.text == CALL


async def test_thought_whose_tag_was_in_the_prompt_does_not_stay_in_the_answer() -> None:
    events = await heard_from(spoken("They want 4.\n</think>\n\nIt is 4."))
    assert events.reply.text == "It is 4."
    assert events.reply.reasoning.strip() == "They want 4."


async def test_a_call_that_may_be_an_example_always_asks() -> None:
    example = '```json\n{"name": "file_read", "arguments": {"path": "a.txt"}}\n```'
    (read,) = (await heard_from(spoken(f"I will do this:\n\n{example}"))).reply.calls
    assert (read.name, read.arguments) == ("file_read", '{"path": "a.txt"}')
    assert read.repairs[-1] == UNSURE


async def test_a_repaired_call_lists_its_repairs() -> None:
    broken = CALL.replace('"a.txt"}}', '"a.txt",}}')
    (read,) = (await heard_from(spoken(broken))).reply.calls
    assert read.arguments == '{"path": "a.txt"}'
    assert read.repairs and not read.problem
    assert all(type(repair) is str for repair in read.repairs)


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        pytest.param(CALL.replace("file_read", "file_reed"), "file_reed", "file_read", id="unknown-tool"),
        pytest.param(CALL[: CALL.index(".txt")], "file_read", "cut off", id="cut-off"),
        pytest.param(CALL.replace('{"path": "a.txt"}', "[1]"), "file_read", "", id="no-object"),
    ],
)
async def test_a_call_that_cannot_be_run_is_answered_with_one_error(text: str, name: str, words: str) -> None:
    events = await heard_from(spoken(f"I look.\n{text}"))
    (broken,) = events.reply.calls
    assert broken.name == name
    assert broken.problem.startswith("it ") and words in broken.problem
    assert events.text.strip() == "I look."


@pytest.mark.parametrize(
    "text",
    [
        CALL.replace("file_read", "file_reed"),
        '{"name": "file_reed", "parameters": {"path": "a.txt"}}',
        '<|python_tag|>{"name": "file_reed", "parameters": {"path": "a.txt"}}',
    ],
)
async def test_a_misnamed_call_keeps_its_arguments(text: str) -> None:
    (broken,) = (await heard_from(spoken(text))).reply.calls
    assert (broken.name, json.loads(broken.arguments)) == ("file_reed", {"path": "a.txt"})
    assert broken.problem


async def test_a_broken_call_beside_a_good_one_keeps_its_place() -> None:
    events = await heard_from(spoken(f"{CALL.replace('file_read', 'nope')}\n{CALL}"))
    assert [(one.name, bool(one.problem)) for one in events.reply.calls] == [("nope", True), ("file_read", False)]


@pytest.mark.parametrize("cut", ["</tool_call>", "}\n</tool_call>", '"}}\n</tool_call>'])
async def test_after_the_length_limit_only_closed_calls_count(cut: str) -> None:
    text = CALL + "\n" + CALL.removesuffix(cut)
    first, *rest = (await heard_from(spoken(text, finish="length"))).reply.calls
    assert first == READS_A
    assert all(one.problem for one in rest) and rest


async def test_a_connection_that_ends_inside_a_call_runs_nothing() -> None:
    half = sse(*[delta(piece) for piece in ("I look.\n", CALL[:40])], done=False)
    events = await heard_from(Raw(steps=(half,)))
    assert events.failure.kind is FailureKind.BROKEN_STREAM
    assert "call was not run" in events.failure.message
    assert events.failure.partial_text.strip() == events.text.strip() == "I look."


async def test_a_call_alone_is_no_empty_reply() -> None:
    reply = (await heard_from(spoken(CALL))).reply
    assert reply.calls == (READS_A,) and reply.text == ""


async def test_names_that_models_have_for_our_tools_are_ours() -> None:
    python = ToolSpec(
        name="python_exec",
        capabilities=BUILT_IN_TOOLS["python_exec"],
        description="Run code.",
        schema='{"type":"object"}',
    )
    text = '<tool_call>{"name": "code_interpreter", "arguments": {"code": "1"}}</tool_call>'
    events = await heard_from(spoken(text), request=question(tools=(python,)))
    assert [(one.name, one.problem) for one in events.reply.calls] == [("python_exec", "")]


async def test_the_format_of_a_family_is_read_without_a_setting() -> None:
    text = "<tool_call>\n<function=file_read>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>"
    events = await heard_from(spoken(text), model_name="qwen3-coder:30b")
    assert [json.loads(one.arguments) for one in events.reply.calls] == [{"path": "a.txt"}]


async def test_a_native_reply_after_calls_in_text_is_taken_as_it_is() -> None:
    async with FakeOpenAI([says(CALL), calls(call("file_read", path="b"))]) as server:
        client = RegistryClient({"test": spec_for(server)}.get, environ={})
        await send(client, ASKED)
        events = await send(client, ASKED)
        await client.aclose()
    assert [one.arguments for one in events.reply.calls] == ['{"path": "b"}']
    assert events.notices == []


@given(
    text=st.lists(
        st.sampled_from(
            [CALL, "I look. ", "<think>", "</think>", "\n\n", "`", "```\n", "<", '{"name"', "}", "é\ud83d\ude00"]
        ),
        max_size=7,
    ).map("".join),
    data=st.data(),
)
def test_a_reply_is_the_same_however_it_is_cut(text: str, data: st.DataObject) -> None:
    def assembled(pieces: list[str]) -> tuple[str, str, tuple[RawCall, ...]]:
        assembler = Assembler(TextToolsBuilder(family_of("")).of((READ,), may_call=True))
        said = []
        for piece in pieces:
            assembler.add(delta(piece))
            said += assembler.take()
        assembler.add(END)
        said += assembler.close()
        reply = assembler.reply()
        if "</think>" not in text:
            assert "".join(piece.text for piece in said if isinstance(piece, TextChunk)) == reply.text
            assert "".join(piece.text for piece in said if isinstance(piece, ReasoningChunk)) == reply.reasoning
        return reply.text, reply.reasoning, reply.calls

    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=8)))
    assert assembled([text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]) == assembled([text])
