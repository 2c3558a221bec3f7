"""The tools that exist: built-in ones as configured, the user's own, those of a Python program and of MCP servers.

The user's own tools come from trusted files of the config folder and from installed packages. A file is executed from
the bytes that were trusted, and never read again. A package names its tools by entry points of the group
``chatops.tools``. Whatever a file or package does wrong is a notice, and costs only its own tools. No tool can have the
name of a built-in one, or one that reads like it.
"""

import hashlib
import logging
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from chatops.config.extras import TOOLS, installed_entries
from chatops.config.own_tools import OwnToolsTrust
from chatops.config.paths import Paths
from chatops.config.prompt_files import Memories
from chatops.config.workspace_files import Item
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import ALIASES, BUILT_IN_TOOLS, ENGINE_CALLS, CallFacts, ToolSpec
from chatops.policy.resolve import knowledge_sources, web_ports
from chatops.policy.servers import SERVER_MARK, server_of
from chatops.policy.workflow import PYTHON_PROGRAM
from chatops.toolkit.base import Tool, ToolContext
from chatops.tools.catalog import Catalog, CatalogSettings, builtin_catalog
from chatops.tools.function import FunctionTool
from chatops.tools.web import WEB_PORTS, WebSettings
from chatops.wiring.configuration import Configuration
from chatops.wiring.servers import McpServers

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

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
        """Build the catalog. `trust` says which of the user's own tools are loaded, `program` are a Python program's.

        Raises ConfigError if a tool of a Python program has a name that is taken.
        """
        self._configuration = configuration
        self._trust = trust
        self._servers = servers
        self._program = tuple(program)
        self._paths = paths
        self._environ = environ
        self._memories = memories
        self._own: tuple[tuple[Item, ...], OwnTools] | None = None
        """The files of the user's own tools as loaded last, and their tools."""
        self._depends_on: tuple[object, ...] = ()
        """What determined `_made_of` at the last look. It is compared first, which costs less than making it."""
        self._made_of = self._inputs(configuration())
        """What `_built` was made of."""
        self._built = self._build(*self._made_of)

    def get(self, name: str) -> Tool | None:
        """Return the tool of exactly that name, or None."""
        found = self._catalog(now := self._configuration()).get(name)
        if found is None and server_of(name):
            return next((tool for tool in self._servers.tools(now) if tool.spec.name == name), None)
        return found

    @property
    def specs(self) -> tuple[ToolSpec, ...]:
        """All tools, in a fixed order."""
        return self.specs_under(self._configuration())

    def specs_under(self, now: Configuration) -> tuple[ToolSpec, ...]:
        """Return `specs`, under a configuration that the caller has just asked for."""
        own = self._catalog(now).specs
        names = {spec.name for spec in own}
        return (*own, *(tool.spec for tool in self._servers.tools(now) if tool.spec.name not in names))

    @property
    def absent(self) -> Mapping[str, str]:
        """Built-in tools that cannot be offered here, each with the reason and how to get it."""
        return self._catalog(self._configuration()).absent

    @property
    def unavailable(self) -> Mapping[str, str]:
        """The `absent` tools, and the tools that await the user's trust."""
        catalog = self._catalog(self._configuration())
        known = {spec.name for spec in catalog.specs}
        waiting = {name: why for name, why in self._trust.not_loaded().items() if name not in known}
        return {**waiting, **catalog.absent}

    @property
    def notices(self) -> tuple[str, ...]:
        """A sentence for each of the user's own tools that cannot be loaded."""
        return self._own_tools().notices

    def _own_tools(self) -> "OwnTools":
        trusted = self._trust.in_force.own_tools
        if self._own is not None:
            files, tools = self._own
            if files == trusted:
                return tools
        tools = load_own_tools(trusted, folder=self._paths.tools)
        self._own = (trusted, tools)
        return tools

    def settings(self) -> CatalogSettings:
        """Return what the built-in tools are made from: what the registries in force and the changed ones both say."""
        return self._settings(self._configuration())

    def _settings(self, now: Configuration) -> CatalogSettings:
        data = self._paths.data
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

    def _inputs(self, now: Configuration) -> tuple[CatalogSettings, tuple[Tool, ...]]:
        return self._settings(now), (*self._program, *self._own_tools().tools)

    def _catalog(self, now: Configuration) -> Catalog:
        depends_on = (now.registries, now.changed, now.skills, self._trust.in_force.own_tools)
        if depends_on != self._depends_on:
            made_of = self._inputs(now)
            if made_of != self._made_of:
                self._made_of, self._built = made_of, self._build(*made_of)
            self._depends_on = depends_on
        return self._built

    def _build(self, settings: CatalogSettings, further: tuple[Tool, ...]) -> Catalog:
        built = builtin_catalog(settings)
        taken = {*(spec.name for spec in built.specs), *built.absent, *ALIASES, *ENGINE_CALLS}
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


_MAX_ERROR_CHARS = 300
"""Characters of an error of a tool file that are shown."""


