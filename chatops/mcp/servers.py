"""All servers of the registry in force, and their tools."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import ToolSpec
from chatops.mcp.process import ServerLimits
from chatops.mcp.server import Server, ServerStatus
from chatops.mcp.tool import ServerTool
from chatops.policy.servers import McpServerSpec, server_of


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

    def expected(self, named: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Return specs for tools that the servers may have and have not listed; roles name those in `named`."""
        names = tuple(named)
        return tuple(spec for server in self._current() for spec in server.expected(names))

    def start(self, names: Collection[str]) -> tuple[ServerStatus, ...]:
        """Connect to these servers in the background. Return those that are connecting for the first time."""
        found = self._named(names)
        for server in found:
            server.start()
        return tuple(server.status for server in found if server.is_connecting)

    async def settled(self, names: Collection[str]) -> None:
        """Wait until each of these servers is connected, or cannot be for now."""
        await asyncio.gather(*(server.settled() for server in self._named(names)))

    async def connect(self, names: Collection[str]) -> None:
        """Connect to these servers, and wait until each is ready or has failed. Never raises."""
        await asyncio.gather(*(server.ready(attempts=1) for server in self._named(names)), return_exceptions=True)

    def reconnect(self, name: str) -> bool:
        """Connect to a server now if it has failed. Return False if there is none of that name."""
        found = self._named((name,))
        for server in found:
            server.reconnect()
        return bool(found)

    async def log_in(self, name: str, *, show: Callable[[str], None]) -> bool:
        """Log in at a server. Return False if there is none of that name. Raises ChatopsError."""
        found = self._named((name,))
        for server in found:
            await server.log_in(show=show)
        return bool(found)

    async def aclose(self) -> None:
        """End all servers."""
        with self._lock:
            servers, self._servers = tuple(self._servers.values()), {}
            self._configured = tuple
        await asyncio.gather(*(server.aclose() for server in servers), *self._ending, return_exceptions=True)

    def _named(self, names: Collection[str]) -> tuple[Server, ...]:
        self._loop = asyncio.get_running_loop()
        return tuple(server for server in self._current() if server.spec.name in names)

    def _current(self) -> tuple[Server, ...]:
        wanted = tuple(self._configured())
        with self._lock:
            if tuple(self._servers) != wanted:
                before = self._servers
                self._servers = {one: before.get(one) or self._made(one) for one in wanted}
                if self._loop is not None and not self._loop.is_closed():
                    gone = tuple(server for one, server in before.items() if one not in self._servers)
                    self._loop.call_soon_threadsafe(self._end, gone)
            return tuple(self._servers.values())

    def _made(self, one: Configured) -> Server:
        def changed() -> None:
            self._changed(server.status)

        server = Server(one.spec, sandbox=one.sandbox, limits=self._limits, records=self._records, changed=changed)
        return server

    def _end(self, gone: Sequence[Server]) -> None:
        for server in gone:
            task = asyncio.ensure_future(server.aclose())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
