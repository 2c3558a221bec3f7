"""A state of every phase, with every status a call can have: what the golden checkpoints hold."""

from dataclasses import replace

from chatops.domain.decisions import ServerQuestion
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import AssistantMessage, Message, NoticeMessage, RoleSwitchMessage, ToolMessage, Usage
from chatops.domain.sandbox import Credential, Lack, SandboxSpec
from chatops.domain.tools import CallFacts, Interruption, Outcome, Problem, Processes, Verdict
from chatops.engine.contract import DoneCall, StepContract
from chatops.engine.state import (
    BeforeEdit,
    BudgetQuestion,
    CallState,
    CallStatus,
    CheckingAnswer,
    Correction,
    Counters,
    Deferred,
    Finished,
    Inspecting,
    Mistake,
    OwnCommand,
    Permitted,
    Phase,
    Purpose,
    Rechecking,
    Reconciling,
    RoundRecord,
    Spending,
    Stopping,
    TurnState,
)
from chatops.policy.budget import Budget
from chatops.policy.workflow import CommandGate, PatternGate, Subject, Validation
from tests.store import storekit as kit

TURN = TurnId("20261121-101512-k3f9.2")
SESSION = SessionId("20261121-101512-k3f9")

FACTS = CallFacts(
    arguments='{"command":"ls"}',
    problems=(Problem(path="edits[0].old", message="not found", given="x"),),
    may_resolve=True,
    repairs=("closed a brace",),
    refusal="protected path",
    caution="reads outside",
    reveals="reads .env",
    cwd="/w",
    paths=("/w/a",),
    hosts=("docs.example",),
    command="ls",
    argv=("ls",),
    interpreter=("/usr/bin/python3", "-c"),
    diff="-a\n+b",
    hashes=("/w/a 00ff",),
    sandbox="bwrap hard",
    network=True,
    lacks=(Lack(by="git push", needs=SandboxSpec(hosts=("git.example",)), seen=True),),
    extra=SandboxSpec(
        network=True,
        git="commit",
        write=("/srv",),
        credentials=(Credential(name="api.example", env="T", header="X-Key: {}", methods=("GET",), paths=("/a/*",)),),
    ),
    extra_sandbox="bwrap hard, network",
    credentials=("T at api.example as X-Key: {}",),
)


QUESTION = ServerQuestion(server="tides", message="Who?", schema='{"type":"object"}', secrets=("key",), id="c.1.q1")


def _statuses() -> list[CallStatus]:
    known = Interruption(
        call_id=kit.a_call(TURN).id,
        attempt=1,
        started_at=1_790_000_000.5,
        output="half a line",
        processes=Processes.STOPPED,
        count=2,
    )
    waiting = replace(kit.awaiting("d3", AskReason.OUTCOME_UNKNOWN), facts=FACTS, attempt=1, interruption=known)
    went = {"facts": FACTS, "digest": "d", "verdict": Verdict.ASK, "decided_by": str(kit.ANA)}
    return [
        Inspecting(),
        Inspecting(
            before_edit=BeforeEdit(arguments="{}", status=waiting, edited_by=str(kit.BEN), repairs=("a comma",))
        ),
        Deferred(),
        *(kit.awaiting("d", reason) for reason in AskReason),
        waiting,
        Permitted(**went, attempt=1, fresh=True, interruption=known),  # type: ignore[arg-type]
        Rechecking(**went, attempt=1, interruption=known),  # type: ignore[arg-type]
        replace(kit.started(2), interruption=known),
        replace(kit.started(1), question=QUESTION),
        Reconciling(**went, attempt=2, interruption=known, known=replace(known, attempt=2)),  # type: ignore[arg-type]
        *(kit.settled(outcome) for outcome in Outcome),
    ]


def _calls() -> tuple[CallState, ...]:
    return tuple(
        CallState(call=replace(kit.a_call(TURN, index), repairs=("a",), problem="b"), status=status)
        for index, status in enumerate(_statuses(), 1)
    )


