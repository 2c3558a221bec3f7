"""Calls in doubt: interrupted, perhaps with effect. What is known of them is kept, and nobody is told that they did not
run."""

from dataclasses import replace

import pytest

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected
from chatops.domain.events import AskReason, TurnStatus
from chatops.domain.ids import CallId
from chatops.domain.tools import CallFacts, Interruption, Outcome, Processes, ToolResult, ToolSpec, Verdict
from chatops.engine import feedback
from chatops.engine.effects import ReconcileTool, RunTool
from chatops.engine.inputs import CancelTurn, DecideCall, ReconcileInput, Recover
from chatops.engine.inspection import difference
from chatops.engine.recovery import STOPPED_WHILE_RUNNING, unknown_attempts
from chatops.engine.state import AwaitingDecision, InRound, Reconciling
from chatops.engine.turn import advance
from chatops.engine.view import pending_calls, turn_status
from tests.engine.world import ANA, FREE, READ, World, grant, raw, reply
from tests.support.cases import for_each

CALL = CallId("s.1.1.1")
KNOWN = Interruption(
    call_id=CALL, attempt=1, started_at=1e9, output="half a line", processes=Processes.STOPPED, count=2
)


def started(tool: str = "run") -> World:
    """A world in which a call has been started, and nothing has come of it yet."""
    world = World.begin()
    world.perform(0, model=reply(raw(tool)))
    world.perform(0)
    if pending_calls(world.state):
        world.decide(0, Approved())
        world.perform(0)
    assert isinstance(world.flying[-1], RunTool)
    return world


def died(world: World, *known: Interruption, lose: bool = True) -> World:
    """The app dies, with the effect (`lose`) or before it, and this is known afterwards."""
    if lose:
        world.perform(0, lose=True)
    world.flying.clear()
    world.feed(Recover(grant=world.state.grant, interrupted=known))
    return world


def outcome_unknown() -> World:
    """A world in which a user is asked about a call that took effect."""
    return died(started(), KNOWN)


def status(world: World) -> AwaitingDecision:
    """Of the one call."""
    assert isinstance(world.state.phase, InRound)
    waiting = world.state.phase.calls[0].status
    assert isinstance(waiting, AwaitingDecision)
    return waiting


def test_what_is_known_is_shown_and_outlives_further_deaths() -> None:
    world = outcome_unknown()
    (pending,) = pending_calls(world.state)
    assert (pending.reason, pending.why, pending.interruption) == (
        AskReason.OUTCOME_UNKNOWN,
        STOPPED_WHILE_RUNNING,
        KNOWN,
    )
    assert unknown_attempts(world.state) == ()
    world.crash()
    assert pending_calls(world.state) == (pending,)


def test_where_nothing_is_known_its_outcome_is_unknown_too() -> None:
    (pending,) = pending_calls(died(started()).state)
    assert pending.outcome_unknown
    assert pending.interruption == Interruption(call_id=CALL, attempt=1)


@pytest.mark.parametrize(
    ("changed", "settles"),
    [
        (replace(FREE, read_only=True), True),
        (replace(FREE, idempotent=True), False),
        (replace(FREE, reconcilable=True), False),
    ],
    ids=["read-only", "idempotent", "reconcilable"],
)
@pytest.mark.parametrize("processes", [Processes.GONE, Processes.OTHER_MACHINE])
def test_what_ran_on_another_machine_is_neither_run_again_nor_reconciled(
    changed: ToolSpec, settles: bool, processes: Processes
) -> None:
    world = World.begin(grant(tools=(changed,)))
    world.perform(0, model=reply(raw("free")))
    world.perform(0)
    died(world, replace(KNOWN, processes=processes), lose=False)
    here = processes is Processes.GONE
    asked = [(one.reason, one.interruption is not None) for one in pending_calls(world.state)]
    world.drain()
    assert (len(world.starts) > 1 or any(one.outcome is Outcome.SUCCESS for one in world.results())) == here
    assert asked == ([] if here or settles else [(AskReason.OUTCOME_UNKNOWN, True)])


def test_attempts_under_way_are_the_ones_to_find_out_about() -> None:
    world = started()
    assert unknown_attempts(world.state) == ((CALL, 1),)
    world.perform(0)
    assert unknown_attempts(world.state) == ()


def test_an_answer_to_the_first_question_is_none_to_the_second() -> None:
    world = World.begin()
    world.drain(reply(raw("run")))
    (first,) = pending_calls(world.state)
    world.decide(0, Approved())
    world.perform(0)
    died(world, KNOWN)
    (second,) = pending_calls(world.state)
    assert second.digest != first.digest
    late = DecideCall(call_id=first.call.id, digest=first.digest, decision=Approved(), by=ANA)
    assert advance(world.state, late).state is world.state


