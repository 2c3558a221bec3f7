"""Run the program of a model of type ``cli``: in an empty folder, in the sandbox, with its own hosts and login only.

The sandbox has to be bubblewrap, because nothing else restricts the network to hosts. Where it does not work the
program is refused. The user can permit it all the same with the registry's ``"unsandboxed": true``, unless a registry
requires a sandbox.

The folder holds the conversation. The next run of any program removes what a killed process has left.
"""

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from chatops.config.paths import temporary_folder
from chatops.domain.endings import EndedBy, Ending
from chatops.domain.errors import ConfigError, ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.model import FailureKind, ModelFailure
from chatops.domain.sandbox import SandboxLevel, SandboxSpec
from chatops.domain.tools import CallFacts
from chatops.mcp.process import ServerStartError, expand_variables
from chatops.models.base import EngineError
from chatops.models.cli_programs import PROMPT_FILE, CliProgram, command_of
from chatops.policy.registry import ModelSpec
from chatops.sandbox.confinement import confinement
from chatops.sandbox.execution import SandboxFailures, run_confined
from chatops.sandbox.programs import Program, find_program
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import home_folders
from chatops.toolkit.threads import in_thread

if TYPE_CHECKING:
    from chatops.models.cli import CliRun
    from chatops.models.cli_output import CliEnd

log = logging.getLogger(__name__)

_ERRORS_FILE = "errors.txt"
_REDIRECTING_SCRIPT = f'exec "$@" <{PROMPT_FILE} 2>{_ERRORS_FILE}'
"""Script that gives the program its input and output. Nothing of a session is part of it."""
_MAX_ERROR_BYTES = 10_000
"""Bytes of the end of what the program wrote to its standard error."""
_NO_WORKSPACE = Path("/nonexistent")
"""Stands for the workspace: a model's program runs in a folder of its own, which is made later."""
NEEDS_BUBBLEWRAP = 'Install bubblewrap. Without it: "unsandboxed": true in the model\'s entry, at your own risk.'


@frozen_dataclass
class ProgramState:
    """Place of a model's program on this machine, or the reason that it cannot run."""

    text: str
    advice: str = ""
    ready: bool = False


def program_state(spec: ModelSpec, *, require: SandboxLevel) -> ProgramState:
    """Return whether the program of `spec` can run here. May run the sandbox's probe: call it in a thread."""
    try:
        command = command_of(spec)
        name = command.argv[0]
        _find_installed(command.program, name)
        level = _choose_level(unsandboxed=spec.unsandboxed, require=require)
    except ConfigError as error:
        return ProgramState(text=str(error), advice=error.advice)
    if level is SandboxLevel.NONE:
        return ProgramState(text=f"{name} is installed; it runs without a sandbox, as you", ready=True)
    hosts = ", ".join((*command.program.hosts, *spec.hosts)) or "no host"
    return ProgramState(text=f"{name} is installed; in the sandbox it reaches {hosts}", ready=True)


async def run_cli(
    run: "CliRun", output: Callable[[str], None], *, limits: Callable[[], SandboxSpec], protected: tuple[Path, ...]
) -> "CliEnd":
    """Run a program, see `models.cli.RunProgram`. Of `limits`, those of commands, only `require` is used."""
    from chatops.models.cli import MAX_OUTPUT  # slow to import
    from chatops.models.cli_output import CliEnd

    try:
        found = await in_thread(_find_installed, run.program, run.argv[0])
        level = await in_thread(_choose_level, unsandboxed=run.unsandboxed, require=limits().require)
        env = {name: expand_variables(text, environ=os.environ, where=f"env.{name}") for name, text in run.env}
    except ConfigError as error:
        raise _refused_error(str(error), error.advice) from None
    except ServerStartError as error:
        raise _refused_error(f"{run.argv[0]} was not run: {error}.", "Set it before starting chatops.") from None
    with temporary_folder() as empty:
        folder = await in_thread(_write_files, empty, run.files)
        context = ToolContext(
            workspace=folder,
            session_id=SessionId("cli"),
            call_id=CallId(f"cli.{folder.name}"),
            timeout_s=run.seconds,
            max_output_chars=MAX_OUTPUT,
            protected=protected,
            sandbox=SandboxSpec(
                require=SandboxLevel.NONE if level is SandboxLevel.NONE else SandboxLevel.BASIC,
                hosts=run.hosts,
                read=(*_credential_files(run.program), *map(str, found.shown)),
                env=run.program.variables,
            ),
            output=output,
        )
        failures = SandboxFailures(best=level)
        argv = ("/bin/sh", "-c", _REDIRECTING_SCRIPT, "sh", str(found.path), *run.argv[1:])
        confined = await in_thread(partial(confinement, context.sandbox, workspace=folder, best=level))
        facts = CallFacts(arguments="", command=str(found.path), cwd=str(folder), sandbox=confined.description)
        try:
            result = await run_confined(
                argv,
                facts=facts,
                context=context,
                failures=failures,
                seconds=run.seconds,
                masked=False,
                environment={**env, **run.program.settings},
            )
        except ToolFailedError as error:
            raise _refused_error(f"{run.argv[0]} was not run: {error}", "chatops doctor checks the sandbox.") from None
        ending = result.facts.ending or Ending()
        code = ending.exit_code if ending.by is EndedBy.EXIT else None
        errors = await in_thread(_read_tail, folder / _ERRORS_FILE)
        return CliEnd(code=code, errors=errors, unreached=result.facts.refused_hosts)


def _write_files(folder: Path, files: Mapping[str, bytes]) -> Path:
    """Write the files and return the resolved folder."""
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return folder.resolve()


def _refused_error(message: str, advice: str) -> EngineError:
    return EngineError(ModelFailure(kind=FailureKind.CONFIGURATION, message=message, advice=advice))


def _find_installed(program: CliProgram, name: str) -> Program:
    """Return where a program is. Raises ConfigError if it is not installed."""
    found = find_program(name, workspace=_NO_WORKSPACE)
    if found is None:
        raise ConfigError(f"{name} is not installed, or not on the PATH.", advice=program.install)
    return found


def _choose_level(*, unsandboxed: bool, require: SandboxLevel) -> SandboxLevel:
    """Return the highest sandbox level for the program; NONE if it runs without one. Raises ConfigError."""
    found = confinement(SandboxSpec(), workspace=_NO_WORKSPACE)
    if found.program and found.level >= require:
        return found.level
    if unsandboxed and require is SandboxLevel.NONE:
        return SandboxLevel.NONE
    needed = f"of level {require.word}" if require > SandboxLevel.BASIC else "with bubblewrap"
    advice = NEEDS_BUBBLEWRAP if require is SandboxLevel.NONE else "chatops doctor tells what is missing."
    raise ConfigError(f"The program needs a sandbox {needed}, and it does not work: {found.fault}.", advice=advice)


def _credential_files(program: CliProgram) -> tuple[str, ...]:
    """Return the files of the program's login, at the places where it looks for them."""
    homes = home_folders()
    files = (home / name for home in homes for name in program.credentials)
    return tuple(str(file) for file in files if file.is_file() and not file.is_symlink())


def _read_tail(file: Path) -> str:
    try:
        with os.fdopen(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb") as handle:
            handle.seek(max(0, os.fstat(handle.fileno()).st_size - _MAX_ERROR_BYTES))
            return handle.read(_MAX_ERROR_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
