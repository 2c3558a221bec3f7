"""A connection to one server, by the SDK: connect, list tools, call them.

Imports the SDK, which takes half a second: import this module in a thread. A connection is entered and left in one
task. Its calls may come from other tasks, and cancelling one leaves the connection usable.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
from mcp import Client, MCPError, types
from mcp.client._transport import TransportStreams
from mcp.client.auth import OAuthFlowError
from mcp.client.session import IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from pydantic import ValidationError

from chatops.domain import __version__
from chatops.domain.sandbox import SandboxSpec
from chatops.mcp.inbound import MAX_PER_S, MAX_TOOLS, UNREADABLE, Inbound, Lost, filter_received, stdio_transport
from chatops.mcp.login import LoginError, StoredAuth
from chatops.mcp.origin import Origin, OriginError, RefusedAnswerError
from chatops.mcp.process import ServerLimits, ServerProcess, ServerStartError, running_server
from chatops.mcp.questions import Questions
from chatops.policy.servers import McpServerSpec, ServerTransport
from chatops.toolkit.base import Ask
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread

log = logging.getLogger(__name__)
# The SDK logs each line that it cannot read with a traceback, and with the server's words.
logging.getLogger("mcp").setLevel(logging.CRITICAL)

CONNECT_S = 30.0
"""Seconds in which a server has to answer after it was started."""
LIST_S = 10.0
"""Seconds in which a server has to list its tools."""
_MAX_PAGES = 100
"""Pages of a list of tools: a server that names a next page for ever is cut off."""
_MAX_CONTINUED = 10
"""Times that a server may ask for more input before it gives the result of a call."""
_CONTINUE_S = 0.25
"""Seconds to wait for a server that wants a call to be continued and asks for nothing."""
_MAX_REASON = 300
"""Characters of a reason that the user or the model sees."""
_UNKNOWN_TRANSPORT = (400, 404, 405)
"""HTTP statuses from a server that does not support streamable HTTP."""
_SESSION_ENDED = 404
"""Status with which a server answers that has forgotten the session."""

Progress = Callable[[float, float | None, str], None]
"""Gets the progress so far, its total if that is known, and a text."""


class LostError(Exception):
    """Raised if the connection ended during a call: it is not known whether the call took effect.

    Its text is the reason as a clause, if there is one.
    """


class AnswerError(Exception):
    """Raised if the server's answer cannot be read: it is not known whether the call took effect."""


class CallError(Exception):
    """Raised if the server refused a call, with its words; untrusted text."""


