"""`+`: one call of a real app gets what it lacks in the real sandbox, and the next call does not."""

import subprocess

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.events import PendingCall
from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import Outcome
from chatops.engine.view import pending_calls
from chatops.runtime.session import Session
from chatops.wiring.app import App
from tests.tools.running import needs_sandbox
from tests.wiring.conftest import Bench

pytestmark = needs_sandbox

OPERATORS = {"*": {"access_level": "operator"}}


async def asks(session: Session, command: str) -> PendingCall:
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
        pending = await asks(session, "git config user.name ana")
        assert [(lack.by, lack.needs.git) for lack in pending.facts.lacks] == [("git config", "writable")]
        assert pending.facts.extra == SandboxSpec(git="writable")
        assert await decided(session, pending, Approved(extra=pending.facts.extra)) is Outcome.SUCCESS
        assert "ana" in (bench.workspace / ".git" / "config").read_text()
        again = await asks(session, "git config user.name eve")
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
        pending = await asks(session, "sh tool.sh")
        assert pending.facts.extra == NARROWEST, "the words do not tell"
        assert await decided(session, pending, Approved()) is Outcome.FAILED
        again = await asks(session, "sh tool.sh")
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
        pending = await asks(session, "git config user.name ana")
        assert pending.facts.lacks and pending.facts.extra == NARROWEST
        assert await decided(session, pending, Approved(extra=SandboxSpec(git="writable"))) is None
        assert await decided(session, pending, Approved()) is Outcome.FAILED
    finally:
        await app.aclose()
