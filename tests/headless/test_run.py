"""One turn without a screen: streams, exit codes, pending calls, denial, signals."""

import asyncio
import io
import json
import os
import signal
from collections.abc import Callable

import pytest

from chatops.domain.decisions import Decision, Rejected
from chatops.domain.errors import ChatopsError, ConflictError, NotSavedError, StoreError
from chatops.domain.events import AskReason, Event, Notice, Published, ToolFinished, TurnStatus
from chatops.domain.events import Status as NodeStatus
from chatops.domain.ids import CallId, SessionId
from chatops.domain.rights import AccessLevel
from chatops.domain.tools import Outcome
from chatops.engine.state import TurnState
from chatops.headless.formats import OutputFormat
from chatops.headless.run import CANNOT_WAIT, NO_USER, OnApproval, ask, go_on, show_end
from chatops.headless.screen import Screen
from chatops.runtime.session import Session
from chatops.runtime.view import Snapshot
from tests.support.turns import CALL, ROUND, SESSION, TURN, asked, finished, paused


class Scripted(Session):
    """A conversation that goes through given states: one per `settle`."""

    def __init__(self, *states: TurnState | None, before: TurnState | None = None) -> None:
        self.states = list(states)
        self.current = before
        self.sent: list[str] = []
        self.decided: list[tuple[CallId, str, Decision]] = []
        self.resumed = 0
        self.cancelled = 0
        self.listeners: list[Callable[[Published], None]] = []
        self.hang: asyncio.Event | None = None
        self.waiting = asyncio.Event()
        self.asked_to_cancel = asyncio.Event()
        self.accepts = True
        self.cancels = True
        self.in_the_way: ChatopsError | None = None
        self.ends_with_the_process = False

    @property
    def session_id(self) -> SessionId:
        return SESSION

    @property
    def in_memory_only(self) -> bool:
        return self.ends_with_the_process

    @property
    def unsaved(self) -> str:
        return "Not saving: home is read-only." if self.ends_with_the_process else ""

    @property
    def blocked_by(self) -> ChatopsError | None:
        return self.in_the_way

    @property
    def state(self) -> TurnState | None:
        return self.current

    def snapshot(self) -> Snapshot:
        return Snapshot(
            session_id=SESSION, title="", workspace="/w", role="coder", roles=("coder",), level=AccessLevel.OPERATOR,
            model="demo", model_label="Demo", is_demo=True, persona="", messages=(), status=None, detail="", advice="",
            pending=(), usage=None, context_used=0, context_window=1, queued=(), notices=(),
        )  # fmt: skip

    def subscribe(self, listener: Callable[[Published], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def submit(self, text: str) -> bool:
        self.sent.append(text)
        return True

    async def resume(self) -> None:
        self.resumed += 1

    async def settle(self) -> TurnState | None:
        self.waiting.set()
        if self.hang is not None:
            await self.hang.wait()
        if self.states:
            self.current = self.states.pop(0)
        return self.current

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        self.decided.append((call_id, digest, decision))
        return self.accepts

    async def cancel(self) -> bool:
        self.cancelled += 1
        self.asked_to_cancel.set()
        if not self.cancels:
            return False
        self.states = [finished(TurnStatus.CANCELLED, answer="")]
        if self.hang is not None:
            self.hang.set()
        return True

    def publish(self, event: Event) -> None:
        for listener in self.listeners:
            listener(Published(at=1.0, event=event))


class Desk:
    """A screen whose two streams can be read."""

    def __init__(self) -> None:
        self._out, self._err = io.StringIO(), io.StringIO()
        self.screen = Screen(out=self._out, err=self._err)

    @property
    def out(self) -> str:
        return self._out.getvalue()

    @property
    def err(self) -> str:
        return self._err.getvalue()


async def run_ask(
    session: Scripted,
    desk: Desk,
    *,
    output: OutputFormat = OutputFormat.TEXT,
    on_approval: OnApproval = OnApproval.PAUSE,
) -> int:
    return await ask(session, "read a", screen=desk.screen, output=output, on_approval=on_approval)


async def test_the_answer_and_nothing_else_is_on_stdout() -> None:
    session, desk = Scripted(finished()), Desk()
    assert await run_ask(session, desk) == 0
    assert desk.out == "The answer\n"
    assert desk.err == ""
    assert session.sent == ["read a"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(TurnStatus.LIMIT, 4), (TurnStatus.FAILED, 1), (TurnStatus.CANCELLED, 130)],
)
async def test_each_end_has_its_exit_code(status: TurnStatus, code: int) -> None:
    assert await run_ask(Scripted(finished(status)), Desk()) == code


async def test_a_failure_says_what_and_what_to_do_on_stderr() -> None:
    desk = Desk()
    state = finished(TurnStatus.FAILED, answer="", detail="Connection refused.", advice="Start the server.")
    assert await run_ask(Scripted(state), desk) == 1
    assert desk.out == ""
    assert "Connection refused. Start the server." in desk.err
    assert SESSION in desk.err


async def test_what_was_told_as_it_happened_is_not_told_again() -> None:
    session, desk = Scripted(finished(TurnStatus.FAILED, detail="Connection refused.", advice="Start it.")), Desk()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, desk))
    await session.waiting.wait()
    session.publish(Notice(id="n", parent_id=TURN, text="Connection refused.", advice="Start it.", level="error"))
    session.hang.set()
    assert await running == 1
    assert desk.err.count("Connection refused. Start it.") == 1


