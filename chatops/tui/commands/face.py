"""Protocol of the app for slash commands. Implemented by the chat screen; tests have their own."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.host import Host
    from chatops.tui.screens.run_board import RunBoard


class AlreadyShownError(Exception):
    """Raised when a command did nothing and the reason is shown already: only the text is to be given back."""


class Face(Protocol):
    """The app as a slash command sees it."""

    @property
    def session(self) -> "SessionView":
        """The open session."""
        ...

    @property
    def run(self) -> "WorkflowRun | None":
        """The workflow run of the open session, or None."""
        ...

    @property
    def board(self) -> "RunBoard | None":
        """The display of the session's workflow run, executed here or elsewhere, or None."""
        ...

    @property
    def host(self) -> "Host":
        """The host of the open session."""
        ...

    def say(self, text: str) -> None:
        """Show a notice."""
        ...

    def show_text(self, title: str, *, text: str) -> None:
        """Show a text to read."""
        ...

    def open_help(self) -> None:
        """Show keys and commands."""
        ...

    def open_roles(self) -> None:
        """Let the user choose a role."""
        ...

    def open_models(self) -> None:
        """Let the user choose a model."""
        ...

    def open_personas(self) -> None:
        """Let the user choose a persona."""
        ...

    def open_themes(self) -> None:
        """Let the user choose a theme."""
        ...

    def open_sessions(self) -> None:
        """Let the user choose a session."""
        ...

    def open_pending(self) -> None:
        """Open the dialog for what needs the user's decision: calls, or a step of a run."""
        ...

    def list_pending(self) -> None:
        """Let the user choose among the sessions of the workspace with something to decide."""
        ...

    def show_step(self, index: int) -> None:
        """Show the output of a step of the run."""
        ...

    def action_take_over(self) -> None:
        """Take over a session that is open elsewhere."""
        ...

    def action_steps(self) -> None:
        """Let the user choose a step of the run."""
        ...

    async def change_session(self, opening: "Awaitable[SessionView]") -> None:
        """Show another session. The present one is closed as it is."""
        ...

    def use_theme(self, name: str) -> None:
        """Switch the theme, or show a notice if there is none of that name."""
        ...

    def copy(self, text: str) -> None:
        """Copy a text to the clipboard."""
        ...

    def leave(self) -> None:
        """Quit. Pending approvals stay pending."""
        ...
