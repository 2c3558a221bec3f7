"""The `Face` part of the chat screen: what slash commands and keys may show over the session."""

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.commands.dispatch import run_command
from chatops.tui.composer.composer import Composer
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.screens import windows
from chatops.tui.textual_internals import LateClickHook

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.host import Host
    from chatops.tui.screens.run_board import RunBoard
    from chatops.tui.screens.run_desk import RunDesk
    from chatops.tui.workflow.panel import WorkflowPanel


class ChatFace(ErrorBoundary, LateClickHook, Screen[None]):
    """The open session, its host, and the dialogs over the screen."""

    BINDINGS: ClassVar = [
        Binding("ctrl+r", "roles", "role", id="role"),
        Binding("ctrl+t", "fold_panel", "fold the panel", id="panel"),
        Binding("ctrl+l", "steps", "outputs of steps", id="steps"),
        Binding("f1", "help", "help", id="help"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._session: SessionView | None = None
        self._host: Host | None = None
        self._desk: RunDesk | None = None

    @property
    def composer(self) -> Composer:
        """The message field."""
        return self.query_one(Composer)

    @property
    def session_id(self) -> str:
        """The id of the open session; empty if there is none, or none that is stored."""
        return self._session.session_id if self._session is not None else ""

    @property
    def opened(self) -> bool:
        """True once a session is open."""
        return self._session is not None

    @property
    def session(self) -> "SessionView":
        """The open session.

        Raises ChatopsError if it is still being opened.
        """
        if self._session is None:
            raise ChatopsError("The conversation is still being opened.", advice="Try again in a moment.")
        return self._session

    @property
    def run(self) -> "WorkflowRun | None":
        """The workflow run of the open session, or None."""
        return self._desk.run if self._desk is not None else None

    @property
    def desk(self) -> "RunDesk | None":
        """The controller of the session's workflow run if it runs here, or None."""
        return self._desk

    @property
    def board(self) -> "RunBoard | None":
        """The display of the session's workflow run, or None."""
        return None

    @property
    def reads_along(self) -> bool:
        """True if another process owns the open session."""
        return False

    @property
    def host(self) -> "Host":
        """The host of the open session.

        Raises ChatopsError if the session is still being opened.
        """
        if self._host is None:
            raise ChatopsError("The conversation is still being opened.", advice="Try again in a moment.")
        return self._host

    @property
    def workspace(self) -> Path | None:
        """The folder in which the session's tools work, or None before a session is open."""
        return Path(self._session.snapshot().workspace) if self._session is not None else None

    def action_roles(self) -> None:
        """Choose a role (ctrl+r)."""
        self.open_roles()

    def action_fold_panel(self) -> None:
        """Fold the run's panel to one line, or open it (ctrl+t)."""
        if self.board is not None:
            self.board.toggle()

    def action_steps(self) -> None:
        """List the steps of the run and their outputs (ctrl+l)."""
        if self.board is not None and self.is_active:
            self.board.open_steps()

    def action_help(self) -> None:
        """Show the help (F1)."""
        self.open_help()

    def on_workflow_panel_step_clicked(self, message: "WorkflowPanel.StepClicked") -> None:
        """Show the output of the clicked step."""
        message.stop()
        self.show_step(message.step)

    def on_workflow_panel_clicked(self, message: "WorkflowPanel.Clicked") -> None:
        """Fold or open the panel after a click outside its steps."""
        message.stop()
        self.action_fold_panel()

    def show_step(self, index: int) -> None:
        """Show the output of a step of the run."""
        if self.board is not None:
            self.board.open_step(index)

    def run_command(self, text: str) -> None:
        """Run a slash command chosen elsewhere, as in the palette."""
        self.run_worker(run_command(self, text), group="submit")

    def say(self, text: str) -> None:
        """Show a notice for 6 seconds."""
        self.app.notify(sanitize(text), markup=False, timeout=6)

    def show_text(self, title: str, *, text: str) -> None:
        """Show a text to read."""
        windows.push_text(self.app, title, text=text)

    def open_help(self) -> None:
        """Show keys and commands."""
        windows.push_help(self.app)

    def open_roles(self) -> None:
        """Let the user choose a role."""
        if self.opened and self.is_active and not self._led():
            self.run_worker(windows.push_roles(self.app, self), group="picker", exclusive=True)

    def _led(self) -> bool:
        """Return True if a workflow run decides role, model and persona now, and say so."""
        why = self._desk.refusal() if self._desk is not None else ""
        if why:
            self.say(why)
        return bool(why)

    def open_models(self) -> None:
        """Let the user choose a model."""
        if not self._led():
            windows.push_models(self.app, self)

    def open_personas(self) -> None:
        """Let the user choose a persona."""
        if not self._led():
            windows.push_personas(self.app, self)

    def open_themes(self) -> None:
        """Let the user choose a theme."""
        windows.push_themes(self.app, self)

    def open_sessions(self) -> None:
        """Let the user choose a session."""
        self.run_worker(windows.push_sessions(self.app, self), group="sessions", exclusive=True)

    def list_pending(self) -> None:
        """Let the user choose among the sessions of the workspace with something to decide."""
        self.run_worker(windows.push_pending(self.app, self), group="sessions", exclusive=True)

    def use_theme(self, name: str) -> None:
        """Switch to a theme and store the choice."""
        if name not in self.app.available_themes:
            self.say(f"There is no theme {name}. /theme lists them.")
            return
        self.app.theme = name
        self.run_worker(self._keep_theme(name), group="theme")

    async def _keep_theme(self, name: str) -> None:
        try:
            await self.host.keep_theme(name)
        except ChatopsError as error:
            self.say(f"{error} {error.advice}".strip())

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard."""
        self.app.copy_to_clipboard(text)

    def leave(self) -> None:
        """Quit."""
        self.app.run_worker(self.app.action_quit(), group="quit")

    def action_take_over(self) -> None:
        """Take over a session that is open elsewhere (F2)."""
        raise NotImplementedError

    def open_pending(self) -> None:
        """Open the dialog for what needs the user's decision: calls, or a step of a run."""
        raise NotImplementedError

    async def change_session(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. The present one is closed as it is."""
        raise NotImplementedError
