"""What a tool is to the runtime: a spec, an inspection without effects, and a run."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chatops.domain.ids import CallId, SessionId
from chatops.domain.tools import CallFacts, Exposure, ToolCall, ToolResult, ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """Where and for whom a tool works."""

    workspace: Path
    """Resolved; file tools stay inside it."""
    session_id: SessionId
    call_id: CallId
    attempt: int = 1
    timeout_s: float = 60.0
    max_output_chars: int = 16_000
    """What the model gets at most; head and tail are kept."""
    protected: tuple[Path, ...] = ()
    """Resolved files and folders that no tool may touch (our own state, credentials)."""
    exposure: Exposure = Exposure.WHOLE
    """How much of the workspace a command of this run gets in the sandbox."""
    output: Callable[[str], None] = lambda text: None
    """Takes output while the tool runs: for the screen, and for a person should the call be interrupted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconciled:
    """What the world says about a started attempt, see `engine.inputs.ToolReconciled`."""

    result: ToolResult | None
    repeat: bool = False
    found: str = ""


class Tool(Protocol):
    """A tool. Neither method raises for what a model wrote; cancelling `run` leaves no child behind."""

    @property
    def spec(self) -> ToolSpec:
        """What policy and model are told."""
        ...

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Parse, validate and resolve `call` without any effect: paths, hosts, argv, diff, hashes, refusals."""
        ...

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Do it. `facts` are of the inspection right before. Raises ToolRetry, ToolFailed, CancelledError."""
        ...

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """After a crash: did the started attempt take effect? What it left half done is cleared away; otherwise without
        effect. Default: nobody knows."""
        ...
