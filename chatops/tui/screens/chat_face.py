"""What slash commands and keys may have shown over the conversation: the `Face` part of the chat's screen."""

from collections.abc import Awaitable
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from textual.binding import Binding
from textual.screen import Screen

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.commands.dispatch import run_command
from chatops.tui.screens import windows
from chatops.tui.screens.modal import Standing
from chatops.tui.widgets.composer import Composer

if TYPE_CHECKING:
    from chatops.runtime.conversation import Conversation
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.host import Host
    from chatops.tui.screens.run_board import RunBoard
    from chatops.tui.screens.run_desk import RunDesk
    from chatops.tui.widgets.workflow_panel import WorkflowPanel


class ChatFace(Standing, Screen[None]):
    """The open conversation, what is around it, and the windows over it."""

    BINDINGS: ClassVar = [
        Binding("ctrl+r", "roles", "role", id="role"),
        Binding("ctrl+t", "fold_panel", "fold the panel", id="panel"),
        Binding("ctrl+l", "steps", "outputs of steps", id="steps"),
        Binding("f1", "help", "help", id="help"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._session: Conversation | None = None
        self._host: Host | None = None
        self._desk: RunDesk | None = None

    @property
    def composer(self) -> Composer:
        """Where the person writes."""
        return self.query_one(Composer)

    @property
    def session_id(self) -> str:
        """The id of the open conversation; empty if there is none, or none that is stored."""
        return self._session.session_id if self._session is not None else ""

    @property
    def opened(self) -> bool:
        """Whether there is a conversation yet."""
        return self._session is not None

    @property
    def session(self) -> "Conversation":
        """The open conversation."""
        if self._session is None:
            raise ChatopsError("The conversation is still being opened.", advice="Try again in a moment.")
        return self._session

    @property
    def run(self) -> "WorkflowRun | None":
        """The run of a workflow that the open conversation is, if it is one."""
        return self._desk.run if self._desk is not None else None

    @property
    def desk(self) -> "RunDesk | None":
        """The run beside the conversation, if it is one."""
        return self._desk

    @property
    def board(self) -> "RunBoard | None":
        """What can be seen of the run that the conversation is, if it is one."""
        return None

    @property
    def reads_along(self) -> bool:
        """Whether the open conversation is driven by another process."""
        return False

    @property
    def host(self) -> "Host":
        """Everything around it."""
        if self._host is None:
            raise ChatopsError("The conversation is still being opened.", advice="Try again in a moment.")
        return self._host

    @property
    def workspace(self) -> Path | None:
        """Where the conversation's tools work."""
        return Path(self._session.snapshot().workspace) if self._session is not None else None

    def action_roles(self) -> None:
        """ctrl+r."""
        self.open_roles()

    def action_fold_panel(self) -> None:
        """ctrl+t: the panel of the run, one line or all of it."""
        if self.board is not None:
            self.board.toggle()

    def action_steps(self) -> None:
        """ctrl+l: the steps of the run, and what they gave."""
        if self.board is not None and self.is_active:
            self.board.open_steps()

    def action_help(self) -> None:
        """F1."""
        self.open_help()

    def on_workflow_panel_step_clicked(self, message: "WorkflowPanel.StepClicked") -> None:
        """A click on a step shows what it gave."""
        message.stop()
        self.show_step(message.step)

    def on_workflow_panel_clicked(self, message: "WorkflowPanel.Clicked") -> None:
        """A click beside the steps folds or opens the panel."""
        message.stop()
        self.action_fold_panel()

    def show_step(self, index: int) -> None:
        """Let the person read what a step of the run gave."""
        if self.board is not None:
            self.board.open_step(index)

    def run_command(self, text: str) -> None:
        """Run a slash command chosen elsewhere (the palette)."""
        self.run_worker(run_command(self, text), group="submit")

    def say(self, text: str) -> None:
        """Tell the person something in passing."""
        self.app.notify(sanitize(text), markup=False, timeout=6)

    def show_text(self, title: str, *, text: str) -> None:
        """Let the person read a text."""
        windows.push_text(self.app, title, text=text)

    def open_help(self) -> None:
        """Show keys and commands."""
        windows.push_help(self.app)

    def open_roles(self) -> None:
        """Let the person choose a role."""
        if self.opened and self.is_active and not self._led():
            self.run_worker(windows.push_roles(self.app, self), group="picker", exclusive=True)

    def _led(self) -> bool:
        """Whether a run decides now, which is said then."""
        why = self._desk.refusal() if self._desk is not None else ""
        if why:
            self.say(why)
        return bool(why)

    def open_models(self) -> None:
        """Let the person choose a model."""
        if not self._led():
            windows.push_models(self.app, self)

    def open_personas(self) -> None:
        """Let the person choose a persona."""
        if not self._led():
            windows.push_personas(self.app, self)

    def open_themes(self) -> None:
        """Let the person choose a theme."""
        windows.push_themes(self.app, self)

    def open_sessions(self) -> None:
        """Let the person choose a conversation."""
        self.run_worker(windows.push_sessions(self.app, self), group="sessions", exclusive=True)

    def list_pending(self) -> None:
        """Let the user choose among the sessions of the workspace with something to decide."""
        self.run_worker(windows.push_pending(self.app, self), group="sessions", exclusive=True)

    def use_theme(self, name: str) -> None:
        """Draw in that theme."""
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
        """Put a text on the clipboard."""
        self.app.copy_to_clipboard(text)

    def leave(self) -> None:
        """Quit."""
        self.app.run_worker(self.app.action_quit(), group="quit")

    def action_take_over(self) -> None:
        """F2: go on here with a conversation that is open elsewhere."""
        raise NotImplementedError

    def open_pending(self) -> None:
        """Show what waits for the person: calls, or a step of a run."""
        raise NotImplementedError

    async def change_session(self, opening: "Awaitable[Conversation]") -> None:
        """Show another conversation; the present one is left as it is and closed."""
        raise NotImplementedError
