"""Turns that continue in the background: real processes, decided and started again from other ones."""

import asyncio
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from chatops import Chat
from chatops.domain.ids import SessionId
from chatops.store.process_identity import this_process
from chatops.store.store import Store
from chatops.wiring.app import App
from chatops.wiring.jobs import ChatJobs
from chatops.wiring.stored import Options
from tests.support.command_line import REPOSITORY, CommandLine, Ran, program_environment, registry_for
from tests.support.fake_openai import FakeOpenAI, Hang, Raw, Reply, call, calls, says
from tests.support.no_sandbox import without_sandbox
from tests.support.processes import Process, family
from tests.support.waiting import PATIENCE

NO_PROCESS = 2_147_483_647


def started(chatops: CommandLine, prompt: str, *arguments: str) -> str:
    """Start a job as coder; the id of its session."""
    ran = chatops("--role", "coder", *arguments, "-p", prompt, "--background")
    assert ran.code == 0, ran.err
    return ran.out.strip()


def waiting(chatops: CommandLine, prompt: str, *arguments: str) -> tuple[str, list[str]]:
    """Start a job, and wait until it waits and has no process; the id of its session and its pending calls."""
    job = started(chatops, prompt, *arguments)
    assert chatops("jobs", "wait", job).code == 3
    until(lambda: not processes(Path(os.environ["CHATOPS_HOME"])))
    return job, [one["id"] for one in shown(chatops, job)["pending"]]


def shown(chatops: CommandLine, job: str) -> dict[str, Any]:
    found: dict[str, Any] = chatops("jobs", "show", job, "--output-format", "json").json
    return found


def processes(home: Path) -> set[Process]:
    """The processes that this test has started and that still run."""
    return family(NO_PROCESS, mark=f"CHATOPS_HOME={home}")


def goes_on(chatops: CommandLine, job: str) -> None:
    """Start a job again, which takes effect once."""
    assert chatops("jobs", "resume", job).code == 0
    assert chatops("jobs", "wait", job).code == 0
    assert (chatops.workspace / "log.txt").read_text() == "once\n"


