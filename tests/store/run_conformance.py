"""Tests that every store has to pass about workflow runs; the fixtures are those of `conformance`."""

import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from chatops.domain.errors import AlreadyDecidedError, ConflictError, NoSuchSessionError, StoreError, UnreadableError
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.engine.contract import StepContract
from chatops.engine.effects import TurnStep
from chatops.engine.workflow.inputs import ReviewStep, Skip, StopRun, TryAgain
from chatops.engine.workflow.state import CheckingGate, RunResult
from chatops.store.audit import entry_of
from chatops.store.base import RunMark, SessionInfo
from chatops.store.store import Store
from tests.store import runkit as run
from tests.store import storekit as kit


def attempt(
    number: int,
    session_id: SessionId,
    *,
    parent: MessageId | None = None,
    history: tuple[Message, ...] = (),
    contract: StepContract | None = None,
) -> TurnStep:
    """The first step of a turn that is an attempt."""
    step = kit.first(run.turn(number, session_id), session_id, parent=parent, history=history)
    return replace(step, state=replace(step.state, contract=contract or run.kept()))


def finish(store: Store, step: TurnStep) -> TurnStep:
    """Begin a turn and let it end with one message."""
    store.commit(step)
    ended = kit.then(step, kit.finished(), kit.assistant(step.state.turn_id))
    store.commit(ended)
    return ended


