"""A run of a workflow that another process leads, on the screen of one who follows: the same panel, live."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from chatops.domain.events import Event, PendingCall
from chatops.domain.ids import SessionId
from chatops.domain.tools import Capabilities, built_in_capabilities
from chatops.engine.state import TurnState
from chatops.engine.view import pending_calls
from chatops.engine.workflow.state import WorkflowState
from chatops.runtime.session_follower import LeaseRequestState, SessionFollower
from chatops.runtime.view import SessionView, Snapshot
from chatops.store.base import Holder, LeaseRow
from chatops.tui.dialogs.picker import Picker
from chatops.tui.dialogs.text import TextScreen
from chatops.tui.workflow import PanelShape, WorkflowPanel
from tests.support.runs import RUN
from tests.tui.app.fake_run import FakeRun
from tests.tui.app.scenes import assembly, busy, discovered, to_review
from tests.tui.app.support_app import Stage, stage

ELSEWHERE = LeaseRow(holder=Holder(host="here", pid=77, boot_id="boot", pid_started="1"), since=0.0, expires_at=1e12)


class FakeReader(SessionFollower):
    """Reads a run that the test plays; `looks` is a look at the store."""

    def __init__(self, run: FakeRun) -> None:
        self.led = run
        self.held: LeaseRow | None = ELSEWHERE
        self.left = False
        self.looks: Callable[[], None] = lambda: None

    def capabilities(self, tool: str) -> Capabilities:
        return built_in_capabilities(tool)

    @property
    def session_id(self) -> SessionId:
        return RUN

    @property
    def run(self) -> WorkflowState:
        return self.led.play.state

    @property
    def state(self) -> TurnState | None:
        return self.led.play.turn

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        return pending_calls(self.state) if self.state is not None else ()

    @property
    def is_job(self) -> bool:
        return False

    @property
    def lease(self) -> LeaseRow | None:
        return self.held

    @property
    def request_state(self) -> LeaseRequestState:
        return LeaseRequestState.HELD if self.held is not None else LeaseRequestState.FREE

    def since(self) -> str:
        return "10:15"

    def snapshot(self) -> Snapshot:
        return self.led.session.snapshot()

    def events(self, run: WorkflowState | None = None) -> Iterator[Event]:
        return self.led.session.events(run)

    def subscribe(self, listener: object) -> Callable[[], None]:
        return lambda: None

    def on_change(self, changed: Callable[[], None]) -> None:
        self.looks = changed

    async def aclose(self) -> None:
        self.left = True


@asynccontextmanager
async def reading(
    scene: Callable[[FakeRun], None], *, size: tuple[int, int] = (80, 24)
) -> AsyncIterator[tuple[Stage, FakeReader]]:
    run = FakeRun(assembly())
    run.play.begin()
    scene(run)
    reader = FakeReader(run)

    async def opened() -> SessionView:
        return reader

    async with stage(size=size) as running:
        await running.app.chat.change_session(opened())
        await running.settle()
        yield running, reader


async def test_the_panel_shows_steps_and_validations_and_follows_the_run() -> None:
    async with reading(discovered, size=(100, 30)) as (running, reader):
        assert "Open elsewhere (pid 77 on here" in running.text
        assert "✓ 1 discover" in running.text
        assert "▸ 2 configure" in running.text
        reader.led.play.calls("validate_minimal", '{"valid": true}', component="invoice")
        assert "✓ validate_minimal" not in running.app.chat.query_one(WorkflowPanel).render().plain
        reader.looks()
        await running.settle()
        assert "✓ validate_minimal" in running.app.chat.query_one(WorkflowPanel).render().plain


@pytest.mark.more
async def test_keys_in_a_followed_run_only_show_and_change_nothing() -> None:
    async with reading(to_review) as (running, reader):
        shown = running.app.chat.query_one(WorkflowPanel)
        assert shown.shape is PanelShape.ABOVE
        await running.press("ctrl+t")
        assert len(shown.render().plain.splitlines()) == 1
        await running.press("ctrl+l")
        assert isinstance(running.app.screen, Picker)
        await running.press("enter")
        assert isinstance(running.app.screen, TextScreen)
        await running.press("escape")
        running.app.chat.run_command("/workflow show 1")
        await running.settle()
        assert isinstance(running.app.screen, TextScreen)
        await running.press("escape")
        running.app.chat.run_command("/workflow cancel")
        await running.settle()
        assert "This run is followed read-only" in running.text
        await running.press("ctrl+g", "a", "t", "s", "x")
        assert reader.led.said == []
        assert reader.led.gone_on == 0
        assert not running.workspace.user.step_times(RUN), "how long it took is told by whoever leads it"


async def test_a_run_without_an_owner_is_shown_as_blocked() -> None:
    async with reading(busy) as (running, reader):
        reader.held = None
        reader.looks()
        await running.settle()
        assert "blocked" in running.text


async def test_leaving_removes_the_panel() -> None:
    async with reading(busy) as (running, reader):

        async def back() -> SessionView:
            return running.session

        await running.app.chat.change_session(back())
        await running.settle()
        assert reader.left
        assert not running.app.chat.query(WorkflowPanel)


async def test_text_changed_just_before_a_takeover_is_kept_once() -> None:
    async with reading(busy) as (running, _):
        chat = running.app.chat
        chat.composer.set_text("here")
        chat.sending.drafts.keep()
        chat.composer.set_text("not here")
        running.session.change(session_id=RUN)

        async def taken() -> SessionView:
            return running.session

        await chat.switcher.reopen(taken())
        assert chat.composer.text == "not here"
