"""Models of type ``cli``: a program that answers, behind the client that is used for servers.

The request becomes one text, which the program reads from a file: no message of a session is ever a word of a
command. Tools are described in the prompt, and calls are read from the answer. So the program needs no tools of
its own. They are switched off, and one that shows that it has some all the same is stopped, and nothing of its answer
is used.

Events of ``claude -p --output-format stream-json``, as documented in https://code.claude.com/docs/en/headless and
https://code.claude.com/docs/en/agent-sdk/typescript (SDKMessage), November 2026: one JSON object a line. ``system``
with subtype ``init`` names tools and MCP servers; ``stream_event`` holds an event of the Messages API; ``assistant``
holds whole messages; ``result`` ends it.

Importing this module imports httpx2.
"""

import asyncio
import contextlib
import json
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from dataclasses import field, replace

import httpx2

from chatops.dialects.writing import WRITABLE
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure
from chatops.models.base import EngineError
from chatops.models.chat import OpenAIChat
from chatops.models.cli_programs import PROMPT_FILE, SYSTEM_FILE, CliProgram, program_of
from chatops.models.client import AGENT
from chatops.models.keys import NO_KEY, Secret
from chatops.models.memory import InMemoryTextStore
from chatops.models.server_json import as_list, as_object, as_text, plain_line
from chatops.policy.registry import ModelSpec
from chatops.policy.sandbox import covers_host

log = logging.getLogger(__name__)

FORMAT = "hermes"
"""Format of calls unless the registry names another one."""
MAX_OUTPUT = 50_000_000
"""Characters of output that are read."""
_LONGEST_LINE = 8_000_000
_STOPS: Mapping[str, str] = {"max_tokens": "length", "refusal": "content_filter"}
_MARK = secrets.token_hex(4)
"""Part of the tags around messages: no text of a message can end it. It lasts as long as the process, for caches."""
_REJECTED = ("login", "log in", "api key", "authenticat", "oauth")
_LIMITED = ("limit", "429", "overloaded")
_UNREACHABLE = ("enotfound", "eai_again", "econnrefused", "etimedout", "connection error", "unable to connect")
_NO_NETWORK = "Check the network, or choose another model."
_END_S = 10.0
"""Seconds for a program to end that has reported an error."""


@frozen_dataclass
class CliRun:
    """One run of a program, in an empty folder with these files."""

    program: CliProgram
    argv: tuple[str, ...]
    files: Mapping[str, bytes]
    hosts: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = field(repr=False)
    """Variables of the model's entry; ``${NAME}`` in a value stands for a variable of chatops."""
    seconds: float
    unsandboxed: bool


@frozen_dataclass
class CliEnd:
    """End of a run: exit code (None: stopped), and the end of its errors or why it did not run."""

    code: int | None
    errors: str = ""
    unreached: tuple[str, ...] = ()
    """``HOST:PORT`` that its sandbox did not reach."""


class ReportedError(EngineError):
    """The program itself reports that it has no answer."""


RunProgram = Callable[[CliRun, Callable[[str], None]], Awaitable[CliEnd]]
"""Runs a program and passes on its output. No process is left when it returns or is cancelled. Raises EngineError."""


def cli_chat(spec: ModelSpec, *, run: RunProgram) -> OpenAIChat:
    """Return the client of a model of type ``cli``. Raises ConfigError for a command that is refused."""
    program, argv = program_of(spec)

    async def no_key() -> Secret:
        return Secret(NO_KEY)

    name = argv[0].rpartition("/")[2]
    plain = ModelSpec(
        name=spec.name,
        type=spec.type,
        label=spec.label,
        model_name=spec.model_name or name,
        tool_format=spec.tool_format if spec.tool_format in WRITABLE else FORMAT,
        context_window=spec.context_window,
        price=spec.price,
        timeout_s=spec.timeout_s,
        max_concurrent=spec.max_concurrent,
        images=False,
    )
    transport = CliTransport(
        CliRun(
            program=program,
            argv=argv,
            files={},
            hosts=(*program.hosts, *spec.hosts),
            env=spec.env,
            seconds=spec.timeout_s.total,
            unsandboxed=spec.unsandboxed,
        ),
        model=plain.model_name,
        run=run,
    )
    url = f"cli://{name}/v1"
    return OpenAIChat(plain, key=no_key, agent=AGENT, remembered=InMemoryTextStore(), url=url, transport=transport)


