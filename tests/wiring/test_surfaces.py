"""A site says on which surfaces calls are decided: asked at each decision, and again where a posted one is taken."""

import asyncio
import os
from collections.abc import Callable
from typing import Any

import pytest

from chatops.acp.session import open_editor_session
from chatops.api.chat import Asked
from chatops.cli import main
from chatops.domain.decisions import Answer, AnswerAction, Answered, Approved, Decision, Principal, Rejected
from chatops.domain.errors import ConfigError
from chatops.domain.events import PendingCall
from chatops.engine.inputs import DecideCall
from chatops.engine.view import pending_calls
from chatops.runtime.session import Session
from chatops.wiring.stored import Options
from tests.mcp.test_questions import SDK
from tests.support.fake_openai import FakeOpenAI, calls, says
from tests.support.fake_openai import call as wanted
from tests.support.waiting import PATIENCE, until
from tests.wiring.conftest import Bench

OPERATORS = {"*": {"access_level": "operator"}}
DECISIONS = (Approved(), Rejected())


async def asking(bench: Bench) -> tuple[Session, PendingCall]:
    """A session of the chat with a call that waits."""
    bench.write(users=OPERATORS)
    session = await bench.app().open_session(None, attended=True)
    await session.submit("run `touch made.txt`")
    return session, await pending(session)


async def pending(session: Session) -> PendingCall:
    state = await session.settle()
    assert state is not None
    (waiting,) = pending_calls(state)
    return waiting


@pytest.mark.parametrize("decision", DECISIONS)
async def test_the_dialog_decides_nothing_where_the_site_forbids_it(bench: Bench, decision: Decision) -> None:
    session, asked = await asking(bench)
    bench.write_site(approvals={"surfaces": ["cli"]})
    with pytest.raises(ConfigError, match="on this surface \\(terminal\\)") as refused:
        await session.decide(asked.call.id, digest=asked.digest, decision=decision)
    assert str(bench.site_place.path) in refused.value.advice and "cli" in refused.value.advice
    assert await pending(session) == asked
    bench.write_site(approvals={"surfaces": ["terminal"]})
    assert await session.decide(asked.call.id, digest=asked.digest, decision=decision)
    await session.aclose()


async def test_a_command_and_a_program_decide_nothing_where_the_site_forbids_it(
    bench: Bench, capsys: pytest.CaptureFixture[str]
) -> None:
    session, asked = await asking(bench)
    await session.aclose()
    call = asked.call.id
    bench.write_site(approvals={"surfaces": ["terminal"]})
    for words in (("approve", call), ("deny", call), ("approve", call, "--edit", '{"command": "true"}')):
        assert await asyncio.to_thread(main, ["approvals", *words]) == 2
        assert "on this surface (cli)" in capsys.readouterr().err
    program = Asked(asked)
    with pytest.raises(ConfigError, match="on this surface \\(python\\)"):
        program.approve(digest=asked.digest)
    with pytest.raises(ConfigError, match="on this surface \\(python\\)"):
        program.deny()
    assert bench.apps[0].store.pending_calls()[0].decided is None


async def test_a_posted_decision_is_not_taken_where_the_site_forbids_it(bench: Bench) -> None:
    session, asked = await asking(bench)
    notices: list[str] = []
    session.subscribe(lambda published: notices.append(getattr(published.event, "text", "")))
    bench.write_site(approvals={"surfaces": ["terminal"]})
    store = bench.apps[0].store
    # Another program of the user writes past the check of our own commands, also under a name that none of them has.
    for via in ("serve", "phone"):
        by = Principal(uid=os.getuid(), via=via)
        decided = DecideCall(call_id=asked.call.id, digest=asked.digest, decision=Approved(), by=by)
        assert store.post_decision(decided)
        await session.resume()
        said = f"on this surface ({via})"
        await until(lambda: any(said in text and "stays pending" in text for text in notices))  # noqa: B023
        assert await pending(session) == asked
        assert store.pending_calls()[0].decided is None and not (bench.workspace / "made.txt").exists()
    assert await session.decide(asked.call.id, digest=asked.digest, decision=Rejected())
    await session.aclose()


class Editor:
    """An editor that answers nothing, and remembers what it was told and asked."""

    has_forms = False

    def __init__(self) -> None:
        self.told, self.asked = "", asyncio.Event()
        self.forbid: Callable[[], None] = lambda: None

    async def show(self, update: object) -> None:
        self.told += getattr(update, "text", "")

    async def ask(self, card: object) -> None:
        self.asked.set()

    async def form(self, message: str, schema: object) -> Answer:
        self.forbid()
        return Answer(action=AnswerAction.ACCEPT, content='{"name": "Ana", "boats": 2}')


async def test_an_editor_is_asked_nothing_where_the_site_forbids_it(bench: Bench) -> None:
    bench.write(users=OPERATORS, tools={"scratch_write": {"verdict": "ask"}})
    editor: Any = Editor()
    options = Options(workspace=bench.workspace, via="acp", client="an editor")
    session = await open_editor_session(options, None, editor, notices=())
    await session.begin(replay=False)
    first = asyncio.create_task(session.prompt('use scratch_write {"text": "x"}'))
    await asyncio.wait_for(editor.asked.wait(), PATIENCE)
    await session.cancel()
    await first
    editor.asked.clear()
    bench.write_site(approvals={"surfaces": ["terminal"]})
    second = asyncio.create_task(session.prompt("and now?"))
    await until(lambda: "on this surface (acp)" in editor.told)
    assert not editor.asked.is_set()
    await session.cancel()
    await second
    await session.aclose()


async def test_a_server_gets_no_answer_of_an_editor_where_the_site_forbids_it(bench: Bench) -> None:
    """The site forbids it while the form is open. What chatops declines then is not put down to the user."""
    editor: Any = Editor()
    editor.has_forms = True
    editor.forbid = lambda: bench.write_site(approvals={"surfaces": ["terminal"]})
    with FakeOpenAI([calls(wanted("harbour__book")), says("Done.")]) as server:
        model = {"type": "openai", "api_url": server.url, "model_name": "m"}
        role = {"primary": "fake", "tools": ["harbour__book"]}
        servers = {"harbour": {**SDK, "tools": {"book": {"verdict": "allow"}}}}
        bench.write(users=OPERATORS, models={"fake": model}, roles={"assistant": role}, mcp_servers=servers)
        session = await open_editor_session(
            Options(workspace=bench.workspace, via="acp", client="x"), None, editor, notices=()
        )
        await session.begin(replay=False)
        await session.prompt("book")
        assert "was declined: the site does not let users decide in editors" in editor.told
        assert "Ana" not in "".join(server.requests[-1].tool_results)
        (row,) = session.app.store.decisions()
        why = "the site does not let users decide in editors"
        assert row.decision == Answered(action=AnswerAction.DECLINE, why=why) and not row.by.is_person
        await session.aclose()
