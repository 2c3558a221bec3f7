"""Tests that every store has to pass about turns and their journal; the fixtures are those of `conformance`."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.errors import ConflictError, NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Usage
from chatops.domain.tools import Outcome, Verdict
from chatops.engine.effects import TurnStep, VerdictRecord
from chatops.engine.state import CallState
from chatops.store.audit import entry_of
from chatops.store.base import SessionInfo
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.conformance import World


class TurnConformance:
    def test_turn_ids_are_numbered_and_never_given_twice(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        given = [store.next_turn_id(session.id), opened().next_turn_id(session.id), store.next_turn_id(session.id)]
        assert given == [f"{session.id}.1", f"{session.id}.2", f"{session.id}.3"]
        store.commit(kit.first(TurnId(f"{session.id}.4"), session.id))
        assert store.next_turn_id(session.id) == f"{session.id}.5"

    def test_a_finished_turn_keeps_its_usage_and_not_its_state_once_another_one_follows(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        spent = Usage(input_tokens=7, output_tokens=2)
        step = kit.begun(store, turn, session.id)
        done = kit.then(replace(step, state=replace(step.state, usage=spent)), kit.finished())
        store.commit(done)
        assert store.load_turn(turn) == done.state
        history = store.history(session.id)
        following = store.next_turn_id(session.id)
        store.commit(kit.first(following, session.id, parent=store.session(session.id).head, history=history))
        assert store.usage(session.id) == spent
        assert store.history(session.id)[: len(history)] == history
        with pytest.raises(UnreadableError):
            store.load_turn(turn)
        # A caller that did not learn of the commit may repeat it.
        store.commit(done)
        assert store.session(session.id).active_turn == following

    def test_a_committed_turn_loads_as_it_was_with_its_bodies(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        earlier = kit.user("old", "earlier")
        store.append_message(session.id, earlier)
        step = kit.first(turn, session.id, parent=earlier.id, history=(earlier,))
        store.commit(step)
        assert store.load_turn(turn) == step.state
        call = kit.a_call(turn)
        said = kit.assistant(turn, calls=(call,))
        ask = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())), said)
        store.commit(ask)
        assert store.load_turn(turn) == ask.state
        assert store.history(session.id) == (earlier, kit.user(turn), said)
        assert store.unfinished_turns() == [turn]
        info = store.session(session.id)
        assert (info.active_turn, info.last_turn, info.pending, info.messages) == (turn, turn, 1, 3)
        assert info.title == "earlier"

    def test_a_finished_turn_keeps_its_checkpoint_and_is_no_longer_active(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        done = kit.then(step, kit.finished(), kit.assistant(turn))
        store.commit(done)
        assert store.load_turn(turn) == done.state
        info = store.session(session.id)
        assert (info.active_turn, info.last_turn, info.head) == (None, turn, kit.assistant(turn).id)
        retried = kit.then(done, kit.awaiting_model(turn, 2))
        store.commit(retried)
        assert store.session(session.id).active_turn == turn

    def test_the_usage_of_a_session_is_the_sum_over_its_turns(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        assert store.usage(session.id) is None
        head: MessageId | None = None
        given: list[TurnId] = []
        for cost, spent in ((None, 10), (0.5, 20), (None, None)):
            given.append(turn if not given else store.next_turn_id(session.id))
            step = kit.first(given[-1], session.id, parent=head)
            usage = Usage(input_tokens=spent, output_tokens=1, cost=cost) if spent is not None else None
            store.commit(replace(step, state=replace(step.state, usage=usage, phase=kit.finished())))
            head = step.state.messages[-1].id
        assert store.usage(session.id) == Usage(input_tokens=30, output_tokens=2, cost=0.5)
        assert store.usage(session.id, besides=given[1]) == Usage(input_tokens=10, output_tokens=1)
        assert store.usage(store.fork_session(session.id).id) is None

    def test_a_call_that_was_denied_unseen_has_its_row_with_the_workspace(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step, call = kit.first(turn, session.id), kit.a_call(turn)
        denied = VerdictRecord(call=call, verdict=Verdict.DENY, why="no", grants=(kit.a_grant(),), model="local")
        store.commit(replace(step, verdicts=(denied,)))
        row = entry_of(store.audit(session_id=session.id)[-1].body)
        assert (row["verdict"], row["tool"], row["level"], row["model"]) == ("deny", call.name, "operator", "local")
        assert row["workspace"] == session.workspace and "facts" not in row

    def test_an_unknown_turn_is_unreadable(self, store: Store) -> None:
        with pytest.raises(UnreadableError):
            store.load_turn(TurnId("nope.1"))

    @pytest.mark.parametrize("seq", [1, 5])
    def test_a_turn_begins_at_zero(self, store: Store, session: SessionInfo, turn: TurnId, seq: int) -> None:
        with pytest.raises(ConflictError):
            store.commit(kit.first(turn, session.id, seq=seq))
        assert store.history(session.id) == ()

    def test_a_step_that_does_not_follow_is_a_conflict_and_stores_nothing(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        second = kit.then(step, kit.finished("one"), kit.assistant(turn, "one"))
        gap = kit.then(second, kit.finished("three"), kit.assistant(turn, "three", 3))
        with pytest.raises(ConflictError):
            store.commit(gap)
        store.commit(second)
        with pytest.raises(ConflictError):
            store.commit(kit.then(step, kit.finished("two"), kit.assistant(turn, "two", 4)))
        with pytest.raises(ConflictError):
            store.commit(step)
        assert store.load_turn(turn) == second.state
        assert store.history(session.id) == second.state.messages

    def test_the_very_same_step_again_is_recognised(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        store.commit(step)
        runs = kit.then(
            step,
            kit.in_round(CallState(call=call, status=kit.started())),
            kit.assistant(turn, calls=(call,)),
            effects=(kit.run(call),),
            decisions=(kit.record(call),),
            rules=(kit.remembered(),),
        )
        store.commit(runs)
        store.commit(runs)
        assert len(store.journal(turn)) == len(store.decisions()) == len(store.rules(session_id=session.id)) == 1
        assert store.session(session.id).messages == 2

    def test_another_process_with_the_same_step_is_refused_so_that_only_one_performs_it(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        runs = kit.then(step, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),))
        store.commit(runs)
        with pytest.raises(ConflictError):
            opened().commit(runs)
        assert len(store.journal(turn)) == 1

    def test_the_same_state_and_nothing_else_is_harmless_from_anywhere(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.begun(store, turn, session.id)
        opened().commit(TurnStep(state=step.state))
        with pytest.raises(ConflictError):
            opened().commit(TurnStep(state=replace(step.state, phase=kit.finished())))
        assert store.load_turn(turn) == step.state

    def test_a_turn_must_begin_at_the_head(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        store.append_message(session.id, kit.user("old"))
        with pytest.raises(ConflictError):
            store.commit(kit.first(turn, session.id))

    def test_one_turn_of_a_session_at_a_time(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        step = kit.begun(store, turn, session.id)
        second = store.next_turn_id(session.id)
        with pytest.raises(ConflictError):
            store.commit(kit.first(second, session.id, parent=kit.user(turn).id))
        store.commit(kit.then(step, kit.finished()))
        store.commit(kit.first(second, session.id, parent=kit.user(turn).id))
        assert store.session(session.id).active_turn == second

    def test_a_step_of_no_session_is_refused(self, store: Store) -> None:
        with pytest.raises(NoSuchSessionError):
            store.commit(kit.first(TurnId("gone.1"), SessionId("gone")))

    def test_a_state_that_names_an_unstored_message_is_refused(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        with pytest.raises(StoreError):
            store.commit(replace(kit.first(turn, session.id), messages=()))
        assert store.session(session.id).last_turn is None

    def test_an_intent_is_stored_with_who_runs_it_and_closed_by_its_result(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        runs = kit.then(step, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),))
        store.commit(runs)
        (row,) = store.journal(turn)
        assert (row.call_id, row.attempt, row.tool, row.digest) == (call.id, 1, "shell_exec", "d1")
        assert row.arguments == kit.facts().arguments
        assert (row.boot_id, row.pid, row.pid_started) == ("b1", 77, "100")
        assert (row.outcome, row.finished_at, row.started_at) == (None, None, world.now)
        world.now += 5
        odd = kit.closing(call, outcome=Outcome.FAILED, content="\udcff\x00 exit 1")
        store.commit(kit.then(runs, kit.awaiting_model(turn, 2), results=(odd,)))
        (row,) = store.journal(turn)
        assert (row.outcome, row.result, row.finished_at) == (Outcome.FAILED, "\udcff\x00 exit 1", world.now)

    def test_the_same_attempt_is_never_started_twice(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        phase = kit.in_round(CallState(call=call, status=kit.started()))
        runs = kit.then(step, phase, effects=(kit.run(call),))
        store.commit(runs)
        with pytest.raises(ConflictError):
            store.commit(kit.then(runs, phase, kit.assistant(turn), effects=(kit.run(call),)))
        assert store.load_turn(turn) == runs.state
        assert store.history(session.id) == (kit.user(turn),)
        store.commit(kit.then(runs, phase, effects=(kit.run(call, attempt=2),)))
        assert [row.attempt for row in store.journal(turn)] == [1, 2]

    def test_an_unknown_outcome_is_replaced_and_a_known_one_stays(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        phase = kit.in_round(CallState(call=call, status=kit.started()))
        outcomes = [Outcome.UNKNOWN, Outcome.SUCCESS, Outcome.FAILED]
        step = kit.then(step, phase, effects=(kit.run(call),))
        store.commit(step)
        seen = []
        for outcome in outcomes:
            step = kit.then(step, phase, results=(kit.closing(call, outcome=outcome),))
            store.commit(step)
            seen.append(store.journal(turn)[0].outcome)
        assert seen == [Outcome.UNKNOWN, Outcome.SUCCESS, Outcome.SUCCESS]

    def test_a_result_without_an_intent_is_refused(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        step = kit.begun(store, turn, session.id)
        with pytest.raises(StoreError):
            store.commit(kit.then(step, kit.finished(), results=(kit.closing(kit.a_call(turn)),)))
        assert store.load_turn(turn) == step.state
