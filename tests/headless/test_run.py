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
from chatops.domain.events import Event, Notice, Published, ToolFinished, TurnStatus
from chatops.domain.events import Status as NodeStatus
from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import AccessLevel, Outcome
from chatops.engine.effects import ComposerDraft
from chatops.engine.state import TurnState
from chatops.headless.formats import OutputFormat
from chatops.headless.run import CANNOT_WAIT, NO_USER, OnApproval, ask, resume_turn, show_end
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
            noticed=False,
            pending=(), usage=None, context_used=0, context_window=1, queued=(), notices=(),
        )  # fmt: skip

    def subscribe(self, listener: Callable[[Published], None]) -> Callable[[], None]:
        self.listeners.append(listener)
        return lambda: self.listeners.remove(listener)

    async def submit(self, text: str, *, draft: Callable[[], ComposerDraft | None] | None = None) -> bool:
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


class Installation:
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
    installation: Installation,
    *,
    output: OutputFormat = OutputFormat.TEXT,
    on_approval: OnApproval = OnApproval.PAUSE,
) -> int:
    return await ask(session, "read a", screen=installation.screen, output=output, on_approval=on_approval)


async def test_the_answer_and_nothing_else_is_on_stdout() -> None:
    session, installation = Scripted(finished()), Installation()
    assert await run_ask(session, installation) == 0
    assert installation.out == "The answer\n"
    assert installation.err == ""
    assert session.sent == ["read a"]


@pytest.mark.parametrize(
    ("status", "code"),
    [(TurnStatus.LIMIT, 4), (TurnStatus.FAILED, 1), (TurnStatus.CANCELLED, 130)],
)
async def test_each_end_has_its_exit_code(status: TurnStatus, code: int) -> None:
    assert await run_ask(Scripted(finished(status)), Installation()) == code


async def test_a_limit_is_said_once_on_a_terminal_and_in_both_streams_elsewhere() -> None:
    for terminal, said in ((True, "Raise it.\n"), (False, "Enough. Raise it.\n")):
        installation = Installation()
        installation.screen.out.isatty = lambda terminal=terminal: terminal  # type: ignore[method-assign,misc]
        state = finished(TurnStatus.LIMIT, answer="Enough. Here it is.", detail="Enough.", advice="Raise it.")
        assert await run_ask(Scripted(state), installation) == 4
        assert (installation.out, installation.err) == ("Enough. Here it is.\n", said)


async def test_a_failure_says_what_and_what_to_do_on_stderr() -> None:
    installation = Installation()
    state = finished(TurnStatus.FAILED, answer="", detail="Connection refused.", advice="Start the server.")
    assert await run_ask(Scripted(state), installation) == 1
    assert installation.out == ""
    assert "Connection refused. Start the server." in installation.err
    assert SESSION in installation.err


async def test_what_was_told_as_it_happened_is_not_told_again() -> None:
    session, installation = (
        Scripted(finished(TurnStatus.FAILED, detail="Connection refused.", advice="Start it.")),
        Installation(),
    )
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, installation))
    await session.waiting.wait()
    session.publish(Notice(id="n", parent_id=TURN, text="Connection refused.", advice="Start it.", level="error"))
    session.hang.set()
    assert await running == 1
    assert installation.err.count("Connection refused. Start it.") == 1


async def test_json_prints_one_object_even_when_the_turn_failed() -> None:
    installation = Installation()
    await run_ask(Scripted(finished(TurnStatus.FAILED, answer="")), installation, output=OutputFormat.JSON)
    assert json.loads(installation.out)["status"] == "failed"


async def test_a_gated_call_pauses_with_the_commands_that_go_on() -> None:
    session, installation = Scripted(paused()), Installation()
    assert await run_ask(session, installation) == 3
    assert session.decided == []
    assert installation.out == ""
    for command in (
        f"chatops approvals show {CALL}",
        f"chatops approvals approve {CALL}",
        f"chatops resume {SESSION}",
    ):
        assert command in installation.err
    assert "git push" in installation.err
    assert "tool default of shell_exec" in installation.err