async def test_json_prints_one_object_even_when_the_turn_failed() -> None:
    desk = Desk()
    await run_ask(Scripted(finished(TurnStatus.FAILED, answer="")), desk, output=OutputFormat.JSON)
    assert json.loads(desk.out)["status"] == "failed"


async def test_a_gated_call_pauses_with_the_commands_that_go_on() -> None:
    session, desk = Scripted(paused()), Desk()
    assert await run_ask(session, desk) == 3
    assert session.decided == []
    assert desk.out == ""
    for command in (
        f"chatops approvals show {CALL}",
        f"chatops approvals approve {CALL}",
        f"chatops resume {SESSION}",
    ):
        assert command in desk.err
    assert "git push" in desk.err
    assert "tool default of shell_exec" in desk.err


async def test_deny_tells_the_model_and_goes_on() -> None:
    session, desk = Scripted(paused(), paused(digest="d2"), finished()), Desk()
    assert await run_ask(session, desk, on_approval=OnApproval.DENY) == 0
    assert session.decided == [
        (CALL, "d1", Rejected(reason=NO_USER)),
        (CALL, "d2", Rejected(reason=NO_USER)),
    ]
    assert desk.out == "The answer\n"


async def test_where_nothing_can_be_saved_a_call_is_denied_and_does_not_wait() -> None:
    session, desk = Scripted(paused(), finished()), Desk()
    session.ends_with_the_process = True
    assert await run_ask(session, desk) == 1
    assert session.decided == [(CALL, "d1", Rejected(reason=CANNOT_WAIT))]
    assert "Not run: shell_exec needs approval" in desk.err
    assert "home is read-only" in desk.err


async def test_where_nothing_can_be_saved_a_call_that_was_to_be_denied_is_no_error() -> None:
    session, desk = Scripted(paused(), finished()), Desk()
    session.ends_with_the_process = True
    assert await run_ask(session, desk, on_approval=OnApproval.DENY) == 0


async def test_an_answer_that_was_not_saved_is_printed_and_is_an_error() -> None:
    session, desk = Scripted(finished()), Desk()
    session.in_the_way = NotSavedError("Disk full: this is not saved.", advice="Free some space.")
    assert await run_ask(session, desk) == 1
    assert desk.out == "The answer\n"
    assert "Not saved: Disk full" in desk.err


async def test_that_an_answer_was_not_saved_is_said_once() -> None:
    session, desk = Scripted(finished()), Desk()
    session.in_the_way = NotSavedError("Not saving: home is read-only.", says_so=True)
    assert await run_ask(session, desk) == 1
    assert desk.err.count("Not sav") == 1


async def test_deny_does_not_loop_when_the_call_takes_no_answer() -> None:
    session = Scripted(paused())
    session.accepts = False
    assert await run_ask(session, Desk(), on_approval=OnApproval.DENY) == 3
    assert len(session.decided) == 1


async def test_a_prompt_is_not_sent_into_an_unfinished_turn() -> None:
    session, desk = Scripted(before=paused()), Desk()
    assert await run_ask(session, desk) == 3
    assert session.sent == []
    assert "not sent" in desk.err
    assert CALL in desk.err


async def test_json_tells_what_waits_where_a_prompt_is_not_sent() -> None:
    session, desk = Scripted(before=paused()), Desk()
    assert await run_ask(session, desk, output=OutputFormat.JSON) == 3
    value = json.loads(desk.out)
    assert (value["status"], value["pending"][0]["id"]) == ("paused", CALL)


async def test_stream_json_tells_what_waits_where_a_prompt_is_not_sent() -> None:
    session, desk = Scripted(before=paused()), Desk()
    assert await run_ask(session, desk, output=OutputFormat.STREAM_JSON) == 3
    lines = [json.loads(line) for line in desk.out.splitlines()]
    assert [line["type"] for line in lines] == ["turn_started", "round_started", "call_proposed", "turn_paused"]
    assert lines[-1]["pending"][0]["call"]["id"] == CALL


