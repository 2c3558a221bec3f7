"""The tools that exist: built-in ones as configured, the user's own, those of a Python program and of MCP servers."""

import logging
from collections.abc import Callable, Mapping, Sequence

from chatops.config.memory import Memories
from chatops.config.paths import Paths
from chatops.config.trust import OwnToolsTrust
from chatops.config.workspace_files import Item
from chatops.domain.errors import ConfigError
from chatops.domain.tools import ALIASES, CONTAINED_APPLY, ToolSpec
from chatops.policy.resolve import knowledge_sources, web_ports
from chatops.policy.servers import server_of
from chatops.policy.workflow import PYTHON_PROGRAM
from chatops.toolkit.base import Tool
from chatops.tools.catalog import Catalog, CatalogSettings, builtin_catalog
from chatops.tools.web import WEB_PORTS, WebSettings
from chatops.wiring.configuration import Configuration
from chatops.wiring.own_tools import OwnTools, load_own_tools
from chatops.wiring.servers import McpServers

log = logging.getLogger(__name__)


class Toolbox:
    """The catalog according to the configuration of the moment in which a tool is looked up."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        *,
        paths: Paths,
        environ: Mapping[str, str],
        memories: Memories,
        trust: OwnToolsTrust,
        servers: McpServers,
        program: Sequence[Tool] = (),
    ) -> None:
        """Build the catalog. `trust` is that in the user's own tools, `program` are those of a Python program.

        Raises ConfigError if one of a Python program has the name of another.
        """
        self._configuration = configuration
        self._trust = trust
        self._servers = servers
        self._program = tuple(program)
        self._paths = paths
        self._environ = environ
        self._memories = memories
        self._own: tuple[tuple[Item, ...], OwnTools] | None = None
        self._built_for = self._made_of()
        self._built = self._build(*self._built_for)

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly that name, or None."""
        found = self._catalog().get(name)
        if found is None and server_of(name):
            return next((tool for tool in self._servers.tools() if tool.spec.name == name), None)
        return found

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools, in a fixed order."""
        own = self._catalog().specs
        names = {spec.name for spec in own}
        return (*own, *(tool.spec for tool in self._servers.tools() if tool.spec.name not in names))

    @property
    def absent(self) -> Mapping[str, str]:
        """Built-in tools that cannot be offered here, each with the reason and how to get it."""
        return self._catalog().absent

    @property
    def unavailable(self) -> Mapping[str, str]:
        """The `absent` tools, and the tools that await the user's trust."""
        catalog = self._catalog()
        known = {spec.name for spec in catalog.specs}
        waiting = {name: why for name, why in self._trust.not_loaded().items() if name not in known}
        return {**waiting, **catalog.absent}

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for each of the user's own tools that cannot be loaded."""
        return self._own_tools().notices

    def _own_tools(self) -> OwnTools:
        items = self._trust.in_force.own_tools
        if self._own is None or self._own[0] != items:
            self._own = (items, load_own_tools(items, folder=self._paths.tools))
        return self._own[1]

    def settings(self) -> CatalogSettings:
        """Return what the built-in tools are made from: what the registries in force and the changed ones both say."""
        now, data = self._configuration(), self._paths.data
        sources = [knowledge_sources(registries) for registries in now.both]
        return CatalogSettings(
            scratch_dir=data / "scratch",
            web=WebSettings(ports=WEB_PORTS.union(frozenset.intersection(*map(web_ports, now.both)))),
            environ=self._environ,
            memories=self._memories,
            knowledge=tuple(source for source in sources[0] if source in sources[-1]),
            skills=now.skills,
            knowledge_index=data / "knowledge" / "index.db",
        )

    def _made_of(self) -> tuple[CatalogSettings, tuple[Tool, ...]]:
        return self.settings(), (*self._program, *self._own_tools().tools)

    def _catalog(self) -> Catalog:
        made_of = self._made_of()
        if made_of != self._built_for:
            self._built_for, self._built = made_of, self._build(*made_of)
        return self._built

    def _build(self, settings: CatalogSettings, further: tuple[Tool, ...]) -> Catalog:
        built = builtin_catalog(settings)
        taken = {*(spec.name for spec in built.specs), *built.absent, *ALIASES, CONTAINED_APPLY}
        added = []
        for tool in further:
            if tool.spec.name not in taken:
                added.append(tool)
                taken.add(tool.spec.name)
            elif tool.spec.source == PYTHON_PROGRAM:
                raise ConfigError(f"A tool named {tool.spec.name} already exists.", advice="Give yours another name.")
            else:
                log.warning("%s: there is a tool %s already", tool.spec.source, tool.spec.name)
        return built.with_tools(added)