def _state(phase: Phase) -> TurnState:
    return TurnState(
        turn_id=TURN,
        session_id=SESSION,
        seq=3,
        parent_id=MessageId("20261121-101512-k3f9.1.m4"),
        grant=kit.a_grant(),
        phase=phase,
        messages=(kit.user(TURN), kit.assistant(TURN, "I list it.", calls=(kit.a_call(TURN),))),
        counters=Counters(
            requests=2,
            rounds=1,
            repairs=1,
            repairs_total=2,
            backup=1,
            same_call=2,
            last_call="ff",
            mistakes=(Mistake(signature="ee", times=2, request=2),),
            elided=1,
        ),
        usage=Usage(input_tokens=10, output_tokens=2, reasoning_tokens=1, cost=0.5),
        rounds=(RoundRecord(model="local", finish_reason="tool_calls", usage=None),),
    )


def _contract() -> StepContract:
    return StepContract(
        output_schema='{"type":"object"}',
        validations=(
            Validation(tool="check", subject=(Subject(argument="name", pointer="/name"),), depends_on=("file_edit",)),
            Validation(tool="lint"),
        ),
        patterns=(PatternGate(name="has a version", pattern="[0-9]", pointer="/version", negated=True),),
        order=("file_read", "file_edit"),
        once=("file_edit",),
        done=(DoneCall(tool="file_edit", arguments="{}", content="done", outcome=Outcome.UNKNOWN),),
        temperature=0.1,
        max_output_tokens=4096,
    )


def golden_states() -> dict[str, TurnState]:
    """By name. Their written form is what the newest golden file holds."""
    round_id = kit.in_round(*_calls()).round_id
    return {
        "awaiting_model": _state(kit.awaiting_model(TURN)),
        "awaiting_model_closing": _state(kit.awaiting_model(TURN, 9, purpose=Purpose.CLOSE)),
        "awaiting_responder": _state(
            kit.awaiting_model(
                TURN, 9, purpose=Purpose.RESPOND, gathered=AssistantMessage(id=MessageId("m"), text="42")
            )
        ),
        "in_round": _state(kit.in_round(*_calls())),
        "in_round_of_a_copy": _state(replace(kit.in_round(*_calls()), copied=True)),
        "in_round_about_the_budget": replace(
            _state(replace(kit.in_round(*_calls()), budget=BudgetQuestion(limit="cost", more=0.5, model="m"))),
            spending=Spending(
                earlier=(RoundRecord(model="m", finish_reason="stop", usage=None, duration_ms=7),),
                tools_ms=9,
                added=Budget(tokens=5, minutes=0.5),
                uncounted=("cost m",),
                cut_off=1,
                denied=True,
            ),
        ),
        "checking_answer": replace(
            _state(CheckingAnswer(round_id=round_id, purpose=Purpose.GATHER, text='{"a": 1}')), contract=_contract()
        ),
        "gate": replace(_state(kit.in_round(*_calls())), gate=CommandGate(name="builds", command="make", timeout_s=5)),
        "command": replace(_state(kit.in_round(*_calls())), command=OwnCommand(by=kit.ANA, decides=False)),
        "stopping_corrected": _state(
            Stopping(round_id=round_id, model="local", calls=_calls(), correction=Correction(text="No, the other"))
        ),
        "stopping": _state(Stopping(round_id=round_id, model="local", calls=_calls())),
        **{
            f"finished_{status.value}": _state(Finished(result=status, answer="A \ud83d", detail="why", advice="do"))
            for status in TurnStatus
        },
        "fresh": replace(_state(kit.awaiting_model(TURN)), parent_id=None, usage=None, seq=0),
    }


def golden_messages() -> list[Message]:
    """One of each kind."""
    return [
        kit.user(TURN),
        replace(
            kit.assistant(TURN, calls=(kit.a_call(TURN),)),
            reasoning="hm",
            finish_reason="stop",
            incomplete=True,
            usage=Usage(),
        ),
        ToolMessage(
            id=MessageId(f"{TURN}.m3"),
            call_id=kit.a_call(TURN).id,
            tool="shell_exec",
            arguments="{}",
            outcome=Outcome.DENIED,
            content="no",
            truncated=True,
            verdict=Verdict.DENY,
            decided_by="policy",
            duration_ms=4,
        ),
        RoleSwitchMessage(
            id=MessageId("r"), before="a", after="b", model="m", added=("x",), removed=("y",), suspended=1
        ),
        NoticeMessage(id=MessageId("n"), text="careful", advice="do", level="warning"),
    ]
