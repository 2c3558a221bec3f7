"""Shows the first session once it is open. The message field is used before that."""

import asyncio
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.tui.composer.composer import Composer
from chatops.tui.notice import show_notice
from chatops.tui.screens.background import BackgroundWork
from chatops.tui.screens.decisions import DecisionDialogs
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.screens.status import StatusPresenter
from chatops.tui.screens.switching import SessionSwitcher
from chatops.tui.status.banner import Banner
from chatops.tui.status.status_line import StatusLine
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.wiring.workspace import FirstSession

FIRST_KEYS_S = 0.05
"""Seconds after the first paint before anything else is imported, so that first keys show at once."""
WARM_UP_S = 0.5
"""Seconds from opening the session until the Markdown renderer is imported, if a message is sent meanwhile."""


class OpeningPresenter:
    """Shows the first session, with the text typed and the messages sent before it was open."""

    def __init__(
        self,
        screen: Screen[Any],
        composer: Composer,
        *,
        themes: Themes,
        drawing: TranscriptPresenter,
        sending: SendingPresenter,
        dialogs: DecisionDialogs,
        switcher: SessionSwitcher,
        status: StatusPresenter,
        background: BackgroundWork,
    ) -> None:
        """Create it for the chat screen and its presenters."""
        self._screen = screen
        self._composer = composer
        self._themes = themes
        self._drawing = drawing
        self._sending = sending
        self._dialogs = dialogs
        self._switcher = switcher
        self._status = status
        self._background = background

    async def prepare(self, *, at_once: bool) -> None:
        """Mount the transcript. Wait `FIRST_KEYS_S` before that, unless `at_once` or a message is sent."""
        if not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending.outbox.used.wait(), FIRST_KEYS_S)
        await self._drawing.mount()

    def show(self, opened: "FirstSession") -> None:
        """Show the session. Text typed so far stays."""
        self._composer.set_history(opened.workspace.user.history())
        self._themes.name_roles(opened.workspace.role_colours())
        self._drawing.restyle()
        self._switcher.show(opened.session, opened.workspace)
        self._sending.drafts.recall()
        self._status.pending_elsewhere = opened.pending_elsewhere
        self._dialogs.trust_question = opened.trust

    def submit_sent(self, opened: "FirstSession") -> None:
        """Show the session's notices, and submit messages sent so far."""
        for notice in (*opened.notices, *opened.session.snapshot().notices):
            show_notice(self._screen.app, notice)
        if self._sending.outbox.texts:
            submit = partial(self._sending.outbox.submit_all, self._sending.work)
            self._background.start(submit, group="submit", holds_keys=False)
            # The request of a message that waits comes first.
            self._screen.set_timer(WARM_UP_S, self._drawing.warm_up)
        else:
            self._drawing.warm_up()
        if not opened.session.snapshot().messages and not opened.choose_session:
            find = partial(self._status.find_open_sessions, opened.workspace)
            self._background.start(find, group="first screen", holds_keys=False)

    def fail(self, error: ChatopsError) -> None:
        """Show the error and its advice. Messages sent meanwhile go back into the message field, before newer text."""
        self._sending.failed = True
        self._sending.ready.set()
        self._screen.query_one(Banner).show(error.full, tone="error")
        self._screen.query_one(StatusLine).say("no session, ctrl+q quits")
        self._sending.return_all()
        self._sending.list_sent()
