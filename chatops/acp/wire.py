"""The Agent Client Protocol, version 1: the methods that an editor calls.

Only this module, `acp.editor` and `acp.prompt` know the SDK: a later version is others beside them, over the same
`acp.session`. `acp.stdio` reads lines and passes the messages in them to the SDK, which checks each against the schema.
`Agent` has the methods, and `run` connects all to the standard input and output.
"""

import asyncio
import logging
import os
import re
import select
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar, cast

import acp
from acp import schema

from chatops.acp.editor import Editor, config_options
from chatops.acp.prompt import message_text, safe_name
from chatops.acp.session import EditorSession, open_editor_session
from chatops.acp.stdio import MAX_FRAME_BYTES, Stdio
from chatops.domain import __version__
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError
from chatops.domain.events import TurnStatus
from chatops.domain.ids import SessionId
from chatops.store.base import ALL
from chatops.wiring.app import App
from chatops.wiring.stored import Options, in_session_workspace

log = logging.getLogger(__name__)

MAX_SESSIONS = 16
"""Open at a time in one process. Each has an application of its own, with its files watched."""
MAX_PROMPT = 1_000_000
"""Characters of a prompt, which is stored and sent whole."""
PAGE_SIZE = 50
"""Sessions of one page of a list."""
LINGER_S = 5.0
"""Seconds in which an editor that has gone may still read what was written to it. With more, a process without an
editor ends later. With fewer, the last answers may be lost.
"""
_INVALID_PARAMS = -32602
"""Code of JSON-RPC 2.0 for every error of the user."""
_STOP_REASONS: dict[TurnStatus, Literal["end_turn", "max_turn_requests", "cancelled"]] = {
    TurnStatus.LIMIT: "max_turn_requests",
    TurnStatus.CANCELLED: "cancelled",
}
P = ParamSpec("P")
T = TypeVar("T")


