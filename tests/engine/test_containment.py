"""The contained turn in the machine: where calls work, when the turn asks, and what no input can do."""

from dataclasses import replace

import pytest

from chatops.domain.canonical import canonical
from chatops.domain.decisions import Approved, Decision, Edited, Principal, Rejected
from chatops.domain.events import TurnStarted, TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import NoticeMessage, Usage
from chatops.domain.model import FailureKind, ModelFailure, ModelReply, ModelTarget
from chatops.domain.tools import (
    BUDGET_EXTEND,
    BUILT_IN_TOOLS,
    CONTAINED_APPLY,
    AccessLevel,
    CallFacts,
    Outcome,
    RawCall,
    ResultFacts,
    ToolResult,
    ToolSpec,
    Verdict,
)
from chatops.engine.effects import CallModel, DiscardCopy, InspectCall, ReconcileTool, RunTool, TurnStep
from chatops.engine.inputs import (
    CancelTurn,
    ContainTurn,
    DecideCall,
    InspectionInput,
    ModelFailureInput,
    ModelReplyInput,
    NarrowGrant,
    ReconcileInput,
    Recover,
    RetryTurn,
    ToolResultInput,
)
from chatops.engine.state import AwaitingModel, Finished, TurnState, new_turn
from chatops.engine.turn import advance, start
from chatops.engine.view import pending_calls, turn_status
from chatops.engine.without_model import start_undo
from chatops.policy.budget import Budget
from chatops.policy.grant import Grant
from chatops.policy.verdicts import Layer

USER = Principal(uid=1000, via="tui")
PROGRAM = Principal(uid=1000, via="python")


def grant(**more: object) -> Grant:
    tools = tuple(
        ToolSpec(
            name=name, description="", schema="{}", capabilities=BUILT_IN_TOOLS[name], read_only=name == "file_read"
        )
        for name in ("file_write", "shell_exec", "file_read", "web_fetch")
    )
    layer = Layer(name="asks", rules=(), default=Verdict.ASK)
    given = Grant(
        role="coder",
        level=AccessLevel.OPERATOR,
        models=(ModelTarget(name="m"),),
        prompt="",
        tools=tools,
        layers=(layer,),
    )
    return replace(given, **more)  # type: ignore[arg-type]


class Turn:
    """A turn, step by step."""

    def __init__(self, *, contained: bool = True, given: Grant | None = None) -> None:
        self.step: TurnStep = start(
            new_turn(TurnId("s.1"), SessionId("s"), grant=given or grant()), "work", contained=contained
        )

    @property
    def state(self) -> TurnState:
        return self.step.state

    def take(self, event: object) -> TurnStep:
        self.step = advance(self.state, event)  # type: ignore[arg-type]
        return self.step

    def reply(self, *made: tuple[str, str]) -> TurnStep:
        phase = self.state.phase
        assert isinstance(phase, AwaitingModel)
        calls = tuple(RawCall(name=name, arguments=arguments) for name, arguments in made)
        text = "" if made else "Done."
        return self.take(ModelReplyInput(round_id=phase.round_id, reply=ModelReply(text=text, calls=calls)))

    def inspected(self, **facts: object) -> TurnStep:
        """Answer the last inspection, in the place that was asked for."""
        (effect,) = [one for one in self.step.effects if isinstance(one, InspectCall)]
        found = CallFacts(arguments=effect.call.arguments, contained=effect.contained, **facts)  # type: ignore[arg-type]
        return self.take(InspectionInput(call_id=effect.call.id, facts=found))

    def returned(
        self, outcome: Outcome = Outcome.SUCCESS, content: str = "ok", *, not_chosen: tuple[str, ...] = ()
    ) -> TurnStep:
        (effect,) = [one for one in self.step.effects if isinstance(one, RunTool)]
        result = ToolResult(outcome=outcome, content=content, facts=ResultFacts(not_chosen=not_chosen))
        return self.take(ToolResultInput(call_id=effect.call.id, attempt=effect.attempt, result=result))

    def decide(self, decision: Decision, *, by: Principal = USER) -> TurnStep:
        (pending,) = pending_calls(self.state)
        return self.take(DecideCall(call_id=pending.call.id, digest=pending.digest, decision=decision, by=by))

    def write(self) -> None:
        """Let the model write a file in the copy."""
        self.reply(("file_write", '{"path": "a", "content": "x"}'))
        self.inspected()
        self.returned()

    def asked(self) -> "Turn":
        """Go on to the question about the changes."""
        self.write()
        self.reply()
        self.inspected(hashes=("changes 1",))
        return self


