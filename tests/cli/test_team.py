"""Commands on one store in PostgreSQL, as two machines would give them."""

import asyncio
import json
import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from chatops import Chat
from chatops.config.paths import find_paths, packaged_registry
from chatops.domain.known_keys import spellings
from chatops.wiring import all_pending
from chatops.wiring.all_pending import AllPending
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.support.command_line import REPOSITORY, CommandLine, registry_for
from tests.support.fake_openai import Call, FakeOpenAI, calls, says
from tests.support.postgres import find_programs, server
from tests.support.waiting import PATIENCE


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_call_waits_is_decided_and_runs_from_one_database(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running:
        registry = tmp_path / "team.json"
        registry.write_text(json.dumps({**json.loads(packaged_registry().read_text()), "store": running.url}))
        monkeypatch.setenv("CHATOPS_REGISTRY", str(registry))
        session, call = chatops.paused("write hello to out.txt")
        # Another machine has other folders, and may name the same database in another way.
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        monkeypatch.setenv("CHATOPS_HOME", str(tmp_path / "other"))
        assert call in chatops("approvals", "list").out
        assert chatops("approvals", "approve", call).code == 0
        resumed = chatops("resume", session)
        assert (resumed.code, (chatops.workspace / "out.txt").read_text()) == (0, "hello"), resumed.err
        assert session in chatops("sessions", "list").out
        checked = chatops("doctor").out
        assert f"postgresql:///postgres?host={running.folder}: PostgreSQL" in checked
        running.stop()
        refused = chatops("-p", "hello")
        assert (refused.code != 0, "cannot be reached" in refused.err) == (True, True)
        running.start()
        assert chatops("sessions", "delete", session, "--yes").code == 0
        assert session not in chatops("sessions", "list", "--all").out
    assert list(tmp_path.rglob("chatops.db")) == []


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
async def test_what_waits_is_shown_as_soon_as_another_process_has_stored_it(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(all_pending, "LOOK_S", 1e6)
    shown = asyncio.Queue[list[str]]()
    with server() as running:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        app = App(Options(workspace=chatops.workspace, via="tui"))
        watching = AllPending(app).watch(lambda calls: shown.put_nowait([call.pending.call.id for call in calls]))

        async def next_shown() -> list[str]:
            return await asyncio.wait_for(shown.get(), PATIENCE)

        assert await next_shown() == []
        _, call = await asyncio.to_thread(chatops.paused, "write hello to out.txt")
        assert await next_shown() == [call]
        assert (await asyncio.to_thread(chatops, "approvals", "approve", call)).code == 0
        assert await next_shown() == []
        watching.cancel()
        await app.aclose()


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_job_continues_where_it_was_started_with_the_options_of_its_user_alone(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running, psycopg.connect(running.url, autocommit=True) as member:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        written, forged, elsewhere = (
            chatops("-p", f"write hello to {name}.txt", "--role", "coder", "--background").out.strip()
            for name in ("written", "forged", "elsewhere")
        )
        for one in (written, forged, elsewhere):
            assert chatops("jobs", "wait", one).code == 3
        waiting = {
            row["session_id"]: row["id"]
            for row in json.loads(chatops("approvals", "list", "--output-format", "json").out)
        }
        decided = chatops("approvals", "approve", waiting[written])
        assert "The job is running" in decided.out + decided.err
        assert chatops("jobs", "wait", written).code == 0
        assert (chatops.workspace / "written.txt").read_text() == "hello"
        # A member of the database lets everything run.
        member.execute(
            'UPDATE chatops.jobs SET options = replace(options, \'"approve":[]\', \'"approve":["file_write"]\') '
            "WHERE options LIKE '%%\"approve\":[]%%' AND session_id = %s",
            (forged,),
        )
        decided = chatops("approvals", "approve", waiting[forged])
        assert "were not written by this user on this machine" in decided.out + decided.err
        refused = chatops("jobs", "resume", forged)
        assert (refused.code, f"chatops resume {forged}" in refused.err) == (1, True)
        assert chatops("jobs", "cancel", forged).code == 0
        monkeypatch.setenv("CHATOPS_HOME", str(tmp_path / "other"))
        decided = chatops("approvals", "approve", waiting[elsewhere])
        assert "Decided, not started" in decided.out + decided.err
        assert "not started" in chatops("jobs", "list").out
        assert chatops("resume", elsewhere).code == 0
        assert [(chatops.workspace / f"{name}.txt").exists() for name in ("forged", "elsewhere")] == [False, True]


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_what_was_approved_in_a_file_asks_again_in_the_copy_of_it(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    session, call = chatops.paused("write hello to out.txt")
    assert chatops("approvals", "approve", call).code == 0
    file = f"sqlite://{find_paths(os.environ).store}"
    with server() as running:
        refused = chatops("store", "copy", "--for", "eve", file, running.url)
        assert (refused.code, "eve has no level" in refused.err) == (2, True)
        copied = chatops("store", "copy", "--for", "chatops", file, running.url)
        assert (copied.code, copied.out.startswith("1 session is copied, with 0 files.")) == (0, True), copied.err
        assert re.search(r": 2 messages, 1 turn, \d+ rows of the log\.$", copied.out.strip()), copied.out
        for store in (file, running.url):
            assert "whose chains are whole" in chatops("store", "check", store).out
        assert "1 was there before" in chatops("store", "copy", file, running.url).out
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        assert chatops("resume", session).code == 3
        assert not (chatops.workspace / "out.txt").exists()
        assert "copied or moved" in chatops("approvals", "show", call).out
        assert chatops("approvals", "approve", call).code == 0
        assert chatops("resume", session).code == 0
        with psycopg.connect(running.url, autocommit=True) as member:
            member.execute("UPDATE chatops.audit SET body = replace(body, 'approved', 'rejected')")
        checked = chatops("store", "check")
        assert (checked.code, "fail  store  The log was changed" in checked.out) == (1, True)
        (chatops.workspace / "out.txt").unlink()
        assert "Used since they were copied" in chatops("store", "copy", file, running.url).err
        monkeypatch.delenv("CHATOPS_STORE")
        assert chatops("resume", session).code == 0
        assert (chatops.workspace / "out.txt").exists()


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_program_decides_in_the_store_of_its_registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as running:
        registry = tmp_path / "team.json"
        registry.write_text(json.dumps({**json.loads(packaged_registry().read_text()), "store": running.url}))
        chat = Chat(role="coder", workspace=tmp_path, registry=registry)
        (asked,) = chat.send("write hello to out.txt").pending
        asked.approve(digest=asked.digest)
        assert (chat.resume().status, (tmp_path / "out.txt").read_text()) == ("answered", "hello")
        assert not find_paths(os.environ).store.exists()


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_doctor_says_how_the_database_and_the_queue_are(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    with server() as running:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        assert "clock is +0.0 s from this one" in chatops("doctor").out
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() - 60)
        assert "are 60 s apart" in chatops("doctor").out
        monkeypatch.setattr(time, "time", real)
        assert chatops("-p", "hello", "--queue", "api").code == 0
        checked = chatops("doctor").out
        assert "0 workers are alive, 1 turn in the queue, 1 of them ready, the oldest for" in checked
        assert "No worker is alive for api" in checked and "hint" not in checked
        with psycopg.connect(running.url, autocommit=True) as owner:
            owner.execute("DELETE FROM chatops.hints")
            worker = """VALUES ('w', 'h', 1, 1, '["api"]', '{}', extract(epoch FROM now()))"""
            owner.execute(f"INSERT INTO chatops.workers {worker}".encode())
        checked = chatops("doctor").out
        assert "1 worker is alive" in checked and "1 ready turn has no hint for workers, and 0 hints no turn" in checked


def test_sessions_are_copied_from_a_file_into_a_database_only(chatops: CommandLine, tmp_path: Path) -> None:
    for words in (("postgresql:///a", f"sqlite://{tmp_path}/a.db"), ("sqlite:///nowhere.db", "postgresql:///a")):
        refused = chatops("store", "copy", *words)
        assert (refused.code, "postgresql://host/database" in refused.err) == (2, True)


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_team_is_set_up_as_the_documentation_says_and_each_member_works_in_sessions_of_its_own(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = (Path(__file__).parents[2] / "docs" / "team.md").read_text()
    (block,) = re.findall(r"```sh\n(psql .*?)```", text, re.DOTALL)
    with server() as running:

        def log_in(role: str) -> None:
            address = running.url.replace("chatops@", f"{role}@").replace("/postgres?", "/chatops?")
            monkeypatch.setenv("CHATOPS_STORE", address)
            monkeypatch.setenv("CHATOPS_HOME", str(tmp_path / role))

        for line in block.splitlines():
            match shlex.split(line):
                case ["psql", *words]:
                    program = find_programs()
                    assert program is not None
                    subprocess.run([program / "psql", *words, running.url], check=True, capture_output=True)
                case [store, "chatops", *words]:
                    log_in(store.partition("//")[2].partition("@")[0])
                    assert chatops(*words).code == 0
        assert chatops("store", "grant").out.split() == ["ROLE", "LEVEL", "ana", "operator", "ben", "operator"]
        assert chatops("store", "grant", "ben").code == 2
        log_in("ana")
        assert "Only the owner" in chatops("store", "grant", "ben", "--level", "admin").err
        session, call = chatops.paused("write hello to out.txt")
        log_in("ben")
        approved = chatops("approvals", "approve", call)
        assert "The session belongs to ana: it continues there." in approved.err
        for command in (f"resume {session}", f"sessions delete {session} --yes", f"sessions rename {session} x"):
            refused = chatops(*command.split())
            assert (refused.code, f"Session {session} belongs to ana." in refused.err) == (1, True)
        assert chatops("sessions", "fork", session).code == 0
        log_in("ana")
        assert "approved by member ben" in chatops("resume", session).err
        assert (chatops.workspace / "out.txt").read_text() == "hello"
        listed, exported = chatops("audit", "list").out, chatops("audit", "export").out.splitlines()
        assert "member ben via approvals" in listed and "(written by ana)" in listed
        written = {json.loads(line)["kind"]: json.loads(line)["written_by"] for line in exported}
        assert written["decision"] == written["start"] == "ana"
        receipt, script = tmp_path / "receipt.jsonl", tmp_path / "check.py"
        receipt.write_text("\n".join(exported))
        docs = (REPOSITORY / "docs" / "audit.md").read_text()
        script.write_text(docs.partition("<!-- receipt -->\n```python\n")[2].partition("```")[0])
        assert subprocess.run([sys.executable, script, receipt], check=False).returncode == 0
        log_in("keeper")
        assert chatops("store", "grant", "ben", "--level", "none").code == 0
        log_in("ben")
        assert "chatops store grant ROLE" in chatops("sessions", "list").err


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_job_of_another_member_is_decided_and_left_to_its_own(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running, psycopg.connect(running.url, autocommit=True) as admin:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        assert chatops("sessions", "list").code == 0
        for role in ("ana", "ben"):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
            assert chatops("store", "grant", role, "--level", "operator").code == 0
        ana, ben = (running.url.replace("chatops@", f"{role}@") for role in ("ana", "ben"))
        monkeypatch.setenv("CHATOPS_STORE", ana)
        job = chatops("-p", "write hello to out.txt", "--role", "coder", "--background").out.strip()
        assert chatops("jobs", "wait", job).code == 3
        monkeypatch.setenv("CHATOPS_STORE", ben)
        (waiting,) = json.loads(chatops("approvals", "list", "--output-format", "json").out)
        assert "The job belongs to ana" in chatops("approvals", "approve", waiting["id"]).err
        assert f"Session {job} belongs to ana." in chatops("jobs", "cancel", job).err
        monkeypatch.setenv("CHATOPS_STORE", ana)
        assert chatops("jobs", "resume", job).code == 0
        assert chatops("jobs", "wait", job).code == 0
        assert (chatops.workspace / "out.txt").read_text() == "hello"


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_a_decision_counts_as_far_as_the_level_of_who_decided_reaches_when_it_is_taken(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    with server() as running, psycopg.connect(running.url, autocommit=True) as admin:

        def grant(role: str, level: str) -> None:
            monkeypatch.setenv("CHATOPS_STORE", running.url)
            assert chatops("store", "grant", role, "--level", level).code == 0

        def approve_as_ben() -> None:
            monkeypatch.setenv("CHATOPS_STORE", running.url.replace("chatops@", "ben@"))
            assert chatops("approvals", "approve", call).code == 0

        for role in ("ana", "ben"):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
        ana = running.url.replace("chatops@", "ana@")
        grant("ana", "operator")
        grant("ben", "viewer")
        monkeypatch.setenv("CHATOPS_STORE", ana)
        session, call = chatops.paused("write hello to out.txt")
        for level, why in (
            ("viewer", "ben may not use file_write (access level viewer)"),
            ("none", "ben has no level"),
        ):
            grant("ben", "viewer")
            approve_as_ben()
            grant("ben", level)
            monkeypatch.setenv("CHATOPS_STORE", ana)
            resumed = chatops("resume", session)
            assert (resumed.code, f"Nothing was decided: {why}" in resumed.err) == (3, True), resumed.err
            assert not (chatops.workspace / "out.txt").exists()
        grant("ben", "operator")
        approve_as_ben()
        monkeypatch.setenv("CHATOPS_STORE", ana)
        assert chatops("resume", session).code == 0
        assert (chatops.workspace / "out.txt").read_text() == "hello"


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_with_approvers_another_member_of_the_group_lets_a_call_run(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registry = json.loads(packaged_registry().read_text())
    registry["tools"] = {**registry.get("tools", {}), "file_write": {"approver": ["other", "@leads", "operator"]}}
    (tmp_path / "r.json").write_text(json.dumps(registry))
    monkeypatch.setenv("CHATOPS_REGISTRY", str(tmp_path / "r.json"))
    with server() as running, psycopg.connect(running.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE leads")
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        for role in ("ana", "ben", "eve"):
            admin.execute(f"CREATE ROLE {role} LOGIN {'' if role == 'eve' else 'IN ROLE leads'}".encode())
            assert chatops("store", "grant", role, "--level", "operator").code == 0

        def as_role(role: str) -> None:
            monkeypatch.setenv("CHATOPS_STORE", running.url.replace("chatops@", f"{role}@"))

        as_role("ana")
        session, call = chatops.paused("write hello to out.txt", "--approve", "file_write")
        assert "someone else than who requested it, and a member of leads" in chatops("approvals", "show", call).out
        for role, why in (("ana", "someone else than ana has to"), ("eve", "a member of leads has to")):
            as_role(role)
            assert f"Nothing was decided: {why}" in chatops("approvals", "approve", call).err
            # Their own program may leave out that check.
            with psycopg.connect(running.url.replace("chatops@", f"{role}@")) as member:
                post = "SELECT chatops.post_decision(call_id, digest, %s, %s) FROM chatops.pending"
                by = '{"uid": 0, "via": "approvals", "member": "ben"}'
                assert member.execute(post, ('{"kind": "approved"}', by)).fetchone() == (True,)
            as_role("ana")
            resumed = chatops("resume", session)
            assert (resumed.code, why in resumed.err) == (3, True), resumed.err
        as_role("ben")
        assert chatops("approvals", "approve", call).code == 0
        as_role("ana")
        assert chatops("resume", session).code == 0
        assert (chatops.workspace / "out.txt").read_text() == "hello"


def test_a_file_has_no_members(chatops: CommandLine) -> None:
    refused = chatops("store", "grant", "ana", "--level", "user")
    assert (refused.code, "The sessions are in a file of one user" in refused.err) == (2, True)


def test_what_is_no_address_of_a_database_is_refused(chatops: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHATOPS_STORE", "/tmp/chatops.db")
    refused = chatops("sessions", "list")
    assert (refused.code, "CHATOPS_STORE names no database" in refused.err) == (2, True)


def test_without_the_extra_the_command_that_installs_it_is_named(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHATOPS_STORE", "postgresql://localhost/t")
    monkeypatch.setitem(sys.modules, "chatops.store.postgres", None)
    refused = chatops("sessions", "list")
    assert (refused.code, "the extra team is not installed" in refused.err) == (2, True)


def test_a_registry_that_names_a_database_and_breaks_leaves_no_session_in_a_file(
    chatops: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "chatops.store.postgres", None)
    registry, wanted = tmp_path / "r.json", '{"version": 3, "store": "postgresql://localhost/t"'
    registry.write_text(wanted)
    # Without an earlier version that could be read, what the file says stops the command.
    assert chatops("--registry", str(registry), "sessions", "list").code == 2
    registry.write_text(wanted + "}")
    missing = "The store is a database, and the extra team is not installed"
    assert missing in chatops("--registry", str(registry), "sessions", "list").err
    registry.write_text('{"version": 3')
    assert missing in chatops("--registry", str(registry), "sessions", "list").err
    assert list(tmp_path.rglob("chatops.db")) == []


@pytest.mark.postgres
@pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed")
def test_the_password_of_the_database_is_in_no_row_and_in_no_command(
    chatops: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that knows it says it, letter by letter, and a command prints its environment."""
    word = "pw-83ca6f0d12be/canary"
    monkeypatch.setenv("PGPASSWORD", word)
    told = says(f"It is {word}.", pieces=60)
    looks = Call(name="shell_exec", arguments='{"command": "env; cat /proc/*/environ"}')
    script = [calls(looks, text=f"I know {word}."), told]
    with server() as running, FakeOpenAI(script) as model, psycopg.connect(running.url) as reader:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        flags = ("--registry", registry_for(chatops.workspace, model.url, tools=["shell_exec"]))
        session, waiting = chatops.paused("go", *flags)
        assert chatops(*flags, "approvals", "approve", waiting).code == 0
        shown = [chatops(*flags, *words) for words in (("resume", session), ("audit", "export"), ("doctor",))]
        assert "It is [key]." in shown[0].out
        tables = reader.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'chatops'").fetchall()
        rows = [
            str(row)
            for (name,) in tables
            for row in reader.execute(f'SELECT t::text FROM chatops."{name}" t').fetchall()
        ]
    assert len(rows) > 10
    everything = [*rows, *(ran.out + ran.err for ran in shown)]
    assert [form for form in spellings([word]) for text in everything if form in text] == []