async def test_a_step_that_cannot_be_stored_is_a_failure_and_no_interrupt() -> None:
    session, desk = Scripted(asked()), Desk()
    session.in_the_way = StoreError("The disk is full.", advice="Make room.")
    assert await run_ask(session, desk, output=OutputFormat.JSON) == 1
    assert json.loads(desk.out)["status"] == "failed"
    assert "The disk is full. Make room." in desk.err
    assert f"chatops resume {SESSION}" in desk.err
    assert "Nothing is lost" not in desk.err


async def test_a_turn_that_another_process_took_over_is_told_in_those_words() -> None:
    session, desk = Scripted(None), Desk()
    session.in_the_way = ConflictError("Another process has gone on.", advice="Open it again.")
    assert await run_ask(session, desk) == 1
    assert desk.err == "Another process has gone on. Open it again.\n"


async def test_resume_exits_with_3_again_while_something_waits() -> None:
    session, desk = Scripted(paused(), before=paused()), Desk()
    code = await go_on(session, screen=desk.screen, output=OutputFormat.TEXT, on_approval=OnApproval.PAUSE)
    assert code == 3
    assert session.resumed == 1
    assert session.sent == []


async def test_resume_finishes_a_decided_turn() -> None:
    session, desk = Scripted(finished(), before=paused()), Desk()
    code = await go_on(session, screen=desk.screen, output=OutputFormat.JSON, on_approval=OnApproval.PAUSE)
    assert code == 0
    assert json.loads(desk.out)["status"] == "answered"


def test_a_turn_that_is_over_is_shown_again_with_its_exit_code() -> None:
    desk = Desk()
    state = finished(TurnStatus.LIMIT)
    assert show_end(state, workspace="/w", screen=desk.screen, output=OutputFormat.TEXT) == 4
    assert desk.out == "The answer\n"


async def test_an_unknown_outcome_says_that_approving_runs_it_again() -> None:
    desk = Desk()
    await run_ask(Scripted(paused(reason=AskReason.OUTCOME_UNKNOWN)), desk)
    assert CALL in desk.err


async def test_sigint_cancels_the_turn_and_exits_with_130() -> None:
    session, desk = Scripted(finished()), Desk()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, desk, output=OutputFormat.JSON))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert await running == 130
    assert session.cancelled == 1
    assert json.loads(desk.out)["status"] == "cancelled"


async def test_sigterm_leaves_the_turn_as_it_is_stored_and_says_how_to_go_on() -> None:
    session, desk = Scripted(finished()), Desk()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, desk))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 130
    assert session.cancelled == 0
    assert f"chatops resume {SESSION}" in desk.err


async def test_sigterm_prints_the_object_too() -> None:
    session, desk = Scripted(finished(), before=asked()), Desk()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(
        go_on(session, screen=desk.screen, output=OutputFormat.JSON, on_approval=OnApproval.PAUSE)
    )
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 130
    value = json.loads(desk.out)
    assert (value["session_id"], value["status"]) == (SESSION, "cancelled")


async def test_an_interrupt_before_anything_can_be_cancelled_stops_at_once() -> None:
    session, desk = Scripted(finished()), Desk()
    session.hang = asyncio.Event()
    session.cancels = False
    running = asyncio.ensure_future(run_ask(session, desk))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)
    # The loop sees the signal, cancels in vain, and may not wait for the turn; the turn would go on if it did.
    await session.asked_to_cancel.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    session.hang.set()
    assert await running == 130
    assert desk.out == ""
    assert f"chatops resume {SESSION}" in desk.err


async def test_progress_goes_to_stderr_and_control_characters_are_made_visible() -> None:
    session, desk = Scripted(finished(answer="ok")), Desk()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, desk))
    await session.waiting.wait()
    session.publish(Notice(id="n", parent_id=TURN, text="odd \x1b[2J text", advice="Look."))
    session.publish(
        ToolFinished(
            id=CALL,
            parent_id=ROUND,
            status=NodeStatus.ERROR,
            tool="file_read",
            arguments="{}",
            outcome=Outcome.FAILED,
            content="no such file\nmore",
        )
    )
    session.hang.set()
    assert await running == 0
    assert desk.err == "odd ␛[2J text Look.\nfile_read: failed: no such file\n"
    assert session.listeners == []


async def test_an_error_in_the_middle_closes_the_stream_and_is_raised() -> None:
    class Broken(Scripted):
        async def settle(self) -> TurnState | None:
            raise OSError("disk full")

    desk = Desk()
    with pytest.raises(OSError, match="disk full"):
        await go_on(
            Broken(before=paused()), screen=desk.screen, output=OutputFormat.STREAM_JSON, on_approval=OnApproval.PAUSE
        )
    lines = [json.loads(line) for line in desk.out.splitlines()]
    assert [(line["type"], line["status"]) for line in lines] == [
        ("turn_started", "started"),
        ("round_started", "started"),
        ("call_proposed", "started"),
        ("tool_finished", "error"),
        ("round_closed", "error"),
        ("turn_finished", "error"),
    ]
