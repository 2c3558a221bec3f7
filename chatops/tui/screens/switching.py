"""Shows one session instead of another: drafts, presenters and subscriptions change with it."""

from collections.abc import Awaitable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.tui.commands.replies import Context
from chatops.tui.composer.composer import Composer
from chatops.tui.notice import show_notice
from chatops.tui.screens.background import BackgroundWork
from chatops.tui.screens.decisions import DecisionDialogs
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.screens.messages import Changed
from chatops.tui.screens.sending import SendingPresenter
from chatops.tui.screens.shown import Shown
from chatops.tui.themes import Themes

if TYPE_CHECKING:
    from chatops.runtime.follower import SessionFollower
    from chatops.runtime.view import SessionView
    from chatops.tui.screens.follower import FollowerPresenter
    from chatops.wiring.workspace import Workspace


class SessionSwitcher:
    """Holds the shown session. Methods that open another one raise ChatopsError if that fails."""

    def __init__(
        self,
        screen: Screen[Any],
        composer: Composer,
        *,
        drawing: TranscriptPresenter,
        sending: SendingPresenter,
        dialogs: DecisionDialogs,
        background: BackgroundWork,
    ) -> None:
        self._screen = screen
        self._composer = composer
        self._drawing = drawing
        self._sending = sending
        self._dialogs = dialogs
        self._background = background
        self.shown: Shown | None = None
        """The shown session; None while the first one is being opened."""
        self.changing = False
        """True while another session is being opened."""
        self._replacing_lost = False

    def context(self, themes: Themes) -> Context:
        """Return the session and the workspace for a command."""
        shown = self.shown
        own, run = (shown.own_run, shown.any_run) if shown is not None else (None, None)
        return Context(
            opened=(shown.session, shown.workspace) if shown is not None else None,
            run=shown.run if shown is not None else None,
            steps=run.step_names if run is not None else None,
            settings_locked=own.settings_locked() if own is not None else "",
            themes=themes.names,
            theme=themes.choice,
            preview_theme=themes.preview,
        )

    def show(self, session: "SessionView", workspace: "Workspace") -> None:
        """Show the messages of a session, then its events as they happen."""
        self._drawing.subscribe(session)
        shown = self.shown = self._with_presenters(session, workspace)
        self._sending.show(shown)
        self._dialogs.show(shown)
        self._drawing.show(shown)
        # Now, and not once a stored draft is back in the composer: it is not being typed.
        self._dialogs.offer(session.snapshot())
        self._screen.post_message(Changed())
        if (presenter := shown.own_run or shown.follower) is not None:
            # Start only now, when its events have a subscriber.
            self._background.start(presenter.show, group="run", holds_keys=False)

    def _with_presenters(self, session: "SessionView", workspace: "Workspace") -> Shown:
        screen, clock, user = self._screen, self._composer.clock, workspace.user
        if (run := workspace.runs.run_of(session)) is not None:
            from chatops.tui.screens.run import OwnRunPresenter

            return Shown(
                session=session, workspace=workspace, own_run=OwnRunPresenter(screen, workspace.user, run, clock=clock)
            )
        from chatops.runtime.follower import SessionFollower

        if isinstance(session, SessionFollower):
            from chatops.tui.screens.follower import FollowerPresenter

            follower = FollowerPresenter(screen, user, session, clock=clock)
            return Shown(session=session, workspace=workspace, follower=follower)
        return Shown(session=session, workspace=workspace)

    async def change(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. Pending calls of the present one stay pending; typed text becomes its draft."""
        self.changing = True
        try:
            following = await opening
            self._sending.drafts.keep()
            self._composer.take_text()
            left = self.shown
            await self._show_instead(following)
            self._sending.drafts.recall()
        finally:
            self.changing = False
        await _delete_copy_looked_at(left)

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
        return self.shown is not None and self.shown.follows

    async def _show_instead(self, following: "SessionView") -> None:
        before = self.shown
        assert before is not None
        self.show(following, before.workspace)
        await before.leave()

    # A session changes its owner

    def replace_lost(self) -> bool:
        """Follow the session if another process has taken its lease. Return False if none has."""
        shown = self.shown
        if shown is None or (lost := shown.session.taken_over) is None:
            self._replacing_lost = False
            return False
        if not self._replacing_lost:
            self._replacing_lost = True
            show_notice(self._screen.app, lost.full)
            self._background.start(partial(self._follow_again, shown), group="run", holds_keys=False)
        return True

    async def _follow_again(self, shown: Shown) -> None:
        await self.reopen(shown.workspace.sessions.follow(shown.session.session_id))

    def followed_changed(self, reader: "SessionFollower") -> None:
        """Draw what has changed in the followed session, and open it here once its lease was obtained."""
        follower = self.shown.follower if self.shown is not None else None
        if follower is None or follower.reader is not reader:
            return
        self._drawing.apply(follower.changes())
        self._dialogs.refresh()
        if follower.claim():
            self._background.start(partial(self._open_here, follower), group="run", holds_keys=False)

    async def take_over(self) -> None:
        """Take over a session that is open elsewhere. A second time, seize it."""
        follower = self.shown.follower if self.shown is not None else None
        if follower is not None:
            await follower.take_over()
        else:
            show_notice(self._screen.app, "This session is already open here.")

    async def _open_here(self, follower: "FollowerPresenter") -> None:
        assert self.shown is not None
        try:
            await self.reopen(self.shown.workspace.sessions.open(follower.reader.session_id))
        except ChatopsError:
            follower.opening_failed()
            raise
        # Notices such as "The message was not sent" are about the session as it was followed.
        self._screen.app.clear_notifications()

    async def close(self) -> None:
        """Store the draft and close the session."""
        self._sending.drafts.keep()
        self._drawing.unsubscribe()
        if self.shown is not None:
            await self.shown.leave()
            await _delete_copy_looked_at(self.shown)


async def _delete_copy_looked_at(left: Shown | None) -> None:
    # Where that fails, there is a session more.
    with suppress(ChatopsError):
        if left is not None and left.session.session_id:
            await left.workspace.sessions.delete_copy_looked_at(SessionId(left.session.session_id))
