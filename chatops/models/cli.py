"""Models of type ``cli``: a program that answers, behind the client that is used for servers.

The request becomes one text, which the program reads from a file: no message of a session is ever a word of a
command. Tools are described in the prompt, and calls are read from the answer. So the program needs no tools of
its own. They are switched off, and one that shows that it has some all the same is stopped, and nothing of its answer
is used.

Importing this module imports httpx2.
"""

import asyncio
import contextlib
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import field, replace

import httpx2

from chatops.dialects.writing import WRITABLE
from chatops.domain.canonical import JsonValue
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure
from chatops.models.base import EngineError
from chatops.models.chat import OpenAIChat
from chatops.models.cli_output import NO_NETWORK, CliEnd, EventReader, PlainReader, ReportedError
from chatops.models.cli_programs import PROMPT_FILE, SYSTEM_FILE, CliProgram, command_of
from chatops.models.client import AGENT
from chatops.models.error_text import plain_line
from chatops.models.keys import NO_KEY, Secret
from chatops.models.memory import InMemoryTextStore
from chatops.models.server_json import as_list, as_object, as_text
from chatops.policy.registry import ModelSpec
from chatops.policy.sandbox import covers_host

FORMAT = "hermes"
"""Format of calls unless the registry names another one."""
MAX_OUTPUT = 50_000_000
"""Characters of output that are read, so that a program without an end cannot fill the memory."""
_MARK = secrets.token_hex(4)
"""Part of the tags around messages: no text of a message can end it. It lasts as long as the process, for caches."""
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
    """Limit for the whole run."""
    unsandboxed: bool


RunProgram = Callable[[CliRun, Callable[[str], None]], Awaitable[CliEnd]]
"""Runs a program and passes on its output. No process is left when it returns or is cancelled. Raises EngineError."""


def cli_chat(spec: ModelSpec, *, run_program: RunProgram) -> OpenAIChat:
    """Return the client of a model of type ``cli``. Raises ConfigError for a command that is refused."""
    command = command_of(spec)

    async def no_key() -> Secret:
        return Secret(NO_KEY)

    name = command.argv[0].rpartition("/")[2]
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
            program=command.program,
            argv=command.argv,
            files={},
            hosts=(*command.program.hosts, *spec.hosts),
            env=spec.env,
            seconds=spec.timeout_s.total,
            unsandboxed=spec.unsandboxed,
        ),
        model=plain.model_name,
        run_program=run_program,
    )
    url = f"cli://{name}/v1"
    return OpenAIChat(plain, key=no_key, agent=AGENT, remembered=InMemoryTextStore(), url=url, transport=transport)


class CliTransport(httpx2.AsyncBaseTransport):
    """Transport that answers chat completions with the output of a program."""

    def __init__(self, template: CliRun, *, model: str, run_program: RunProgram) -> None:
        """Set the run, without files, that answers each request."""
        self._template = template
        self._model = model
        self._run_program = run_program

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Start the program; its answer is streamed."""
        body = as_object(json.loads(await request.aread()))
        run = replace(self._template, files=files_of(body, separate=self._template.program.events))
        headers = {"content-type": "text/event-stream"}
        return httpx2.Response(200, headers=headers, stream=_Answer(run, self._run_program, model=self._model))


def files_of(body: Mapping[str, object], *, separate: bool) -> Mapping[str, bytes]:
    """Return the files with the instructions and the messages of a request; in one file unless `separate`."""
    messages = [as_object(message) for message in as_list(body.get("messages"))]
    pairs = [(as_text(message.get("role")), as_text(message.get("content"))) for message in messages]
    system = "\n\n".join(text for role, text in pairs if role == "system")
    tagged = [f"<{role}-{_MARK}>\n{text}\n</{role}-{_MARK}>" for role, text in pairs if role != "system"]
    intro = f"Each message of the conversation is between tags that end in -{_MARK}."
    task = "Write the next message of the assistant, without tags around it." if len(tagged) > 1 else "Answer it."
    prompt = "\n\n".join([intro, *tagged, task])
    if not separate:
        prompt = f"{system}\n\n{prompt}" if system else prompt
    files = {PROMPT_FILE: prompt, **({SYSTEM_FILE: system} if separate else {})}
    return {name: text.encode("utf-8", "replace") for name, text in files.items()}


class _Answer(httpx2.AsyncByteStream):
    """The answer as a server streams it. Closing it stops the program."""

    def __init__(self, run: CliRun, run_program: RunProgram, *, model: str) -> None:
        self._run = run
        self._run_program = run_program
        self._model = model
        self._task: asyncio.Task[CliEnd] | None = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        output: asyncio.Queue[str | None] = asyncio.Queue()
        self._task = task = asyncio.ensure_future(self._run_program(self._run, output.put_nowait))
        task.add_done_callback(lambda done: output.put_nowait(None))
        name = self._run.argv[0]
        reader = EventReader(name, login=self._run.program.login) if self._run.program.events else PlainReader()
        try:
            while (text := await output.get()) is not None:
                try:
                    for delta in reader.feed(text):
                        yield self._chunk(delta)
                except ReportedError as error:
                    # A program may take its missing network for a missing login. Only its end tells.
                    raise await self._find_cause(error, task) from None
                if reader.finished:
                    break
            if not reader.finished:
                end = await task
                if (unreached := _unreached_error(end, run=self._run)) is not None and end.code != 0:
                    raise unreached
                for delta in reader.end(end, name=name):
                    yield self._chunk(delta)
            yield self._chunk({}, finish=reader.finish)
            if reader.usage:
                yield _event({"id": "cli", "model": self._model, "choices": [], "usage": reader.usage})
            yield b"data: [DONE]\n\n"
        finally:
            await self.aclose()

    async def _find_cause(self, error: ReportedError, task: asyncio.Task[CliEnd]) -> EngineError:
        with contextlib.suppress(TimeoutError, EngineError):
            async with asyncio.timeout(_END_S):
                return _unreached_error(await asyncio.shield(task), run=self._run) or error
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
        return _event({"id": "cli", "object": "chat.completion.chunk", "model": self._model, "choices": [choice]})


def _event(value: Mapping[str, JsonValue]) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _unreached_error(end: CliEnd, *, run: CliRun) -> EngineError | None:
    """Return the error of a program that did not reach a host; None if it reached all that it asked for."""
    if not end.unreached:
        return None
    barred = [name for name in end.unreached if not any(covers_host(entry, name) for entry in run.hosts)]
    names = plain_line(", ".join(barred or end.unreached), limit=200)
    why = "which its sandbox does not permit" if barred else "which does not answer"
    advice = 'Add it to "hosts" of the model in the registry if the program needs it.' if barred else NO_NETWORK
    message = f"{run.argv[0]} asked for {names}, {why}."
    return EngineError(ModelFailure(kind=FailureKind.UNREACHABLE, message=message, advice=advice))
