"""Hand-made turns in the states that faces have to print."""

from chatops.domain.canonical import canonical
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId, call_id, round_id
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, Usage, UserMessage
from chatops.domain.model import ModelTarget
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    AccessLevel,
    CallFacts,
    Outcome,
    ResultFacts,
    ToolCall,
    ToolSpec,
    Verdict,
    written_path,
)
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CallState,
    CallStatus,
    Finished,
    InRound,
    Phase,
    RoundRecord,
    TurnState,
)
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer

SESSION = SessionId("20261121-101512-k3f9")
TURN = TurnId(f"{SESSION}.1")
ROUND = round_id(TURN, 1)
CALL = call_id(ROUND, 1)
USAGE = Usage(input_tokens=12, output_tokens=7, reasoning_tokens=2, cost=0.5)


def grant(*, role: str = "coder") -> Grant:
    """A grant in which `shell_exec` asks."""
    return Grant(
        role=role,
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="demo"),),
        prompt="",
        tools=(ToolSpec(name="shell_exec", capabilities=BUILT_IN_TOOLS["shell_exec"], description="", schema="{}"),),
        layers=(Layer(name="tool default of shell_exec", rules=(), default=Verdict.ASK),),
    )


def turn(phase: Phase, *, messages: tuple[Message, ...] = (), rounds: tuple[RoundRecord, ...] = ()) -> TurnState:
    """A turn of `SESSION` in `phase`, begun with the message ``read a``."""
    asked = UserMessage(id=MessageId(f"{TURN}.m1"), text="read a")
    return TurnState(
        turn_id=TURN,
        session_id=SESSION,
        seq=3,
        parent_id=None,
        grant=grant(),
        phase=phase,
        messages=(asked, *messages),
        usage=USAGE if rounds else None,
        rounds=rounds,
    )


def tool_message(
    tool: str, arguments: str, *, outcome: Outcome = Outcome.SUCCESS, call: CallId = CALL, content: str = "done"
) -> ToolMessage:
    """The answer to a call that a user approved."""
    wrote = written_path(BUILT_IN_TOOLS[tool], arguments) if outcome is Outcome.SUCCESS else ""
    return ToolMessage(
        id=MessageId(f"{call}.m"),
        call_id=call,
        tool=tool,
        arguments=arguments,
        outcome=outcome,
        content=content,
        verdict=Verdict.ASK,
        decided_by="uid 1000 via tui",
        duration_ms=5,
        facts=ResultFacts(wrote=wrote),
    )


def finished(
    result: TurnStatus = TurnStatus.ANSWERED,
    *,
    answer: str = "The answer",
    detail: str = "",
    advice: str = "",
    messages: tuple[Message, ...] = (),
) -> TurnState:
    """A turn that is over."""
    record = RoundRecord(model="demo", finish_reason="stop", usage=USAGE)
    said = AssistantMessage(id=MessageId(f"{TURN}.m9"), text=answer)
    phase = Finished(result=result, answer=answer, detail=detail, advice=advice)
    return turn(phase, messages=(*messages, said), rounds=(record,))


def asked() -> TurnState:
    """A turn in which a model has been asked and has not answered."""
    return turn(AwaitingModel(round_id=ROUND, under=grant()))


def paused(
    *,
    command: str = "git push",
    reason: AskReason = AskReason.POLICY,
    digest: str = "d1",
    others: tuple[CallStatus, ...] = (),
) -> TurnState:
    """A turn in which one shell_exec call waits for a user; `others` are further calls of file_read."""
    arguments = canonical({"command": command})
    call = ToolCall(id=CALL, name="shell_exec", arguments=arguments)
    waiting = AwaitingDecision(
        facts=CallFacts(arguments=arguments, cwd="/home/ana/project", command=command, sandbox="none"),
        digest=digest,
        reason=reason,
        why="tool default of shell_exec",
    )
    further = tuple(
        CallState(call=ToolCall(id=call_id(ROUND, number), name="file_read", arguments='{"path":"a"}'), status=status)
        for number, status in enumerate(others, start=2)
    )
    phase = InRound(
        round_id=ROUND,
        proposed_under=grant(),
        said="I will push now",
        model="demo",
        calls=(CallState(call=call, status=waiting), *further),
    )
    record = RoundRecord(model="demo", finish_reason="tool_calls", usage=USAGE)
    return turn(phase, rounds=(record,))
