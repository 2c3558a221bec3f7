"""A store in memory that moves into its file once that can be written: all of it, once, and over nothing."""

import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue

import pytest

from chatops.config import failpoints
from chatops.config.paths import find_paths
from chatops.domain.errors import NotSavedError
from chatops.domain.ids import SessionId
from chatops.domain.messages import Message, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.state import CallState
from chatops.store.base import SAVED, Holder
from chatops.store.late_file import _TABLES, LateFile
from chatops.store.recovery import copy_without_turns
from chatops.store.schema import SCHEMA_VERSION, columns_of
from chatops.store.store import Store
from chatops.wiring.stored import Storage, make_store
from tests.store import runkit
from tests.store import storekit as kit
from tests.store.filekit import a_session, sql

HERE = Holder(host="box", pid=7, boot_id="b", pid_started="1")
ELSEWHERE = Holder(host="box", pid=8, boot_id="b", pid_started="1")


def opened(file: Path | LateFile, holder: Holder = HERE, *, dead: tuple[Holder, ...] = ()) -> Store:
    return Store(file, process=lambda: holder, alive=lambda other: other not in dead)


@contextmanager
def in_memory(path: Path) -> Iterator[Store]:
    """The store that a chat has while its disk is full."""
    rows, _ = copy_without_turns(path, unsaved="disk full")
    with closing(opened(LateFile(rows, notice="Disk full."))) as store:
        yield store


def a_turn(store: Store, session_id: SessionId, text: str, lease: str = "") -> None:
    """A whole turn with a call that ran."""
    info = store.session(session_id)
    turn = store.next_turn_id(session_id)
    call = kit.a_call(turn)
    begun = kit.first(turn, session_id, text=text, parent=info.head)
    ran = kit.then(
        begun,
        kit.in_round(CallState(call=call, status=kit.started())),
        kit.assistant(turn, calls=(call,)),
        effects=(kit.run(call),),
        decisions=(kit.record(call),),
    )
    for step in (begun, ran, kit.then(ran, kit.finished(), results=(kit.closing(call),))):
        store.commit(step, lease)


def texts(messages: tuple[Message, ...]) -> list[str]:
    return [message.text for message in messages if isinstance(message, UserMessage)]


def contents(path: Path) -> list[list[tuple[object, ...]]]:
    tables = sql(path, "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")
    return [sql(path, f"SELECT * FROM {name}") for (name,) in tables]


@pytest.fixture
def stored(path: Path) -> SessionId:
    """A session in the file, with a finished turn."""
    with closing(opened(path)) as store:
        session_id = a_session(store)
        a_turn(store, session_id, "before")
        store.set_setting("theirs", "1")
        store.set_setting("ours", "1")
        return session_id


def test_what_was_done_in_memory_is_in_the_file_and_continues_there(path: Path, stored: SessionId) -> None:
    with in_memory(path) as store:
        token = store.acquire_lease(stored, HERE)
        a_turn(store, stored, "in memory", token)
        copy = store.fork_session(stored)
        new = store.create_session(workspace="/w", role="coder", persona="default")
        waiting = kit.pending_turn(store, new, store.next_turn_id(new.id))
        store.queue_message(new.id, "queued")
        store.set_setting("ours", "2")
        store.set_setting("theirs", "2")
        with closing(opened(path, ELSEWHERE)) as other:
            unrelated = a_session(other)
            a_turn(other, unrelated, "elsewhere")
            other.set_setting("theirs", "3")
        store.save()
        assert (store.unsaved, store.notices) == ("", (SAVED,))
        # The same store continues in the file, with the same turn.
        store.commit(kit.then(waiting, kit.finished()))
        store.save()
        for seen in (store, opened(path)):
            assert texts(seen.history(stored)) == ["before", "in memory"]
            assert texts(seen.history(copy.id)) == ["before", "in memory"]
            assert texts(seen.history(unrelated)) == ["elsewhere"]
            assert seen.load_turn(waiting.state.turn_id).seq == 2
            assert seen.queued_messages(new.id) == ("queued",)
            assert [info.id for info in seen.sessions()] == [new.id, copy.id, stored, unrelated]
            last = seen.session(stored).last_turn
            assert last is not None
            assert [row.outcome for row in seen.journal(last)] == [Outcome.SUCCESS]
            assert len(seen.decisions(session_id=stored)) == 2
            assert (seen.setting("ours"), seen.setting("theirs")) == ("2", "3")
            lease = seen.lease(stored)
            assert lease is not None
            assert lease.holder == HERE
            assert kit.problems(seen) == []
        a_turn(store, stored, "in the file", token)


def test_the_rows_of_every_table_are_moved() -> None:
    tables = {table for table, _ in columns_of(SCHEMA_VERSION)}
    moved_by_themselves = {"sessions", "leases", "settings"}
    # A turn of a store in memory cannot continue in the background.
    assert tables - set(_TABLES) - moved_by_themselves == {"jobs"}


