"""All servers of the registry in force, and their tools as tools of chatops.

An approval is bound to what the server says of the tool: name, description, schemas. So the list is read again before
each inspection, and a tool that differs by the time it should run does not run. A call is run once, never again.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Answer, AnswerAction, ServerQuestion
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts, Outcome, Problem, ServerFacts, ToolCall, ToolResult, ToolSpec
from chatops.mcp.process import ServerLimits, ServerStartError
from chatops.mcp.server import Server, ServerStatus
from chatops.policy.servers import McpServerSpec, server_of
from chatops.sandbox.execution import program_seconds
from chatops.toolkit.base import Reconciled, ToolContext, with_limit_paused
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread
from chatops.tools.arguments import fit_schema, parse

if TYPE_CHECKING:
    from mcp.types import CallToolResult

    from chatops.mcp.connection import Connection, Progress

_PROGRESS_S = 0.25
"""Seconds between two lines of progress on the card."""
_MAX_PROGRESS = 400
"""Lines of progress of one call."""
_MAX_MESSAGE = 200
"""Characters of the server's words in such a line."""
UNKNOWN = "It is not known whether the call took effect."


class _OutcomeUnknownError(Exception):
    """Raised if a call ended without an answer of the server, so that it may have taken effect. Its text says how."""


@frozen_dataclass
class ServerTool:
    """The tool called `name` here, of `server`."""

    server: Server
    name: str
    listed: ToolSpec
    """The tool as it was when this object was made."""

    @property
    def spec(self) -> ToolSpec:
        """The server's newest description of the tool, or the last one if the server has removed the tool."""
        found = self.server.tool(self.name)
        return self.listed if found is None else found.spec

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Read the server's list again, and validate `call` against it."""
        try:
            await self.server.refresh()
            connection = await self.server.ready()
        except ServerStartError as error:
            return CallFacts(
                arguments=call.arguments,
                problems=(Problem(path="", message=f"the MCP server {self.server.spec.name} is not ready: {error}"),),
                may_resolve=True,
            )
        found = self.server.tool(self.name)
        if found is None:
            gone = Problem(path="", message=f"the MCP server {self.server.spec.name} no longer has this tool")
            return CallFacts(arguments=call.arguments, problems=(gone,))
        read = await in_thread(fit_schema, parse(call), schema=found.spec.schema)
        changed = f"the tool {self.name} has changed since it was used last: review it again"
        return CallFacts(
            arguments=read.text,
            problems=read.problems,
            repairs=read.repairs,
            cwd=self.server.spec.cwd if connection.process is not None else "",
            workspace=str(context.workspace),
            sandbox=connection.sandbox,
            network=connection.network,
            needs_user=changed if self.server.needs_review(found) else "",
            server=ServerFacts(
                name=self.server.spec.name,
                origin=self.server.spec.origin,
                tool=found.name,
                description=found.spec.description,
                by_url=bool(self.server.spec.url),
            ),
        )

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Call the tool once. Raises ToolFailedError if the server was not asked, or refused the call."""
        if facts.problems or facts.refusal:
            raise ToolFailedError("The call is invalid and cannot run.")
        try:
            connection = await self.server.ready()
        except ServerStartError as error:
            raise ToolFailedError(f"Not run: the MCP server {self.server.spec.name} is not ready: {error}") from error
        found = self.server.tool(self.name)
        # The definition is part of what was approved, and so are the folder and level of the process (`sandbox`).
        if found is None or found.definition != facts.definition or connection.sandbox != facts.sandbox:
            raise ToolFailedError("Not run: the tool or its server has changed since the call was approved.")
        from chatops.mcp.inbound import MAX_PER_S
        from chatops.mcp.results import as_result

        await self.server.note_use(found)
        arguments = dict(parse(ToolCall(id=context.call_id, name=self.name, arguments=facts.arguments)).value)
        notices: list[str] = []
        dropped = connection.inbound.dropped
        self.server.running_calls += 1
        try:
            answer = await self._call(connection, found.name, arguments, context, notices)
        except _OutcomeUnknownError as unknown:
            return ToolResult(outcome=Outcome.UNKNOWN, content=f"{unknown} {UNKNOWN}")
        finally:
            self.server.running_calls -= 1
        if connection.inbound.dropped > dropped:
            notices.append(f"[chatops dropped messages of the server: it sent more than {MAX_PER_S} in a second]")
        result = await as_result(answer, output_schema=found.spec.output_schema, context=context)
        return replace(result, content="\n".join((*dict.fromkeys(notices), result.content)))

    async def _call(
        self,
        connection: "Connection",
        tool: str,
        arguments: dict[str, JsonValue],
        context: ToolContext,
        notices: list[str],
    ) -> "CallToolResult":
        """Call the tool as the server names it, within the time limit. Declined questions are added to `notices`.

        Raises _OutcomeUnknownError, or ToolFailedError if the server refused the call.
        """
        from chatops.mcp.connection import AnswerError, CallError, LostError

        def note_decline(why: str) -> None:
            notices.append(f"[chatops declined a question of the server to the user: {why}]")

        async def decline(question: ServerQuestion) -> Answer:
            note_decline("no user is present to answer it")
            return Answer(action=AnswerAction.DECLINE)

        limit = program_seconds(context)
        try:
            async with asyncio.timeout(limit) as clock:
                ask = decline if context.ask is None else with_limit_paused(context.ask, clock)
                return await connection.call(
                    tool, arguments, shown=_progress_of(context), ask=ask, on_decline=note_decline
                )
        except TimeoutError:
            raise _OutcomeUnknownError(f"The server did not answer within {limit:.0f} s.") from None
        except asyncio.CancelledError:
            # Not raised again: the call may have taken effect, and only a result can say so.
            raise _OutcomeUnknownError("Stopped by the user while the server worked on it.") from None
        except LostError as error:
            why = f": {error}" if str(error) else ""
            lost = f"The connection to the MCP server {self.server.spec.name} was lost during the call{why}."
            raise _OutcomeUnknownError(lost) from error
        except AnswerError:
            raise _OutcomeUnknownError("The answer of the server cannot be read.") from None
        except CallError as error:
            raise ToolFailedError(f"The server refused the call: {error}") from error

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Report that the outcome of a started call is unknown: a server cannot be asked what became of it."""
        return Reconciled(result=None)


