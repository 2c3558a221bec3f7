"""The Textual app: one chat screen, the keys that work everywhere, and quitting.

Nothing heavy is imported with it. Registry, store, models and the other screens come after the first paint.
"""

import asyncio
import logging
import math
import os
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType, MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

from textual import events, on
from textual.app import App
from textual.await_complete import AwaitComplete
from textual.binding import Binding
from textual.filter import ANSIToTruecolor, LineFilter
from textual.notifications import Notification
from textual.screen import Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.widgets import Input, TextArea
from textual.worker import WorkerFailed

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.startup import settle_collector
from chatops.tui.composer import Composer
from chatops.tui.driver import TerminalDriver
from chatops.tui.graphics import Graphics
from chatops.tui.key_order import KeyOrder
from chatops.tui.keys import DEFAULTS, Keymap, key_of, use_keymap
from chatops.tui.notice import copy, plain, show_notice
from chatops.tui.screens.chat import ChatScreen
from chatops.tui.screens.screen_messages import PendingChanged
from chatops.tui.terminal import Attention, TerminalTraits
from chatops.tui.textual_internals import AppHooks, ErrorBoundary, wait_until_mounted
from chatops.tui.themes import AUTO, Themes

if TYPE_CHECKING:
    from textual.driver import Driver

    from chatops.tui.dialogs.guarded import GuardedDialog
    from chatops.wiring.first_session import Opener

COLLECT_AFTER_S = 2.0
"""Seconds from the first paint until garbage is collected: until then a session opens, and modules are imported."""
_NEVER_QUEUED = ("ctrl+c", "ctrl+q", "ctrl+z")
"""Keys that are not queued behind earlier ones. `KeyOrder.may_pass` has the exception."""
QUIT_AGAIN_S = 2.0
"""Two ctrl+c within this many seconds quit."""
LEAVE_AGAIN_S = 10.0
"""Two quit keys within this many seconds quit although a turn runs. With less, a user has not read what that does."""
_TOO_MANY, _WITHIN_S = 30, 10.0
"""This many errors within this many seconds end the app: a UI that fails at every frame is useless."""
_SHOW_ERROR_AGAIN_S = 10.0
"""Seconds after which an error from the same place in the code is shown again."""
log = logging.getLogger(__name__)


