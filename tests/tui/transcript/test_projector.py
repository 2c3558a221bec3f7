"""Events and stored messages give the same blocks, for turns of the real machine."""

from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Principal, Rejected
from chatops.domain.events import (
    Event,
    Notice,
    Published,
    ReasoningDelta,
    RoleSwitched,
    Status,
    TextDelta,
    ToolFinished,
    ToolOutput,
    ToolStarted,
    TurnStatus,
)
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId, TurnId, thought_id
from chatops.domain.messages import Message, RoleSwitchMessage, ToolMessage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelTarget
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    AccessLevel,
    CallFacts,
    Outcome,
    RawCall,
    ResultFacts,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.engine.effects import CallModel, Effect, InspectCall, ReconcileTool, RunTool, TurnStep
from chatops.engine.inputs import (
    CancelTurn,
    DecideCall,
    Input,
    InspectionInput,
    ModelFailureInput,
    ModelReplyInput,
    ReconcileInput,
    Recover,
    SwitchRole,
    ToolResultInput,
)
from chatops.engine.replay import replay
from chatops.engine.state import Finished, TurnState, new_turn
from chatops.engine.turn import advance, start
from chatops.engine.view import pending_calls, settled_so_far, turn_status
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer, Rule
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import (
    Block,
    CardStatus,
    Extend,
    Op,
    Put,
    Remove,
    ToolCardBlock,
)
from chatops.tui.transcript.projector import Projector
from tests.support.transcript_blocks import render_block

ANA = Principal(uid=1, login="ana", via="tui")
ASKING = ToolSpec(
    name="shell_exec",
    capabilities=BUILT_IN_TOOLS["shell_exec"],
    description="",
    schema='{"type":"object"}',
    verdict=Verdict.ASK,
)
FREE = ToolSpec(
    name="file_read",
    capabilities=BUILT_IN_TOOLS["file_read"],
    description="",
    schema='{"type":"object"}',
    verdict=Verdict.ALLOW,
    read_only=True,
)


def grant(role: str) -> Grant:
    rules = tuple(Rule(tool=spec.name, verdict=spec.verdict) for spec in (ASKING, FREE))
    return Grant(
        role=role,
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m1"), ModelTarget(name="m2")),
        prompt="",
        tools=(ASKING, FREE),
        layers=(Layer(name="access level operator", rules=rules, default=Verdict.DENY),),
        max_rounds=3,
    )


class Screen:
    """Applies operations to a plain list, as a widget has to."""

    def __init__(self) -> None:
        self.blocks: list[Block] = []

    def apply(self, ops: Iterable[Op]) -> None:
        for op in ops:
            place = {block.id: index for index, block in enumerate(self.blocks)}
            match op:
                case Put(block=block) if block.id in place:
                    self.blocks[place[block.id]] = block
                case Put(block=block, before=before):
                    self.blocks.insert(place.get(before, len(self.blocks)), block)
                case Extend(id=key, text=text):
                    block = self.blocks[place[key]]
                    self.blocks[place[key]] = type(block)(id=key, text=getattr(block, "text", "") + text, open=True)  # type: ignore[call-arg, arg-type]
                case Remove(id=key):
                    del self.blocks[place[key]]


def picture(blocks: Iterable[Block]) -> list[str]:
    return [
        "\n".join(strip.text for strip in render_block(block, 80, PLAIN, expanded=expanded))
        for block in blocks
        for expanded in (False, True)
    ]


class Conversation:
    """Drives the machine as the runtime would, with a projector listening."""

    def __init__(self) -> None:
        self.projector = Projector()
        self.screen = Screen()
        self.history: tuple[Message, ...] = ()
        self.turns = 0
        self.flying: list[Effect] = []
        self.state: TurnState | None = None

    def begin(self, text: str) -> None:
        self.turns += 1
        self.accept(
            start(new_turn(TurnId(f"s.{self.turns}"), SessionId("s"), grant=grant("coder"), history=self.history), text)
        )

    def end(self) -> None:
        if self.state is not None:
            self.history = (*self.history, *self.state.messages)

    def accept(self, step: TurnStep) -> None:
        self.state = step.state
        self.flying.extend(e for e in step.effects if isinstance(e, CallModel | InspectCall | RunTool | ReconcileTool))
        self.tell(*step.events)

    def tell(self, *events: Event) -> None:
        self.screen.apply(self.projector.feed_all([Published(at=0.0, event=event) for event in events]))

    def feed(self, event: Input) -> None:
        assert self.state is not None
        self.accept(advance(self.state, event))

    def replayed(self) -> list[Block]:
        state = self.state
        assert state is not None
        messages, pending = (*self.history, *state.messages, *settled_so_far(state)), pending_calls(state)
        events = replay(messages, state, session_id=SessionId("s"), role="coder", model="m1", pending=pending)
        return Projector().load(events)

    def check(self) -> None:
        loaded = self.replayed()
        assert picture(self.screen.blocks) == picture(loaded)
        assert self.screen.blocks == list(self.projector.blocks.values())
        assert len({block.id for block in loaded}) == len(loaded)