def test_a_second_run_is_an_attempt_of_its_own_and_its_result_says_so() -> None:
    world = died(started(), KNOWN, lose=False)
    step = world.decide(0, Approved())
    (closed,) = step.results
    assert (closed.attempt, closed.result.outcome) == (1, Outcome.UNKNOWN)
    world.drain()
    (result,) = world.results()
    assert result.outcome is Outcome.SUCCESS
    assert result.content.startswith("(An earlier run of this call was interrupted and may have taken effect;")
    assert result.content.endswith(f"ran {CALL}")
    assert sorted(world.starts) == [(CALL, 1), (CALL, 2)]


@pytest.mark.parametrize(
    ("decision", "outcome", "says"),
    [
        (Rejected(reason="look first"), Outcome.UNKNOWN, f"{feedback.UNKNOWN_OUTCOME} look first"),
        (MarkedDone(note="it is there"), Outcome.SUCCESS, f"{feedback.MARKED_DONE} it is there"),
    ],
)
def test_the_model_gets_the_users_word_and_the_output(decision: Decision, outcome: Outcome, says: str) -> None:
    world = outcome_unknown()
    world.decide(0, decision)
    world.drain()
    (result,) = world.results()
    assert result.outcome is outcome
    assert result.content == f"{says}\nIts output up to the interruption:\nhalf a line"


@pytest.mark.parametrize(
    ("decision", "asks"),
    [(Rejected(), True), (MarkedDone(), False), (Approved(), False)],
    ids=["unknown", "done", "again"],
)
def test_the_model_does_not_repeat_a_call_whose_outcome_the_user_left_unknown(decision: Decision, asks: bool) -> None:
    """However freely the tool may be used: the same words once more might do the same once more."""
    world = died(started("free"), KNOWN, lose=False)
    world.decide(0, decision)
    world.drain(reply(raw("free", '{"n":2}')), reply(raw("free")))
    assert [(one.call.name, one.reason, one.why) for one in pending_calls(world.state)] == (
        [("free", AskReason.POLICY, feedback.SAME_CALL_UNKNOWN)] if asks else []
    )
    if not asks:
        return
    world.decide(0, Approved())
    world.drain(reply(raw("free")))
    assert [one.outcome for one in world.results()] == [Outcome.UNKNOWN, *[Outcome.SUCCESS] * 3]


def test_a_tool_that_can_be_repeated_is_free_to_be_repeated() -> None:
    again = replace(FREE, idempotent=True)
    world = World.begin(grant(tools=(again,)))
    world.tool_says = lambda call: ToolResult(outcome=Outcome.UNKNOWN, content="it did not stop")
    world.drain(reply(raw("free")), reply(raw("free")))
    assert [one.outcome for one in world.results()] == [Outcome.UNKNOWN] * 2


def test_a_call_of_unknown_outcome_is_not_edited_into_another() -> None:
    world = outcome_unknown()
    assert world.decide(0, Edited(arguments='{"n":1}')).state is world.state


def test_a_refusal_before_the_second_run_is_not_told_as_if_it_had_never_run() -> None:
    world = outcome_unknown()
    world.decide(0, Approved())
    world.crash(now=grant("coder", (READ,)))
    world.drain()
    (result,) = world.results()
    assert result.outcome is Outcome.UNKNOWN
    assert "The user wanted it run again, which was not possible: Not permitted: run" in result.content


def test_what_has_changed_before_the_second_run_is_asked_and_stays_unknown() -> None:
    world = outcome_unknown()
    world.decide(0, Approved())
    world.drain()
    (pending,) = pending_calls(world.state)
    assert (pending.reason, pending.outcome_unknown, pending.interruption) == (AskReason.CHANGED, True, KNOWN)
    assert pending.why == "what would run has changed since it was approved: the content of file"
    world.decide(0, Rejected())
    world.drain()
    (result,) = world.results()
    assert result.outcome is Outcome.UNKNOWN


def test_a_turn_that_is_stopped_leaves_the_outcome_unknown() -> None:
    for again in (False, True):
        world = outcome_unknown()
        if again:
            world.decide(0, Approved())
        world.feed(CancelTurn())
        world.drain()
        (result,) = world.results()
        assert result.outcome is Outcome.UNKNOWN
        assert "half a line" in result.content


def test_a_stored_question_that_is_not_about_the_call_beside_it_lets_nothing_run() -> None:
    world = outcome_unknown()
    waiting = status(world)
    other = replace(waiting, facts=replace(waiting.facts, arguments='{"n":2}'))
    assert isinstance(world.state.phase, InRound)
    calls = (replace(world.state.phase.calls[0], status=other),)
    world.state = replace(world.state, phase=replace(world.state.phase, calls=calls))
    decided = DecideCall(call_id=CALL, digest=other.digest, decision=Approved(), by=ANA)
    world.feed(decided)
    world.drain()
    (pending,) = pending_calls(world.state)
    assert pending.reason is AskReason.CHANGED
    assert (CALL, 2) not in world.starts


