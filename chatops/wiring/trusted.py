"""Tools of the user and skills, from trusted files, and the notices about both."""

from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import Paths
from chatops.config.skills import Skills, joined, load_skills, skills_of
from chatops.config.trust import WorkspaceTrust

if TYPE_CHECKING:
    from chatops.config.workspace_files import Item
    from chatops.wiring.own_tools import OwnTools


class TrustedContent:
    """Tools and skills, loaded again when what is trusted has changed."""

    def __init__(self, trust: WorkspaceTrust, own_tools: OwnToolsTrust, *, paths: Paths, workspace: Path) -> None:
        self._trust = trust
        self._own_tools_trust = own_tools
        self._paths = paths
        self._workspace = workspace
        self._own_tools: tuple[tuple[Item, ...], OwnTools] | None = None
        self._skills: tuple[tuple[Item, ...], Skills] | None = None

    def own_tools(self) -> "OwnTools":
        """Return the user's own tools."""
        from chatops.wiring.own_tools import load_own_tools

        items = self._own_tools_trust.in_force.own_tools
        if self._own_tools is None or self._own_tools[0] != items:
            self._own_tools = (items, load_own_tools(items, folder=self._paths.tools))
        return self._own_tools[1]

    def reread(self) -> None:
        """Read the user's tools and skills and the workspace's files again. Raises ConfigError."""
        self._own_tools_trust.reread()
        self._trust.reread()
        self._skills = None

    def skills(self, *, fresh: bool = False) -> Skills:
        """Return the skills of the user and of the trusted workspace. `fresh`: read the user's again."""
        items, known = self._trust.in_force.skills, self._skills
        if not fresh and known is not None and known[0] is items:
            return known[1]
        workspace = skills_of(items, source=str(self._workspace / ".chatops" / "skills"))
        found = joined(load_skills(self._paths.skills), workspace)
        self._skills = (items, found)
        return found

    def notices(self, *, asks: bool) -> tuple[str, ...]:
        """Return what is not trusted or cannot be loaded. `asks`: a chat asks about what is not trusted yet."""
        kinds = (self._own_tools_trust, self._trust)
        # A question says more than a notice.
        asked = asks and any(one.question.is_open for one in kinds)
        trust = () if asked else tuple(notice for one in kinds for notice in one.notices())
        return (*trust, *self.own_tools().notices)