async def test_deny_tells_the_model_and_goes_on() -> None:
    session, installation = Scripted(paused(), paused(digest="d2"), finished()), Installation()
    assert await run_ask(session, installation, on_approval=OnApproval.DENY) == 0
    assert session.decided == [
        (CALL, "d1", Rejected(reason=NO_USER)),
        (CALL, "d2", Rejected(reason=NO_USER)),
    ]
    assert installation.out == "The answer\n"


async def test_where_nothing_can_be_saved_a_call_is_denied_and_does_not_wait() -> None:
    session, installation = Scripted(paused(), finished()), Installation()
    session.ends_with_the_process = True
    assert await run_ask(session, installation) == 1
    assert session.decided == [(CALL, "d1", Rejected(reason=CANNOT_WAIT))]
    assert "Not run: shell_exec needs approval" in installation.err
    assert "home is read-only" in installation.err


async def test_where_nothing_can_be_saved_a_call_that_was_to_be_denied_is_no_error() -> None:
    session, installation = Scripted(paused(), finished()), Installation()
    session.ends_with_the_process = True
    assert await run_ask(session, installation, on_approval=OnApproval.DENY) == 0


async def test_an_answer_that_was_not_saved_is_printed_and_is_an_error() -> None:
    session, installation = Scripted(finished()), Installation()
    session.in_the_way = NotSavedError("Disk full: this is not saved.", advice="Free some space.")
    assert await run_ask(session, installation) == 1
    assert installation.out == "The answer\n"
    assert "Not saved: Disk full" in installation.err


async def test_that_an_answer_was_not_saved_is_said_once() -> None:
    session, installation = Scripted(finished()), Installation()
    session.in_the_way = NotSavedError("Not saving: home is read-only.", says_so=True)
    assert await run_ask(session, installation) == 1
    assert installation.err.count("Not sav") == 1


async def test_deny_does_not_loop_when_the_call_takes_no_answer() -> None:
    session = Scripted(paused())
    session.accepts = False
    assert await run_ask(session, Installation(), on_approval=OnApproval.DENY) == 3
    assert len(session.decided) == 1


async def test_a_prompt_is_not_sent_into_an_unfinished_turn() -> None:
    session, installation = Scripted(before=paused()), Installation()
    assert await run_ask(session, installation) == 3
    assert session.sent == []
    assert "not sent" in installation.err
    assert CALL in installation.err


async def test_json_tells_what_waits_where_a_prompt_is_not_sent() -> None:
    session, installation = Scripted(before=paused()), Installation()
    assert await run_ask(session, installation, output=OutputFormat.JSON) == 3
    value = json.loads(installation.out)
    assert (value["status"], value["pending"][0]["id"]) == ("paused", CALL)


async def test_stream_json_tells_what_waits_where_a_prompt_is_not_sent() -> None:
    session, installation = Scripted(before=paused()), Installation()
    assert await run_ask(session, installation, output=OutputFormat.STREAM_JSON) == 3
    lines = [json.loads(line) for line in installation.out.splitlines()]
    assert [line["type"] for line in lines] == ["turn_started", "round_started", "call_proposed", "turn_paused"]
    assert lines[-1]["pending"][0]["call"]["id"] == CALL


async def test_a_step_that_cannot_be_stored_is_a_failure_and_no_interrupt() -> None:
    session, installation = Scripted(asked()), Installation()
    session.in_the_way = StoreError("The disk is full.", advice="Make room.")
    assert await run_ask(session, installation, output=OutputFormat.JSON) == 1
    assert json.loads(installation.out)["status"] == "failed"
    assert "The disk is full. Make room." in installation.err
    assert f"chatops resume {SESSION}" in installation.err
    assert "Everything is saved" not in installation.err


async def test_a_turn_that_another_process_took_over_is_told_in_those_words() -> None:
    session, installation = Scripted(None), Installation()
    session.in_the_way = ConflictError("Another process has gone on.", advice="Open it again.")
    assert await run_ask(session, installation) == 1
    assert installation.err == "Another process has gone on. Open it again.\n"


