"""A command of the user, a correction, and the queue, with a real store, the real tools and the demo model."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved
from chatops.domain.errors import ChatopsError
from chatops.domain.events import ApprovalRequested, Published, TurnStatus
from chatops.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from chatops.domain.tools import Outcome
from chatops.engine.transcript import fit_messages, without_private
from chatops.runtime.message_queue import no_draft
from chatops.runtime.session import Session
from chatops.sandbox import confinement as sandbox
from chatops.tui.theme import PLAIN
from chatops.tui.transcript.blocks import ToolCardBlock
from chatops.tui.transcript.card import card_lines
from chatops.tui.transcript.projector import Projector
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.demo_session import demo_session, settled, users
from tests.support.no_sandbox import without_sandbox
from tests.support.waiting import PATIENCE, until
from tests.tools.running import needs_sandbox


async def run(session: Session, command: str, *, private: bool = False) -> ToolMessage:
    await start(session, command, private=private)
    await settled(session)
    (*_, result) = (m for m in session.snapshot().messages if isinstance(m, ToolMessage))
    return result


async def start(session: Session, command: str, *, private: bool = False) -> None:
    """Let `command` start as typed. Where no sandbox confines it, it asks first, and is approved."""
    await session.actions.run_command(command, private=private, shown=True, draft=no_draft)
    if not sandbox.probe().program:
        await settled(session)
        (pending,) = session.pending
        assert pending.why == "no sandbox confines the command you typed"
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())


def sent(session: Session) -> tuple[Message, ...]:
    """The messages of the next request."""
    grant = session.grant()
    messages = session.snapshot().messages
    return fit_messages(messages, system="", tools=(), model=grant.models[0]).messages


@pytest.mark.parametrize("sandboxed", [pytest.param(True, marks=needs_sandbox), False])
async def test_a_typed_command_asks_only_without_a_sandbox_and_is_offered_to_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sandboxed: bool
) -> None:
    if not sandboxed:
        without_sandbox(monkeypatch)
    async with demo_session(tmp_path) as (app, session, events):
        result = await run(session, "echo made > one; cat one")
        assert (result.outcome, result.content.strip()) == (Outcome.SUCCESS, "made")
        assert any(isinstance(event, ApprovalRequested) for event in events) is not sandboxed
        (row,) = app.store.decisions()
        assert (row.tool, row.decision, row.by.uid) == ("shell_exec", Approved(), session._services.by.uid)
        first, *_ = sent(session)
        assert isinstance(first, UserMessage)
        assert first.content == "[chatops] The user ran this command: !echo made > one; cat one"
        await session.submit("list .")
        await settled(session)
        assert users(session) == ["!echo made > one; cat one", "list ."]


@pytest.mark.more
async def test_its_card_does_not_say_that_it_was_approved(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, events):
        await run(session, "echo made > one")
        live = Projector()
        live.feed_all(Published(at=0.0, event=event) for event in events)
        for blocks in (live.blocks.values(), Projector().load(session.events())):
            (made,) = (block for block in blocks if isinstance(block, ToolCardBlock))
            assert made.own and made.decided_by == str(session._services.by)
            shown = " ".join(line.plain for line in card_lines(made, width=80, theme=PLAIN, expanded=False))
            assert " ms" in shown and "approved" not in shown, shown
        await session.submit("run `touch two`")
        await settled(session)
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await settled(session)
        *_, asked = (block for block in Projector().load(session.events()) if isinstance(block, ToolCardBlock))
        assert not asked.own


async def test_no_model_gets_a_private_command_or_its_result(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.submit("list .")
        await settled(session)
        before = sent(session)
        result = await run(session, "echo secret", private=True)
        assert result.content.strip() == "secret"
        assert users(session)[-1] == "!!echo secret"
        assert sent(session) == before
        kept = session.session_id
        await session.aclose()
        app = App(Options(workspace=tmp_path))
        try:
            again = await app.open_session(kept, attended=True)
            assert "secret" not in str(without_private(again.snapshot().messages))
        finally:
            await app.aclose()


@pytest.mark.some(3)
@pytest.mark.parametrize(
    "command",
    [
        "touch one\ntouch two",
        "touch one \u202e eno",
        f"touch one {'x' * 400}",
        "touch one\r",
        "t\u043euch one",
        "touch one;    ls",
        "touch one  # above",
    ],
    ids=["two lines", "bidi", "long", "return", "lookalike", "gap", "not on screen"],
)
async def test_what_cannot_be_read_at_a_glance_asks(tmp_path: Path, command: str) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.actions.run_command(command, private=False, shown="above" not in command, draft=no_draft)
        assert await settled(session) is TurnStatus.PAUSED
        assert [one.facts.command for one in session.pending] == [command]
        assert not (tmp_path / "one").exists()


@pytest.mark.more
async def test_a_summary_counts_the_messages_that_a_user_sees(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await run(session, "true")
        received: list[int] = []
        summary = await session.actions.summary_request("", received=received.append)()
        assert summary.replaces == 1, "the command, not the reply without text that holds its call"
        assert sum(received) >= len(summary.text)


async def test_a_role_without_the_shell_runs_nothing(tmp_path: Path) -> None:
    async with demo_session(tmp_path, role="researcher") as (_, session, _events):
        with pytest.raises(ChatopsError, match="role researcher may not run commands"):
            await run(session, "touch one")
        assert not session.snapshot().messages
        assert not (tmp_path / "one").exists()


async def test_a_revoked_tool_and_a_refused_path_hold_for_the_user_too(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (app, session, _events):
        home = app.paths.data
        assert (await run(session, f"cat {home}/chatops.db")).outcome is not Outcome.SUCCESS
        await session.revoke_tool("shell_exec")
        with pytest.raises(ChatopsError, match="may not run commands"):
            await run(session, "touch one")
        assert not (tmp_path / "one").exists()


async def test_during_a_turn_it_is_refused(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.submit("run `touch one`")
        await settled(session)
        await session.submit("list .")
        with pytest.raises(ChatopsError, match="The command was not run: a turn is unfinished"):
            await run(session, "touch two")
        assert len(session.pending) == 1
        assert not (tmp_path / "two").exists()


async def test_a_held_queue_stays_held_after_a_command(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.submit("run `touch one`")
        await settled(session)
        for text in ("a", "b", "a"):
            await session.submit(text)
        await session.stop_turn()
        await run(session, "true")
        assert session.snapshot().queue_held
        assert session.snapshot().queued == ("a", "b", "a")
        assert not await session.queue.take(later=1, only="a")
        assert await session.queue.take(later=2, only="a")
        assert session.snapshot().queued == ("b", "a")


async def test_what_is_queued_during_a_command_follows_it(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        await session.submit("list .")
        await settled(session)
        assert not await session.cancel(), "as Esc does after the turn"
        await start(session, "sleep 2")
        await session.submit("list . again")
        assert session.snapshot().queued == ("list . again",)
        await until(lambda: users(session)[-1] == "list . again")
        await settled(session)


async def test_a_correction_goes_on_in_the_same_turn(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _events):
        assert not await session.actions.correct("list .", draft=no_draft)
        await session.submit("run `touch one`")
        await settled(session)
        state = session.state
        assert state is not None
        assert await session.actions.correct("list .", draft=no_draft)
        await until(lambda: session.snapshot().status is TurnStatus.ANSWERED)
        assert session.state is not None
        assert session.state.turn_id == state.turn_id
        assert users(session) == ["run `touch one`", "list ."]
        assert not (tmp_path / "one").exists()
        last = session.snapshot().messages[-1]
        assert isinstance(last, AssistantMessage)


@pytest.mark.some(1)
@pytest.mark.parametrize("point", ["after_spawn", "before_tool", "after_inspect", "in_commit:2", "after_tool"])
def test_a_command_never_runs_twice_over_a_kill(tmp_path: Path, point: str) -> None:
    """Whatever the kill left, the next start shows it and runs nothing more by itself than was decided once."""
    place = tmp_path / "ws"
    place.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "tests.runtime.test_user_actions", str(place)]
    failpoint = point if ":" in point else f"{point}:1"
    killed = subprocess.run(
        command, env={**environment, "CHATOPS_FAILPOINT": failpoint}, cwd=tmp_path, timeout=PATIENCE, check=False
    )
    assert killed.returncode == -9
    assert subprocess.run(command, env=environment, cwd=tmp_path, timeout=PATIENCE, check=False).returncode == 0
    assert len((place / "log").read_text().splitlines() if (place / "log").exists() else []) <= 1


async def _run_or_resume(place: Path) -> None:
    """Run the command in a new session, or open the one that there is and decide nothing."""
    app = App(Options(workspace=place, role="coder"))
    try:
        turns = app.store.unfinished_turns()
        known = [app.store.load_turn(turn).session_id for turn in turns]
        known += [info.id for info in app.store.sessions(workspace=str(place))]
        session = await app.open_session(known[0] if known else None, attended=True)
        if known:
            await session.resume()
            await settled(session)
        else:
            await run(session, "echo ran >> log")
    finally:
        await app.aclose()


if __name__ == "__main__":
    asyncio.run(_run_or_resume(Path(sys.argv[1])))
