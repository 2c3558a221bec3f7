"""Identity of a store's file: in a copy, nothing that was about to run runs by itself."""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, Decision, Edited, MarkedDone, Rejected, RuleScope
from chatops.domain.ids import CallId, TurnId
from chatops.engine.inputs import DecideCall
from chatops.engine.workflow.inputs import CancelRun, ReviewStep, StopRun, TryAgain
from chatops.store import identity
from chatops.store.identity import FileIdentity, copied_key
from chatops.store.store import Store
from tests.store import runkit as run
from tests.store import storekit as kit
from tests.store.damage import filled, flip, pages_of, waiting


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "chatops.db"


def copy_of(path: Path) -> Path:
    target = path.parent.parent / "copy" / path.name
    target.parent.mkdir()
    return Path(shutil.copy2(path, target))


def answered(path: Path, decision: Decision | None = None) -> None:
    """A store with a call that waits, and perhaps an answer to it that no turn has taken."""
    with closing(Store(path)) as store:
        call_id = waiting(store, store.create_session(workspace="/w", role="coder", persona="p").id)
        if decision is not None:
            assert store.post_decision(DecideCall(call_id=call_id, digest="d1", decision=decision, by=kit.ANA))


def is_copied(path: Path) -> bool:
    """Return True if the unfinished turn counts as another copy's once the store is opened."""
    with closing(Store(path)) as store:
        return any(store.setting(copied_key(info.active_turn)) for info in store.sessions() if info.active_turn)


def test_a_copy_finds_out_that_it_is_one_and_the_file_it_was_made_of_does_not(path: Path) -> None:
    answered(path)
    copy = copy_of(path)
    assert (is_copied(path), is_copied(copy)) == (False, True)
    assert is_copied(copy), "until the turn is gone on with"


def test_rules_do_not_come_along_into_a_copy(path: Path) -> None:
    rules = tuple(kit.remembered(scope=scope) for scope in RuleScope)
    with closing(Store(path)) as store:
        session = store.create_session(workspace="/w", role="coder", persona="p").id
        turn = store.next_turn_id(session)
        step = kit.begun(store, turn, session)
        store.commit(kit.then(step, kit.awaiting_model(turn), rules=rules))
    with closing(Store(copy_of(path))) as copy:
        assert copy.rules() == []
    with closing(Store(path)) as store:
        assert kit.rules(store) == list(rules)


def test_another_name_makes_no_copy(path: Path) -> None:
    answered(path)
    assert not is_copied(path.rename(path.with_name("other.db")))


@pytest.mark.parametrize(
    ("decision", "kept"),
    [
        (Approved(), False),
        (Edited(arguments="{}"), False),
        (Rejected(reason="no"), True),
        (MarkedDone(), True),
    ],
)
def test_a_copy_keeps_only_posted_decisions_that_run_nothing(decision: Decision, kept: bool, path: Path) -> None:
    answered(path, decision)
    for file, there in ((copy_of(path), kept), (path, True)):
        with closing(Store(file)) as store:
            (queued,) = store.pending_calls()
            assert (queued.decided is not None) == there


@pytest.mark.parametrize(
    ("word", "kept"),
    [
        (run.accepted(), False),
        (replace(run.accepted(), review=TryAgain(told="Shorter.")), False),
        (replace(run.accepted(), review=StopRun()), True),
        (run.CANCELLED, True),
    ],
)
def test_a_copy_keeps_only_posted_reviews_that_end_the_run(
    word: ReviewStep | CancelRun, kept: bool, path: Path
) -> None:
    with closing(Store(path)) as store:
        session = store.create_session(workspace="/w", role="coder", persona="p").id
        store.commit_run(step := run.begun(session))
        store.commit_run(run.then(step, run.review()))
        assert store.post_review(session, word)
    for file, there in ((copy_of(path), kept), (path, True)):
        with closing(Store(file)) as store:
            assert store.posted_reviews(session) == [word] * there


def test_a_decision_made_in_the_copy_counts(path: Path) -> None:
    answered(path, Approved())
    copy = copy_of(path)
    with closing(Store(copy)) as store:
        (queued,) = store.pending_calls()
        call_id = CallId(queued.pending.call.id)
        assert store.post_decision(DecideCall(call_id=call_id, digest="d1", decision=Approved(), by=kit.BEN))
    with closing(Store(copy)) as store:
        assert [one.by for one in store.posted_decisions(TurnId(queued.turn_id))] == [kit.BEN]


def test_a_store_without_an_identity_is_not_a_copy(path: Path) -> None:
    answered(path, Approved())
    with closing(sqlite3.connect(path)) as raw, raw:
        assert raw.execute("DELETE FROM settings WHERE key = 'place'").rowcount == 1
    copy = copy_of(path)
    assert not is_copied(copy)
    assert is_copied(Path(shutil.copy(copy, copy.with_name("second.db"))))


def test_a_damaged_identity_makes_the_store_a_copy(path: Path) -> None:
    answered(path)
    with closing(Store(path)) as store:
        store.set_setting("place", "7")
    assert is_copied(path)


def test_an_unknown_generation_counts_as_equal(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = FileIdentity(inode=1, generation=5)
    assert all(here.may_be(other) for other in ("1:5", "1:0"))
    assert not any(here.may_be(other) for other in ("2:5", "1:6", "1:", "", '{"inode": 1}'))
    assert replace(here, generation=0).may_be("1:6")
    answered(path, Approved())
    monkeypatch.setattr(identity, "_read_generation", lambda path: 0)
    assert not is_copied(path)
    monkeypatch.undo()
    assert not is_copied(path)


def test_another_file_under_the_same_inode_number_is_a_copy(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "_read_generation", lambda path: 5)
    answered(path, Approved())
    monkeypatch.setattr(identity, "_read_generation", lambda path: 6)
    assert is_copied(path)


def test_a_repaired_file_is_not_a_copy(path: Path) -> None:
    filled(path)
    copy = copy_of(path)
    for file in (path, copy):
        flip(file, pages_of(file, "messages")[6])
    assert (is_copied(path), is_copied(copy)) == (False, True)
    assert Path(f"{path}.bad-1").exists()


def test_a_store_that_lost_its_identity_is_a_copy(path: Path) -> None:
    filled(path)
    flip(path, pages_of(path, "settings")[0])
    assert is_copied(path)


def test_a_file_that_is_written_again_is_not_a_copy(path: Path) -> None:
    answered(path)
    with closing(Store(path)) as store:
        path.unlink()
        store.set_setting("a", "b")
        assert store.notices
    assert not is_copied(path)
