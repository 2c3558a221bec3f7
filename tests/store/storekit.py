"""Steps and states written by hand, so that a store is tested without the engine."""

import json
import os
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

from chatops.domain.decisions import Approved, HostPattern, Principal, RememberedRule, RuleScope
from chatops.domain.errors import StoreError
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import CallId, MessageId, RoundId, SessionId, TurnId
from chatops.domain.messages import AssistantMessage, Message, UserMessage
from chatops.domain.model import ModelTarget
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import (
    BUILT_IN_TOOLS,
    AccessLevel,
    CallFacts,
    Outcome,
    ToolCall,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.engine.effects import AttemptResult, DecisionRecord, RunTool, TurnStep
from chatops.engine.inputs import DecideCall
from chatops.engine.state import (
    AwaitingDecision,
    AwaitingModel,
    CallState,
    Finished,
    InRound,
    Phase,
    Settled,
    Started,
    TurnState,
)
from chatops.policy.grant import Grant
from chatops.policy.verdicts import ApprovalRule, Layer, Rule
from chatops.store import health
from chatops.store.base import SessionInfo
from chatops.store.connection import Connection
from chatops.store.recovery import empty_in_memory
from chatops.store.store import Store

ANA = Principal(uid=1000, login="ana", host="box", tty="/dev/pts/3", via="approvals")
BEN = Principal(uid=1001, login="ben", host="box", via="tui")


def memory_store(rows: Connection | None = None, *, unsaved: str = "", **options: Any) -> Store:
    """Return an empty store in memory, or another entry point to one with these rows."""
    return Store(rows or memory_rows(unsaved=unsaved), **options)


def problems(store: Store) -> list[str]:
    """Return what the doctor would say of the rows of an open store; empty if they are sound."""
    rows = store._rows
    try:
        found = [*health._check_pages(rows), *health.check_rows(rows)]
        return [finding.text for finding in found if finding.severity is not health.Severity.OK]
    except StoreError as error:
        return [error.full]


def memory_rows(*, unsaved: str = "", path: Path = Path("/nonexistent/chatops.db")) -> Connection:
    raw = empty_in_memory()
    rows = Connection(raw, path=path, unsaved=unsaved)
    # From Python 3.13 on, one that is left open is a warning in whichever test runs when it is collected.
    weakref.finalize(rows, raw.close)
    return rows


def a_grant(role: str = "coder") -> Grant:
    return Grant(
        role=role,
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="local", label="Local", context_window=8192), ModelTarget(name="backup")),
        prompt="You help.",
        tools=(
            ToolSpec(
                name="shell_exec",
                capabilities=BUILT_IN_TOOLS["shell_exec"],
                description="Run a command",
                schema='{"type":"object"}',
            ),
        ),
        layers=(
            Layer(
                name="role coder",
                rules=(Rule(tool="web_fetch", verdict=Verdict.DENY, pattern=HostPattern(host="x.example")),),
                default=Verdict.ASK,
            ),
        ),
        answers=(
            ApprovalRule(
                tool="shell_exec",
                pattern=HostPattern(host="*.example.org"),
                source="confirm_allow",
                workspace_read=True,
            ),
        ),
        sandbox=SandboxSpec(
            require=SandboxLevel.BASIC, hosts=("packages.example.org",), git="commit", read=("/srv",), env=("CI",)
        ),
    )


def a_call(turn_id: TurnId, index: int = 1, request: int = 1) -> ToolCall:
    return ToolCall(id=CallId(f"{turn_id}.{request}.{index}"), name="shell_exec", arguments='{"command":"ls"}')


def facts(command: str = "ls") -> CallFacts:
    return CallFacts(arguments=f'{{"command":"{command}"}}', command=command, argv=(command,), cwd="/w")


def awaiting(digest: str = "d1", reason: AskReason = AskReason.POLICY) -> AwaitingDecision:
    return AwaitingDecision(facts=facts(), digest=digest, reason=reason, why="role coder asks")


def started(attempt: int = 1) -> Started:
    return Started(facts=facts(), digest="d1", verdict=Verdict.ASK, decided_by=str(ANA), attempt=attempt)


def settled(outcome: Outcome = Outcome.SUCCESS) -> Settled:
    return Settled(result=a_result(outcome), arguments='{"command":"ls"}', verdict=Verdict.ASK, decided_by=str(ANA))


def a_result(outcome: Outcome = Outcome.SUCCESS, content: str = "done") -> ToolResult:
    return ToolResult(outcome=outcome, content=content, duration_ms=5)


