"""The process of a server that chatops starts: sandboxed like a command, with pipes for messages and for errors.

It ends with chatops: bwrap and the supervisor die with their parent, and `running_server` stops both at its end.

Where the sandbox is below the level that its entry accepts (`accept_level`, at most basic), the user decides on the
text of `trust_item_of_start`, and a yes is bound to it: another program, argument, variable, folder or limit makes
another text. Other files that the program loads are not part of it.
"""

import asyncio
import hashlib
import logging
import os
import re
import secrets
import shlex
import shutil
import signal
import stat
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.errors import ChatopsError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.known_keys import without_keys
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Exposure
from chatops.mcp.packages import is_changed, runner_of
from chatops.policy.servers import McpServerSpec
from chatops.sandbox.confinement import Confinement, WorkspaceAccess, confinement
from chatops.sandbox.covers import SandboxSetupError
from chatops.sandbox.execution import base_environment, search_path, set_up
from chatops.sandbox.orphans import CALL_VARIABLE
from chatops.sandbox.process import Command, words_to_start
from chatops.sandbox.programs import find_program, program_at, workspace_last
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import home_secrets
from chatops.toolkit.output import visible
from chatops.toolkit.threads import in_thread

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024 * 1024
"""Maximum number of bytes of one message of a server."""
_KEPT_ERRORS = 4_000
"""Bytes of standard error that are kept."""
_SHOWN_ERRORS = 300
"""Characters of them that are shown."""
_NAMES_ERROR = re.compile(r"^(?!at ).*(Error|Exception)\b.{0,40}: |not found|no such file|permission denied", re.I)
"""A line of standard error that says what went wrong, and is no line of a stack trace."""
_LACKS_FILE = re.compile(rb"cannot find|no module named|no such file|not found|can't open file", re.I)
_EXIT_S = 1.0
"""Seconds for the server to end, before and after each signal."""
_MODULE_OPTION = re.compile(r"-[A-Za-z]*[mc]")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_DIGESTED = 1_000_000_000
"""Bytes of a file that is digested."""
_NOT_CONFINED = {
    SandboxLevel.NONE: "Nothing confines it: it runs as you, and can read and change your files and use the network.",
    SandboxLevel.LANDLOCK: "Landlock confines it, which is less than bubblewrap.",
}
"""What confines a server whose start the user is asked about. Only below basic is anyone asked."""


def trust_item_of_start(
    spec: McpServerSpec, confined: Confinement, *, cwd: Path, environment: Mapping[str, str]
) -> Item:
    """Return the start of a server as an item that the user can trust. Reads the program: call it in a thread."""
    variables = sorted({name for name, _ in spec.env} | {name for name in spec.sandbox.env if name in environment})
    lines = [
        f"runs:      {shlex.join(spec.command)}",
        *_file_lines(spec.command, cwd=cwd, path=environment.get("PATH", "")),
        f"in:        {cwd}",
        f"variables: {', '.join(variables) or 'none of yours'}",
        f"sandbox:   level {confined.level.word}: {confined.description}",
        _NOT_CONFINED[confined.level],
    ]
    data = "\n".join(visible(line, limit=len(line)) for line in lines).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(data).hexdigest()
    return Item(kind=ItemKind.SERVER_START, path=spec.name, size=len(data), digest=digest, data=data)


def _file_lines(command: tuple[str, ...], *, cwd: Path, path: str) -> Iterator[str]:
    """Yield a line for the program and for each file among its arguments, with the digest of its content."""
    program, *arguments = command
    found = os.path.join(cwd, program) if "/" in program else shutil.which(program, path=path)
    yield f"program:   {_path_and_digest(found)}" if found else f"program:   {program}, which is not there"
    for word in arguments:
        if os.path.isfile(place := os.path.join(cwd, word)):
            yield f"file:      {_path_and_digest(place)}"


