"""Delivery of tools to a model: the registry's setting, refusals of servers, and knowledge for later requests."""

import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import AssistantMessage, ToolMessage, Usage, UserMessage
from chatops.domain.model import FailureKind, ModelRequest, ToolChoice
from chatops.domain.tools import Outcome, ToolCall, ToolSpec
from chatops.models.client import RegistryClient
from chatops.models.memory import InMemoryTextStore
from chatops.policy.registry import HostType, ModelSpec, Price
from tests.models.asking import Events, ask, question, send, spec_for
from tests.support.fake_openai import FakeOpenAI, Raw, Reply, SeenRequest, call, calls, delta, error, says, stream

BIG = ToolSpec(
    name="file_read",
    description="Reads a file of the workspace. " * 20,
    schema='{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}',
)


def as_json(status: int, value: object) -> Raw:
    return Raw(status=status, content_type="application/json", steps=(json.dumps(value).encode(),))


REFUSALS = {
    "vllm": as_json(
        400,
        {
            "object": "error",
            "message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
            "type": "BadRequestError",
            "param": None,
            "code": 400,
        },
    ),
    "ollama": as_json(
        400,
        {
            "error": {
                "message": "registry.ollama.ai/library/gemma3:4b does not support tools",
                "type": "api_error",
                "param": None,
                "code": None,
            }
        },
    ),
    "llama.cpp": as_json(
        500, {"error": {"code": 500, "message": "tools param requires --jinja flag", "type": "server_error"}}
    ),
    "llama.cpp-old": as_json(500, {"code": 500, "message": "Unsupported param: tools", "type": "server_error"}),
    "openrouter": as_json(
        404,
        {
            "error": {
                "message": 'No endpoints found that support tool use. Try disabling "file_read". To learn more about '
                "provider routing, visit: https://openrouter.ai/docs/guides/routing/provider-selection",
                "code": 404,
            }
        },
    ),
    "litellm": as_json(
        400,
        {
            "error": {
                "message": "litellm.UnsupportedParamsError: together_ai does not support parameters: {'tools': "
                "[{'type': 'function', 'function': {'name': 'file_read'}}]}, for model=x. To drop these, set "
                "`litellm.drop_params=True`",
                "type": "None",
                "param": None,
                "code": "400",
            }
        },
    ),
    "litellm-names": as_json(
        400, {"error": {"message": "x does not support parameters: ['temperature', 'tools'], for model=y"}}
    ),
    "fastapi": as_json(
        422,
        {"detail": [{"type": "extra_forbidden", "loc": ["body", "tools"], "msg": "Extra inputs are not permitted"}]},
    ),
    "openai": error(400, "Unrecognized request argument supplied: tools"),
    "param": as_json(400, {"error": {"message": "Unknown parameter.", "param": "tools", "code": "unknown_parameter"}}),
    "sentence": error(400, "This model does not support tools."),
    "lm-studio": error(400, "This model does not support tool use"),
    "fireworks": error(400, "Function calling is not enabled for this model."),
    "groq": error(400, "`tool calling` is not supported with this model"),
    "in-the-stream": stream({"error": {"message": "this model does not support tools", "code": 400}}, done=False),
}


def told_in_prompt(request: SeenRequest) -> bool:
    return "tools" not in request.body and "tool_choice" not in request.body and "<tools>" in request.system


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=list(REFUSALS))
async def test_a_server_that_refuses_tools_gets_them_in_the_prompt(refusal: Reply) -> None:
    store = InMemoryTextStore()

    def reply(request: SeenRequest) -> Reply:
        return refusal if "tools" in request.body else says("fine")

    async with FakeOpenAI(reply) as server:
        client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
        events = await send(client)
        assert events.reply.text == "fine" and not events.retries
        assert [told_in_prompt(request) for request in server.requests] == [False, True]
        assert "does not accept tools for test" in events.notices[0] and "hermes" in events.notices[0]
        assert "chatops doctor --model test" in events.notices[0]
        again = await send(client)
        await client.aclose()
        assert again.notices == [] and len(server.requests) == 3
        another = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
        assert (await send(another)).notices == [] and len(server.requests) == 4
        await another.aclose()
        assert told_in_prompt(server.requests[3])


