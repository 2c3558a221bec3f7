"""The file: rights, damage, versions, full disks, killed processes, two of them at once."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.errors import Conflict, StoreError, Unreadable
from chatops.domain.ids import MessageId, SessionId, TurnId
from chatops.domain.messages import NoticeMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.effects import Step
from chatops.engine.state import CallState, Finished
from chatops.store import process as processes
from chatops.store.base import Holder
from chatops.store.codec import DAMAGED
from chatops.store.file import StoreFile
from chatops.store.process import is_alive, this_process
from chatops.store.schema import APPLICATION_ID, MIGRATIONS, SCHEMA_VERSION
from chatops.store.sqlite import SqliteStore
from tests.store import runkit as run
from tests.store import storekit as kit

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a folder #%?" / "deeper" / "chatops.db"


def a_session(store: SqliteStore) -> SessionId:
    return store.create_session(workspace="/w", role="coder", persona="default").id


def sql(path: Path, statement: str, *values: object) -> list[tuple[object, ...]]:
    with closing(sqlite3.connect(path)) as raw, raw:
        return raw.execute(statement, values).fetchall()


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.parametrize("umask", [0o000, 0o077, 0o022])
def test_file_and_folders_are_closed_to_others_whatever_the_umask(path: Path, umask: int) -> None:
    before = os.umask(umask)
    try:
        with closing(SqliteStore(path)) as store:
            a_session(store)
            names = [path, Path(f"{path}-wal"), Path(f"{path}-shm")]
            assert [mode(name) for name in names] == [0o600] * 3
            assert [mode(folder) for folder in (path.parent, path.parent.parent)] == [0o700] * 2
            assert store.check() == []
    finally:
        os.umask(before)


def test_a_file_open_to_others_is_closed_and_a_folder_that_was_there_is_left_alone(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
    path.chmod(0o644)
    path.parent.chmod(0o755)
    with closing(SqliteStore(path)) as store:
        assert store.session(session_id).id == session_id
    assert (mode(path), mode(path.parent)) == (0o600, 0o755)


def test_what_is_open_to_others_is_a_complaint(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        path.chmod(0o640)
        path.parent.chmod(0o777)
        complaints = " ".join(store.check())
    assert "chmod 600" in complaints
    assert "chmod 700" in complaints


def test_every_connection_writes_ahead_and_waits_for_the_disk(path: Path) -> None:
    connection = StoreFile(path)
    try:
        names = ("journal_mode", "synchronous", "busy_timeout", "foreign_keys", "user_version")
        assert [connection.pragma(name) for name in names] == [("wal",), (2,), (5000,), (1,), (SCHEMA_VERSION,)]
        assert connection.notices == []
    finally:
        connection.close()


def test_where_there_is_no_write_ahead_log_the_store_works_without(path: Path) -> None:
    with closing(SqliteStore(path, vfs="unix-dotfile")) as store:
        session_id = a_session(store)
        assert "write-ahead" in store.notices[0]
        assert any("write-ahead" in complaint for complaint in store.check())
    assert sql(path, "PRAGMA journal_mode") == [("delete",)]
    with closing(SqliteStore(path)) as store:
        assert store.session(session_id).id == session_id
        assert store.notices == ()


def test_what_was_stored_is_there_after_opening_again(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.first(turn, session_id)
        store.commit(step)
        ask = kit.then(step, kit.in_round(CallState(call=call, status=kit.awaiting())), grants=(kit.remembered(),))
        store.commit(ask)
        assert store.post_decision(kit.decided(call))
    with closing(SqliteStore(path)) as store:
        assert store.load_turn(turn) == ask.state
        assert store.posted(turn) == [kit.decided(call)]
        with pytest.raises(Conflict):
            store.commit(ask)


def test_a_newer_file_is_refused_and_not_touched(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        a_session(store)
    sql(path, f"PRAGMA user_version = {SCHEMA_VERSION + 1}")
    before, when = path.read_bytes(), path.stat().st_mtime_ns
    with pytest.raises(Unreadable, match=f"version {SCHEMA_VERSION + 1}") as caught:
        SqliteStore(path)
    assert "Update" in caught.value.advice
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (before, when)
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def test_a_database_of_another_program_is_refused_and_not_touched(path: Path) -> None:
    path.parent.mkdir(parents=True)
    sql(path, "CREATE TABLE bookmarks (url TEXT)")
    before = path.read_bytes()
    with pytest.raises(Unreadable, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


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
    with closing(SqliteStore(path)) as store:
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
        assert any("1 messages are damaged" in complaint for complaint in store.check())


def test_a_lost_message_leaves_a_notice_where_the_history_breaks(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        for n in range(4):
            store.append_message(session_id, kit.user(session_id, f"text {n}", n))
        sql(path, "DELETE FROM messages WHERE id = ?", kit.user(session_id, n=1).id)
        notice, *rest = store.history(session_id)
        assert isinstance(notice, NoticeMessage)
        assert rest == [kit.user(session_id, f"text {n}", n) for n in (2, 3)]
        assert store.check() != []
        sql(path, "DELETE FROM messages")
        assert [message.kind for message in store.history(session_id)] == ["notice"]


def test_a_message_that_is_its_own_ancestor_does_not_hang(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
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
    ],
)
def test_a_damaged_or_newer_checkpoint_is_unreadable_and_the_conversation_is_not(path: Path, change: str) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        store.commit(kit.first(turn, session_id))
        sql(path, f"UPDATE turns SET {change}")
        with pytest.raises(Unreadable) as caught:
            store.load_turn(turn)
        assert caught.value.advice
        assert store.history(session_id) == (kit.user(turn),)


@pytest.mark.parametrize(
    "change",
    ["version = 999", "state = 'x'", "state = '{}'", "state = 5", "state = json_set(state, '$.phase.step', 7)"],
)
def test_a_damaged_or_newer_run_is_unreadable_and_its_conversation_is_not(path: Path, change: str) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        store.append_message(session_id, kit.user(session_id))
        store.commit_run(run.begun(session_id))
        sql(path, f"UPDATE runs SET {change}")
        with pytest.raises(Unreadable) as caught:
            store.load_run(session_id)
        assert caught.value.advice
        assert store.history(session_id) == (kit.user(session_id),)
        assert [info.run.workflow for info in store.runs() if info.run] == ["release"]
        assert any("run" in problem for problem in store.check())


def test_a_damaged_word_to_a_run_says_nothing(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        step = run.begun(session_id)
        store.commit_run(step)
        assert store.post_word(session_id, run.CANCELLED)
        sql(path, "UPDATE words SET body = '{}'")
        assert store.posted_words(session_id) == []
        assert store.post_word(session_id, run.CANCELLED)


def test_a_file_of_the_first_version_becomes_one_that_takes_runs(path: Path) -> None:
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as raw:
        for statement in MIGRATIONS[0].statements:
            raw.execute(statement)
        raw.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        raw.execute("PRAGMA user_version = 1")
        raw.execute(
            "INSERT INTO sessions (id, workspace, title, role, persona, activity, created_at, updated_at) "
            "VALUES ('old', '/w', 'T', 'coder', 'default', 1, 0, 0)"
        )
        raw.commit()
    with closing(SqliteStore(path)) as store:
        assert store.session(SessionId("old")).run is None
        store.commit_run(run.begun(SessionId("old")))
        assert [info.id for info in store.runs()] == ["old"]


def test_damaged_answers_and_grants_grant_nothing(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.first(turn, session_id)
        store.commit(step)
        phase = kit.in_round(CallState(call=call, status=kit.awaiting()))
        store.commit(kit.then(step, phase, grants=(kit.remembered(),)))
        assert store.post_decision(kit.decided(call))
        sql(path, """UPDATE posted SET decision = '{"kind":"aproved"}'""")
        sql(path, """UPDATE grants SET pattern = '{"kind":"everything"}'""")
        assert store.posted(turn) == []
        assert store.grants(session_id) == ()
        sql(path, "UPDATE pending SET body = 'x'")
        assert store.queue() == []


def test_a_full_disk_is_a_sentence_and_what_was_saved_stays(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        call = kit.a_call(turn)
        step = kit.first(turn, session_id)
        store.commit(step)
        # This file may not grow any further, which SQLite reports just as it does a full disk.
        pages = store._rows.pragma("page_count")
        assert pages is not None
        store._rows.pragma(f"max_page_count = {pages[0]}")
        runs = kit.then(
            step,
            kit.in_round(CallState(call=call, status=kit.started())),
            UserMessage(id=MessageId("big"), text="x" * 1_000_000),
            effects=(kit.run(call),),
        )
        with pytest.raises(StoreError, match="Disk full") as caught:
            store.commit(runs)
        assert caught.value.advice
        assert store.load_turn(turn) == step.state
        assert store.journal(turn) == []
        store._rows.pragma("max_page_count = 1000000")
        store.commit(runs)
        assert store.load_turn(turn) == runs.state
        assert store.check() == []


def test_a_folder_that_cannot_be_made_is_a_sentence_with_the_way_out(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "chatops.db", tmp_path):
        with pytest.raises(StoreError, match="Not saving") as caught:
            SqliteStore(place)
        assert "CHATOPS_HOME" in caught.value.advice


def test_a_file_that_may_not_be_written_is_a_sentence(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        store._rows.pragma("query_only = 1")
        with pytest.raises(StoreError, match="cannot be written"):
            store.append_message(session_id, kit.user(session_id))
        assert store.history(session_id) == ()


def test_a_writer_in_the_way_is_waited_for(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        script = (
            "import sqlite3, sys, time\n"
            "raw = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
            "raw.execute('BEGIN IMMEDIATE')\n"
            "print('held', flush=True)\n"
            "time.sleep(0.3)\n"
            "raw.execute('COMMIT')\n"
        )
        with subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == "held\n"
            assert store.history(session_id) == ()
            store.append_message(session_id, kit.user(session_id))
        assert store.history(session_id) == (kit.user(session_id),)


def test_a_writer_that_never_lets_go_is_a_sentence(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        store._rows.pragma("busy_timeout = 20")
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="locked"):
                store.append_message(session_id, kit.user(session_id))
            other.execute("ROLLBACK")
        store.append_message(session_id, kit.user(session_id))


def test_several_processes_may_make_the_store_at_once(path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from chatops.store.sqlite import SqliteStore\n"
        "sys.stdin.readline()\n"
        "store = SqliteStore(Path(sys.argv[1]))\n"
        "print(store.create_session(workspace='/w', role='r', persona='p').id, store.notices)\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    pipe = subprocess.PIPE
    crowd = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(4)]
    for process in crowd:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    said = [process.communicate(timeout=30)[0].split() for process in crowd]
    assert [notices for _, notices in said] == ["()"] * 4
    with closing(SqliteStore(path)) as store:
        assert len({store.session(SessionId(made)).id for made, _ in said}) == 4


def test_of_two_processes_on_one_turn_one_wins_and_there_is_one_intent(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        for _ in range(3):
            session_id = a_session(store)
            turn = store.next_turn_id(session_id)
            store.commit(kit.first(turn, session_id))
            command = [sys.executable, "-m", "tests.store.racer", str(path), turn]
            pipe = subprocess.PIPE
            racers = [subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True) for _ in range(2)]
            for racer in racers:
                assert racer.stdout is not None
                assert racer.stdout.readline() == "ready\n"
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write("go\n")
                racer.stdin.flush()
            said = sorted(racer.communicate(timeout=30)[0] for racer in racers)
            assert said == ["conflict\n", "won\n"]
            assert len(store.journal(turn)) == 1
            assert store.load_turn(turn).seq == 1


def test_no_kill_loses_what_was_acknowledged(path: Path) -> None:
    chance = random.Random(7)
    with closing(SqliteStore(path)) as store:
        session_ids = [a_session(store), a_session(store)]
    begun: dict[SessionId, list[TurnId]] = {session_id: [] for session_id in session_ids}
    pipe = subprocess.PIPE
    command = [sys.executable, "-m", "tests.store.committer", str(path)]
    victims = {
        session_id: subprocess.Popen([*command, session_id], cwd=ROOT, stdin=pipe, stdout=pipe, text=True)
        for session_id in session_ids
    }
    for _ in range(10):
        for victim in victims.values():
            assert victim.stdin is not None
            victim.stdin.write("go\n")
            victim.stdin.flush()
        heard = {id_: _killed(victim, after_s=chance.uniform(0, 0.02)) for id_, victim in victims.items()}
        for session_id, acknowledged in heard.items():
            begun[session_id] += [turn for what, turn in acknowledged if what == "begun"]
            with closing(SqliteStore(path)) as store:
                for what, turn in acknowledged[-5:]:
                    _must_be_stored(store, what, turn)
                _finish(store, session_id)
    for victim in victims.values():
        victim.communicate(timeout=30)
    with closing(SqliteStore(path)) as store:
        assert store.check() == []
        for session_id in session_ids:
            stored = [message.id for message in store.history(session_id) if message.kind == "user"]
            # A turn that was killed before it was acknowledged may be there as well; none may be missing.
            assert [turn for turn in stored if turn.removesuffix(".m1") in set(begun[session_id])] == [
                f"{turn}.m1" for turn in begun[session_id]
            ]


def _killed(victim: subprocess.Popen[str], *, after_s: float) -> list[tuple[str, TurnId]]:
    """Kill the committing child some time after its first commit; what it had acknowledged by then."""
    assert victim.stdout is not None
    word, pid = victim.stdout.readline().split()
    assert word == "pid"
    heard = [victim.stdout.readline()]
    time.sleep(after_s)
    os.kill(int(pid), signal.SIGKILL)
    heard += iter(victim.stdout.readline, "ended\n")
    return [(what, TurnId(turn)) for what, turn in (line.split() for line in heard)]


def _must_be_stored(store: SqliteStore, what: str, turn: TurnId) -> None:
    state, rows = store.load_turn(turn), store.journal(turn)
    assert state.seq >= {"begun": 0, "started": 1, "done": 2}[what]
    assert len(rows) == (0 if state.seq == 0 else 1)
    if what == "done":
        assert rows[0].outcome is Outcome.SUCCESS


def _finish(store: SqliteStore, session_id: SessionId) -> None:
    """Whatever a kill left behind can be gone on with."""
    unfinished = store.session(session_id).active_turn
    if unfinished is not None:
        state = store.load_turn(unfinished)
        store.commit(Step(state=replace(state, seq=state.seq + 1, phase=kit.finished())))
        assert isinstance(store.load_turn(unfinished).phase, Finished)


def test_older_files_become_newer_ones_step_by_step() -> None:
    assert [migration.version for migration in MIGRATIONS] == list(range(1, SCHEMA_VERSION + 1))
    assert all(migration.summary.strip() for migration in MIGRATIONS)


def test_this_process_is_alive_and_one_with_another_start_or_boot_is_not() -> None:
    me = this_process()
    assert me.pid == os.getpid()
    assert is_alive(me)
    assert not is_alive(replace(me, pid_started=f"{me.pid_started}9"))
    assert not is_alive(replace(me, boot_id="another boot"))
    assert not is_alive(replace(me, pid=0))
    assert not is_alive(replace(me, pid=2**40))


def test_a_container_is_told_from_its_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    boot = processes._BOOT_ID.read_text().strip()
    monkeypatch.setattr(processes, "_FIRST_NAMESPACE", processes._NAMESPACE.stat().st_ino)
    assert processes._boot_id() == boot
    monkeypatch.setattr(processes, "_FIRST_NAMESPACE", 1)
    assert processes._boot_id() == f"{boot}/{processes._NAMESPACE.stat().st_ino}"
    monkeypatch.setattr(processes, "_NAMESPACE", tmp_path / "none")
    assert processes._boot_id() == boot


def test_a_process_that_ended_is_dead_even_before_it_is_waited_for() -> None:
    with subprocess.Popen([sys.executable, "-c", ""], stdin=subprocess.PIPE) as ended:
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        assert not is_alive(Holder(host="h", pid=ended.pid, boot_id="", pid_started=""))
    assert not is_alive(Holder(host="h", pid=ended.pid, boot_id="", pid_started=""))


def test_reading_the_protocol_loads_neither_pydantic_nor_sqlite() -> None:
    script = "import sys, chatops.store.base; print({'pydantic', 'sqlite3', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


def test_a_message_that_nobody_can_have_said_is_damage_and_none_is_stored(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("chatops.store.messages.LARGEST", 1000)
    with closing(SqliteStore(path)) as store:
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
def test_a_damaged_value_of_a_conversation_costs_no_more_than_that(path: Path, column: str) -> None:
    with closing(SqliteStore(path)) as store:
        session_id, other = a_session(store), a_session(store)
        for id_ in (session_id, other):
            store.append_message(id_, kit.user(id_))
        sql(path, f"UPDATE sessions SET {column} = x'ff00fe' WHERE id = ?", session_id)
        assert {info.id for info in store.sessions()} == {session_id, other}
        assert store.session(session_id).id == session_id
        assert store.history(session_id) == (kit.user(session_id),)
        assert store.fork_session(session_id).forked_from == session_id


def test_a_damaged_decision_is_left_out_of_the_log_and_told(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        session_id = a_session(store)
        turn = store.next_turn_id(session_id)
        calls = [kit.a_call(turn, index) for index in (1, 2)]
        step = kit.first(turn, session_id)
        store.commit(step)
        phase = kit.in_round(*(CallState(call=call, status=kit.settled()) for call in calls))
        store.commit(kit.then(step, phase, decisions=tuple(kit.record(call) for call in calls)))
        sql(path, "UPDATE decisions SET by = '{' WHERE call_id = ?", calls[0].id)
        assert [entry.call_id for entry in store.decisions()] == [calls[1].id]
        assert any("1 entries of the decision log are damaged" in problem for problem in store.check())