@dataclass(slots=True, kw_only=True)
class Connection:
    """An established connection."""

    client: Client
    process: ServerProcess | None
    """The server; None: it is reached by URL."""
    lost: Lost
    inbound: Inbound
    origin: Origin | None
    """HTTP to the server; None: it is a process."""
    questions: Questions
    """The questions that the server asks the user."""

    @property
    def sandbox(self) -> str:
        """How the server's process is confined; empty: it is reached by URL."""
        return "" if self.process is None else self.process.confined.description

    @property
    def network(self) -> bool:
        """True if the server may use the network."""
        return self.process is None or self.process.confined.network

    @property
    def protocol(self) -> str:
        """Version of the protocol that both sides speak."""
        return self.client.protocol_version

    async def tools(self) -> list[types.Tool]:
        """Return the server's tools, from all pages. Raises TimeoutError, MCPError and others."""
        found: list[types.Tool] = []
        seen: set[str] = set()
        self.inbound.broken.clear()
        self.inbound.version = self.protocol
        cursor: str | None = None
        async with asyncio.timeout(LIST_S):
            for _ in range(_MAX_PAGES):
                params = types.PaginatedRequestParams(cursor=cursor) if cursor is not None else None
                page = await self.client.session.list_tools(params=params)
                found += page.tools
                cursor = page.next_cursor
                if cursor is None or cursor in seen or len(found) >= MAX_TOOLS:
                    break
                seen.add(cursor)
        return found[:MAX_TOOLS]

    @property
    def faults(self) -> tuple[str, ...]:
        """A clause for each tool that was left out of the last list, and one if messages were dropped."""
        broken = [f"{name} is not used: {why}" for name, why in self.inbound.broken.items()]
        flood = f"it sent more than {MAX_PER_S} messages in a second; the others were dropped"
        return (*broken, *([flood] if self.inbound.dropped else []))

    async def call(
        self, tool: str, arguments: dict[str, Any], *, shown: Progress, ask: Ask, on_decline: Callable[[str], None]
    ) -> types.CallToolResult:
        """Call a tool once, without a time limit. `shown` gets its progress, `ask` answers questions of the server.

        `on_decline` gets why a question was declined without asking. Raises AnswerError, CallError, LostError.
        """
        with self.questions.of_call(ask, on_decline):
            result = await self._send_call(tool, arguments, shown)
            for _ in range(_MAX_CONTINUED):
                if isinstance(result, types.CallToolResult):
                    return result
                # From 2026-07-28 on this continues the call that was sent, so it is still sent once.
                answers = await self._answer_requests(result, ask, on_decline)
                result = await self._send_call(tool, arguments, shown, answers=answers, state=result.request_state)
        raise CallError(f"it asked for more input {_MAX_CONTINUED} times")

    async def _answer_requests(
        self, wanted: types.InputRequiredResult, ask: Ask, on_decline: Callable[[str], None]
    ) -> types.InputResponses | None:
        """Return answers to what a server needs to continue a call. Raises CallError, LostError."""
        if not wanted.input_requests:
            await asyncio.sleep(_CONTINUE_S)
            return None
        answers: types.InputResponses = {}
        for key, request in wanted.input_requests.items():
            if not isinstance(request, types.ElicitRequest):
                raise CallError("it asks for input that chatops does not offer to servers")
            asked = asyncio.ensure_future(self.questions.answer(request.params, ask, on_decline))
            lost = asyncio.ensure_future(self.lost.wait())
            try:
                await asyncio.wait((asked, lost), return_when=asyncio.FIRST_COMPLETED)
                if not asked.done():
                    raise LostError(self.lost.reason)
                answers[key] = asked.result()
            finally:
                asked.cancel()
                lost.cancel()
        return answers

    async def _send_call(
        self,
        tool: str,
        arguments: dict[str, Any],
        shown: Progress,
        *,
        answers: types.InputResponses | None = None,
        state: str | None = None,
    ) -> types.CallToolResult | types.InputRequiredResult:
        """Send a call, or with `answers` and `state` what continues it. Raises AnswerError, CallError, LostError."""

        async def forward(progress: float, total: float | None, message: str | None) -> None:
            shown(progress, total, message or "")

        try:
            return await self.client.session.call_tool(
                tool,
                arguments,
                progress_callback=forward,
                input_responses=answers,
                request_state=state,
                allow_input_required=True,
            )
        except MCPError as error:
            if self.lost.is_set() or error.code == types.CONNECTION_CLOSED:
                self.lost.set()
                raise LostError(self.lost.reason) from error
            if error.code == UNREADABLE:
                raise AnswerError from error
            if self.origin is not None and self.origin.last_status == _SESSION_ENDED:
                self.lost.set()
            raise CallError(visible(error.message, limit=_MAX_REASON)) from error
        except Exception as error:
            if self.lost.is_set() or isinstance(error, httpx2.HTTPError | OSError):
                self.lost.set()
                raise LostError(self.lost.reason) from error
            raise CallError(reason_of(error)) from error


@asynccontextmanager
async def open_connection(
    spec: McpServerSpec, sandbox: SandboxSpec, limits: ServerLimits, *, records: Path, on_change: Callable[[], None]
) -> AsyncIterator[Connection]:
    """Connect to a server, for as long as the block runs. `on_change` is called when its tools may have changed.

    `records` is the folder of its login. Raises ServerStartError with the reason.
    """
    async with AsyncExitStack() as stack:
        process: ServerProcess | None = None
        origin: Origin | None = None
        lost, inbound, questions = Lost(), Inbound(on_change), Questions(spec.name)
        make_client = partial(_make_client, inbound=inbound, on_change=on_change, questions=questions)
        try:
            async with asyncio.timeout(CONNECT_S):
                if spec.transport is ServerTransport.STDIO:
                    process = await stack.enter_async_context(running_server(spec, sandbox, limits))
                    client = await stack.enter_async_context(make_client(stdio_transport(process.process, lost=lost)))
                else:
                    origin, client = await _connect_by_http(spec, stack, make_client, records, lost)
        except ServerStartError:
            raise
        except Exception as error:
            reason = lost.reason or reason_of(error)
            if process is None:
                raise ServerStartError(reason) from error
            raise ServerStartError(_add_errors(reason, process), sandbox=process.confined.description) from error
        connection = Connection(
            client=client, process=process, lost=lost, inbound=inbound, origin=origin, questions=questions
        )
        # The SDK would run a hostile schema in this process, and hide the result of a call that took effect.
        connection.client.session.validate_tool_result = _check_nothing  # type: ignore[method-assign]
        task = asyncio.create_task(_follow_changes(connection, on_change), name=f"changes of {spec.name}")
        try:
            yield connection
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task


