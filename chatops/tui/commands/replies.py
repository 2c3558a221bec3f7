"""The interface between slash commands and the chat screen. Text that starts with a slash never reaches a model.

A command changes nothing on the screen by itself, except to preview a theme. It gets the session and the workspace in
a `Context`, acts on them, and returns replies: what the screen is to show or do next, in order. A reply that fails
drops those after it.
"""

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import TYPE_CHECKING

from chatops.domain.errors import ChatopsError
from chatops.domain.frozen_dataclass import frozen_dataclass

if TYPE_CHECKING:
    from chatops.contained.text import Change
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun
    from chatops.tui.dialogs.picker import Picker
    from chatops.tui.dialogs.question import Question
    from chatops.tui.dialogs.text import Share
    from chatops.wiring.all_pending import AllPending, WaitingCall
    from chatops.wiring.explain import RightsMatrix
    from chatops.wiring.workspace import Workspace


@frozen_dataclass
class Context:
    """The session and the workspace that a command acts on."""

    opened: "tuple[SessionView, Workspace] | None"
    """None while no session is open."""
    run: "WorkflowRun | None" = None
    """The session's workflow run, if it is executed here."""
    steps: tuple[str, ...] | None = None
    """Step names of the session's workflow run, executed here or followed; None if the session is not a run."""
    settings_locked: str = ""
    """Reason why role, model and persona cannot be changed now; empty if they can."""
    themes: tuple[str, ...] = ()
    """The names of the available themes."""
    theme: str = ""
    """The name of the chosen theme."""
    preview_theme: Callable[[str], str] = lambda name: ""
    """Shows a theme until another one is shown. Returns the reason if that is not possible."""

    @property
    def session(self) -> "SessionView":
        """The open session. Raises ChatopsError if it is still being opened."""
        return self._require_opened()[0]

    @property
    def workspace(self) -> "Workspace":
        """The workspace of the open session. Raises ChatopsError if the session is still being opened."""
        return self._require_opened()[1]

    def _require_opened(self) -> "tuple[SessionView, Workspace]":
        if self.opened is None:
            raise ChatopsError("The session is still being opened.", advice="Try again in a moment.")
        return self.opened


@frozen_dataclass(kw_only=False)
class Notify:
    """Show a notice."""

    text: str


@frozen_dataclass(kw_only=False)
class ShowText:
    """Show a text to read."""

    title: str
    text: str
    shares: "Sequence[Share]" = ()
    """Parts of a whole, which are drawn as a bar above the text."""


@frozen_dataclass(kw_only=False)
class ShowHelp:
    """Show keys and commands: those about a word, or all."""

    word: str


@frozen_dataclass(kw_only=False)
class ShowChanges:
    """Show changes of files, each with its diff."""

    title: str
    changes: "Sequence[Change]"
    in_repository: bool
    """True if the workspace is in a git repository, so that git can show what commands changed."""


@frozen_dataclass(kw_only=False)
class ShowAllPending:
    """Show the calls that wait in all sessions. Run `chosen` with the id of a session that the user opens there."""

    calls: "AllPending"
    waiting: "Sequence[WaitingCall]"
    chosen: "Handler"


@frozen_dataclass(kw_only=False)
class ShowRights:
    """Show what may be done in each role."""

    rights: "RightsMatrix"


@frozen_dataclass(kw_only=False)
class ShowSession:
    """Show the session that `open` returns. The present one is closed."""

    open: Callable[[], "Awaitable[SessionView]"]


@frozen_dataclass(kw_only=False)
class FindText:
    """Find a text in the transcript, first in the message that contains `near`."""

    text: str
    near: str


@frozen_dataclass(kw_only=False)
class ShowStep:
    """Show the output of a step of the session's run."""

    index: int


@frozen_dataclass(kw_only=False)
class UseTheme:
    """Switch the theme and store the choice."""

    name: str


@frozen_dataclass(kw_only=False)
class Copy:
    """Copy a text to the clipboard."""

    text: str
    what: str
    """Name of it, such as "the answer"."""


@frozen_dataclass(kw_only=False)
class Write:
    """Put a text into the message field, to be edited. What is typed there moves to the history."""

    text: str


@frozen_dataclass(kw_only=False)
class Send:
    """Send a message."""

    text: str


@frozen_dataclass(kw_only=False)
class Then:
    """Run a handler with the context as it is by then, after a `ShowSession`."""

    handler: "Handler"
    argument: str = ""


@frozen_dataclass(kw_only=False)
class Choose:
    """Let the user choose or write, then run `chosen` with the key or text. Choosing `current` does nothing."""

    picker: "Picker | Question[str]"
    chosen: "Handler"
    current: str | None = None


@frozen_dataclass
class EditText:
    """Let the user edit a text in their editor, then run `done` with it. Without an editor, `question` asks for it."""

    text: str
    file_name: str
    """Name under which the editor shows it. Its suffix tells the language."""
    question: "Question[str]"
    done: "Handler"


class ScreenAction(Enum):
    """Replies without a value."""

    TAKE_OVER = "take over"
    DECIDE = "decide"
    """Open the dialog for what is pending in the session, if anything is."""
    STEPS = "steps"
    """Let the user choose a step of the session's run."""
    TRUST = "trust"
    """Ask whether to trust the settings and tools that the workspace brings."""
    GIVE_BACK = "give back"
    """Put the command back into the message field, because nothing was done."""
    QUIT = "quit"


ShowReply = ShowText | ShowHelp | ShowChanges | ShowAllPending | ShowRights | ShowSession | FindText | ShowStep
Reply = Notify | ShowReply | UseTheme | Copy | Write | Send | Then | Choose | EditText | ScreenAction
Replies = Sequence[Reply]
Handler = Callable[[Context, str], Awaitable[Replies]]
"""Runs a command with the text after its name. Raises ChatopsError if it cannot be done."""
