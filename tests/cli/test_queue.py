"""Turns of the queue, on a server of the tests: put there, taken by workers in processes of their own, decided."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.mcp.conftest import entry, tool
from tests.support.command_line import CommandLine, Ran, program_environment, registry_for
from tests.support.fake_openai import FakeOpenAI, Reply, SeenRequest, call, calls, says
from tests.support.postgres import Server, find_programs, server
from tests.support.processes import family
from tests.support.waiting import PATIENCE
from tests.support.workflows import answer, step

pytestmark = [
    pytest.mark.postgres,
    pytest.mark.skipif(find_programs() is None, reason="no PostgreSQL server is installed"),
]


@pytest.fixture
def database(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A server whose database is the store of all commands of the test."""
    with server() as running:
        monkeypatch.setenv("CHATOPS_STORE", running.url)
        yield running


@contextmanager
def worker(folder: Path, *more: str, host: str = "one", name: str = "repo") -> Iterator[subprocess.Popen[str]]:
    """Run a worker for the workspace `name` in `folder`, with the data folder of a `host`, and end it afterwards."""
    environment = program_environment() | {"CHATOPS_HOME": str(folder.parent / f"home-{host}")}
    process = subprocess.Popen(
        [sys.executable, "-m", "chatops", "worker", "--workspace", f"{name}={folder}", *more],
        cwd=folder.parent,
        env=environment,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_until(holds: Callable[[], object], what: str | Callable[[], object]) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what() if callable(what) else what
        time.sleep(0.05)


def rows(chatops: CommandLine) -> dict[str, Any]:
    listed = chatops("queue", "list", "--output-format", "json")
    return {row["session_id"]: row for row in json.loads(listed.out or "[]")}


def waiting(chatops: CommandLine) -> dict[str, str]:
    """The calls that wait for a decision, by session."""
    listed = json.loads(chatops("approvals", "list", "--output-format", "json").out)
    return {row["session_id"]: row["id"] for row in listed if row["decision"] is None}


def test_a_turn_is_queued_driven_by_a_worker_decided_elsewhere_and_goes_on_at_another_worker(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    queued = chatops("-p", "write hello to out.txt", "--role", "coder", "--queue", "repo")
    session = queued.out.strip()
    assert (queued.code, "No worker of repo is alive" in queued.err) == (0, True), queued.err
    assert rows(chatops)[session]["state"] == "no worker"
    with worker(folder) as first:
        wait_until(lambda: session in waiting(chatops), "the call waits")
        wait_until(lambda: rows(chatops)[session]["state"] == "waiting", "the worker has left it")
        first.send_signal(signal.SIGTERM)
        assert first.wait() == 0
    refused = chatops("resume", session)
    assert (refused.code, "the workers of repo drive it" in refused.err) == (2, True)
    with worker(folder, host="other") as second, psycopg.connect(database.url, autocommit=True) as member:
        # What is no answer to this call keeps no worker.
        answer = """'{"kind": "marked_done"}', '{"uid": 0}'"""
        member.execute(f"SELECT chatops.post_decision(call_id, digest, {answer}) FROM chatops.pending".encode())
        posted = "SELECT count(*) FROM chatops.posted"
        wait_until(lambda: member.execute(posted).fetchone() == (0,), "the answer is withdrawn")
        decided = chatops("approvals", "approve", waiting(chatops)[session])
        assert "The workers of repo go on with it" in decided.err
        wait_until(lambda: session not in rows(chatops), "the turn is over")
        assert (folder / "out.txt").read_text() == "hello"
        further = chatops("-p", "write more to more.txt", "-r", session, "--queue", "repo")
        assert (further.code, further.out.strip()) == (0, session), further.err
        wait_until(lambda: session in waiting(chatops), "the call waits")
        assert chatops("queue", "cancel", session).code == 2
        chatops("approvals", "approve", waiting(chatops)[session])
        wait_until(lambda: session not in rows(chatops), "the turn is over")
        assert (folder / "more.txt").read_text() == "more"
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0
    with psycopg.connect(database.url) as member:
        assert member.execute("SELECT count(*) FROM chatops.hints").fetchone() == (0,)
        assert member.execute("SELECT requester FROM chatops.queue").fetchall() == [("chatops",)]
        # A rule of the worker's role would answer for others.
        columns = "(scope, role, tool, pattern, made_at, source_call)"
        rule = f"INSERT INTO chatops.rules {columns} VALUES ('always', '', '', '', 0, %s)".encode()
        made = [member.execute(rule, (f"{one}.1.1.1",)).rowcount for one in (session, f"{session}-1-1-1", "other-1-1")]
        assert made == [0, 0, 1]


def test_what_no_worker_has_taken_is_cancelled(chatops: CommandLine, database: Server) -> None:
    session = chatops("-p", "hello", "--queue", "repo").out.strip()
    other = chatops("-p", "more", "-r", session, "--queue", "other")
    assert (other.code, "is in the queue of repo" in other.err) == (2, True)
    assert chatops("-p", "more", "-r", session, "--role", "coder", "--queue", "repo").code == 2
    cancelled = chatops("queue", "cancel", session)
    assert (cancelled.code, session in cancelled.out, rows(chatops)) == (0, True, {})
    again = chatops("queue", "cancel", session)
    assert (again.code, "Nothing of session" in again.err) == (2, True)


def test_what_a_worker_lacks_is_said_where_no_other_one_can_take_a_turn(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    registry = json.loads(Path(registry_for(folder, "http://127.0.0.1:9/v1", tools=["file_read"])).read_text())
    registry["models"]["kept"] = {**registry["models"]["fake"], "api_key_env": "MISSING_KEY"}
    registry["roles"]["keyless"] = {"primary": "kept", "tools": ["file_read"]}
    (tmp_path / "registry.json").write_text(json.dumps(registry))
    put = {
        about: chatops("-p", "hello", *options, "--queue", name).out.strip()
        for about, options, name in (
            ("no role nobody", ("--role", "nobody"), "repo"),
            ("There is no model 'nothing'", ("--role", "coder", "--model", "nothing"), "repo"),
            ("MISSING_KEY is not set", ("--role", "keyless"), "repo"),
            ("no worker of other is alive", ("--role", "coder"), "other"),
        )
    }
    with worker(folder, "--registry", str(tmp_path / "registry.json")):
        wait_until(
            lambda: all(about in rows(chatops)[one]["why"] for about, one in put.items()),
            lambda: [row["why"] for row in rows(chatops).values()],
        )
    assert {row["state"] for row in rows(chatops).values()} == {"no worker"}


def test_a_worker_leaves_after_its_step_and_all_go_on_without_hints_after_a_restart(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()

    def script(request: SeenRequest) -> Reply:
        job = request.last_user
        if request.tool_results:
            return says("done")
        return calls(call("shell_exec", command=f"echo {job} >> effects.txt; [ {job} = b ] || sleep 3; echo {job}"))

    with FakeOpenAI(script) as fake:
        registry = ("--registry", registry_for(folder, fake.url, tools=["shell_exec"]))
        a, b, c = (chatops("-p", job, "--role", "coder", "--queue", "repo").out.strip() for job in "abc")
        with worker(folder, *registry) as first, psycopg.connect(database.url, autocommit=True) as member:
            wait_until(lambda: len(waiting(chatops)) == 3, "all calls wait")
            chatops("approvals", "approve", waiting(chatops)[a])
            wait_until(lambda: (folder / "effects.txt").exists(), "the tool runs")
            first.send_signal(signal.SIGTERM)
            assert first.wait() == 0
            state = member.execute(
                "SELECT j.outcome, t.phase FROM chatops.journal j JOIN chatops.turns t USING (turn_id)"
            )
            assert state.fetchall() == [("success", "awaiting_model")]
            for one in (b, c):
                chatops("approvals", "approve", waiting(chatops)[one])
            assert member.execute("DELETE FROM chatops.hints").rowcount == 3
        with worker(folder, *registry) as second:
            wait_until(lambda: b not in rows(chatops), "the sweep finds what was decided")
            wait_until(lambda: (folder / "effects.txt").read_text().count("c") == 1, "the tool runs")
            database.stop()
            database.start()
            wait_until(lambda: not rows(chatops), "all is over")
            assert second.poll() is None
    assert sorted((folder / "effects.txt").read_text().split()) == ["a", "b", "c"]


def test_a_queued_turn_may_do_no_more_than_the_level_that_its_role_has_by_then(
    chatops: CommandLine, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()
    with psycopg.connect(database.url, autocommit=True) as admin:
        admin.execute("CREATE ROLE ana LOGIN")
    assert chatops("store", "grant", "ana", "--level", "operator").code == 0
    with monkeypatch.context() as as_ana:
        as_ana.setenv("CHATOPS_STORE", database.url.replace("chatops@", "ana@"))
        session = chatops("-p", "write hello to out.txt", "--role", "coder", "--queue", "repo").out.strip()
    with worker(folder):
        wait_until(lambda: session in waiting(chatops), "the call waits")
        assert chatops("store", "grant", "ana", "--level", "none").code == 0
        assert chatops("approvals", "approve", waiting(chatops)[session]).code == 0
        wait_until(lambda: "ana has no level" in rows(chatops)[session]["why"], "the worker refuses it")
    assert chatops("store", "grant", "ana", "--level", "viewer").code == 0
    with worker(folder):
        wait_until(lambda: session not in rows(chatops), "the turn is over")
    assert "access level viewer" in chatops("audit", "list").out
    assert list(folder.iterdir()) == []


def test_rights_that_were_taken_while_a_call_waited_hold_when_it_goes_on(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    folder.mkdir()

    def script(request: SeenRequest) -> Reply:
        return says("done") if request.tool_results else calls(call("shell_exec", command="echo x > effect.txt"))

    with FakeOpenAI(script) as fake:
        file = Path(registry_for(folder, fake.url, tools=["shell_exec"]))
        session = chatops("-p", "go", "--role", "coder", "--queue", "repo").out.strip()
        with worker(folder, "--registry", str(file)):
            wait_until(lambda: session in waiting(chatops), "the call waits")
            # The worker's registry names roles of the database.
            changed = json.loads(file.read_text()) | {"users": {"chatops": {"access_level": "viewer"}}}
            file.write_text(json.dumps(changed))
            chatops("approvals", "approve", waiting(chatops)[session])
            wait_until(lambda: session not in rows(chatops), "the turn is over")
    assert not (folder / "effect.txt").exists()


def installed(folder: Path, url: str, *steps: dict[str, Any]) -> tuple[str, str]:
    """The options that name a registry with the workflow `flow`."""
    folder.mkdir(exist_ok=True)
    file = Path(registry_for(folder, url, tools=["shell_exec"]))
    file.write_text(json.dumps(json.loads(file.read_text()) | {"workflows": {"flow": {"steps": list(steps)}}}))
    return ("--registry", str(file))


APPEND = calls(call("shell_exec", command="echo x >> count.txt"))


def test_a_run_is_driven_by_workers_and_reviewed_by_another_member_whose_rights_count_when_it_is_taken(
    chatops: CommandLine, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repo"

    def as_role(role: str, *arguments: str) -> Ran:
        with monkeypatch.context() as logged_in:
            logged_in.setenv("CHATOPS_STORE", database.url.replace("chatops@", f"{role}@"))
            return chatops(*arguments)

    with (
        psycopg.connect(database.url, autocommit=True) as admin,
        FakeOpenAI([APPEND, answer("made"), answer("said")]) as fake,
    ):
        for role in ("ana", "ben"):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
            assert chatops("store", "grant", role, "--level", "operator").code == 0
        gated = step("make", tools=["shell_exec"], review=True)
        registry = installed(folder, fake.url, gated, step("say"))
        assert as_role("ana", "workflow", "run", "flow", "go", "--max-retries", "2", "--queue", "repo").code == 2
        session = as_role("ana", "workflow", "run", "flow", "go", "--queue", "repo").out.strip()
        with worker(folder, *registry):
            wait_until(lambda: session in waiting(chatops), "the call waits")
            assert as_role("ben", "approvals", "approve", waiting(chatops)[session]).code == 0
            wait_until(lambda: "a review" in rows(chatops)[session]["why"], "the step waits for a review")
            # What cannot be read keeps no worker.
            posted = """SELECT chatops.post_review(session_id, seq, '{"kind": "cancel_run"}') FROM chatops.runs"""
            assert admin.execute(posted.encode()).fetchone() == (True,)
            left = "SELECT count(*) FROM chatops.posted_reviews"
            wait_until(lambda: admin.execute(left).fetchone() == (0,), "it is withdrawn")
        shown = as_role("ben", "workflow", "show", session)
        assert "made" in shown.err and "--accept --attempt 1.1" in shown.err, shown.err
        accept = ("workflow", "resume", session, "--accept", "--attempt", "1.1")
        assert chatops("workflow", "resume", session).code == 2
        assert as_role("ben", *accept[:-1], "1.2").code == 1
        assert as_role("ben", *accept).code == 0
        again = as_role("ana", *accept)
        assert (again.code, "accepted by member ben" in again.err) == (1, True), again.err
        assert chatops("store", "grant", "ben", "--level", "viewer").code == 0
        with worker(folder, *registry):
            wait_until(lambda: "a review" in rows(chatops)[session]["why"], "the review of a viewer does not count")
            assert len(fake.requests) == 2
            assert chatops("store", "grant", "ben", "--level", "operator").code == 0
            said = as_role("ben", *accept)
            assert (said.code, "A worker of repo takes the review" in said.err) == (0, True), said.err
            wait_until(lambda: session not in rows(chatops), "the run is over")
    assert (folder / "count.txt").read_text() == "x\n"
    assert "answered" in chatops("workflow", "show", session).out
    reviews = [row for row in chatops("audit", "list", "--output-format", "json").json if row["kind"] == "review"]
    assert [row["by"]["member"] for row in reviews] == ["ben"]


def test_a_run_of_a_member_is_reviewed_by_another_one_and_left_to_its_own(
    chatops: CommandLine, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with psycopg.connect(database.url, autocommit=True) as admin, FakeOpenAI([answer("made")]) as fake:
        for role in ("ana", "ben"):
            admin.execute(f"CREATE ROLE {role} LOGIN".encode())
            assert chatops("store", "grant", role, "--level", "operator").code == 0
        ana, ben = (database.url.replace("chatops@", f"{role}@") for role in ("ana", "ben"))
        registry = installed(chatops.workspace, fake.url, step("make", review=True))
        monkeypatch.setenv("CHATOPS_STORE", ana)
        paused = chatops(*registry, "workflow", "run", "flow", "go", "--output-format", "json")
        assert paused.code == 3, paused.err
        run = paused.json["session_id"]
        monkeypatch.setenv("CHATOPS_STORE", ben)
        said = chatops(*registry, "workflow", "resume", run, "--accept")
        assert (said.code, "The chatops of ana takes the review" in said.err) == (0, True), said.err
        monkeypatch.setenv("CHATOPS_STORE", ana)
        assert chatops(*registry, "workflow", "resume", run).code == 0


def test_a_worker_that_is_killed_between_the_steps_of_a_run_repeats_no_effect(
    chatops: CommandLine, database: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "repo"
    with FakeOpenAI([APPEND, answer("made"), answer("said")]) as fake:
        registry = installed(folder, fake.url, step("make", tools=["shell_exec"]), step("say"))
        session = chatops("workflow", "run", "flow", "go", "--queue", "repo").out.strip()
        for point in ("before_run_commit:2", "after_run_commit:1"):
            with monkeypatch.context() as killed:
                killed.setenv("CHATOPS_FAILPOINT", point)
                with worker(folder, *registry) as one:

                    def is_gone() -> bool:
                        if found := waiting(chatops).get(session):
                            chatops("approvals", "approve", found)
                        return one.poll() == -signal.SIGKILL

                    wait_until(is_gone, f"the worker is killed at {point}")
        with worker(folder, *registry):
            wait_until(lambda: session not in rows(chatops), "the run is over")
    assert (folder / "count.txt").read_text() == "x\n"
    assert "said" in chatops("workflow", "show", session).out


def test_a_worker_keeps_no_server_of_a_run_that_it_refuses(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    option, file = installed(folder, "http://127.0.0.1:9/v1", step("make", tools=["h__missing"]))
    contents = json.loads(Path(file).read_text()) | {"mcp_servers": {"h": entry()}}
    contents["roles"]["coder"]["tools"] = ["h__*"]
    Path(file).write_text(json.dumps(contents))
    (folder / "tools.json").write_text(json.dumps([tool("echo")]))
    session = chatops("workflow", "run", "flow", "go", "--queue", "repo").out.strip()
    with worker(folder, option, file) as refusing:
        wait_until(lambda: "h__missing" in rows(chatops)[session]["why"], "the run is refused")
        assert list(folder.glob("started.*")), "it was started, as only it knows its tools"
        assert [one.pid for one in family(refusing.pid, mark="in no environment")] == [refusing.pid]


def test_a_run_that_workers_have_is_cancelled_and_one_that_none_can_take_says_why(
    chatops: CommandLine, database: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "repo"
    with FakeOpenAI([APPEND]) as fake:
        registry = installed(folder, fake.url, step("make", tools=["shell_exec"]))
        missing = chatops("workflow", "run", "other", "go", "--queue", "repo").out.strip()
        session = chatops("workflow", "run", "flow", "go", "--queue", "repo").out.strip()
        with worker(folder, *registry):
            wait_until(lambda: session in waiting(chatops), "the call waits")
            wait_until(lambda: "other" in rows(chatops)[missing]["why"], "there is no such workflow")
            assert chatops("workflow", "cancel", session).code == 0
            wait_until(lambda: session not in rows(chatops), "the run is over")
    assert chatops("queue", "cancel", missing).code == 0
    assert (rows(chatops), "cancelled" in chatops("workflow", "show", session).out) == ({}, True)
