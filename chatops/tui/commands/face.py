"""What a slash command may ask of the app. The chat screen is one; tests have another."""

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from chatops.runtime.conversation import Conversation
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.host import Host
    from chatops.tui.screens.run_board import RunBoard


class Shown(Exception):
    """A command did nothing, and the person has been shown why: only the text is to be given back."""


class Face(Protocol):
    """The app as a command sees it."""

    @property
    def session(self) -> "Conversation":
        """The open conversation."""
        ...

    @property
    def run(self) -> "WorkflowRun | None":
        """The run of a workflow that the open conversation is, if it is one."""
        ...

    @property
    def board(self) -> "RunBoard | None":
        """What can be seen of the run that the open conversation is, be it led here or elsewhere."""
        ...

    @property
    def host(self) -> "Host":
        """Everything around it."""
        ...

    def say(self, text: str) -> None:
        """Tell the person something in passing."""
        ...

    def show_text(self, title: str, *, text: str) -> None:
        """Let the person read a text."""
        ...

    def open_help(self) -> None:
        """Show keys and commands."""
        ...

    def open_roles(self) -> None:
        """Let the person choose a role."""
        ...

    def open_models(self) -> None:
        """Let the person choose a model."""
        ...

    def open_personas(self) -> None:
        """Let the person choose a persona."""
        ...

    def open_themes(self) -> None:
        """Let the person choose a theme."""
        ...

    def open_sessions(self) -> None:
        """Let the person choose a conversation."""
        ...

    def open_pending(self) -> None:
        """Show what waits for the person: calls, or a step of a run."""
        ...

    def list_pending(self) -> None:
        """Let the user choose among the sessions of the workspace with something to decide."""
        ...

    def show_step(self, index: int) -> None:
        """Let the person read what a step of the run gave."""
        ...

    def action_take_over(self) -> None:
        """Go on here with a conversation that is open elsewhere."""
        ...

    def action_steps(self) -> None:
        """Let the person choose a step of the run."""
        ...

    async def change_session(self, opening: "Awaitable[Conversation]") -> None:
        """Show another conversation; the present one is left as it is and closed."""
        ...

    def use_theme(self, name: str) -> None:
        """Draw in that theme; says so if there is none of that name."""
        ...

    def copy(self, text: str) -> None:
        """Put a text on the clipboard."""
        ...

    def leave(self) -> None:
        """Quit; what waits keeps waiting."""
        ...