def until(holds: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def begun(*arguments: str, cwd: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "chatops", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        cwd=cwd,
        env=program_environment() | environment,
    )


def ended(process: subprocess.Popen[str]) -> Ran:
    out, _ = process.communicate(timeout=PATIENCE)
    return Ran(code=process.returncode, out=out, err="")


def test_a_waiting_job_has_no_process_and_goes_on_once_decided(chatops: CommandLine, chatops_home: Path) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    until(lambda: not processes(chatops_home) and shown(chatops, job)["pid"] is None)
    assert shown(chatops, job)["state"] == "waiting"
    assert "shell_exec (echo once >> log.txt)" in chatops("jobs", "list").out
    approved = chatops("approvals", "approve", call_id)
    assert (approved.code, f"chatops jobs show {job}" in approved.err) == (0, True)
    done = chatops("jobs", "wait", job, "--output-format", "json")
    assert (done.code, done.json["status"]) == (0, "answered")
    assert "via approvals" in done.json["calls"][0]["decided_by"]
    assert (chatops.workspace / "log.txt").read_text() == "once\n"
    assert shown(chatops, job)["state"] == "done"
    again = chatops("jobs", "resume", job)
    assert (again.code, "has ended: done" in again.err) == (1, True)


def test_a_job_keeps_its_options_and_neither_keys_nor_environment(
    chatops: CommandLine, chatops_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_KEY", "sk-very-secret-1")
    job, (call_id,) = waiting(chatops, "run `echo no` and run `echo yes > yes.txt`", "--approve", "shell_exec:echo no")
    assert "yes.txt" in json.dumps(shown(chatops, job)["pending"])
    assert chatops("approvals", "deny", call_id, "--reason", "not today").code == 0
    assert chatops("jobs", "wait", job).code == 0
    (stored,) = rows(chatops_home, "SELECT options FROM jobs")
    assert json.loads(stored[0])["approve"] == ["shell_exec:echo no"]
    assert b"sk-very-secret-1" not in store_of(chatops_home).read_bytes()
    assert not (chatops.workspace / "yes.txt").exists()


def store_of(home: Path) -> Path:
    (file,) = home.rglob("chatops.db")
    return file


def rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(store_of(home), isolation_level=None)) as raw:
        return raw.execute(sql).fetchall()


def test_two_deciders_at_the_same_time_run_each_call_once(chatops: CommandLine, chatops_home: Path) -> None:
    job, asked = waiting(chatops, "run `echo one >> log.txt` and run `echo two >> log.txt`")
    deciders = [begun("approvals", "approve", one, cwd=chatops.workspace) for one in (*asked, *asked)]
    assert sorted(ended(one).code for one in deciders) == [0, 0, 1, 1]
    until(lambda: shown(chatops, job)["state"] == "done")
    assert sorted((chatops.workspace / "log.txt").read_text().split()) == ["one", "two"]
    until(lambda: not processes(chatops_home))


def test_a_decider_that_is_killed_leaves_a_job_that_was_not_started(chatops: CommandLine) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    killed = begun("approvals", "approve", call_id, cwd=chatops.workspace, CHATOPS_FAILPOINT="before_job_start")
    assert ended(killed).code == -signal.SIGKILL
    found = shown(chatops, job)
    assert (found["state"], found["why"]) == (
        "decided, not started",
        "it was decided elsewhere, or a process was killed before the job went on",
    )
    assert not (chatops.workspace / "log.txt").exists()
    late = chatops("approvals", "approve", call_id)
    assert (late.code, f"chatops jobs resume {job}" in late.err) == (1, True)
    goes_on(chatops, job)


@pytest.mark.more
def test_a_decider_that_is_killed_once_the_process_is_started_changes_nothing(chatops: CommandLine) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    assert (
        ended(begun("approvals", "approve", call_id, cwd=chatops.workspace, CHATOPS_FAILPOINT="job_started")).code < 0
    )
    until(lambda: shown(chatops, job)["state"] == "done")
    assert (chatops.workspace / "log.txt").read_text() == "once\n"


@pytest.fixture
def server() -> Iterator[tuple[FakeOpenAI, list[Reply]]]:
    """A server that says what the test gives, and then that it is done."""
    replies: list[Reply] = []
    with FakeOpenAI(lambda request: replies.pop(0) if replies else says("done")) as running:
        yield running, replies
        assert running.violations == []


def once(chatops: CommandLine, running: FakeOpenAI, replies: list[Reply]) -> tuple[Path, dict[str, Any]]:
    """Let the server ask once for an effect; the registry that names it, and its content."""
    replies.append(calls(call("shell_exec", command="echo once >> log.txt")))
    file = Path(registry_for(chatops.workspace, running.url, tools=["shell_exec"]))
    return file, json.loads(file.read_text())


def test_a_decider_without_the_models_key_does_not_start_the_job(
    chatops: CommandLine, server: tuple[FakeOpenAI, list[Reply]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, value = once(chatops, *server)
    value["models"]["fake"]["api_key_env"] = "FAKE_KEY"
    file.write_text(json.dumps(value))
    monkeypatch.setenv("FAKE_KEY", "k-123456")
    job, (call_id,) = waiting(chatops, "go", "--registry", str(file))
    monkeypatch.delenv("FAKE_KEY")
    approved = chatops("approvals", "approve", call_id)
    said = "Decided, not started: its model's key is missing: FAKE_KEY is not set."
    assert (approved.code, said in approved.err) == (0, True)
    assert shown(chatops, job)["why"] == "its model's key is missing: FAKE_KEY is not set"
    refused = chatops("jobs", "resume", job)
    assert (refused.code, "FAKE_KEY is not set" in refused.err) == (1, True)
    assert shown(chatops, job)["why"] == "its model's key is missing: FAKE_KEY is not set"
    assert not (chatops.workspace / "log.txt").exists()
    monkeypatch.setenv("FAKE_KEY", "k-123456")
    goes_on(chatops, job)


def test_a_decider_with_another_key_does_not_start_the_job_until_the_user_does(
    chatops: CommandLine, server: tuple[FakeOpenAI, list[Reply]], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, value = once(chatops, *server)
    value["models"]["fake"]["api_key_env"] = "FAKE_KEY"
    file.write_text(json.dumps(value))
    monkeypatch.setenv("FAKE_KEY", "k-123456")
    job, (call_id,) = waiting(chatops, "go", "--registry", str(file))
    monkeypatch.setenv("FAKE_KEY", "k-654321")
    said = "Decided, not started: its model fake has another key in FAKE_KEY now."
    assert said in chatops("approvals", "approve", call_id).err
    goes_on(chatops, job)


def test_a_job_whose_model_is_at_another_address_is_not_started_for_the_sake_of_a_backup(
    chatops: CommandLine, server: tuple[FakeOpenAI, list[Reply]]
) -> None:
    file, value = once(chatops, *server)
    value["models"]["spare"] = dict(value["models"]["fake"])
    value["roles"]["coder"]["backup_1"] = "spare"
    file.write_text(json.dumps(value))
    job, (call_id,) = waiting(chatops, "go", "--registry", str(file))
    with FakeOpenAI(lambda request: says("from elsewhere")) as other:
        value["models"]["fake"]["api_url"] = other.url
        file.write_text(json.dumps(value))
        approved = chatops("approvals", "approve", call_id)
        assert "Decided, not started: its model fake is at another address now." in approved.err
        assert shown(chatops, job)["state"] == "decided, not started"
        assert not other.requests
        # The user's own start counts for the new address.
        assert chatops("jobs", "resume", job).code == 0
        assert chatops("jobs", "wait", job).code == 0
        assert other.requests


def test_a_model_that_was_chosen_in_the_chat_is_bound_to_its_address_when_the_chat_leaves_the_job(
    chatops: CommandLine, chatops_home: Path, server: tuple[FakeOpenAI, list[Reply]]
) -> None:
    file, value = once(chatops, *server)
    value["models"]["spare"] = dict(value["models"]["fake"])
    file.write_text(json.dumps(value))
    job, (call_id,) = waiting(chatops, "go", "--registry", str(file))
    until(lambda: not processes(chatops_home))

    async def chosen(*, left: bool) -> None:
        app = App(Options(registry=file, workspace=chatops.workspace, via="tui"))
        try:
            if left:
                await ChatJobs(app).restart(SessionId(job))
                return
            session = await app.open_session(SessionId(job), attended=True)
            await session.resume()
            await session.pin_model("spare", as_default=False)
        finally:
            await app.aclose()

    asyncio.run(chosen(left=False))
    approved = chatops("approvals", "approve", call_id, "--registry", str(file))
    assert "Decided, not started: its model spare was chosen after it was started." in approved.err
    asyncio.run(chosen(left=True))
    assert chatops("jobs", "wait", job).code == 0
    assert (chatops.workspace / "log.txt").read_text() == "once\n"


def test_a_job_does_not_go_on_by_itself_in_another_folder_of_that_name(chatops: CommandLine) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    chatops.workspace.rename(chatops.workspace.parent / "moved")
    gone = chatops("jobs", "resume", job, "--workspace", "/")
    assert gone.code == 3
    chatops.workspace.mkdir()
    os.chdir(chatops.workspace)
    approved = chatops("approvals", "approve", call_id)
    assert f"Decided, not started: another folder is at {chatops.workspace} now." in approved.err
    assert shown(chatops, job)["state"] == "decided, not started"
    resumed = chatops("jobs", "resume", job)
    assert (resumed.code, "Another folder is at" in resumed.err) == (0, True)
    assert chatops("jobs", "wait", job).code in (0, 3)


def test_another_folder_in_place_of_an_added_one_starts_no_job(chatops: CommandLine) -> None:
    added = chatops.workspace.parent / "added"
    added.mkdir()
    job, (call_id,) = waiting(chatops, "run `touch made.txt`", "--add-dir", str(added))
    added.rename(added.with_name("moved"))
    added.mkdir()
    approved = chatops("approvals", "approve", call_id)
    assert f"Decided, not started: another folder is at {added} now." in approved.err
    resumed = chatops("jobs", "resume", job)
    assert (resumed.code, f"Another folder is at {added} now" in resumed.err) == (0, True)
    assert chatops("jobs", "wait", job).code == 0 and (chatops.workspace / "made.txt").exists()


def test_a_folder_that_is_replaced_after_the_decider_has_looked_is_not_worked_in(
    chatops: CommandLine, chatops_home: Path
) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    until(lambda: not processes(chatops_home))
    killed = begun("approvals", "approve", call_id, cwd=chatops.workspace, CHATOPS_FAILPOINT="before_job_start")
    assert ended(killed).code == -signal.SIGKILL
    rows(chatops_home, "UPDATE jobs SET folder = 'the one that the decider saw'")
    # As the decider's process starts: it looks for itself, because the folder may be another one since.
    process = begun("jobs", "resume", job, "--foreground", cwd=chatops.workspace, CHATOPS_STARTER=str(NO_PROCESS))
    assert ended(process).code == 1
    assert (shown(chatops, job)["state"], "another folder" in shown(chatops, job)["why"]) == (
        "decided, not started",
        True,
    )
    assert not (chatops.workspace / "log.txt").exists()


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("boot_id = 'another'", "the machine was restarted since"),
        ("host = 'far'", "it belongs to host far"),
        ("uid = uid + 1", "only the user who started it may start it again"),
        ("level = 3", "the sandbox is of level none, lower than when it was started"),
    ],
)
def test_a_job_of_another_boot_host_user_or_sandbox_is_not_started(
    chatops: CommandLine, chatops_home: Path, monkeypatch: pytest.MonkeyPatch, change: str, why: str
) -> None:
    if "level" in change:
        without_sandbox(monkeypatch)
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    until(lambda: not processes(chatops_home))
    rows(chatops_home, f"UPDATE jobs SET {change}")
    approved = chatops("approvals", "approve", call_id)
    assert f"Decided, not started: {why}" in approved.err
    assert why in shown(chatops, job)["why"]
    assert not (chatops.workspace / "log.txt").exists()
    if "uid" not in change:
        assert chatops("jobs", "resume", job).code == 0
        assert chatops("jobs", "wait", job).code in (0, 3)


def test_a_job_is_cancelled_while_it_waits_and_after_it_was_decided(chatops: CommandLine) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    ended(begun("approvals", "approve", call_id, cwd=chatops.workspace, CHATOPS_FAILPOINT="before_job_start"))
    cancelled = chatops("jobs", "cancel", job)
    assert (cancelled.code, cancelled.out) == (0, f"Cancelled: {job}\n")
    assert (shown(chatops, job)["state"], chatops("jobs", "wait", job).code) == ("cancelled", 130)
    assert "It has ended (cancelled)" not in cancelled.out
    assert chatops("approvals", "list", "--output-format", "json").json == []
    assert not (chatops.workspace / "log.txt").exists()


@pytest.mark.more
def test_a_job_whose_folder_is_gone_is_cancelled(chatops: CommandLine) -> None:
    job, _ = waiting(chatops, "run `echo once >> log.txt`")
    chatops.workspace.rename(chatops.workspace.parent / "moved")
    os.chdir(chatops.workspace.parent)
    cancelled = chatops("jobs", "cancel", job)
    assert (cancelled.code, cancelled.out) == (0, f"Cancelled: {job}\n")


def test_a_job_is_cancelled_while_the_model_answers(
    chatops: CommandLine, server: tuple[FakeOpenAI, list[Reply]], chatops_home: Path
) -> None:
    running, replies = server
    replies.append(Raw(bare=True, steps=(Hang(),)))
    job = started(chatops, "go", "--registry", registry_for(chatops.workspace, running.url))
    until(lambda: running.requests)
    assert shown(chatops, job)["state"] == "running"
    assert chatops("jobs", "cancel", job).code == 0
    assert shown(chatops, job)["state"] == "cancelled"
    until(lambda: not processes(chatops_home))


def test_a_killed_job_is_listed_as_interrupted_and_resumed(
    chatops: CommandLine, server: tuple[FakeOpenAI, list[Reply]], chatops_home: Path
) -> None:
    running, replies = server
    replies += [calls(call("shell_exec", command="echo once >> log.txt")), Raw(bare=True, steps=(Hang(),))]
    registry = registry_for(chatops.workspace, running.url, tools=["shell_exec"])
    job, (call_id,) = waiting(chatops, "go", "--registry", registry)
    assert chatops("approvals", "approve", call_id).code == 0
    until(lambda: len(running.requests) == 2)
    os.kill(shown(chatops, job)["pid"], signal.SIGKILL)
    until(lambda: not processes(chatops_home))
    # Its memory is gone a moment before the process is.
    until(lambda: shown(chatops, job)["state"] == "interrupted")
    waited = chatops("jobs", "wait", job)
    assert (waited.code, f"chatops jobs resume {job}" in waited.err) == (1, True)
    goes_on(chatops, job)


@pytest.mark.more
def test_a_job_killed_after_a_call_took_effect_does_not_run_it_again(chatops: CommandLine, chatops_home: Path) -> None:
    job, (call_id,) = waiting(chatops, "run `echo once >> log.txt`")
    approver = begun("approvals", "approve", call_id, cwd=chatops.workspace, CHATOPS_FAILPOINT="after_tool")
    assert ended(approver).code == 0
    until(lambda: shown(chatops, job)["state"] == "interrupted")

    async def left() -> str:
        app = App(Options(workspace=chatops.workspace, via="tui"))
        try:
            return await ChatJobs(app).restart(SessionId(job))
        finally:
            await app.aclose()

    # Every surface has the same word for the state, also for the one that the chat has left.
    (boot,) = rows(chatops_home, "SELECT boot_id FROM jobs")
    rows(chatops_home, "UPDATE jobs SET boot_id = 'other'")
    assert asyncio.run(left()).startswith("Interrupted: the machine was restarted")
    assert shown(chatops, job)["state"] == "interrupted"
    rows(chatops_home, f"UPDATE jobs SET boot_id = '{boot[0]}'")
    assert asyncio.run(left()) == f"The job is waiting: chatops jobs show {job}"
    assert chatops("jobs", "wait", job).code == 3
    assert "waiting: outcome unknown of shell_exec (echo once >> log.txt)" in chatops("jobs", "show", job).out
    assert (chatops.workspace / "log.txt").read_text() == "once\n"
    assert chatops("approvals", "approve", call_id, "--done").code == 0
    assert chatops("jobs", "wait", job).code == 0
    assert (chatops.workspace / "log.txt").read_text() == "once\n"


@pytest.mark.more
def test_a_program_that_decides_starts_the_job_too(chatops: CommandLine) -> None:
    job, _ = waiting(chatops, "run `echo once >> log.txt`")
    (asked,) = Chat.open(job).resume().pending
    assert f"chatops jobs show {job}" in asked.approve(digest=asked.digest)
    assert chatops("jobs", "wait", job).code == 0
    assert (chatops.workspace / "log.txt").read_text() == "once\n"


def test_a_paused_turn_that_is_no_job_is_never_started_by_itself(chatops: CommandLine) -> None:
    session, call_id = chatops.paused("run `echo once >> log.txt`")
    assert chatops("approvals", "approve", call_id).code == 0
    assert chatops("jobs", "list", "--output-format", "json").json == []
    refused = chatops("jobs", "resume", session)
    assert (refused.code, "is no job" in refused.err) == (2, True)
    assert not (chatops.workspace / "log.txt").exists()


def test_a_prompt_for_an_unfinished_session_is_refused(chatops: CommandLine) -> None:
    session, _ = chatops.paused("run `echo once >> log.txt`")
    refused = chatops("-r", session, "-p", "more", "--background")
    assert (refused.code, refused.out, "was not sent" in refused.err) == (1, "", True)


def notifying(chatops: CommandLine, *command: str) -> str:
    """A registry like the packaged one that names a program to tell about jobs."""
    value = json.loads((REPOSITORY / "model_registry.json").read_text())
    file = chatops.workspace.parent / "notifying.json"
    file.write_text(json.dumps({**value, "notify": {"command": list(command)}}))
    return str(file)


def test_a_program_of_the_user_is_told_once_what_waits_and_how_it_ended(
    chatops: CommandLine, chatops_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_KEY", "k-123456")
    told = chatops.workspace.parent / "told.jsonl"
    keys = f"open({str(told.with_suffix('.keys'))!r}, 'a').write(os.environ.get('FAKE_KEY', '') + os.environ['HOME'])"
    tell = f"open({str(told)!r}, 'a').write(sys.stdin.read())"
    registry = notifying(chatops, sys.executable, "-c", f"import os, sys; {keys}; {tell}")
    job, asked = waiting(chatops, "run `echo one` and run `echo two`", "--registry", registry)
    until(lambda: not processes(chatops_home))
    for one in asked:
        chatops("approvals", "approve", one)
    until(lambda: len(told.read_text().splitlines()) == 3)
    messages = [json.loads(line) for line in told.read_text().splitlines()]
    assert [one["event"] for one in messages] == ["waits", "waits", "ended"]
    assert messages[0] == {
        "event": "waits",
        "session_id": job,
        "title": messages[0]["title"],
        "call": {"id": asked[0], "tool": "shell_exec", "summary": "shell_exec (echo one)"},
    }
    assert messages[2].keys() == {"event", "session_id", "title"}
    assert told.with_suffix(".keys").read_text() == 3 * os.environ["HOME"]


@pytest.mark.more
def test_nobody_is_told_of_a_job_that_is_on_a_screen(chatops: CommandLine, chatops_home: Path) -> None:
    told = chatops.workspace.parent / "told.jsonl"
    registry = notifying(chatops, sys.executable, "-c", f"open({str(told)!r}, 'a')")
    job, (call_id,) = waiting(chatops, "run `echo one`", "--registry", registry)
    until(lambda: not processes(chatops_home))
    assert told.exists()
    told.unlink()
    with closing(Store(store_of(chatops_home))) as store:
        store.mark_followed(SessionId(job), this_process())
    chatops("approvals", "approve", call_id)
    until(lambda: not processes(chatops_home))
    assert (shown(chatops, job)["state"], told.exists()) == ("done", False)


@pytest.mark.some(1)
@pytest.mark.parametrize("command", [("/nonexistent",), (sys.executable, "-c", "raise SystemExit(3)")])
def test_a_program_that_fails_costs_nothing_and_that_of_a_folder_is_not_started(
    chatops: CommandLine, chatops_home: Path, command: tuple[str, ...]
) -> None:
    told = chatops.workspace.parent / "told"
    value = json.loads((REPOSITORY / "model_registry.json").read_text())
    of_folder = {**value, "notify": {"command": ["touch", str(told)]}}
    (chatops.workspace / "model_registry.json").write_text(json.dumps(of_folder))
    job = started(chatops, "hello", "--registry", notifying(chatops, *command))
    assert chatops("jobs", "wait", job).code == 0
    until(lambda: not processes(chatops_home))
    (log,) = chatops_home.rglob("chatops.log")
    assert "of notify" in log.read_text()
    assert not told.exists()
