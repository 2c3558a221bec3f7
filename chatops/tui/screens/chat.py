"""The chat screen: turns keys into calls of the session and its events into drawing, nothing else.

It owns the message field, the transcript and the status line. A presenter holds what concerns one of them: drawing,
sending, commands, status, dialogs, a workflow run, a followed session. Presenters do not know the chat screen. They
return values, post one of those in `messages`, or call a function that they were given.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.geometry import Offset
from textual.notifications import Notification
from textual.widgets import Static

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import SessionId
from chatops.tui.composer import Completions, Composer
from chatops.tui.first_screen import FirstScreen
from chatops.tui.keys import DEFAULTS, KeyGroup, key_of
from chatops.tui.notice import show_notice
from chatops.tui.screens.decisions import DecisionDialogs
from chatops.tui.screens.drawing import TranscriptPresenter
from chatops.tui.screens.open_session import OpenSession
from chatops.tui.screens.screen_messages import (
    BackgroundWork,
    EventBatch,
    FollowedChanged,
    RefreshNeeded,
    WorkProgressed,
)
from chatops.tui.screens.sending import SendingPresenter, is_command
from chatops.tui.screens.status import StatusPresenter
from chatops.tui.screens.switching import SessionSwitcher
from chatops.tui.status import Banner, Notices, QueuedMessages, StatusLine, TranscriptHint
from chatops.tui.textual_internals import ErrorBoundary, FrameHook, remove_untrue
from chatops.tui.themes import Themes
from chatops.tui.ticker import Ticker

# The first paint shows an empty screen with a message field. The modules that draw a session, and its values, are
# imported right after it.
if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.tui.commands.completion import Completer
    from chatops.tui.screens.commands import CommandPresenter
    from chatops.tui.screens.finding import FindPresenter
    from chatops.tui.transcript.transcript import Transcript
    from chatops.tui.transcript.viewport import Viewport
    from chatops.tui.workflow import WorkflowPanel
    from chatops.wiring.first_session import FirstSession


_RESULT_HANDLED_S = 0.1
"""Seconds from the closing of a screen until its result was handled. Calls are offered after that."""
_TURN_ENDS_TRIES, _TURN_ENDS_RETRY_S = 6, 0.05
"""How often, and how many seconds apart, the screen checks whether a turn has ended by itself."""


class ChatScreen(ErrorBoundary, FrameHook):
    """Transcript, banner, message field, status line."""

    AUTO_FOCUS = "Composer"
    VERTICAL_BREAKPOINTS = [(0, "-lowest"), (10, "-low"), (18, "-tall")]  # noqa: RUF012
    BINDINGS: ClassVar = [
        (DEFAULTS["role"], "command('/role')"),
        Binding(DEFAULTS["next-role"], "next_role", priority=True),
        Binding(DEFAULTS["history"], "command('/history')", priority=True),
        Binding(DEFAULTS["find"], "find", priority=True),
        (DEFAULTS["pending"], "pending"),
        (DEFAULTS["panel"], "fold_panel"),
        (DEFAULTS["steps"], "steps"),
        (DEFAULTS["help"], "help"),
        (DEFAULTS["take-over"], "take_over"),
    ]

    def __init__(
        self, *, clock: Callable[[], float], keep_unsent: Callable[[Sequence[str]], bool], themes: Themes
    ) -> None:
        super().__init__()
        self._themes = themes
        self.composer = Composer(clock=clock, may_send=lambda text: self.sending.may_send(text), id="composer")
        """The message field."""
        self._background = BackgroundWork(self)
        self._drawing = TranscriptPresenter(self, clock=clock)
        self.sending = SendingPresenter(
            self,
            self.composer,
            drawing=self._drawing,
            run_command=lambda text: self._commands.run(text),
            keep_unsent=keep_unsent,
        )
        self._dialogs = DecisionDialogs(self, self.composer)
        self.switcher = SessionSwitcher(
            self,
            self.composer,
            themes=themes,
            drawing=self._drawing,
            sending=self.sending,
            dialogs=self._dialogs,
            background=self._background,
        )
        self._status = StatusPresenter(self, self.composer, themes=themes, sending=self.sending)
        self._ticker = Ticker(self, clock=clock)
        self._update_due = False
        self._pending_asked = False
        """True if ctrl+g was pressed while a session was being opened."""
        self.has_draft = False
        """Set on closing: True if something was typed and not sent."""
        self.unsent_text = ""
        """Set on closing: what was typed and sent before there was a session to store it."""
        self.goes_on = ""
        """Set on closing: what becomes of the turn in the background, as a sentence; empty: nothing."""

    @cached_property
    def _commands(self) -> "CommandPresenter":
        from chatops.tui.commands.replies import ScreenAction
        from chatops.tui.screens.commands import CommandPresenter  # with all replies; the first paint needs none

        return CommandPresenter(
            self,
            themes=self._themes,
            sending=self.sending,
            switcher=self.switcher,
            background=self._background,
            show_session=self.change_session,
            find=self._finding.open,
            actions={
                ScreenAction.TAKE_OVER: self.action_take_over,
                ScreenAction.DECIDE: self._dialogs.open,
                ScreenAction.STEPS: self.action_steps,
                ScreenAction.TRUST: self._ask_trust,
                ScreenAction.QUIT: self._quit,
            },
        )

    @cached_property
    def _finding(self) -> "FindPresenter":
        from chatops.tui.screens.finding import FindPresenter  # with its bar, which the first paint needs not

        return FindPresenter(self, self.composer, self._drawing)

    @cached_property
    def _completer(self) -> "Completer":
        from chatops.tui.commands.completion import Completer  # with all commands; made for the first completion

        return Completer(self.composer, self.query_one(Completions), self.switcher.context)

    def compose(self) -> ComposeResult:
        """Yield the widgets from top to bottom."""
        # Classes that only the first layout sets have all widgets styled once more.
        height = self.app.size.height
        _, css_class = max((least, name) for least, name in self.VERTICAL_BREAKPOINTS if least <= height)
        self.add_class(css_class, update=False)
        self.composer.set_class(self._status.frames, "-framed", update=False)
        yield FirstScreen(id="first")
        yield Static(id="empty")
        yield TranscriptHint(id="unseen")
        yield QueuedMessages(id="queued")
        yield Completions(id="completions")
        yield Notices(id="notices")
        yield Banner(id="banner")
        yield self.composer
        yield StatusLine(
            clock=self.composer.clock,
            counted=lambda: self._drawing.counts_seconds,
            tokens=lambda: self._drawing.tokens,
            id="status",
        )

    def on_mount(self) -> None:
        """Show a status while the session is being opened. The message field can already be used."""
        self.query_one(StatusLine).say("opening the session", awaited=True)
        self._ticker.update(paused=False)
        self._status.fit(self._current)
        self.app.theme_changed_signal.subscribe(self, lambda _: self.refresh_soon())

    def on_resize(self) -> None:
        """Frame the message field, and show the first screen, only where there is room."""
        self._status.fit(self._current)
        self.refresh_soon()

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """Offer calls that arrived while another screen was open, once that screen's result was handled."""
        if not self.stack_updates:
            # At the start all widgets were styled a moment ago, when they were mounted.
            event.refresh_styles = False
        self.set_timer(_RESULT_HANDLED_S, self.update_now)
        self._find_open_sessions()

    def _find_open_sessions(self) -> None:
        """Renew the list of the first screen, while that is shown: another screen may have decided or deleted."""
        current = self._current
        if current is not None and not current.session.snapshot().messages:
            find = partial(self._status.find_open_sessions, current.workspace)
            self._background.start(find, group="first screen", exclusive=True, holds_keys=False)

    # Values

    @property
    def _current(self) -> OpenSession | None:
        return self.switcher.current

    @property
    def opened(self) -> bool:
        """True once a session is open."""
        return self._current is not None

    @property
    def session(self) -> "SessionView":
        """The open session. Raises ChatopsError if it is still being opened.

        Also available after the app has ended.
        """
        # The context of commands imports all their replies, for which leaving would wait.
        return (self._current or self.switcher.context()).session

    # Opening the first session

    def show_first(self, opened: "FirstSession") -> None:
        """Show the first session. Text typed so far stays, and messages sent so far are submitted."""
        self._status.note_pending(opened.pending_elsewhere)
        self.switcher.show_first(opened)
        self.update_now()
        for notice in (*opened.notices, *opened.session.snapshot().notices):
            show_notice(self.app, notice)
        self.switcher.submit_sent()
        if opened.choose_session:
            return
        self._find_open_sessions()
        self._show_pending_if_asked()

    # Switching sessions

    async def change_session(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. Pending calls of the present one stay pending; typed text becomes its draft."""
        self._status.note_pending("")
        self._finding.close()
        try:
            await self.switcher.change(opening)
        finally:
            self._find_open_sessions()
            self._show_pending_if_asked()

    async def warn_of_leaving(self, *, seconds: float) -> bool:
        """Say for some seconds what becomes of the turn that runs here if the user leaves.

        Return False if none runs, or a dialog is open. A job continues: only a tool that runs here is stopped.
        """
        if (current := self._current) is None or current.follows:
            return False
        for _ in range(_TURN_ENDS_TRIES):
            if self._dialogs.any_open or not current.session.snapshot().runs:
                return False
            # An answer is on the screen shortly before its turn is stored.
            await asyncio.sleep(_TURN_ENDS_RETRY_S)
        if await current.workspace.jobs.continues(SessionId(current.session.session_id)):
            from chatops.engine.view import runs_tools  # the first paint does without it

            def tool_runs() -> bool:
                return current.session.state is not None and runs_tools(current.session.state)

            text = f"A tool runs here. {key_of('quit')} again stops it and quits; the job may ask you what it did."
            if tool_runs():
                show_notice(self.app, text, seconds=seconds, holds=tool_runs)
            return tool_runs()
        again = f"{key_of('quit')} again stops it and quits, and chatops -c continues it."
        text = f"A turn is running. {again} /background lets it continue without this window."
        if current.run is not None and not current.run.over:
            text = f"A step of the workflow is running. {again}"
        show_notice(self.app, text, seconds=seconds, holds=lambda: current.session.snapshot().runs)
        return True

    async def close(self) -> None:
        """Store the draft and close the session."""
        self.has_draft = self.opened and bool(self.composer.text)
        self.unsent_text = "" if self.opened else self.sending.unsaved_text
        self.goes_on = await self.switcher.close()

    # Taking over a followed session

    def action_take_over(self) -> None:
        """Take over a session that is open elsewhere (F2). A second time, seize it."""
        if self.opened:
            self._background.start(self.switcher.take_over, group="take over", exclusive=True, holds_keys=False)

    @on(FollowedChanged)
    def followed_changed(self, message: FollowedChanged) -> None:
        """Draw what has changed in the followed session, and open it here once its lease was obtained."""
        self.switcher.followed_changed(message.follower)
        self.refresh_soon()

    # Events to drawing

    @on(EventBatch)
    def draw_batch(self, message: EventBatch) -> None:
        """Draw a batch of events. A batch of a session that is no longer shown is dropped."""
        if self._current is None or message.session is not self._current.session:
            return
        events = self._drawing.draw(message)
        if not events:
            return
        self._dialogs.feed(events)
        self._status.feed(events, self._current.workspace)
        if self._current.own_run is not None:
            self._current.own_run.feed(events)
        self.refresh_soon()

    @on(WorkProgressed)
    def draw_progress(self, message: WorkProgressed) -> None:
        """Show how far long work of a command is."""
        self._drawing.draw_progress(message.progress)
        if not self._ticker.ticks:
            self.refresh_soon()

    @on(RefreshNeeded)
    def refresh_soon(self) -> None:
        """Schedule one update of everything but the transcript."""
        if not self._update_due:
            self._update_due = True
            self.call_after_refresh(self.update_now)

    def update_now(self) -> None:
        """Update status line, banner and dialog from the session's current state."""
        self._update_due = False
        current = self._current
        if current is None or not self.is_attached or not self.children:
            return
        if self.switcher.replace_lost():
            return
        remove_untrue(self.app)
        snapshot = current.session.snapshot()
        running = snapshot.runs and not current.follows
        retry = self._status.update(current, snapshot, running=running, dialog=self._dialogs.any_open)
        self.sending.list_sent(snapshot)
        self._drawing.draw_state(snapshot, running=running, retry=retry)
        self._drawing.draw_elsewhere(current.elsewhere(snapshot))
        if current.any_run is not None:
            current.any_run.update()
        self._dialogs.offer(snapshot)
        # A call that waits for the user's answer to a server is at rest.
        self._ticker.update(paused=bool(snapshot.questions))

    @on(FirstScreen.TipChosen)
    def take_tip(self, message: FirstScreen.TipChosen) -> None:
        """Offer a tip of the first screen as the message. Enter sends it."""
        self.sending.give_back(message.text)
        self.composer.focus()

    # Sending

    @on(Composer.Submitted)
    def submitted(self, message: Composer.Submitted) -> None:
        """Send a message, or run a slash command. Before a session is open, keep it until then."""
        if "_commands" in vars(self):
            # It is not made before the first command.
            self._commands.clear_notices()
        follower = self._current.follower if self._current is not None else None
        if follower is not None and follower.is_over and not is_command(message.text):
            self._background.start(partial(self._open_and_send, message.text), group="submit")
        elif (work := self.sending.submit(message.text, correcting=message.correcting)) is not None:
            self._background.start(work, group="submit", holds_keys=is_command(message.text))

    async def _open_and_send(self, text: str) -> None:
        """Open the followed session here, and send a message in it."""
        try:
            await self.switcher.open_free()
        except ChatopsError:
            self.sending.give_back(text)
            raise
        await self.sending.work(text)()

    @on(Composer.QueueKey)
    def queue_key(self, message: Composer.QueueKey) -> None:
        """Take back, mark, remove or send queued messages."""
        self._background.start(partial(self.sending.press_queue_key, message.key), group="queue")

    @on(Composer.Retry)
    def retry(self) -> None:
        """Retry a failed turn (R)."""
        self._drawing.follow_end()
        self.run_command("/retry")

    @on(Composer.ImageWanted)
    def paste_image(self) -> None:
        """Attach the image on the clipboard (ctrl+v), or insert what was copied here last."""
        self._background.start(self._commands.paste_image, group="paste")

    # Commands

    def run_command(self, text: str) -> None:
        """Run a slash command chosen elsewhere, as in the palette."""
        self._background.start(partial(self._commands.run, text), group="submit")

    def _quit(self) -> None:
        self.app.run_worker(self.app.action_quit(), group="quit")

    # What is shown over the screen

    def show_notices(self, notices: Sequence[Notification]) -> None:
        """Show the notices above the message field, where they cover nothing."""
        if self.is_attached:
            self.query_one(Notices).show(notices)

    def action_help(self, first: KeyGroup = "message") -> None:
        """Show keys and commands (F1), those of the group `first` before the others."""
        self._commands.show_help(first=first)

    def action_command(self, text: str) -> None:
        """Run a slash command by its key, as `/role` (ctrl+r) and `/history` (alt+r)."""
        if self.is_active:
            self._background.start(partial(self._commands.run, text), group="picker", exclusive=True)

    def action_next_role(self) -> None:
        """Switch to the next favourite role (shift+Tab)."""
        self._background.start(self._commands.switch_to_next_role, group="picker", exclusive=True)

    async def open_sessions(self) -> None:
        """Let the user choose a session."""
        await self._commands.run("/sessions")

    def action_fold_panel(self) -> None:
        """Fold the run's panel to one line, or open it (ctrl+t)."""
        if self._current is not None and (run := self._current.any_run) is not None:
            run.panel.toggle()

    def action_steps(self) -> None:
        """List the steps of the run and their outputs (ctrl+l)."""
        if self.is_active:
            self._commands.choose_step()

    def action_pending(self) -> None:
        """Open what needs a decision (ctrl+g): in this session, else in another one of the workspace."""
        if not self.opened or self.switcher.changing:
            self._pending_asked = True
        else:
            here = self._dialogs.has_pending
            self._background.start(partial(self._commands.decide_next, here=here), group="sessions", exclusive=True)
            if here:
                self._dialogs.open()

    def _show_pending_if_asked(self) -> None:
        asked, self._pending_asked = self._pending_asked, False
        if asked:
            self.action_pending()

    def _ask_trust(self) -> None:
        self._background.start(self._dialogs.ask_trust_again, group="trust", exclusive=True)

    # Stopping

    @on(Composer.Stop)
    async def stop(self) -> None:
        """Stop the answer and clear the selection, so that ctrl+c stops and quits again."""
        self.clear_selection()
        self.sending.unmark()
        if self._finding.close() or self._dialogs.warn_of_stop():
            return
        if self._current is not None and not await self._current.session.cancel():
            self.update_now()

    @on(Composer.Quit)
    def leave_by_key(self) -> None:
        """Quit on ctrl+d with nothing typed."""
        self._quit()

    # Keys and clicks that belong to another widget

    @on(Composer.TranscriptKey)
    def transcript_key(self, message: Composer.TranscriptKey) -> None:
        """Scroll the transcript, or select, open and copy blocks, while the message field keeps the focus."""
        self._drawing.press(message.key)

    @on(Composer.CompletionRequested)
    def completing(self, message: Composer.CompletionRequested) -> None:
        """Offer, choose or close completions. Tab in the empty field takes a tip, and once more the next one."""
        self.sending.typed()
        if not message.key:
            self.clear_selection()
        if message.key == "tab" and (tip := self.query_one(FirstScreen).tip_after(self.composer.text)):
            self.composer.set_text(tip)
        elif message.key or "_completer" in vars(self) or any(sign in self.composer.text for sign in "/@"):
            self._completer.handle(message.key)

    def on_viewport_unseen(self, message: "Viewport.Unseen") -> None:
        """Show what is below the view."""
        self.query_one(TranscriptHint).count_unseen(message.messages, calls=message.calls, more=message.more)

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the selected block; None, which is the message field, without one."""
        transcript = self._drawing.transcript
        return transcript.selected_place if transcript is not None and transcript.selected_block else None

    def on_transcript_selected(self, message: "Transcript.Selected") -> None:
        """Show the keys of the selected block. They also work in the message field."""
        self.composer.block_selected, self.composer.opens_by = bool(message.block_id), message.more.key
        self.query_one(TranscriptHint).show_keys(selected=bool(message.block_id), more=message.more)

    def on_transcript_files_wanted(self, message: "Transcript.FilesWanted") -> None:
        """Open the files of a block with another program."""
        self._commands.open_files(message.files)

    def on_transcript_delegated_wanted(self, message: "Transcript.DelegatedWanted") -> None:
        """Show what was done for a delegated call."""
        self.run_command(f"/delegated {message.call_id}")

    def on_transcript_opened(self, message: "Transcript.Opened") -> None:
        """Show the source of a message."""
        self._commands.show_text(message.title, message.text)

    def action_find(self) -> None:
        """Find a text in the transcript (ctrl+f)."""
        self._background.start(self._commands.find_text, group="find bar", exclusive=True)

    @on(TranscriptHint.Clicked)
    def show_end(self) -> None:
        """Scroll to the end after a click on the line that counts new blocks."""
        self._drawing.follow_end()

    def on_workflow_panel_step_clicked(self, message: "WorkflowPanel.StepClicked") -> None:
        """Show the output of the clicked step."""
        self._commands.show_step(message.step)

    def on_key(self, event: events.Key) -> None:
        """Send a letter or Esc that no field took to the message field.

        It was typed after a click moved the focus away, or before any widget had the focus.
        """
        if event.key == "escape":
            event.stop()
            self.composer.focus()
            self.composer.post_message(Composer.Stop())
        elif event.is_printable and event.character:
            event.stop()
            self.composer.focus()
            self.composer.append_typed(event.character)

    def on_paste(self, event: events.Paste) -> None:
        """Insert a paste that no field took into the message field."""
        event.stop()
        self.composer.insert_paste(event.text)