def _answer_errors(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Answer with the message for the user where a method raises ChatopsError."""

    @wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except ChatopsError as error:
            raise acp.RequestError(_INVALID_PARAMS, error.full) from error

    return answer


class _Opened(NamedTuple):
    """Answer to an editor that has opened a session."""

    session_id: SessionId
    settings: dict[str, Any]
    """The fields that every such answer has."""


class Agent:
    """The methods that an editor calls."""

    def __init__(self, app: App, stdio: Stdio, *, too_broad: Callable[[str], str]) -> None:
        """`app` lists sessions. `too_broad` returns what a folder is that is too broad to open; empty for others."""
        self._app, self._stdio, self._too_broad = app, stdio, too_broad
        self._client = ""
        self._has_forms = False
        self._sessions: dict[str, EditorSession] = {}
        self._opening = asyncio.Lock()
        """Held while a session is opened or closed, so that one of an id exists at a time."""

    def on_connect(self, conn: acp.Client) -> None:
        """Store the connection to the editor. The SDK calls this first."""
        self._conn = conn

    async def aclose(self) -> None:
        """Close all sessions. Calls that wait for a decision stay pending."""
        async with self._opening:
            for session in self._sessions.values():
                await session.aclose()

    @_answer_errors
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
    ) -> schema.InitializeResponse:
        """Learn who the client is, once, and say what chatops can do."""
        if self._client:
            raise ConfigError("The connection is initialized already.")
        self._client = (
            safe_name(f"{client_info.name} {client_info.version}" if client_info else "") or "an unnamed editor"
        )
        forms = client_capabilities.elicitation if client_capabilities is not None else None
        self._has_forms = forms is not None and forms.form is not None
        return schema.InitializeResponse(
            protocol_version=acp.PROTOCOL_VERSION,
            agent_info=schema.Implementation(name="chatops", title="chatops", version=__version__),
            auth_methods=[],
            agent_capabilities=schema.AgentCapabilities(
                load_session=True,
                prompt_capabilities=schema.PromptCapabilities(image=True, audio=False, embedded_context=False),
                session_capabilities=schema.SessionCapabilities(
                    list=schema.SessionListCapabilities(),
                    resume=schema.SessionResumeCapabilities(),
                    close=schema.SessionCloseCapabilities(),
                    additional_directories=schema.SessionAdditionalDirectoriesCapabilities(),
                ),
            ),
        )

    @_answer_errors
    async def new_session(self, **params: Any) -> schema.NewSessionResponse:
        """Open a new session."""
        opened = await self._open(replay=False, **params)
        return schema.NewSessionResponse(session_id=opened.session_id, **opened.settings)

    @_answer_errors
    async def load_session(self, **params: Any) -> schema.LoadSessionResponse:
        """Open a stored session, and show all of it."""
        return schema.LoadSessionResponse(**(await self._open(replay=True, **params)).settings)

    @_answer_errors
    async def resume_session(self, **params: Any) -> schema.ResumeSessionResponse:
        """Open a stored session whose messages the editor has."""
        return schema.ResumeSessionResponse(**(await self._open(replay=False, **params)).settings)

    async def _open(
        self,
        *,
        replay: bool,
        cwd: str,
        session_id: str | None = None,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
    ) -> _Opened:
        if not self._client:
            raise ConfigError("The connection is not initialized.")
        options = self._options(cwd)
        async with self._opening:
            if session_id is not None:
                info = await asyncio.to_thread(self._app.store.session, SessionId(session_id))
                # The store also finds a session by the beginning of its id. An editor has to name it in full.
                if info.id != session_id:
                    raise NoSuchSessionError(f"There is no session {session_id!r}.")
                in_session_workspace(options, info)
                if session_id in self._sessions:
                    await self._sessions.pop(session_id).aclose()
            if len(self._sessions) >= MAX_SESSIONS:
                raise ConfigError(f"{MAX_SESSIONS} sessions are open.", advice="Close one of them first.")
            editor = Editor(self._conn, self._stdio, has_forms=self._has_forms)
            wanted = SessionId(session_id) if session_id is not None else None
            notices = self._ignored(additional_directories, mcp_servers)
            session = await open_editor_session(options, wanted, editor, notices=notices)
            self._sessions[session.view.session_id] = session
            editor.session_id = session.view.session_id
            settings = await _settings_fields(session)
            # Until all of it is shown, the next request must not close the session again.
            await session.begin(replay=replay)
        return _Opened(session.view.session_id, settings)

    def _options(self, cwd: str) -> Options:
        """Return the options of a session in the folder `cwd`. Raises ConfigError."""
        outer = self._app.options.workspace
        folder = _real_path(cwd)
        if not os.path.isabs(cwd) or not folder.is_dir():
            raise ConfigError(f"{cwd!r} is not an absolute path of a folder.")
        if outer is not None and not folder.is_relative_to(outer.resolve()):
            raise ConfigError(f"{folder} is not in {outer}.", advice="chatops acp was started with --workspace.")
        if outer is None and (what := self._too_broad(str(folder))):
            raise ConfigError(
                f"{folder} is {what}: the model could ask to read anything in it.",
                advice=f"Open the folder of a project, or start chatops acp --workspace {folder}",
            )
        return replace(self._app.options, workspace=folder, client=self._client)

    def _ignored(self, folders: list[str] | None, servers: list[Any] | None) -> list[str]:
        """Return sentences about what the editor wants and does not get."""
        sentences, limits = [], self._app.options.sandbox
        if names := ", ".join(dict.fromkeys(safe_name(str(getattr(server, "name", ""))) for server in servers or [])):
            sentences.append(f"MCP servers of the editor are ignored: {names}. chatops mcp add adds one to chatops.")
        added = [Path(folder) for folder in (*limits.read, *limits.write)]
        outside = [folder for folder in folders or [] if not any(map(_real_path(folder).is_relative_to, added))]
        if named := ", ".join(safe_name(folder, longest=300) for folder in outside):
            sentences.append(f"Further folders are ignored: {named}. chatops acp --add-dir DIR adds one for commands.")
        return sentences

    @_answer_errors
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None) -> schema.ListSessionsResponse:
        """List stored sessions, the last used first."""
        outer = self._app.options.workspace
        begin = int(cursor) if cursor is not None and re.fullmatch(r"\d{1,9}", cursor) else 0
        end = begin + PAGE_SIZE
        stored = await asyncio.to_thread(self._app.store.sessions, workspace=cwd, limit=ALL)
        if outer is not None:
            stored = [info for info in stored if Path(info.workspace).is_relative_to(outer.resolve())]
        listed = [
            schema.SessionInfo(
                session_id=info.id,
                cwd=info.workspace,
                title=safe_name(info.title, longest=200) or None,
                updated_at=datetime.fromtimestamp(info.updated_at, UTC).isoformat(),
            )
            for info in stored[begin:end]
        ]
        return schema.ListSessionsResponse(sessions=listed, next_cursor=str(end) if len(stored) > end else None)

    @_answer_errors
    async def close_session(self, session_id: str) -> schema.CloseSessionResponse:
        """Close a session. Calls that wait for a decision stay pending."""
        async with self._opening:
            session = self._session(session_id)
            del self._sessions[session_id]
            await session.aclose()
        return schema.CloseSessionResponse()

    @_answer_errors
    async def prompt(self, session_id: str, prompt: list[Any]) -> schema.PromptResponse:
        """Send a message and answer when its turn is over."""
        session = self._session(session_id)
        text = await asyncio.to_thread(message_text, prompt, session.view.workspace, session.app.files.keep_pasted)
        if len(text) > MAX_PROMPT:
            raise ConfigError(f"The message has more than {MAX_PROMPT:,} characters.")
        end = await session.prompt(text)
        usage = None
        if (used := end.usage) is not None:
            total = used.input_tokens + used.output_tokens
            usage = schema.Usage(input_tokens=used.input_tokens, output_tokens=used.output_tokens, total_tokens=total)
        return schema.PromptResponse(stop_reason=_STOP_REASONS.get(end.status, "end_turn"), usage=usage)

    async def cancel(self, session_id: str) -> None:
        """Stop what runs. A call that waits stays pending."""
        if (session := self._sessions.get(session_id)) is not None:
            with suppress(ChatopsError):
                await session.cancel()

    @_answer_errors
    async def set_session_mode(self, session_id: str, mode_id: str) -> schema.SetSessionModeResponse:
        """Switch to another role."""
        await self._session(session_id).switch_role(mode_id)
        return schema.SetSessionModeResponse()

    @_answer_errors
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool
    ) -> schema.SetSessionConfigOptionResponse:
        """Choose a model."""
        session = self._session(session_id)
        if config_id != "model" or not isinstance(value, str):
            raise ConfigError(f"There is no option {config_id!r} of that kind.")
        await session.choose_model(value)
        return schema.SetSessionConfigOptionResponse(config_options=config_options(session.settings))

    def _session(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise NoSuchSessionError(f"No session {session_id!r} is open here.", advice="Load it first.")
        return self._sessions[session_id]


async def _settings_fields(session: EditorSession) -> dict[str, Any]:
    roles, settings = await session.roles(), session.settings
    modes = [schema.SessionMode(id=name, name=name, description=about or None) for name, about in roles]
    state = schema.SessionModeState(current_mode_id=settings.role, available_modes=modes)
    return {"modes": state, "config_options": config_options(settings)}


def _real_path(path: str) -> Path:
    """Return a path without links. One that no file can have leads nowhere."""
    return Path(os.path.realpath(path.replace("\0", "?")))


async def run(app: App, *, too_broad: Callable[[str], str]) -> int:
    """Answer the editor until it closes standard input. Return the exit code."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = os.dup(0), os.dup(1)
    # Other code that reads or prints must not touch the protocol.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # While the editor reads no answers, no further input is read, so its end would go unnoticed. This poll notices it.
    hangup = select.epoll()
    hangup.register(incoming, select.EPOLLRDHUP)
    reader = asyncio.StreamReader(limit=MAX_FRAME_BYTES)
    source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming))
    control = asyncio.streams.FlowControlMixin(loop)
    target, _ = await loop.connect_write_pipe(lambda: control, os.fdopen(outgoing, "wb"))
    stdio = Stdio(reader, asyncio.StreamWriter(target, control, reader, loop))

    def abort_output_later() -> None:
        # A write that nobody reads would never end.
        loop.call_later(LINGER_S, target.abort)

    def handle_signal() -> None:
        source.close()
        abort_output_later()

    def handle_hangup() -> None:
        loop.remove_reader(hangup)
        abort_output_later()

    for signal_number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(signal_number, handle_signal)
    agent = Agent(app, stdio, too_broad=too_broad)
    loop.add_reader(hangup, handle_hangup)
    try:
        await acp.run_agent(cast(Any, agent), stdio, use_unstable_protocol=True)
    finally:
        loop.remove_reader(hangup)
        hangup.close()
        await agent.aclose()
    return 0
