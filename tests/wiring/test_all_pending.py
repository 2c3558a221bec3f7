"""``/pending --all`` over a real store: calls of several sessions and folders, decided without opening one."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from chatops.domain.decisions import Approved, MarkedDone, Rejected
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.engine.view import pending_calls
from chatops.wiring.all_pending import AllPending, WaitingCall
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from tests.support.waiting import until
from tests.wiring.conftest import Bench

OPERATORS = {"*": {"access_level": "operator"}}


async def asked(bench: Bench, folder: Path, text: str) -> None:
    """A session in `folder` asks and is closed: no process has it open."""
    app = App(Options(workspace=folder))
    bench.apps.append(app)
    session = await app.open_session(None, attended=True)
    await session.submit(text)
    state = await session.settle()
    assert state is not None and pending_calls(state)
    await session.aclose()


async def two(bench: Bench) -> tuple[AllPending, WaitingCall, WaitingCall]:
    """The pending calls, with one of this folder and one of another."""
    bench.write(users=OPERATORS)
    other = bench.workspace.parent / "other"
    other.mkdir()
    await asked(bench, other, "run `touch made.txt`")
    await asked(bench, bench.workspace, "run `touch here.txt`")
    calls = AllPending(bench.app())
    first, second = await calls.waiting()
    return calls, first, second


async def test_the_calls_of_all_folders_wait_and_go_on_where_they_belong(bench: Bench) -> None:
    calls, first, second = await two(bench)
    assert [Path(call.folder).name for call in (first, second)] == ["other", "project"]
    facts = {fact.label: fact.value for fact in first.facts}
    assert facts["session"] == "run `touch made.txt`" and facts["folder"] == first.folder
    then = await calls.decide(first, Approved())
    assert then == f"No process has the session open. To continue it: chatops resume {first.session_id}"
    assert await calls.waiting() == (second,)
    app = App(Options(workspace=Path(first.folder)))
    bench.apps.append(app)
    session = await app.open_session(first.session_id, attended=False)
    await session.resume()
    await session.settle()
    await session.aclose()
    assert (Path(first.folder) / "made.txt").exists()
    answer = await calls.decision_on(first)
    assert answer is not None and (answer.by.via, answer.decision) == ("tui", Approved())


async def test_a_session_that_is_open_takes_the_decision_at_once(bench: Bench) -> None:
    bench.write(users=OPERATORS)
    session = await bench.app().open_session(None, attended=True)
    await session.submit("run `touch made.txt`")
    await session.settle()
    calls = AllPending(bench.app())
    (call,) = await calls.waiting()
    assert await calls.decide(call, Approved()) == "The session continues in the process that has it open."
    await until((bench.workspace / "made.txt").exists)
    await session.settle()
    await session.aclose()


async def test_the_first_decision_counts_and_only_for_what_was_shown(bench: Bench) -> None:
    calls, first, second = await two(bench)
    assert await calls.decide(first, Rejected())
    assert await calls.decide(first, Approved()) == ""
    other = await AllPending(bench.app()).waiting()
    assert other == (second,)
    with pytest.raises(ChatopsError, match="not what was shown"):
        await calls.decide(_with_digest(second, "0" * 64), Approved())
    with pytest.raises(ChatopsError, match="has not been started yet"):
        await calls.decide(second, MarkedDone())
    assert await calls.waiting() == (second,)


def _with_digest(call: WaitingCall, digest: str) -> WaitingCall:
    return replace(call, pending=replace(call.pending, digest=digest))


async def test_rights_are_judged_now(bench: Bench) -> None:
    calls, first, second = await two(bench)
    assert first.pending.denial is None
    bench.write(users={"*": {"access_level": "viewer"}})
    assert [call.pending.denial is None for call in await calls.waiting()] == [False, False]
    with pytest.raises(ChatopsError, match="It cannot run now"):
        await calls.decide(first, Approved())
    assert await calls.decide(first, Rejected())
    bench.write_site(approvals={"surfaces": ["cli"]})
    with pytest.raises(ConfigError, match="on this surface \\(terminal\\)"):
        await calls.decide(second, Rejected())
    assert len(await calls.waiting()) == 1


async def test_what_other_processes_ask_and_decide_is_told(bench: Bench) -> None:
    calls, first, second = await two(bench)
    told: list[Sequence[WaitingCall]] = []
    watching = calls.watch(told.append)

    async def hear(count: int) -> Sequence[WaitingCall]:
        await until(lambda: bool(told) and len(told[-1]) == count)
        return told[-1]

    assert await hear(2) == (first, second)
    await asked(bench, bench.workspace, "run `touch more.txt`")
    await hear(3)
    await AllPending(bench.app()).decide(first, Rejected())
    assert (await hear(2))[0] == second
    watching.cancel()