def test_a_turn_that_may_spend_no_more_still_asks_about_its_changes() -> None:
    turn = Turn(given=grant(budget=Budget(tokens=5)))
    phase = turn.state.phase
    assert isinstance(phase, AwaitingModel)
    asks = ModelReply(calls=(RawCall(name="file_write", arguments="{}"),), usage=Usage(input_tokens=9))
    turn.take(ModelReplyInput(round_id=phase.round_id, reply=asks))
    turn.inspected()
    turn.returned()
    assert pending_calls(turn.state)[0].call.name == BUDGET_EXTEND
    turn.decide(Rejected())
    turn.inspected(hashes=("changes 1",))
    (pending,) = pending_calls(turn.state)
    assert pending.call.name == CONTAINED_APPLY
    turn.decide(Approved())
    turn.inspected(hashes=("changes 1",))
    turn.returned(content="Applied 1 change: a.")
    assert isinstance(turn.state.phase, Finished) and turn.state.phase.result is TurnStatus.LIMIT


def test_writes_run_in_the_copy_without_a_question_and_the_end_asks_once() -> None:
    turn = Turn()
    turn.reply(("file_write", '{"path": "a", "content": "x"}'))
    (effect,) = [one for one in turn.step.effects if isinstance(one, InspectCall)]
    assert effect.contained == "s.1.c0"
    (run,) = [one for one in turn.inspected().effects if isinstance(one, RunTool)]
    assert run.facts.contained == "s.1.c0"
    turn.returned()
    turn.reply()
    (pending,) = pending_calls(turn.inspected(hashes=("changes 1",)).state)
    assert pending.call.name == CONTAINED_APPLY and turn_status(turn.state) is TurnStatus.PAUSED
    turn.decide(Approved(only=("a",)))
    (again,) = [one for one in turn.step.effects if isinstance(one, InspectCall)]
    assert canonical(["a"]) in again.call.arguments
    turn.inspected(hashes=("changes 1",))
    turn.returned(content="Applied 1 change: a.", not_chosen=("b",))
    assert isinstance(turn.state.phase, Finished) and turn.state.phase.answer == "Done."
    assert turn.state.containment is None and DiscardCopy(name="s.1.c0") in turn.step.effects
    notes = [m for m in turn.state.messages if isinstance(m, NoticeMessage) and m.for_model]
    assert [(note.text, note.not_chosen) for note in notes] == [("Applied 1 change: a.", ("b",))]


def test_the_retry_of_a_contained_turn_that_failed_is_contained_in_a_copy_of_its_own() -> None:
    for may_contain, copies in ((True, ["s.1.c1"]), (False, [""])):
        turn = Turn()
        assert isinstance(turn.state.phase, AwaitingModel)
        failure = ModelFailure(kind=FailureKind.REFUSED, message="no")
        turn.take(ModelFailureInput(round_id=turn.state.phase.round_id, failure=failure))
        assert DiscardCopy(name="s.1.c0") in turn.step.effects and turn_status(turn.state) is TurnStatus.FAILED
        turn.take(RetryTurn(grant=grant(may_contain=may_contain)))
        turn.reply(("file_write", "{}"))
        assert [one.contained for one in turn.step.effects if isinstance(one, InspectCall)] == copies


