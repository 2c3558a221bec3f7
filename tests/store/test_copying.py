"""Sessions of a file are copied into a database: whole, once, and without any approval."""

import hashlib
import itertools
import os
import random
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from chatops.config import failpoints
from chatops.config.trust import TrustAnswer
from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import NotSavedError
from chatops.domain.ids import SessionId
from chatops.domain.messages import AttachedFile
from chatops.policy.delegation import UNREADABLE_BINDING
from chatops.store import audit, health
from chatops.store.base import JobRow
from chatops.store.connection import Connection
from chatops.store.copying import LEFT_OUT, TABLES, copy_sessions
from chatops.store.identity import copied_key
from chatops.store.postgres import Postgres
from chatops.store.process_identity import this_process
from chatops.store.schema import SCHEMA_VERSION, columns_of
from chatops.store.store import Store
from tests.store import storekit as kit
from tests.support.command_line import program_environment
from tests.support.postgres import find_programs, server

needs_server = pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
_NUMBERS = itertools.count()
_PNG = b"\x89PNG\r\n\x1a\n picture"


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with server() as running:
        yield running.url


@pytest.fixture
def url(address: str) -> str:
    """The address of an empty database."""
    name = f"db{next(_NUMBERS)}"
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
    return address.replace("/postgres?", f"/{name}?")


def filled(store: Store) -> tuple[SessionId, SessionId]:
    """Fill a store with what real ones hold. Return a session whose call waits, and one that is over."""
    over = store.create_session(workspace="/w\udcff", role="coder", persona="p", title="odd \0\ud83d")
    picture = store.files.keep(over.id, "a.png", _PNG)
    said = replace(kit.user("m", "look \0"), files=(AttachedFile(ref=picture, text=""),))
    store.append_message(over.id, said)
    fork = store.fork_session(over.id)
    store.append_message(fork.id, kit.assistant("n"))
    waits = store.create_session(workspace="/w", role="coder", persona="p")
    turn = store.next_turn_id(waits.id)
    step = kit.pending_turn(store, waits, turn)
    store.post_decision(kit.decided(kit.a_call(turn, 1)))
    store.post_decision(replace(kit.decided(kit.a_call(turn, 2), digest="d2"), decision=Rejected(reason="no")))
    store.commit(kit.then(step, step.state.phase, rules=(kit.remembered(),)))
    pasted = store.files.keep_pasted(b"\x89PNG\r\n\x1a\n pasted")
    store.queue_message(waits.id, f"and then @{pasted.path}")
    store.set_setting(f"revoked:{waits.id}", "shell_exec")
    store.set_setting(f"draft:/w:{waits.id}", "half a")
    child = SessionId(f"{waits.id}-1")
    store.create_child(child, workspace="/w", role="reader", binding=UNREADABLE_BINDING)
    store.append_message(child, kit.user("c", "a task"))
    job = store.create_session(workspace="/w", role="coder", persona="p")
    of_job = kit.pending_turn(store, job, store.next_turn_id(job.id))
    store.put_job(
        JobRow(
            session=store.session(job.id),
            turn_id=of_job.state.turn_id,
            options='{"seal":"s"}',
            uid=1000,
            host="h",
            boot_id="b",
            folder="/d",
            level=2,
        )
    )
    gone = store.create_session(workspace="/w", role="coder", persona="p")
    kit.pending_turn(store, gone, store.next_turn_id(gone.id))
    store.delete_session(gone.id)
    store.log_trust("/w", TrustAnswer.TRUSTED)
    store.acquire_lease(waits.id, this_process())
    return waits.id, over.id


def test_each_table_is_copied_or_left_out_on_purpose() -> None:
    assert {*TABLES, *LEFT_OUT} == {table for table, _ in columns_of(SCHEMA_VERSION)}


