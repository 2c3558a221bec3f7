"""A row that is damaged costs no more than itself, and lets nothing run."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.decisions import RuleScope
from chatops.domain.errors import StoreError, UnreadableError
from chatops.domain.messages import NoticeMessage
from chatops.engine.state import CallState
from chatops.store.codec import DAMAGED
from chatops.store.store import Store
from tests.store import runkit as run
from tests.store import storekit as kit
from tests.store.filekit import a_session, sql


@pytest.mark.fault("E08")
@pytest.mark.parametrize(
    "body",
    [
        "{broken",
        "[]",
        '{"kind":"user","id":"of another","text":"x"}',
        '{"kind":"user"}',
        '{"kind":"martian","id":"m1","text":""}',
        None,
        b"\xff\xfe",
        7,
        "[" * 100_000,
    ],
)
def test_one_damaged_message_is_shown_as_damaged_and_the_rest_is_there(path: Path, body: object) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        for n in range(3):
            store.append_message(session_id, kit.user(session_id, f"text {n}", n))
        damaged = kit.user(session_id, n=1).id
        # NULL is what the column forbids and damage does not ask.
        stored = body if body is not None else ""
        sql(path, "UPDATE messages SET body = CAST(? AS BLOB) WHERE id = ?", stored, damaged)
        if not isinstance(body, bytes):
            sql(path, "UPDATE messages SET body = ? WHERE id = ?", stored, damaged)
        before, notice, after = store.history(session_id)
        assert (before, after) == (kit.user(session_id, "text 0", 0), kit.user(session_id, "text 2", 2))
        assert isinstance(notice, NoticeMessage)
        assert (notice.id, notice.text) == (damaged, DAMAGED)
        assert any("1 message is damaged" in complaint for complaint in kit.problems(store))


def test_a_lost_message_leaves_a_notice_where_the_history_breaks(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        for n in range(4):
            store.append_message(session_id, kit.user(session_id, f"text {n}", n))
        sql(path, "DELETE FROM messages WHERE id = ?", kit.user(session_id, n=1).id)
        notice, *rest = store.history(session_id)
        assert isinstance(notice, NoticeMessage)
        assert rest == [kit.user(session_id, f"text {n}", n) for n in (2, 3)]
        assert kit.problems(store) != []
        sql(path, "DELETE FROM messages")
        assert [message.kind for message in store.history(session_id)] == ["notice"]


def test_a_message_that_is_its_own_ancestor_does_not_hang(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        for n in range(3):
            store.append_message(session_id, kit.user(session_id, f"text {n}", n))
        last = kit.user(session_id, n=2).id
        sql(path, "UPDATE messages SET parent_id = ? WHERE id = ?", last, kit.user(session_id, n=0).id)
        assert store.history(session_id)[-1] == kit.user(session_id, "text 2", 2)


@pytest.mark.parametrize(
    "change",
    [
        "version = 999",
        "state = 'x'",
        "state = '{}'",
        "state = '[1]'",
        "state = x'ff00'",
        "state = 5",
        "state = json_set(state, '$.phase.kind', 'martian')",
        "state = json_set(state, '$.messages', 'none')",
        "state = json_remove(state, '$.grant')",
        # What is known of a turn, as that it was copied, is looked up by the id that it says.
        "state = json_set(state, '$.turn_id', 'other')",
        "state = json_set(state, '$.session_id', 'other')",
    ],
)
def test_a_damaged_or_newer_checkpoint_leaves_the_messages_readable(path: Path, change: str) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        store.commit(kit.first(turn, session_id))
        sql(path, f"UPDATE turns SET {change}")
        with pytest.raises(UnreadableError) as caught:
            store.load_turn(turn)
        assert caught.value.advice
        assert store.history(session_id) == (kit.user(turn),)


@pytest.mark.parametrize(
    "change", ["DELETE FROM turn_grants", "UPDATE turn_grants SET body = replace(body, 'prompt', 'tpromp')"]
)
def test_a_turn_whose_grant_is_lost_or_was_changed_cannot_be_resumed(path: Path, change: str) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        store.commit(kit.first(turn, session_id))
        sql(path, change)
        with pytest.raises(UnreadableError, match="its grant is lost"):
            store.load_turn(turn)
        assert any("1 unfinished turn is damaged" in complaint for complaint in kit.problems(store))
        assert store.history(session_id) == (kit.user(turn),)


@pytest.mark.parametrize(
    "change",
    ["version = 999", "state = 'x'", "state = '{}'", "state = 5", "state = json_set(state, '$.phase.step', 7)"],
)
def test_a_damaged_or_newer_run_leaves_its_messages_readable(path: Path, change: str) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id))
        store.commit_run(run.begun(session_id))
        sql(path, f"UPDATE runs SET {change}")
        with pytest.raises(UnreadableError) as caught:
            store.load_run(session_id)
        assert caught.value.advice
        assert store.history(session_id) == (kit.user(session_id),)
        assert [info.run.workflow for info in store.runs() if info.run] == ["release"]
        assert any("run" in problem for problem in kit.problems(store))


def test_a_damaged_review_is_ignored(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        step = run.begun(session_id)
        store.commit_run(step)
        assert store.post_review(session_id, run.CANCELLED)
        sql(path, "UPDATE posted_reviews SET body = '{}'")
        assert store.posted_reviews(session_id) == [None]
        assert store.post_review(session_id, run.CANCELLED)


def test_damaged_decisions_and_rules_allow_nothing(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.begun(store, turn, session_id)
        phase = kit.in_round(CallState(call=call, status=kit.awaiting()))
        store.commit(kit.then(step, phase, rules=(kit.remembered(), kit.remembered(scope=RuleScope.FOLDER))))
        assert store.post_decision(kit.decided(call))
        sql(path, """UPDATE posted SET decision = '{"kind":"aproved"}'""")
        sql(path, """UPDATE rules SET pattern = '{"kind":"everything"}' WHERE scope = 'session'""")
        sql(path, "UPDATE rules SET scope = 'everywhere' WHERE scope = 'folder'")
        assert store.posted_decisions(turn) == []
        assert store.rules() == []
        sql(path, "UPDATE pending SET body = 'x'")
        assert store.pending_calls() == []


def test_a_message_that_is_too_large_is_not_stored_and_counts_as_damaged(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.store.messages.LARGEST", 1000)
    with closing(Store(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id, "small", 1))
        with pytest.raises(StoreError, match="too large"):
            store.append_message(session_id, kit.user(session_id, "x" * 1000, 2))
        store.append_message(session_id, kit.user(session_id, "after", 3))
        body = f'{{"id":"{kit.user(session_id, n=1).id}","text":"{"x" * 1000}","kind":"user"}}'
        sql(path, "UPDATE messages SET body = ? WHERE id = ?", body, kit.user(session_id, n=1).id)
        damaged, after = store.history(session_id)
        assert isinstance(damaged, NoticeMessage)
        assert after == kit.user(session_id, "after", 3)


@pytest.mark.parametrize(
    "column", ["workspace", "title", "role", "persona", "created_at", "message_count", "last_turn"]
)
def test_a_damaged_value_of_a_session_costs_only_that_value(path: Path, column: str) -> None:
    with closing(Store(path)) as store:
        session_id, other = a_session(store), a_session(store)
        for id_ in (session_id, other):
            store.append_message(id_, kit.user(id_))
        sql(path, f"UPDATE sessions SET {column} = x'ff00fe' WHERE id = ?", session_id)
        assert {info.id for info in store.sessions()} == {session_id, other}
        assert store.session(session_id).id == session_id
        assert store.history(session_id) == (kit.user(session_id),)
        assert store.fork_session(session_id).forked_from == session_id


def test_a_damaged_decision_is_left_out_of_the_log_and_reported(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        calls = [kit.a_call(turn, index) for index in (1, 2)]
        step = kit.begun(store, turn, session_id)
        phase = kit.in_round(*(CallState(call=call, status=kit.settled()) for call in calls))
        store.commit(kit.then(step, phase, decisions=tuple(kit.record(call) for call in calls)))
        sql(path, "UPDATE decisions SET by = '{' WHERE call_id = ?", calls[0].id)
        assert [entry.call_id for entry in store.decisions()] == [calls[1].id]
        assert any("1 entry of the decision log is damaged" in problem for problem in kit.problems(store))


def test_a_grant_is_stored_once_for_each_session_and_goes_with_it(path: Path) -> None:
    with closing(Store(path)) as store:
        session_id = a_session(store)
        for _ in range(3):
            head, history = store.session(session_id).head, store.history(session_id)
            step = kit.first(store.next_turn_id(session_id), session_id, parent=head, history=history)
            store.commit(step)
            assert store.load_turn(step.state.turn_id) == step.state
            store.commit(kit.then(step, kit.finished()))
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("SELECT session_id FROM turn_grants").fetchall() == [(session_id,)]
        store.delete_session(session_id)
        with closing(sqlite3.connect(path)) as raw:
            assert raw.execute("SELECT session_id FROM turn_grants").fetchall() == []
