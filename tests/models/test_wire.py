"""Request bodies as strict servers want them, whatever the history looks like."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.errors import ConfigError
from chatops.domain.ids import CallId, MessageId
from chatops.domain.messages import (
    AssistantMessage,
    Message,
    NoticeMessage,
    RoleSwitchMessage,
    ToolMessage,
    UserMessage,
)
from chatops.domain.model import ModelRequest, ToolChoice
from chatops.domain.tools import Outcome, ToolCall, ToolSpec
from chatops.engine.pairing import LOST_RESULT, NO_REPLY, RESULTS_RECEIVED
from chatops.models.body import BodyBuilder
from chatops.models.hosts import HOSTS, HostProfile, host_of
from chatops.models.tool_delivery import InField
from chatops.models.wire import (
    UNREADABLE,
    MessageEncoder,
    ReasoningReplay,
    ReplayScope,
    encode,
    wire_arguments,
    wire_id,
)
from chatops.policy.registry import HostType, ModelSpec
from tests.support.cases import for_each
from tests.support.fake_openai import violations_of


def json_text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


OPENAI = HOSTS[HostType.OPENAI]
SHELL = ToolSpec(
    name="shell_exec",
    description="Run a command.",
    schema='{"type":"object","properties":{"command":{"type":"string"}},"required":["command"]}',
)


def user(number: int, text: str) -> UserMessage:
    return UserMessage(id=MessageId(f"s.1.m{number}"), text=text)


def asks(number: int, *calls: ToolCall, text: str = "", **more: Any) -> AssistantMessage:
    return AssistantMessage(id=MessageId(f"s.1.m{number}"), text=text, calls=calls, **more)


def a_call(id: str, name: str = "file_read", arguments: str = "{}", **more: Any) -> ToolCall:
    return ToolCall(id=CallId(id), name=name, arguments=arguments, **more)


def result(number: int, call: str, content: str, outcome: Outcome = Outcome.SUCCESS) -> ToolMessage:
    return ToolMessage(
        id=MessageId(f"s.1.m{number}"), call_id=CallId(call), tool="t", arguments="{}", outcome=outcome, content=content
    )


def body_of(
    *messages: Message, spec: ModelSpec | None = None, host: HostProfile = OPENAI, **changes: Any
) -> dict[str, Any]:
    request = ModelRequest(model="m", system=changes.pop("system", "Be brief."), messages=messages, **changes)
    spec = spec or ModelSpec(name="m", api_url="http://h/v1", model_name="gpt-x")
    return dict(json.loads(BodyBuilder(spec, host=host).build(request, delivery=InField(reads_text=True)).data))


def test_golden_body_of_a_role_with_two_calls() -> None:
    history = (
        user(1, "What is here?"),
        asks(
            2,
            a_call("s.1.1.1", "file_list", '{"path": "."}', provider_id="call_x"),
            a_call("s.1.1.2", "shell_exec", "not json", provider_id="call_x"),
            text="Looking.",
            reasoning="hm",
        ),
        result(3, "s.1.1.1", "a.txt"),
        RoleSwitchMessage(id=MessageId("s.1.m4"), before="researcher", after="coder", model="m"),
        result(5, "s.1.1.2", "Denied by the user.", Outcome.DENIED),
        NoticeMessage(id=MessageId("s.1.m6"), text="for the user only"),
    )
    assert body_of(*history, tools=(SHELL,)) == {
        "model": "gpt-x",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "What is here?"},
            {
                "role": "assistant",
                "content": "Looking.",
                "tool_calls": [
                    {
                        "id": "s_1_1_1",
                        "type": "function",
                        "function": {"name": "file_list", "arguments": '{"path": "."}'},
                    },
                    {
                        "id": "s_1_1_2",
                        "type": "function",
                        "function": {"name": "shell_exec", "arguments": json_text({UNREADABLE: "not json"})},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "s_1_1_1", "content": "a.txt"},
            {"role": "tool", "tool_call_id": "s_1_1_2", "content": "Denied by the user."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "shell_exec",
                    "description": "Run a command.",
                    "parameters": {
                        "type": "object",
                        "properties": {"command": {"type": "string"}},
                        "required": ["command"],
                    },
                },
            }
        ],
        "stream": True,
        "stream_options": {"include_usage": True},
    }


@for_each(
    ("written", "sent"),
    [
        ('{"path": "a" }', '{"path": "a" }'),
        ("", "{}"),
        (" \n", "{}"),
        ('{"path": "a', json_text({UNREADABLE: '{"path": "a'})),
        ("[1]", json_text({UNREADABLE: "[1]"})),
        ('"text"', json_text({UNREADABLE: '"text"'})),
        ('{"x": NaN}', json_text({UNREADABLE: '{"x": NaN}'})),
        ("\ud800", json_text({UNREADABLE: "\ufffd"})),
        ("[" * 100_000, json_text({UNREADABLE: "[" * 100_000})),
    ],
)
def test_arguments_of_the_history_are_an_object_whatever_was_written(written: str, sent: str) -> None:
    assert wire_arguments(written) == sent


def test_c30_dangling_calls_get_a_result_and_strangers_are_dropped() -> None:
    body = body_of(
        result(0, "nobody.asked", "x"),
        user(1, "hi"),
        asks(2, a_call("a.1"), a_call("a.2")),
        user(3, "interrupted"),
        result(4, "a.1", "late"),
        result(5, "a.1", "again"),
    )
    assert violations_of(body) == []
    assert [m["content"] for m in body["messages"] if m["role"] == "tool"] == ["late", LOST_RESULT]


def test_empty_contents() -> None:
    body = body_of(
        user(1, ""), asks(2, a_call("a.1"), a_call("a.2")), result(3, "a.1", ""), result(4, "a.2", "", Outcome.FAILED),
        asks(5), system="",
    )  # fmt: skip
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("user", "(empty message)"),
        ("assistant", ""),
        ("tool", "Tool executed successfully"),
        ("tool", "(failed)"),
    ]


def test_blank_contents_are_as_empty_ones() -> None:
    body = body_of(
        user(1, " \n"), asks(2, a_call("a.1"), text="\n"), result(3, "a.1", "\n"), asks(4, text=" \n", incomplete=True),
        system=" ",
    )  # fmt: skip
    assert violations_of(body) == []
    assert [(m["role"], m["content"]) for m in body["messages"]] == [
        ("user", "(empty message)"),
        ("assistant", ""),
        ("tool", "Tool executed successfully"),
    ]


def test_names_of_calls_are_ones_that_servers_take() -> None:
    odd = ["functions.file read", "ünïcode", "n" * 80, "", "\ud800", "ok-1_x"]
    body = body_of(user(1, "hi"), asks(2, *(a_call(f"a.{n}", name) for n, name in enumerate(odd))))
    assert violations_of(body) == []
    names = [call["function"]["name"] for call in body["messages"][2]["tool_calls"]]
    assert names == ["functions_file_read", "_n_code", "n" * 64, "unnamed", "_", "ok-1_x"]


def test_c30_an_id_that_was_given_twice_is_sent_as_two() -> None:
    history = (user(1, "hi"), asks(2, a_call("a.1")), user(3, "again"), asks(4, a_call("a.1")), result(5, "a.1", "two"))
    bodies = [body_of(*history), body_of(*history, result(6, "a.1", "more"), user(7, "on"))]
    for body in bodies:
        assert violations_of(body) == []
        assert [m["content"] for m in body["messages"] if m["role"] == "tool"] == [LOST_RESULT, "two"]
    ids = [[call["id"] for m in body["messages"] for call in m.get("tool_calls", [])] for body in bodies]
    assert ids[0] == ids[1]


def test_an_encoder_gives_ids_by_their_place_in_each_history() -> None:
    encoder = MessageEncoder()
    first, second = asks(2, a_call("a.1")), asks(4, a_call("a.1"))
    together, alone = (json.loads(encoder.array(h, system="")) for h in ((first, second), (second,)))
    assert together[2]["tool_calls"][0]["id"] != alone[0]["tool_calls"][0]["id"] == together[0]["tool_calls"][0]["id"]
    assert alone[1]["tool_call_id"] == "a_1"


def test_between_two_messages_of_the_user_there_is_a_reply_even_if_there_was_none() -> None:
    body = body_of(user(1, "hi"), user(2, "hello?"), asks(3, a_call("a.1")), result(4, "a.1", "x"), user(5, "well?"))
    assert violations_of(body) == []
    said = [(m["role"], m["content"]) for m in body["messages"] if m["role"] != "tool"]
    assert said[1:] == [
        ("user", "hi"),
        ("assistant", NO_REPLY),
        ("user", "hello?"),
        ("assistant", ""),
        ("assistant", RESULTS_RECEIVED),
        ("user", "well?"),
    ]


def test_a_reply_that_was_cut_off_is_marked() -> None:
    body = body_of(user(1, "hi"), asks(2, text="Half of it", incomplete=True), user(3, "go on"))
    assert body["messages"][2]["content"] == "Half of it\n[This reply was cut off here.]"


def test_no_tools_means_no_tool_fields() -> None:
    for choice in ToolChoice:
        body = body_of(user(1, "hi"), tools=(), tool_choice=choice)
        assert not {"tools", "tool_choice"} & body.keys()


@pytest.mark.parametrize(
    ("host", "fields"), [(HostType.OPENAI, {"tools", "tool_choice"}), (HostType.OLLAMA, set()), (HostType.VLLM, None)]
)
def test_the_closing_call(host: HostType, fields: set[str] | None) -> None:
    body = body_of(user(1, "hi"), tools=(SHELL,), tool_choice=ToolChoice.NONE, host=HOSTS[host])
    expected = {"tools", "tool_choice"} if fields is None else fields
    assert {"tools", "tool_choice"} & body.keys() == expected
    assert body.get("tool_choice") in {None, "none"}


def test_parameters_of_the_registry() -> None:
    spec = ModelSpec(
        name="m",
        api_url="http://h/v1",
        model_name="x",
        temperature=0.2,
        top_p=0.9,
        stop=("END",),
        max_output_tokens=64,
        reasoning_effort="low",
        user="ana",
        extra_body=json.dumps(
            {"seed": 7, "temperature": 0.5, "tools": [], "messages": [], "model": "other", "stream": False, "n": 2}
        ),
    )
    body = body_of(user(1, "hi"), spec=spec, tools=(SHELL,))
    assert body["model"] == "x"
    assert len(body["messages"]) == 2
    assert len(body["tools"]) == 1
    assert body["stream"] is True
    assert "n" not in body
    assert {name: body[name] for name in ("seed", "temperature", "top_p", "stop", "max_tokens")} == {
        "seed": 7,
        "temperature": 0.5,
        "top_p": 0.9,
        "stop": ["END"],
        "max_tokens": 64,
    }
    assert (body["reasoning_effort"], body["user"]) == ("low", "ana")


def test_openai_itself_names_the_token_limit_differently() -> None:
    spec = ModelSpec(name="m", api_url="https://api.openai.com/v1", model_name="x", max_output_tokens=64)
    body = body_of(user(1, "hi"), spec=spec, host=host_of(spec))
    assert body["max_completion_tokens"] == 64
    assert "max_tokens" not in body


def test_extra_body_must_be_an_object() -> None:
    with pytest.raises(ConfigError, match="not a JSON object"):
        BodyBuilder(ModelSpec(name="m", extra_body="[1]"), host=OPENAI)


def test_ids_are_unique_plain_and_short_enough() -> None:
    assert wire_id(CallId("20261121-101512-k3f9.12.3.1"), short=False) == "20261121-101512-k3f9_12_3_1"
    odd = [CallId("a_1"), CallId("a.1"), CallId("x" * 80), CallId("é/../"), CallId("\ud800")]
    for short in (False, True):
        ids = [wire_id(id_, short=short) for id_ in odd]
        assert len(set(ids)) == len(odd)
        for id_ in ids:
            assert len(id_) <= 40
            assert id_.isascii()
        assert not short or all(len(id_) == 9 and id_.isalnum() for id_ in ids)


def test_a_changed_message_with_the_same_id_is_encoded_again() -> None:
    encoder = MessageEncoder()
    assert b"one" in encoder.array((user(1, "one"),), system="")
    assert b"two" in encoder.array((user(1, "two"),), system="")


ANY_TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)


@given(text=ANY_TEXT)
def test_no_text_breaks_the_encoding(text: str) -> None:
    decoded = json.loads(encode({"x": text}).decode("utf-8"))["x"]
    assert decoded == text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


CALLS = st.lists(st.tuples(st.sampled_from(["c.1", "c_1", "c.2", "c.3"]), ANY_TEXT), max_size=3)


PARTS = st.lists(
    st.one_of(
        st.tuples(st.just("user"), ANY_TEXT),
        st.tuples(st.just("result"), st.sampled_from(["c.1", "c_1", "c.2", "c.3", "c.9"])),
        st.tuples(st.just("calls"), CALLS),
    ),
    max_size=12,
)


def history_of(parts: list[tuple[str, Any]]) -> list[Message]:
    history: list[Message] = []
    for number, (kind, value) in enumerate(parts):
        match kind:
            case "user":
                history.append(user(number, value))
            case "result":
                history.append(result(number, value, "r"))
            case _:
                calls = (a_call(id_, name, name) for id_, name in value)
                history.append(asks(number, *calls, text="said", model="m", reasoning=f"thought {number}"))
    return history


@given(PARTS)
def test_any_history_is_accepted_by_a_strict_server(parts: list[tuple[str, Any]]) -> None:
    assert violations_of(body_of(*history_of(parts))) == []


@given(parts=PARTS, back=st.integers(0, 12), scope=st.sampled_from(ReplayScope))
def test_a_request_has_the_same_bytes_whatever_was_sent_before(
    parts: list[tuple[str, Any]], back: int, scope: ReplayScope
) -> None:
    history, replay = history_of(parts), ReasoningReplay(scope=scope, to="m")
    encoder = MessageEncoder(short_ids=True)
    for count in (*range(len(history) + 1), min(back, len(history)), len(history)):
        sent = encoder.array(history[:count], system="s", replay=replay)
        assert sent == MessageEncoder(short_ids=True).array(history[:count], system="s", replay=replay)