CALLS = st.lists(
    st.builds(
        RawCall,
        name=st.sampled_from(["shell_exec", "file_read", "no_such_tool"]),
        arguments=st.sampled_from(["{}", '{"command":"ls"}', "bad"]),
    ),
    max_size=3,
).map(tuple)
REPLIES = st.builds(
    ModelReply,
    text=st.sampled_from(["", "I look.", "# Answer\n\nwith *words*\n"]),
    reasoning=st.sampled_from(["", "hm", "let me see\n\nwell"]),
    calls=CALLS,
    finish_reason=st.sampled_from(["stop", "length"]),
)
DECISIONS: list[Decision] = [
    Approved(),
    Rejected(reason="not now"),
    Rejected(),
    Edited(arguments='{"command":"pwd"}'),
    MarkedDone(),
]


def stream(conversation: Conversation, number: RoundId, reply: ModelReply, data: st.DataObject) -> bool:
    """True if `perform` publishes deltas while a reply arrives, False if it came at once."""
    thought = thought_id(number)
    pieces: list[Event] = [TextDelta(id=thought, parent_id=number, text=piece) for piece in reply.text]
    thoughts: list[Event] = [ReasoningDelta(id=thought, parent_id=number, text=piece) for piece in reply.reasoning]
    how = data.draw(st.sampled_from(["not", "whole", "thought last"]), label="streamed")
    if how != "not":
        conversation.tell(*([*thoughts, *pieces] if how == "whole" else [*pieces, *thoughts]))
    return how != "not"


def act(conversation: Conversation, data: st.DataObject) -> None:
    """Let the next thing in flight happen."""
    effect = conversation.flying.pop(0)
    match effect:
        case CallModel(round_id=number):
            if data.draw(st.integers(0, 9), label="fails") == 0:
                failure = ModelFailure(kind=FailureKind.UNREACHABLE, message="It is down.", advice="Start it.")
                conversation.feed(ModelFailureInput(round_id=number, failure=failure))
                return
            reply = data.draw(REPLIES)
            streamed = stream(conversation, number, reply, data)
            if streamed and data.draw(st.integers(0, 9), label="cancelled") == 0:
                conversation.feed(CancelTurn(partial_text=reply.text, partial_reasoning=reply.reasoning))
            else:
                conversation.feed(ModelReplyInput(round_id=number, reply=reply))
        case InspectCall(call=call):
            conversation.feed(InspectionInput(call_id=call.id, facts=CallFacts(arguments=call.arguments, cwd="/w")))
        case RunTool(call=call, attempt=attempt):
            conversation.tell(ToolOutput(id=call.id, parent_id=RoundId("r"), text="some output"))
            outcome = data.draw(st.sampled_from([Outcome.SUCCESS, Outcome.FAILED]))
            content = data.draw(st.sampled_from(["done [/foo]", ""]))
            result = ToolResult(outcome=outcome, content=content, duration_ms=7)
            conversation.feed(ToolResultInput(call_id=call.id, attempt=attempt, result=result))
        case ReconcileTool(call=call, attempt=attempt):
            conversation.feed(ReconcileInput(call_id=call.id, attempt=attempt, result=None))
        case _:
            raise AssertionError(effect)