class CliTransport(httpx2.AsyncBaseTransport):
    """Transport that answers chat completions with the output of a program."""

    def __init__(self, template: CliRun, *, model: str, run: RunProgram) -> None:
        """Set the run, without files, that answers each request."""
        self._template = template
        self._model = model
        self._run = run

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Start the program; its answer is streamed."""
        body = as_object(json.loads(await request.aread()))
        run = replace(self._template, files=files_of(body, separate=self._template.program.events))
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=_Answer(run, model=self._model, start=self._run))


def files_of(body: Mapping[str, object], *, separate: bool) -> Mapping[str, bytes]:
    """Return the files with the instructions and the messages of a request; in one file unless `separate`."""
    texts: dict[str, list[str]] = {"system": [], "others": []}
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    said = [message for message in messages if message.get("role") != "system"]
    for message in messages:
        role, text = as_text(message.get("role")), as_text(message.get("content"))
        if role == "system":
            texts["system"].append(text)
        else:
            texts["others"].append(f"<{role}-{_MARK}>\n{text}\n</{role}-{_MARK}>")
    system = "\n\n".join(texts["system"])
    intro = f"Each message of the conversation is between tags that end in -{_MARK}."
    rest = "Write the next message of the assistant, without tags around it." if len(said) > 1 else "Answer it."
    prompt = "\n\n".join([intro, *texts["others"], rest])
    if not separate:
        prompt = f"{system}\n\n{prompt}" if system else prompt
    files = {PROMPT_FILE: prompt, **({SYSTEM_FILE: system} if separate else {})}
    return {name: text.encode("utf-8", "replace") for name, text in files.items()}


class _Answer(httpx2.AsyncByteStream):
    """The answer as a server streams it. Closing it stops the program."""

    def __init__(self, run: CliRun, *, model: str, start: RunProgram) -> None:
        self._run = run
        self._model = model
        self._start = start
        self._task: asyncio.Task[CliEnd] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        output: asyncio.Queue[str | None] = asyncio.Queue()
        self._task = task = asyncio.ensure_future(self._start(self._run, output.put_nowait))
        task.add_done_callback(lambda done: output.put_nowait(None))
        name = self._run.argv[0]
        reader = EventReader(name, login=self._run.program.login) if self._run.program.events else TextReader()
        try:
            while (text := await output.get()) is not None:
                try:
                    for delta in reader.feed(text):
                        yield self._chunk(delta)
                except ReportedError as error:
                    # A program may take its missing network for a missing login. Only its end tells.
                    raise await self._cause(error, task) from None
                if reader.finished:
                    break
            if not reader.finished:
                end = await task
                if (unreached := _not_reached(end, run=self._run)) is not None and end.code != 0:
                    raise unreached
                for delta in reader.end(end, name=name):
                    yield self._chunk(delta)
            yield self._chunk({}, finish=reader.finish)
            if reader.usage:
                yield _data({"id": "cli", "model": self._model, "choices": [], "usage": reader.usage})
            yield b"data: [DONE]\n\n"
        finally:
            await self.aclose()

    async def _cause(self, error: "ReportedError", task: "asyncio.Task[CliEnd]") -> EngineError:
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(_END_S):
                return _not_reached(await asyncio.shield(task), run=self._run) or error
        return error

    async def aclose(self) -> None:
        """Stop the program and wait until it is gone."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, EngineError):
                await task

    def _chunk(self, delta: Mapping[str, JsonValue], finish: str | None = None) -> bytes:
        choice: JsonValue = {"index": 0, "delta": dict(delta), "finish_reason": finish}
        return _data({"id": "cli", "object": "chat.completion.chunk", "model": self._model, "choices": [choice]})


