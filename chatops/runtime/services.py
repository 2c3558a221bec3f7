"""Services that all sessions share. They are made in `wiring` and outlive each session."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chatops.domain.decisions import Principal
from chatops.domain.ids import CallId, SessionId
from chatops.models.base import ModelClient
from chatops.runtime.perform import Toolbox
from chatops.runtime.rights import Rights
from chatops.runtime.worker import WorkerThread
from chatops.store.base import Holder, Store
from chatops.store.outputs import Outputs
from chatops.tools.base import Tool, ToolContext


class Contexts(Protocol):
    """A factory of tool contexts for a session."""

    def __call__(
        self,
        session_id: SessionId,
        call_id: CallId,
        *,
        attempt: int,
        tool: Tool,
        output: Callable[[str], None],
    ) -> ToolContext:
        """Return the context for one attempt of a call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters, and the user and process that use them."""

    store: Store
    worker: WorkerThread
    models: ModelClient
    tools: Toolbox
    contexts: Contexts
    rights: Rights
    by: Principal
    holder: Holder
    outputs: Outputs
    workspace: Path
    attended: bool = True
    """True if a user is at the screen. Queued messages are then sent automatically when a turn ends."""