@pytest.mark.more
@settings(max_examples=60, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(st.data())
def test_events_and_store_draw_the_same(data: st.DataObject) -> None:
    conversation = Conversation()
    for _ in range(data.draw(st.integers(1, 2), label="turns")):
        conversation.begin("go\non")
        for _ in range(40):
            if conversation.flying:
                act(conversation, data)
            elif conversation.state is not None and (pending := pending_calls(conversation.state)):
                conversation.check()
                if data.draw(st.integers(0, 4), label="switches") == 0:
                    switch = RoleSwitchMessage(
                        id=MessageId(f"{conversation.state.turn_id}.m{len(conversation.state.messages) + 1}"),
                        before="coder",
                        after="researcher",
                        model="m1",
                        added=("web_search",),
                    )
                    conversation.feed(SwitchRole(grant=grant("researcher"), switch=switch))
                    conversation.check()
                one = data.draw(st.sampled_from(pending))
                decision = data.draw(st.sampled_from(DECISIONS))
                conversation.feed(DecideCall(call_id=one.call.id, digest=one.digest, decision=decision, by=ANA))
            else:
                break
        if conversation.flying or not isinstance(conversation.state and conversation.state.phase, Finished):
            return
        conversation.check()
        if turn_status(conversation.state) in (TurnStatus.CANCELLED, TurnStatus.LIMIT):  # type: ignore[arg-type]
            return  # How it ended is stored for the last turn only.
        conversation.end()


def waiting_call() -> tuple[Conversation, CallId]:
    conversation = Conversation()
    conversation.begin("go")
    number = conversation.flying.pop(0)
    assert isinstance(number, CallModel)
    calls = (RawCall(name="shell_exec", arguments='{"command":"touch x"}'),)
    conversation.feed(ModelReplyInput(round_id=number.round_id, reply=ModelReply(text="I do.", calls=calls)))
    inspect = conversation.flying.pop(0)
    assert isinstance(inspect, InspectCall)
    facts = CallFacts(arguments=inspect.call.arguments)
    conversation.feed(InspectionInput(call_id=inspect.call.id, facts=facts))
    return conversation, inspect.call.id


def test_a_denial_shows_who_and_why_and_does_not_look_run() -> None:
    conversation, call = waiting_call()
    assert "approval pending" in picture(conversation.screen.blocks)[-2]
    assert conversation.state is not None
    one = pending_calls(conversation.state)[0]
    conversation.feed(DecideCall(call_id=call, digest=one.digest, decision=Rejected(reason="not now"), by=ANA))
    assert 'not run, denied by ana: "not now"' in picture(conversation.screen.blocks)[-2]


def test_a_call_that_was_stopped_before_it_ran_says_so() -> None:
    conversation, _ = waiting_call()
    conversation.feed(CancelTurn())
    conversation.check()
    card = next(block for block in conversation.screen.blocks if isinstance(block, ToolCardBlock))
    assert "not run: stopped" in picture([card])[0]


@pytest.mark.parametrize("content", ["", "failed"])
def test_what_only_the_model_is_told_is_not_shown_again(content: str) -> None:
    conversation, call = waiting_call()
    assert conversation.state is not None
    one = pending_calls(conversation.state)[0]
    edited = Edited(arguments='{"command":"pwd"}')
    conversation.feed(DecideCall(call_id=call, digest=one.digest, decision=edited, by=ANA))
    while isinstance(effect := conversation.flying.pop(0), InspectCall):
        conversation.feed(InspectionInput(call_id=call, facts=CallFacts(arguments=edited.arguments)))
        for pending in pending_calls(conversation.state):
            approved = DecideCall(call_id=call, digest=pending.digest, decision=Approved(), by=ANA)
            conversation.feed(approved)
    assert isinstance(effect, RunTool)
    result = ToolResult(outcome=Outcome.SUCCESS, content=content)
    conversation.feed(ToolResultInput(call_id=call, attempt=effect.attempt, result=result))
    (told,) = (message for message in conversation.state.messages if isinstance(message, ToolMessage))
    assert told.content.startswith("(The user changed the arguments") and told.result == content
    card = next(block for block in conversation.replayed() if isinstance(block, ToolCardBlock))
    assert card.output == content
    conversation.check()


def test_the_output_of_a_stopped_call_is_told_from_how_it_was_stopped() -> None:
    end = ToolFinished(
        id=CallId("c"),
        parent_id=RoundId("r"),
        status=Status.ERROR,
        tool="shell_exec",
        arguments="{}",
        outcome=Outcome.INTERRUPTED,
        content="Stopped by the user.\nOutput so far:\nhalf way\n",
        facts=ResultFacts(so_far=len("half way\n")),
    )
    projector = Projector()
    projector.feed(Published(at=0.0, event=end))
    card = projector.blocks["c"]
    assert isinstance(card, ToolCardBlock) and card.end.tail == "half way\n"


def test_a_crash_in_a_call_is_shown_as_an_unknown_outcome() -> None:
    conversation, call = waiting_call()
    assert conversation.state is not None
    one = pending_calls(conversation.state)[0]
    conversation.feed(DecideCall(call_id=call, digest=one.digest, decision=Approved(), by=ANA))
    while isinstance(conversation.flying[0], InspectCall):
        effect = conversation.flying.pop(0)
        assert isinstance(effect, InspectCall)
        facts = CallFacts(arguments=effect.call.arguments)
        conversation.feed(InspectionInput(call_id=effect.call.id, facts=facts))
    assert "running" in picture(conversation.screen.blocks)[-2]
    conversation.flying.clear()
    conversation.feed(Recover(grant=grant("coder")))
    conversation.check()
    shown = picture(conversation.screen.blocks)
    assert "outcome unknown, decision pending" in shown[-4] and "This turn was interrupted." in shown[-2]


def test_deltas_of_one_text_are_joined_into_one_operation() -> None:
    number = RoundId("s.1.1")
    batch = [Published(at=0.0, event=TextDelta(id="t", parent_id=number, text=piece)) for piece in "abcd"]
    ops = Projector().feed_all(batch)
    assert [type(op) for op in ops] == [Put, Extend]
    assert ops[1] == Extend(id="t", text="bcd")


def test_output_of_a_running_tool_is_bounded() -> None:
    projector = Projector()
    call = CallId("s.1.1.1")
    started = ToolStarted(id=call, parent_id=RoundId("s.1.1"), tool="t", arguments="{}", attempt=1, decided_by="policy")
    projector.feed(Published(at=0.0, event=started))
    for number in range(300):
        output = ToolOutput(id=call, parent_id=RoundId("s.1.1"), text=f"{number} " * 100)
        projector.feed(Published(at=0.0, event=output))
    card = projector.blocks[call]
    assert getattr(card, "status", None) is CardStatus.RUNNING
    assert len(getattr(card, "output", "")) <= 8_000
    assert getattr(card, "output", "").endswith("299 ")


@pytest.mark.parametrize("level", ["info", "warning", "error"])
def test_a_notice_published_twice_is_shown_once(level: str) -> None:
    projector, screen = Projector(), Screen()
    for text in ("first", "second"):
        notice = Notice(id="s.1.m3", parent_id="s.1", text=text, level=level)  # type: ignore[arg-type]
        screen.apply(projector.feed(Published(at=0.0, event=notice)))
    assert [getattr(block, "text", "") for block in screen.blocks] == ["second"]


def test_role_switches_in_a_row_leave_one_line_and_none_if_they_lead_back() -> None:
    roles, tools = ("coder", "researcher", "reviewer", "coder", "reviewer"), {"coder": "w", "researcher": "f"}
    steps = [
        RoleSwitchMessage(
            id=MessageId(f"s.r{number}"),
            before=before,
            after=after,
            model="m1",
            added=tuple(tools.get(after, "")),
            removed=tuple(tools.get(before, "")),
        )
        for number, (before, after) in enumerate(pairwise(roles))
    ]
    live = Projector()
    for count, switch in enumerate(steps, start=1):
        live.feed(Published(at=0, event=RoleSwitched(id=switch.id, parent_id=SessionId("s"), switch=switch)))
        assert list(live.blocks.values()) == Projector().load(
            replay(steps[:count], None, session_id=SessionId("s"), role="", model="")
        )
        shown = [(one.before, one.after) for one in live.blocks.values() if isinstance(one, RoleSwitchMessage)]
        assert shown == ([] if roles[count] == "coder" else [("coder", roles[count])])


def test_a_result_without_a_proposal_still_gets_a_card() -> None:
    done = ToolFinished(
        id=CallId("c"),
        parent_id=RoundId("r"),
        status="success",  # type: ignore[arg-type]
        tool="t",
        arguments="{}",
        outcome=Outcome.SUCCESS,
        content="x",
    )
    assert isinstance(Projector().feed(Published(at=0.0, event=done))[0], Put)