def test_what_is_stored_while_it_moves_is_not_lost(path: Path, stored: SessionId) -> None:
    kept: Queue[str] = Queue()
    over = threading.Event()

    def keep_on() -> int:
        for number in itertools.count():
            if over.is_set():
                return number
            store.queue_message(stored, str(number))
            kept.put(str(number))
        raise AssertionError

    with in_memory(path) as store, ThreadPoolExecutor() as pool:
        keeping = pool.submit(keep_on)
        keeping.add_done_callback(lambda _: kept.put("over"))
        try:
            assert kept.get() == "0"
            store.save()
            while not kept.empty():
                kept.get()
            assert kept.get() != "over"
        finally:
            over.set()
        number = keeping.result()
    with closing(opened(path)) as store:
        assert list(store.queued_messages(stored)) == [str(each) for each in range(number)]


def a_step_elsewhere(store: Store, session_id: SessionId) -> None:
    a_turn(store, session_id, "elsewhere")


def an_unfinished_turn(store: Store, session_id: SessionId) -> None:
    info = store.session(session_id)
    store.commit(kit.first(store.next_turn_id(session_id), session_id, parent=info.head))


def a_queued_message(store: Store, session_id: SessionId) -> None:
    store.queue_message(session_id, "elsewhere")


def a_run(store: Store, session_id: SessionId) -> None:
    store.commit_run(runkit.begun(session_id))


def an_owner(store: Store, session_id: SessionId) -> None:
    store.acquire_lease(session_id, ELSEWHERE)


def a_revoked_tool(store: Store, session_id: SessionId) -> None:
    store.set_setting(f"revoked:{session_id}", "web_fetch")


def a_deletion(store: Store, session_id: SessionId) -> None:
    store.delete_session(session_id)


Act = Callable[[Store, SessionId], None]


@pytest.mark.parametrize(
    "act",
    [a_step_elsewhere, an_unfinished_turn, a_queued_message, a_run, an_owner, a_revoked_tool, a_deletion],
    ids=lambda act: act.__name__,
)
@pytest.mark.parametrize("changed", [True, False])
def test_nothing_is_written_over_what_another_process_did(
    path: Path, stored: SessionId, act: Act, changed: bool
) -> None:
    with in_memory(path) as store:
        token = store.acquire_lease(stored, HERE)
        if changed:
            a_turn(store, stored, "in memory", token)
        new = a_session(store)
        with closing(opened(path, ELSEWHERE)) as other:
            act(other, stored)
        before = contents(path)
        with pytest.raises(NotSavedError, match=stored):
            store.save()
        with pytest.raises(NotSavedError, match=stored) as refused:
            store.save()
        assert "/export" in refused.value.advice
        assert store.unsaved == refused.value.reason
        assert contents(path) == before
        # It continues in memory.
        a_turn(store, stored, "after", token)
        assert store.session(new).id == new
        if act is an_owner:
            with closing(opened(path, ELSEWHERE)) as other:
                owned = other.lease(stored)
                assert owned is not None
                other.release_lease(stored, ELSEWHERE, owned.token)
            store.save()
            assert store.unsaved == ""


@pytest.mark.parametrize("act", [a_step_elsewhere, an_owner, a_deletion], ids=lambda act: act.__name__)
def test_a_session_that_was_not_opened_here_hinders_nothing(path: Path, stored: SessionId, act: Act) -> None:
    with in_memory(path) as store:
        new = a_session(store)
        a_turn(store, new, "in memory")
        with closing(opened(path, ELSEWHERE)) as other:
            act(other, stored)
        store.save()
        assert texts(store.history(new)) == ["in memory"]


def test_a_copy_of_an_unfinished_turn_is_not_stored(path: Path, stored: SessionId) -> None:
    with closing(opened(path)) as store:
        turn = store.next_turn_id(stored)
        call = kit.a_call(turn)
        begun = kit.first(turn, stored, parent=store.session(stored).head)
        asks = kit.in_round(CallState(call=call, status=kit.awaiting()))
        store.commit(begun)
        store.commit(kit.then(begun, asks, kit.assistant(turn, calls=(call,))))
    before = contents(path)
    with in_memory(path) as store:
        # Its history ends in results that the turn in the file does not have.
        store.fork_session(stored)
        with pytest.raises(NotSavedError):
            store.save()
        assert store.unsaved
    assert contents(path) == before


def test_a_process_that_is_killed_has_stored_nothing_of_it(
    path: Path, stored: SessionId, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = contents(path)
    with in_memory(path) as store:
        a_turn(store, stored, "in memory")
        monkeypatch.setenv(failpoints.VARIABLE, "in_late_save")
        child = os.fork()
        if child == 0:
            store.save()
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        monkeypatch.delenv(failpoints.VARIABLE)
        assert contents(path) == before
        store.save()
    with closing(opened(path)) as store:
        assert texts(store.history(stored)) == ["before", "in memory"]


def test_a_file_that_could_not_be_created_is_made_later(path: Path) -> None:
    path.parent.parent.mkdir(parents=True, exist_ok=True)
    path.parent.write_text("in the way")
    store = make_store(path, find_paths(os.environ), Storage.WANTED)
    with closing(store):
        assert store.unsaved
        new = store.create_session(workspace="/w", role="coder", persona="default")
        with pytest.raises(NotSavedError):
            store.save()
        path.parent.unlink()
        store.save()
        assert store.unsaved == ""
    with closing(opened(path)) as again:
        assert again.session(new.id).id == new.id
