"""Tests that every store has to pass about pending calls and decisions; the fixtures are those of `conformance`."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.decisions import Approved, Decision, Edited, Rejected
from chatops.domain.errors import AlreadyDecidedError
from chatops.domain.events import AskReason
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.tools import Verdict
from chatops.engine.effects import DecisionRecord
from chatops.engine.state import CallState, Inspecting, Permitted, Stopping
from chatops.store.base import SessionInfo
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.store.conformance import World


class QueueConformance:
    def test_waiting_calls_are_in_the_queue_with_all_a_dialog_shows(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        kit.pending_turn(store, session, turn)
        queued = store.pending_calls()
        assert [row.pending.digest for row in queued] == ["d1", "d2"]
        shown = queued[0].pending
        assert (shown.call, shown.facts, shown.why) == (kit.a_call(turn), kit.facts(), "role coder asks")
        assert (shown.role, shown.model, shown.said) == ("coder", "local", "I list it.")
        assert (queued[0].session_id, queued[0].turn_id, queued[0].requested_at) == (session.id, turn, world.now)
        assert queued[0].decided is None
        assert store.pending_calls(session_id=session.id) == queued
        assert store.pending_calls(session_id=SessionId("other")) == []

    def test_the_queue_is_oldest_first_over_all_sessions(self, store: Store, world: World) -> None:
        made = [store.create_session(workspace="/w", role="r", persona="p") for _ in range(3)]
        for info in made:
            world.now -= 1000
            kit.pending_turn(store, info, store.next_turn_id(info.id), calls=1)
        assert [row.session_id for row in store.pending_calls()] == [info.id for info in made]

    def test_the_first_decision_wins_from_every_entry_point(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        kit.pending_turn(store, session, turn)
        call = kit.a_call(turn)
        assert opened().post_decision(kit.decided(call)) is True
        world.now += 9
        assert store.post_decision(replace(kit.decided(call), decision=Rejected(reason="no"), by=kit.BEN)) is False
        assert store.posted_decisions(turn) == [kit.decided(call)]
        shown = store.pending_calls()[0].decided
        assert shown is not None
        assert (shown.decision, shown.by, shown.digest, shown.tool) == (Approved(), kit.ANA, "d1", "shell_exec")
        # The database has a clock of its own.
        assert shown.by.member or shown.decided_at == world.now - 9
        assert store.pending_calls()[1].decided is None

    def test_a_turn_takes_only_the_decision_that_was_posted_first(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        """The process that posted it was told that it counts."""
        ask = kit.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        denied = replace(kit.decided(call), decision=Rejected(reason="no"), by=kit.BEN)
        assert opened().post_decision(denied) is True
        started = kit.then(
            ask,
            kit.in_round(CallState(call=call, status=kit.started())),
            effects=(kit.run(call),),
            decisions=(kit.record(call),),
        )
        with pytest.raises(AlreadyDecidedError, match="was already decided by"):
            store.commit(started)
        assert store.journal(turn) == []
        assert store.decisions() == []
        assert store.posted_decisions(turn) == [denied]
        assert store.load_turn(turn) == ask.state

    def test_a_denial_by_the_turn_withdraws_an_approval_that_it_has_not_taken(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        ask = kit.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        assert opened().post_decision(kit.decided(call)) is True
        denied = replace(kit.record(call, by=kit.BEN), decision=Rejected(reason="no"))
        settled = kit.in_round(CallState(call=call, status=kit.settled()))
        store.commit(kit.then(ask, settled, decisions=(denied,)))
        assert store.posted_decisions(turn) == []
        assert [(row.decision, row.by) for row in store.decisions()] == [(denied.decision, kit.BEN)]

    def test_a_withdrawn_decision_leaves_the_call_to_be_decided_again(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        kit.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        assert opened().post_decision(kit.decided(call)) is True
        store.withdraw_decision(kit.decided(call, digest="what was shown before"))
        assert store.post_decision(kit.decided(call)) is False
        store.withdraw_decision(kit.decided(call))
        assert store.posted_decisions(turn) == []
        assert store.post_decision(kit.decided(call, by=kit.BEN)) is True
        # Two looks of one process may both withdraw what they saw, and the second comes after another decision.
        store.withdraw_decision(kit.decided(call))
        assert store.posted_decisions(turn) == [kit.decided(call, by=kit.BEN)]

    def test_a_call_that_is_not_pending_cannot_be_decided(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        ask = kit.pending_turn(store, session, turn)
        call = kit.a_call(turn)
        assert store.post_decision(kit.decided(kit.a_call(turn, 7))) is False
        assert store.post_decision(kit.decided(call, digest="what was shown before")) is False
        store.commit(kit.then(ask, kit.finished()))
        assert store.post_decision(kit.decided(call)) is False
        assert store.pending_calls() == []
        assert store.posted_decisions(turn) == []

    def test_a_commit_that_records_the_decision_consumes_it_and_logs_when_it_was_given(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        ask = kit.pending_turn(store, session, turn)
        one, two = kit.a_call(turn), kit.a_call(turn, 2)
        store.post_decision(kit.decided(one))
        store.post_decision(kit.decided(two, digest="d2"))
        shown = store.pending_calls()[0].decided
        assert shown is not None
        given = shown.decided_at
        world.now += 60
        taken = kit.then(
            ask,
            kit.in_round(
                CallState(call=one, status=kit.started()),
                CallState(call=two, status=kit.awaiting("d2")),
            ),
            effects=(kit.run(one),),
            decisions=(kit.record(one),),
        )
        store.commit(taken)
        assert store.posted_decisions(turn) == [kit.decided(two, digest="d2")]
        assert [row.pending.call.id for row in store.pending_calls()] == [two.id]
        (row,) = store.decisions()
        assert (row.call_id, row.session_id, row.tool, row.digest) == (one.id, session.id, "shell_exec", "d1")
        assert (row.decision, row.by, row.decided_at) == (Approved(), kit.ANA, given)
        assert (row.role, row.model) == ("coder", "local")
        assert store.session(session.id).pending == 1

    def test_a_posted_decision_survives_a_call_being_looked_at_again(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        ask = kit.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        store.post_decision(kit.decided(call))
        looking = kit.then(ask, kit.in_round(CallState(call=call, status=Inspecting())))
        store.commit(looking)
        assert store.pending_calls() == []
        assert store.posted_decisions(turn) == [kit.decided(call)]
        again = kit.then(looking, kit.in_round(CallState(call=call, status=kit.awaiting())))
        store.commit(again)
        assert store.posted_decisions(turn) == [kit.decided(call)]
        assert store.post_decision(kit.decided(call, by=kit.BEN)) is False

    @pytest.mark.parametrize("end", ["settled", "next round", "stopping"])
    def test_a_commit_that_settles_the_call_consumes_its_decision(
        self, store: Store, session: SessionInfo, turn: TurnId, end: str
    ) -> None:
        ask = kit.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        store.post_decision(kit.decided(call))
        done = (CallState(call=call, status=kit.settled()),)
        match end:
            case "settled":
                following = kit.then(ask, kit.in_round(*done))
            case "next round":
                following = kit.then(ask, kit.awaiting_model(turn, 2))
            case _:
                following = kit.then(ask, Stopping(round_id=kit.in_round(*done).round_id, model="m", calls=done))
        store.commit(following)
        assert store.posted_decisions(turn) == []

    def test_a_call_that_asks_again_takes_a_new_decision_instead_of_the_old_one(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        ask = kit.pending_turn(store, session, turn)
        one, two = kit.a_call(turn), kit.a_call(turn, 2)
        store.post_decision(kit.decided(one))
        world.now += 5
        changed = kit.then(
            ask,
            kit.in_round(
                CallState(call=one, status=kit.awaiting("d9", AskReason.CHANGED)),
                CallState(call=two, status=kit.awaiting("d2")),
            ),
        )
        store.commit(changed)
        queued = store.pending_calls()
        assert [(row.pending.digest, row.decided) for row in queued] == [("d9", None), ("d2", None)]
        assert [row.requested_at for row in queued] == [world.now, world.now - 5]
        assert queued[0].pending.reason is AskReason.CHANGED
        assert store.post_decision(kit.decided(one, digest="d1", by=kit.BEN)) is False
        assert store.post_decision(kit.decided(one, digest="d9", by=kit.BEN)) is True
        assert store.posted_decisions(turn) == [kit.decided(one, digest="d9", by=kit.BEN)]

    def test_permitted_calls_do_not_wait(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        ask = kit.pending_turn(store, session, turn, calls=1)
        allowed = Permitted(facts=kit.facts(), digest="d1", verdict=Verdict.ASK, decided_by="x")
        store.commit(kit.then(ask, kit.in_round(CallState(call=kit.a_call(turn), status=allowed))))
        assert store.pending_calls() == []
        assert store.session(session.id).pending == 0

    def test_the_log_keeps_every_kind_of_decision_in_order(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session.id)
        given: list[Decision] = [
            Edited(arguments='{"a":"\ud800"}'),
            Rejected(reason="no"),
            Approved(remember=kit.remembered().pattern),
        ]
        for decision in given:
            row = DecisionRecord(call_id=call.id, tool="t", digest="d", decision=decision, by=kit.BEN)
            step = kit.then(step, kit.awaiting_model(turn), decisions=(row,))
            store.commit(step)
        assert [row.decision for row in store.decisions()] == given
        assert [row.decision for row in store.decisions(limit=2)] == given[1:]
        assert store.decisions(limit=0) == []
        assert store.decisions(session_id=SessionId("other")) == []
        assert len(store.decisions(session_id=session.id)) == 3
