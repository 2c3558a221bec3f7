"""MCP servers according to the registries in force, loaded only where a registry names one."""

import asyncio
import glob
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.workspace_files import Item
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import ToolSpec
from chatops.policy.registry import Registries
from chatops.policy.sandbox import SandboxLayers, resolve
from chatops.policy.servers import mcp_source
from chatops.runtime.settings import SessionSettings
from chatops.toolkit.base import Tool
from chatops.wiring.configuration import Configuration
from chatops.wiring.rows import unknown_name

if TYPE_CHECKING:
    from chatops.mcp.packages import Installer
    from chatops.mcp.server import ServerStatus
    from chatops.mcp.servers import Configured, Servers

LOGIN_TEXT = """Open this address in a browser on this machine:

{url}

The server named it. Check its host before you enter anything there."""
log = logging.getLogger(__name__)

Offers = Callable[[SessionSettings, Sequence[ToolSpec]], Sequence[ToolSpec]]
"""Returns the tools that settings would offer if further tools existed too. Raises ConfigError."""


def configured_servers(now: Configuration) -> "tuple[Configured, ...]":
    """Return the servers in force, each name once: the site's before the user's.

    A server that a changed file lacks, or names otherwise, is gone at once; one that it adds is not there yet.
    """
    in_force, *changed = [_configured_under(registries) for registries in now.both]
    return tuple(server for server in in_force if all(server in servers for servers in changed))


def _configured_under(registries: Registries) -> "tuple[Configured, ...]":
    from chatops.mcp.servers import Configured

    site, existing = registries[0], [registry for registry in registries if registry is not None]
    may_accept_level = all(registry.may_accept_level for registry in existing)
    found: dict[str, Configured] = {}
    for registry in existing:
        for spec in registry.servers:
            if not may_accept_level:
                spec = replace(spec, accept_level=SandboxLevel.BASIC)
            sandbox = _limit_server(spec.sandbox, registries, own=registry is not site)
            found.setdefault(spec.name, Configured(spec=spec, sandbox=sandbox))
    return tuple(found.values())


def _limit_server(wanted: SandboxSpec, registries: Registries, *, own: bool) -> SandboxSpec:
    """Return the limits of a server's process: what its entry says, at the level that the registries require.

    The site's limits are the ceiling of the user's `own` servers.
    """
    site, existing = registries[0], [registry for registry in registries if registry is not None]
    required = [registry.sandbox.require for registry in existing if registry.sandbox is not None]
    keys = frozenset(model.key.env for registry in existing for model in registry.models)
    return resolve(
        SandboxLayers(
            registry=wanted,
            role=max(required, default=SandboxLevel.NONE),
            site=site.sandbox if own and site is not None else None,
            keys=keys,
        )
    )


