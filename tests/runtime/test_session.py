"""Sessions with a real store, the real tools and the demo model: queue, decisions, settings, changed registries."""

import asyncio
import json
from pathlib import Path

import pytest

from chatops.domain.decisions import AnyArguments, Approved, Principal, Rejected
from chatops.domain.errors import StoreError
from chatops.domain.events import Event, Notice, TurnStatus
from chatops.domain.messages import ToolMessage
from chatops.domain.tools import Outcome
from chatops.engine.effects import TurnStep
from chatops.engine.inputs import DecideCall
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.runtime.demo_session import demo_session, settled, users
from tests.support.waiting import until


async def noticed(events: list[Event], words: str) -> None:
    await until(lambda: any(isinstance(event, Notice) and words in event.text for event in events))


async def test_a_message_sent_while_a_call_is_pending_is_queued(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("run `touch one`")
        assert await settled(session) is TurnStatus.PAUSED
        assert await session.submit("list .") is False
        assert session.snapshot().queued == ("list .",)
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await until(lambda: len(users(session)) == 2 and session.snapshot().status is TurnStatus.ANSWERED)
        assert users(session) == ["run `touch one`", "list ."]
        assert session.snapshot().queued == ()
        assert (tmp_path / "one").exists()


async def test_a_queued_message_that_cannot_be_sent_stays_queued_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("run `touch one`")
        await settled(session)
        await session.submit("and this")
        (pending,) = session.pending
        commit = app.store.commit

        def refuse_new_turns(step: TurnStep, lease: str) -> None:
            if step.state.seq == 0:
                raise StoreError("the disk is full")
            commit(step, lease)

        monkeypatch.setattr(app.store, "commit", refuse_new_turns)
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await noticed(events, "could not be sent")
        assert app.store.queued_messages(session.session_id) == ("and this",)


async def test_a_decision_posted_just_before_is_the_one_that_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other process has reported "Denied" by the time that the approval given here is to be stored."""
    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("run `touch one`")
        await settled(session)
        (pending,) = session.pending
        commit = app.store.commit
        elsewhere = DecideCall(
            call_id=pending.call.id,
            digest=pending.digest,
            decision=Rejected(reason="not this"),
            by=Principal(uid=7, via="approvals"),
        )

        def after_another(step: TurnStep, lease: str) -> None:
            monkeypatch.setattr(app.store, "commit", commit)
            assert app.store.post_decision(elsewhere)
            commit(step, lease)

        monkeypatch.setattr(app.store, "commit", after_another)
        assert not await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        assert await settled(session) is TurnStatus.ANSWERED
        assert not (tmp_path / "one").exists()
        assert [(row.decision, row.by) for row in app.store.decisions()] == [(elsewhere.decision, elsewhere.by)]
        assert session.blocked_by is None
        assert not [event.text for event in events if isinstance(event, Notice) and "Not saved" in event.text]


async def test_a_revoked_tool_stays_revoked(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("run `touch one`")
        await settled(session)
        await session.revoke_tool("shell_exec")
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await settled(session)
        results = [m for m in session.snapshot().messages if isinstance(m, ToolMessage)]
        assert [m.outcome for m in results] == [Outcome.DENIED]
        assert not (tmp_path / "one").exists()
        await session.switch_role("operator")
        assert session.grant().tool("shell_exec") is None
        kept = session.session_id
    app = App(Options(workspace=tmp_path))
    try:
        again = await app.open_session(kept, attended=True)
        assert again.grant().tool("shell_exec") is None
    finally:
        await app.aclose()


async def test_a_role_switch_leaves_a_divider_and_a_persona_does_not(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("list .")
        await settled(session)
        await session.set_persona("concise")
        assert (session.snapshot().persona, session.snapshot().messages[-1].kind) == ("concise", "assistant")
        await session.switch_role("researcher")
        assert session.snapshot().messages[-1].kind == "role_switch"


async def test_model_and_role_can_be_switched_before_retrying_a_failed_turn(
    tmp_path: Path,
) -> None:
    registry = tmp_path / "registry.json"
    roles = {name: {"primary": "nowhere"} for name in ("coder", "operator")}
    models = {"nowhere": {"type": "openai", "model_name": "x"}}
    registry.write_text(json.dumps({"version": 3, "models": models, "roles": roles}))
    app = App(Options(workspace=tmp_path, registry=registry, role="coder"))
    try:
        session = await app.open_session(None, attended=True)
        await session.submit("list .")
        assert await settled(session) is TurnStatus.FAILED
        await session.switch_role("operator")
        await session.pin_model("demo")
        now = session.snapshot()
        assert (now.status, now.role, now.model) == (TurnStatus.FAILED, "operator", "demo")
        assert [m.kind for m in now.messages[-2:]] == ["role_switch", "role_switch"]
        assert await session.retry()
        assert await settled(session) is TurnStatus.ANSWERED
        assert users(session) == ["list ."]
        said = session.snapshot().messages
        stored = app.store.history(session.session_id)
    finally:
        await app.aclose()
    assert said == tuple(stored)


async def test_usage_is_the_same_after_a_restart(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        for text in ("list .", "run `touch one`"):
            await session.submit(text)
            await settled(session)
        now = session.snapshot()
        assert now.status is TurnStatus.PAUSED
    app = App(Options(workspace=tmp_path))
    try:
        reading = await app.follow_session(session.session_id)
        again = await app.open_session(session.session_id, attended=True)
        assert now.usage is not None and now.usage.output_tokens > 0
        assert reading.snapshot().usage == again.snapshot().usage == now.usage
        await again.resume()
        (pending,) = again.pending
        await again.decide(pending.call.id, digest=pending.digest, decision=Rejected(reason="no"))
        await settled(again)
        after = again.snapshot().usage
    finally:
        await app.aclose()
    app = App(Options(workspace=tmp_path))
    try:
        assert (await app.open_session(session.session_id, attended=True)).snapshot().usage == after
    finally:
        await app.aclose()


async def test_a_remembered_grant_without_a_pattern_answers_nothing(tmp_path: Path) -> None:
    async with demo_session(tmp_path) as (_, session, _told):
        await session.submit("run `touch one` then run `touch two`")
        await settled(session)
        (pending,) = session.pending
        remember = Approved(remember=AnyArguments())
        await session.decide(pending.call.id, digest=pending.digest, decision=remember)
        assert await settled(session) is TurnStatus.PAUSED
        assert not (tmp_path / "two").exists()


async def test_a_changed_registry_is_reported_and_only_narrows_the_turn(tmp_path: Path, chatops_home: Path) -> None:
    registry = chatops_home / "config" / "model_registry.json"
    registry.parent.mkdir(mode=0o700)
    head = '{"version": 3, "default_role": "coder", "users": {"*": {"access_level": "operator"}}, '
    roles = head.replace("{", "{{").replace("}", "}}") + '"roles": {{"coder": {{"tools": [{}]}}}}}}'
    registry.write_text(roles.format('"file_read", "shell_exec"'))
    async with demo_session(tmp_path) as (_, session, events):
        await session.submit("run `touch one`")
        await settled(session)
        registry.write_text(roles.format('"file_read"'))
        session.snapshot()
        await asyncio.sleep(0)
        await noticed(events, "− shell_exec")
        (pending,) = session.pending
        await session.decide(pending.call.id, digest=pending.digest, decision=Approved())
        await settled(session)
        assert not (tmp_path / "one").exists()


async def test_a_change_noticed_in_another_thread_is_applied_on_the_event_loop(
    tmp_path: Path, chatops_home: Path
) -> None:
    registry = chatops_home / "config" / "model_registry.json"
    registry.parent.mkdir(mode=0o700)
    text = '{"version": 3, "default_role": "coder", "roles": {"coder": {"tools": [%s]}}}'
    registry.write_text(text % '"file_read", "file_list"')
    async with demo_session(tmp_path) as (app, _, events):
        registry.write_text(text % '"file_read"')
        await asyncio.to_thread(app.grant_for, "coder")
        await noticed(events, "− file_list")


async def test_a_closed_session_ignores_a_changed_registry(tmp_path: Path, chatops_home: Path) -> None:
    registry = chatops_home / "config" / "model_registry.json"
    registry.parent.mkdir(mode=0o700)
    text = '{"version": 3, "default_role": "coder", "users": {"*": {"access_level": "operator"}}, %s}'
    registry.write_text(text % '"roles": {"coder": {"tools": ["file_read", "shell_exec"]}}')
    async with demo_session(tmp_path) as (app, session, events):
        await session.submit("run `touch one`")
        await settled(session)
        left = session.state
        assert left is not None
        await session.aclose()
        registry.write_text(text % '"roles": {"coder": {"tools": ["file_read"]}}')
        app.grant_for("coder")
        await asyncio.sleep(0.1)
        assert not any(isinstance(event, Notice) for event in events)
        assert app.store.load_turn(left.turn_id).seq == left.seq


async def test_a_broken_or_missing_registry_is_reported_and_widens_nothing(tmp_path: Path, chatops_home: Path) -> None:
    registry = chatops_home / "config" / "model_registry.json"
    registry.parent.mkdir(mode=0o700)
    text = '{"version": 3, "default_role": "coder", "users": {"*": {"access_level": "user"}}, "roles": {"coder": {}}}'
    registry.write_text(text)
    async with demo_session(tmp_path) as (_, session, events):
        before = [spec.name for spec in session.grant().tools]
        registry.write_text(text[:-20])
        session.snapshot()
        await noticed(events, "line 1")
        assert [spec.name for spec in session.grant().tools] == before
        registry.unlink()
        session.snapshot()
        await noticed(events, "is gone")
        assert [spec.name for spec in session.grant().tools] == before