def _data(value: Mapping[str, JsonValue]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


Delta = Mapping[str, JsonValue]
"""A piece of the answer in the form of chat completions."""


class TextReader:
    """Reader of a program whose whole output is the answer."""

    def __init__(self) -> None:
        self.usage: dict[str, JsonValue] = {}
        self.finish = "stop"
        self.finished = False
        self._started = False

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield the text."""
        self._started = self._started or bool(text.strip())
        yield {"content": text}

    def end(self, end: CliEnd, *, name: str) -> Iterator[Delta]:
        """Check how the program ended. Raises EngineError if that is not an answer."""
        if end.code != 0 or not self._started:
            raise _no_answer(end, name=name)
        return iter(())


class EventReader:
    """Reader of JSON lines; see the module. Nothing is passed on before the program has shown that it has no tools."""

    def __init__(self, name: str, *, login: str) -> None:
        """Start before the first line. `name` and `login` are for messages."""
        self.usage: dict[str, JsonValue] = {}
        self.finish = "stop"
        self.finished = False
        self._name = name
        self._login = login
        self._line: list[str] = []
        self._length = 0
        self._toolless = False
        self._streamed = False
        self._whole: list[str] = []

    def feed(self, text: str) -> Iterator[Delta]:
        """Yield what the completed lines say. Raises EngineError for tools, errors, and endless lines."""
        while text and not self.finished:
            line, end, text = text.partition("\n")
            self._line.append(line)
            self._length += len(line)
            if self._length > _LONGEST_LINE:
                raise EngineError(self._failure(FailureKind.BROKEN_STREAM, "writes lines without an end"))
            if end:
                whole, self._line, self._length = "".join(self._line), [], 0
                yield from self._event(whole)

    def end(self, end: CliEnd, *, name: str) -> Iterator[Delta]:
        """Read a last line without an end. Raises EngineError if the program has not finished its answer."""
        yield from self._event("".join(self._line))
        if not self.finished:
            raise _no_answer(end, name=name)

    def _event(self, line: str) -> Iterator[Delta]:
        try:
            event = as_object(json.loads(line)) if line.strip() else {}
        except (ValueError, RecursionError):
            log.info("%s wrote a line that is no JSON", self._name)
            return
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                self._check_tools(event)
            case "stream_event" if not event.get("parent_tool_use_id"):
                self._must_be_toolless()
                yield from self._streaming(as_object(event.get("event")))
            case "assistant" if not event.get("parent_tool_use_id"):
                self._message(event)
            case "result":
                yield from self._result(event)

    def _check_tools(self, event: Mapping[str, object]) -> None:
        """Take the program's list of its tools. Raises EngineError unless it is there and empty."""
        own = event.get("tools")
        servers = as_list(event.get("mcp_servers"))
        if own != [] or servers:
            names = [as_text(one) for one in as_list(own)] + [as_text(as_object(one).get("name")) for one in servers]
            shown = plain_line(", ".join(filter(None, names)) or "it does not name them", limit=120)
            raise EngineError(self._failure(FailureKind.CONFIGURATION, f"has tools of its own ({shown})", _TOOLS_ON))
        self._toolless = True

    def _must_be_toolless(self) -> None:
        if not self._toolless:
            raise EngineError(
                self._failure(FailureKind.CONFIGURATION, "does not say which tools of its own it has", _TOOLS_ON)
            )

    def _streaming(self, event: Mapping[str, object]) -> Iterator[Delta]:
        """Read an event of the Messages API, https://platform.claude.com/docs/en/build-with-claude/streaming."""
        match event.get("type"):
            case "content_block_start":
                self._must_be_no_call(as_object(event.get("content_block")))
            case "content_block_delta":
                delta = as_object(event.get("delta"))
                if text := as_text(delta.get("text")):
                    self._streamed = True
                    yield {"content": text}
                if thought := as_text(delta.get("thinking")):
                    yield {"reasoning_content": thought}
            case "message_delta":
                self.finish = _STOPS.get(as_text(as_object(event.get("delta")).get("stop_reason")), "stop")

    def _message(self, event: Mapping[str, object]) -> None:
        for block in map(as_object, as_list(as_object(event.get("message")).get("content"))):
            self._must_be_no_call(block)
            # Errors are messages too; the result says so.
            self._whole += [as_text(block.get("text"))] if not event.get("error") else []

    def _must_be_no_call(self, block: Mapping[str, object]) -> None:
        if "tool" in as_text(block.get("type")):
            what = f"calls a tool of its own ({plain_line(as_text(block.get('name')), limit=60)})"
            raise EngineError(self._failure(FailureKind.CONFIGURATION, what, _TOOLS_ON))

    def _result(self, event: Mapping[str, object]) -> Iterator[Delta]:
        text = as_text(event.get("result"))
        if event.get("is_error") or as_text(event.get("subtype")) not in ("success", ""):
            errors = " ".join(map(as_text, as_list(event.get("errors")))) or text or as_text(event.get("subtype"))
            raise ReportedError(self._refused(errors, status=event.get("api_error_status")))
        self._must_be_toolless()
        if not self._streamed:
            yield {"content": "".join(self._whole) or text}
        self.usage = _usage(as_object(event.get("usage")))
        self.finished = True

    def _refused(self, text: str, *, status: object) -> ModelFailure:
        shown, lower = plain_line(text, limit=300).rstrip("."), text.lower()
        if isinstance(status, int):
            rejected, limited = status in (401, 403), status in (429, 529)
        else:
            # The program gives no status if it failed before it asked the API: its words are all there is.
            rejected = any(word in lower for word in _REJECTED)
            limited = any(word in lower for word in _LIMITED)
            if any(word in lower for word in _UNREACHABLE):
                return self._failure(FailureKind.UNREACHABLE, f"reports: {shown}", _NO_NETWORK)
        if rejected:
            return self._failure(FailureKind.UNAUTHORIZED, f"is not logged in: {shown}", self._login)
        return self._failure(FailureKind.RATE_LIMITED if limited else FailureKind.SERVER_ERROR, f"reports: {shown}")

    def _failure(self, kind: FailureKind, what: str, advice: str = "") -> ModelFailure:
        return ModelFailure(
            kind=kind, message=f"{self._name} {what}.", advice=advice or "Try again, or choose another model."
        )


_TOOLS_ON = "Nothing of its answer was used. Update the program, or choose another model."


def _not_reached(end: CliEnd, *, run: CliRun) -> EngineError | None:
    """Return the error of a program that did not reach a host; None if it reached all that it asked for."""
    if not end.unreached:
        return None
    barred = [name for name in end.unreached if not any(covers_host(entry, name) for entry in run.hosts)]
    names = plain_line(", ".join(barred or end.unreached), limit=200)
    why = "which its sandbox does not permit" if barred else "which does not answer"
    advice = 'Add it to "hosts" of the model in the registry if the program needs it.' if barred else _NO_NETWORK
    message = f"{run.argv[0]} asked for {names}, {why}."
    return EngineError(ModelFailure(kind=FailureKind.UNREACHABLE, message=message, advice=advice))


def _no_answer(end: CliEnd, *, name: str) -> EngineError:
    how = "was stopped" if end.code is None else f"ended with exit code {end.code}"
    last = plain_line(end.errors.strip().rpartition("\n")[2], limit=300).rstrip(".")
    failure = ModelFailure(
        kind=FailureKind.BROKEN_STREAM,
        message=f"{name} {how} without an answer{f': {last}' if last else ''}.",
        advice="Try the same program in a terminal, or choose another model.",
    )
    return EngineError(failure)


def _usage(found: Mapping[str, object]) -> dict[str, JsonValue]:
    """Return the counts of the Messages API as those of chat completions, which count cached tokens too."""
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    fresh, made, cached, written = (
        value if isinstance(value := found.get(name), int) and not isinstance(value, bool) else 0 for name in names
    )
    if not found:
        return {}
    return {
        "prompt_tokens": fresh + made + cached,
        "completion_tokens": written,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
