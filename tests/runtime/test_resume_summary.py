"""Resume summary: the one line on an unfinished session agrees with the stored state."""

from dataclasses import replace

from chatops.domain.decisions import Approved, Principal, Rejected
from chatops.domain.events import AskReason
from chatops.domain.tools import BUILT_IN_TOOLS, CallFacts, ToolSpec, Verdict
from chatops.engine.inputs import DecideCall
from chatops.engine.state import (
    CallState,
    CallStatus,
    CheckingAnswer,
    Deferred,
    InRound,
    Inspecting,
    Permitted,
    Phase,
    Purpose,
    Stopping,
)
from chatops.engine.view import permitted_calls
from chatops.runtime.descriptions import resume_summary, turn_summary
from chatops.store.base import DecisionRow
from tests.store import storekit as kit
from tests.store.storekit import memory_store
from tests.support import turns
from tests.support.cases import for_each

SPEC = ToolSpec(name="shell_exec", capabilities=BUILT_IN_TOOLS["shell_exec"], description="", schema="{}")
EDIT = CallFacts(arguments="{}", workspace="/w", paths=("/w/src/a.py", "/etc/b"))
LONG = "x" * 200


def permitted() -> Permitted:
    return Permitted(facts=kit.facts("ls"), digest="d1", verdict=Verdict.ASK, decided_by="ana")


def in_round(*statuses: CallStatus, spec: ToolSpec = SPEC) -> InRound:
    calls = tuple(
        CallState(call=kit.a_call(turns.TURN, number), status=status) for number, status in enumerate(statuses, start=1)
    )
    return InRound(
        round_id=turns.ROUND,
        proposed_under=replace(turns.grant(), tools=(spec,)),
        said="",
        model="local",
        calls=calls,
    )


def stopping() -> Stopping:
    calls = in_round(kit.started(), kit.settled()).calls
    return Stopping(round_id=turns.ROUND, model="local", calls=calls)


@for_each(
    ("phase", "said"),
    [
        (kit.awaiting_model(turns.TURN), "reply cut off"),
        (
            CheckingAnswer(round_id=turns.ROUND, purpose=Purpose.GATHER, text="{}"),
            "interrupted before the reply was checked",
        ),
        (in_round(kit.awaiting()), "waiting for your approval of shell_exec (ls)"),
        (in_round(replace(kit.awaiting(), facts=EDIT)), "waiting for your approval of shell_exec (src/a.py /etc/b)"),
        (in_round(kit.settled(), kit.awaiting()), "waiting for your approval of shell_exec (ls)"),
        (in_round(kit.awaiting(), permitted()), "waiting for your approval of shell_exec (ls)"),
        (
            in_round(kit.awaiting(reason=AskReason.OUTCOME_UNKNOWN)),
            "interrupted while running shell_exec (ls): outcome unknown",
        ),
        (in_round(kit.started()), "interrupted while running shell_exec (ls): outcome unknown"),
        (
            in_round(kit.started(), spec=replace(SPEC, idempotent=True)),
            "interrupted while running shell_exec (ls): it runs again on resume",
        ),
        (
            in_round(kit.started(), spec=replace(SPEC, reconcilable=True)),
            "interrupted while running shell_exec (ls): its effect is checked on resume",
        ),
        (in_round(permitted()), "interrupted before it started shell_exec (ls)"),
        (in_round(Inspecting()), "interrupted before it checked shell_exec"),
        (in_round(Deferred()), "interrupted before it checked shell_exec"),
        (in_round(kit.settled()), "interrupted between two requests"),
        (
            in_round(kit.started(), kit.awaiting()),
            "interrupted while running shell_exec (ls): outcome unknown; waiting for your approval of shell_exec (ls)",
        ),
        (stopping(), "interrupted while stopping shell_exec (ls): outcome unknown"),
        (kit.finished(), ""),
    ],
)
def test_the_summary_names_what_waits_or_was_interrupted(phase: Phase, said: str) -> None:
    assert turn_summary(turns.turn(phase), {}) == said


def test_a_permitted_call_waits_for_calls_only_if_one_before_it_has_no_result() -> None:
    second = kit.a_call(turns.TURN, 2).id
    assert permitted_calls(turns.turn(in_round(permitted(), permitted()))) == {second: "ana"}
    assert permitted_calls(turns.turn(in_round(kit.settled(), permitted()))) == {}


def test_a_posted_decision_that_was_not_taken_is_named() -> None:
    call = kit.a_call(turns.TURN)
    row = DecisionRow(
        call_id=call.id,
        session_id=turns.SESSION,
        tool=call.name,
        digest="d1",
        decision=Rejected(),
        by=Principal(uid=1),
        decided_at=0.0,
    )
    summary = turn_summary(turns.turn(in_round(kit.awaiting())), {call.id: row})
    assert summary == "denied in another terminal, not resumed yet: shell_exec (ls)"


def test_model_text_is_escaped_and_shortened() -> None:
    waiting = replace(kit.awaiting(), facts=CallFacts(arguments="{}", command=f"ls\x1b[2J\n\u202e{LONG}"))
    summary = turn_summary(turns.turn(in_round(waiting)), {})
    assert "\x1b" not in summary and "\n" not in summary and "\u202e" not in summary
    assert len(summary) < 150 and summary.endswith("…)")


def test_the_summary_includes_decisions_of_other_processes() -> None:
    store = memory_store()
    info = store.create_session(workspace="/w", role="coder", persona="p")
    assert resume_summary(store, info) == ""
    turn = store.next_turn_id(info.id)
    call = kit.a_call(turn)
    step = kit.begun(store, turn, info.id)
    assert resume_summary(store, store.session(info.id)) == "reply cut off"
    step = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())))
    store.commit(step)
    assert resume_summary(store, store.session(info.id)).startswith("waiting for your approval of shell_exec")
    store.post_decision(DecideCall(call_id=call.id, digest="d1", decision=Approved(), by=kit.ANA))
    assert resume_summary(store, store.session(info.id)).startswith("approved in another terminal")
    store.commit(kit.then(step, kit.finished()))
    assert resume_summary(store, store.session(info.id)) == ""
