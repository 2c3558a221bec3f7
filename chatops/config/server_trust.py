"""The user's decisions on starting MCP servers where the sandbox is below level basic.

A yes is bound to what would run, which `mcp.start` describes, and holds in one workspace. Record and question are those
of the trust in workspaces, see `config.trust`.
"""

from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.trust import ItemState, WorkspaceTrust
from chatops.config.workspace_files import Item, WorkspaceFiles


class ServerTrust(WorkspaceTrust):
    """Decisions on the servers that were to start in this process."""

    def __init__(self, workspace: Path, *, folder: Path) -> None:
        """Read the record of `workspace` in `folder`. Raises ConfigError."""
        self._starts: dict[str, Item] = {}
        super().__init__(workspace, folder=folder)

    def permits(self, start: Item) -> bool:
        """Return True if the user has said yes to exactly this start; else it becomes part of the question.

        Raises ConfigError if the record cannot be read.
        """
        self._starts[start.path] = start
        listed = self.reread().listed
        return any(one.item == start and one.state is ItemState.TRUSTED for one in listed)

    def _found(self) -> WorkspaceFiles:
        items = tuple(self._starts.values())
        path = str(self._workspace)
        return WorkspaceFiles(folder=folder_identity(self._workspace) or "", path=path, items=items)