def test_web_tools_ask_and_reads_stay_outside_until_there_is_a_copy() -> None:
    turn = Turn()
    turn.reply(("web_fetch", '{"url": "https://example.org"}'))
    turn.inspected(hosts=("example.org",))
    assert [one.call.name for one in pending_calls(turn.state)] == ["web_fetch"]
    turn = Turn()
    (effect,) = [one for one in turn.reply(("file_read", '{"path": "a"}')).effects if isinstance(one, InspectCall)]
    assert effect.contained == ""
    turn = Turn()
    turn.write()
    (effect,) = [one for one in turn.reply(("file_read", '{"path": "a"}')).effects if isinstance(one, InspectCall)]
    assert effect.contained == "s.1.c0"


def test_a_deny_stays_a_deny_and_a_site_can_forbid() -> None:
    denies = Layer(name="no", rules=(), default=Verdict.DENY)
    turn = Turn(given=grant().narrowed(denies))
    turn.reply(("file_write", '{"path": "a", "content": "x"}'))
    assert not [one for one in turn.step.effects if isinstance(one, InspectCall | RunTool)]
    assert Turn(given=grant(may_contain=False)).state.containment is None
    turn = Turn()
    turn.reply(("file_write", '{"path": "a", "content": "x"}'))
    effects = turn.step.effects
    turn.take(NarrowGrant(layers=(), may_contain=False))
    turn.step = replace(turn.step, effects=effects)
    turn.inspected()
    assert [one.call.name for one in pending_calls(turn.state)] == ["file_write"]


def test_a_pending_call_moves_into_the_copy() -> None:
    turn = Turn(contained=False)
    turn.reply(("file_write", '{"path": "a", "content": "x"}'))
    turn.inspected()
    assert pending_calls(turn.state)
    turn.take(ContainTurn())
    (run,) = [one for one in turn.inspected().effects if isinstance(one, RunTool)]
    assert run.facts.contained


def test_the_end_of_the_containment_asks_and_the_turn_goes_on() -> None:
    turn = Turn()
    turn.reply(("file_write", '{"path": "a", "content": "x"}'))
    turn.inspected()
    effects = turn.step.effects
    turn.take(ContainTurn(on=False))
    turn.step = replace(turn.step, effects=effects)
    turn.returned()
    turn.inspected(hashes=("changes 1",))
    turn.decide(Rejected())
    assert isinstance(turn.state.phase, AwaitingModel) and turn.state.containment is None
    (request,) = [one.request for one in turn.step.effects if isinstance(one, CallModel)]
    assert "discarded" in str(request.messages[-1])


def test_sent_back_the_model_goes_on_in_the_same_copy_with_another_list() -> None:
    turn = Turn().asked()
    turn.decide(Rejected(reason="use tabs", send_back=True))
    assert isinstance(turn.state.phase, AwaitingModel)
    assert turn.state.containment is not None and turn.state.containment.name == "s.1.c0"
    assert not [one for one in turn.step.effects if isinstance(one, DiscardCopy)]
    turn.reply()
    (effect,) = [one for one in turn.step.effects if isinstance(one, InspectCall)]
    assert '"list":2' in effect.call.arguments.replace(" ", "")
    turn.inspected(hashes=("changes 2",))
    assert "list 2" in pending_calls(turn.state)[0].why and "use tabs" in pending_calls(turn.state)[0].why
    (note,) = [m for m in turn.state.messages if isinstance(m, NoticeMessage)]
    assert "you go on" in note.to_model and "you" not in note.text.split()


@pytest.mark.parametrize("decision", [Approved(), Edited(arguments='{"turn": "other"}')])
def test_no_program_applies_and_nobody_edits(decision: Decision) -> None:
    turn = Turn().asked()
    before = turn.state
    turn.decide(decision, by=PROGRAM)
    assert turn.state == before
    turn.decide(Edited(arguments='{"turn": "other"}'))
    assert turn.state == before


