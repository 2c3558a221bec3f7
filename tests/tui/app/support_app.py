"""Starts the app on a scripted session and looks at its screen as text."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, cast

from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Input, TextArea

from chatops.tui.app import ChatopsApp
from chatops.tui.dialogs.approval import ApprovalScreen
from chatops.tui.dialogs.arguments import ArgumentsForm
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.question import Question
from chatops.wiring.first_session import Opener
from tests.tui.app.fakes import Clock, FakeSession, FakeWorkspace, opener


@dataclass
class Stage:
    """A running app and everything it talks to."""

    app: ChatopsApp
    pilot: Pilot[None]
    session: FakeSession
    workspace: FakeWorkspace
    clock: Clock

    @property
    def dialog(self) -> ApprovalScreen:
        screen = self.app.screen
        assert isinstance(screen, ApprovalScreen), f"no dialog on top but {screen!r}"
        return screen

    @property
    def dialog_is_open(self) -> bool:
        return isinstance(self.app.screen, ApprovalScreen)

    @property
    def draft(self) -> str:
        return self.app.chat.composer.text

    @property
    def text(self) -> str:
        return screen_text(self.app)

    async def settle(self) -> None:
        """Let everything that is under way be drawn; no time passes on the clock."""
        await self.pilot.pause()
        while not self.app.key_order.settled:
            await self.pilot.pause(0.001)
        while isinstance(screen := self.app.screen, GuardedDialog) and (screen.key_held or not screen.is_drawn):
            await self.pilot.pause(0.01)
        while self.app.chat.composer._letter is not None:
            await self.pilot.pause(0.01)
        await self.app.workers.wait_for_complete()
        await self.pilot.pause()

    async def press(self, *keys: str) -> None:
        """Press keys after a pause long enough for a dialog to take them, one by one."""
        for key in keys:
            self.clock.pass_(1.0)
            await self.app._press_keys([key])
            await self.settle()

    async def type_fast(self, *keys: str) -> None:
        """Press keys a tenth of a second apart, as someone does who writes."""
        for key in keys:
            self.clock.pass_(0.1)
            await self.app._press_keys([key])
        await self.settle()

    async def answer(self, text: str, key: str) -> None:
        """Replace what stands in the question on top by `text` and press `key`."""
        question = self.app.screen
        assert isinstance(question, Question), f"no question on top but {question!r}"
        field = question.query_one("#answer")
        if isinstance(field, TextArea):
            field.load_text(text)
        elif isinstance(field, Input):
            field.value = text
        await self.settle()
        await self.press(key)

    async def fill(self, key: str = "ctrl+s", /, **texts: str) -> None:
        """Write texts into fields of the form for arguments on top, by their names, and press `key`."""
        form = self.app.screen
        assert isinstance(form, ArgumentsForm), f"no form on top but {form!r}"
        names = [field.name for field in form._fields]
        for name, text in texts.items():
            field = form.query_one(f"#field-{names.index(name)}")
            if isinstance(field, TextArea):
                field.load_text(text)
            elif isinstance(field, Input):
                field.value = text
        await self.settle()
        await self.press(key)


def screen_text(app: ChatopsApp, screen: Screen[Any] | None = None) -> str:
    """Text on a screen, by default the current one, without colours and trailing spaces."""
    strips = (screen or app.screen)._compositor.render_strips()
    return "\n".join("".join(segment.text for segment in strip).rstrip() for strip in strips)


@asynccontextmanager
async def stage(
    session: FakeSession | None = None,
    *,
    workspace: FakeWorkspace | None = None,
    size: tuple[int, int] = (80, 24),
    keys: Mapping[str, Sequence[str]] = MappingProxyType({}),
    theme: str = "",
    themes: Path | None = None,
) -> AsyncIterator[Stage]:
    """The app with a session open. `keys`, `theme` and `themes` are as in the user's settings."""
    session, workspace, clock = session or FakeSession(), workspace or FakeWorkspace(), Clock()
    app = ChatopsApp(cast(Opener, opener(session, workspace)), clock=clock, keys=keys, theme=theme, themes=themes)
    with clock.on_events():
        async with app.run_test(size=size, notifications=True) as pilot:
            running = Stage(app=app, pilot=pilot, session=session, workspace=workspace, clock=clock)
            while not app.chat.opened:
                await pilot.pause()
            await running.settle()
            yield running