def _progress_of(context: ToolContext) -> "Progress":
    """Return what shows progress on the card, a few times per second."""
    last, count = 0.0, 0

    def show(amount: float, total: float | None, message: str) -> None:
        nonlocal last, count
        now = time.monotonic()
        if now - last < _PROGRESS_S or count >= _MAX_PROGRESS:
            return
        last, count = now, count + 1
        done = f"{amount:g}" if total is None else f"{amount:g} of {total:g}"
        note = visible(message, limit=_MAX_MESSAGE)
        context.output(f"{done}: {note}\n" if note else f"{done}\n")

    return show


@frozen_dataclass
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
        on_change: Callable[[ServerStatus], None] = lambda status: None,
    ) -> None:
        """Start nothing yet. `records` is the folder of what is remembered of servers.

        `on_change` is called, in the event loop, with each new status.
        """
        self._configured = configured
        self._limits = limits
        self._records = records
        self._on_change = on_change
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
            ServerTool(server=server, name=tool.spec.name, listed=tool.spec)
            for server in self._current()
            for tool in server.tools
        )

    def get(self, name: str) -> ServerTool | None:
        """Return the tool called `name`, or None."""
        server = next((server for server in self._current() if server.spec.name == server_of(name)), None)
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
            self._configured = tuple  # From now on none is configured.
        await asyncio.gather(*(server.aclose() for server in servers), *self._ending, return_exceptions=True)

    def _named(self, names: Collection[str]) -> tuple[Server, ...]:
        """Return the servers of these names. Everything that starts one calls this in the event loop."""
        self._loop = asyncio.get_running_loop()
        return tuple(server for server in self._current() if server.spec.name in names)

    def _current(self) -> tuple[Server, ...]:
        """Return the servers that are configured now. New ones are made, and those that are gone end."""
        wanted = tuple(self._configured())
        with self._lock:
            if tuple(self._servers) != wanted:
                before = self._servers
                self._servers = {
                    configured: before.get(configured) or self._create_server(configured) for configured in wanted
                }
                if self._loop is not None and not self._loop.is_closed():
                    gone = tuple(server for configured, server in before.items() if configured not in self._servers)
                    self._loop.call_soon_threadsafe(self._end, gone)
            return tuple(self._servers.values())

    def _create_server(self, configured: Configured) -> Server:
        server = Server(
            configured.spec,
            sandbox=configured.sandbox,
            limits=self._limits,
            records=self._records,
            on_change=lambda: self._on_change(server.status),
        )
        return server

    def _end(self, gone: Sequence[Server]) -> None:
        for server in gone:
            task = asyncio.ensure_future(server.aclose())
            self._ending.add(task)
            task.add_done_callback(self._ending.discard)
