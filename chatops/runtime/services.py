"""What conversations work with: shared by all of them, made in `wiring`, and outliving each."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from chatops.domain.decisions import Principal
from chatops.domain.ids import CallId, SessionId
from chatops.models.base import ModelClient
from chatops.runtime.offload import Offload
from chatops.runtime.perform import Toolbox
from chatops.runtime.rights import Rights
from chatops.store.base import Holder, Store
from chatops.store.outputs import Outputs
from chatops.tools.base import Tool, ToolContext


class Contexts(Protocol):
    """Makes tool contexts for one conversation."""

    def __call__(
        self,
        session_id: SessionId,
        call_id: CallId,
        *,
        attempt: int,
        tool: Tool,
        output: Callable[[str], None],
    ) -> ToolContext:
        """The context for one attempt of a call."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """The adapters and who uses them."""

    store: Store
    offload: Offload
    models: ModelClient
    tools: Toolbox
    contexts: Contexts
    rights: Rights
    by: Principal
    holder: Holder
    outputs: Outputs
    workspace: Path
    attended: bool = True
    """A person is at the screen: messages kept for later are sent by themselves when a turn ends."""