def _path_and_digest(place: str) -> str:
    real = os.path.realpath(place)
    try:
        with open(real, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _MAX_DIGESTED:
                return f"{real}, which cannot be read"
            return f"{real}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        return f"{real}, which cannot be read ({error.strerror})"


class ServerStartError(ChatopsError):
    """Raised if a server cannot be started. Its text is the reason, as a clause."""

    def __init__(self, message: str, *, sandbox: str = "") -> None:
        """Create the error. `sandbox` describes how the server was confined, if its process was started."""
        super().__init__(message)
        self.sandbox = sandbox


class NotPermittedError(ServerStartError):
    """Raised if the sandbox is below the accepted level and the user has not said yes to the start."""


@frozen_dataclass
class ServerLimits:
    """Workspace, protected paths, sandbox level and the user's yes for the processes of servers."""

    workspace: Path
    protected: tuple[Path, ...]
    best: SandboxLevel = SandboxLevel.HARD
    """Highest level of the sandbox that may be used."""
    permits: Callable[[Item], bool] = lambda start: False
    """Returns True if the user has said yes to this start. Asked below the accepted level only; may read files."""


@dataclass(slots=True, kw_only=True)
class ServerProcess:
    """A started server, and how it is confined."""

    process: asyncio.subprocess.Process
    confined: Confinement
    errors: bytearray
    """End of what it wrote to its standard error."""

    def last_errors(self) -> str:
        """Return the lines of its standard error that name an error, else its end, on one line.

        Untrusted text, made visible.
        """
        errors = without_keys(self.errors.decode("utf-8", "replace"))
        lines = [line.strip() for line in errors.splitlines() if line.strip()]
        naming = [line for line in lines if _NAMES_ERROR.search(line)]
        text = " / ".join(naming)[:_SHOWN_ERRORS] or " / ".join(lines)[-_SHOWN_ERRORS:]
        return visible(text, limit=_SHOWN_ERRORS)

    def lacks_file(self) -> bool:
        """Return True if its errors are about a file that the sandbox may not show."""
        return bool(self.confined.program) and _LACKS_FILE.search(self.errors) is not None


def expand_variables(text: str, *, environ: Mapping[str, str], where: str) -> str:
    """Return `text` with variables of chatops in place of ``${NAME}``.

    Raises ServerStartError for one that is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise ServerStartError(f"{where} needs the variable {found[1]}, which is not set")
        return environ[found[1]]

    return _VARIABLE.sub(value, text)


@asynccontextmanager
async def running_server(
    spec: McpServerSpec, sandbox: SandboxSpec, limits: ServerLimits
) -> AsyncIterator[ServerProcess]:
    """Start the server's command, and stop all its processes at the end of the block. Raises ServerStartError."""
    await in_thread(_refuse_unpinned, spec, sandbox)
    spec, shown = await in_thread(_with_program_path, spec, limits)
    sandbox = replace(sandbox, read=(*sandbox.read, *shown))
    # In a thread, because it may run the sandbox's probe.
    confined = await in_thread(
        confinement,
        sandbox,
        workspace=limits.workspace,
        best=limits.best,
        access=WorkspaceAccess.READ_ONLY if spec.workspace == "read" else WorkspaceAccess.WRITABLE,
        protected=limits.protected,
    )
    if confined.refusal:
        raise ServerStartError(confined.refusal.rstrip("."))
    async with AsyncExitStack() as stack:
        try:
            command = await _prepare_command(spec, sandbox, limits, confined, stack)
            process = await _start_process(command)
        except SandboxSetupError as error:
            raise ServerStartError(f"its sandbox could not be set up: {error}") from error
        except OSError as error:
            raise ServerStartError(f"it could not be started: {error.strerror}") from error
        server = ServerProcess(process=process, confined=confined, errors=bytearray())
        reading = asyncio.create_task(_read_errors(server), name=f"errors of {spec.name}")
        try:
            yield server
        finally:
            await _stop_process(process, contained=command.contained)
            reading.cancel()


def _with_program_path(spec: McpServerSpec, limits: ServerLimits) -> tuple[McpServerSpec, tuple[str, ...]]:
    """Return the server with the path of its program, and what the sandbox has to show for its command.

    That is the program and its scripts, files that the command names by an absolute path, but none that no program may
    see. Raises ServerStartError if there is no such program.
    """
    name, *words = spec.command
    cwd = Path(spec.cwd) if spec.cwd else limits.workspace
    program = find_program(name, workspace=limits.workspace, cwd=cwd)
    if program is None:
        where = "is no program" if "/" in name else "is not installed, or not on the PATH of chatops"
        raise ServerStartError(f"{visible(name, limit=200)} {where}")
    named = (Path(word) for word in words if os.path.isabs(word) and os.path.isfile(word))
    scripts = [program_at(path, workspace=limits.workspace) for path in named]
    shown = dict.fromkeys(place for file in (program, *scripts) for place in file.shown)
    closed = (*limits.protected, *home_secrets())
    return replace(spec, command=(str(program.path), *words)), tuple(
        str(place) for place in shown if not any(place.is_relative_to(folder) for folder in closed)
    )


def _refuse_unpinned(spec: McpServerSpec, sandbox: SandboxSpec) -> None:
    """Raise ServerStartError for a program that would have to be fetched, or is not the one that was installed."""
    runner = runner_of(spec.command)
    if runner and not (sandbox.network or sandbox.hosts):
        raise ServerStartError(
            f"{runner} fetches it from the network at each start, and its sandbox has none; to install it once,"
            f" `chatops mcp remove {spec.name}`, then `chatops mcp add {spec.name} {spec.origin}` in a terminal"
        )
    if spec.installed is not None and is_changed(spec.installed):
        raise ServerStartError(
            f"{spec.installed.package} is not what chatops mcp add installed in {visible(spec.installed.folder)};"
            f" `chatops mcp remove {spec.name}`, then add it again"
        )


async def _prepare_command(
    spec: McpServerSpec, sandbox: SandboxSpec, limits: ServerLimits, confined: Confinement, stack: AsyncExitStack
) -> Command:
    """Return the command to start, with what it needs around it on `stack`."""
    cwd = Path(spec.cwd) if spec.cwd else limits.workspace
    entry_variables = {name: expand_variables(text, environ=os.environ, where=f"env.{name}") for name, text in spec.env}
    names_module = any(_MODULE_OPTION.fullmatch(word) for word in spec.command[1:])
    environment = {
        **base_environment(sandbox, confined),
        # Or else ``python -m MODULE`` would load modules of the workspace, unless the entry names a folder.
        **({"PYTHONSAFEPATH": "1"} if names_module and not spec.cwd else {}),
        "PATH": os.pathsep.join(workspace_last(search_path(confined).split(os.pathsep), workspace=limits.workspace)),
        **entry_variables,
    }
    if confined.level < spec.accept_level:
        start = await in_thread(trust_item_of_start, spec, confined, cwd=cwd, environment=environment)
        if not await in_thread(limits.permits, start):
            raise NotPermittedError(f"it needs your yes, because its sandbox would be of level {confined.level.word}")
    call = f"mcp.{spec.name}"
    context = ToolContext(
        workspace=limits.workspace,
        session_id=SessionId(""),  # it serves all sessions
        call_id=CallId(call),
        protected=limits.protected,
        exposure=Exposure.MASKED if spec.workspace == "write" else Exposure.READ_ONLY,
        sandbox=sandbox,
    )
    command = Command(argv=spec.command, cwd=cwd, environment=environment, call=call)
    # Masked: it reads no files that may hold secrets. It serves: its standard input is for messages, not the handshake.
    ready = set_up(command, confined=confined, context=context, masked=True, serves=True)
    return (await stack.enter_async_context(ready)).command


async def _start_process(command: Command) -> asyncio.subprocess.Process:
    # The supervisor reports the end there. Nothing reads it: the end of the messages says enough.
    status = os.open(os.devnull, os.O_WRONLY)
    argv, files = words_to_start(command, status=status)
    try:
        # Forks on the event loop's thread: a parent-death signal is bound to the thread that forks.
        return await asyncio.create_subprocess_exec(
            *argv,
            cwd=command.cwd,
            env={**command.environment, CALL_VARIABLE: f"{command.call}/{secrets.token_hex(8)}"},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
            pass_fds=(*files, *command.passed, *(() if command.contained else (status,))),
            limit=MAX_LINE,
        )
    finally:
        for descriptor in (*files, status):
            os.close(descriptor)


async def _read_errors(server: ServerProcess) -> None:
    """Keep the end of the server's standard error, reading it so that the server never blocks."""
    stream = server.process.stderr
    assert stream is not None
    while data := await stream.read(65_536):
        server.errors += data
        del server.errors[:-_KEPT_ERRORS]


async def _stop_process(process: asyncio.subprocess.Process, *, contained: bool) -> None:
    """Close the server's input, give it a moment, and kill what is left of it. A second cancellation kills at once."""
    if process.stdin is not None:
        process.stdin.close()
    # The supervisor kills the tree when it is told to end; it is killed itself only if it does not.
    signals = (signal.SIGKILL,) if contained else (signal.SIGTERM, signal.SIGKILL)
    try:
        await _wait_for_end(process)
        for number in signals:
            if process.returncode is None:
                with suppress(OSError):
                    os.killpg(process.pid, number)
                await _wait_for_end(process)
    finally:
        if process.returncode is None:
            with suppress(OSError):
                os.killpg(process.pid, signals[0])
        else:
            # It closes itself only at the end of the output, and what is not read any more never ends. While the
            # process lives, this would kill the supervisor before it has killed the tree.
            process._transport.close()  # type: ignore[attr-defined]


async def _wait_for_end(process: asyncio.subprocess.Process) -> None:
    """Wait a moment for the end of the process."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_EXIT_S):
            await process.wait()
