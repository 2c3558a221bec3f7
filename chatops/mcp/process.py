"""The process of a server that chatops starts: sandboxed like a command, with pipes for messages and for errors.

It ends with chatops: bwrap and the supervisor die with their parent, and `running` stops both at its end.
"""

import asyncio
import logging
import os
import re
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from chatops.domain.errors import ChatopsError
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import Exposure
from chatops.policy.registry import McpServerSpec
from chatops.tools.base import ToolContext
from chatops.tools.confine import home_secrets
from chatops.tools.covers import SandboxSetupError
from chatops.tools.execution import search_path
from chatops.tools.mount_point import BARE_HEAD, MOUNTED, can_become_bare, mount_point
from chatops.tools.orphans import CALL_VARIABLE
from chatops.tools.output import visible
from chatops.tools.process import DATA, Command, clean_environment, memory_file, supervised
from chatops.tools.proxy import Proxy, proxy_environment
from chatops.tools.sandbox import Confinement, confinement, landlock_limits, sandboxed_command
from chatops.tools.threads import in_thread
from chatops.tools.toolchains import shown_for

log = logging.getLogger(__name__)

MAX_LINE = 16 * 1024 * 1024
"""Maximum number of bytes of one message of a server."""
_TAIL = 4_000
_TAIL_SHOWN = 300
_NAMES_ERROR = re.compile(r"^(?!at ).*(Error|Exception)\b.{0,40}: |not found|no such file|permission denied", re.I)
_LACKS_FILE = re.compile(rb"cannot find|no module named|no such file|not found|can't open file", re.I)
_EXIT_S = 1.0
_NAMED = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")


