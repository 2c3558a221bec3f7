"""Install the package of a server once, so that its starts need no network, and pin what was installed.

npm or uv run in the sandbox, with the network, in an empty folder, which is all that they can write. Nothing of the
package runs: npm runs no scripts, and uv takes wheels only. The registry's entry then names the program by its absolute
path, and the digest of the folder, which is compared at each start.
"""

import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from chatops.domain.errors import ChatopsError, ToolFailedError
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts
from chatops.mcp.runners import Ecosystem, RunnerCommand
from chatops.policy.servers import InstalledPackage
from chatops.sandbox.confinement import Confinement, confinement
from chatops.sandbox.execution import SandboxFailures, run_confined
from chatops.sandbox.programs import find_program
from chatops.toolkit.base import ToolContext
from chatops.toolkit.threads import in_thread

_SECONDS = 600.0
_OUTPUT = 2_000
_VARIABLES = (
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("SSL_CERT_FILE", "SSL_CERT_DIR", "NODE_EXTRA_CA_CERTS", "npm_config_registry"),
    *("UV_INDEX", "UV_DEFAULT_INDEX", "UV_INDEX_URL", "UV_EXTRA_INDEX_URL", "UV_FIND_LINKS", "UV_OFFLINE"),
)
"""Variables that npm and uv get: the way to their indexes."""
_CACHES = 'export npm_config_cache="${TMPDIR:-/tmp}/npm" UV_CACHE_DIR="${TMPDIR:-/tmp}/uv"; '
_NPM = f'{_CACHES}exec "$1" install --prefix . --ignore-scripts --no-audit --no-fund --no-update-notifier "$2"'
_UV = (
    f'{_CACHES}"$1" venv --quiet venv && '
    'exec "$1" pip install --quiet --python venv/bin/python --no-build --compile-bytecode "$2"'
)
_SETTINGS = {
    "UV_LINK_MODE": "copy",
    # A Python that uv fetched would be in its own folder, which is gone at the end.
    "UV_PYTHON_DOWNLOADS": "never",
}


def limits_of_installing() -> SandboxSpec:
    """Return what npm and uv need, before others narrow it."""
    return SandboxSpec(network=True, env=tuple(name for name in _VARIABLES if name in os.environ))


