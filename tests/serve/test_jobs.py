"""Jobs on the page: what runs in the background, and that a decision lets it continue."""

import json
import os
import re
import subprocess
import sys
import time

import pytest

from chatops.config.paths import find_paths
from chatops.domain.decisions import Approved, Principal
from chatops.engine.inputs import DecideCall
from chatops.store.store import Store
from tests.serve.served import Served, environment, read
from tests.support.waiting import PATIENCE


def background(served: Served, prompt: str) -> str:
    """Start a job and wait until it asks; its session."""
    started = served.run("--role", "coder", "-p", prompt, "--background")
    assert started.returncode == 0, started.stderr
    session = started.stdout.split()[0]
    assert served.run("jobs", "wait", session).returncode == 3
    return session


def assert_made(served: Served) -> None:
    end = time.monotonic() + PATIENCE
    while not (served.workspace / "made.txt").exists():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_decision_lets_a_job_go_on(served: Served) -> None:
    session = background(served, "run `touch made.txt`")
    cookie = served.log_in()
    listed = read(served.get("/", cookie=cookie).text).text
    assert "In the background" in listed and "waiting" in listed
    (call,) = re.findall(rf"/call/({session}\.[\d.]+)", served.get("/", cookie=cookie).text)
    assert served.decide(call, "approve", cookie).status == 303
    assert "The job is running" in served.get(f"/call/{call}", cookie=cookie).text
    assert_made(served)
    assert served.run("jobs", "wait", session).returncode == 0
    assert "In the background" not in served.get("/", cookie=cookie).text


def test_a_job_whose_decider_died_is_started_by_the_page(served: Served) -> None:
    background(served, "run `touch made.txt`")
    store = Store(find_paths({"CHATOPS_HOME": str(served.home)}).store)
    (queued,) = store.pending_calls()
    by = Principal(uid=os.getuid(), via="approvals")
    decided = DecideCall(call_id=queued.pending.call.id, digest=queued.pending.digest, decision=Approved(), by=by)
    assert store.post_decision(decided)
    store.close()
    assert_made(served)


def test_a_step_to_review_is_listed_with_how_to_review_it(served: Served) -> None:
    (served.workspace / "a.txt").write_text("one")
    cookie = served.log_in()
    assert "Steps to review" not in served.get("/", cookie=cookie).text
    ran = served.run("workflow", "run", "code-change", 'replace "one" with "two" in a.txt', "--output-format", "json")
    value = json.loads(ran.stdout)
    run = value["session_id"]
    assert served.run("approvals", "deny", value["pending"][0]["id"]).returncode == 0
    assert served.run("workflow", "resume", run).returncode == 3
    (row,) = served.run("approvals", "list").stdout.splitlines()[1:]
    assert row.startswith(run) and "to review" in row and f"chatops workflow show {run}" in row
    page = read(served.get("/", cookie=cookie).text).text
    assert "Steps to review" in page and f"chatops workflow show {run}" in page
    assert served.run("workflow", "resume", run, "--stop").returncode == 1
    assert "No approvals pending." in served.run("approvals", "list").stderr


@pytest.mark.more
def test_an_interrupted_job_stands_there_once(served: Served) -> None:
    session = background(served, "run `touch made.txt`")
    (call,) = re.findall(rf"/call/({session}\.[\d.]+)", served.get("/", cookie=served.log_in()).text)
    # The job's process inherits it.
    killed = {**environment(served.home), "CHATOPS_FAILPOINT": "after_tool"}
    approve = [sys.executable, "-m", "chatops", "approvals", "approve", call]
    assert subprocess.run(approve, cwd=served.workspace, env=killed, capture_output=True, check=False).returncode == 0
    assert_made(served)
    cookie, end = served.log_in(), time.monotonic() + PATIENCE
    while (page := read(served.get("/", cookie=cookie).text).text).count("outcome unknown") != 1:
        assert time.monotonic() < end, page
        time.sleep(0.05)
    assert "In the background" not in page