@pytest.mark.parametrize(
    "complaint",
    [
        error(400, "tools[0].function.parameters: 'oneOf' is not supported"),
        error(400, "tools[0].function.name is not allowed"),
        error(400, "tools.0.custom.input_schema: JSON schema is invalid"),
        error(400, "Invalid schema for function 'file_read': tool names are not allowed to hold dots"),
        error(404, "The model `fake-model` does not exist"),
        error(400, "messages: tool results are not allowed here"),
    ],
)
async def test_other_complaints_about_tools_are_shown_and_not_worked_around(complaint: Reply) -> None:
    async with FakeOpenAI(lambda _: complaint) as server:
        events = await ask(server)
        assert len(server.requests) == 1
    assert events.failure.kind in (FailureKind.REFUSED, FailureKind.NOT_FOUND)
    assert events.notices == []


async def test_a_refusal_after_the_first_token_is_not_worked_around() -> None:
    late = stream(delta("Hello"), {"error": {"message": "this model does not support tools", "code": 400}}, done=False)
    async with FakeOpenAI([late, says("never asked")]) as server:
        events = await ask(server)
        assert len(server.requests) == 1
    assert events.failure.started and events.notices == []


async def test_nothing_is_remembered_of_a_way_that_did_not_work_either() -> None:
    store = InMemoryTextStore()
    replies: list[Reply] = [error(400, "this model does not support tools"), error(401, "no"), says("fine")]
    async with FakeOpenAI(replies) as server:
        client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
        assert (await send(client)).failure.kind is FailureKind.UNAUTHORIZED
        assert (await send(client)).reply.text == "fine"
        await client.aclose()
        assert "tools" in server.requests[2].body


async def test_knowledge_of_another_version_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    store = InMemoryTextStore()
    replies: list[Reply] = [error(400, "this model does not support tools"), says("fine"), says("native again")]
    async with FakeOpenAI(replies) as server:
        await _once(server, store)
        monkeypatch.setattr("chatops.models.memory.__version__", "999")
        events = await _once(server, store)
        assert "tools" in server.requests[2].body
    assert events.reply.text == "native again"


async def _once(server: FakeOpenAI, store: InMemoryTextStore, spec: ModelSpec | None = None) -> Events:
    client = RegistryClient({"test": spec or spec_for(server)}.get, remembered=store, environ={})
    try:
        return await send(client)
    finally:
        await client.aclose()


@pytest.mark.parametrize("note", ["{", "[]", '{"format": "hermes"}', '{"calling": 3, "format": 4}', "null"])
async def test_a_note_that_cannot_be_read_counts_as_none(note: str) -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI(lambda _: says("fine")) as server:
        store.set(f"endpoint:tools:{server.url} fake-model", note)
        await _once(server, store)
        assert "tools" in server.requests[0].body


async def test_the_format_is_that_of_the_models_family() -> None:
    def reply(request: SeenRequest) -> Reply:
        return REFUSALS["ollama"] if "tools" in request.body else says("fine")

    async with FakeOpenAI(reply) as server:
        await ask(server, model_name="qwen3-coder:30b")
        assert "<function=" in server.requests[1].system


@pytest.mark.parametrize(("format", "word"), [("qwen3_xml", "<function="), ("json_fenced", "```json")])
async def test_a_named_format_is_used_from_the_start(format: str, word: str) -> None:
    async with FakeOpenAI(lambda _: says("fine")) as server:
        events = await ask(server, tool_format=format)
        assert told_in_prompt(server.requests[0]) and word in server.requests[0].system
    assert events.notices == []


async def test_an_unknown_format_is_auto() -> None:
    async with FakeOpenAI(lambda _: says("fine")) as server:
        await ask(server, tool_format="hermse")
        assert "tools" in server.requests[0].body


