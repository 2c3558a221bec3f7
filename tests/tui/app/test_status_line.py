"""Text of the status line about tokens and a streaming reply."""

from dataclasses import replace

from textual.app import App, ComposeResult

from chatops.domain.events import Event, Published, ReasoningDelta, RoundStarted, TextDelta, TurnStatus
from chatops.domain.ids import MessageId, TurnId
from chatops.domain.messages import AssistantMessage, Usage
from chatops.domain.sandbox import SandboxNote
from chatops.tui.status import Progress, StatusLine, fitted, status_parts
from tests.tui.app.fakes import ROUND, FakeSession, pending_call

SANDBOX = SandboxNote(off=False, text="bubblewrap")

THOUGHT = f"{ROUND}.thought"


def words(session: FakeSession, *, running: bool = False) -> str:
    parts = status_parts(session.now, sandbox=SANDBOX, progress=Progress() if running else None)
    return " · ".join(part.text for part in parts[:-1])


def at_width(session: FakeSession, width: int) -> str:
    parts = fitted(status_parts(session.now, sandbox=SANDBOX, progress=None), width=width)
    return "".join((part.gap if at else "") + part.text for at, part in enumerate(parts))


def test_parts_leave_from_the_right_and_what_needs_attention_stays() -> None:
    session = FakeSession(pending=[pending_call()])
    session.change(usage=Usage(input_tokens=9, output_tokens=9, cost=0.1234), context_used=3_400, context_window=10_000)
    whole = "coder · operator level   Qwen 3 (local)   ctx ▃ 34 %   $0.12   ? 1 pending   sandbox on"
    assert at_width(session, len(whole)) == whole
    assert at_width(session, len(whole) - 1) == whole.replace("   $0.12", "")
    assert at_width(session, 74) == whole.replace(" level", "").replace("   $0.12", "")
    assert at_width(session, 63) == "coder · operator   Qwen 3 (local)   ? 1 pending   sandbox on"
    assert at_width(session, 40) == "coder · operator level   ? 1 pending"
    assert at_width(session, 10) == "coder   ? 1 pending"


def test_a_context_that_is_nearly_full_needs_attention() -> None:
    session = FakeSession()
    session.change(context_used=9_600, context_window=10_000, usage=Usage(input_tokens=1, output_tokens=1, cost=0.0004))
    assert at_width(session, 80).endswith("ctx █ 96 %   $0.0004   sandbox on")
    assert at_width(session, 20) == "coder   ctx █ 96 %"


def test_tokens_that_no_server_has_counted_are_unknown_and_not_zero() -> None:
    session = FakeSession()
    session.change(status=None, usage=None)
    assert "tokens" not in words(session)
    own = AssistantMessage(id=MessageId("s.1.m2"), text="")
    counted = AssistantMessage(id=MessageId("t.1.m2"), text="Hi.", model="local", usage=Usage(input_tokens=1))
    session.change(status=TurnStatus.ANSWERED, messages=(own, counted))
    assert "tokens" not in words(session), "a command of the user, or a reply that was counted in another session"
    session.change(messages=(own, AssistantMessage(id=MessageId("s.2.m2"), text="Hi.", model="local")))
    assert words(session).endswith("tokens unknown")
    assert "tokens" not in words(session, running=True)
    session.change(status=TurnStatus.FAILED)
    assert "tokens" not in words(session)
    session.change(usage=Usage(input_tokens=11, output_tokens=7))
    assert words(session).endswith("11 in 7 out")


def test_that_no_sandbox_confines_commands_is_said_at_any_width_and_why_where_there_is_room() -> None:
    off = SandboxNote(off=True, text="(bubblewrap is not installed)")
    parts = status_parts(FakeSession().now, sandbox=off, progress=None)
    assert " ".join(part.text for part in parts).endswith("sandbox off (bubblewrap is not installed)")
    narrow = [part.text for part in fitted(parts, width=30)]
    assert narrow[-1] == "sandbox off"


class Line(App[None]):
    def compose(self) -> ComposeResult:
        yield StatusLine()

    def shows(self) -> str:
        return self.query_one(StatusLine).render_line(0).text

    def follow(self, *events: Event) -> None:
        self.query_one(StatusLine).follow([Published(at=0, event=event) for event in events])


async def test_a_long_reply_is_counted_while_it_comes() -> None:
    snapshot = replace(FakeSession().now, status=TurnStatus.RUNNING)
    async with Line().run_test(size=(110, 5)) as pilot:
        line = pilot.app
        assert isinstance(line, Line)
        line.query_one(StatusLine).show(snapshot, sandbox=SANDBOX, running=True)
        line.follow(TextDelta(id=THOUGHT, parent_id=ROUND, text="x" * 900))
        line.follow(ReasoningDelta(id=THOUGHT, parent_id=ROUND, text="x" * 600))
        while ", 1.5k characters, Esc stops" not in line.shows():
            await pilot.pause(0.05)
        line.follow(RoundStarted(id=ROUND, parent_id=TurnId("s.1"), model="m"))
        line.query_one(StatusLine).show(snapshot, sandbox=SANDBOX, running=True)
        await pilot.pause()
        assert "working" in line.shows()
