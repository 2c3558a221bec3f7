"""Runs slash commands and carries out their replies. Loaded for the first command."""

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from textual import events
from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.commands import handlers
from chatops.tui.commands.replies import (
    Choose,
    Context,
    Copy,
    EditText,
    FindText,
    Notify,
    Replies,
    Reply,
    ScreenAction,
    Send,
    ShowAllPending,
    ShowChanges,
    ShowHelp,
    ShowReply,
    ShowRights,
    ShowSession,
    ShowStep,
    ShowText,
    Then,
    UseTheme,
    Write,
)
from chatops.tui.commands.table import is_known, run_command
from chatops.tui.composer import Composer
from chatops.tui.dialogs.choices import step_picker
from chatops.tui.dialogs.text import Share, TextScreen, found_in, key_table
from chatops.tui.keys import KeyGroup
from chatops.tui.notice import copy, show_notice
from chatops.tui.screens.screen_messages import BackgroundWork
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.screens.switching import SessionSwitcher
from chatops.tui.textual_internals import remove_notices
from chatops.tui.theme import theme_of
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.domain.files import FileRef
    from chatops.runtime.view import SessionView
    from chatops.tui.dialogs.modal import Page


class CommandPresenter:
    """Runs commands with the context of the moment. What only the chat screen can do is passed to it as functions."""

    def __init__(
        self,
        screen: Screen[Any],
        *,
        themes: Themes,
        sending: SendingPresenter,
        switcher: SessionSwitcher,
        background: BackgroundWork,
        show_session: "Callable[[Awaitable[SessionView]], Awaitable[None]]",
        find: Callable[[str, str], Awaitable[None]],
        actions: Mapping[ScreenAction, Callable[[], None]],
    ) -> None:
        """Create the presenter.

        `find` shows a text in the transcript, first in the message that contains another one. `actions` holds a
        function for each action except `GIVE_BACK`.
        """
        self._screen = screen
        self._themes = themes
        self._sending = sending
        self._switcher = switcher
        self._background = background
        self._show_session = show_session
        self._find = find
        self._actions = actions
        self._unticked: set[tuple[str, str]] = set()
        """The changes that the user has unticked in ``/pending --all``."""
        self._started = math.inf
        """When the last command was started, on the clock of the message field."""
        self._notices: list[str] = []
        """The notices of the last command. They go with the next message or command."""

    async def run(self, text: str) -> None:
        """Run a command. Its text goes back into the message field if nothing was done."""
        await self.opened()
        self._started = self._screen.query_one(Composer).clock()
        if not await self.perform(await run_command(self._switcher.context(), text)):
            # A name that is wrong is corrected.
            self._sending.give_back(text, refused=is_known(text))

    async def opened(self) -> None:
        """Wait until a session is open, or opening one has failed, for a key that was pressed before."""
        await self._sending.ready.wait()

    async def find_text(self) -> None:
        """Let the user find a text in the transcript."""
        await self.opened()
        await self._find("", "")

    async def switch_to_next_role(self) -> None:
        """Switch to the next favourite role."""
        await self.opened()
        await self.perform(await handlers.next_role(self._switcher.context()))

    async def decide_next(self, *, here: bool) -> None:
        """Go to the session with something to decide next; see `decide_next` of the commands."""
        await self.perform(await handlers.decide_next(self._switcher.context(), here=here))

    def choose_step(self) -> None:
        """Let the user choose a step of the session's run, and show its output."""

        async def chosen(context: Context, key: str) -> Replies:
            return (ShowStep(int(key)),)

        current = self._switcher.current
        if current is not None and current.any_run is not None:
            self.choose(Choose(step_picker(current.any_run.view()), chosen))

    async def perform(self, replies: Replies) -> bool:
        """Carry out the replies of a command. Return False if nothing was done, or could be done."""
        self.clear_notices()
        try:
            for reply in replies:
                if reply is ScreenAction.GIVE_BACK:
                    return False
                await self._perform_one(reply)
        except ChatopsError as error:
            self._notify(error.full)
            return False
        return True

    def clear_notices(self) -> None:
        """Remove the notices of the last command."""
        if self._notices:
            remove_notices(self._screen.app, self._notices)
            self._notices.clear()

    async def _perform_one(self, reply: Reply) -> None:
        if isinstance(reply, ShowText | ShowHelp | ShowStep | Choose | EditText):
            await self._sending.typing_paused(since=self._started)
        if isinstance(reply, ShowReply):
            await self._show(reply)
            return
        match reply:
            case Notify():
                self._notify(reply.text)
            case UseTheme():
                self._themes.use(reply.name)
                await self._switcher.context().workspace.user.save_theme(reply.name)
            case Copy():
                copy(self._screen.app, reply.text, reply.what)
            case Write():
                self._sending.write(reply.text)
            case Send():
                await self._sending.work(reply.text)()
            case Then():
                # Not `perform`, which removes the notices of an earlier command.
                for further in await reply.handler(self._switcher.context(), reply.argument):
                    await self._perform_one(further)
            case Choose() | EditText():
                await self._ask(reply)
            case ScreenAction():
                self._actions[reply]()
            case _:
                assert_never(reply)

    async def _show(self, reply: ShowReply) -> None:
        match reply:
            case ShowText():
                self.show_text(reply.title, reply.text, shares=reply.shares)
            case ShowHelp():
                self.show_help(about=reply.word)
            case ShowChanges():
                from chatops.tui.dialogs.changes import COMMANDS_ARE_MISSING, SEE_GIT_DIFF, ChangesScreen

                note = SEE_GIT_DIFF if reply.in_repository else COMMANDS_ARE_MISSING
                page = ChangesScreen(reply.title, reply.changes, note=note)
                await asyncio.to_thread(page.prepare, theme_of(self._screen.app))
                self._show_page(page)
            case ShowAllPending():
                self._show_all_pending(reply)
            case ShowRights():
                from chatops.tui.dialogs.rights import RightsScreen

                self._show_page(RightsScreen(reply.rights))
            case ShowSession():
                await self._show_session(reply.open())
            case FindText():
                await self._find(reply.text, reply.near)
            case ShowStep():
                self.show_step(reply.index)
            case _:
                assert_never(reply)

    def choose(self, reply: Choose) -> None:
        """Let the user choose, then carry out what the choice replies."""

        def closed(key: str | None) -> None:
            if key is not None and key != reply.current:
                self._background.start(partial(self._perform_choice, reply, key), group="picked")

        self._screen.app.push_screen(reply.picker, closed)

    async def _perform_choice(self, reply: Choose | ShowAllPending, key: str) -> None:
        await self.perform(await reply.chosen(self._switcher.context(), key))

    def _show_all_pending(self, reply: ShowAllPending) -> None:
        from chatops.tui.dialogs.all_pending import AllPendingScreen

        def open_session(session_id: str) -> None:
            self._background.start(partial(self._perform_choice, reply, session_id), group="picked")

        session = self._switcher.context().session
        screen = AllPendingScreen(
            reply.calls,
            reply.waiting,
            self._screen.query_one(Composer),
            current=session.session_id,
            workspace=session.snapshot().workspace,
            open_session=open_session,
            unticked=self._unticked,
        )
        self._screen.app.push_screen(screen)

    async def _ask(self, reply: Choose | EditText) -> None:
        if isinstance(reply, Choose):
            self.choose(reply)
            return
        from chatops.tui.dialogs.external_editor import NoEditorError, edit_text

        try:
            edited = await edit_text(self._screen.app, reply.text, name=reply.file_name)
        except NoEditorError:
            self.choose(Choose(reply.question, reply.done))
            return
        if edited.text != reply.text:
            try:
                replies = await reply.done(self._switcher.context(), edited.text)
            except ChatopsError as error:
                raise ChatopsError(str(error), advice=f"Your text is in {edited.path}.") from error
            await self.perform(replies)
        edited.discard()

    def open_files(self, files: "Sequence[FileRef]") -> None:
        """Open kept files with the system's program for them."""

        async def opened() -> None:
            for file in files:
                self._notify(await self._switcher.context().workspace.open_file(file))

        self._background.start(opened, group="picked", holds_keys=False)

    async def paste_image(self) -> None:
        """Attach the image on the clipboard to the message. Without one, insert the text that was copied here last."""
        await self.opened()
        composer = self._screen.query_one(Composer)
        try:
            composer.attach(await self._switcher.context().workspace.paste_image())
        except ChatopsError:
            if not self._screen.app.clipboard:
                raise
            composer.insert_paste(self._screen.app.clipboard)

    def show_text(self, title: str, text: str, *, shares: Sequence[Share] = ()) -> None:
        """Show a text to read, and above it the `shares` of a whole as a bar."""
        self._show_page(TextScreen(title, text=text, shares=shares))

    def show_help(self, *, first: KeyGroup = "message", about: str = "") -> None:
        """Show keys and commands, those of the group `first` before the others, or only those about a word."""
        from chatops.tui.commands.help import help_text  # with all dialogs

        if found := found_in(help_text(first=first), about):
            title = f"Help on {about}" if about else "Help"
            self._show_page(TextScreen(title, text=found, draw=key_table))
        else:
            self._notify(f"No key or command is about {about!r}. /help lists them all.")

    def _show_page(self, page: "Page") -> None:
        """Show a page. What is typed on it goes to the message field, as from a dialog that it covers."""
        app = self._screen.app
        below = app.screen

        def closed(typed: str | None) -> None:
            from chatops.tui.dialogs.guarded import GuardedDialog

            if typed and isinstance(below, GuardedDialog):
                below.on_paste(events.Paste(typed))
            elif typed:
                self._screen.query_one(Composer).insert_paste(typed)

        app.push_screen(page, closed)

    def show_step(self, index: int) -> None:
        """Show the output of a step of the session's run."""
        current = self._switcher.current
        if current is not None and current.any_run is not None:
            self.show_text(*current.any_run.step_text(index))

    def _notify(self, text: str) -> None:
        self._notices.append(show_notice(self._screen.app, text))