@dataclass(frozen=True, slots=True, kw_only=True)
class Installer:
    """Installs packages below `folder`, under the limits `sandbox`."""

    folder: Path
    sandbox: SandboxSpec
    protected: tuple[Path, ...]

    def confinement(self) -> Confinement:
        """Return how npm and uv run. May run the sandbox's probe: call it in a thread."""
        return confinement(self.sandbox, workspace=self.folder, protected=self.protected)

    async def install(self, runner: RunnerCommand) -> tuple[tuple[str, ...], InstalledPackage]:
        """Install a package, and return the command that starts it and what was installed. Raises ChatopsError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "-", runner.package.rpartition("/")[2])[:40].strip("-.")
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder.resolve()))
        try:
            await _run(runner, replace(self, folder=folder))
            find = _npm_program if runner.ecosystem is Ecosystem.NPM else _python_program
            package, program = find(folder, runner)
            digest = await in_thread(tree_digest, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return (str(program), *runner.arguments), InstalledPackage(package=package, folder=str(folder), digest=digest)


async def _run(runner: RunnerCommand, installer: Installer) -> None:
    tool, folder = runner.ecosystem.value, installer.folder
    program = find_program(tool, workspace=folder)
    if program is None:
        raise ChatopsError(f"{tool} is not installed, or not on the PATH.", advice=f"It installs {runner.package}.")
    archive = _archive(runner.package)
    installer = replace(installer, sandbox=replace(installer.sandbox, read=(*map(str, program.shown), *archive)))
    context = ToolContext(
        workspace=folder,
        session_id=SessionId("mcp"),
        call_id=CallId(f"mcp.{folder.name}"),
        timeout_s=_SECONDS,
        max_output_chars=_OUTPUT,
        protected=installer.protected,
        sandbox=installer.sandbox,
    )
    confined = await in_thread(installer.confinement)
    facts = CallFacts(arguments="", command=str(program.path), cwd=str(folder), sandbox=confined.description)
    script = _NPM if runner.ecosystem is Ecosystem.NPM else _UV
    argv = ("/bin/sh", "-c", script, "sh", str(program.path), *(archive or (runner.package,)))
    try:
        result = await run_confined(
            argv,
            facts=facts,
            context=context,
            failures=SandboxFailures(),
            seconds=_SECONDS,
            masked=False,
            environment=_SETTINGS,
        )
    except ToolFailedError as error:
        raise ChatopsError(f"{runner.package} was not installed. {error}") from None
    if result.facts.ending is None or result.facts.ending.exit_code != 0:
        raise ChatopsError(
            f"{tool} could not install {runner.package}:\n{result.content.strip()}",
            advice="Packages that have to be built are not supported: install those yourself, and add their program.",
        )


def _archive(package: str) -> tuple[str, ...]:
    """Return the absolute path of an archive on this machine, which the sandbox has to show; empty for a name."""
    return (os.path.abspath(package),) if os.path.isfile(package) else ()


def _npm_program(folder: Path, runner: RunnerCommand) -> tuple[str, Path]:
    """Return name and version of the package that was asked for, and its program. Raises ChatopsError."""
    try:
        name = next(iter(json.loads((folder / "package.json").read_bytes())["dependencies"]))
        about = json.loads((folder / "node_modules" / name / "package.json").read_bytes())
        named = about.get("bin") or {}
        programs = [name.rpartition("/")[2]] if isinstance(named, str) else list(named)
        chosen = runner.program or (programs[0] if len(programs) == 1 else name.rpartition("/")[2])
        package = f"{name}@{about['version']}"
    except (OSError, ValueError, KeyError, StopIteration, AttributeError):
        raise ChatopsError(f"npm installed nothing that can be used for {runner.package}.") from None
    return package, _existing(folder / "node_modules" / ".bin" / chosen, package, programs)


def _python_program(folder: Path, runner: RunnerCommand) -> tuple[str, Path]:
    from importlib.metadata import distributions  # slow to import

    sites = [str(site) for site in folder.glob("venv/lib/python3*/site-packages")]
    for found in distributions(path=sites):
        programs = [entry.name for entry in found.entry_points.select(group="console_scripts")]
        if runner.program in programs:
            package = f"{found.name}=={found.version}"
            return package, _existing(folder / "venv" / "bin" / runner.program, package, programs)
    raise ChatopsError(
        f"{runner.package} has no program {runner.program}.", advice="uvx --from PACKAGE PROGRAM names another one."
    )


def _existing(program: Path, package: str, programs: list[str]) -> Path:
    if not program.is_file() or Path(os.path.normpath(program)).parent != program.parent:
        known = f"It has: {', '.join(programs)}." if programs else "It is no server."
        raise ChatopsError(f"{package} has no program {program.name}.", advice=known)
    return program


def is_changed(package: InstalledPackage) -> bool:
    """Return True if the folder is not what was installed."""
    return tree_digest(Path(package.folder)) != package.digest


def remove_package(package: InstalledPackage, *, installed: Path) -> None:
    """Remove the folder of a package, if it is one of those that `install` made below `installed`."""
    folder = Path(package.folder)
    if folder.parent == installed.resolve() and not folder.is_symlink():
        shutil.rmtree(folder, ignore_errors=True)


def tree_digest(folder: Path) -> str:
    """Return a digest of everything in a folder: names, modes, targets of links, content of files."""
    whole = hashlib.sha256()
    for place in _entries(str(folder)):
        info = os.lstat(place)
        content = b""
        if stat.S_ISLNK(info.st_mode):
            content = os.fsencode(os.readlink(place))
        elif stat.S_ISREG(info.st_mode):
            with open(place, "rb") as file:
                content = hashlib.file_digest(file, "sha256").digest()
        name = os.fsencode(os.path.relpath(place, folder))
        whole.update(b"%d %o %d " % (len(name), info.st_mode, len(content)) + name + content)
    return f"sha256:{whole.hexdigest()}"


def _entries(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted((*folders, *files)))