class ChatopsApp(ErrorBoundary, AppHooks):
    """Shows sessions. `opener` is awaited after the first paint and returns the first session."""

    CSS_PATH = "app.tcss"
    TITLE = "chatops"
    BINDINGS: ClassVar = [
        Binding(DEFAULTS["interrupt"], "interrupt", priority=True),
        Binding(DEFAULTS["quit"], "quit", priority=True),
        Binding(DEFAULTS["suspend"], "suspend_process", priority=True),
    ]

    def __init__(
        self,
        opener: "Opener",
        *,
        clock: Callable[[], float] = time.monotonic,
        theme: str = "",
        themes: Path | None = None,
        keys: Mapping[str, Sequence[str]] = MappingProxyType({}),
        problem: str = "",
        notifications: bool = True,
        reduced_motion: bool = False,
        traits: TerminalTraits | None = None,
        charset: str = "utf-8",
        keep_unsent: Callable[[Sequence[str]], bool] = lambda texts: False,
        chooses: bool = False,
    ) -> None:
        """Create the app.

        `clock` returns monotonic seconds. `theme`, `keys`, `notifications`, `reduced_motion` and `problem` come from
        the user's settings, `themes` is the folder of the user's own themes. `traits` and `charset` say what the
        terminal can show. `keep_unsent` stores messages sent before there is a session, and returns False if it cannot.
        `chooses`: the session picker comes first.
        """
        self._traits = traits or TerminalTraits()
        ScrollBar.renderer = _WholeRows
        super().__init__()
        self._without_colours = None if self._traits.colours else _without_colours()
        self._terminal: TerminalDriver | None = None
        """None without a terminal, as in tests."""
        self.charset = charset
        """The characters that the terminal can show, as a Python codec."""
        self.moves = not reduced_motion and self._traits.colours and charset.startswith("utf")
        """True if the activity sign may be animated, and notices go by themselves."""
        self.conditions: dict[str, Callable[[], bool]] = {}
        """Conditions that notices state, by the texts of the notices: each returns False once it has ended."""
        self._errors = ErrorReporter(clock=clock, show=self._show_error)
        self.fault: Exception | None = None
        """A bug after which the app could not continue."""
        self._quitting: asyncio.Task[None] | None = None
        """Quits for an outside reason, see `leave`."""
        self._opener = opener
        self._clock = clock
        self._interrupted_at: float | None = None
        """Time of the last ctrl+c; None if there was none, or if the next one does not quit."""
        self._warned_at = -math.inf
        """When the user was last told what becomes of a running turn on quitting."""
        self.key_order = KeyOrder(self, held=chooses)
        """Keys that wait for what an earlier one opens, and at first for the session picker."""
        self._leaving = False
        """True once the app is closing, for whatever reason."""
        self._attention = Attention(self._write, enabled=notifications)
        self.failure: ChatopsError | None = None
        """The reason why no session could be opened."""
        # Tests give no traits: what they show must not depend on their terminal.
        sixteen = traits is not None and self.console.color_system == "standard"
        self.themes = Themes(self, environ=os.environ, colours=self._traits.colours, sixteen=sixteen, folder=themes)
        """The theme in use and the colours of roles."""
        self.graphics = Graphics(self._write)
        """Images in the terminal, if it shows any."""
        self._user_keys = Keymap()
        try:
            self._user_keys = Keymap(keys)
        except ChatopsError as error:
            problem = problem or f"settings.yaml: {error} The default keys are used."
        use_keymap(self._user_keys)
        self.chat = ChatScreen(clock=clock, keep_unsent=keep_unsent, themes=self.themes)
        """The session's screen."""
        self._shown_above: set[str] = set()
        """Notices that were shown above the message field, which need no toast over a later dialog."""
        self._settings_problem = problem
        self._use_theme(theme)

    def _use_theme(self, theme: str) -> None:
        if theme and theme not in self.themes.names:
            self._settings_problem = f"settings.yaml: there is no theme {theme}. /theme lists them."
            theme = ""
        try:
            self.themes.use(theme or AUTO)
        except ChatopsError as error:
            self._settings_problem = f"{error} The theme is not used."
            self.themes.use(AUTO)

    @property
    def role_colours(self) -> Mapping[str, str]:
        """A colour for each role, readable in the theme in use."""
        return self.themes.role_colours

    @property
    def shows_pictures(self) -> bool:
        """True if the terminal has half blocks, and colours enough for pictures."""
        return self.themes.many_colours and self.charset.startswith("utf")

    def get_default_screen(self) -> Screen[None]:
        """Return the chat screen, which is below all others."""
        return self.chat

    def on_mount(self) -> None:
        """Open the session after the first paint."""
        self.call_after_refresh(self._after_first_paint)

    async def before_first_message(self) -> None:
        """Wait until the message field has the focus, so that keys typed earlier reach it in order."""
        await wait_until_mounted(self.chat)

    def _after_first_paint(self) -> None:
        if not self.is_headless:
            self.set_timer(COLLECT_AFTER_S, settle_collector)
        self.run_worker(self._open_first(), group="open")

    async def _open_first(self) -> None:
        try:
            await self._open()
        finally:
            self.key_order.release()

    async def _open(self) -> None:
        await self.chat.switcher.prepare(at_once=self.is_headless)
        try:
            opened = await self._opener()
        except ChatopsError as error:
            self.failure = error
            if self.chat.sending.unsaved_text or self.is_headless:
                # Keep the screen, because what was typed would be lost with it.
                self.chat.sending.fail(error)
            else:
                self.exit()
            return
        if self._leaving:
            await opened.session.aclose()
            return
        if opened.session.snapshot().messages:
            # Its answers are drawn once: as plain text first, they would move once Markdown can be drawn.
            from chatops.tui.transcript.answer import warm_up

            await asyncio.to_thread(warm_up)
        self.chat.show_first(opened)
        if self._traits.notice:
            show_notice(self, self._traits.notice)
        if self._settings_problem:
            show_notice(self, self._settings_problem)
        if opened.choose_session:
            await self.chat.open_sessions()
            await wait_until_mounted(self.screen)

    async def action_interrupt(self) -> None:
        """Copy the selection (ctrl+c). With none, clear the text, then stop the turn, then quit."""
        if selected := self._selected_text():
            # Quitting takes two presses in a row without a selection, so this one never counts as the first.
            self._interrupted_at = None
            copy(self, selected, "the selection")
            return
        now = self._clock()
        quits = self._interrupted_at is not None and now - self._interrupted_at <= QUIT_AGAIN_S
        if quits and not self.chat.sending.unsaved_text:
            self.chat.sending.restore()
            await self._close()
            return
        interrupted = await self.chat.sending.interrupt()
        self._interrupted_at = None if interrupted.runs_on else now
        again = f"{key_of('interrupt')} again {'stops the turn' if interrupted.runs_on else 'quits'}."
        self.notify(f"{interrupted.done} {again}".strip(), markup=False, timeout=QUIT_AGAIN_S)
        # The time to answer starts when the notice can be read. On a busy machine that may be a while after the key.
        self.call_after_refresh(self._asked_whether_to_quit)

    def _selected_text(self) -> str:
        """Return the text that the user has selected in the focused field, else on the screen; empty: none."""
        field = self.focused
        ours = field.refused_text if isinstance(field, Composer) else ""
        if isinstance(field, TextArea | Input) and field.selected_text and field.selected_text != ours:
            return field.selected_text
        return self.screen.get_selected_text() or ""

    def copy_to_clipboard(self, text: str) -> None:
        """Send `text` to the terminal. The terminal does not say if it reached a clipboard."""
        super().copy_to_clipboard(plain(text).encode("utf-8", "replace").decode("utf-8"))

    def _asked_whether_to_quit(self) -> None:
        if self._interrupted_at is not None:
            self._interrupted_at = self._clock()

    async def action_quit(self) -> None:
        """Quit. While a turn runs here, say first what becomes of it, and quit the second time."""
        if self._clock() - self._warned_at > LEAVE_AGAIN_S and await self.chat.warn_of_leaving(seconds=LEAVE_AGAIN_S):
            self._warned_at = self._clock()
        else:
            await self._close()

    async def _close(self) -> None:
        """Quit at once. The draft is stored, and pending approvals stay pending."""
        if self._leaving:
            return
        self._leaving = True
        self._attention.close()
        try:
            await self.key_order.typed()
            await self.chat.close()
        except Exception as error:
            # The terminal has to be restored even if closing fails.
            self._errors.note(error)
        self.exit()

    def leave(self) -> None:
        """Quit for an outside reason: a signal, or a terminal that is gone."""
        if self._quitting is None:
            self._quitting = asyncio.get_running_loop().create_task(self._quit())

    async def _quit(self) -> None:
        with self.quit_context():
            await self._close()

    def pop_screen(self) -> AwaitComplete:
        """Close the top screen. The chat screen stays, however often a screen over it is closed."""
        return super().pop_screen() if len(self.screen_stack) > 1 else AwaitComplete()

    def action_command_palette(self) -> None:
        """Open the list of all commands (ctrl+p)."""
        from chatops.tui.commands.table import command_picker  # not needed for the first paint

        def chosen(name: str | None) -> None:
            if name is not None:
                self.chat.run_command(f"/{name}")

        if self.screen is self.chat:
            self.push_screen(command_picker(), chosen)

    def on_guarded_dialog_help_wanted(self, message: "GuardedDialog.HelpWanted") -> None:
        """Show the help over a dialog (F1)."""
        self.chat.action_help(message.key_group)

    def shows_notices(self, notices: Sequence[Notification]) -> bool:
        """Show each notice once: above the message field, or as a toast if it comes while another screen is on top."""
        above = bool(self.screen_stack) and self.screen is self.chat
        if above:
            self._shown_above = {notice.identity for notice in notices}
        old = [notice for notice in notices if notice.identity in self._shown_above]
        self.chat.show_notices(old)
        return len(old) == len(notices)

    async def on_event(self, event: events.Event) -> None:
        """Deliver keys in order, and translate those that the user has remapped to the default ones."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            always = isinstance(event, events.Key) and event.key in _NEVER_QUEUED
            if not (always and self.key_order.may_pass(event)) and self.key_order.must_wait(event):
                return
        if isinstance(event, events.Key) and not event.is_forwarded:
            meant = self._user_keys.translated(event.key, in_dialog=len(self.screen_stack) > 1)
            if not meant:
                return
            if meant != event.key:
                event = events.Key(meant, None)
            if not self.moves:
                self.clear_notifications()
        await super().on_event(event)

    # A user who is elsewhere

    @on(PendingChanged)
    def pending_changed(self, message: PendingChanged) -> None:
        """Notify the user of new approvals and questions if the terminal is not focused."""
        self._attention.set_pending(message.pending)

    def on_app_blur(self) -> None:
        """Take note that the terminal has lost the focus."""
        self._attention.focus(False)

    def on_app_focus(self) -> None:
        """Take note that the terminal has the focus again."""
        self._attention.focus(True)

    # Terminal

    def _write(self, data: str) -> None:
        if self._terminal is not None:
            self._terminal.write(data)

    @property
    def terminal_unresponsive(self) -> bool:
        """True if the terminal read nothing when it was given back. Writing to it would block."""
        return self._terminal is not None and self._terminal.is_unresponsive

    def get_driver_class(self) -> "type[Driver]":
        """Return the factory of the driver for a terminal. Textual calls it like a class."""
        return self._terminal_driver  # type: ignore[return-value]

    def _terminal_driver(self, app: "App[Any]", **settings: Any) -> TerminalDriver:
        self._terminal = TerminalDriver(
            app,
            charset=self.charset,
            on_lost=self.leave,
            redraw=self.redraw,
            takes_text=self.takes_text,
            on_background=self.themes.background_reported if self._traits.colours else None,
            on_answer=self.graphics.answered if self.console.color_system == "truecolor" else None,
            on_entered=self._entered,
            on_leaving=self.graphics.leave,
            **settings,
        )
        return self._terminal

    def _entered(self) -> None:
        if self.graphics.keys:
            self.run_worker(self._send_images_again(), group="images", exclusive=True)

    async def _send_images_again(self) -> None:
        """Send the images one by one: what waits for a slow terminal is bounded, and keys are shown in between."""
        for text in self.graphics.again():
            while self._terminal is not None and not self._terminal.is_idle:  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            self._write(text)

    def takes_text(self) -> bool:
        """Return True if a letter can only be inserted: no dialog is open, and R is not offered to retry the turn."""
        return self.screen_stack == [self.chat] and not self.chat.composer.retry_offered

    def redraw(self) -> None:
        """Redraw everything, because the terminal has lost its content."""
        if self.is_running and self.screen_stack:
            self.app_resume_signal.publish(self)
            self.screen.refresh(layout=True)

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen the last frame; 0 while the terminal lags behind."""
        return self._terminal.shown_for() if self._terminal is not None else math.inf

    def keys_wait(self) -> bool:
        """Return True if keys that were read already have not been delivered yet."""
        return self.key_order.keys_wait

    def action_suspend_process(self) -> None:
        """Give the terminal to the shell until ``fg`` (ctrl+z). The process is stopped until then."""
        if self._terminal is not None:
            self._terminal.stop_process(group=True)

    def skips_frame(self) -> bool:
        """Return True while the terminal is busy with earlier frames. A whole frame follows then."""
        return self._terminal is not None and self._terminal.skips_frame()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return the filters of drawn text. Without colours, ours replaces those of Textual."""
        filters = super().get_line_filters()
        if self._without_colours is None:
            return filters
        return [*(kept for kept in filters if isinstance(kept, ANSIToTruecolor)), self._without_colours]

    def get_css_variables(self) -> dict[str, str]:
        """Return theme variables. Without colours, what is selected differs by brightness: it is drawn in reverse."""
        if not hasattr(self, "themes"):
            return {}  # A theme is chosen later, and there is no widget yet.
        variables = super().get_css_variables()
        if not self._traits.colours:
            selection = {"background": variables["foreground"], "foreground": variables["background"]}
            for place in ("screen-selection", "input-selection", "block-cursor", "block-cursor-blurred"):
                variables |= {f"{place}-{part}": colour for part, colour in selection.items()}
        return variables

    # Errors of the app

    def handle_error(self, error: Exception) -> None:
        """Show the error and continue, as long as a session is on the screen."""
        can_continue = self.is_running and self._errors.note(error) and (self.chat.opened or self.failure is not None)
        if not can_continue and self.fault is None:
            self.fault = error
            if self.is_running:
                self.leave()

    def _show_error(self, text: str) -> None:
        if self.is_running:
            show_notice(self, text, severity="error", seconds=20)


class _WholeRows(ScrollBarRender):
    """A scroll bar of blank cells: no pieces of blocks in what is copied or read aloud."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "]
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "]


