"""Text of the status line about tokens and a streaming reply."""

from unittest.mock import patch

from chatops.domain.events import TurnStatus
from chatops.domain.ids import MessageId
from chatops.domain.messages import AssistantMessage, Usage
from chatops.domain.sandbox import SandboxNote
from chatops.tui.status import Banner, QueuedMessages, fit_parts, status_parts
from chatops.tui.transcript.transcript import Transcript
from tests.support.waiting import until
from tests.tui.app.fakes import FakeSession, pending_call
from tests.tui.app.support_app import stage
from tests.tui.app.test_finding import said
from tests.tui.app.test_looks import working

SANDBOX = SandboxNote(off=False, text="bubblewrap")


def words(session: FakeSession, *, running: bool = False) -> str:
    parts = status_parts(session.now, sandbox=SANDBOX, seconds=0 if running else None)
    return " · ".join(part.text for part in parts[:-1])


def at_width(session: FakeSession, width: int) -> str:
    parts = fit_parts(status_parts(session.now, sandbox=SANDBOX, seconds=None), width=width)
    return "".join((part.gap if at else "") + part.text for at, part in enumerate(parts))


def test_parts_leave_from_the_right_and_what_needs_attention_stays() -> None:
    session = FakeSession(pending=[pending_call()])
    session.change(usage=Usage(input_tokens=9, output_tokens=9, cost=0.1234), context_used=3_400, context_window=10_000)
    whole = "coder · level operator   Qwen 3 (local)   ctx ▃ 34 %   $0.12   ? 1 pending   sandbox on"
    assert at_width(session, len(whole)) == whole
    assert at_width(session, len(whole) - 1) == whole.replace("   $0.12", "")
    assert at_width(session, 70) == "coder · level operator   Qwen 3 (local)   ? 1 pending   sandbox on"
    assert at_width(session, 60) == "coder · level operator   Qwen 3 (local)   ? 1 pending"
    assert at_width(session, 40) == "coder · level operator   ? 1 pending"
    assert at_width(session, 10) == "coder   ? 1 pending"


def test_a_role_that_is_named_as_its_level_is_shown_once() -> None:
    session = FakeSession()
    session.change(role="operator")
    assert words(session).startswith("operator · Qwen 3 (local)")


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
    stopped = AssistantMessage(id=MessageId("t.2.m2"), text="H", model="local", incomplete=True)
    session.change(messages=(own, counted, stopped))
    assert "tokens" not in words(session), "no server says what a stopped reply has cost"
    session.change(messages=(own, AssistantMessage(id=MessageId("s.2.m2"), text="Hi.", model="local")))
    assert words(session).endswith("tokens unknown")
    assert "tokens" not in words(session, running=True)
    session.change(status=TurnStatus.FAILED)
    assert "tokens" not in words(session)
    session.change(usage=Usage(input_tokens=11, output_tokens=7))
    assert words(session).endswith("11 in 7 out")


def test_that_no_sandbox_confines_commands_is_said_at_any_width_and_why_where_there_is_room() -> None:
    off = SandboxNote(off=True, text="(bubblewrap is not installed)")
    parts = status_parts(FakeSession().now, sandbox=off, seconds=None)
    assert " ".join(part.text for part in parts).endswith("sandbox off (bubblewrap is not installed)")
    narrow = [part.text for part in fit_parts(parts, width=30)]
    assert narrow[-1] == "sandbox off"


async def test_an_update_that_changes_no_line_lays_nothing_out() -> None:
    async with stage() as running:
        running.session.start_turn("go on")
        await running.settle()
        with patch.object(Banner, "update") as banner, patch.object(QueuedMessages, "update") as queued:
            running.app.chat.update_now()
            assert not banner.called and not queued.called
            running.session.end_turn(TurnStatus.FAILED, detail="The server is gone.")
            await running.settle()
            assert banner.called


async def test_only_one_time_passes_on_the_screen() -> None:
    session = FakeSession()
    async with stage(session) as running:
        session.start_turn("Hello")
        await running.settle()
        running.clock.pass_(12)
        running.app.chat.update_now()
        await running.settle()
        assert "working, Esc stops" in running.text, "the sign where the answer comes has the time"
        session.say("Hi. ")
        await running.settle()
        running.app.chat.update_now()
        await running.settle()
        assert "working 12 s, Esc stops" in running.text
        session.say("Well, well. ")
        await running.settle()
        running.clock.pass_(1)
        await until(lambda: "working 13 s · 4 tokens, Esc stops" in running.text)


async def test_the_time_of_a_call_that_is_in_view_is_the_only_one_wherever_the_view_is() -> None:
    async with stage(said("first", "no\n\n" * 40)) as running:
        await working(running)
        assert "npm test" in running.text and "working, Esc stops" in running.text
        running.app.chat.query_one(Transcript).scroll_up(animate=False)
        running.app.chat.update_now()
        await running.settle()
        assert "npm test" in running.text and "↓" in running.text and "working, Esc stops" in running.text
        await running.press("ctrl+home")
        running.app.chat.update_now()
        await running.settle()
        assert "npm test" not in running.text and "working 13 s, Esc stops" in running.text
