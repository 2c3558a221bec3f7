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

from tests.support.command_line import CommandLine, program_environment
from tests.support.postgres import Server, find_programs, server
from tests.support.waiting import PATIENCE

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


def wait_until(holds: Callable[[], object], what: str) -> None:
    """Wait for what other processes do."""
    end = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < end, what
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
    with worker(folder, host="other") as second:
        decided = chatops("approvals", "approve", waiting(chatops)[session])
        assert "The workers of repo go on with it" in decided.err
        wait_until(lambda: session not in rows(chatops), "the turn is over")
        assert (folder / "out.txt").read_text() == "hello"
        second.send_signal(signal.SIGTERM)
        assert second.wait() == 0
    with psycopg.connect(database.url) as member:
        assert member.execute("SELECT count(*) FROM chatops.hints").fetchone() == (0,)
        assert member.execute("SELECT requester FROM chatops.queue").fetchall() == [("chatops",)]