class ServerStartError(ChatopsError):
    """Raised if a server cannot be started. Its text is the reason, as a clause. `sandbox`: how it was confined."""

    sandbox = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Workspace, protected paths and sandbox level for the processes of servers."""

    workspace: Path
    protected: tuple[Path, ...]
    best: SandboxLevel = SandboxLevel.HARD


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
        lines = [line.strip() for line in self.errors.decode("utf-8", "replace").splitlines() if line.strip()]
        naming = [line for line in lines if _NAMES_ERROR.search(line)]
        text = " / ".join(naming)[:_TAIL_SHOWN] or " / ".join(lines)[-_TAIL_SHOWN:]
        return visible(text, limit=_TAIL_SHOWN)

    def lacks_file(self) -> bool:
        """Return True if its errors are about a file that the sandbox may not show."""
        return bool(self.confined.program) and _LACKS_FILE.search(self.errors) is not None


def expanded(text: str, *, environ: Mapping[str, str], where: str) -> str:
    """Return `text` with variables of chatops in place of ``${NAME}``.

    Raises ServerStartError for one that is not set.
    """

    def value(found: re.Match[str]) -> str:
        if found[1] not in environ:
            raise ServerStartError(f"{where} needs the variable {found[1]}, which is not set")
        return environ[found[1]]

    return _NAMED.sub(value, text)


@asynccontextmanager
async def running(spec: McpServerSpec, sandbox: SandboxSpec, limits: ServerLimits) -> AsyncIterator[ServerProcess]:
    """Start the server's command, and stop all its processes at the end of the block.

    Raises ServerStartError.
    """
    sandbox = replace(sandbox, read=(*sandbox.read, *_named_files(spec, limits)))
    # In a thread, because it may run the sandbox's probe.
    confined = await in_thread(confinement, sandbox, workspace=limits.workspace, best=limits.best)
    if confined.refusal:
        raise ServerStartError(confined.refusal.rstrip("."))
    async with AsyncExitStack() as stack:
        try:
            command = await _command(spec, sandbox, limits, confined, stack)
            process = await _started(command)
        except SandboxSetupError as error:
            raise ServerStartError(f"its sandbox could not be set up: {error}") from error
        except OSError as error:
            raise ServerStartError(f"it could not be started: {error.strerror}") from error
        server = ServerProcess(process=process, confined=confined, errors=bytearray())
        reading = asyncio.create_task(_read_errors(server), name=f"errors of {spec.name}")
        try:
            yield server
        finally:
            await _stop(process, contained=command.contained)
            reading.cancel()


def _named_files(spec: McpServerSpec, limits: ServerLimits) -> tuple[str, ...]:
    """Return what the sandbox has to show for the absolute paths in the server's command: its program, its script.

    The user has named them. Not those of files that no program may see.
    """
    closed = (*limits.protected, *home_secrets())
    named = [Path(word) for word in spec.command if os.path.isabs(word) and os.path.isfile(word)]
    shown = [place for path in named for place in shown_for(path, workspace=limits.workspace)]
    return tuple(str(place) for place in dict.fromkeys(shown) if not any(place.is_relative_to(one) for one in closed))


async def _command(
    spec: McpServerSpec,
    sandbox: SandboxSpec,
    limits: ServerLimits,
    confined: Confinement,
    stack: AsyncExitStack,
) -> Command:
    """Return the command to start, with what it needs around it on `stack`."""
    cwd = Path(spec.cwd) if spec.cwd else limits.workspace
    given = {name: os.environ[name] for name in sandbox.env if name in os.environ}
    own = {name: expanded(text, environ=os.environ, where=f"env.{name}") for name, text in spec.env}
    environment = {
        **given,
        **clean_environment(os.environ),
        **confined.toolchains.environment,
        "PATH": search_path(confined),
        **own,
    }
    call = f"mcp.{spec.name}"
    command = Command(argv=spec.command, cwd=cwd, environment=environment, call=call)
    context = ToolContext(
        workspace=limits.workspace,
        session_id=SessionId(""),
        call_id=CallId(call),
        protected=limits.protected,
        exposure=Exposure.MASKED,
        sandbox=sandbox,
    )
    if confined.level is SandboxLevel.NONE:
        return command
    if not confined.program:
        private = stack.enter_context(TemporaryDirectory(prefix="chatops-", ignore_cleanup_errors=True))
        landlock = landlock_limits(confined, context, private=Path(private))
        return replace(command, limits=landlock, environment={**environment, "HOME": private, "TMPDIR": private})
    environment["TMPDIR"] = "/tmp"
    channel = None
    if sandbox.hosts and not sandbox.network:
        environment |= proxy_environment(sandbox.hosts)
        ours, theirs = (stack.enter_context(end) for end in socket.socketpair())
        channel = theirs.fileno()
        await stack.enter_async_context(Proxy(hosts=sandbox.hosts).serving(ours))
    for name in MOUNTED:
        if name != BARE_HEAD or can_become_bare(limits.workspace):
            stack.enter_context(mount_point(limits.workspace / name))
    return await in_thread(
        sandboxed_command,
        spec.command,
        confined=confined,
        context=context,
        cwd=cwd,
        environment=environment,
        call=call,
        masked=True,
        channel=channel,
        serves=True,
    )


async def _started(command: Command) -> asyncio.subprocess.Process:
    files = [memory_file(data) for data in command.data]
    numbers = iter(files)
    argv = [str(next(numbers)) if word == DATA else word for word in command.argv]
    # The supervisor reports the end there. Nothing reads it: the end of the messages says enough.
    status = os.open(os.devnull, os.O_WRONLY)
    try:
        # Forks on the event loop's thread: a parent-death signal is bound to the thread that forks.
        return await asyncio.create_subprocess_exec(
            *(argv if command.contained else supervised(argv, status=status, limits=command.limits)),
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
        del server.errors[:-_TAIL]


async def _stop(process: asyncio.subprocess.Process, *, contained: bool) -> None:
    """Close the server's input, give it a moment, and kill what is left of it. A second cancellation kills at once."""
    if process.stdin is not None:
        process.stdin.close()
    try:
        with suppress(TimeoutError):
            async with asyncio.timeout(_EXIT_S):
                await process.wait()
    finally:
        if process.returncode is None:
            # The supervisor kills the tree when it is told to end; it is killed itself only if it does not.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL if contained else signal.SIGTERM)
    if process.returncode is None:
        try:
            async with asyncio.timeout(_EXIT_S):
                await process.wait()
        except TimeoutError:
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