async def _connect_by_http(
    spec: McpServerSpec, stack: AsyncExitStack, make_client: Callable[[Any], Client], records: Path, lost: Lost
) -> tuple[Origin, Client]:
    """Connect by streamable HTTP, or by SSE if the registry says so or the server knows nothing else."""
    if spec.auth:
        auth = await in_thread(StoredAuth, spec, records, lost)
        origin = Origin(spec, auth=auth, allows=auth.allows)
        stack.push_async_callback(auth.settle)
    else:
        origin = Origin(spec)
    if spec.transport is ServerTransport.HTTP:
        http = await stack.enter_async_context(origin.client())
        try:
            client = make_client(streamable_http_client(spec.url, http_client=http))
            return origin, await stack.enter_async_context(client)
        except Exception:
            if origin.first_error not in _UNKNOWN_TRANSPORT:
                raise
    client = make_client(sse_client(spec.url, httpx_client_factory=origin.client))
    return origin, await stack.enter_async_context(client)


def _make_client(
    transport: AbstractAsyncContextManager[TransportStreams],
    *,
    inbound: Inbound,
    on_change: Callable[[], None],
    questions: Questions,
) -> Client:
    async def handle(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            on_change()

    return Client(
        filter_received(transport, inbound),
        message_handler=handle,
        # Offered even where nobody can answer: a server may list other tools to a client that takes no questions.
        elicitation_callback=questions.requested,
        client_info=types.Implementation(name="chatops", version=__version__),
        cache=None,
    )


async def _follow_changes(connection: Connection, on_change: Callable[[], None]) -> None:
    """Pass on changes of the list of tools, on connections of the second generation. Never raises."""
    try:
        async with connection.client.listen(tools_list_changed=True) as events:
            async for _ in events:
                on_change()
    except (ListenNotSupportedError, SubscriptionLost, MCPError, httpx2.HTTPError, TimeoutError) as error:
        log.debug("changes are not followed: %s", type(error).__name__)
    except Exception as error:
        log.info("changes are not followed: %s", reason_of(error))


async def _check_nothing(name: str, result: types.CallToolResult) -> None:
    """Check nothing: `mcp.results` validates structured results."""


def reason_of(error: BaseException) -> str:
    """Return why something failed, as a clause. Groups of errors are unpacked; untrusted text is made visible."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    if isinstance(error, MCPError):
        text = error.message
    elif isinstance(error, ValidationError | UnicodeError | OverflowError) or (
        isinstance(error, OAuthFlowError) and isinstance(error.__context__, ValueError)
    ):
        # Their own text names Python types and a web site, and quotes the answer, which may hold a token.
        text = "its answer is not what the protocol wants"
    elif isinstance(error, OAuthFlowError | LoginError | OriginError | RefusedAnswerError | ServerStartError):
        text = str(error)
    elif isinstance(error, TimeoutError):
        text = "it did not answer in time"
    elif isinstance(error, httpx2.HTTPStatusError):
        text = f"HTTP status {error.response.status_code}"
    elif isinstance(error, httpx2.LocalProtocolError):
        text = "its request is not valid HTTP"  # The error's own text may quote a header's secret.
    elif isinstance(error, httpx2.ConnectError):
        text = f"no connection: {error}"
    elif isinstance(error, FileNotFoundError):
        text = f"there is no {error.filename}"
    else:
        text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return visible(text, limit=_MAX_REASON)


def _add_errors(reason: str, process: ServerProcess) -> str:
    if not (errors := process.last_errors()):
        return reason
    hint = "; if it needs a folder that its sandbox does not show, name that in sandbox.read of its entry"
    return f"{reason}; it wrote: {errors}{hint if process.lacks_file() else ''}"