def test_a_state_of_before_anything_was_kept_gets_what_is_known_and_can_be_answered() -> None:
    world = outcome_unknown()
    waiting = status(world)
    assert isinstance(world.state.phase, InRound)
    bound = next(effect.digest for step in world.steps for effect in step.effects if isinstance(effect, RunTool))
    old = replace(waiting, interruption=None, digest=bound)
    calls = (replace(world.state.phase.calls[0], status=old),)
    world.state = replace(world.state, phase=replace(world.state.phase, calls=calls))
    assert unknown_attempts(world.state) == ((CALL, 1),)
    for known in ((), (KNOWN,)):
        world.feed(Recover(grant=world.state.grant, interrupted=known))
        (pending,) = pending_calls(world.state)
        assert (pending.digest, pending.outcome_unknown, pending.interruption) == (bound, True, *(known or (None,)))
    world.decide(0, MarkedDone())
    world.drain()
    assert turn_status(world.state) is TurnStatus.ANSWERED


def test_what_the_tool_saw_is_why_a_user_is_asked() -> None:
    world = died(started("write"), KNOWN)
    (effect,) = world.flying
    assert isinstance(effect, ReconcileTool)
    world.flying.clear()
    world.feed(ReconcileInput(call_id=CALL, attempt=1, result=None, found="something else has changed it"))
    (pending,) = pending_calls(world.state)
    assert (pending.why, pending.interruption) == ("something else has changed it", KNOWN)


def test_what_is_known_is_kept_while_the_tool_looks_and_the_app_dies_again() -> None:
    world = died(started("write"), KNOWN)
    world.crash()
    assert isinstance(world.state.phase, InRound)
    looking = world.state.phase.calls[0].status
    assert isinstance(looking, Reconciling)
    assert looking.known == KNOWN


@for_each(
    ("tool", "took_effect", "outcome"),
    [
        ("read", True, Outcome.INTERRUPTED),
        ("write", True, Outcome.SUCCESS),
        ("write", False, Outcome.INTERRUPTED),
        ("run", True, Outcome.UNKNOWN),
    ],
)
def test_killed_while_it_was_being_stopped_each_call_gets_a_true_result(
    tool: str, took_effect: bool, outcome: Outcome
) -> None:
    world = started(tool)
    world.feed(CancelTurn())
    died(world, KNOWN, lose=took_effect)
    world.drain()
    (result,) = world.results()
    assert result.outcome is outcome
    assert world.finished.result is TurnStatus.CANCELLED
    assert max(attempt for _, attempt in world.starts) == 1


def test_killed_while_it_was_being_stopped_and_something_else_is_there_it_is_unknown() -> None:
    world = started("write")
    world.feed(CancelTurn())
    died(world, KNOWN)
    world.flying.clear()
    world.feed(ReconcileInput(call_id=CALL, attempt=1, result=None, found="something else has changed it"))
    (result,) = world.results()
    assert result.outcome is Outcome.UNKNOWN
    assert "something else has changed it" in result.content


def test_the_outcome_of_a_repeated_read_is_known() -> None:
    world = World.begin()
    world.perform(0, model=reply(raw("read")))
    world.perform(0)
    died(world, KNOWN)
    world.drain()
    (result,) = world.results()
    assert result.content == f"ran {CALL}"


FACTS = CallFacts(
    arguments="{}",
    cwd="/ws",
    command="./run.sh",
    paths=("/ws/a",),
    hashes=("/ws/run.sh 00", "/ws/a 11", "/ws/a becomes 22"),
    sandbox="bubblewrap",
)


@for_each(
    ("after", "words"),
    [
        ({"hashes": ("/ws/run.sh 01", *FACTS.hashes[1:])}, "the content of /ws/run.sh"),
        ({"hashes": FACTS.hashes[1:]}, "the content of /ws/run.sh"),
        ({"hashes": (*FACTS.hashes[:2], "/ws/a becomes 23")}, "the change it makes"),
        ({"sandbox": ""}, "the sandbox, now: none"),
        ({"network": True}, "the network, now: yes"),
        ({"cwd": "/ws/b", "paths": ()}, "the folder it runs in; the files it touches"),
        (
            {"command": "a", "cwd": "b", "hosts": ("c",), "paths": (), "argv": ("d",)},
            "the command; the words of the command; the folder it runs in; 2 more",
        ),
        ({}, "the tool, its arguments or the role it runs under"),
    ],
)
def test_what_differs_is_named(after: dict[str, object], words: str) -> None:
    assert difference(FACTS, replace(FACTS, **after)) == words  # type: ignore[arg-type]


def test_a_result_that_was_settled_keeps_its_verdict() -> None:
    world = outcome_unknown()
    world.decide(0, MarkedDone())
    world.drain()
    (result,) = world.results()
    assert (result.verdict, result.decided_by) == (Verdict.ASK, str(ANA))
