"""`+`: one call of a real app gets what it lacks in the real sandbox, and the next call does not."""

import subprocess
import sys

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import PendingCall
from chatops.domain.ids import SessionId
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import Outcome
from chatops.engine.view import pending_calls
from chatops.runtime.session import Session
from chatops.wiring.app import App
from tests.support.waiting import PATIENCE
from tests.tools.running import needs_sandbox
from tests.wiring.conftest import Bench

pytestmark = needs_sandbox

OPERATORS = {"*": {"access_level": "operator"}}


async def waiting(session: Session, command: str) -> PendingCall:
    """Let the demo run a command until it asks."""
    await session.submit(f"run `{command}`")
    await session.settle()
    state = session.state
    assert state is not None
    (pending,) = pending_calls(state)
    return pending


async def decided(session: Session, pending: PendingCall, decision: Approved) -> Outcome | None:
    """Decide and return the call's outcome, None if it still waits."""
    await session.decide(pending.call.id, digest=pending.digest, decision=decision)
    await session.settle()
    state = session.state
    assert state is not None
    if pending_calls(state):
        return None
    (found,) = [
        message.outcome for message in state.messages if message.kind == "tool" and message.call_id == pending.call.id
    ]
    return found


def opened(bench: Bench) -> App:
    subprocess.run(["git", "init", "-q"], cwd=bench.workspace, check=True)
    return bench.app()


async def test_git_may_write_its_settings_once(bench: Bench) -> None:
    bench.write(users=OPERATORS)
    app = opened(bench)
    session = await app.open_session(None, attended=True)
    try:
        pending = await waiting(session, "git config user.name ana")
        assert [(lack.by, lack.needs.git) for lack in pending.facts.lacks] == [("git config", "writable")]
        assert pending.facts.extra == SandboxSpec(git="writable")
        assert await decided(session, pending, Approved(extra=pending.facts.extra)) is Outcome.SUCCESS
        assert "ana" in (bench.workspace / ".git" / "config").read_text()
        again = await waiting(session, "git config user.name eve")
        assert again.facts.sandbox == pending.facts.sandbox
        assert await decided(session, again, Approved()) is Outcome.FAILED
        assert "eve" not in (bench.workspace / ".git" / "config").read_text()
    finally:
        await app.aclose()


async def test_what_failed_is_offered_when_it_is_repeated(bench: Bench) -> None:
    bench.write(users=OPERATORS)
    (bench.workspace / "tool.sh").write_text("git config user.name ana\n")
    app = opened(bench)
    session = await app.open_session(None, attended=True)
    try:
        pending = await waiting(session, "sh tool.sh")
        assert pending.facts.extra == NARROWEST, "the words do not tell"
        assert await decided(session, pending, Approved()) is Outcome.FAILED
        again = await waiting(session, "sh tool.sh")
        assert [lack.seen for lack in again.facts.lacks] == [True]
        assert await decided(session, again, Approved(extra=again.facts.extra)) is Outcome.SUCCESS
    finally:
        await app.aclose()


@pytest.mark.more
async def test_the_site_may_forbid_it(bench: Bench) -> None:
    bench.write(users=OPERATORS)
    bench.write_site(sandbox={"git": "protect"})
    app = opened(bench)
    session = await app.open_session(None, attended=True)
    try:
        pending = await waiting(session, "git config user.name ana")
        assert pending.facts.lacks and pending.facts.extra == NARROWEST
        assert await decided(session, pending, Approved(extra=SandboxSpec(git="writable"))) is None
        assert await decided(session, pending, Approved()) is Outcome.FAILED
    finally:
        await app.aclose()


_APPROVE = """
import asyncio, os, sys
from pathlib import Path
from chatops.domain.decisions import Approved
from chatops.engine.view import pending_calls
from chatops.wiring.app import App
from chatops.wiring.stored import Options

async def main():
    app = App(Options(workspace=Path(sys.argv[1])))
    session = await app.open_session(None, attended=True)
    await session.submit("run `git commit --allow-empty -qm x`")
    await session.settle()
    (pending,) = pending_calls(session.state)
    print(session.session_id, flush=True)
    os.environ["CHATOPS_FAILPOINT"] = sys.argv[2]
    await session.decide(pending.call.id, digest=pending.digest, decision=Approved(extra=pending.facts.extra))
    await session.settle()

asyncio.run(main())
"""


def killed_at(place: str, bench: Bench) -> SessionId:
    """Approve a commit with `+` in a process that dies at `place`; return its session."""
    for words in (("init", "-q"), ("config", "user.name", "ana"), ("config", "user.email", "ana")):
        subprocess.run(["git", *words], cwd=bench.workspace, check=True)
    child = [sys.executable, "-c", _APPROVE, str(bench.workspace), f"{place}:1"]
    killed = subprocess.run(child, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert killed.returncode == -9, killed.stderr
    return SessionId(killed.stdout.strip())


def commits_in(bench: Bench) -> int:
    return int(subprocess.check_output(["git", "rev-list", "--all", "--count"], cwd=bench.workspace))


@pytest.mark.some(1)
@pytest.mark.parametrize(
    ("place", "asks", "commits"),
    [("after_commit", False, 1), ("after_inspect", False, 1), ("before_tool", True, 0), ("after_tool", True, 1)],
)
async def test_after_a_kill_it_counts_once(bench: Bench, place: str, asks: bool, commits: int) -> None:
    bench.write(users=OPERATORS)
    name = killed_at(place, bench)
    app = bench.app()
    session = await app.open_session(name, attended=True)
    try:
        await session.resume()
        await session.settle()
        state = session.state
        assert state is not None and bool(pending_calls(state)) is asks
        assert commits_in(bench) == commits
        if asks:
            (pending,) = pending_calls(state)
            assert pending.outcome_unknown
            assert await decided(session, pending, Approved(extra=pending.facts.extra)) is not Outcome.SUCCESS
            assert commits_in(bench) == commits
        else:
            again = await waiting(session, "git commit --allow-empty -qm y")
            assert again.facts.extra == SandboxSpec(git="commit"), "the next call has to be given it again"
    finally:
        await app.aclose()
