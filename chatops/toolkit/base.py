"""The `Tool` protocol of the runtime: a spec, an inspection without effects, a run, a reconciliation."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from chatops.config.folder_identity import folder_identity
from chatops.domain.decisions import Answer, ServerQuestion
from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.known_keys import without_keys
from chatops.domain.sandbox import NARROWEST, Mount, SandboxSpec
from chatops.domain.tools import CallFacts, Exposure, Outcome, ToolCall, ToolResult, ToolSpec, definition_of
from chatops.toolkit.threads import in_thread

Ask = Callable[[ServerQuestion], Awaitable[Answer]]
"""Asks the user and waits for the answer. One question of a call at a time."""


def with_limit_paused(ask: Ask, clock: asyncio.Timeout) -> Ask:
    """Return `ask` with the time limit `clock` paused while the user is asked."""

    async def ask_without_limit(question: ServerQuestion) -> Answer:
        now, until = asyncio.get_running_loop().time, clock.when()
        seconds_left = None if until is None else until - now()
        clock.reschedule(None)
        try:
            return await ask(question)
        finally:
            with suppress(RuntimeError):  # The call is over.
                clock.reschedule(None if seconds_left is None else now() + seconds_left)

    return ask_without_limit


def no_file(name: str, data: bytes) -> FileRef:
    """Keep nothing: there is no session."""
    return FileRef(path=name, size=len(data), problem="there is no session to keep it with")


class Child(Protocol):
    """The child turn of a call that delegates. Arguments are those of the tool, validated."""

    async def compare(self, facts: CallFacts, given: "Delegated") -> CallFacts:
        """Return `facts` with what the role adds to the rights of the turn, and what is wrong with the arguments."""

    async def run(self, facts: CallFacts, given: "Delegated", output: Callable[[str], None]) -> ToolResult:
        """Start the child turn, or continue it, and return its answer. If cancelled, stop it first."""

    async def find_or_stop(self) -> "Reconciled":
        """Return the result of the child turn if it has ended. Stop it first if the turn of the call was stopped."""


@frozen_dataclass
class Delegated:
    """A task for another role."""

    role: str
    task: str
    files: tuple[str, ...] = ()


@frozen_dataclass
class ToolContext:
    """Environment of one call: workspace, session, limits."""

    workspace: Path
    """Resolved; file tools stay inside it."""
    session_id: SessionId
    call_id: CallId
    attempt: int = 1
    timeout_s: float = 60.0
    max_output_chars: int = 16_000
    """Maximum number of characters of a result that the model gets; head and tail are kept."""
    protected: tuple[Path, ...] = ()
    """Resolved files and folders that no tool may touch (chatops' own state, credentials)."""
    exposure: Exposure = Exposure.WHOLE
    """Part of the workspace that a command of this call sees in the sandbox."""
    sandbox: SandboxSpec = NARROWEST
    """Limits of a command of this call."""
    ceiling: SandboxSpec | None = None
    """The most that the user may give this call in addition; None: there is no ceiling."""
    source: Path | None = None
    """Folder that a sandboxed command sees at the workspace's place, such as a copy of it; None: the workspace itself.
    It runs at level hard or not at all."""
    original: Path | None = None
    """The workspace, while a call is inspected in a copy of it that is `workspace` here; None: there is no copy."""
    mounts: tuple[Mount, ...] = ()
    """Further paths that a command sees in the workspace, mounted after it."""
    kept: Path | None = None
    """Folder in which file tools keep what they replace, for ``/undo``; None: they keep nothing."""
    contained: str = ""
    """Name of the contained turn's copy that the call works on; empty: it works on the workspace."""
    output: Callable[[str], None] = lambda text: None
    """Receives output while the tool runs: for the screen, and for the user if the call is interrupted."""
    ask: Ask | None = None
    """Asks the user a question of the server that runs the call; None: nobody is there to answer."""
    child: Child | None = None
    """The child turn, for a call that delegates; None: there is no session that could have one."""
    keep_file: Callable[[str, bytes], FileRef] = no_file
    """Keeps a file of this name and content beside the session, for `ResultFacts.files`. Blocks. Never raises: a file
    that cannot be kept has a `problem`."""


@frozen_dataclass
class Reconciled:
    """State of a started attempt after a crash, see `engine.inputs.ReconcileInput`."""

    result: ToolResult | None
    """None if the attempt did not take effect, or if that is not known."""
    repeat: bool = False
    """True if the attempt certainly had no effect, so it may run again."""
    found: str = ""
    """What is known if neither is certain, for the user; may be empty."""


def reconciled_by_hash(facts: CallFacts, now: str, *, done: str, otherwise: str) -> Reconciled:
    """Compare the hash of what is there `now` with the two in the facts of a started call: before it and after it.

    `done` is the result if the call has taken effect, `otherwise` what is known if neither fits.
    """
    before, after = (entry.rsplit(" ", 1)[1] for entry in facts.hashes)
    if now == after:
        return Reconciled(result=ToolResult(outcome=Outcome.SUCCESS, content=done))
    return Reconciled(result=None, repeat=now == before, found="" if now == before else otherwise)


class Tool(Protocol):
    """A tool. Arguments that a model wrote never make it raise; cancelling `run` leaves no child process."""

    @property
    def spec(self) -> ToolSpec:
        """The description of the tool for policy and model."""

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Parse, validate and resolve `call` without any effect: paths, hosts, argv, diff, hashes, refusals."""

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Execute the call. `facts` come from an inspection immediately before.

        Raises ToolRetryError, ToolFailedError or CancelledError.
        """

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Find out after a crash whether the started attempt took effect, and remove what it left half done.

        Has no other effect. A tool that cannot tell returns ``Reconciled(result=None)``: outcome unknown.
        """


HOLDS_A_KEY = (
    "A key that chatops knows stands in the arguments, and nothing may store it. "
    "Name it in sandbox.credentials, so that commands use it without seeing it."
)


async def inspect_call(tool: Tool, call: ToolCall, context: ToolContext) -> CallFacts:
    """Return what `tool` finds about `call`, with what approvals and rules are bound to besides."""
    if without_keys(call.arguments) != call.arguments:
        return CallFacts(arguments=call.arguments, refusal=HOLDS_A_KEY)
    facts = await tool.inspect(call, context)
    folder = facts.folder or await in_thread(folder_identity, context.workspace)
    return replace(facts, definition=definition_of(tool.spec), folder=folder)
