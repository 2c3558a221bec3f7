"""Rules that the user makes with a decision: where they answer, what ends that, and what is recorded of it."""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, ArgvPattern, RuleScope
from chatops.domain.events import TurnStatus
from chatops.domain.messages import ToolMessage
from chatops.runtime.session import Session
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.demo_session import demo_session, settled
from tests.support.no_sandbox import without_sandbox
from tests.tools.running import needs_sandbox

TOUCH = ("touch", "one")


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


async def asks(session: Session, command: Sequence[str] = TOUCH) -> bool:
    """Let the model run `command`; whether that asks."""
    await session.submit(f"run `{' '.join(command)}`")
    return await settled(session) is TurnStatus.PAUSED


async def make_rule(workspace: Path, scope: RuleScope, command: Sequence[str] = TOUCH) -> None:
    """Approve `command` in a session of its own, with a rule for exactly these words."""
    async with demo_session(workspace) as (_, session, _events):
        assert await asks(session, command)
        (pending,) = session.pending
        decision = Approved(remember=ArgvPattern(words=tuple(command)), scope=scope)
        await session.decide(pending.call.id, digest=pending.digest, decision=decision)
        await settled(session)


async def asks_anew(workspace: Path, command: Sequence[str] = TOUCH, role: str = "coder") -> bool:
    """Return True if `command` asks in a new session."""
    async with demo_session(workspace, role) as (_, session, _events):
        return await asks(session, command)


@needs_sandbox
async def test_a_rule_for_the_folder_answers_in_later_sessions_and_is_recorded(workspace: Path) -> None:
    await make_rule(workspace, RuleScope.FOLDER)
    (workspace / "one").unlink()
    async with demo_session(workspace) as (app, session, _):
        assert not await asks(session)
        assert (workspace / "one").exists()
        (result,) = [one for one in session.snapshot().messages if isinstance(one, ToolMessage)]
        assert result.decided_by == "rule 1 (this folder, as coder)"
        (row,) = app.store.rules()
        assert (row.uses, row.rule.uid, row.rule.source_call.rpartition(".")[2]) == (1, os.getuid(), "1")
        (entry,) = app.store.decisions(session_id=session.session_id)
        assert (entry.by.rule, entry.by.is_person, entry.call_id) == ("1", False, result.call_id)
        offer_calls = await session.recorded_calls("shell_exec")
        assert [one.facts.command for one in offer_calls] == ["touch one"]


@pytest.mark.more
async def test_an_edit_that_was_made_counts_among_the_recorded_calls(workspace: Path) -> None:
    (workspace / "one.txt").write_text("old text\n")
    async with demo_session(workspace) as (_, session, _events):
        await session.submit("replace `old` with `new` in one.txt")
        assert await settled(session) is TurnStatus.PAUSED
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await settled(session)
        assert (workspace / "one.txt").read_text() == "new text\n"
        (made,) = await session.recorded_calls("file_edit")
        assert [Path(path).name for path in made.facts.paths] == ["one.txt"]


@pytest.mark.more
@needs_sandbox
async def test_a_rule_stored_without_its_user_is_recorded_as_used_by_the_user_of_the_session(workspace: Path) -> None:
    await make_rule(workspace, RuleScope.FOLDER)
    async with demo_session(workspace) as (app, session, _):
        with closing(sqlite3.connect(app.paths.store)) as store:
            store.execute("UPDATE rules SET by_uid = NULL")
            store.commit()
        assert not await asks(session)
        (entry,) = app.store.decisions(session_id=session.session_id)
        assert entry.by.uid == os.getuid()


@pytest.mark.more
@needs_sandbox
async def test_other_words_another_role_and_another_folder_ask(workspace: Path, tmp_path: Path) -> None:
    await make_rule(workspace, RuleScope.FOLDER)
    assert await asks_anew(workspace, ("touch", "two"))
    assert await asks_anew(workspace, role="operator")
    (tmp_path / "other").mkdir()
    assert await asks_anew(tmp_path / "other")
    # The same folder by way of a link is the same folder.
    (tmp_path / "link").symlink_to(workspace)
    assert not await asks_anew(tmp_path / "link")


@needs_sandbox
async def test_a_folder_that_was_moved_or_replaced_asks_and_answers_again_when_it_is_back(
    workspace: Path, tmp_path: Path
) -> None:
    await make_rule(workspace, RuleScope.FOLDER)
    moved = Path(shutil.move(workspace, tmp_path / "moved"))
    assert await asks_anew(moved)
    shutil.copytree(moved, workspace)
    assert await asks_anew(workspace)
    shutil.rmtree(workspace)
    shutil.move(moved, workspace)
    assert not await asks_anew(workspace)


@needs_sandbox
async def test_a_rule_that_another_process_revokes_no_longer_answers_in_a_running_session(workspace: Path) -> None:
    await make_rule(workspace, RuleScope.FOLDER)
    async with demo_session(workspace) as (_, session, _events):
        assert not await asks(session)
        other = App(Options(workspace=workspace))
        try:
            assert other.store.revoke_rule("1")
        finally:
            await other.aclose()
        assert await asks(session)


@pytest.mark.more
@needs_sandbox
async def test_a_scope_that_the_call_cannot_have_makes_no_rule_and_says_so(workspace: Path) -> None:
    async with demo_session(workspace) as (app, session, _):
        assert await asks(session)
        (pending,) = session.pending
        decision = Approved(remember=ArgvPattern(words=TOUCH), scope=RuleScope.ROLE)
        await session.decide(pending.call.id, digest=pending.digest, decision=decision)
        await settled(session)
        assert (workspace / "one").exists() and app.store.rules() == []
        assert "no rule was made: touch may run code of the folder" in str(session.snapshot().messages)


async def test_without_a_sandbox_a_rule_for_a_command_ends_with_its_session(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_sandbox(monkeypatch)
    await make_rule(workspace, RuleScope.FOLDER)
    assert (workspace / "one").exists()
    assert await asks_anew(workspace)


async def test_a_rule_is_stored_with_the_decision_or_not_at_all(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo_session(workspace) as (app, session, _):
        assert await asks(session)
        (pending,) = session.pending
        seen: list[tuple[int, int]] = []

        def look(*_: object) -> None:
            # Not with a store of its own, whose opening waits for the end of the commit.
            with closing(sqlite3.connect(app.paths.store)) as other:
                (rules,) = other.execute("SELECT count(*) FROM rules").fetchone()
                (decisions,) = other.execute("SELECT count(*) FROM decisions").fetchone()
            seen.append((rules, decisions))

        # Called inside of each commit, before it is durable.
        monkeypatch.setattr("chatops.store.turns.reach", look)
        decision = Approved(remember=ArgvPattern(words=TOUCH))
        await session.decide(pending.call.id, digest=pending.digest, decision=decision)
        look()
        assert seen[0] == (0, 0) and seen[-1] == (1, 1) and set(seen) == {(0, 0), (1, 1)}
