"""What the app needs besides one conversation: the seam that wiring fills.

A face talks to `runtime.session.ChatSession` for the conversation and to a `Host` for everything around it
(other sessions, what exists to choose from, texts to look at). Methods that may touch the disk or the network
are coroutines; all raise `ChatopsError` with a sentence for the person, and nothing else on purpose.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from chatops.domain.ids import SessionId

if TYPE_CHECKING:
    from chatops.runtime.conversation import Conversation
    from chatops.runtime.workflow import WorkflowRun

TextTopic = Literal["tools", "policy", "permissions", "doctor"]
"""Texts that a host can write about the present conversation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRow:
    """A role as the switcher shows it: what it may use here, for this person."""

    name: str
    model: str
    tools: tuple[str, ...]
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A configured model; `name` is the registry's, `label` what people call it."""

    name: str
    label: str
    note: str = ""
    missing: str = ""
    """Why it can answer nobody here, in a sentence; empty if it could."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A stored conversation as the picker shows it."""

    id: SessionId
    title: str
    when: str
    """In words for the person, such as ``today 10:15``."""
    messages: int
    pending: int = 0
    """Calls that wait for a decision."""
    state: str = ""
    """Where its turn was left, in one line; empty if it is finished."""
    run: str = ""
    """How it stands if it is a run of a workflow: ``make: to review``, ``answered``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow as the list shows it."""

    name: str
    steps: tuple[str, ...] = ()
    description: str = ""
    problem: str = ""
    """Why it cannot be used, with file and line; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A run of a workflow that has not ended."""

    id: SessionId
    title: str
    standing: str
    """``make: 1 call to approve``, ``make: to review``, ``make: not finished``."""
    when: str


class Host(Protocol):
    """Everything around a conversation that the app shows or offers."""

    def history(self) -> Sequence[str]:
        """What the person has sent from this workspace, oldest first."""
        ...

    def remember(self, text: str) -> None:
        """Add to the history of this workspace."""
        ...

    def draft(self, session_id: SessionId, *, reading: bool) -> str:
        """What was typed and not sent in that session, in whatever window: where it is driven, or, `reading`, where it
        was read along with."""
        ...

    def keep_draft(self, session_id: SessionId, *, reading: bool, text: str) -> None:
        """Store what was typed and not sent; empty text forgets it."""
        ...

    async def take_queued(self, session: "Conversation") -> str:
        """Take the newest message out of the session's queue and return it; it is its draft from the same moment on.
        Empty if nothing is queued."""
        ...

    async def keep_theme(self, name: str) -> None:
        """Store the theme for this user. Raises ConfigError."""
        ...

    def roles(self) -> Sequence[RoleRow]:
        """The roles of this person here, in registry order."""
        ...

    def models(self) -> Sequence[ModelRow]:
        """The configured models."""
        ...

    def personas(self) -> Sequence[str]:
        """Names of the personas that can be spoken."""
        ...

    def persona(self, session: "Conversation") -> str:
        """The name of the persona that speaks in a conversation: the person's choice, else the role's."""
        ...

    def workspace_trouble(self) -> str:
        """Why no tool can work here now; empty if all is well."""
        ...

    async def reload_registry(self) -> None:
        """Put the registry as its file is now in force. Raises ConfigError if it is broken."""
        ...

    def sandbox(self) -> str:
        """How commands are confined here, in a few words for the status line; empty if there is nothing to say."""
        ...

    async def sessions(self) -> Sequence[SessionRow]:
        """The stored conversations of this workspace, newest first."""
        ...

    async def waiting(self) -> SessionId | None:
        """The session of this workspace used last in which a call is pending, else a run to review, else an
        interrupted session, if any."""
        ...

    async def pending(self) -> Sequence[SessionRow]:
        """All sessions of this workspace with a call to decide or a step to review, the one used last first."""
        ...

    async def open_session(self, session_id: SessionId) -> "Conversation":
        """Open a stored conversation, to be read along with if another process has it; the present one is closed by
        the caller after success."""
        ...

    async def read_along(self, session_id: SessionId) -> "Conversation":
        """Read along with a conversation that another process has, or is about to have."""
        ...

    async def new_session(self, *, role: str, model: str | None) -> "Conversation":
        """Begin an empty session with this model pinned. Without a role it is in the one used here last, with None the
        command line says which model is pinned."""
        ...

    async def fork_session(self, session_id: SessionId) -> "Conversation":
        """A copy of a conversation up to now, opened."""
        ...

    async def export_session(self, session_id: SessionId, *, style: str, path: str) -> str:
        """Write a conversation as ``md``, ``html``, ``jsonl`` or ``openai``; returns where. Never overwrites."""
        ...

    async def workflows(self) -> Sequence[WorkflowRow]:
        """The workflows of this person here."""
        ...

    async def runs(self) -> Sequence[RunRow]:
        """The runs of this workspace that have not ended, newest activity first."""
        ...

    async def new_run(
        self, workflow: str, *, query: str, beside: "Conversation", warn: Callable[[str], None]
    ) -> "Conversation":
        """A run in a conversation of its own, under the role and model of the conversation `beside`.

        It is not begun: see `run_of`. `warn` is told what is doubtful about the workflow. Raises ConfigError with all
        that is wrong with it.
        """
        ...

    def run_of(self, session: "Conversation") -> "WorkflowRun | None":
        """The run whose conversation this is, if it is one; whoever shows it says `go_on`, and closes it."""
        ...

    def step_times(self, session_id: SessionId) -> Sequence[float]:
        """Seconds that each step of a run has worked, as kept when it was shown last."""
        ...

    def keep_step_times(self, session_id: SessionId, seconds: Sequence[float]) -> None:
        """Store how long each step of a run has worked."""
        ...

    async def text(self, topic: TextTopic, *, session: "Conversation", argument: str = "") -> str:
        """A text to look at; `argument` is what stood after the slash command."""
        ...

    async def revoke(self, session: "Conversation", *, number: int) -> str:
        """Withdraw a remembered permission by its number in the ``permissions`` text; says what was withdrawn."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """What the app gets once everything heavy has been loaded."""

    session: "Conversation"
    host: Host
    notices: tuple[str, ...] = ()
    """Sentences to show once at the start (a broken registry, an ignored workspace registry)."""
    waiting: str = ""
    """What waits for the person or was interrupted in other conversations, in one line; ctrl+g opens it."""
    pick: bool = False
    """Show the session picker first (``chatops -r`` without an id)."""


Opener = Callable[[], Awaitable[Opened]]
"""Called after the first paint, so that the screen is there before the registry, the store and the models are."""