USAGE = {"prompt_tokens": 30, "completion_tokens": 2}


def grown(turn: int) -> ModelRequest:
    """A request with a large tool, after `turn` exchanges."""
    said = [
        message
        for number in range(turn)
        for message in (
            UserMessage(id=MessageId(f"u{number}"), text="tell me more " * 2),
            AssistantMessage(id=MessageId(f"a{number}"), text="there is no more " * 2),
        )
    ]
    return question(*said, UserMessage(id=MessageId(f"u{turn}"), text="hello"), tools=(BIG,))


def without_tools(request: SeenRequest) -> dict[str, int]:
    """Return the count of a server that puts only the messages into the prompt."""
    return {"prompt_tokens": len(json.dumps(request.messages)) // 4, "completion_tokens": 2}


async def test_two_counts_without_the_tools_move_them_into_the_prompt() -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI(lambda seen: says("I cannot read files.", usage=without_tools(seen))) as server:
        notices = []
        for turn in range(4):
            # Each on a client of its own: the first count is remembered from one start to the next.
            client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
            notices.append((await send(client, grown(turn))).notices)
            await client.aclose()
        assert [told_in_prompt(request) for request in server.requests] == [False, False, True, True]
    assert [len(found) for found in notices] == [0, 1, 0, 0]
    assert "accepted the tools and did not show them to test" in notices[1][0]


@pytest.mark.parametrize(
    "usage",
    [
        pytest.param(lambda _: None, id="not-counted"),
        pytest.param(lambda _: {"prompt_tokens": 3, "completion_tokens": 2}, id="less-than-the-messages"),
        pytest.param(lambda _: {"prompt_tokens": 900, "completion_tokens": 2}, id="counted-with-tools"),
        pytest.param(lambda _: {"prompt_tokens": 60, "completion_tokens": 2}, id="a-fixed-number"),
        pytest.param(
            lambda seen: {**without_tools(seen), "prompt_tokens_details": {"cached_tokens": 8}}, id="from-the-cache"
        ),
    ],
)
async def test_a_count_without_evidence_about_the_tools_changes_nothing(
    usage: Callable[[SeenRequest], dict[str, int] | None],
) -> None:
    async with FakeOpenAI(lambda seen: says("no", usage=usage(seen))) as server:
        client = RegistryClient({"test": spec_for(server)}.get, environ={})
        for turn in range(3):
            assert (await send(client, grown(turn))).notices == []
        await client.aclose()
        assert all("tools" in request.body for request in server.requests)


async def test_litellm_counts_are_not_used() -> None:
    async with FakeOpenAI(lambda seen: says("no", usage=without_tools(seen))) as server:
        client = RegistryClient({"test": spec_for(server, host_type=HostType.LITELLM)}.get, environ={})
        for turn in range(3):
            assert (await send(client, grown(turn))).notices == []
        await client.aclose()
        assert all("tools" in request.body for request in server.requests)


async def test_a_conclusion_from_counts_ends_when_the_server_turns_out_to_be_litellm() -> None:
    store = InMemoryTextStore()
    async with FakeOpenAI(lambda seen: says("no", usage=without_tools(seen))) as server:
        for turn, host_type in enumerate([HostType.OPENAI, HostType.OPENAI, HostType.OPENAI, HostType.LITELLM]):
            lookup = {"test": spec_for(server, host_type=host_type)}.get
            client = RegistryClient(lookup, remembered=store, environ={})
            await send(client, grown(turn))
            await client.aclose()
        assert [told_in_prompt(request) for request in server.requests] == [False, False, True, False]


async def test_one_odd_count_between_others_changes_nothing() -> None:
    whole = {"prompt_tokens": 900, "completion_tokens": 2}
    async with FakeOpenAI(
        lambda seen: says(
            "no", usage=whole if len(seen.messages) == len(grown(1).messages) + 1 else without_tools(seen)
        )
    ) as server:
        client = RegistryClient({"test": spec_for(server)}.get, environ={})
        for turn in range(3):
            assert (await send(client, grown(turn))).notices == []
        await client.aclose()


async def test_a_native_call_takes_the_conclusion_back() -> None:
    store = InMemoryTextStore()

    def reply(seen: SeenRequest) -> Reply:
        if len(server.requests) == 3:
            return calls(call("file_read", path="a"), usage=without_tools(seen))
        return says("Fine.", usage=without_tools(seen))

    async with FakeOpenAI(reply) as server:
        client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
        events = [await send(client, grown(turn)) for turn in range(6)]
        await client.aclose()
        assert [told_in_prompt(request) for request in server.requests] == [False, False, True, False, False, False]
    assert [len(one.notices) for one in events] == [0, 1, 1, 0, 0, 0]
    assert "tools are sent there again" in events[2].notices[0]


async def test_cached_tokens_are_read_and_priced() -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}
    async with FakeOpenAI(lambda _: says("fine", usage=usage)) as server:
        dear = await ask(server, price=Price(input=10.0, output=20.0))
        cheap = await ask(server, price=Price(input=10.0, output=20.0, cached_input=1.0))
    assert dear.reply.usage == Usage(input_tokens=1_000, output_tokens=100, cached_tokens=600, cost=0.012)
    assert cheap.reply.usage == Usage(input_tokens=1_000, output_tokens=100, cached_tokens=600, cost=0.0066)


