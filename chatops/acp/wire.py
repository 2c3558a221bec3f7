"""The Agent Client Protocol, version 1: what an editor sends and gets. Only this module knows the SDK.

A later version is another module beside this one, over the same `acp.session`.

The SDK checks each message against the schema. `Stdio` stands below it, because the SDK takes some things for granted:
a frame that is no object, or answers that nobody asked for, end its loop; ``_meta`` may replace checked values; and
neither frames nor the number of requests have a limit.
"""

import asyncio
import base64
import json
import logging
import os
import re
import secrets
import select
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any, Literal, ParamSpec, TypeVar, cast
from urllib.parse import unquote, urlsplit

import acp
from acp import helpers, schema

from chatops.acp.commands import COMMANDS
from chatops.acp.session import EditorSession, Reply, open_editor_session
from chatops.acp.show import Card, Commands, Plan, Settings, Text, Update, Window
from chatops.domain import __version__
from chatops.domain.canonical import JsonValue, parse_json
from chatops.domain.decisions import AnswerAction
from chatops.domain.errors import ChatopsError, ConfigError, NoSuchSessionError
from chatops.domain.events import TurnStatus
from chatops.domain.files import FileRef
from chatops.domain.ids import SessionId
from chatops.headless.json_values import dumps
from chatops.store.base import ALL
from chatops.wiring.app import App
from chatops.wiring.stored import Options, at_home

log = logging.getLogger(__name__)

LARGEST_FRAME = 32 * 1024 * 1024
"""Bytes of a message: an image, and some text. A longer one is refused without being kept."""
MAX_REQUESTS = 64
"""Requests that are answered at a time."""
MAX_SESSIONS = 16
LONGEST_MESSAGE = 1_000_000
"""Characters of a prompt."""
LONGEST_FORM = 64_000
"""Characters of the answers in a form."""
PAGE = 50
"""Sessions of one page of a list."""
LINGER_S = 5.0
"""Seconds in which an editor that has gone may still read what was written to it."""
_STOPPED: dict[TurnStatus, Literal["end_turn", "max_turn_requests", "cancelled"]] = {
    TurnStatus.LIMIT: "max_turn_requests",
    TurnStatus.CANCELLED: "cancelled",
}
_TEXTS = {
    "user": helpers.update_user_message_text,
    "agent": helpers.update_agent_message_text,
    "thought": helpers.update_agent_thought_text,
}
P = ParamSpec("P")
T = TypeVar("T")


class Stdio:
    """Messages on two file descriptors: lines of JSON."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._sending = asyncio.Lock()
        self._answering = 0
        self.asked: dict[str, float] = {}
        """When each question about a call was written, in monotonic seconds, by its first option."""

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message. Raises ConnectionError."""
        if "error" in message:
            # It repeats what was sent, and may hold what is no JSON.
            message["error"].pop("data", None)
        try:
            async with self._sending:
                self._writer.write(dumps(message).encode() + b"\n")
                await self._writer.drain()
        finally:
            # An answer that an editor does not read counts as well.
            self._answering -= "method" not in message
        if message.get("method") == "session/request_permission":
            # Several sessions may ask about one call: that of a child turn, in its own session and in its parent's.
            self.asked[message["params"]["options"][0]["optionId"]] = time.monotonic()

    async def receive(self) -> dict[str, Any] | None:
        """Return the next message that can be one; None at the end, also if a refusal cannot be written any more."""
        try:
            return await self._next()
        except ConnectionError:
            return None

    async def _next(self) -> dict[str, Any] | None:
        while (line := await self._line()) is not None:
            # A flood must not keep everything else from running.
            await asyncio.sleep(0)
            message = _parse_message(line)
            if not line:
                await self._refuse(
                    None, -32700, f"A message is longer than {LARGEST_FRAME // 2**20} MB. Nothing was sent."
                )
            elif message is None:
                await self._refuse(None, -32700, "This is no message of the protocol.")
            elif not message:
                continue
            elif not {"method", "id"} <= message.keys():
                return message
            elif self._answering >= MAX_REQUESTS:
                await self._refuse(message["id"], -32600, "Too many requests at a time.")
            else:
                self._answering += 1
                return message
        return None

    async def _refuse(self, id: object, code: int, text: str) -> None:
        self._answering += 1
        await self.send({"jsonrpc": "2.0", "id": id, "error": {"code": code, "message": text}})

    async def _line(self) -> bytes | None:
        """Return the next line, empty if it was too long; None at the end, also amid a line."""
        dropped = False
        while True:
            try:
                line = await self._reader.readuntil(b"\n")
                return b"" if dropped else line
            except asyncio.LimitOverrunError as error:
                await self._reader.readexactly(error.consumed)
                dropped = True
            except asyncio.IncompleteReadError:
                return None

    async def close(self) -> None:
        """Stop reading and writing."""
        self._writer.close()