@frozen_dataclass(kw_only=False)
class OwnTools:
    """The tools of files and packages, and a sentence for everything that could not be loaded."""

    tools: tuple[Tool, ...] = ()
    notices: tuple[str, ...] = ()


def load_own_tools(items: Sequence[Item], *, folder: Path) -> OwnTools:
    """Load trusted files, which lie in `folder`, and installed packages. Executes their code. Never raises."""
    sources = [load_file(item.data, folder / item.path) for item in items]
    sources += [_from_package(entry) for entry in installed_entries(TOOLS)]
    tools: dict[str, Tool] = {}
    notices: list[str] = []
    for found in sources:
        notices += found.notices
        for tool in found.tools:
            if fault := name_fault(tool.spec.name, taken=tools):
                notices.append(f"{tool.spec.source}: {fault}")
            else:
                tools[tool.spec.name] = tool
    return OwnTools(tuple(tools.values()), tuple(notices))


def name_fault(name: str, *, taken: Collection[str]) -> str:
    """Return why a tool of the user cannot have this name, as a sentence; empty if it can."""
    if name in taken:
        return f"A tool named {name} already exists; this one is left out."
    if _fold_name(name) in {_fold_name(known) for known in (*BUILT_IN_TOOLS, *ALIASES, *ENGINE_CALLS)}:
        return f"The name {name} belongs to a built-in tool; this one is left out."
    if SERVER_MARK in name:
        return f"Two underscores, as in {name}, are for tools of MCP servers; this one is left out."
    return ""


def _fold_name(name: str) -> str:
    """Return what is left of a name without what is easily overlooked. Names are ASCII letters, digits, - and _."""
    return name.lower().replace("-", "").replace("_", "").replace("0", "o").replace("1", "l").replace("i", "l")


def load_file(data: bytes, file: Path) -> OwnTools:
    """Load one file. Executes its code. Never raises."""
    source = f"tools/{file.name} {hashlib.sha256(data).hexdigest()[:12]}"
    module = ModuleType(f"chatops_own_tools.{file.stem}")
    module.__file__ = str(file)
    # Types in quotes are looked up in the module of their function.
    sys.modules[module.__name__] = module

    def load() -> object:
        # As text, as the question has shown it: Python would obey a comment that names another encoding.
        exec(compile(data.decode("utf-8-sig"), str(file), "exec", dont_inherit=True), module.__dict__)
        return [value for value in vars(module).values() if isinstance(value, FunctionTool)]

    return _load_tools(load, source=source, name=f"tools/{file.name}", module=module.__name__)


def _from_package(entry: "EntryPoint") -> OwnTools:
    version = f" {entry.dist.version}" if entry.dist is not None else ""
    package = entry.dist.name if entry.dist is not None else entry.value
    return _load_tools(entry.load, source=f"package {package}{version}", name=f"The package {package}", module="")


def _load_tools(load: Callable[[], object], *, source: str, name: str, module: str) -> OwnTools:
    """Return the tools that `load` gives, of a file only those that its `module` defines, not those it imports."""
    try:
        given = load()
        tools = tuple(_find_tools(given, module=module))
    except (KeyboardInterrupt, MemoryError):
        raise
    except ChatopsError as error:
        return OwnTools(notices=(f"{name} is not used: {error.full}",))
    except BaseException as error:  # Also SystemExit: a tool file must not end the program.
        return OwnTools(notices=(f"{name} is not used: {_describe_error(error)}",))
    if not tools:
        return OwnTools(notices=(f"{name} defines no tool: put @tool before a function.",))
    return OwnTools(tuple(_declare_unconfined(tool, source) for tool in tools))


def _declare_unconfined(tool: FunctionTool, source: str) -> FunctionTool:
    """Return a tool whose calls are shown as what they are: code that may do anything and reach anything."""

    def inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
        found = facts if tool.inspector is None else tool.inspector(arguments, facts, context)
        return replace(found, sandbox=found.sandbox or f"off ({source} runs in chatops itself)", network=True)

    return replace(tool, spec=replace(tool.spec, source=source), inspector=inspect)


def _find_tools(given: object, *, module: str) -> Iterator[FunctionTool]:
    values = given if isinstance(given, Iterable) else (given,)
    # One tool may have two names in a file.
    for tool in {id(value): value for value in values}.values():
        if not isinstance(tool, FunctionTool):
            raise TypeError(f"{type(tool).__name__} is not a tool; use @tool")
        if not module or getattr(tool.function, "__module__", "") == module:
            yield tool


def _describe_error(error: BaseException) -> str:
    """Return an error of a tool file on one line, with the line of the file that it comes from."""
    step = error.__traceback__
    line = error.lineno if isinstance(error, SyntaxError) else None
    while step is not None:
        if step.tb_frame.f_globals.get("__name__", "").startswith("chatops_own_tools."):
            line = step.tb_lineno
        step = step.tb_next
    text = sanitize(f"{type(error).__name__}: {error}", newlines=False)[:_MAX_ERROR_CHARS]
    return f"{text} (line {line})" if line else text