async def test_a_model_that_has_called_natively_once_is_not_doubted_by_its_count() -> None:
    replies = [calls(call("file_read", path="a"), usage=USAGE), says("done", usage=USAGE), says("no", usage=USAGE)]
    async with FakeOpenAI(replies) as server:
        client = RegistryClient({"test": spec_for(server)}.get, environ={})
        for _ in range(3):
            assert (await send(client, question(tools=(BIG,)))).notices == []
        await client.aclose()


HISTORY = (
    UserMessage(id=MessageId("m1"), text="hi"),
    AssistantMessage(
        id=MessageId("m2"),
        text="Looking.",
        calls=(ToolCall(id=CallId("c1"), name="file_read", arguments='{"path": "a"}'),),
    ),
    ToolMessage(
        id=MessageId("m3"), call_id=CallId("c1"), tool="file_read", arguments="{}", outcome=Outcome.SUCCESS, content="R"
    ),
)


async def test_a_session_continues_with_a_model_of_another_format_in_both_directions() -> None:
    async with FakeOpenAI(lambda _: says("fine")) as server:
        native, prompted = spec_for(server), spec_for(server, name="other", tool_format="hermes")
        client = RegistryClient({"test": native, "other": prompted}.get, environ={})
        await send(client, question(*HISTORY))
        await send(client, question(*HISTORY, model="other"))
        await send(client, question(*HISTORY))
        await client.aclose()
        first, second, third = server.requests
        assert first.tool_results == ["R"] and first.raw == third.raw
        assert [m["role"] for m in second.messages] == ["system", "user", "assistant", "user"]
        assert "<tool_call>" in second.messages[2]["content"] and "R" in second.last_user
        assert server.violations == []


async def test_after_a_refusal_in_the_middle_of_a_session_its_calls_are_text() -> None:
    def reply(request: SeenRequest) -> Reply:
        return REFUSALS["vllm"] if "tools" in request.body else says("fine")

    async with FakeOpenAI(reply) as server:
        await ask(server, request=question(*HISTORY))
        assert all(message["role"] != "tool" for message in server.requests[1].messages)
        assert "<tool_call>" in server.requests[1].messages[2]["content"]


async def test_a_prompted_closing_call_may_not_call() -> None:
    async with FakeOpenAI(lambda _: says("fine")) as server:
        await ask(server, tool_format="hermes", request=question(*HISTORY, tool_choice=ToolChoice.NONE))
        assert "MUST NOT call" in server.requests[0].system
        assert not {"tools", "tool_choice"} & server.requests[0].body.keys()


