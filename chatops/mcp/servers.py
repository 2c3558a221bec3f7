"""All servers of the registry in force, and their tools."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from chatops.domain.sandbox import SandboxSpec
from chatops.mcp.process import ServerLimits
from chatops.mcp.server import Server, ServerStatus
from chatops.mcp.tool import ServerTool
from chatops.policy.registry import McpServerSpec, server_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Configured:
    """A server of the registry, and the limits of its process."""

    spec: McpServerSpec
    sandbox: SandboxSpec


class Servers:
    """The servers that `configured` names at each moment. Can be asked from any thread; starts and ends in the loop.

    A server that the registry no longer names, or names otherwise, ends.
    """

    def __init__(
        self,
        configured: Callable[[], Sequence[Configured]],
        *,
        limits: Callable[[], ServerLimits],
        records: Path,
        changed: Callable[[ServerStatus], None] = lambda status: None,
    ) -> None:
        """Start nothing yet. `records` is the folder of what is remembered of servers.

        `changed` is called, in the event loop, with each new status.
        """
        self._configured = configured
        self._limits = limits
        self._records = records
        self._changed = changed
        self._servers: dict[Configured, Server] = {}
        self._lock = Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ending: set[asyncio.Task[None]] = set()

    def tools(self) -> tuple[ServerTool, ...]:
        """Return the tools of all servers, as they were listed last.

        A server that is not connected keeps its tools: a turn that loses a right does not get it back, and a call says
        what is wrong with the server.
        """
        return tuple(
            ServerTool(server=server, name=one.spec.name, listed=one.spec)
            for server in self._current()
            for one in server.tools
        )

    def get(self, name: str) -> ServerTool | None:
        """Return the tool called `name`, or None."""
        server = next((one for one in self._current() if one.spec.name == server_of(name)), None)
        found = server.tool(name) if server is not None else None
        return None if server is None or found is None else ServerTool(server=server, name=name, listed=found.spec)

    def statuses(self) -> tuple[ServerStatus, ...]:
        """Return the state of each server."""
        return tuple(server.status for server in self._current())

    def start(self) -> None:
        """Connect to all servers in the background, and from now on to new ones too."""
        self._loop = asyncio.get_running_loop()
        for server in self._current():
            server.start()

    async def connect(self, *, only: Collection[str] | None = None) -> None:
        """Connect to all servers, or to `only` these, and wait until each is ready or has failed. Never raises."""
        wanted = [server for server in self._current() if only is None or server.spec.name in only]
        if only is None:
            self.start()
        await asyncio.gather(*(server.ready(attempts=1) for server in wanted), return_exceptions=True)

    def reconnect(self, name: str) -> bool:
        """Connect to a server now if it has failed. Return False if there is none of that name."""
        found = [server for server in self._current() if server.spec.name == name]
        for server in found:
            server.reconnect()
        return bool(found)

    async def log_in(self, name: str, *, show: Callable[[str], None]) -> bool:
        """Log in at a server. Return False if there is none of that name. Raises ChatopsError."""
        found = next((server for server in self._current() if server.spec.name == name), None)
        if found is not None:
            await found.log_in(show=show)
        return found is not None

    async def aclose(self) -> None:
        """End all servers."""
        with self._lock:
            servers, self._servers = tuple(self._servers.values()), {}
            self._configured = tuple
        await asyncio.gather(*(server.aclose() for server in servers), *self._ending, return_exceptions=True)

    def _current(self) -> tuple[Server, ...]:
        wanted = tuple(self._configured())
        with self._lock:
            if tuple(self._servers) != wanted:
                before = self._servers
                self._servers = {one: before.get(one) or self._made(one) for one in wanted}
                if self._loop is not None and not self._loop.is_closed():
                    gone = tuple(server for one, server in before.items() if one not in self._servers)
                    new = tuple(server for one, server in self._servers.items() if one not in before)
                    self._loop.call_soon_threadsafe(self._replace, gone, new)
            return tuple(self._servers.values())

    def _made(self, one: Configured) -> Server:
        def changed() -> None:
            self._changed(server.status)

        server = Server(one.spec, sandbox=one.sandbox, limits=self._limits, records=self._records, changed=changed)
        return server

    def _replace(self, gone: Sequence[Server], new: Sequence[Server]) -> None:
        for server in gone:
            task = asyncio.ensure_future(server.aclose())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
        for server in new:
            server.start()
