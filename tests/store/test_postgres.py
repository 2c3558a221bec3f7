"""The store in PostgreSQL keeps the promises of every store, and some of its own."""

import itertools
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue

import psycopg
import pytest

from chatops.domain.errors import ConfigError, NotSavedError, SessionHeldError, StoreError, UnreadableError
from chatops.domain.known_keys import HIDDEN, add_known_keys
from chatops.engine.state import CallState
from chatops.engine.workflow.inputs import CancelRun
from chatops.store.base import CALLS, IN_QUEUE
from chatops.store.identity import copied_key
from chatops.store.postgres import Postgres, escape_text, unescape_text
from chatops.store.postgres_link import connection_parameters
from chatops.store.postgres_tables import MIGRATION_LOCK
from chatops.store.schema import SCHEMA_VERSION
from chatops.store.store import Store
from tests.store import runkit
from tests.store import storekit as kit
from tests.store.conformance import World, holder
from tests.store.test_stores import Conformance
from tests.support.postgres import Server, find_programs, server
from tests.support.waiting import PATIENCE

needs_server = pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
_NUMBERS = itertools.count()


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as made:
        yield made


def execute(url: str, statement: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(statement.encode())


@pytest.fixture
def url(running: Server) -> str:
    """The address of a database of its own."""
    name = f"db{next(_NUMBERS)}"
    execute(running.url, f"CREATE DATABASE {name}")
    return running.url.replace("/postgres?", f"/{name}?")


@needs_server
@pytest.mark.postgres
class TestPostgres(Conformance):
    @pytest.fixture(autouse=True)
    def database(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.url = url
        # The database records the role that decides.
        for name in ("ANA", "BEN"):
            monkeypatch.setattr(kit, name, replace(getattr(kit, name), member="chatops"))
        monkeypatch.setattr(runkit, "ANA", kit.ANA)
        monkeypatch.setattr(runkit, "CANCELLED", CancelRun(by=kit.ANA))

    def open_store(self, world: World) -> Store:
        rows = Postgres(self.url)
        return Store(rows, clock=world.clock, process=world.process, alive=world.alive)


@needs_server
@pytest.mark.postgres
class TestOwnPromises:
    @pytest.fixture
    def store(self, url: str) -> Iterator[Store]:
        with closing(Store(Postgres(url))) as store:
            yield store

    def test_texts_that_the_database_cannot_hold_are_read_back_as_they_were(self, store: Store) -> None:
        odd = "a\0b\ud83dc\ufdd0d\ufdd0ud83d%?\\u0000"
        made = store.create_session(workspace="/w\udcff", role="r", persona="p", messages=[kit.user("x", odd)])
        assert store.session(made.id).workspace == "/w\udcff"
        assert [message.text for message in store.history(made.id) if message.kind == "user"] == [odd]
        assert [hit.text for hit in store.search("c\ufdd0d")] == [odd]

    def test_no_row_holds_a_known_key_nor_the_password_of_the_store(self, store: Store) -> None:
        add_known_keys("pq9-Kvw7Xw31zT")
        connection_parameters("postgresql://ana:Secret-0815-word@localhost/t")
        made = store.create_session(workspace="/w", role="r", persona="", title="a pq9-Kvw7Xw31zT Secret-0815-word")
        assert store.session(made.id).title == f"a {HIDDEN} {HIDDEN}"

    def test_the_clock_of_the_database_decides_about_leases(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = store.create_session(workspace="/w", role="r", persona="p")
        store.acquire_lease(session.id, holder("one"))
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + 3600)
        with pytest.raises(SessionHeldError):
            store.acquire_lease(session.id, holder("two"))

    def test_an_outage_loses_nothing_and_ends_by_itself(self, store: Store, running: Server) -> None:
        store.set_setting("a", "1")
        running.stop()
        try:
            with pytest.raises(NotSavedError, match="cannot be reached"):
                store.set_setting("a", "2")
            with pytest.raises(NotSavedError, match="cannot be reached"):
                store.setting("a")
            assert store.unsaved == ""
        finally:
            running.start()
        assert store.setting("a") == "1"
        store.set_setting("a", "3")
        assert store.setting("a") == "3"

    def test_of_processes_that_start_at_once_one_makes_the_tables(self, url: str) -> None:
        with psycopg.connect(url) as first, ThreadPoolExecutor() as pool:
            first.execute("SELECT pg_advisory_xact_lock(%s)", [MIGRATION_LOCK])
            opened = [pool.submit(lambda: Store(Postgres(url)).close()) for _ in range(3)]
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            while first.execute(waiting).fetchone() != (3,):
                time.sleep(0.02)
            first.commit()
            for one in opened:
                one.result(PATIENCE)
            made = first.execute("SELECT DISTINCT xmin::text FROM pg_policy").fetchall()
            table = "SELECT DISTINCT xmin::text FROM pg_attribute WHERE attrelid = 'chatops.file_bodies'::regclass"
            assert made == first.execute(table).fetchall()
            assert len(made) == 1

    def test_a_lost_connection_is_made_again_without_a_word(self, store: Store, url: str) -> None:
        store.set_setting("a", "1")
        ours = "pid <> pg_backend_pid() AND datname = current_database()"
        execute(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        store.set_setting("a", "2")
        assert store.setting("a") == "2"

    def test_whoever_listens_hears_what_concerns_it_and_no_name(self, store: Store, url: str) -> None:
        one, two = (store.create_session(workspace="/w", role="r", persona="p") for _ in range(2))
        turn, heard = store.next_turn_id(one.id), SimpleQueue[str]()

        def heard_of(change: Callable[[], object]) -> set[str]:
            change()
            execute(url, "SELECT chatops.changed('end')")
            return set(iter(partial(heard.get, timeout=PATIENCE), "end"))

        store.listen(partial(heard.put, "begin"), "begin")
        # It listens by then.
        assert heard.get(timeout=PATIENCE) == "begin"
        # What is heard at once is told in the order in which it was asked for.
        names = (one.id, two.id, CALLS, f"{IN_QUEUE}api", "end")
        for name in names:
            store.listen(partial(heard.put, name), name)
        with closing(Store(Postgres(url))) as other, psycopg.connect(url, autocommit=True) as anyone:
            anyone.execute("LISTEN chatops")
            assert heard_of(lambda: other.commit(kit.first(turn, one.id))) == {one.id}
            waits = kit.in_round(CallState(call=kit.a_call(turn), status=kit.awaiting("d1")))
            step = kit.then(kit.first(turn, one.id), waits)
            assert heard_of(lambda: other.commit(step)) == {one.id, CALLS}
            assert heard_of(lambda: other.post_decision(kit.decided(kit.a_call(turn)))) == {one.id, CALLS}
            for workspace, found in (("other", set[str]()), ("api", {f"{IN_QUEUE}api"})):
                queue = partial(other.queue_turn, "hello", workspace=workspace, role="", model="")
                assert heard_of(queue) == found
            sent = [sent.payload for sent in anyone.notifies(timeout=PATIENCE, stop_after=6)]
            assert {len(payload) for payload in sent} == {6}
        # What happens while it is cut off may concern everyone.
        ours = "pid <> pg_backend_pid() AND datname = current_database()"
        execute(url, f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
        assert {heard.get(timeout=PATIENCE) for _ in range(6)} == {*names, "begin"}

    def test_a_sweep_finds_the_turn_of_a_dead_worker_although_a_call_waits(self, store: Store) -> None:
        queued = store.queue_turn("hello", workspace="api", role="", model="")
        turn = store.next_turn_id(queued)
        first = replace(kit.first(turn, queued), takes_queued=True)
        store.commit(first)
        waits = kit.in_round(CallState(call=kit.a_call(turn), status=kit.awaiting("d1")))
        store.commit(kit.then(first, waits))
        assert store.sweep() == (0, 1)
        token = store.acquire_lease(queued, holder("dead"), ttl_s=0)
        assert store.sweep() == (1, 0)
        hint = store.next_hint(["api"], but=(), new=False)
        assert hint is not None
        assert (hint.session_id, hint.active_turn) == (queued, turn)
        assert store.unmatched() == (0, 0)
        store.release_lease(queued, holder("dead"), token)
        assert store.sweep() == (0, 1)

    def test_in_a_copy_no_earlier_approval_counts(self, store: Store, url: str) -> None:
        session = store.create_session(workspace="/w", role="r", persona="p")
        turn = store.next_turn_id(session.id)
        step = kit.pending_turn(store, session, turn)
        store.post_decision(kit.decided(kit.a_call(turn)))
        store.commit(kit.then(step, step.state.phase, rules=(kit.remembered(),)))
        assert (len(store.posted_decisions(turn)), len(store.rules(session_id=session.id))) == (1, 1)
        store.close()
        name = url.partition("?")[0].rpartition("/")[2]
        copy = url.replace(name, f"copy_of_{name}")
        execute(url.replace(f"/{name}?", "/postgres?"), f"CREATE DATABASE copy_of_{name} TEMPLATE {name}")
        with closing(Store(Postgres(url))) as same, closing(Store(Postgres(copy))) as other:
            assert (len(same.posted_decisions(turn)), len(same.rules(session_id=session.id))) == (1, 1)
            assert (other.posted_decisions(turn), other.rules(session_id=session.id)) == ([], [])
            assert other.setting(copied_key(turn)) == "1"

    def test_a_rule_answers_for_the_role_that_made_it_alone(self, store: Store, url: str) -> None:
        session = store.create_session(workspace="/w", role="r", persona="p")
        step = kit.first(store.next_turn_id(session.id), session.id)
        store.commit(replace(step, rules=(kit.remembered(),)))
        ben = f"ben{next(_NUMBERS)}"
        execute(url, f"CREATE ROLE {ben} LOGIN SUPERUSER")
        with closing(Store(Postgres(url.replace("chatops@", f"{ben}@")))) as other:
            assert (len(store.rules(uid=1000)), other.rules(uid=1000)) == (1, [])

    def test_a_password_that_is_given_nowhere_comes_from_the_keyring(self, url: str, running: Server) -> None:
        execute(url, "CREATE ROLE asked LOGIN SUPERUSER PASSWORD 'Lantern-0815'")
        rules = running.folder / "data" / "pg_hba.conf"
        rules.write_text(f"local all asked scram-sha-256\n{rules.read_text()}")
        execute(url, "SELECT pg_reload_conf()")
        address, asked = url.replace("chatops@", "asked@"), list[str]()
        # The server reads its files again after it has answered.
        with pytest.raises(NotSavedError, match="password") as refused:
            while True:
                Postgres(address).close()
        place = str(refused.value.advice).rpartition("keyring set chatops ")[2]

        def keyring(place: str) -> str:
            asked.append(place)
            return "Lantern-0815"

        with closing(Store(Postgres(address, keyring=keyring))) as store:
            store.set_setting("a", "1")
        assert (asked, "Lantern" in str(refused.value), running.folder.name in place) == ([place], False, True)

    def test_files_are_in_the_database(self, store: Store, url: str) -> None:
        one, two = (store.create_session(workspace="/w", role="r", persona="p").id for _ in range(2))
        file = store.files.keep(one, "a.txt", b"hello")
        pasted = store.files.keep_pasted(b"\x89PNG\r\n\x1a\n picture")
        store.files.share(one, two)
        store.delete_session(one)
        with closing(Store(Postgres(url))) as other:
            assert other.files.read(file) == b"hello"
            assert other.files.pasted(pasted.path) == b"\x89PNG\r\n\x1a\n picture"
            path = other.files.path_of(file)
            assert path is not None and path.read_bytes() == b"hello"
            other.delete_session(two)
        assert store.files.read(file) is None

    def test_a_search_uses_the_index_that_the_docs_name(self, store: Store, url: str) -> None:
        filled = "SELECT n, n, 's', 'user', md5(n::text), 0 FROM generate_series(1, 5000) n"
        execute(url, f"INSERT INTO chatops.messages (seq, id, session_id, kind, body, created_at) {filled}")
        (block,) = re.findall(r"```sql\n(CREATE EXTENSION.*?)```", Path("docs/team.md").read_text(), re.DOTALL)
        for statement in (*block.strip().split("\n"), "ANALYZE chatops.messages"):
            execute(url, statement)
        for _ in range(12):
            assert store.search("nothing-like-this") == []
        kept = store._rows.all("SELECT statement FROM pg_prepared_statements WHERE statement LIKE '%ILIKE%'")
        assert [row for row in kept if "pg_prepared" not in str(row[0])] == []
        plan = store._rows.all(f"EXPLAIN {Postgres.SEARCH}", "%nothing-like-this%", None, 2000)
        assert "messages_by_trigram" in str(plan)

    def test_tables_of_a_newer_chatops_are_refused(self, store: Store, url: str) -> None:
        execute(url, f"UPDATE chatops.store SET version = {SCHEMA_VERSION + 1}")
        with pytest.raises(UnreadableError, match="newer chatops"):
            Postgres(url)
        with pytest.raises(UnreadableError, match="newer chatops"):
            store.set_setting("a", "1")

    def test_a_refused_statement_stores_nothing_of_its_transaction(self, store: Store) -> None:
        with pytest.raises(StoreError), store._rows.write():
            store._rows.upsert("settings", "key", key="a", value="1")
            store._rows.run("SELECT 1/0")
        assert store.setting("a") is None
        with pytest.raises(SessionHeldError, match="open in this chatops"):
            session = store.create_session(workspace="/w", role="r", persona="p")
            store.acquire_lease(session.id, holder())
            store.acquire_lease(session.id, holder())


@pytest.mark.parametrize("address", ["postgresql:///t", "postgresql://localhost/t", "postgresql://u@127.0.0.1:5/t", ""])
def test_what_stays_on_this_machine_needs_no_certificate(address: str) -> None:
    assert "sslmode" not in connection_parameters(address)


@pytest.mark.parametrize(
    ("address", "env"),
    [
        ("postgresql://db.example/t", {}),
        ("postgresql://localhost,db.example/t", {}),
        ("postgresql://localhost/t?hostaddr=192.0.2.1", {}),
        ("postgresql:///t?service=far", {}),
        ("postgresql:///t", {"PGHOST": "db.example"}),
        ("postgresql://localhost/t", {"PGHOSTADDR": "192.0.2.1"}),
        ("postgresql:///t", {"PGSERVICE": "far"}),
        ("postgresql://127.0.0.1.example/t", {}),
    ],
)
def test_any_other_server_has_to_prove_its_name(
    address: str, env: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert connection_parameters(address)["sslmode"] == "verify-full"
    with pytest.raises(ConfigError, match="does not check"):
        connection_parameters(f"{address}{'&' if '?' in address else '?'}sslmode=require")


def test_no_error_shows_a_password() -> None:
    with pytest.raises(ConfigError) as raised:
        connection_parameters("postgresql://ana:secret@db.example/t?sslmode=require")
    assert "secret" not in raised.value.full
    with pytest.raises(NotSavedError) as unreached:
        Postgres("postgresql://ana:secret@localhost:1/t?connect_timeout=2")
    assert "secret" not in unreached.value.full


@pytest.mark.parametrize("text", ["", "a", "\0", "\ud83d", "\ufdd0", "\ufdd00000", "\ufdd0\0\ufdd0d800"])
def test_escaping_works_both_ways(text: str) -> None:
    stored = escape_text(text)
    assert unescape_text(stored) == text
    stored.encode()
    assert "\0" not in stored