def in_round(*calls: CallState, role: str = "coder") -> InRound:
    round_id = RoundId(calls[0].call.id.rpartition(".")[0])
    return InRound(round_id=round_id, proposed_under=a_grant(role), said="I list it.", model="local", calls=calls)


def awaiting_model(turn_id: TurnId, request: int = 1, **more: Any) -> AwaitingModel:
    return AwaitingModel(round_id=RoundId(f"{turn_id}.{request}"), under=a_grant(), **more)


def finished(answer: str = "There.") -> Finished:
    return Finished(result=TurnStatus.ANSWERED, answer=answer)


def user(turn_id: str, text: str = "List it", n: int = 1) -> UserMessage:
    return UserMessage(id=MessageId(f"{turn_id}.m{n}"), text=text)


def assistant(turn_id: str, text: str = "There.", n: int = 2, calls: tuple[ToolCall, ...] = ()) -> AssistantMessage:
    return AssistantMessage(id=MessageId(f"{turn_id}.m{n}"), text=text, calls=calls, model="local", role="coder")


def first(
    turn_id: TurnId,
    session_id: SessionId,
    *,
    text: str = "List it",
    parent: MessageId | None = None,
    history: tuple[Message, ...] = (),
    phase: Phase | None = None,
    seq: int = 0,
) -> TurnStep:
    """The step that begins a turn."""
    message = user(turn_id, text)
    state = TurnState(
        turn_id=turn_id,
        session_id=session_id,
        seq=seq,
        parent_id=parent,
        grant=a_grant(),
        phase=phase or awaiting_model(turn_id),
        history=history,
        messages=(message,),
    )
    return TurnStep(state=state, messages=(message,))


def then(step: TurnStep, phase: Phase, *messages: Message, **carried: Any) -> TurnStep:
    """The step after `step`."""
    state = step.state
    following = replace(state, seq=state.seq + 1, phase=phase, messages=(*state.messages, *messages))
    return TurnStep(state=following, messages=messages, **carried)


def begun(store: Store, turn: TurnId, session_id: SessionId) -> TurnStep:
    """Begin a turn; its first step, which is stored."""
    step = first(turn, session_id)
    store.commit(step)
    return step


def pending_turn(store: Store, session: SessionInfo, turn: TurnId, calls: int = 2) -> TurnStep:
    """Begin a turn and bring it to where so many calls wait; its last step."""
    step = begun(store, turn, session.id)
    states = [CallState(call=a_call(turn, n + 1), status=awaiting(f"d{n + 1}")) for n in range(calls)]
    ask = then(step, in_round(*states))
    store.commit(ask)
    return ask


def run(call: ToolCall, attempt: int = 1, digest: str = "d1") -> RunTool:
    return RunTool(call=call, facts=facts(), attempt=attempt, digest=digest)


def closing(
    call: ToolCall, attempt: int = 1, outcome: Outcome = Outcome.SUCCESS, content: str = "done"
) -> AttemptResult:
    return AttemptResult(call_id=call.id, attempt=attempt, result=a_result(outcome, content))


def record(call: ToolCall, by: Principal | None = None, digest: str = "d1") -> DecisionRecord:
    return DecisionRecord(call_id=call.id, tool=call.name, digest=digest, decision=Approved(), by=by or ANA)


def decided(call: ToolCall, by: Principal | None = None, digest: str = "d1") -> DecideCall:
    return DecideCall(call_id=call.id, digest=digest, decision=Approved(), by=by or ANA)


def remembered(
    role: str = "coder",
    source: str = "c1",
    *,
    scope: RuleScope = RuleScope.SESSION,
    uid: int | None = 1000,
) -> RememberedRule:
    return RememberedRule(
        role=role,
        tool="web_fetch",
        pattern=HostPattern(host="docs.example"),
        source_call=CallId(source),
        scope=scope,
        folder="7:11:/ws" if scope is RuleScope.FOLDER else "",
        definition="d",
        uid=uid,
    )


def rules(store: Store, session_id: SessionId | None = None, *, uid: int | None = None) -> list[RememberedRule]:
    """The rules in force, without the ids that the store gave them."""
    return [replace(row.rule, id="") for row in store.rules(session_id=session_id, uid=uid)]


def golden(file: Path, written: dict[str, Any]) -> dict[str, Any]:
    """What a golden file holds. With WRITE_GOLDEN=1 that is `written` from now on."""
    if os.environ.get("WRITE_GOLDEN") == "1":
        file.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return dict(json.loads(file.read_text(encoding="utf-8")))