def test_neither_a_stop_nor_lost_rights_discard_the_changes() -> None:
    turn = Turn().asked()
    before = turn.state
    turn.take(CancelTurn())
    assert turn.state == before
    turn.take(NarrowGrant(layers=(Layer(name="viewer", rules=(), default=Verdict.DENY),)))
    (pending,) = pending_calls(turn.state)
    assert pending.denial is not None and "file_write" in pending.denial.by
    turn.decide(Approved())
    assert len(pending_calls(turn.state)) == 1


def test_what_changed_since_the_approval_asks_again() -> None:
    turn = Turn().asked()
    turn.decide(Approved())
    turn.inspected(hashes=("changes 1", "conflict a"))
    (pending,) = pending_calls(turn.state)
    assert "changed" in pending.why
    turn.decide(Approved())
    turn.inspected(hashes=("changes 1", "conflict a"))
    turn.returned(Outcome.INVALID, "Nothing was applied: No space left on device.")
    (pending,) = pending_calls(turn.state)
    assert "No space left" in pending.why


def test_a_crash_while_applying_is_found_out_and_one_in_the_copy_is_not_asked_about() -> None:
    turn = Turn().asked()
    turn.decide(Approved())
    turn.inspected(hashes=("changes 1",))
    turn.take(Recover(grant=grant()))
    (asks,) = [one for one in turn.step.effects if isinstance(one, ReconcileTool)]
    done = ToolResult(outcome=Outcome.SUCCESS, content="Applied 1 change: a.")
    turn.take(ReconcileInput(call_id=asks.call.id, attempt=asks.attempt, result=done))
    assert isinstance(turn.state.phase, Finished)
    turn = Turn()
    turn.reply(("shell_exec", '{"command": "make"}'))
    turn.inspected(command="make")
    turn.take(Recover(grant=grant()))
    assert not pending_calls(turn.state) and isinstance(turn.state.phase, AwaitingModel)


def test_a_model_that_names_the_call_gets_an_unknown_tool() -> None:
    turn = Turn()
    turn.write()
    turn.reply((CONTAINED_APPLY, '{"turn": "s.1.c0"}'))
    assert isinstance(turn.state.phase, AwaitingModel)
    assert turn.state.containment is not None and turn.state.containment.used
    assert "There is no tool" in str(turn.state.messages[-1])


class Undo(Turn):
    """A turn that asks to take back what an earlier one changed."""

    def __init__(self) -> None:
        self.step = start_undo(new_turn(TurnId("s.2"), SessionId("s"), grant=grant()), name="s.1.c0", text="/undo")
        self.started = self.step.events
        self.inspected(hashes=("changes 1",))


def test_an_undo_is_recorded_with_what_the_user_typed() -> None:
    assert [event.text for event in Undo().started if isinstance(event, TurnStarted)] == ["/undo"]


def test_an_undo_is_not_sent_back_and_can_be_of_some_files() -> None:
    turn = Undo()
    before = turn.state
    turn.decide(Rejected(reason="why", send_back=True))
    assert turn.state == before
    turn.decide(Approved(only=("a",)))
    (effect,) = [one for one in turn.step.effects if isinstance(one, InspectCall)]
    assert '"only":["a"]' in effect.call.arguments


def test_denying_an_undo_says_that_the_changes_stay() -> None:
    turn = Undo()
    turn.decide(Rejected(reason="I need them"))
    assert isinstance(turn.state.phase, Finished)
    (note,) = [m.to_model for m in turn.state.messages if isinstance(m, NoticeMessage) and m.for_model]
    assert "stay applied" in note and "I need them" in note and "discarded" not in note


def test_without_the_right_to_write_nothing_is_taken_back() -> None:
    turn = Undo()
    turn.take(NarrowGrant(layers=(Layer(name="viewer", rules=(), default=Verdict.DENY),)))
    (pending,) = pending_calls(turn.state)
    assert pending.denial is not None and "file_write" in pending.denial.by
