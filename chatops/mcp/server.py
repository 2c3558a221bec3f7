"""One server: a task that owns its connection, and its state.

Theory of operation

The SDK has to enter and leave a connection in one task, so each server has an owner task (`_keep_connected`). It
connects, lists the tools, waits until the connection is lost or no longer wanted, and leaves. Calls come from the tasks
of the tools and use the connection directly: stopping a call never reaches the owner.

A lost connection is made again, with pauses that grow. After `_ATTEMPTS` failures in a row the server stays failed
until something calls `reconnect`. A call is never repeated: one that was under way when the connection was lost has an
unknown outcome.

Servers announce changes of their tools, some of them many times at once. An announcement only marks the list as old;
a task beside the owner (`_follow_list`) reads it again after `_SETTLE_S`. A call does not rely on that: `refresh` reads
the list before each inspection.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from enum import StrEnum
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.extras import not_installed
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import ToolSpec
from chatops.mcp.catalogue import ListedTool, Record, UsableTool, expected_specs, usable_tools
from chatops.mcp.process import NotPermittedError, ServerLimits, ServerStartError
from chatops.policy.servers import McpServerSpec
from chatops.toolkit.threads import in_thread

if TYPE_CHECKING:
    from chatops.mcp.connection import Connection

log = logging.getLogger(__name__)

LOST = "the connection was lost"
_PAUSES_S = (0.5, 2.0, 8.0)
"""Seconds before each further attempt to connect."""
_ATTEMPTS = len(_PAUSES_S) + 1
_SETTLE_S = 0.5
"""Seconds from an announcement to reading the list again: several announcements cost one reading."""
_READY_S = 40.0
"""Maximum number of seconds that a call waits for its server: a little more than connecting and listing may take."""


class ServerState(StrEnum):
    """State of a server."""

    OFF = "off"
    """Nothing has asked for it yet."""
    STARTING = "starting"
    READY = "ready"
    NEEDS_YES = "needs your yes"
    """Its sandbox would be below level basic, and the user has not said yes to the start."""
    FAILED = "failed"
    CLOSED = "closed"


@frozen_dataclass
class ServerStatus:
    """State of a server and what is known of it, for display."""

    name: str
    origin: str
    state: ServerState = ServerState.OFF
    reason: str = ""
    """Why there is no connection, as a clause; untrusted text, safe to show."""
    protocol: str = ""
    sandbox: str = ""
    """How its process is confined; empty: it is reached by URL, or not started."""
    tools: tuple[str, ...] = ()
    """Names of its tools here: from its last list if it is not ready."""
    warnings: tuple[str, ...] = ()
    """A clause for each tool that it lists and that cannot be used, and for each that the registry names in vain."""

    @property
    def is_off(self) -> bool:
        """True if nothing has asked for it yet."""
        return self.state is ServerState.OFF

    @property
    def may_list_tools(self) -> bool:
        """True if its tools are not known, and may be soon."""
        return self.state in (ServerState.OFF, ServerState.STARTING) and not self.tools

    @property
    def failure(self) -> str:
        """Why there is no connection, as a sentence; empty if there is one, or may be soon."""
        if self.state is ServerState.NEEDS_YES:
            decide = f"To decide: chatops mcp check {self.name}, or /trust in the chat"
            return f"The MCP server {self.name} is not started: {self.reason}. {decide}."
        if self.state is not ServerState.FAILED:
            return ""
        return f"The MCP server {self.name} is not connected: {self.reason}."


@frozen_dataclass
class _End:
    """End of a connection, or of an attempt to connect."""

    reason: str
    state: ServerState = ServerState.FAILED
    """The state of the server until the next attempt."""
    was_connected: bool = False


class Server:
    """A server of the registry. Make and use it in one event loop; `status` and `tools` can be read from any thread."""

    def __init__(
        self,
        spec: McpServerSpec,
        *,
        sandbox: SandboxSpec,
        limits: Callable[[], ServerLimits],
        records: Path,
        on_change: Callable[[], None],
    ) -> None:
        """Start nothing yet. `on_change` is called after each change of the state or of the tools."""
        self.spec = spec
        self.sandbox = sandbox
        self._limits = limits
        self._records = records
        self._record = Record(records, spec)
        self._on_change = on_change
        self.tools: tuple[UsableTool, ...] = usable_tools(spec, self._record.tools)[0]
        """The tools as the server listed them last."""
        self.status = ServerStatus(name=spec.name, origin=spec.origin, tools=self._names())
        self._connection: Connection | None = None
        self._owner: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        """Ends the pause before the next attempt."""
        self._connect_ended = asyncio.Event()
        """Set when an attempt to connect has ended. `ready` clears it before it waits for another one."""
        self._list_changed = asyncio.Event()
        self.running_calls = 0
        """Calls that `ServerTool.run` has sent, and that have no result yet."""

    def expected(self, named: Iterable[str]) -> tuple[ToolSpec, ...]:
        """Return specs for tools that it may have and has not listed, see `expected_specs`."""
        return expected_specs(self.spec, self.status.tools, named=named)

    @property
    def is_connecting(self) -> bool:
        """True while it connects for the first time."""
        return self.status.state is ServerState.STARTING and not self.status.reason

    async def settled(self) -> None:
        """Wait until it is connected, or cannot be for now."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                await self._connect_ended.wait()

    def start(self) -> None:
        """Connect in the background, unless that was done."""
        if self._owner is None and self.status.state is not ServerState.CLOSED:
            self._set_state(ServerState.STARTING)
            self._owner = asyncio.create_task(self._keep_connected(), name=f"MCP server {self.spec.name}")

    def reconnect(self) -> None:
        """Connect now if the server has failed, or look again if the user has said yes."""
        self.start()
        self._woken.set()

    async def log_in(self, *, show: Callable[[str], None]) -> None:
        """Log in at the server and connect again. `show` gets the address to open in a browser. Raises ChatopsError."""
        if not self.spec.auth:
            raise ConfigError(
                f"{self.spec.name} needs no login.", advice='A server at a URL that does has "auth": "oauth".'
            )
        try:
            await _load_sdk()
            from chatops.mcp.login import log_in

            await log_in(self.spec, self._records, show=show)
        except ConfigError:
            raise
        except Exception as error:
            reason = str(error) if isinstance(error, ServerStartError) else _explain(error)
            raise ChatopsError(f"No login at the MCP server {self.spec.name}: {reason}.") from error
        self.reconnect()

    async def ready(self, *, attempts: int = 2) -> "Connection":
        """Return the connection, once there is one. Raises ServerStartError with the reason if there is none.

        It may be about to be lost, so a failure is tried again, `attempts` times in all.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_READY_S):
                for _ in range(attempts):
                    if self.status.state in (ServerState.OFF, ServerState.FAILED, ServerState.NEEDS_YES):
                        self._connect_ended.clear()
                        self.reconnect()
                    elif self.status.state is ServerState.READY and self._usable_connection is None:
                        # The owner is about to notice. It connects again, and sets this at the end.
                        self._connect_ended.clear()
                    await self._connect_ended.wait()
                    if (connection := self._usable_connection) is not None:
                        return connection
                    # Let the owner note why there is none.
                    await asyncio.sleep(0)
        raise ServerStartError(self.status.reason or "it is not connected yet")

    @property
    def _usable_connection(self) -> "Connection | None":
        connection = self._connection
        return None if connection is None or connection.lost.is_set() else connection

    async def refresh(self) -> None:
        """Read the list of tools again. Raises ServerStartError if the server is not connected or does not answer."""
        connection = await self.ready()
        try:
            await self._read_tools(connection)
        except Exception as error:
            if isinstance(error, TimeoutError) and self.running_calls:
                # It may work on one request at a time. What is approved is bound to the list that is known.
                return
            why = connection.lost.reason or _explain(error)
            raise ServerStartError(f"it does not list its tools: {why}") from error

    def tool(self, name: str) -> UsableTool | None:
        """Return the tool called `name` here."""
        return next((tool for tool in self.tools if tool.spec.name == name), None)

    def needs_review(self, tool: UsableTool) -> bool:
        """Return True if `tool` was used before and has changed since."""
        return self._record.has_changed(tool.name, tool.definition)

    async def note_use(self, tool: UsableTool) -> None:
        """Remember that the user or a rule let a call of `tool` run."""
        await in_thread(self._record.keep_used, tool.name, tool.definition)

    async def aclose(self) -> None:
        """Leave the connection and end the server's process."""
        owner, self._owner = self._owner, None
        self._set_state(ServerState.CLOSED)
        self._woken.set()
        if owner is not None:
            owner.cancel()
            await asyncio.gather(owner, return_exceptions=True)

    async def _keep_connected(self) -> None:
        """Connect, and connect again whenever that failed or the connection was lost, until the server is closed."""
        failures = 0  # in a row
        # The SDK can swallow a cancellation while it leaves a connection, so that alone does not end this task.
        while not self._is_closed():
            self._woken.clear()
            end = await self._try_to_use()
            self._connection = None
            if self._is_closed():
                return
            failures = 0 if end.was_connected else failures + 1
            if not self._woken.is_set():
                self._set_state(end.state, reason=end.reason)
                # Without the user's yes, another attempt would fail in the same way.
                gives_up = end.state is ServerState.NEEDS_YES or failures >= _ATTEMPTS
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if gives_up else _PAUSES_S[max(0, failures - 1)]):
                        await self._woken.wait()
                        failures = 0
            self._set_state(ServerState.STARTING, reason=end.reason)

    async def _try_to_use(self) -> _End:
        """Connect, use the connection until it is lost, and return how that ended."""
        try:
            why = await self._connect_and_use()
            return _End(reason=f"{LOST}: {why}" if why else LOST, was_connected=True)
        except NotPermittedError as error:
            return _End(reason=str(error), state=ServerState.NEEDS_YES)
        except ServerStartError as error:
            self.status = replace(self.status, sandbox=error.sandbox or self.status.sandbox)
            return _End(reason=str(error))
        except Exception as error:
            reason = _explain(error)
            log.warning("the connection to %s failed: %s", self.spec.name, reason)
            return _End(reason=reason)

    async def _connect_and_use(self) -> str:
        """Connect, wait until the connection is lost, and return why it was.

        Raises ServerStartError if no connection could be made, or it could not be used.
        """
        await _load_sdk()
        from chatops.mcp.connection import open_connection

        failure = ""
        async with open_connection(
            self.spec, self.sandbox, self._limits(), records=self._records, on_change=self._list_changed.set
        ) as connection:
            # Returned and not raised: the SDK's task groups would wrap an error that leaves this block.
            failure = await self._use_until_lost(connection)
        if failure:
            raise ServerStartError(failure)
        return connection.lost.reason

    async def _use_until_lost(self, connection: "Connection") -> str:
        """Use a new connection until it is lost. Return why it cannot be used; empty if it could."""
        self._list_changed.clear()
        try:
            await self._read_tools(connection)
        except Exception as error:
            return f"it does not list its tools: {connection.lost.reason or _explain(error)}"
        self._connection = connection
        self._set_state(ServerState.READY)
        watching = asyncio.create_task(self._follow_list(connection), name=f"tools of {self.spec.name}")
        try:
            await connection.lost.wait()
        finally:
            self._connection = None
            watching.cancel()
        self._set_state(ServerState.STARTING, reason=LOST)
        return ""

    async def _follow_list(self, connection: "Connection") -> None:
        while True:
            await self._list_changed.wait()
            await asyncio.sleep(_SETTLE_S)
            self._list_changed.clear()
            try:
                await self._read_tools(connection)
            except Exception as error:
                log.info("the tools of %s could not be listed: %s", self.spec.name, _explain(error))

    async def _read_tools(self, connection: "Connection") -> None:
        """Read the list of tools. If it or what is known of the connection has changed, record and report it."""
        listed = [
            ListedTool(
                name=tool.name,
                description=tool.description or tool.title or "",
                input_schema=tool.input_schema,
                output_schema=tool.output_schema,
                title=tool.title or (tool.annotations and tool.annotations.title) or "",
            )
            for tool in await connection.tools()
        ]
        tools, warnings = usable_tools(self.spec, listed)
        warnings = (*connection.faults, *warnings)
        known = (self.tools, self.status.warnings, self.status.protocol)
        if (tools, warnings, connection.protocol) == known:
            return
        self.tools = tools
        self.status = replace(
            self.status,
            tools=self._names(),
            warnings=warnings,
            protocol=connection.protocol,
            sandbox=connection.sandbox,
        )
        usable = {tool.name for tool in tools}
        await in_thread(self._record.keep_tools, [tool for tool in listed if tool.name in usable])
        self._on_change()

    def _is_closed(self) -> bool:
        return self.status.state is ServerState.CLOSED

    def _names(self) -> tuple[str, ...]:
        return tuple(tool.spec.name for tool in self.tools)

    def _set_state(self, state: ServerState, *, reason: str = "") -> None:
        if self._is_closed():
            return
        if state is ServerState.STARTING:
            self._connect_ended.clear()
        else:
            self._connect_ended.set()
        self.status = replace(self.status, state=state, reason=reason)
        self._on_change()


async def _load_sdk() -> None:
    """Import what needs the SDK. Raises ServerStartError."""
    if find_spec("mcp") is None:
        raise ServerStartError(not_installed("mcp"))
    try:
        await in_thread(import_module, "chatops.mcp.connection")
    except ImportError as error:
        raise ServerStartError(f"the MCP SDK cannot be loaded: {error}") from error


def _explain(error: BaseException) -> str:
    from chatops.mcp.connection import reason_of

    return reason_of(error)