@needs_server
@pytest.mark.postgres
class TestCopying:
    @pytest.fixture
    def source(self, path: Path) -> Iterator[Store]:
        with closing(Store(path)) as store:
            self.waits, self.over = filled(store)
            yield store

    @pytest.fixture
    def target(self, url: str) -> Iterator[Store]:
        with closing(Store(Postgres(url))) as store:
            yield store

    def test_all_of_it_is_there_once_and_no_approval(self, source: Store, target: Store) -> None:
        made = copy_sessions(source._rows, target._rows)
        assert (len(made.new), made.same, made.differing, made.failed, made.lost) == (7, [], [], {}, [])
        assert (made.files, made.open, made.hidden) == (3, [self.waits], 0)
        for one in source.sessions(children=True):
            copied = target.session(one.id)
            assert replace(copied, created_at=0, updated_at=0) == replace(one, created_at=0, updated_at=0)
            assert target.history(one.id) == source.history(one.id)
            assert target.queued_messages(one.id) == source.queued_messages(one.id)
        assert [one.id for one in target.sessions()] == [one.id for one in source.sessions()]
        # A database records who writes a row into it.
        rows = [replace(row, written_by="") for row in target.audit()]
        assert (rows, audit.verify(target.audit(), ())[0]) == (source.audit(), [])
        assert target.decisions() == source.decisions()
        assert [job.options for job in target.jobs()] == ['{"seal":"s"}']
        turn = target.session(self.waits).active_turn
        assert turn is not None
        assert target.load_turn(turn) == source.load_turn(turn)
        assert [one.pending for one in target.pending_calls()] == [one.pending for one in source.pending_calls()]
        assert [type(one.decision) for one in source.posted_decisions(turn)] == [Approved, Rejected]
        assert [type(one.decision) for one in target.posted_decisions(turn)] == [Rejected]
        assert target.setting(copied_key(turn)) == "1"
        assert (target.rules(session_id=self.waits), target.lease(self.waits)) == ([], None)
        assert [target.setting(f"{key}:{self.waits}") for key in ("revoked", "draft:/w")] == ["shell_exec", "half a"]
        (file,) = [file.ref for message in target.history(self.over) for file in getattr(message, "files", ())]
        assert target.files.read(file) == _PNG
        pasted = target.queued_messages(self.waits)[0].partition("@")[2]
        assert target.files.pasted(pasted) == b"\x89PNG\r\n\x1a\n pasted"

    def test_a_session_with_the_name_of_something_else_is_not_copied(self, source: Store, target: Store) -> None:
        """Settings go along by the id that they end with, so a turn's name would bring its mark, as not copied."""
        turn = source.session(self.waits).active_turn
        assert turn is not None
        target.set_setting("role:/w", "reader")
        names = (turn, "/w")
        for key, name in zip(("copied", "role"), names, strict=True):
            source.create_child(SessionId(name), workspace="/w", role="r", binding=UNREADABLE_BINDING)
            source.append_message(SessionId(name), kit.user(f"x{key}", "hello"))
            source.set_setting(f"{key}:{name}", "")
        made = copy_sessions(source._rows, target._rows)
        assert sorted(made.failed) == sorted(names)
        assert target.setting(copied_key(turn)) == "1"
        assert target.setting("role:/w") == "reader"

    def test_the_last_turn_of_a_run_is_a_copy_too(self, source: Store, target: Store, path: Path) -> None:
        """A run takes it up whether the session calls it active or not, and who wrote the file says that."""
        turn = source.session(self.waits).active_turn
        assert turn is not None
        with closing(sqlite3.connect(path)) as ours:
            ours.execute(
                "INSERT INTO runs (session_id, seq, version, workflow, phase, step, result, state, writer) "
                "VALUES (?, 0, 1, 'w', '', '', '', '{}', '')",
                (self.waits,),
            )
            ours.execute("UPDATE sessions SET active_turn = NULL WHERE id = ?", (self.waits,))
            ours.commit()
        assert copy_sessions(source._rows, target._rows).failed == {}
        assert target.setting(copied_key(turn)) == "1"

    def test_a_second_copy_takes_what_is_new_and_leaves_what_was_used(self, source: Store, target: Store) -> None:
        copy_sessions(source._rows, target._rows)
        again = copy_sessions(source._rows, target._rows)
        assert (again.new, len(again.same), again.files) == ([], 7, 0)
        new = source.create_session(workspace="/w", role="coder", persona="p", messages=[kit.user("later")])
        source.append_message(self.over, kit.user("o", "more here"))
        target.log_trust("/elsewhere", TrustAnswer.TRUSTED)
        third = copy_sessions(source._rows, target._rows)
        assert (third.new, third.differing) == ([new.id], [self.over, audit.ELSEWHERE])
        assert len(target.history(self.over)) == 1
        assert copy_sessions(source._rows, target._rows).new == []

    def test_sessions_of_others_stay_and_a_taken_message_undoes_its_session(
        self, source: Store, target: Store, path: Path
    ) -> None:
        theirs = target.create_session(workspace="/x", role="r", persona="p", messages=[kit.user("m", "not the same")])
        made = copy_sessions(source._rows, target._rows)
        assert self.over in made.failed and "nothing of it was stored" in made.failed[self.over]
        assert (len(made.failed), len(made.new)) == (2, 5)
        assert len(target.history(theirs.id)) == 1
        assert self.over not in [one.id for one in target.sessions()]

    def test_they_become_those_of_a_member_and_no_decision_of_another_one(
        self, source: Store, target: Store, path: Path, url: str
    ) -> None:
        theirs = target.create_session(workspace="/x", role="r", persona="p")
        with closing(sqlite3.connect(path)) as forged:
            members = "json_set(by, '$.member', 'ben')"
            assert forged.execute(f"UPDATE posted SET by = {members}").rowcount == 2
            forged.execute("UPDATE sessions SET id = ? WHERE id = ?", (f"{theirs.id}-1-1-1", self.over))
            forged.commit()
        made = copy_sessions(source._rows, target._rows, role="ana")
        assert "names a member" in made.failed[self.waits]
        assert f"a child of {theirs.id}" in made.failed[f"{theirs.id}-1-1-1"]
        with psycopg.connect(url) as admin:
            found = admin.execute("SELECT DISTINCT principal FROM chatops.sessions WHERE id <> %s", (theirs.id,))
            assert found.fetchall() == [("ana",)]
            found = admin.execute("SELECT DISTINCT written_by FROM chatops.audit")
            assert found.fetchall() == [("ana",)]

    def test_an_outage_ends_it_and_the_next_run_continues(
        self, source: Store, target: Store, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        insert, left = Postgres.upsert, iter(range(3))

        def failing(self: Postgres, *given: object, **values: object) -> None:
            if next(left, None) is None:
                raise NotSavedError("away", reason="away")
            insert(self, *given, **values)  # type: ignore[arg-type]

        monkeypatch.setattr(Postgres, "upsert", failing)
        with pytest.raises(NotSavedError):
            copy_sessions(source._rows, target._rows)
        monkeypatch.undo()
        assert 0 < len(copy_sessions(source._rows, target._rows).same) < 7
        assert len(copy_sessions(source._rows, target._rows).same) == 7

    def test_a_check_says_the_same_of_a_file_and_of_its_copy(
        self, source: Store, target: Store, url: str, path: Path
    ) -> None:
        def said(rows: Connection) -> list[str]:
            return [one.text for one in health.check_rows(rows) if one.severity is not health.Severity.OK]

        copy_sessions(source._rows, target._rows)
        assert (said(source._rows), said(target._rows)) == ([], [])
        turn = source.session(self.waits).active_turn
        # Its fork has the picture too; the files of the session that gets another id belong to none afterwards.
        digest = hashlib.sha256(_PNG).hexdigest()
        with psycopg.connect(url, autocommit=True) as theirs, closing(sqlite3.connect(path)) as ours:
            theirs.execute("SET search_path = chatops; SET session_replication_role = replica")
            for sql in (
                f"DELETE FROM turns WHERE turn_id = '{turn}'",
                f"UPDATE audit SET body = replace(body, 'prompt', 'verdict') WHERE session_id = '{self.waits}'",
                f"UPDATE messages SET body = 'odd' WHERE session_id = '{self.waits}' AND kind = 'user'",
                f"UPDATE sessions SET id = 'other' WHERE id = '{self.over}'",
            ):
                ours.execute(sql)
                theirs.execute(sql.encode())
            ours.commit()
            theirs.execute("UPDATE file_bodies SET body = 'x' WHERE digest = %s", (digest,))
            for file in (path.parent / "files").glob(f"*/{digest}.png"):
                file.write_bytes(b"x")
        (broken, message, log, changed, stray) = said(source._rows)
        assert broken.startswith("Some rows refer to rows that are missing") and "sessions.active_turn" in broken
        assert (log.startswith("The log was changed"), "1 message is damaged" in message) == (True, True)
        assert ("is changed" in changed, "1 file belongs to no session" in stray) == (True, True)
        # The database knows who wrote a row.
        log = log.replace("row 1 does", "row 1, written by chatops, does")
        assert said(target._rows) == [broken, message, log, changed, stray]

    def test_killed_anywhere_it_continues_and_nothing_is_there_twice(
        self, source: Store, url: str, path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        source.close()
        with closing(Store(path)) as store:
            for _ in range(30):
                store.fork_session(self.waits)
        command = [sys.executable, "-m", "chatops", "store", "copy", f"sqlite://{path}", url]
        chance = random.Random(int(os.environ.get("CHATOPS_KILL_SEED", "1")))
        for kills in itertools.count():
            place = f"in_store_copy:{1 + chance.randrange(5)}+{chance.uniform(0, 12):.1f}"
            monkeypatch.setenv(failpoints.VARIABLE, place)
            ran = subprocess.run(command, env=program_environment(), capture_output=True, text=True, check=False)
            if ran.returncode != -signal.SIGKILL:
                assert (ran.returncode, kills > 4) == (0, True), (kills, ran.stdout + ran.stderr)
                break
        with closing(Store(Postgres(url))) as target, closing(Store(path)) as store:
            made = copy_sessions(store._rows, target._rows)
            assert (made.new, len(made.same), made.differing, made.failed) == ([], 37, [], {})
            assert [one.id for one in target.sessions()] == [one.id for one in store.sessions()]
