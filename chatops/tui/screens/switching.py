"""Shows the first session, and one instead of another: drafts, presenters and subscriptions change with it."""

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.tui.composer import Composer
from chatops.tui.notice import show_notice
from chatops.tui.screens.decisions import DecisionDialogs
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.screen_messages import BackgroundWork, FollowedChanged, RefreshNeeded
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.runtime.session_follower import SessionFollower
    from chatops.runtime.view import SessionView
    from chatops.tui.commands.replies import Context
    from chatops.wiring.first_session import FirstSession
    from chatops.wiring.workspace import Workspace

FIRST_KEYS_S = 0.05
"""Seconds after the first paint before anything else is imported, so that first keys show at once."""
WARM_UP_S = 0.5
"""Seconds from opening the session until the Markdown renderer is imported, if a message is sent meanwhile."""


class SessionSwitcher:
    """Holds the open session. Methods that open another one raise ChatopsError if that fails."""

    def __init__(
        self,
        screen: Screen[Any],
        composer: Composer,
        *,
        themes: Themes,
        drawing: TranscriptPresenter,
        sending: SendingPresenter,
        dialogs: DecisionDialogs,
        background: BackgroundWork,
    ) -> None:
        self._screen = screen
        self._composer = composer
        self._themes = themes
        self._drawing = drawing
        self._sending = sending
        self._dialogs = dialogs
        self._background = background
        self.current: OpenSession | None = None
        """The open session; None while the first one is being opened."""
        self.changing = False
        """True while another session is being opened."""
        self._replacing_lost = False

    def context(self) -> "Context":
        """Return the session and the workspace for a command."""
        from chatops.tui.commands.replies import Context  # with all replies; the first paint needs none

        current, themes = self.current, self._themes
        own, run = (current.own_run, current.any_run) if current is not None else (None, None)
        return Context(
            opened=(current.session, current.workspace) if current is not None else None,
            run=current.run if current is not None else None,
            steps=run.step_names if run is not None else None,
            settings_locked=own.settings_locked() if own is not None else "",
            themes=themes.names,
            theme=themes.choice,
            preview_theme=themes.preview,
        )

    async def prepare(self, *, at_once: bool) -> None:
        """Mount the transcript. Wait `FIRST_KEYS_S` before that, unless `at_once` or a message is sent."""
        if not at_once:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._sending.outbox.used.wait(), FIRST_KEYS_S)
        await self._drawing.mount()

    def show_first(self, opened: "FirstSession") -> None:
        """Show the first session. Text typed so far stays."""
        self._composer.set_history(opened.workspace.user.history())
        self._themes.name_roles(opened.workspace.role_colours())
        self._drawing.restyle()
        self.show(opened.session, opened.workspace)
        self._sending.drafts.recall()
        self._dialogs.ask_later(opened.trust)

    def submit_sent(self) -> None:
        """Submit the messages sent before the first session was open."""
        if self._sending.outbox.texts:
            submit = partial(self._sending.outbox.submit_all, self._sending.work)
            self._background.start(submit, group="submit", holds_keys=False)
            # The request of a message that waits comes first.
            self._screen.set_timer(WARM_UP_S, self._drawing.warm_up)
        else:
            self._drawing.warm_up()

    def show(self, session: "SessionView", workspace: "Workspace") -> None:
        """Show the messages of a session, then its events as they happen."""
        self._drawing.subscribe(session)
        current = self.current = self._with_presenters(session, workspace)
        self._sending.show(current)
        self._dialogs.show(current)
        self._drawing.show(current)
        # Now, and not once a stored draft is back in the composer: it is not being typed.
        self._dialogs.offer(session.snapshot())
        self._screen.post_message(RefreshNeeded())
        if (presenter := current.any_run) is not None:
            # Start only now, when its events have a subscriber.
            self._background.start(presenter.show, group="run", holds_keys=False)

    def _with_presenters(self, session: "SessionView", workspace: "Workspace") -> OpenSession:
        from chatops.runtime.session_follower import SessionFollower

        follower = session if isinstance(session, SessionFollower) else None
        opened = OpenSession(session=session, workspace=workspace, follower=follower)
        if follower is not None:
            follower.on_change(partial(self._tell_change, follower))
        run = workspace.runs.run_of(session)
        if run is not None or (follower is not None and follower.run is not None):
            from chatops.tui.screens.run import OwnRunPresenter, RunPresenter, followed_run  # few sessions are runs

            screen, clock, user = self._screen, self._composer.clock, workspace.user
            if run is not None:
                opened.own_run = opened.any_run = OwnRunPresenter(screen, user, run, clock=clock)
            elif follower is not None:
                opened.any_run = RunPresenter(screen, user, partial(followed_run, follower), clock=clock)
        return opened

    async def change(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. Pending calls of the present one stay pending; typed text becomes its draft.

        A text that was begun behind the command which opens the other session goes there.
        """
        from chatops.toolkit.counting import count_work  # not before the first paint

        self.changing = True
        try:
            with count_work("opening the session"):
                following = await opening
            begun = self._composer.take_text() if self._sending.runs_typed else ""
            self._sending.drafts.keep()
            self._composer.set_text(begun)
            left = self.current
            await self._show_instead(following)
            self._sending.drafts.recall()
        finally:
            self.changing = False
        await _delete_unused_copy(left)

    async def reopen(self, opening: "Awaitable[SessionView]") -> None:
        """Reopen the same session in another mode: owned by this process, or followed.

        Typed text stays in the message field. A draft typed in the owning process is added to it.
        """
        following, drafts = await opening, self._sending.drafts
        if self._follows:
            # Store the current text, so that `recall` recognises it as the same.
            drafts.keep()
        await self._show_instead(following)
        if self._follows:
            drafts.keep()
        else:
            drafts.recall()

    @property
    def _follows(self) -> bool:
        return self.current is not None and self.current.follows

    async def _show_instead(self, following: "SessionView") -> None:
        before = self.current
        assert before is not None
        self.show(following, before.workspace)
        await before.leave()

    # A session changes its owner

    def replace_lost(self) -> bool:
        """Follow the session if another process has taken its lease. Return False if none has."""
        current = self.current
        if current is None or (lost := current.session.taken_over) is None:
            self._replacing_lost = False
            return False
        if not self._replacing_lost:
            self._replacing_lost = True
            # It announced the same.
            self._screen.app.clear_notifications()
            show_notice(self._screen.app, lost.full)
            self._background.start(partial(self._follow_again, current), group="run", holds_keys=False)
        return True

    async def _follow_again(self, current: OpenSession) -> None:
        await self.reopen(current.workspace.sessions.follow(current.session.session_id))

    def followed_changed(self, reader: "SessionFollower") -> None:
        """Draw what has changed in the followed session, and open it here once its lease was obtained."""
        current = self.current
        if current is None or current.follower is not reader:
            return
        self._drawing.show_changes()
        self._dialogs.refresh()
        if not current.claimed and reader.has_lease:
            current.claimed = True
            self._background.start(partial(self._open_here, current), group="run", holds_keys=False)

    def _tell_change(self, reader: "SessionFollower") -> None:
        self._screen.post_message(FollowedChanged(reader))

    async def take_over(self) -> None:
        """Take over a session that is open elsewhere. A second time, seize it."""
        follower = self.current.follower if self.current is not None else None
        if follower is None:
            show_notice(self._screen.app, "This session is already open here.")
            return
        try:
            await follower.take_over()
        finally:
            self._tell_change(follower)

    async def open_free(self) -> None:
        """Open the followed session here, which no process owns any more. Raises ChatopsError."""
        current = self.current
        assert current is not None and current.follower is not None
        current.claimed = True
        try:
            await current.follower.take_over()
        except ChatopsError:
            current.claimed = False
            raise
        await self._open_here(current)

    async def _open_here(self, followed: OpenSession) -> None:
        try:
            await self.reopen(followed.workspace.sessions.open(SessionId(followed.session.session_id)))
        except ChatopsError:
            followed.claimed = False
            raise
        # Notices such as "The message was not sent" are about the session as it was followed.
        self._screen.app.clear_notifications()

    async def close(self) -> str:
        """Store the draft and close the session. Return what becomes of its turn; see `OpenSession.leave`."""
        self._sending.drafts.keep()
        self._drawing.unsubscribe()
        if self.current is None:
            return ""
        goes_on = await self.current.leave()
        await _delete_unused_copy(self.current)
        return goes_on


async def _delete_unused_copy(left: OpenSession | None) -> None:
    # Where that fails, there is a session more.
    with suppress(ChatopsError):
        if left is not None and left.session.session_id:
            await left.workspace.sessions.delete_copy_looked_at(SessionId(left.session.session_id))
