"""The stored form: golden checkpoints load for ever, any text survives, the engine's unions are told apart."""

import json
import types
import typing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.errors import UnreadableError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.engine import state as engine_state
from chatops.engine.effects import TurnStep
from chatops.engine.state import CallState, Counters, RoundRecord, TurnState
from chatops.store import codec
from tests.store import storekit as kit
from tests.store.golden_states import golden_messages, golden_states

GOLDEN = sorted((Path(__file__).parents[1] / "data" / "checkpoints").glob("v*.json"))


def test_there_is_a_golden_file_for_every_version() -> None:
    assert [file.stem for file in GOLDEN] == [f"v{version}" for version in range(1, codec.STATE_VERSION + 1)]


@pytest.mark.parametrize("file", GOLDEN, ids=lambda file: file.stem)
def test_golden_checkpoints_of_every_phase_load_for_ever(file: Path) -> None:
    golden = json.loads(file.read_text(encoding="utf-8"))
    for name, payload in golden["states"].items():
        stored = codec.decode_state(json.dumps(payload), version=golden["version"])
        assert stored.state.phase.kind == payload["phase"]["kind"], name
        assert list(stored.messages) == payload["messages"]
        assert stored.state.grant.role == payload["grant"]["role"]
    for payload in golden["messages"]:
        message = codec.decode_message(json.dumps(payload), message_id=MessageId(payload["id"]))
        assert message.kind == payload["kind"]


def test_the_newest_golden_file_holds_what_is_written_today() -> None:
    """If this fails, stored states have changed.

    Before the first release, and after it for a new field with a default: renew the newest file (WRITE_GOLDEN=1), whose
    older values the test above has loaded. Otherwise add a version, an upgrade and a file.
    """
    states = {name: json.loads(codec.encode_state(state)) for name, state in golden_states().items()}
    messages = [json.loads(codec.encode_message(message)) for message in golden_messages()]
    written = {"version": codec.STATE_VERSION, "states": states, "messages": messages}
    assert written == kit.golden(GOLDEN[-1], written)


def test_the_golden_states_have_every_phase_and_every_status() -> None:
    states = golden_states().values()
    phases = {type(state.phase) for state in states}
    assert phases == set(typing.get_args(engine_state.Phase))
    statuses = {
        type(item.status)
        for state in states
        if isinstance(state.phase, engine_state.InRound | engine_state.Stopping)
        for item in state.phase.calls
    }
    assert statuses == set(typing.get_args(engine_state.CallStatus))


def test_every_golden_state_survives() -> None:
    for state in golden_states().values():
        stored = codec.decode_state(codec.encode_state(state), version=codec.STATE_VERSION)
        assert stored.state == replace(state, history=(), messages=())
        assert stored.messages == tuple(message.id for message in state.messages)


def test_bodies_are_not_in_the_checkpoint() -> None:
    step = kit.first(TurnId("s.1"), SessionId("s"), text="SECRET BODY", history=(kit.user("old", "OLD BODY"),))
    text = codec.encode_state(step.state)
    assert "BODY" not in text
    assert json.loads(text)["messages"] == ["s.1.m1"]


def test_members_of_every_union_differ_by_kind() -> None:
    unions = [
        value
        for value in vars(engine_state).values()
        if isinstance(value, types.UnionType)
        and all(hasattr(member, "__dataclass_fields__") for member in value.__args__)
    ]
    assert len(unions) >= 2
    for union in unions:
        kinds = [member.__dataclass_fields__["kind"].default for member in typing.get_args(union)]
        assert len(set(kinds)) == len(kinds)


anything = st.text(alphabet=st.characters(codec=None, categories=None), max_size=30) | st.sampled_from(
    ["\ud83d", "\udcff\x00", "\u202e", '"\\\ud800', "NaN"]
)


@given(text=anything, cost=st.none() | st.floats(allow_nan=False), tokens=st.integers(0, 2**70))
def test_any_text_and_number_survives(text: str, cost: float | None, tokens: int) -> None:
    turn = TurnId("s.1")
    call = replace(kit.a_call(turn), name=text, arguments=text, provider_id=text, problem=text)
    waiting = replace(kit.awaiting(), why=text, facts=replace(kit.facts(), argv=(text,), diff=text))
    usage = Usage(input_tokens=tokens, cost=cost)
    state: TurnState = replace(
        kit.first(turn, SessionId("s")).state,
        phase=replace(kit.in_round(CallState(call=call, status=waiting)), said=text),
        usage=usage,
        rounds=(RoundRecord(model=text, finish_reason=text, usage=None),),
        counters=Counters(requests=3, last_call=text),
    )
    stored = codec.decode_state(codec.encode_state(state), version=codec.STATE_VERSION)
    assert stored.state == replace(state, messages=())
    message = replace(kit.assistant("s.1", text, calls=(call,)), usage=usage)
    assert codec.decode_message(codec.encode_message(message), message_id=message.id) == message


json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.more
@given(path=st.lists(st.integers(0, 50), min_size=1, max_size=6), value=json_values)
def test_a_changed_checkpoint_loads_or_is_unreadable_and_nothing_else(path: list[int], value: object) -> None:
    payload = json.loads(codec.encode_state(golden_states()["in_round"]))
    spot: Any = payload
    for step in path:
        keys = list(spot) if isinstance(spot, dict) else list(range(len(spot)))
        if not keys:
            break
        key = keys[step % len(keys)]
        if not isinstance(spot[key], dict | list) or step == path[-1]:
            spot[key] = value
            break
        spot = spot[key]
    try:
        codec.decode_state(json.dumps(payload), version=codec.STATE_VERSION)
    except UnreadableError as error:
        assert error.advice


@pytest.mark.parametrize("version", [0, -1, codec.STATE_VERSION + 1])
def test_unknown_versions_are_unreadable(version: int) -> None:
    text = codec.encode_state(kit.first(TurnId("s.1"), SessionId("s")).state)
    with pytest.raises(UnreadableError, match="version"):
        codec.decode_state(text, version=version)


def fingerprint(step: TurnStep) -> str:
    return codec.fingerprint(
        step, state=codec.encode_state(step.state), messages=list(map(codec.encode_message, step.messages))
    )


def test_the_same_step_has_the_same_fingerprint_and_a_different_one_another() -> None:
    step = kit.first(TurnId("s.1"), SessionId("s"))
    assert fingerprint(step) == fingerprint(kit.first(TurnId("s.1"), SessionId("s")))
    other = [
        kit.first(TurnId("s.1"), SessionId("s"), text="other"),
        replace(step, rules=(kit.remembered(),)),
        replace(step, decisions=(kit.record(kit.a_call(TurnId("s.1"))),)),
        replace(step, effects=(kit.run(kit.a_call(TurnId("s.1"))),)),
        replace(step, results=(kit.closing(kit.a_call(TurnId("s.1"))),)),
    ]
    assert len({fingerprint(each) for each in (step, *other)}) == 6
