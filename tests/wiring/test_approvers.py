"""The approvers of a call are checked when a decision is posted, and again when a turn takes it."""

import asyncio
import os

import pytest

from chatops.api.chat import Asked
from chatops.cli import main
from chatops.domain.decisions import ANY_ARGUMENTS, Approved, Principal, Rejected
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.engine.inputs import DecideCall
from chatops.runtime.call_sheet import call_sheet
from tests.support.waiting import until
from tests.wiring.conftest import Bench
from tests.wiring.test_surfaces import asking, pending


@pytest.mark.parametrize(
    ("approver", "why"),
    [
        (["other"], "someone else than uid"),
        (["@leads"], "@leads is a role of a team's database, and the sessions are in a file"),
        (["admin"], "access level admin is needed"),
    ],
)
async def test_a_user_who_is_no_approver_lets_nothing_run_and_may_deny(
    bench: Bench, approver: list[str], why: str
) -> None:
    bench.write_site(tools={"shell_exec": {"approver": approver}})
    session, asked = await asking(bench)
    assert asked.approvers == tuple(approver)
    sheet = call_sheet(asked, now=0)
    assert [fact.label for fact in sheet.warnings][:1] == ["approver"]
    assert [offer.key for offer in sheet.offers if offer.key in "sSr"] == []
    for decision in (Approved(), Approved(remember=ANY_ARGUMENTS)):
        with pytest.raises(ConfigError, match=why):
            await session.decide(asked.call.id, digest=asked.digest, decision=decision)
    assert await pending(session) == asked
    assert await session.decide(asked.call.id, digest=asked.digest, decision=Rejected())
    await session.aclose()


async def test_an_approver_decides_in_the_chat_and_a_program_does_not(bench: Bench) -> None:
    bench.write_site(tools={"shell_exec": {"approver": ["operator"]}})
    session, asked = await asking(bench)
    notices: list[str] = []
    session.subscribe(lambda published: notices.append(getattr(published.event, "text", "")))
    with pytest.raises(ChatopsError, match="Only a user decides about"):
        Asked(asked).approve(digest=asked.digest)
    # Another program of the user writes past the check of our own one.
    for via in ("python", "acp", "headless"):
        by = Principal(uid=os.getuid(), via=via)
        decided = DecideCall(call_id=asked.call.id, digest=asked.digest, decision=Approved(), by=by)
        notices.clear()
        assert bench.apps[0].store.post_decision(decided)
        await session.resume()
        await until(lambda: any("no rule, program or editor approves it" in text for text in notices))
        assert await pending(session) == asked
    assert await session.decide(asked.call.id, digest=asked.digest, decision=Approved())
    state = await session.settle()
    assert state is not None and (bench.workspace / "made.txt").exists()
    await session.aclose()


async def test_a_window_that_follows_and_a_command_post_nothing_that_would_not_count(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    bench.write_site(tools={"shell_exec": {"approver": ["other"]}})
    session, asked = await asking(bench)
    window = await bench.app().follow_session(session.session_id)
    with pytest.raises(ConfigError, match="someone else than uid"):
        await window.decide(asked.call.id, digest=asked.digest, decision=Approved())
    await window.aclose()
    assert await asyncio.to_thread(main, ["approvals", "approve", asked.call.id]) == 2
    assert "Who may: someone else than who requested it." in capsys.readouterr().err
    assert bench.apps[0].store.pending_calls()[0].decided is None
    await session.aclose()