def _without_colours() -> LineFilter:
    from chatops.tui.theme import WithoutColours  # needed on few terminals

    return WithoutColours()


class ErrorReporter:
    """Records errors. `clock` returns monotonic seconds, `show` shows a line to the user."""

    def __init__(self, *, clock: Callable[[], float], show: Callable[[str], None]) -> None:
        self._clock = clock
        self._show = show
        self._times: deque[float] = deque(maxlen=_TOO_MANY)
        self._shown: dict[tuple[type[BaseException], CodeType | None, int], float] = {}
        """When an error of this type from this line of code was shown last."""

    def note(self, error: Exception) -> bool:
        """Log an error, and show it unless one from the same line was just shown.

        Returns False if there were so many that continuing makes no sense.
        """
        cause = error.error if isinstance(error, WorkerFailed) else error
        if log.hasHandlers():
            # Without a log file, the logging module would write the traceback over the screen.
            log.error("an error in the screen", exc_info=cause)
        now = self._clock()
        self._times.append(now)
        origin = (type(cause), *_raised_at(cause))
        if now - self._shown.get(origin, now - _SHOW_ERROR_AGAIN_S) >= _SHOW_ERROR_AGAIN_S:
            self._shown[origin] = now
            text = sanitize(f"{type(cause).__name__}: {cause}", newlines=False)
            self._show(f"Internal error ({text[:200]}). The session continues.{_log_file_words()}")
        return len(self._times) < _TOO_MANY or now - self._times[0] > _WITHIN_S


def _raised_at(error: BaseException) -> tuple[CodeType | None, int]:
    """Return the function and the line that raised an error."""
    trace = error.__traceback__
    if trace is None:
        return None, 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return trace.tb_frame.f_code, trace.tb_lineno


def _log_file_words() -> str:
    files = [
        handler.baseFilename for handler in logging.getLogger().handlers if isinstance(handler, logging.FileHandler)
    ]
    return f" Details: {files[0]}" if files else ""
