"""Interface between the app and everything besides one session. The wiring implements it.

A frontend uses `runtime.session.Session` for the session and a `Host` for everything around it (other sessions,
available choices, texts to show). Methods that may touch the disk or the network are coroutines. All of them raise
`ChatopsError` with a message for the user, and nothing else on purpose.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from chatops.domain.ids import MessageId, SessionId
from chatops.domain.sandbox import SandboxNote

if TYPE_CHECKING:
    from chatops.config.memory import Memories
    from chatops.config.skills import Skills
    from chatops.config.trust import TrustQuestion
    from chatops.domain.files import FileRef
    from chatops.runtime.view import SessionView
    from chatops.runtime.workflow import WorkflowRun

TextTopic = Literal["tools", "policy", "permissions", "sandbox", "doctor", "mcp", "mcp login"]
"""Texts that a host can write about the open session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleRow:
    """A role in the role switcher: what it may use here, for this user."""

    name: str
    model: str
    tools: tuple[str, ...]
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A configured model. `name` is the registry's, `label` the usual name."""

    name: str
    label: str
    note: str = ""
    missing: str = ""
    """The reason why the model cannot be used here, in a sentence; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleItem:
    """A remembered rule in the picker of those to revoke."""

    id: str
    rule: str
    about: str
    """Its reach, and when it was made and used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A stored session in the session picker."""

    id: SessionId
    title: str
    when: str
    """Text for the user, such as ``today 10:15``."""
    messages: int
    pending: int = 0
    """Number of calls that wait for a decision."""
    state: str = ""
    """The state of an unfinished turn, in one line; empty if it is finished."""
    run: str = ""
    """The state of a workflow run, such as ``make: to review`` or ``answered``; empty if it is not a run."""
    role: str = ""
    asks: tuple[str, ...] = ()
    """The calls that wait for a decision, such as ``shell_exec (git push)``."""
    copy_of: str = ""
    """Title and time of the session that it is a copy of; empty for an original."""
    source: str = ""
    """Id of the session that it is a copy of; empty for an original."""


def origin(row: SessionRow, sources: Mapping[str, str]) -> str:
    """Return the id of the session that `row` is a copy of, or a copy of a copy of; `sources` are by session."""
    chain = [str(row.id)]
    while (source := sources.get(chain[-1], "")) and source not in chain:
        chain.append(source)
    return chain[-1]


@dataclass(frozen=True, slots=True, kw_only=True)
class HitRow:
    """A text of a session that contains what was searched for."""

    session_id: SessionId
    title: str
    when: str
    text: str
    """The whole message, or the title."""
    message_id: str = ""
    """The message, which copies of the session share; empty for a title."""
    is_copy: bool = False
    """True if the session is a copy of another one."""
    folder: str = ""
    """The folder that the session was held in; empty if it is this workspace."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowRow:
    """A workflow in the list of workflows."""

    name: str
    steps: tuple[str, ...] = ()
    description: str = ""
    problem: str = ""
    """The reason why the workflow cannot be used, with file and line; empty if it can."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """A workflow run that has not ended."""

    id: SessionId
    title: str
    state: str
    """Its state: ``make: 1 call to approve``, ``make: to review``, ``make: not finished``."""
    when: str


class Host(Protocol):
    """Everything besides one session that the app shows or offers."""

    def history(self) -> Sequence[str]:
        """Return what the user has sent from this workspace, oldest first."""

    def remember(self, text: str) -> None:
        """Add a text to the history of this workspace."""

    def draft(self, session_id: SessionId, *, followed: bool) -> str:
        """Return what was typed and not sent in a session, in any window.

        `followed` selects the draft typed in a window that followed the session, else that of its owner.
        """

    def draft_setting(self, session_id: SessionId, *, followed: bool) -> str:
        """Return the name of the setting that holds the draft."""

    def save_draft(self, session_id: SessionId, *, followed: bool, text: str) -> None:
        """Store what was typed and not sent. An empty text deletes it."""

    async def take_queued(self, session: "SessionView") -> str:
        """Take the newest message out of the session's queue, make it the draft, and return it.

        Both happen in one step. Returns an empty string if nothing is queued.
        """

    async def save_theme(self, name: str) -> None:
        """Store the theme for this user.

        Raises ConfigError if that fails.
        """

    def roles(self) -> Sequence[RoleRow]:
        """Return the roles of this user here, in registry order."""

    def favourite_roles(self) -> Sequence[str]:
        """Return the roles that the user's settings name as favourites, in their order."""

    def shows_turn_cost(self) -> bool:
        """Return True if the settings file, as it was at the start, wants tokens and cost shown after each turn."""

    def role_colours(self) -> Sequence[tuple[str, str]]:
        """Return the names of all roles with the colours that registries give them: a name, ``#rrggbb`` or nothing."""

    def models(self) -> Sequence[ModelRow]:
        """Return the configured models."""

    async def models_of_servers(self) -> Sequence[ModelRow]:
        """Ask the servers. Return the configured models, with what is missing now, and the servers' other models."""
        ...

    async def model_problem(self, name: str) -> str:
        """Return why a model will probably not answer now, in sentences; empty if it may, or if there is none."""
        ...

    def personas(self) -> Sequence[str]:
        """Return the names of the available personas."""

    def persona(self, session: "SessionView") -> str:
        """Return the name of a session's persona: the user's choice, else the role's."""

    def workspace_problem(self) -> str:
        """Return why no tool can work here now; empty if all is well."""

    async def reload_registry(self) -> bool:
        """Apply the registry file, the user's tools and the skills in their present state.

        Return True if there is a file to ask about: see `trust_question`.

        Raises ConfigError if it is broken.
        """

    def sandbox(self) -> SandboxNote:
        """Return how commands are sandboxed, for the status line."""

    async def sessions(self) -> Sequence[SessionRow]:
        """Return the stored sessions of this workspace, newest first."""

    async def last_said(self, session_id: SessionId) -> Sequence[str]:
        """Return the last message of the user and the last answer of a session, each in one line with its author."""

    async def rename_session(self, session_id: SessionId, title: str) -> None:
        """Rename a session that is not open here."""

    async def delete_session(self, session_id: SessionId) -> None:
        """Delete a session for good, with its unfinished turn.

        Raises SessionBusyError if it is open in another process.
        """

    async def delete_replaced(self, left: SessionId, *, made: SessionId) -> None:
        """Delete the copy `left`, and others that end where the new copy `made` ends, if nothing was said in them."""
        ...

    async def delete_copy_looked_at(self, left: SessionId) -> None:
        """Delete a session if it is a copy of one of another folder in which nothing was said. Raises StoreError."""
        ...

    async def other_folder(self, session_id: SessionId) -> str:
        """Return the folder that a session was held in; empty if it is this workspace.

        Raises NoSuchSessionError.
        """

    async def search(self, text: str, *, everywhere: bool = False) -> Sequence[HitRow]:
        """Return where sessions of this workspace, or of all if `everywhere`, contain `text`, newest first."""

    def search_note(self) -> str:
        """Return why searching takes long here, in a sentence; empty if it does not."""

    async def next_pending(self) -> SessionId | None:
        """Return the session of this workspace to decide on next, or None.

        A session with a pending call comes first, then a run to review, then an interrupted session; among equals, the
        one used last.
        """

    async def pending(self) -> Sequence[SessionRow]:
        """Return all sessions of this workspace with a call to decide or a step to review, last used first."""

    async def open_session(self, session_id: SessionId) -> "SessionView":
        """Open a stored session. It is followed if another process owns it.

        The caller closes the present session after success.
        """

    async def follow_session(self, session_id: SessionId) -> "SessionView":
        """Follow a session that another process owns, or is about to own."""

    async def new_session(self, *, role: str, model: str | None) -> "SessionView":
        """Start an empty session with this model pinned.

        Without a role, it uses the one used here last. If `model` is None, the command line decides which model is
        pinned.
        """

    async def fork_session(self, session_id: SessionId, *, before: MessageId | None = None) -> "SessionView":
        """Copy a session up to now, or up to a message and without it, and open the copy in this workspace."""

    async def export_session(self, session_id: SessionId, *, style: str, path: str) -> str:
        """Write a session as ``md``, ``html``, ``jsonl`` or ``openai`` and return the path. Never overwrites a file."""

    async def workflows(self) -> Sequence[WorkflowRow]:
        """Return the workflows of this user here."""

    async def runs(self) -> Sequence[RunRow]:
        """Return the runs of this workspace that have not ended, last active first."""

    async def new_run(
        self, workflow: str, *, query: str, beside: "SessionView", warn: Callable[[str], None]
    ) -> "SessionView":
        """Create a run in a session of its own, under the role and model of the session `beside`.

        The run is not started: see `run_of`. `warn` is called with each warning about the workflow.

        Raises ConfigError with everything that is wrong with the workflow.
        """

    def run_of(self, session: "SessionView") -> "WorkflowRun | None":
        """Return the run of a session, or None. The caller that shows the run calls `resume`, and closes it."""

    def step_times(self, session_id: SessionId) -> Sequence[float]:
        """Return the seconds that each step of a run has worked, as stored when it was last shown."""

    def save_step_times(self, session_id: SessionId, seconds: Sequence[float]) -> None:
        """Store how long each step of a run has worked."""

    async def text(self, topic: TextTopic, *, session: "SessionView", argument: str = "") -> str:
        """Return a text to show. `argument` is the text after the slash command."""

    async def open_file(self, file: "FileRef") -> str:
        """Open a kept file with the system's program for its type; return what was done. Raises ChatopsError."""

    async def trust_question(self) -> "TrustQuestion":
        """Return what the workspace brings now, read again."""

    def starts_question(self) -> "TrustQuestion | None":
        """Return the question about MCP servers that wait for the user's yes to start; None if none does."""

    async def answer_trust(self, shown: "TrustQuestion", *, trusted: bool) -> Sequence[str]:
        """Trust exactly what was shown, or ignore it until it changes. Return a sentence for what has changed since.

        Raises ChatopsError if the answer cannot be stored or the folder was replaced.
        """

    async def revoke_trust(self) -> bool:
        """Forget what the user trusts in this workspace. Return False if nothing was trusted."""

    @property
    def memories(self) -> "Memories":
        """The memories of the user and of this workspace."""

    def skills(self) -> "Skills":
        """Return the skills of the user and of the trusted workspace, the user's read again."""

    def skills_folder(self) -> str:
        """Return the folder of the user's own skills."""

    async def rules(self, session: "SessionView") -> Sequence[RuleItem]:
        """Return the user's remembered rules that could answer in a session, oldest first."""

    async def revoke(self, session: "SessionView", *, rule: str) -> str:
        """Revoke a remembered rule by its id in the ``permissions`` text. Return what was revoked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstSession:
    """The result of opening the first session, once everything heavy is imported."""

    session: "SessionView"
    host: Host
    notices: tuple[str, ...] = ()
    """Notices to show once at the start (a broken registry, an ignored workspace registry)."""
    pending_elsewhere: str = ""
    """Pending and interrupted work in other sessions, in one line; ctrl+g opens it."""
    trust: "TrustQuestion | None" = None
    """Question about the files of the workspace, if there is one."""
    choose_session: bool = False
    """True to show the session picker first (``chatops -r`` without an id)."""


Opener = Callable[[], Awaitable[FirstSession]]
"""Called after the first paint, which does not wait for registry, store and models."""
