"""What every store promises, as tests that know nothing of where it keeps things.

A subclass says how a store is opened: `open_store(world)`; two stores of one world see the same data.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import FrozenInstanceError, dataclass, field, replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, Decision, Edited, Rejected
from chatops.domain.errors import AlreadyDecided, Conflict, NoSuchSession, SessionHeld, StoreError, Unreadable
from chatops.domain.events import AskReason
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import Message, NoticeMessage, RoleSwitchMessage, UserMessage
from chatops.domain.rights import Verdict
from chatops.domain.tools import Outcome
from chatops.engine.effects import DecisionRecord, Step
from chatops.engine.state import CallState, Inspecting, Permitted, Stopping
from chatops.store.base import Holder, SessionInfo, Store
from tests.store import storekit as kit
from tests.store.memory_store import Memory


@dataclass
class World:
    """A place for data, a clock to set, and which processes live."""

    folder: Path
    memory: Memory = field(default_factory=Memory)
    now: float = 1_795_256_112.0
    dead: set[int] = field(default_factory=set)

    def clock(self) -> float:
        return self.now

    def alive(self, holder: Holder) -> bool:
        return holder.pid not in self.dead

    def process(self) -> Holder:
        return holder(pid=77)


def holder(host: str = "box", pid: int = 1, boot: str = "b1", start: str = "100") -> Holder:
    return Holder(host=host, pid=pid, boot_id=boot, pid_started=start)


class StoreConformance:
    def open_store(self, world: World) -> Store:
        raise NotImplementedError

    @pytest.fixture
    def world(self, tmp_path: Path) -> World:
        return World(folder=tmp_path)

    @pytest.fixture
    def opened(self, world: World) -> Iterator[Callable[[], Store]]:
        stores: list[Store] = []

        def another() -> Store:
            stores.append(self.open_store(world))
            return stores[-1]

        yield another
        for store in stores:
            store.close()

    @pytest.fixture
    def store(self, opened: Callable[[], Store]) -> Store:
        return opened()

    @pytest.fixture
    def session(self, store: Store) -> SessionInfo:
        return store.create_session(workspace="/w", role="coder", persona="default")

    @pytest.fixture
    def turn(self, store: Store, session: SessionInfo) -> TurnId:
        return store.next_turn_id(session.id)

    # sessions

    def test_a_new_session_has_an_id_from_the_time_and_what_it_was_given(self, store: Store, world: World) -> None:
        made = store.create_session(workspace="/w x", role="coder", persona="calm", title="T")
        assert re.fullmatch(r"20261121-101512-[a-z0-9]{4}", made.id)
        assert (made.workspace, made.role, made.persona, made.title) == ("/w x", "coder", "calm", "T")
        assert (made.head, made.messages, made.active_turn, made.last_turn, made.pending) == (None, 0, None, None, 0)
        assert made.created_at == made.updated_at == world.now
        assert store.session(made.id) == made

    def test_ids_differ_within_a_second(self, store: Store) -> None:
        ids = {store.create_session(workspace="/w", role="r", persona="p").id for _ in range(50)}
        assert len(ids) == 50

    def test_a_unique_prefix_finds_a_session_and_a_common_one_names_the_candidates(
        self, store: Store, world: World
    ) -> None:
        one = store.create_session(workspace="/w", role="r", persona="p")
        assert store.session(SessionId(one.id[:10])).id == one.id
        world.now += 3600
        two = store.create_session(workspace="/w", role="r", persona="p")
        assert store.session(SessionId(two.id[:13])).id == two.id
        with pytest.raises(StoreError, match="several") as caught:
            store.session(SessionId("2026"))
        assert one.id in str(caught.value)
        assert two.id in str(caught.value)

    @pytest.mark.parametrize("wanted", ["", "nope", "%", "_", "2026%"])
    def test_an_unknown_session_is_a_sentence_with_the_next_step(
        self, store: Store, session: SessionInfo, wanted: str
    ) -> None:
        with pytest.raises(NoSuchSession) as caught:
            store.session(SessionId(wanted))
        assert "sessions list" in caught.value.advice
        with pytest.raises(NoSuchSession):
            store.history(SessionId(wanted))

    def test_sessions_come_newest_activity_first_whatever_the_clock_says(self, store: Store, world: World) -> None:
        one = store.create_session(workspace="/a", role="r", persona="p")
        store.append_message(one.id, kit.user(one.id))
        world.now -= 315_360_000
        two = store.create_session(workspace="/b", role="r", persona="p")
        store.append_message(two.id, kit.user(two.id))
        assert [info.id for info in store.sessions()] == [two.id, one.id]
        store.append_message(one.id, kit.user(one.id, n=2))
        assert [info.id for info in store.sessions()] == [one.id, two.id]
        assert [info.id for info in store.sessions(workspace="/b")] == [two.id]
        assert [info.id for info in store.sessions(limit=1)] == [one.id]

    def test_a_session_in_which_nothing_was_said_is_not_listed(self, store: Store, session: SessionInfo) -> None:
        assert store.sessions() == store.runs() == []
        assert store.session(session.id) == session
        store.append_message(session.id, kit.user(session.id))
        assert [info.id for info in store.sessions(workspace=session.workspace)] == [session.id]
        assert store.runs() == []

    def test_update_changes_what_is_given_and_is_no_activity(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id))
        newer = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(newer.id, kit.user(newer.id))
        store.update_session(session.id, role="reviewer", model_pin="big")
        store.update_session(session.id, title="New title")
        store.update_session(session.id, persona="calm", model_pin="")
        info = store.session(session.id)
        assert (info.role, info.model_pin, info.persona, info.title) == ("reviewer", "", "calm", "New title")
        assert [info.id for info in store.sessions()] == [newer.id, session.id]
        with pytest.raises(NoSuchSession):
            store.update_session(SessionId("nope"), title="x")

    def test_the_title_is_the_first_line_a_person_wrote(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, RoleSwitchMessage(id=MessageId("x1"), before="a", after="b", model="m"))
        assert store.session(session.id).title == ""
        store.append_message(session.id, UserMessage(id=MessageId("x2"), text="\n\n  " + "long " * 40 + "\nsecond"))
        title = store.session(session.id).title
        assert title.startswith("long long")
        assert len(title) <= 60
        store.append_message(session.id, UserMessage(id=MessageId("x3"), text="other"))
        assert store.session(session.id).title == title

    def test_appended_messages_are_the_history_in_order(self, store: Store, session: SessionInfo) -> None:
        messages = [kit.user(session.id, f"text {n}", n) for n in range(5)]
        for message in messages:
            store.append_message(session.id, message)
        assert store.history(session.id) == tuple(messages)
        info = store.session(session.id)
        assert (info.head, info.messages) == (messages[-1].id, 5)

    def test_a_message_id_is_never_stored_twice(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id, "one"))
        with pytest.raises(StoreError):
            store.append_message(session.id, kit.user(session.id, "two"))
        assert store.history(session.id) == (kit.user(session.id, "one"),)

    def test_every_kind_of_message_and_any_text_survives(self, store: Store, session: SessionInfo) -> None:
        call = kit.a_call(TurnId(f"{session.id}.1"))
        texts = ["\ud83d lone", "\x00\x1b[31m\u202e", "é ü 漢字 🎉", '"\\', "", "a\r\nb"]
        messages = [UserMessage(id=MessageId(f"u{n}"), text=text) for n, text in enumerate(texts)]
        more: list[Message] = [
            *messages,
            replace(kit.assistant("a", "\udcff", calls=(call,)), reasoning="\ud800", usage=None),
            NoticeMessage(id=MessageId("n"), text="careful", advice="do this", level="error"),
            RoleSwitchMessage(id=MessageId("r"), before="a", after="b", model="m", added=("x",), suspended=2),
        ]
        for message in more:
            store.append_message(session.id, message)
        assert [message.text for message in store.history(session.id)[: len(texts)] if message.kind == "user"] == texts
        assert store.history(session.id)[-3:] == (
            replace(kit.assistant("a", "\udcff", calls=(call,)), reasoning="\ud800", usage=None),
            NoticeMessage(id=MessageId("n"), text="careful", advice="do this", level="error"),
            RoleSwitchMessage(id=MessageId("r"), before="a", after="b", model="m", added=("x",), suspended=2),
        )

    def test_lone_surrogates_survive_wherever_text_is_kept(self, store: Store) -> None:
        odd = "/w/\udcff name\ud83d"
        made = store.create_session(workspace=odd, role="r", persona="p", title=odd)
        store.set_setting(odd, odd)
        store.queue_text(made.id, odd)
        store.append_message(made.id, kit.user(made.id))
        assert store.session(made.id).title == odd
        assert [info.id for info in store.sessions(workspace=odd)] == [made.id]
        assert store.setting(odd) == odd
        assert store.kept_texts(made.id) == (odd,)

    def test_what_is_read_cannot_be_changed(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id, "mine"))
        (message,) = store.history(session.id)
        with pytest.raises(FrozenInstanceError):
            message.text = "other"  # type: ignore[union-attr, misc]

    # forks and deletion

    def test_a_fork_shares_the_past_and_nothing_else(self, store: Store, session: SessionInfo) -> None:
        store.update_session(session.id, model_pin="big")
        for n in range(4):
            store.append_message(session.id, kit.user(session.id, f"{n}", n))
        fork = store.fork_session(session.id, at=kit.user(session.id, n=1).id)
        assert (fork.forked_from, fork.messages, fork.model_pin, fork.role) == (session.id, 2, "big", "coder")
        assert fork.id != session.id
        store.append_message(fork.id, kit.user(fork.id, "fork"))
        store.append_message(session.id, kit.user(session.id, "main", 9))
        assert [m.text for m in store.history(fork.id) if m.kind == "user"] == ["0", "1", "fork"]
        assert [m.text for m in store.history(session.id) if m.kind == "user"] == ["0", "1", "2", "3", "main"]

    def test_a_fork_without_a_point_starts_at_the_head_and_takes_no_grants(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.first(turn, session.id)
        store.commit(step)
        store.commit(kit.then(step, kit.finished(), kit.assistant(turn), grants=(kit.remembered(),)))
        store.queue_text(session.id, "later")
        fork = store.fork_session(session.id)
        assert store.history(fork.id) == store.history(session.id)
        assert (fork.active_turn, fork.last_turn) == (None, None)
        assert store.grants(session.id) == (kit.remembered(),)
        assert store.grants(fork.id) == ()
        assert store.kept_texts(fork.id) == ()

    def test_a_fork_at_a_strange_message_is_refused_and_leaves_nothing(
        self, store: Store, session: SessionInfo
    ) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(other.id, kit.user(other.id))
        with pytest.raises(StoreError):
            store.fork_session(session.id, at=kit.user(other.id).id)
        assert [info.id for info in store.sessions()] == [other.id]

    def test_an_empty_session_can_be_forked(self, store: Store, session: SessionInfo) -> None:
        fork = store.fork_session(session.id)
        assert (fork.head, fork.messages) == (None, 0)

    def test_deleting_leaves_forks_whole_and_the_decision_log(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
        ask = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())))
        store.commit(ask)
        fork = store.fork_session(session.id)
        store.commit(kit.then(ask, kit.finished(), kit.assistant(turn), decisions=(kit.record(call),)))
        store.delete_session(session.id)
        with pytest.raises(NoSuchSession):
            store.session(session.id)
        with pytest.raises(Unreadable):
            store.load_turn(turn)
        assert [info.id for info in store.sessions()] == [fork.id]
        assert store.history(fork.id) == (kit.user(turn),)
        assert store.queue() == []
        assert [row.call_id for row in store.decisions()] == [call.id]
        store.delete_session(fork.id)
        assert store.sessions() == []
        # Nothing is left of the messages: their ids are free.
        again = store.create_session(workspace="/w", role="r", persona="p")
        store.append_message(again.id, kit.user(turn))
        store.append_message(again.id, kit.assistant(turn))
        assert store.check() == []

    def test_deleting_a_fork_leaves_the_original(self, store: Store, session: SessionInfo) -> None:
        store.append_message(session.id, kit.user(session.id))
        fork = store.fork_session(session.id)
        store.append_message(fork.id, kit.user(fork.id))
        store.delete_session(fork.id)
        assert store.history(session.id) == (kit.user(session.id),)

    def test_deleting_the_original_leaves_a_fork_that_went_its_own_way(
        self, store: Store, session: SessionInfo
    ) -> None:
        for n in range(3):
            store.append_message(session.id, kit.user(session.id, f"{n}", n))
        fork = store.fork_session(session.id, at=kit.user(session.id, n=1).id)
        store.append_message(fork.id, kit.user(fork.id, "own"))
        store.delete_session(session.id)
        assert [m.text for m in store.history(fork.id) if m.kind == "user"] == ["0", "1", "own"]
        assert store.check() == []

    # turns

    def test_turn_ids_are_numbered_and_never_given_twice(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        given = [store.next_turn_id(session.id), opened().next_turn_id(session.id), store.next_turn_id(session.id)]
        assert given == [f"{session.id}.1", f"{session.id}.2", f"{session.id}.3"]
        store.commit(kit.first(TurnId(f"{session.id}.4"), session.id))
        assert store.next_turn_id(session.id) == f"{session.id}.5"

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
        info = store.session(session.id)
        assert (info.active_turn, info.last_turn, info.pending, info.messages) == (turn, turn, 1, 3)
        assert info.title == "earlier"

    def test_a_finished_turn_keeps_its_checkpoint_and_is_no_longer_active(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.first(turn, session.id)
        store.commit(step)
        done = kit.then(step, kit.finished(), kit.assistant(turn))
        store.commit(done)
        assert store.load_turn(turn) == done.state
        info = store.session(session.id)
        assert (info.active_turn, info.last_turn, info.head) == (None, turn, kit.assistant(turn).id)
        retried = kit.then(done, kit.awaiting_model(turn, 2))
        store.commit(retried)
        assert store.session(session.id).active_turn == turn

    def test_an_unknown_turn_is_unreadable(self, store: Store) -> None:
        with pytest.raises(Unreadable):
            store.load_turn(TurnId("nope.1"))

    @pytest.mark.parametrize("seq", [1, 5])
    def test_a_turn_begins_at_zero(self, store: Store, session: SessionInfo, turn: TurnId, seq: int) -> None:
        with pytest.raises(Conflict):
            store.commit(kit.first(turn, session.id, seq=seq))
        assert store.history(session.id) == ()

    def test_a_step_that_does_not_follow_is_a_conflict_and_stores_nothing(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.first(turn, session.id)
        store.commit(step)
        second = kit.then(step, kit.finished("one"), kit.assistant(turn, "one"))
        gap = kit.then(second, kit.finished("three"), kit.assistant(turn, "three", 3))
        with pytest.raises(Conflict):
            store.commit(gap)
        store.commit(second)
        with pytest.raises(Conflict):
            store.commit(kit.then(step, kit.finished("two"), kit.assistant(turn, "two", 4)))
        with pytest.raises(Conflict):
            store.commit(step)
        assert store.load_turn(turn) == second.state
        assert store.history(session.id) == second.state.messages

    def test_the_very_same_step_again_is_recognised(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
        store.commit(step)
        runs = kit.then(
            step,
            kit.in_round(CallState(call=call, status=kit.started())),
            kit.assistant(turn, calls=(call,)),
            effects=(kit.run(call),),
            decisions=(kit.record(call),),
            grants=(kit.remembered(),),
        )
        store.commit(runs)
        store.commit(runs)
        assert len(store.journal(turn)) == len(store.decisions()) == len(store.grants(session.id)) == 1
        assert store.session(session.id).messages == 2

    def test_another_process_with_the_same_step_is_refused_so_that_only_one_performs_it(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
        runs = kit.then(step, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),))
        store.commit(runs)
        with pytest.raises(Conflict):
            opened().commit(runs)
        assert len(store.journal(turn)) == 1

    def test_the_same_state_and_nothing_else_is_harmless_from_anywhere(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        step = kit.first(turn, session.id)
        store.commit(step)
        opened().commit(Step(state=step.state))
        with pytest.raises(Conflict):
            opened().commit(Step(state=replace(step.state, phase=kit.finished())))
        assert store.load_turn(turn) == step.state

    def test_a_turn_must_begin_at_the_head(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        store.append_message(session.id, kit.user("old"))
        with pytest.raises(Conflict):
            store.commit(kit.first(turn, session.id))

    def test_one_turn_of_a_session_at_a_time(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        step = kit.first(turn, session.id)
        store.commit(step)
        second = store.next_turn_id(session.id)
        with pytest.raises(Conflict):
            store.commit(kit.first(second, session.id, parent=kit.user(turn).id))
        store.commit(kit.then(step, kit.finished()))
        store.commit(kit.first(second, session.id, parent=kit.user(turn).id))
        assert store.session(session.id).active_turn == second

    def test_a_step_of_no_session_is_refused(self, store: Store) -> None:
        with pytest.raises(NoSuchSession):
            store.commit(kit.first(TurnId("gone.1"), SessionId("gone")))

    def test_a_state_that_names_a_message_nobody_stored_is_refused(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        with pytest.raises(StoreError):
            store.commit(replace(kit.first(turn, session.id), messages=()))
        assert store.session(session.id).last_turn is None

    # the journal

    def test_an_intent_is_stored_with_who_runs_it_and_closed_by_its_result(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
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
        step = kit.first(turn, session.id)
        store.commit(step)
        phase = kit.in_round(CallState(call=call, status=kit.started()))
        runs = kit.then(step, phase, effects=(kit.run(call),))
        store.commit(runs)
        with pytest.raises(Conflict):
            store.commit(kit.then(runs, phase, kit.assistant(turn), effects=(kit.run(call),)))
        assert store.load_turn(turn) == runs.state
        assert store.history(session.id) == (kit.user(turn),)
        store.commit(kit.then(runs, phase, effects=(kit.run(call, attempt=2),)))
        assert [row.attempt for row in store.journal(turn)] == [1, 2]

    def test_an_unknown_outcome_gives_way_to_what_turns_out_and_a_known_one_stays(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
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
        step = kit.first(turn, session.id)
        store.commit(step)
        with pytest.raises(StoreError):
            store.commit(kit.then(step, kit.finished(), results=(kit.closing(kit.a_call(turn)),)))
        assert store.load_turn(turn) == step.state

    # the queue

    def pending_turn(self, store: Store, session: SessionInfo, turn: TurnId, calls: int = 2) -> Step:
        step = kit.first(turn, session.id)
        store.commit(step)
        states = [CallState(call=kit.a_call(turn, n + 1), status=kit.awaiting(f"d{n + 1}")) for n in range(calls)]
        ask = kit.then(step, kit.in_round(*states))
        store.commit(ask)
        return ask

    def test_waiting_calls_are_in_the_queue_with_all_a_dialog_shows(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        self.pending_turn(store, session, turn)
        queued = store.queue()
        assert [row.pending.digest for row in queued] == ["d1", "d2"]
        shown = queued[0].pending
        assert (shown.call, shown.facts, shown.why) == (kit.a_call(turn), kit.facts(), "role coder asks")
        assert (shown.role, shown.model, shown.said) == ("coder", "local", "I list it.")
        assert (queued[0].session_id, queued[0].turn_id, queued[0].requested_at) == (session.id, turn, world.now)
        assert queued[0].decided is None
        assert store.queue(session_id=session.id) == queued
        assert store.queue(session_id=SessionId("other")) == []

    def test_the_queue_is_oldest_first_over_all_sessions(self, store: Store, world: World) -> None:
        made = [store.create_session(workspace="/w", role="r", persona="p") for _ in range(3)]
        for info in made:
            world.now -= 1000
            self.pending_turn(store, info, store.next_turn_id(info.id), calls=1)
        assert [row.session_id for row in store.queue()] == [info.id for info in made]

    def test_the_first_decision_wins_from_whatever_door(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        self.pending_turn(store, session, turn)
        call = kit.a_call(turn)
        assert opened().post_decision(kit.decided(call)) is True
        world.now += 9
        assert store.post_decision(replace(kit.decided(call), decision=Rejected(reason="no"), by=kit.BEN)) is False
        assert store.posted(turn) == [kit.decided(call)]
        shown = store.queue()[0].decided
        assert shown is not None
        assert (shown.decision, shown.by, shown.digest, shown.tool) == (Approved(), kit.ANA, "d1", "shell_exec")
        assert shown.decided_at == world.now - 9
        assert store.queue()[1].decided is None

    def test_a_turn_takes_no_other_answer_than_the_one_that_was_left_first(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, turn: TurnId
    ) -> None:
        """Whoever left it was told that it counts."""
        ask = self.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        denied = replace(kit.decided(call), decision=Rejected(reason="no"), by=kit.BEN)
        assert opened().post_decision(denied) is True
        started = kit.then(
            ask,
            kit.in_round(CallState(call=call, status=kit.started())),
            effects=(kit.run(call),),
            decisions=(kit.record(call),),
        )
        with pytest.raises(AlreadyDecided, match="was answered by uid"):
            store.commit(started)
        assert store.journal(turn) == []
        assert store.decisions() == []
        assert store.posted(turn) == [denied]
        assert store.load_turn(turn) == ask.state

    def test_what_does_not_wait_cannot_be_decided(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        ask = self.pending_turn(store, session, turn)
        call = kit.a_call(turn)
        assert store.post_decision(kit.decided(kit.a_call(turn, 7))) is False
        assert store.post_decision(kit.decided(call, digest="what was shown before")) is False
        store.commit(kit.then(ask, kit.finished()))
        assert store.post_decision(kit.decided(call)) is False
        assert store.queue() == []
        assert store.posted(turn) == []

    def test_a_commit_that_records_the_decision_consumes_it_and_logs_when_it_was_given(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        ask = self.pending_turn(store, session, turn)
        one, two = kit.a_call(turn), kit.a_call(turn, 2)
        store.post_decision(kit.decided(one))
        store.post_decision(kit.decided(two, digest="d2"))
        given = world.now
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
        assert store.posted(turn) == [kit.decided(two, digest="d2")]
        assert [row.pending.call.id for row in store.queue()] == [two.id]
        (row,) = store.decisions()
        assert (row.call_id, row.session_id, row.tool, row.digest) == (one.id, session.id, "shell_exec", "d1")
        assert (row.decision, row.by, row.decided_at) == (Approved(), kit.ANA, given)
        assert (row.role, row.model) == ("coder", "local")
        assert store.session(session.id).pending == 1

    def test_a_posted_decision_survives_a_call_being_looked_at_again(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        ask = self.pending_turn(store, session, turn, calls=1)
        call = kit.a_call(turn)
        store.post_decision(kit.decided(call))
        looking = kit.then(ask, kit.in_round(CallState(call=call, status=Inspecting())))
        store.commit(looking)
        assert store.queue() == []
        assert store.posted(turn) == [kit.decided(call)]
        again = kit.then(looking, kit.in_round(CallState(call=call, status=kit.awaiting())))
        store.commit(again)
        assert store.posted(turn) == [kit.decided(call)]
        assert store.post_decision(kit.decided(call, by=kit.BEN)) is False

    @pytest.mark.parametrize("end", ["settled", "next round", "stopping"])
    def test_a_commit_that_settles_the_call_consumes_its_decision(
        self, store: Store, session: SessionInfo, turn: TurnId, end: str
    ) -> None:
        ask = self.pending_turn(store, session, turn, calls=1)
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
        assert store.posted(turn) == []

    def test_a_call_that_asks_anew_takes_a_new_decision_in_the_place_of_the_old(
        self, store: Store, session: SessionInfo, turn: TurnId, world: World
    ) -> None:
        ask = self.pending_turn(store, session, turn)
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
        queued = store.queue()
        assert [(row.pending.digest, row.decided) for row in queued] == [("d9", None), ("d2", None)]
        assert [row.requested_at for row in queued] == [world.now, world.now - 5]
        assert queued[0].pending.reason is AskReason.CHANGED
        assert store.post_decision(kit.decided(one, digest="d1", by=kit.BEN)) is False
        assert store.post_decision(kit.decided(one, digest="d9", by=kit.BEN)) is True
        assert store.posted(turn) == [kit.decided(one, digest="d9", by=kit.BEN)]

    def test_permitted_calls_do_not_wait(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        ask = self.pending_turn(store, session, turn, calls=1)
        allowed = Permitted(facts=kit.facts(), digest="d1", verdict=Verdict.ASK, decided_by="x")
        store.commit(kit.then(ask, kit.in_round(CallState(call=kit.a_call(turn), status=allowed))))
        assert store.queue() == []
        assert store.session(session.id).pending == 0

    def test_the_log_keeps_every_kind_of_decision_in_order(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        call = kit.a_call(turn)
        step = kit.first(turn, session.id)
        store.commit(step)
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

    # grants

    def test_grants_are_remembered_once_and_can_be_taken_back(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        mine, other = kit.remembered(), kit.remembered(role="reviewer", source="c2")
        step = kit.first(turn, session.id)
        store.commit(step)
        step = kit.then(step, kit.awaiting_model(turn), grants=(mine, other))
        store.commit(step)
        step = kit.then(step, kit.awaiting_model(turn), grants=(mine,))
        store.commit(step)
        assert store.grants(session.id) == (mine, other)
        assert store.revoke_grants(session.id, [mine, kit.remembered(source="nobody")]) == 1
        assert store.revoke_grants(session.id, [mine]) == 0
        assert store.grants(session.id) == (other,)
        store.commit(kit.then(step, kit.awaiting_model(turn), grants=(mine,)))
        assert store.grants(session.id) == (other, mine)

    # texts and settings

    def test_texts_are_kept_in_order(self, store: Store, session: SessionInfo) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        for text in ["one", "two", "one"]:
            store.queue_text(session.id, text)
        assert store.kept_texts(other.id) == ()
        assert [store.kept_texts(session.id) for _ in range(2)] == [("one", "two", "one")] * 2
        for wrong in (store.kept_texts, lambda session_id: store.queue_text(session_id, "x")):
            with pytest.raises(NoSuchSession):
                wrong(SessionId("nope"))

    def test_the_commit_that_begins_a_turn_with_a_kept_text_forgets_it(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        other = store.create_session(workspace="/w", role="r", persona="p")
        for text in ["one", "one"]:
            store.queue_text(session.id, text)
        store.queue_text(other.id, "theirs")
        step = replace(kit.first(turn, session.id, text="one"), takes_kept=True)
        store.commit(step)
        store.commit(step)
        assert store.kept_texts(session.id) == ("one",)
        step = kit.then(step, kit.finished())
        store.commit(step)
        assert store.kept_texts(session.id) == ("one",)
        second = replace(kit.first(store.next_turn_id(session.id), session.id, parent=session.head), takes_kept=True)
        with pytest.raises(Conflict):
            store.commit(second)
        assert store.kept_texts(session.id) == ("one",)
        assert store.kept_texts(other.id) == ("theirs",)

    def test_settings_are_kept_and_replaced(self, store: Store, opened: Callable[[], Store]) -> None:
        assert store.setting("default_model") is None
        store.set_setting("default_model", "local")
        store.set_setting("default_model", "")
        assert opened().setting("default_model") == ""

    # leases

    def test_a_session_held_by_a_living_process_is_refused_and_says_by_whom(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.hold(session.id, holder(pid=41), ttl_s=30)
        world.now += 3600
        with pytest.raises(SessionHeld) as caught:
            store.hold(session.id, holder(pid=42))
        assert "host box" in str(caught.value)
        assert "pid 41" in str(caught.value)
        assert "41" in caught.value.advice
        store.hold(session.id, holder(pid=41))

    def test_a_dead_process_of_this_host_holds_nothing(self, store: Store, session: SessionInfo, world: World) -> None:
        store.hold(session.id, holder(pid=41), ttl_s=1_000)
        world.dead.add(41)
        store.hold(session.id, holder(pid=42))
        with pytest.raises(SessionHeld):
            store.hold(session.id, holder(pid=43))

    def test_another_host_holds_until_its_time_runs_out(self, store: Store, session: SessionInfo, world: World) -> None:
        store.hold(session.id, holder(host="far", pid=41), ttl_s=30)
        world.dead.add(41)
        world.now += 29
        with pytest.raises(SessionHeld) as caught:
            store.hold(session.id, holder(pid=42))
        assert "far" in str(caught.value)
        assert "pid 41" in str(caught.value)
        store.hold(session.id, holder(host="far", pid=41), ttl_s=30)
        world.now += 30
        store.hold(session.id, holder(pid=42))

    def test_a_process_in_another_container_of_this_host_is_no_dead_one(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        """Its number means nothing here, where it is free or another process has it."""
        store.hold(session.id, holder(pid=41, boot="b1/4026532451"), ttl_s=30)
        world.dead.add(41)
        found = store.held(session.id)
        assert found is not None and found.holder.pid == 41
        with pytest.raises(SessionHeld, match="pid 41"):
            store.hold(session.id, holder(pid=42))
        world.now += 30
        store.hold(session.id, holder(pid=42, boot="b1/4026532452"), ttl_s=30)
        with pytest.raises(SessionHeld, match="pid 42"):
            store.hold(session.id, holder(pid=41, boot="b1/4026532451"))
        # Of an earlier boot none is left, wherever it was.
        store.release(session.id, holder(pid=42, boot="b1/4026532452"))
        store.hold(session.id, holder(pid=41, boot="b0/4026532451"), ttl_s=30)
        store.hold(session.id, holder(pid=42))

    def test_a_lease_from_a_clock_far_ahead_does_not_lock_for_ever(
        self, store: Store, session: SessionInfo, world: World
    ) -> None:
        store.hold(session.id, holder(host="far"), ttl_s=30)
        world.now -= 315_360_000
        store.hold(session.id, holder(pid=42))

    def test_release_gives_back_only_ones_own(self, store: Store, session: SessionInfo) -> None:
        store.hold(session.id, holder(pid=41))
        store.release(session.id, holder(pid=42))
        store.release(SessionId("nope"), holder(pid=42))
        with pytest.raises(SessionHeld):
            store.hold(session.id, holder(pid=42))
        store.release(session.id, holder(pid=41))
        store.hold(session.id, holder(pid=42))
        with pytest.raises(NoSuchSession):
            store.hold(SessionId("nope"), holder())

    def test_only_a_lease_that_is_there_is_renewed(self, store: Store, session: SessionInfo, world: World) -> None:
        store.hold(session.id, holder(pid=41), ttl_s=30)
        store.renew(session.id, holder(pid=41), ttl_s=1_000)
        found = store.held(session.id)
        assert found is not None and found.expires_at == world.now + 1_000
        store.take_over(session.id, holder(pid=42), of=holder(pid=41))
        store.renew(session.id, holder(pid=41))
        assert _held_by(store, session) == holder(pid=42)
        world.dead.add(42)
        store.renew(session.id, holder(pid=41))
        assert store.held(session.id) is None
        store.release(session.id, holder(pid=42))
        store.renew(session.id, holder(pid=41))
        store.renew(SessionId("nope"), holder(pid=41))
        assert store.held(session.id) is None

    def test_who_holds_a_session_and_since_when_can_be_seen_by_others(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo, world: World
    ) -> None:
        assert opened().held(session.id) is None
        store.hold(session.id, holder(pid=41), ttl_s=30)
        taken = world.now
        world.now += 20
        store.hold(session.id, holder(pid=41), ttl_s=30)
        found = opened().held(session.id)
        assert found is not None
        assert (found.holder, found.since, found.expires_at) == (holder(pid=41), taken, world.now + 30)
        world.dead.add(41)
        assert opened().held(session.id) is None
        with pytest.raises(NoSuchSession):
            store.held(SessionId("nope"))

    def test_a_request_to_hand_over_lasts_until_it_is_taken_back_or_another_one_holds(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        other = opened()
        other.want(session.id, holder(pid=42))
        assert store.held(session.id) is None
        store.hold(session.id, holder(pid=41))
        other.want(session.id, holder(pid=42))
        store.hold(session.id, holder(pid=41))
        assert _asked(store, session) == (holder(pid=42), False)
        store.heard(session.id, holder(pid=40))
        assert _asked(other, session) == (holder(pid=42), False)
        store.heard(session.id, holder(pid=41))
        assert _asked(other, session) == (holder(pid=42), True)
        store.want_no_more(session.id, holder(pid=43))
        assert _asked(other, session) == (holder(pid=42), True)
        other.want_no_more(session.id, holder(pid=42))
        assert _asked(store, session) == (None, False)
        other.want(session.id, holder(pid=42))
        store.release(session.id, holder(pid=41))
        other.hold(session.id, holder(pid=42))
        assert _asked(store, session) == (None, False)

    def test_a_session_is_taken_over_only_from_the_one_that_was_seen_to_hold_it(
        self, store: Store, session: SessionInfo
    ) -> None:
        store.hold(session.id, holder(pid=41))
        with pytest.raises(SessionHeld, match="41"):
            store.take_over(session.id, holder(pid=42), of=holder(pid=40))
        store.take_over(session.id, holder(pid=42), of=holder(pid=41))
        with pytest.raises(SessionHeld, match="42"):
            store.hold(session.id, holder(pid=41))
        store.release(session.id, holder(pid=41))
        store.take_over(session.id, holder(pid=42), of=holder(pid=41))
        assert _held_by(store, session) == holder(pid=42)

    def test_nothing_is_stored_by_a_process_from_which_the_session_was_taken(
        self, store: Store, session: SessionInfo, turn: TurnId
    ) -> None:
        # The world's process is number 77.
        store.hold(session.id, holder(pid=77))
        call = kit.a_call(turn)
        waiting = self.pending_turn(store, session, turn)
        store.take_over(session.id, holder(pid=42), of=holder(pid=77))
        begun = kit.then(waiting, kit.in_round(CallState(call=call, status=kit.started())), effects=(kit.run(call),))
        with pytest.raises(Conflict, match="pid 42"):
            store.commit(begun)
        with pytest.raises(Conflict, match="pid 42"):
            store.append_message(session.id, kit.user("divider"))
        assert store.journal(turn) == []
        assert store.load_turn(turn).seq == waiting.state.seq
        store.release(session.id, holder(pid=42))
        store.commit(begun)
        assert [row.attempt for row in store.journal(turn)] == [1]

    # the rest

    def test_version_changes_when_another_one_wrote_and_not_by_itself(
        self, store: Store, opened: Callable[[], Store], session: SessionInfo
    ) -> None:
        other = opened()
        seen = store.version()
        store.set_setting("a", "1")
        assert store.version() == seen
        other.set_setting("a", "2")
        assert store.version() != seen

    def test_a_sound_store_has_no_complaints(self, store: Store, session: SessionInfo, turn: TurnId) -> None:
        self.pending_turn(store, session, turn)
        assert store.check() == []

    def test_a_closed_store_says_so(self, store: Store) -> None:
        store.close()
        store.close()
        with pytest.raises(StoreError):
            store.sessions()
        with pytest.raises(StoreError):
            store.create_session(workspace="/w", role="r", persona="p")
        with pytest.raises(StoreError):
            store.version()


def _asked(store: Store, session: SessionInfo) -> tuple[Holder | None, bool]:
    hold = store.held(session.id)
    assert hold is not None
    return hold.wanted_by, hold.heard


def _held_by(store: Store, session: SessionInfo) -> Holder | None:
    hold = store.held(session.id)
    return None if hold is None else hold.holder