def _parse_message(line: bytes) -> dict[str, Any] | None:
    """Return a request, notification or response, without what chatops does not use.

    None: it is none of them. Empty: it is to be ignored.
    """
    try:
        message: Any = parse_json(line.decode())
        if b"\\ud" in line.lower():
            # Half of a character can be neither stored nor sent on.
            message = json.loads(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(message, dict):
        return None
    if "method" in message:
        params = message.get("params")
        if isinstance(params, dict):
            # The SDK would let it replace what it has checked.
            params.pop("_meta", None)
        known = isinstance(message["method"], str) and isinstance(params, dict | None)
        return message if known and isinstance(message.get("id"), int | str | None) else None
    error = message.get("error")
    if "id" in message and message["id"] is None and error is not None:
        # Such an answer is about a notification. An answer to it could go on for ever.
        return {}
    fault = error is not None and not (isinstance(error, dict) and isinstance(error.get("message"), str))
    fault = fault or (error is not None and "result" in message)
    return message if type(message.get("id")) is int and not fault else None


def _answers(method: Callable[P, Awaitable[T]]) -> Callable[P, Awaitable[T]]:
    """Answer with the message for the user where a method raises ChatopsError."""

    @wraps(method)
    async def answer(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await method(*args, **kwargs)
        except ChatopsError as error:
            raise acp.RequestError(-32602, error.full) from error

    return answer


class Editor:
    """The editor, for one session."""

    def __init__(self, conn: acp.Client, stdio: Stdio, *, has_forms: bool) -> None:
        self._conn, self._stdio, self.has_forms = conn, stdio, has_forms
        self.session_id = ""

    async def show(self, update: Update) -> None:
        """Show what has happened or changed."""
        sent: Any = None
        match update:
            case Text(text=text, by=by):
                sent = _TEXTS[by](text) if text else None
            case Card(opens=True):
                sent = schema.ToolCallStart(session_update="tool_call", **_call(update))
            case Card():
                sent = schema.ToolCallProgress(session_update="tool_call_update", **_call(update))
            case Plan(steps=steps):
                sent = helpers.update_plan([helpers.plan_entry(text, status=state) for text, state in steps])
            case Window(used=used, size=size, cost=cost):
                spent = None if cost is None else schema.Cost(amount=cost, currency="USD")
                sent = schema.UsageUpdate(session_update="usage_update", used=used, size=size, cost=spent)
            case Commands():
                sent = helpers.update_available_commands(map(_command, COMMANDS))
            case Settings(role=role):
                await self._conn.session_update(self.session_id, helpers.update_current_mode(role))
                options = _options(update)
                sent = schema.ConfigOptionUpdate(session_update="config_option_update", config_options=options)
        if sent is not None:
            await self._conn.session_update(self.session_id, sent)

    async def ask(self, card: Card) -> tuple[Reply, float]:
        """Ask about a call. An answer that was not offered is none."""
        mark = secrets.token_hex(4)
        offers: dict[str, tuple[Reply, str, Literal["reject_once", "allow_once"]]] = {
            f"reject-{mark}": ("reject", "Reject", "reject_once"),
            **({f"reason-{mark}": ("reason", "Reject with a reason", "reject_once")} if self.has_forms else {}),
            f"allow-{mark}": ("allow", "Allow once", "allow_once"),
        }
        options = [
            schema.PermissionOption(option_id=id, name=name, kind=kind) for id, (_, name, kind) in offers.items()
        ]
        call = schema.ToolCallUpdate(**_call(card))
        try:
            reply = await self._conn.request_permission(self.session_id, call, options)
        except (acp.RequestError, ValueError) as error:
            log.info("the editor did not answer a question: %s", error)
            return "", 0.0
        finally:
            now = time.monotonic()
            seconds = now - self._stdio.asked.pop(options[0].option_id, now)
        chosen = reply.outcome.option_id if isinstance(reply.outcome, schema.AllowedOutcome) else ""
        return offers[chosen][0] if chosen in offers else "", seconds

    async def form(self, message: str, schema_: JsonValue) -> tuple[AnswerAction | None, JsonValue]:
        """Show a form, and return what was answered; None if the editor has failed."""
        try:
            wanted = schema.ElicitationSchema.model_validate(schema_)
            mode = schema.ElicitationFormSessionMode(session_id=self.session_id, requested_schema=wanted)
            reply = await self._conn.create_elicitation(message, mode)
        except (acp.RequestError, ValueError) as error:
            log.info("the editor did not show a form: %s", error)
            return None, None
        if isinstance(reply, schema.AcceptElicitationResponse):
            fits = len(dumps(reply.content)) <= LONGEST_FORM
            return (AnswerAction.ACCEPT, reply.content or {}) if fits else (None, None)
        declined = isinstance(reply, schema.DeclineElicitationResponse)
        return AnswerAction.DECLINE if declined else AnswerAction.CANCEL, None


def _command(name: str) -> schema.AvailableCommand:
    hint, about = COMMANDS[name]
    typed = schema.AvailableCommandInput(schema.UnstructuredCommandInput(hint=hint)) if hint else None
    return schema.AvailableCommand(name=name, description=about, input=typed)


def _call(card: Card) -> dict[str, Any]:
    """Return the fields of a call. An update without a field changes nothing of it."""
    content: list[Any] = [helpers.tool_content(helpers.text_block(card.text))] if card.text else []
    content += [helpers.tool_diff_content(diff.path, diff.new, diff.old) for diff in card.diffs]
    described = {"title": card.title, "kind": card.kind, "raw_input": card.arguments} if card.title else {}
    found = {"content": content, "locations": [schema.ToolCallLocation(path=path) for path in card.paths]}
    return {
        "tool_call_id": card.id,
        "status": card.status,
        **described,
        **{name: value for name, value in found.items() if value},
    }


class Agent:
    """The methods that an editor calls."""

    def __init__(self, app: App, stdio: Stdio, *, is_whole: Callable[[str], str]) -> None:
        """Create it over an application that lists sessions. `is_whole` tells what home and root folders are."""
        self._app, self._stdio, self._is_whole = app, stdio, is_whole
        self._client = ""
        self._has_forms = False
        self._sessions: dict[str, EditorSession] = {}
        self._opening = asyncio.Lock()

    def on_connect(self, conn: acp.Client) -> None:
        """Keep the way to the editor."""
        self._conn = conn

    async def aclose(self) -> None:
        """Close all sessions. What waits stays pending."""
        async with self._opening:
            for session in self._sessions.values():
                await session.aclose()

    @_answers
    async def initialize(
        self,
        protocol_version: int,
        client_capabilities: schema.ClientCapabilities | None = None,
        client_info: schema.Implementation | None = None,
    ) -> schema.InitializeResponse:
        """Learn who the client is, once, and say what chatops can do."""
        if self._client:
            raise ConfigError("The connection is initialized already.")
        self._client = _name(f"{client_info.name} {client_info.version}" if client_info else "") or "an unnamed editor"
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

    @_answers
    async def new_session(self, **asked: Any) -> schema.NewSessionResponse:
        """Open a new session."""
        session_id, settings = await self._open(replay=False, **asked)
        return schema.NewSessionResponse(session_id=session_id, **settings)

    @_answers
    async def load_session(self, **asked: Any) -> schema.LoadSessionResponse:
        """Open a stored session, and show all of it."""
        return schema.LoadSessionResponse(**(await self._open(replay=True, **asked))[1])

    @_answers
    async def resume_session(self, **asked: Any) -> schema.ResumeSessionResponse:
        """Open a stored session whose messages the editor has."""
        return schema.ResumeSessionResponse(**(await self._open(replay=False, **asked))[1])

    async def _open(
        self,
        *,
        replay: bool,
        cwd: str,
        session_id: str | None = None,
        additional_directories: list[str] | None = None,
        mcp_servers: list[Any] | None = None,
    ) -> tuple[SessionId, dict[str, Any]]:
        """Open a session. Return its id, and the fields that every answer about it has."""
        if not self._client:
            raise ConfigError("The connection is not initialized.")
        options = self._options(cwd)
        async with self._opening:
            if session_id is not None:
                info = await asyncio.to_thread(self._app.store.session, SessionId(session_id))
                if info.id != session_id:
                    raise NoSuchSessionError(f"There is no session {session_id!r}.")
                at_home(options, info)
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
            settings = await _settings(session)
            # Until all of it is shown, the next request must not close the session again.
            await session.begin(replay=replay)
        return session.view.session_id, settings

    def _options(self, cwd: str) -> Options:
        """Return the options of a session in the folder `cwd`. Raises ConfigError."""
        limit = self._app.options.workspace
        folder = _real(cwd)
        if not os.path.isabs(cwd) or not folder.is_dir():
            raise ConfigError(f"{cwd!r} is not an absolute path of a folder.")
        if limit is not None and not folder.is_relative_to(limit.resolve()):
            raise ConfigError(f"{folder} is not in {limit}.", advice="chatops acp was started with --workspace.")
        if limit is None and (what := self._is_whole(str(folder))):
            raise ConfigError(
                f"{folder} is {what}: the model could ask to read anything in it.",
                advice=f"Open the folder of a project, or start chatops acp --workspace {folder}",
            )
        return replace(self._app.options, workspace=folder, client=self._client)

    def _ignored(self, further: list[str] | None, servers: list[Any] | None) -> list[str]:
        """Return sentences about what the editor wants and does not get."""
        found, limits = [], self._app.options.sandbox
        if names := ", ".join(dict.fromkeys(_name(str(getattr(one, "name", ""))) for one in servers or [])):
            found.append(f"MCP servers of the editor are ignored: {names}. chatops mcp add adds one to chatops.")
        added = [Path(one) for one in (*limits.read, *limits.write)]
        outside = [one for one in further or [] if not any(_real(one).is_relative_to(base) for base in added)]
        if named := ", ".join(_name(one, most=300) for one in outside):
            found.append(f"Further folders are ignored: {named}. chatops acp --add-dir DIR adds one for commands.")
        return found

    @_answers
    async def list_sessions(self, cwd: str | None = None, cursor: str | None = None) -> schema.ListSessionsResponse:
        """List stored sessions, the last used first."""
        limit = self._app.options.workspace
        after = int(cursor) if cursor is not None and re.fullmatch(r"\d{1,9}", cursor) else 0
        found = await asyncio.to_thread(self._app.store.sessions, workspace=cwd, limit=ALL)
        if limit is not None:
            found = [one for one in found if Path(one.workspace).is_relative_to(limit.resolve())]
        listed = [
            schema.SessionInfo(
                session_id=one.id,
                cwd=one.workspace,
                title=_name(one.title, most=200) or None,
                updated_at=datetime.fromtimestamp(one.updated_at, UTC).isoformat(),
            )
            for one in found[after : after + PAGE]
        ]
        more = str(after + PAGE) if len(found) > after + PAGE else None
        return schema.ListSessionsResponse(sessions=listed, next_cursor=more)

    @_answers
    async def close_session(self, session_id: str) -> schema.CloseSessionResponse:
        """Close a session. What waits stays pending."""
        async with self._opening:
            session = self._session(session_id)
            del self._sessions[session_id]
            await session.aclose()
        return schema.CloseSessionResponse()

    @_answers
    async def prompt(self, session_id: str, prompt: list[Any]) -> schema.PromptResponse:
        """Send a message and answer when its turn is over."""
        session = self._session(session_id)
        text = await asyncio.to_thread(_message, prompt, session.view.workspace, session.app.files.keep_pasted)
        if len(text) > LONGEST_MESSAGE:
            raise ConfigError(f"The message has more than {LONGEST_MESSAGE:,} characters.")
        status, used = await session.prompt(text)
        given, made = (used.input_tokens, used.output_tokens) if used is not None else (0, 0)
        usage = schema.Usage(input_tokens=given, output_tokens=made, total_tokens=given + made) if used else None
        return schema.PromptResponse(stop_reason=_STOPPED.get(status, "end_turn"), usage=usage)

    async def cancel(self, session_id: str) -> None:
        """Stop what runs. A call that waits stays pending."""
        if (session := self._sessions.get(session_id)) is not None:
            with suppress(ChatopsError):
                await session.cancel()

    @_answers
    async def set_session_mode(self, session_id: str, mode_id: str) -> schema.SetSessionModeResponse:
        """Switch to another role."""
        await self._session(session_id).switch_role(mode_id)
        return schema.SetSessionModeResponse()

    @_answers
    async def set_config_option(
        self, config_id: str, session_id: str, value: str | bool
    ) -> schema.SetSessionConfigOptionResponse:
        """Choose a model."""
        session = self._session(session_id)
        if config_id != "model" or not isinstance(value, str):
            raise ConfigError(f"There is no option {config_id!r} of that kind.")
        await session.choose_model(value)
        return schema.SetSessionConfigOptionResponse(config_options=_options(session.settings))

    def _session(self, session_id: str) -> EditorSession:
        if session_id not in self._sessions:
            raise NoSuchSessionError(f"No session {session_id!r} is open here.", advice="Load it first.")
        return self._sessions[session_id]


async def _settings(session: EditorSession) -> dict[str, Any]:
    roles, now = await session.roles(), session.settings
    modes = [schema.SessionMode(id=name, name=name, description=about or None) for name, about in roles]
    state = schema.SessionModeState(current_mode_id=now.role, available_modes=modes)
    return {"modes": state, "config_options": _options(now)}


def _options(settings: Settings) -> list[Any]:
    choices = [schema.SessionConfigSelectOption(value=value, name=label) for value, label in settings.models]
    option = schema.SessionConfigOptionSelect(
        type="select", id="model", name="Model", category="model", current_value=settings.model, options=choices
    )
    return [option]


def _name(text: str, *, most: int = 60) -> str:
    """Return a name that an editor has sent, with nothing in it that could be taken for anything else."""
    return re.sub(r"[^\w .,:/@+-]", "?", text[:most]).strip()


def _real(path: str) -> Path:
    """Return a path without links. One that no file can have leads nowhere."""
    return Path(os.path.realpath(path.replace("\0", "?")))


def _message(blocks: Sequence[Any], workspace: Path, keep_image: Callable[[bytes], FileRef]) -> str:
    """Return a prompt as a message, in which ``@path`` attaches a file."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(_mention_of(block.uri, workspace))
            case schema.EmbeddedResourceContentBlock():
                parts.append(_mention_of(block.resource.uri, workspace))
            case schema.ImageContentBlock():
                parts.append(f"@{_keep_image(block.data, keep_image)}")
            case _:
                parts.append("(A part of this message is of a kind that chatops does not read.)")
    return "".join(f" {part} " if part.startswith("@") and len(parts) > 1 else part for part in parts).strip()


def _keep_image(data: str, keep_image: Callable[[bytes], FileRef]) -> str:
    """Keep an image, and return the name by which a message attaches it. Raises ConfigError."""
    try:
        file = keep_image(base64.b64decode(data, validate=True))
    except ValueError:
        raise ConfigError("An image of the message cannot be read. Nothing was sent.") from None
    if file.problem:
        raise ConfigError(f"An image of the message was {file.problem}. Nothing was sent.")
    return file.path


def _mention_of(uri: str, workspace: Path) -> str:
    """Return ``@path`` for the address of a file in the workspace, else the address as text."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    path = os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
    inside = os.path.isabs(path) and Path(path).is_relative_to(workspace)
    name = os.path.relpath(path, workspace) if inside else ""
    if name and not re.search(r'["\x00-\x1f]', name):
        return f'@"{name}"'
    return f"(not attached, because it is no file of this folder: {_name(uri, most=300)})"


async def run(app: App, *, is_whole: Callable[[str], str]) -> int:
    """Answer the editor until it closes standard input. Return the exit code."""
    loop = asyncio.get_running_loop()
    incoming, outgoing = os.dup(0), os.dup(1)
    # Whatever else reads or prints must not touch the protocol.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    # Answers that nobody reads keep the end of the input from being read: `gone` tells of it all the same.
    gone = select.epoll()
    gone.register(incoming, select.EPOLLRDHUP)
    reader = asyncio.StreamReader(limit=LARGEST_FRAME)
    source, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(incoming))
    control = asyncio.streams.FlowControlMixin(loop)
    target, _ = await loop.connect_write_pipe(lambda: control, os.fdopen(outgoing, "wb"))
    stdio = Stdio(reader, asyncio.StreamWriter(target, control, reader, loop))

    def give_up_later() -> None:
        loop.call_later(LINGER_S, target.abort)

    def stop() -> None:
        source.close()
        give_up_later()

    def input_closed() -> None:
        loop.remove_reader(gone)
        give_up_later()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        loop.add_signal_handler(number, stop)
    agent = Agent(app, stdio, is_whole=is_whole)
    loop.add_reader(gone, input_closed)
    try:
        await acp.run_agent(cast(Any, agent), stdio, use_unstable_protocol=True)
    finally:
        loop.remove_reader(gone)
        gone.close()
        await agent.aclose()
    return 0