class McpServers:
    """The MCP servers of the registries in force. Costs nothing while no registry names one."""

    def __init__(
        self,
        configuration: Callable[[], Configuration],
        *,
        workspace: Path,
        data: Path,
        offers: Offers,
        permits: Callable[[Item], bool],
        attended: bool,
        on_change: Callable[[], None],
        notify: Callable[[str], None],
    ) -> None:
        """Start nothing. `on_change` is called when there are other tools; `notify` gets each new failure.

        `permits` returns whether the user has said yes to a start.
        `attended`: a user is at the screen, so no turn waits for a server whose tools are known from the last time.
        """
        self._offers = offers
        self._permits = permits
        self._attended = attended
        self._configuration = configuration
        self._workspace = workspace
        self._data = data
        self._on_change = on_change
        self._notify = notify
        self._started: Servers | None = None
        self._notified: dict[str, str] = {}
        """The failure of each server that the user was told of last."""
        self._listed: dict[str, tuple[str, ...]] = {}
        """The tools of each server at its last status."""
        self._logins: dict[str, asyncio.Task[None]] = {}

    def _servers(self, now: Configuration | None = None) -> "Servers | None":
        if self._started is None and any(registry.servers for registry in (now or self._configuration()).known):
            from chatops.mcp.process import ServerLimits
            from chatops.mcp.servers import Servers

            self._started = Servers(
                lambda: configured_servers(self._configuration()),
                limits=lambda: ServerLimits(
                    workspace=self._workspace,
                    protected=self._configuration().protected_paths(),
                    permits=self._permits,
                ),
                records=self._data / "mcp",
                on_change=self._on_status,
            )
            self._listed = {status.name: status.tools for status in self._started.statuses()}
        return self._started

    def _on_status(self, status: "ServerStatus") -> None:
        if self._listed.get(status.name, ()) != status.tools:
            self._listed[status.name] = status.tools
            self._on_change()
        failure = status.failure
        if failure and self._notified.get(status.name) != failure:
            log.warning("%s", failure)
            self._notify(failure)
            self._notified[status.name] = failure

    def tools(self, now: Configuration | None = None) -> Sequence[Tool]:
        """Return the tools of all servers. `now` is the configuration if the caller has just asked for it."""
        servers = self._servers(now)
        return () if servers is None else servers.tools()

    def statuses(self) -> "tuple[ServerStatus, ...]":
        """Return the state of each server."""
        servers = self._servers()
        return () if servers is None else servers.statuses()

    def failures(self) -> tuple[str, ...]:
        """Return a sentence for each server that could not be connected to."""
        return tuple(status.failure for status in self.statuses() if status.failure)

    def pending(self) -> tuple[str, ...]:
        """Return the servers whose tools are not known yet, and that may still connect."""
        return tuple(status.name for status in self.statuses() if status.may_list_tools)

    def needed(self, settings: SessionSettings) -> frozenset[str]:
        """Return the servers with a tool that the grant of `settings` holds. A tool not listed yet may be one."""
        servers = self._servers()
        if servers is None:
            return frozenset()
        roles = [role for registry in self._configuration().known for role in registry.roles]
        lists = [role.tools or () for role in roles]
        if settings.step is not None:
            lists.append(settings.step.step.tools or ())
        further = servers.expected(name for names in lists for name in names)
        try:
            sources = {spec.source for spec in self._offers(settings, further)}
        except ConfigError:
            return frozenset()  # The role is gone, which the turn will say.
        return frozenset(status.name for status in servers.statuses() if mcp_source(status.name) in sources)

    def start_for(self, settings: SessionSettings) -> tuple[str, ...]:
        """Connect to the needed servers in the background. Return those that a turn has to wait for."""
        servers = self._servers()
        if servers is None:
            return ()
        connecting = servers.start(self.needed(settings))
        return tuple(status.name for status in connecting if not (self._attended and status.tools))

    async def settled(self, names: Collection[str]) -> None:
        """Wait until each of these servers is connected, or cannot be for now."""
        if (servers := self._servers()) is not None:
            await servers.settled(names)

    async def connect_for(self, settings: SessionSettings) -> None:
        """Connect to the needed servers, and wait until each is ready or has failed."""
        await self.connect(self.needed(settings))

    async def connect(self, names: Collection[str]) -> None:
        """Connect to these servers, and wait until each is ready or has failed."""
        if (servers := self._servers()) is not None:
            await servers.connect(names)

    def reconnect(self, name: str) -> bool:
        """Connect to a server again now. Return False if there is none of that name."""
        servers = self._servers()
        return servers is not None and servers.reconnect(name)

    async def log_in(self, name: str, *, show: Callable[[str], None]) -> None:
        """Log in at a server with OAuth. `show` gets the address to open in a browser. Raises ChatopsError."""
        servers = self._servers()
        if servers is None or not await servers.log_in(name, show=show):
            raise unknown_name("MCP server", name, [status.name for status in self.statuses()])

    async def begin_login(self, name: str) -> str:
        """Return the address to open in a browser; a notice tells how the login ended. Raises ChatopsError."""
        address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        if (before := self._logins.pop(name, None)) is not None:
            before.cancel()
        task = asyncio.create_task(self.log_in(name, show=address.set_result), name=f"login at {name}")
        self._logins[name] = task
        await asyncio.wait((task, address), return_when=asyncio.FIRST_COMPLETED)
        if not address.done():
            if not task.cancelled():
                await task
            raise ChatopsError(f"The login at {name} was ended before there was an address.")
        task.add_done_callback(lambda done: self._login_ended(name, done))
        return address.result()

    def _login_ended(self, name: str, task: "asyncio.Task[None]") -> None:
        if self._logins.get(name) is task:
            del self._logins[name]
        if not task.cancelled():
            error = task.exception()
            self._notify(f"Logged in at the MCP server {name}." if error is None else str(error))

    def installer(self, folder: Path) -> "Installer":
        """Return what installs packages of servers below `folder`. Raises ConfigError if the site forbids that."""
        from chatops.mcp.packages import Installer, limits_of_installing

        now = self._configuration()
        sandbox = _limit_server(limits_of_installing(), now.registries, own=True)
        if not sandbox.network:
            raise ConfigError(
                "Nothing can be fetched: the site's registry gives servers no network.",
                advice="Install the package yourself, then add its program by its name.",
            )
        return Installer(folder=folder, sandbox=sandbox, protected=now.protected_paths())

    def forget_login(self, name: str) -> None:
        """Remove the stored login at a server."""
        from chatops.mcp.catalogue import login_file

        file = login_file(self._data / "mcp", name)
        # A process that is killed while it writes leaves the tokens under another name.
        for path in (file, *file.parent.glob(f".{glob.escape(file.name)}.*")):
            path.unlink(missing_ok=True)

    async def aclose(self) -> None:
        """End all servers."""
        for task in self._logins.values():
            task.cancel()
        await asyncio.gather(*self._logins.values(), return_exceptions=True)
        if self._started is not None:
            await self._started.aclose()


def status_lines(status: "ServerStatus") -> tuple[str, ...]:
    """Return the description of a server for display."""
    state = f"{status.state.value}, protocol {status.protocol}" if status.protocol else status.state.value
    facts = [
        ("at", status.origin),
        ("reason", status.reason),
        ("sandbox", status.sandbox),
        ("tools", ", ".join(status.tools)),
        *(("warning", warning) for warning in status.warnings),
    ]
    return (f"{status.name}: {state}", *(f"  {label}: {text}" for label, text in facts if text))