WANTED = error(400, "The `reasoning_content` in the thinking mode must be passed back to the API.")
THOUGHT = (HISTORY[0], replace(HISTORY[1], reasoning="I look.", model="test"), HISTORY[2])


def thought_of(request: SeenRequest) -> list[object]:
    return [m.get("reasoning_content") for m in request.messages if m["role"] == "assistant"]


async def test_reasoning_is_not_sent_back_unless_the_model_wants_it() -> None:
    async with FakeOpenAI(lambda _: says("fine")) as server:
        await ask(server, request=question(*THOUGHT))
        await ask(server, request=question(*THOUGHT), model_name="moonshotai/Kimi-K2-Thinking")
        await ask(server, request=question(*THOUGHT), model_name="MiniMaxAI/MiniMax-M2")
        assert [thought_of(request) for request in server.requests] == [[None], ["I look."], ["I look."]]


@pytest.mark.parametrize(
    ("model", "sent"), [("deepseek-v3.2", ["I look.", None, " "]), ("minimax-m2.5", [None, None, None])]
)
async def test_reasoning_of_older_turns_goes_back_only_where_it_is_demanded(model: str, sent: list[object]) -> None:
    foreign = AssistantMessage(
        id=MessageId("m6"),
        text="",
        calls=(ToolCall(id=CallId("c2"), name="x", arguments="{}"),),
        reasoning="?",
        model="b",
    )
    later = (
        AssistantMessage(id=MessageId("m4"), text="Done.", reasoning="So.", model="test"),
        UserMessage(id=MessageId("m5"), text="more"),
        foreign,
    )
    async with FakeOpenAI(lambda _: says("fine")) as server:
        await ask(server, request=question(*THOUGHT, *later), model_name=model)
        assert thought_of(server.requests[0]) == sent


async def test_reasoning_goes_back_in_the_field_it_came_in() -> None:
    replies: list[Reply] = [
        stream(delta(reasoning="I look."), delta("x"), delta(finish="stop")),
        says("a"),
        stream(delta("<think>I look.</think>x"), delta(finish="stop")),
        says("b"),
    ]
    async with FakeOpenAI(replies) as server:
        client = RegistryClient({"test": spec_for(server, model_name="glm-4.7")}.get, environ={})
        for _ in range(4):
            await send(client, question(*THOUGHT))
        await client.aclose()
        bodies = [request.messages[2] for request in server.requests]
    assert [body.get("reasoning_content") for body in bodies] == ["I look.", None, None, None]
    assert [body.get("reasoning") for body in bodies] == [None, "I look.", "I look.", None]
    assert bodies[3]["content"].startswith("<think>\nI look.\n</think>")


async def test_a_server_that_demands_reasoning_gets_it_and_it_is_remembered() -> None:
    store = InMemoryTextStore()

    def reply(request: SeenRequest) -> Reply:
        return says("fine") if thought_of(request) == ["I look."] else WANTED

    async with FakeOpenAI(reply) as server:
        for expected, notices in ((2, 1), (3, 0)):
            client = RegistryClient({"test": spec_for(server)}.get, remembered=store, environ={})
            events = await send(client, question(*THOUGHT))
            await client.aclose()
            assert events.reply.text == "fine"
            assert (len(server.requests), len(events.notices)) == (expected, notices)


async def test_a_server_that_refuses_reasoning_does_not_get_it_again() -> None:
    def reply(request: SeenRequest) -> Reply:
        refusal = error(400, "'messages.2' : property 'reasoning_content' is unsupported")
        return refusal if thought_of(request) == ["I look."] else says("fine")

    async with FakeOpenAI(reply) as server:
        client = RegistryClient({"test": spec_for(server, model_name="gpt-oss:20b")}.get, environ={})
        assert "'reasoning_content'" in (await send(client, question(*THOUGHT))).notices[0]
        assert (await send(client, question(*THOUGHT))).notices == []
        await client.aclose()
        assert len(server.requests) == 3
