"""What members of a team's database can do in it, with chatops and with any other program."""

import itertools
import re
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import cast

import psycopg
import pytest

from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import SessionHeldError, StoreError
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.tools import AccessLevel
from chatops.engine.state import CallState
from chatops.store import audit, members, postgres_tables, schema
from chatops.store.base import SessionInfo
from chatops.store.codec import encode_principal, encode_recorded, encode_review
from chatops.store.messages import LARGEST
from chatops.store.postgres import MARK, Postgres
from chatops.store.schema import MIGRATIONS, SCHEMA_VERSION, Migration
from chatops.store.store import Store
from tests.store import runkit as run
from tests.store import storekit as kit
from tests.store.conformance import holder
from tests.support.postgres import Server, find_programs, server

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed"),
]
_NUMBERS = itertools.count()
ROLES = ("keeper", "ana", "ben", "eve")
"""The owner, two members, and one who has no level."""


@pytest.fixture(scope="module")
def running() -> Iterator[Server]:
    with server() as made, psycopg.connect(made.url, autocommit=True) as admin:
        for role in ROLES:
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        yield made


@dataclass(frozen=True)
class Team:
    """A database of its own, with its owner `keeper`, the members `ana` and `ben`, and `eve`, who has no level."""

    server: Server
    name: str
    keeper: Store
    ana: Store
    ben: Store

    def url(self, role: str) -> str:
        return self.server.url.replace("chatops@", f"{role}@").replace("/postgres?", f"/{self.name}?")

    def content(self) -> dict[str, object]:
        """All rows of all tables, but the count of changes."""
        with psycopg.connect(self.server.url.replace("/postgres?", f"/{self.name}?")) as admin:
            tables = [row[0] for row in admin.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'chatops'")]
            found: dict[str, object] = {
                table: sorted(map(str, admin.execute(f"SELECT t::text FROM chatops.{table} t".encode())))
                for table in tables
                if table != "store"
            }
            found["sessions"] = [row for row in cast("list[str]", found["sessions"]) if ",own," not in row]
            found["store"] = admin.execute("SELECT version, place FROM chatops.store").fetchall()
            kept = "SELECT proname, prosrc, proconfig, proacl::text FROM pg_proc"
            ours = f"{kept} WHERE pronamespace = 'chatops'::regnamespace"
            found["functions"] = sorted(map(str, admin.execute(ours.encode())))
            return found


@pytest.fixture
def team(running: Server) -> Iterator[Team]:
    name = f"team{next(_NUMBERS)}"
    with psycopg.connect(running.url, autocommit=True) as admin:
        admin.execute(f"CREATE DATABASE {name} OWNER keeper".encode())
    with ExitStack() as opened:

        def store(role: str) -> Store:
            url = running.url.replace("chatops@", f"{role}@").replace("/postgres?", f"/{name}?")
            return opened.enter_context(closing(Store(Postgres(url))))

        keeper = store("keeper")
        keeper._rows.grant("ana", AccessLevel.OPERATOR)
        keeper._rows.grant("ben", AccessLevel.USER)
        yield Team(server=running, name=name, keeper=keeper, ana=store("ana"), ben=store("ben"))


@pytest.fixture
def session(team: Team) -> SessionInfo:
    """A session of ana with a call that waits."""
    made = team.ana.create_session(workspace="/w", role="coder", persona="p")
    kit.pending_turn(team.ana, made, team.ana.next_turn_id(made.id))
    return made


def as_role(team: Team, role: str, *statements: str) -> str:
    """Execute statements as a role until one fails, and return why; empty if none does."""
    with psycopg.connect(team.url(role), autocommit=True) as connection:
        try:
            for statement in statements:
                connection.execute(statement.encode())
        except psycopg.Error as error:
            return str(error)
    return ""


class TestWithChatops:
    def test_a_member_works_in_sessions_of_its_own(self, team: Team, session: SessionInfo) -> None:
        ana, turn = team.ana, f"{session.id}.1"
        (waiting, _) = ana.pending_calls()
        assert team.ben.post_decision(kit.decided(waiting.pending.call)) is True
        (posted,) = ana.posted_decisions(waiting.turn_id)
        # What ben's process says of itself is only shown; the database has recorded who it was.
        assert posted.by == replace(kit.ANA, member="ben")
        state = ana.load_turn(waiting.turn_id)
        started = kit.then(
            kit.first(waiting.turn_id, session.id, seq=state.seq),
            kit.in_round(CallState(call=waiting.pending.call, status=kit.started())),
            effects=(kit.run(waiting.pending.call),),
            decisions=(kit.record(waiting.pending.call, by=posted.by),),
            rules=(kit.remembered(),),
        )
        ana.commit(started)
        assert [row.call_id for row in ana.journal(waiting.turn_id)] == [f"{turn}.1.1"]
        assert [row.by.member for row in team.ben.decisions()] == ["ben"]
        assert (len(ana.rules(session_id=session.id)), team.ben.rules()) == (1, [])
        file = ana.files.keep(session.id, "a.txt", b"hello")
        ana.set_setting(f"revoked:{session.id}", "shell_exec")
        copy = team.ben.fork_session(session.id)
        assert team.ben.setting(f"revoked:{copy.id}") == "shell_exec"
        assert (team.ben.files.read(file), len(team.ben.history(copy.id))) == (b"hello", 1)
        team.ben.delete_session(copy.id)
        ana.delete_session(session.id)
        assert ana.files.read(file) is None
        assert team.content()["messages"] == []

    def test_settings_belong_to_a_member_and_those_of_a_session_to_its_own(
        self, team: Team, session: SessionInfo
    ) -> None:
        for store in (team.ana, team.ben, team.keeper):
            store.set_setting("role:/w", store.role)
        assert [store.setting("role:/w") for store in (team.ana, team.ben)] == ["ana", "ben"]
        key = f"sandbox:{session.id}"
        team.ana.set_setting(key, "network off")
        assert team.ben.setting(key) == "network off"
        with pytest.raises(StoreError, match="does not permit"):
            team.ben.set_setting(key, "")

    def test_nobody_else_drives_or_changes_the_session_of_a_member(self, team: Team, session: SessionInfo) -> None:
        for store in (team.ben, team.keeper):
            with pytest.raises(SessionHeldError, match="belongs to ana"):
                store.acquire_lease(session.id, holder())
        changes: tuple[Callable[[], object], ...] = (
            lambda: team.ben.delete_session(session.id),
            lambda: team.ben.update_session(session.id, title="x"),
            lambda: team.ben.queue_message(session.id, "x"),
            lambda: team.ben.ask_to_stop(session.id),
        )
        for change in changes:
            with pytest.raises(SessionHeldError, match="belongs to ana"):
                change()
        with pytest.raises(StoreError):
            team.ben.commit(kit.first(TurnId(f"{session.id}.2"), session.id))

    def test_the_last_session_of_a_member_is_one_of_its_own(self, team: Team) -> None:
        made = team.ana.create_session(workspace="/w", role="r", persona="p")
        kit.begun(team.ana, team.ana.next_turn_id(made.id), made.id)
        team.ben.fork_session(made.id)
        found = [store.last_session("/w") for store in (team.ana, team.keeper)]
        assert [one and one.id for one in found] == [made.id, None]

    def test_without_a_level_nothing_is_read_or_decided(self, team: Team, session: SessionInfo) -> None:
        with pytest.raises(StoreError, match="does not permit") as refused:
            Postgres(team.url("eve"))
        assert "chatops store grant ROLE --level L" in str(refused.value.advice)
        team.keeper._rows.grant("ben", None)
        (waiting, _) = team.ana.pending_calls()
        for use in (team.ben.sessions, lambda: team.ben.post_decision(kit.decided(waiting.pending.call))):
            with pytest.raises(StoreError, match="does not permit"):
                use()

    def test_levels_are_granted_by_the_owner_to_roles_that_they_bind(self, team: Team) -> None:
        with pytest.raises(StoreError, match="Only the owner"):
            team.ana._rows.grant("ben", AccessLevel.ADMIN)
        with pytest.raises(StoreError, match="no role nobody"):
            team.keeper._rows.grant("nobody", AccessLevel.USER)
        with pytest.raises(StoreError, match="no level binds it"):
            team.keeper._rows.grant("keeper", AccessLevel.USER)

    def test_a_schema_that_a_member_has_made_first_is_not_used(self, team: Team) -> None:
        with psycopg.connect(team.url("chatops"), autocommit=True) as admin:
            admin.execute("DROP SCHEMA chatops CASCADE")
            admin.execute(f"GRANT CREATE ON DATABASE {team.name} TO ben".encode())
            assert as_role(team, "ben", "CREATE SCHEMA chatops") == ""
            for role, why in (("keeper", "does not permit"), ("chatops", "belongs to another role")):
                with pytest.raises(StoreError, match=why):
                    Postgres(team.url(role))
            admin.execute("DROP SCHEMA chatops")

    def test_each_table_says_what_members_may_do(self, team: Team) -> None:
        assert set(team.content()) == {*members.TABLES, "functions"}

    def test_a_database_of_an_earlier_version_is_made_safe_when_its_owner_starts(self, team: Team) -> None:
        # As it was set up then: tables without policies, and each right to each member.
        with psycopg.connect(team.url("keeper"), autocommit=True) as owner:
            owner.execute("DROP SCHEMA chatops CASCADE")
        with closing(Store(Postgres(team.url("keeper")))) as keeper:
            made = keeper.create_session(workspace="/w", role="r", persona="p")
            grants = "GRANT ALL ON ALL TABLES IN SCHEMA chatops TO ben; GRANT USAGE ON SCHEMA chatops TO ben"
            assert as_role(team, "keeper", grants) == ""
            before = team.content()
            for table in members.TABLES:
                as_role(team, "ben", f"DELETE FROM chatops.{table}", f"INSERT INTO chatops.{table} DEFAULT VALUES")
            as_role(team, "ben", f"UPDATE chatops.sessions SET title = 'x', principal = 'ben' WHERE id = '{made.id}'")
            assert team.content() == before

    def test_a_table_of_a_later_version_is_made_safe_when_its_owner_starts(
        self, team: Team, session: SessionInfo, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with team.keeper._rows.write():
            team.keeper._rows.upsert("members", "role", role="dropped", level="user")
        made = Migration(version=SCHEMA_VERSION + 1, summary="", statements=("CREATE TABLE later (session_id TEXT)",))
        monkeypatch.setattr(postgres_tables, "MIGRATIONS", (*MIGRATIONS, made))
        monkeypatch.setattr(postgres_tables, "SCHEMA_VERSION", made.version)
        monkeypatch.setattr(schema, "SCHEMA_VERSION", made.version)
        monkeypatch.setitem(members.TABLES, "later", members._Table("INSERT", "owns(session_id)"))
        Postgres(team.url("keeper")).close()
        insert = into("later", session_id=f"'{session.id}'")
        assert as_role(team, "ana", insert, "SELECT FROM chatops.later") == ""
        assert "row-level security" in as_role(team, "ben", insert)
        assert "permission denied" in as_role(team, "ben", "DELETE FROM chatops.later")
        assert "permission denied" in as_role(team, "eve", insert)
        with closing(Store(Postgres(team.url("ben")))) as ben:
            ben.create_session(workspace="/w", role="r", persona="p")


_THEIRS = "FROM chatops.sessions WHERE id <> 'own'"
_PENDING = "FROM chatops.pending"
_ID = "(SELECT id FROM chatops.sessions WHERE principal = 'ana' LIMIT 1)"


def into(table: str, source: str = "", /, **values: str) -> str:
    """Return a statement that inserts these expressions, for each row of `source`."""
    return f"INSERT INTO chatops.{table} ({', '.join(values)}) SELECT {', '.join(values.values())} {source}"


def a_session(id_: str, **more: str) -> str:
    """Return the statement that makes a session with this id."""
    names = ("workspace", "title", "role", "persona")
    rest = {**dict.fromkeys(names, "''"), **dict.fromkeys(("activity", "created_at", "updated_at"), "1")}
    return into("sessions", "", id=id_, **rest, **more)


def a_turn(id_: str, session: str, source: str = "") -> str:
    """Return the statement that makes a turn."""
    texts = dict.fromkeys(("phase", "state", "writer", "fingerprint"), "''")
    return into("turns", source, turn_id=id_, session_id=session, seq="0", version="1", updated_at="1", **texts)


_POSTED = {
    "call_id": "call_id",
    "turn_id": "turn_id",
    "digest": "'d9'",
    "decision": "'{}'",
    "by": "'{}'",
    "decided_at": "1",
}
_AUDIT = {"body": "'{}'", "chain": "''"}
_MESSAGE = {"kind": "'user'", "body": "'{}'", "created_at": "1"}
_RULE = {"role": "'coder'", "tool": "'shell_exec'", "pattern": "'{}'", "source_call": "'c'", "made_at": "1"}
_PROCESS = {"boot_id": "''", "pid": "1", "pid_started": "''", "machine": "''"}
_SAME = ("call_id", "session_id", "tool", "digest", "role", "model")
ATTACKS = {
    "a posted decision": into("posted", f"{_PENDING} OFFSET 1", **_POSTED),
    "a posted decision of another": into("posted", f"{_PENDING} OFFSET 1", **_POSTED, principal="'ana'"),
    "a logged decision": into(
        "decisions",
        _PENDING,
        **dict(zip(_SAME, _SAME, strict=True)),
        decision="'{}'",
        by_uid="1",
        by="'{}'",
        decided_at="1",
    ),
    "a journal row": into(
        "journal",
        _PENDING,
        **{name: name for name in ("call_id", "turn_id", "tool", "digest")},
        **_PROCESS,
        attempt="9",
        arguments="''",
        started_at="1",
    ),
    "an outcome": "UPDATE chatops.journal SET outcome = 'success'",
    "an audit row": into("audit", _THEIRS, session_id="id", number="99", **_AUDIT),
    "the next audit row": into("audit", _THEIRS, session_id="id", number="chatops.next_number(id)", **_AUDIT),
    "an audit row of another": into("audit", session_id="''", number="1", written_by="'ana'", **_AUDIT),
    "an audit row far ahead": into("audit", session_id="''", number="9000000000", **_AUDIT),
    "changed audit rows": "UPDATE chatops.audit SET body = '{}'",
    "deleted audit rows": "DELETE FROM chatops.audit",
    "deleted decisions": "DELETE FROM chatops.decisions",
    "a level": "INSERT INTO chatops.members (role, level) VALUES ('eve', 'admin')",
    "a raised level": "UPDATE chatops.members SET level = 'admin'",
    "a level taken away": "DELETE FROM chatops.members",
    "another's session": "UPDATE chatops.sessions SET principal = 'ben'",
    "another's title": "UPDATE chatops.sessions SET title = 'x' WHERE id <> 'own'",
    "a session in another's name": a_session("'s1'", principal="'ana'"),
    "a session for workers": into("queue", _THEIRS, session_id="id", workspace="'api'"),
    "an own session for workers": into("queue", session_id="'own'", workspace="'api'"),
    "a hint": "DELETE FROM chatops.hints",
    "a worker": into(
        "workers", id="'w'", host="''", pid="1", slots="1", workspaces="'[]'", refused="'{}'", seen_at="9e9"
    ),
    "a child of another's session": a_session(f"{_ID} || '-1-1-1'"),
    "an own session as a child of another's": f"UPDATE chatops.sessions SET id = {_ID} || '-1-1-1' WHERE id = 'own'",
    "a session within the ids of another": a_session(f"{_ID} || '.1'"),
    "the caller of another's session": a_session(f"left({_ID}, 15)"),
    "a deleted session": "DELETE FROM chatops.sessions WHERE id <> 'own'",
    "a checkpoint": "UPDATE chatops.turns SET state = '{}'",
    "a stolen turn": "UPDATE chatops.turns SET session_id = 'own'",
    "a turn in another's session": a_turn("id || '.7'", "id", _THEIRS),
    "a turn with another's id": a_turn(f"{_ID} || '.7'", "'own'"),
    "a call that waits": "UPDATE chatops.pending SET digest = 'other', body = '{}'",
    "a call that waits no more": "DELETE FROM chatops.pending",
    "a withdrawn decision": "DELETE FROM chatops.posted",
    "a message": into("messages", _THEIRS, id="id || '.m9'", session_id="id", **_MESSAGE),
    "a message with another's id": into("messages", id=f"{_ID} || '.1.m9'", session_id="'own'", **_MESSAGE),
    "deleted messages": "DELETE FROM chatops.messages",
    "a prompt": into("queued_texts", _THEIRS, session_id="id", text="'x'"),
    "a lease": into("leases", _THEIRS, session_id="id", host="''", **_PROCESS, since="1", expires_at="9e9", token="''"),
    "a grant": into("turn_grants", _THEIRS, session_id="id", digest="'d'", body="'{}'"),
    "a job": into(
        "jobs",
        _THEIRS,
        session_id="id",
        turn_id="id || '.1'",
        **dict.fromkeys(("options", "host", "boot_id", "folder"), "''"),
        **dict.fromkeys(("uid", "level", "created_at"), "3"),
    ),
    "a setting of another's session": into("settings", _THEIRS, key="'child:' || id", value="'{}'"),
    "a setting of another": into("settings", key="'@3:ana:default_model'", value="'x'"),
    "a setting of no one": into("settings", key="'default_model'", value="'x'"),
    "a rule of another": into("rules", scope="'role'", **_RULE, made_by="'ana'"),
    "a rule in another's session": into("rules", _THEIRS, session_id="id", scope="'session'", **_RULE),
    "another content of a file": into("file_bodies", digest="repeat('a', 64)", body="'x'"),
    "a file in another's session": into(
        "files", _THEIRS, session_id="id", digest="(SELECT digest FROM chatops.files WHERE session_id = 'own')"
    ),
    "a newer version": "UPDATE chatops.store SET version = 99",
    "another place": "UPDATE chatops.store SET place = ''",
    "a truncated table": "TRUNCATE chatops.audit",
    "a dropped policy": "DROP POLICY seen ON chatops.posted",
    "no row security": "ALTER TABLE chatops.posted DISABLE ROW LEVEL SECURITY",
    "a trigger": "CREATE TRIGGER t BEFORE UPDATE ON chatops.posted "
    "EXECUTE FUNCTION suppress_redundant_updates_trigger()",
    "a replaced function": "CREATE OR REPLACE FUNCTION chatops.is_member() RETURNS bool LANGUAGE sql AS 'SELECT true'",
    "a function of the same name": "CREATE FUNCTION chatops.owns(name) RETURNS bool LANGUAGE sql AS 'SELECT true'",
    "another search path": "ALTER FUNCTION chatops.is_member() SET search_path = public",
    "a table of the schema": "CREATE TABLE chatops.other (a int)",
    "a right": "GRANT INSERT ON chatops.posted TO ben",
    "a membership": "GRANT keeper TO ben",
    "a program": "COPY chatops.audit TO PROGRAM 'cat >/dev/null'",
    "a file of the server": "COPY chatops.audit FROM '/dev/null'",
    "a sequence": "SELECT setval('chatops.audit_seq_seq', 1)",
    "a number": into("audit", seq="77", session_id="''", number="1", **_AUDIT),
    "the owner's role": "SET ROLE keeper",
    "another login": "SET SESSION AUTHORIZATION ana",
}


@pytest.mark.parametrize("shadow", ["", "SET ROLE ben", "SET row_security = off"])
def test_no_statement_of_a_member_changes_what_is_not_its_own(team: Team, session: SessionInfo, shadow: str) -> None:
    (waiting, _) = team.ana.pending_calls()
    team.ana.post_decision(kit.decided(waiting.pending.call))
    assert as_role(team, "ben", a_session("'own'")) == ""
    file = team.ben.files.keep(SessionId("own"), "a.txt", b"hello")
    before = team.content()
    for what, attack in ATTACKS.items():
        assert as_role(team, "ben", *filter(None, [shadow]), attack) or team.content() == before, what
        assert as_role(team, "eve", attack)
    assert team.content() == before
    assert team.ben.files.read(file) == b"hello"


def test_each_of_these_statements_would_do_something(team: Team, session: SessionInfo) -> None:
    assert as_role(team, "ben", a_session("'own'")) == ""
    team.ben.files.keep(SessionId("own"), "a.txt", b"hello")
    with psycopg.connect(team.url("chatops")) as admin:
        for what, attack in ATTACKS.items():
            with admin.transaction(force_rollback=True):
                assert admin.execute(attack.encode()).statusmessage, what


SHADOWS = {
    "a temporary table": (
        "CREATE TEMP TABLE members (role text, level text)",
        "INSERT INTO pg_temp.members VALUES ('ben', 'admin'), ('eve', 'admin')",
        "CREATE TEMP TABLE sessions AS SELECT * FROM chatops.sessions",
        "UPDATE pg_temp.sessions SET principal = session_user",
        "SET search_path = pg_temp, chatops",
    ),
    "an operator in another schema": (
        "CREATE FUNCTION public.always(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE OPERATOR public.= (FUNCTION = public.always, LEFTARG = text, RIGHTARG = text)",
        "SET search_path = public, pg_catalog, chatops",
    ),
    "a function in another schema": (
        "CREATE FUNCTION public.starts_with(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE FUNCTION public.is_member() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "CREATE FUNCTION public.owns(text) RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SET search_path = public, pg_catalog, chatops",
    ),
    "a temporary function": (
        "CREATE FUNCTION pg_temp.is_member() RETURNS boolean LANGUAGE sql AS 'SELECT true'",
        "SET search_path = pg_temp, chatops",
    ),
    "a claimed user": ("SET application_name = 'keeper'", "SET ROLE NONE", "RESET SESSION AUTHORIZATION"),
}


@pytest.mark.parametrize("shadow", SHADOWS)
def test_no_object_of_a_member_takes_the_place_of_one_that_rights_depend_on(
    team: Team, session: SessionInfo, shadow: str
) -> None:
    # Even where members may create objects, as in a database of an older server.
    with psycopg.connect(team.server.url.replace("/postgres?", f"/{team.name}?"), autocommit=True) as admin:
        admin.execute("GRANT CREATE ON SCHEMA public TO PUBLIC")
    before = team.content()
    for role in ("ben", "eve"):
        with psycopg.connect(team.url(role), autocommit=True) as connection:
            for statement in SHADOWS[shadow]:
                # Ben has made it for both, or eve may not read what it is made of.
                with suppress(psycopg.errors.DuplicateFunction, psycopg.errors.ProgrammingError):
                    connection.execute(statement.encode())
            for attack in ATTACKS.values():
                with suppress(psycopg.Error):
                    connection.execute(attack.encode())
            assert team.content() == before
            seen = "SELECT count(*) FROM chatops.sessions"
            if role == "eve":
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    connection.execute(seen.encode())


def test_a_damaged_row_of_the_log_is_named_with_its_writer(team: Team) -> None:
    assert as_role(team, "ben", into("audit", session_id="''", number="1", **_AUDIT)) == ""
    (fault,) = audit.verify(team.keeper.audit(), ())[0]
    assert fault == "the log outside of sessions: row 1, written by ben, was changed"


def test_no_member_can_make_all_the_ids_that_a_session_of_another_may_get(team: Team) -> None:
    made = team.ana.create_session(workspace="/w", role="r", persona="p").id
    queued = team.ana.queue_turn("List it", workspace="api", role="coder", model="")
    assert min(len(one.rpartition("-")[2]) for one in (made, queued)) >= 10


_WAIT = """CREATE FUNCTION pg_temp.child_of_ana() RETURNS text LANGUAGE plpgsql AS $$
    DECLARE made text;
    BEGIN
        FOR tries IN 1..3000 LOOP
            SELECT id INTO made FROM chatops.sessions WHERE principal = 'ana';
            EXIT WHEN FOUND;
            PERFORM pg_sleep(0.02);
        END LOOP;
        RETURN made || '-1-1-1';
    END $$"""


def test_no_old_snapshot_makes_a_child_of_a_session_of_another(team: Team) -> None:
    with psycopg.connect(team.url("ben")) as old, psycopg.connect(team.url("ben"), autocommit=True) as long:
        old.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        old.execute("SELECT FROM chatops.sessions")
        long.execute(_WAIT.encode())
        with ThreadPoolExecutor(1) as beside:
            inserted = beside.submit(long.execute, a_session("pg_temp.child_of_ana()").encode())
            with psycopg.connect(team.url("chatops"), autocommit=True) as admin:
                asleep = "SELECT 1 FROM pg_stat_activity WHERE usename = 'ben' AND wait_event = 'PgSleep'"
                while admin.execute(asleep.encode()).fetchone() is None:
                    assert not inserted.done()
            queued = team.ana.queue_turn("List it", workspace="api", role="coder", model="")
            inserts: tuple[Callable[[], object], ...] = (
                inserted.result,
                lambda: old.execute(a_session(f"'{queued}-1-1-1'").encode()),
            )
            for insert in inserts:
                with pytest.raises(psycopg.errors.InsufficientPrivilege, match="row-level security"):
                    insert()


def test_no_number_of_a_member_is_the_last_one_for_all(team: Team) -> None:
    assert as_role(team, "ben", a_session("'own'")) == ""
    for greatest in (
        a_session("'more'").replace("1", str(2**63 - 1)),
        f"UPDATE chatops.sessions SET activity = {2**63 - 1}",
    ):
        assert "row-level security" in as_role(team, "ben", greatest)
    team.ana.queue_turn("List it", workspace="api", role="coder", model="")


_UNKNOWN = '{"kind": "unknown"}'


def test_a_decision_that_cannot_be_read_keeps_out_no_other(team: Team, session: SessionInfo) -> None:
    (one, _) = team.ana.pending_calls()
    post = f"SELECT chatops.post_decision('{one.pending.call.id}', '{one.pending.digest}', '{_UNKNOWN}', '{{}}')"
    assert as_role(team, "ben", post) == ""
    assert [call.decided for call in team.ben.pending_calls()] == [None, None]
    state = team.ana.load_turn(one.turn_id)
    team.ana.commit(kit.then(kit.first(one.turn_id, session.id, seq=state.seq), state.phase))
    assert team.ben.post_decision(kit.decided(one.pending.call)) is True
    assert [posted.call_id for posted in team.ana.posted_decisions(one.turn_id)] == [one.pending.call.id]


def test_a_decision_that_cannot_be_logged_keeps_out_no_other(team: Team, session: SessionInfo) -> None:
    (one, _) = team.ana.pending_calls()
    more = (
        '"x": NaN',
        '"reason": "\\uFDD0"',
        '"reason": "\\ud800"',
        '"arguments": "x"',
        '"only": null, "send_back": 1',
    )
    for said in (f'{{"kind": "rejected", {field}}}' for field in more):
        call = f"'{one.pending.call.id}', '{one.pending.digest}', '{said}'"
        assert as_role(team, "ben", f"SELECT chatops.post_decision({call}, '{encode_principal(kit.ANA)}')") == ""
        assert team.ana.posted_decisions(one.turn_id) == [], said


def test_what_workers_have_to_read_has_a_limit(team: Team, session: SessionInfo) -> None:
    queued = team.ana.queue_turn("List it", workspace="api", role="coder", model="")
    (waiting, _) = team.ana.pending_calls()
    before = team.content()
    for call in (
        f"queue_further('{queued}', repeat('x', {LARGEST}))",
        f"queue_prompt('', '', '', 'api', '', repeat('x', {LARGEST + 1}))",
        f"post_decision('{waiting.pending.call.id}', '{waiting.pending.digest}', '{_UNKNOWN}', repeat('x', {LARGEST}))",
        "queue_prompt('', repeat('x', 4096), 'm', 'api', '', 'x')",
    ):
        assert re.search(f"more than ({LARGEST}|4096) bytes", as_role(team, "ana", f"SELECT chatops.{call}"))
    assert team.content() == before


@pytest.mark.parametrize(
    ("at", "tokens", "cost"),
    [("'NaN'", 1, 1), ("1e300", 1, 1), ("2e9", "1e400", 1), ("2e9", 1, "1e-400"), ("2e9", "1e308", "1e308")],
)
def test_no_number_in_a_row_of_a_member_keeps_others_from_their_usage(
    team: Team, at: str, tokens: object, cost: object
) -> None:
    body = f'{{"kind": "assistant", "usage": {{"input_tokens": {tokens}, "output_tokens": 1, "cost": {cost}}}}}'
    usage = f'{{"input_tokens": {tokens}, "cost": {cost}}}'
    message = {"kind": "'assistant'", "body": f"'{body}'", "created_at": at}
    messages = [into("messages", id=f"'own.m{n}'", session_id="'own'", **message) for n in range(2)]
    turns = [a_turn(f"'own.{n}'", "'own'") for n in range(2)]
    stored = f"UPDATE chatops.turns SET usage = '{usage}'"
    assert as_role(team, "ben", a_session("'own'"), *messages, *turns, stored) == ""
    assert len(team.ana.daily_usage(workspace="", since=0.0)) <= 1
    team.ana.usage(SessionId("own"))


def test_a_decision_is_recorded_with_the_role_that_has_logged_in_whatever_it_says(
    team: Team, session: SessionInfo
) -> None:
    (one, two) = team.ana.pending_calls()
    forged = replace(kit.ANA, member="ana", rule="7")
    assert team.ben.post_decision(kit.decided(one.pending.call, by=forged)) is True
    said = encode_recorded(Approved()), encode_principal(forged)
    call = f"chatops.post_decision('{two.pending.call.id}', 'd2', '{said[0]}', '{said[1]}')"
    assert as_role(team, "ben", f"SELECT {call}") == ""
    posted = team.ana.posted_decisions(one.turn_id)
    assert [str(decided.by) for decided in posted] == ["member ben via approvals"] * 2
    # Ana's own process cannot log a decision in ben's name that ben did not make.
    names = dict(zip(_SAME, _SAME, strict=True))
    for decision, refused in ((Rejected(), True), (Approved(only=("a",)), True), (Approved(), False)):
        values = {"decision": encode_recorded(decision), "by": encode_principal(replace(kit.ANA, member="ben"))}
        quoted = {name: f"'{value}'" for name, value in values.items()}
        log = into("decisions", _PENDING, **names, **quoted, by_uid="1", decided_at="1")
        assert ("row-level security" in as_role(team, "ana", log)) is refused


def test_a_review_is_posted_once_for_what_is_shown_and_in_the_name_of_who_has_logged_in(team: Team) -> None:
    queued = team.ana.queue_turn("release it", workspace="api", role="coder", model="", workflow="flow")
    begun = run.begun(queued)
    team.keeper.commit_run(begun)
    assert (team.keeper.queued_messages(queued), team.keeper.unhint(queued)) == ((), True)
    by_ana = encode_review(replace(run.accepted(), by=replace(kit.ANA, member="ana", rule="7")))
    direct = into("posted_reviews", session_id=f"'{queued}'", body=f"'{by_ana}'")

    def post(role: str, seq: int, body: str = by_ana) -> object:
        with psycopg.connect(team.url(role), autocommit=True) as member:
            return member.execute("SELECT chatops.post_review(%s, %s, %s)", (queued, seq, body)).fetchone()

    assert post("ben", begun.state.seq) == (False,)  # nothing is under review yet
    asked = run.then(begun, run.review())
    team.keeper.commit_run(asked)
    assert team.keeper.unhint(queued) is False
    for role in ("ana", "ben", "eve"):
        assert "permission denied" in as_role(team, role, direct)
    cancel = encode_review(run.CANCELLED)
    for role, body in (("eve", by_ana), ("ben", cancel)):
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            post(role, asked.state.seq, body)
    assert post("ben", asked.state.seq, cancel.replace("{", '{"x": NaN, ', 1)) == (False,)
    assert post("ben", begun.state.seq) == post("ben", asked.state.seq + 1) == (False,)
    assert team.keeper.posted_reviews(queued) == []
    assert [post("ben", asked.state.seq) for _ in range(2)] == [(True,), (False,)]
    assert team.ana.post_review(queued, run.accepted()) is False
    (posted,) = team.keeper.posted_reviews(queued)
    assert posted and str(posted.by) == "member ben via approvals"
    # What cannot be read is in nobody's way.
    team.keeper.withdraw_review(queued, posted)
    assert post("ben", asked.state.seq, '{"kind":"review_step"}') == (True,)
    assert team.ana.post_review(queued, run.accepted()) is True
    assert post("ana", asked.state.seq, cancel) == (True,)
    assert [one and one.by.member for one in team.keeper.posted_reviews(queued)] == [None, "ana", "ana"]
    team.keeper.withdraw_review(queued, None)
    assert None not in team.keeper.posted_reviews(queued)
    hint = team.keeper.next_hint(["api"], but=(), new=False)
    assert (hint and hint.session_id, team.keeper.sweep()) == (queued, (0, 0))
    assert "permission denied" in as_role(team, "ben", "UPDATE chatops.posted_reviews SET principal = 'ana'")


@pytest.mark.parametrize(
    "spelling",
    [
        '"login": "\\ud800", "member": "ben"',
        '"x": NaN, "member": "ben"',
        '"member": "", "member": "ben"',
        f'"m{MARK}0065mber": "ben"',
        f'"login": "{MARK}0022, {MARK}0022member{MARK}0022: {MARK}0022ben"',
    ],
)
def test_no_spelling_hides_from_the_database_whose_decision_is_logged(
    team: Team, session: SessionInfo, spelling: str
) -> None:
    by = f'{{"uid": 0, "via": "approvals", {spelling}}}'
    names = dict(zip(_SAME, _SAME, strict=True))
    said = {"decision": f"'{encode_recorded(Approved())}'", "by": f"'{by}'"}
    as_role(team, "ana", into("decisions", _PENDING, **names, **said, by_uid="1", decided_at="1"))
    assert [row for row in team.keeper.decisions() if row.by.member] == []


def test_a_member_queues_a_prompt_and_drives_nothing_of_it(team: Team) -> None:
    queued = team.ana.queue_turn("List it", workspace="api", role="coder", model="")
    hint = team.keeper.next_hint(["api"], but=(), new=True)
    assert hint is not None
    assert (hint.session_id, hint.requester) == (queued, "ana")
    assert [one.requester for one in team.ben.queued()] == ["ana"]
    before = team.content()
    names = dict.fromkeys(("body", "digest"), "'{}'")
    for attack in (
        a_turn(f"'{queued}.1'", f"'{queued}'"),
        into("turn_grants", session_id=f"'{queued}'", **names),
        "UPDATE chatops.queued_texts SET text = 'x'",
        "DELETE FROM chatops.queued_texts",
        "UPDATE chatops.sessions SET role = 'admin'",
        "UPDATE chatops.queue SET requester = 'keeper', workspace = 'other'",
    ):
        for role in ("ana", "ben"):
            as_role(team, role, attack)
            assert team.content() == before, attack


def test_who_has_queued_a_prompt_queues_more_and_takes_back_what_no_worker_has_taken(team: Team) -> None:
    queued = team.ana.queue_turn("List it", workspace="api", role="coder", model="")
    before = team.content()
    for use in (team.ben.cancel_queued, lambda session: team.ben.queue_further(session, "Delete it")):
        with pytest.raises(StoreError, match="was not queued by ben"):
            use(queued)
    for call in (f"cancel_queued('{queued}')", f"queue_further('{queued}', 'x')"):
        assert as_role(team, "eve", f"SELECT chatops.{call}")
    assert team.content() == before
    team.ana.queue_further(queued, "Count it")
    token = team.keeper.acquire_lease(queued, holder())
    assert team.ana.cancel_queued(queued) is False
    team.keeper.release_lease(queued, holder(), token)
    assert team.keeper.queued_messages(queued) == ("List it", "Count it")
    assert team.ana.cancel_queued(queued) is True
    assert (team.ana.queued(), team.keeper.next_hint(["api"], but=(), new=True)) == ([], None)
    recorded = "SELECT requester, cancelled_by, cancelled_at > 0 FROM queue"
    assert team.keeper._rows.all(recorded) == [("ana", "ana", True)]
    assert team.ana.cancel_queued(queued) is False
    other = team.ana.create_session(workspace="/w", role="r", persona="p").id
    team.ana.queue_message(other, "hello")
    assert team.keeper.cancel_queued(other) is False
    assert team.ana.queued_messages(other) == ("hello",)


def test_what_workers_drive_is_written_by_their_role_alone(team: Team, session: SessionInfo) -> None:
    drive = into("queue", session_id=f"'{session.id}'", workspace="'api'")
    assert as_role(team, "keeper", drive) == ""
    before = team.content()
    for what in set(ATTACKS) - {"a setting of another"}:
        as_role(team, "ana", ATTACKS[what])
    assert team.content() == before
    with pytest.raises(SessionHeldError, match="workers drive it"):
        team.ana.acquire_lease(session.id, holder())
    assert team.keeper.acquire_lease(session.id, holder())
    (waiting, _) = team.ana.pending_calls()
    assert team.ana.post_decision(kit.decided(waiting.pending.call)) is True