async def test_resume_exits_with_3_again_while_something_waits() -> None:
    session, installation = Scripted(paused(), before=paused()), Installation()
    code = await resume_turn(
        session, screen=installation.screen, output=OutputFormat.TEXT, on_approval=OnApproval.PAUSE
    )
    assert code == 3
    assert session.resumed == 1
    assert session.sent == []


async def test_resume_finishes_a_decided_turn() -> None:
    session, installation = Scripted(finished(), before=paused()), Installation()
    code = await resume_turn(
        session, screen=installation.screen, output=OutputFormat.JSON, on_approval=OnApproval.PAUSE
    )
    assert code == 0
    assert json.loads(installation.out)["status"] == "answered"


def test_a_turn_that_is_over_is_shown_again_with_its_exit_code() -> None:
    installation = Installation()
    state = finished(TurnStatus.LIMIT)
    assert show_end(state, workspace="/w", screen=installation.screen, output=OutputFormat.TEXT) == 4
    assert installation.out == "The answer\n"


async def test_sigint_cancels_the_turn_and_exits_with_130() -> None:
    session, installation = Scripted(finished()), Installation()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, installation, output=OutputFormat.JSON))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)
    assert await running == 130
    assert session.cancelled == 1
    assert json.loads(installation.out)["status"] == "cancelled"


async def test_sigterm_leaves_the_turn_as_it_is_stored_and_says_how_to_go_on() -> None:
    session, installation = Scripted(finished()), Installation()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, installation))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 130
    assert session.cancelled == 0
    assert f"chatops resume {SESSION}" in installation.err


async def test_sigterm_prints_the_object_too() -> None:
    session, installation = Scripted(finished(), before=asked()), Installation()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(
        resume_turn(session, screen=installation.screen, output=OutputFormat.JSON, on_approval=OnApproval.PAUSE)
    )
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    assert await running == 130
    value = json.loads(installation.out)
    assert (value["session_id"], value["status"]) == (SESSION, "cancelled")


async def test_an_interrupt_before_anything_can_be_cancelled_stops_at_once() -> None:
    session, installation = Scripted(finished()), Installation()
    session.hang = asyncio.Event()
    session.cancels = False
    running = asyncio.ensure_future(run_ask(session, installation))
    await session.waiting.wait()
    os.kill(os.getpid(), signal.SIGINT)
    # The loop sees the signal, cancels in vain, and may not wait for the turn; the turn would go on if it did.
    await session.asked_to_cancel.wait()
    for _ in range(20):
        await asyncio.sleep(0)
    session.hang.set()
    assert await running == 130
    assert installation.out == ""
    assert f"chatops resume {SESSION}" in installation.err


async def test_progress_goes_to_stderr_and_control_characters_are_made_visible() -> None:
    session, installation = Scripted(finished(answer="ok")), Installation()
    session.hang = asyncio.Event()
    running = asyncio.ensure_future(run_ask(session, installation))
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
    assert installation.err == "odd ␛[2J text Look.\nfile_read: failed: no such file\n"
    assert session.listeners == []


async def test_an_error_in_the_middle_closes_the_stream_and_is_raised() -> None:
    class Broken(Scripted):
        async def settle(self) -> TurnState | None:
            raise OSError("disk full")

    installation = Installation()
    with pytest.raises(OSError, match="disk full"):
        await resume_turn(
            Broken(before=paused()),
            screen=installation.screen,
            output=OutputFormat.STREAM_JSON,
            on_approval=OnApproval.PAUSE,
        )
    lines = [json.loads(line) for line in installation.out.splitlines()]
    assert [(line["type"], line["status"]) for line in lines] == [
        ("turn_started", "started"),
        ("round_started", "started"),
        ("call_proposed", "started"),
        ("tool_finished", "error"),
        ("round_closed", "error"),
        ("turn_finished", "error"),
    ]