class RunConformance:
    def test_a_session_becomes_a_run_with_its_first_step(self, store: Store, session: SessionInfo) -> None:
        assert session.run is None
        step = run.begun(session.id)
        store.commit_run(step)
        assert store.load_run(session.id) == step.state
        mark = RunMark(workflow="release", phase="running_step", step="configure", result="")
        assert store.session(session.id).run == mark
        assert [info.run for info in store.sessions()] == [mark]

    def test_a_run_is_loaded_by_the_beginning_of_its_id(self, store: Store, session: SessionInfo) -> None:
        store.commit_run(run.begun(session.id))
        assert store.load_run(SessionId(session.id[:12])).session_id == session.id

    def test_a_chat_is_no_run_and_an_unknown_session_neither(self, store: Store, session: SessionInfo) -> None:
        with pytest.raises(NoSuchSessionError, match="not a workflow run") as caught:
            store.load_run(session.id)
        assert "workflow list" in caught.value.advice
        with pytest.raises(NoSuchSessionError):
            store.load_run(SessionId("nope"))
        with pytest.raises(NoSuchSessionError):
            store.commit_run(run.begun(SessionId("gone")))

    def test_runs_come_newest_activity_first_and_without_chats(self, store: Store) -> None:
        one, chat, two = (store.create_session(workspace=f"/{n}", role="r", persona="p") for n in "aba")
        for info in (two, one):
            store.commit_run(run.begun(info.id))
        assert [info.id for info in store.runs()] == [one.id, two.id]
        store.commit_run(run.then(run.begun(two.id), run.review()))
        store.append_message(chat.id, kit.user(chat.id))
        assert [info.id for info in store.runs()] == [two.id, one.id]
        assert [info.id for info in store.runs(limit=1)] == [two.id]
        assert store.runs(workspace="/b") == []
        assert [info.id for info in store.runs(workspace="/a")] == [two.id, one.id]

    @pytest.mark.parametrize("seq", [1, 4])
    def test_a_run_begins_at_zero(self, store: Store, session: SessionInfo, seq: int) -> None:
        step = run.begun(session.id)
        with pytest.raises(ConflictError):
            store.commit_run(replace(step, state=replace(step.state, seq=seq)))
        assert store.session(session.id).run is None

    def test_a_runs_step_that_does_not_follow_is_a_conflict_and_stores_nothing(
        self, store: Store, session: SessionInfo
    ) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        second = run.then(step, run.review())
        with pytest.raises(ConflictError):
            store.commit_run(run.then(second, run.over()))
        store.commit_run(second)
        with pytest.raises(ConflictError):
            store.commit_run(run.then(step, run.over()))
        with pytest.raises(ConflictError):
            store.commit_run(step)
        assert store.load_run(session.id) == second.state

    def test_the_very_same_step_of_a_run_again_is_harmless(self, store: Store, session: SessionInfo) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        store.commit_run(step)
        assert store.load_run(session.id) == step.state

    def test_of_two_processes_with_the_same_step_of_a_run_one_performs_it(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        with pytest.raises(ConflictError):
            opened().commit_run(step)
        opened().commit_run(replace(step, effects=()))

    def test_deleting_the_session_deletes_its_run(self, store: Store, session: SessionInfo) -> None:
        store.commit_run(run.then(run.begun(session.id), run.review(), seq=0))
        store.post_review(session.id, run.accepted())
        store.delete_session(session.id)
        assert store.runs() == []
        with pytest.raises(NoSuchSessionError):
            store.load_run(session.id)
        assert kit.problems(store) == []

    # turns of a run

    def test_only_the_turn_that_a_run_waits_for_may_begin(self, store: Store, session: SessionInfo) -> None:
        store.commit_run(run.begun(session.id))
        with pytest.raises(ConflictError, match="is a run"):
            store.commit(kit.first(run.turn(2, session.id), session.id))
        store.commit(attempt(1, session.id))
        assert store.session(session.id).active_turn == run.turn(1, session.id)

    def test_no_turn_starts_while_a_step_awaits_review(self, store: Store, session: SessionInfo) -> None:
        store.commit_run(run.then(run.begun(session.id), run.review(), seq=0))
        with pytest.raises(ConflictError):
            store.commit(kit.first(run.turn(1, session.id), session.id))

    def test_after_a_run_its_session_is_a_chat_whose_turns_begin_at_the_head(
        self, store: Store, session: SessionInfo
    ) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        ended = finish(store, attempt(1, session.id))
        store.commit_run(run.then(step, run.over()))
        assert store.session(session.id).run == RunMark(
            workflow="release", phase="run_finished", step="", result=RunResult.ANSWERED.value
        )
        with pytest.raises(ConflictError):
            store.commit(kit.first(run.turn(2, session.id), session.id))
        said = ended.state.messages
        chat = kit.first(run.turn(2, session.id), session.id, parent=said[-1].id, history=said)
        store.commit(chat)
        assert store.load_turn(chat.state.turn_id) == chat.state

    def test_turn_numbers_of_a_run_are_not_given_to_other_turns(self, store: Store, session: SessionInfo) -> None:
        step = run.begun(session.id)
        store.commit_run(replace(step, state=replace(step.state, turns=3)))
        assert store.next_turn_id(session.id) == f"{session.id}.4"

    def test_the_first_attempt_at_a_step_sees_nothing_and_later_ones_the_attempts_before(
        self, store: Store, session: SessionInfo
    ) -> None:
        steps = [run.asks(run.state(run.running(n, session_id=session.id), session.id, seq=n - 1)) for n in range(1, 6)]
        gate = CheckingGate(step=0, attempt=1, gate=1, turn_id=run.turn(2, session.id), answer="")
        turns: list[TurnStep] = []

        def begin(step: TurnStep) -> None:
            store.commit(step)
            assert store.load_turn(step.state.turn_id) == step.state
            turns.append(kit.then(step, kit.finished(), kit.assistant(step.state.turn_id)))
            store.commit(turns[-1])

        store.commit_run(steps[0])
        begin(attempt(1, session.id))
        store.commit_run(replace(steps[1], state=replace(steps[1].state, phase=gate)))
        begin(kit.first(run.turn(2, session.id), session.id))
        first = turns[0].state
        store.commit_run(steps[2])
        begin(attempt(3, session.id, parent=first.messages[-1].id, history=first.messages))
        store.commit_run(steps[3])
        seen = (*first.messages, *turns[2].state.messages)
        begin(attempt(4, session.id, parent=seen[-1].id, history=seen))
        store.commit_run(steps[4])
        begin(attempt(5, session.id))
        for one in turns:
            assert store.load_turn(one.state.turn_id) == one.state
        # The conversation has them all, one after the other.
        everything = [message for one in turns for message in one.state.messages]
        assert store.history(session.id) == tuple(everything)
        assert store.session(session.id).messages == len(everything)

    def test_a_fork_of_a_run_is_a_chat_with_all_of_its_turns(self, store: Store, session: SessionInfo) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        finish(store, attempt(1, session.id))
        store.commit_run(run.asks(run.state(run.running(2, step=1, session_id=session.id), session.id, seq=1, turns=2)))
        finish(store, attempt(2, session.id))
        fork = store.fork_session(session.id)
        assert fork.run is None
        assert store.history(fork.id) == store.history(session.id)
        store.delete_session(session.id)
        assert len(store.history(fork.id)) == 4
        chat = kit.first(
            TurnId(f"{fork.id}.1"), fork.id, parent=store.session(fork.id).head, history=store.history(fork.id)
        )
        store.commit(chat)
        assert store.load_turn(chat.state.turn_id) == chat.state
        store.delete_session(fork.id)
        assert kit.problems(store) == []

    # words from elsewhere

    def test_a_review_is_posted_for_the_owner_of_the_run_and_the_first_one_counts(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        assert not store.post_review(session.id, run.accepted())
        asked = run.then(step, run.review())
        store.commit_run(asked)
        assert not store.post_review(session.id, run.accepted(attempt=2))
        assert opened().post_review(session.id, run.accepted())
        other = ReviewStep(step=0, attempt=1, review=TryAgain(told="shorter \ud83d"), by=kit.BEN)
        assert not store.post_review(session.id, other)
        assert store.posted_reviews(session.id) == [run.accepted()]
        store.commit_run(run.then(asked, run.running(2, step=1, session_id=session.id)))
        assert store.posted_reviews(session.id) == []

    def test_a_review_by_the_owner_gives_way_to_one_that_was_posted_first(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        asked = run.then(run.begun(session.id), run.review(), seq=0)
        store.commit_run(asked)
        first = ReviewStep(step=0, attempt=1, review=StopRun(), by=kit.BEN)
        assert opened().post_review(session.id, first)
        on = run.then(asked, run.running(2, step=1, session_id=session.id))
        with pytest.raises(AlreadyDecidedError, match=f"already reviewed or cancelled by {re.escape(str(kit.BEN))}"):
            store.commit_run(replace(on, user_input=run.accepted()))
        assert (store.load_run(session.id), store.posted_reviews(session.id)) == (asked.state, [first])
        over = replace(run.then(asked, run.over(RunResult.FAILED)), user_input=first)
        store.commit_run(over)
        store.commit_run(over)
        assert store.posted_reviews(session.id) == []
        (row,) = [entry_of(each.body) for each in store.audit(session_id=session.id)]
        assert (row["kind"], row["review"]["review"]["kind"], row["by"]["uid"]) == ("review", "stop_run", kit.BEN.uid)

    def test_the_end_of_a_run_does_not_wait_for_a_review(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        asked = run.then(run.begun(session.id), run.review(), seq=0)
        store.commit_run(asked)
        assert opened().post_review(session.id, run.accepted())
        store.commit_run(replace(run.then(asked, run.over(RunResult.CANCELLED)), user_input=run.CANCELLED))
        assert store.posted_reviews(session.id) == []

    def test_a_review_that_does_not_apply_is_not_posted_and_blocks_no_other(
        self, store: Store, session: SessionInfo
    ) -> None:
        asked = run.then(run.begun(session.id), run.review(), seq=0)
        store.commit_run(asked)
        assert not store.post_review(session.id, replace(run.accepted(), review=Skip()))
        assert store.post_review(session.id, run.accepted())

    def test_a_review_that_did_not_lead_on_is_still_there_at_the_next_look(
        self, store: Store, session: SessionInfo
    ) -> None:
        asked = run.then(run.begun(session.id), run.review(), seq=0)
        store.commit_run(asked)
        store.post_review(session.id, run.accepted())
        assert store.posted_reviews(SessionId(session.id[:12])) == [run.accepted()]
        again = run.then(asked, run.review())
        store.commit_run(again)
        assert store.posted_reviews(session.id) == [run.accepted()]

    def test_a_run_is_cancelled_once_and_not_after_its_end(self, store: Store, session: SessionInfo) -> None:
        step = run.begun(session.id)
        store.commit_run(step)
        assert store.post_review(session.id, run.CANCELLED)
        assert not store.post_review(session.id, run.CANCELLED)
        assert store.posted_reviews(session.id) == [run.CANCELLED]
        store.commit_run(run.then(step, run.over(RunResult.CANCELLED)))
        assert store.posted_reviews(session.id) == []
        assert not store.post_review(session.id, run.CANCELLED)

    def test_a_review_of_a_session_that_is_not_a_run_is_refused(self, store: Store, session: SessionInfo) -> None:
        with pytest.raises(NoSuchSessionError):
            store.post_review(session.id, run.CANCELLED)
        assert store.posted_reviews(session.id) == []
        with pytest.raises(StoreError):
            store.posted_reviews(SessionId("nope"))

    def test_an_unknown_turn_of_a_run_is_unreadable(self, store: Store, session: SessionInfo) -> None:
        store.commit_run(run.begun(session.id))
        with pytest.raises(UnreadableError):
            store.load_turn(run.turn(1, session.id))
