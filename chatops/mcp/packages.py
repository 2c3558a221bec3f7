"""Install the package of a server once, so that its starts need no network, and pin what was installed.

A package runner (``npx -y PACKAGE``) fetches it at every start, and would hang in the sandbox, which has no network.

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
from collections.abc import Iterator, Sequence
from dataclasses import replace
from enum import Enum
from importlib.metadata import distributions
from pathlib import Path, PurePath

from chatops.domain.errors import ChatopsError, ConfigError, ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId
from chatops.domain.sandbox import SandboxSpec
from chatops.domain.tools import CallFacts
from chatops.policy.servers import InstalledPackage
from chatops.sandbox.confinement import Confinement, confinement
from chatops.sandbox.execution import SandboxFailures, run_confined
from chatops.sandbox.programs import find_program
from chatops.toolkit.base import ToolContext
from chatops.toolkit.threads import in_thread

_INSTALL_S = 600.0
"""Seconds for npm or uv, with all that they download."""
_MAX_OUTPUT = 2_000
"""Characters of their output in an error."""
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
"""Scripts for the sandbox, like `_NPM`: the first word is the program, the second what to install."""
_SETTINGS = {
    "UV_LINK_MODE": "copy",
    # A Python that uv fetched would be in its own folder, which is gone at the end.
    "UV_PYTHON_DOWNLOADS": "never",
}


class Ecosystem(Enum):
    """The source of a runner's packages. The value is the program that installs them."""

    NPM = "npm"
    PYTHON = "uv"
    OTHER = ""
    """chatops does not install those."""


_RUNNERS = {
    ("npx",): Ecosystem.NPM,
    ("npm", "exec"): Ecosystem.NPM,
    ("npm", "x"): Ecosystem.NPM,
    ("uvx",): Ecosystem.PYTHON,
    ("uv", "tool", "run"): Ecosystem.PYTHON,
    ("bunx",): Ecosystem.OTHER,
    ("pnpx",): Ecosystem.OTHER,
    ("pnpm", "dlx"): Ecosystem.OTHER,
    ("yarn", "dlx"): Ecosystem.OTHER,
    ("pipx", "run"): Ecosystem.OTHER,
}
_OFFLINE_OPTIONS = frozenset({"--no", "--no-install", "--offline", "--prefer-offline"})
_FLAGS = frozenset({"-y", "--yes", "-q", "--quiet", "--"})
_PACKAGE_OPTIONS = {Ecosystem.NPM: ("-p", "--package"), Ecosystem.PYTHON: ("--from",)}


@frozen_dataclass
class RunnerCommand:
    """The package that a runner would fetch, and what of it would run."""

    ecosystem: Ecosystem
    package: str
    """With its version, as it was written."""
    program: str
    """Empty: the program that the package has."""
    arguments: tuple[str, ...]


def runner_of(command: Sequence[str]) -> str:
    """Return the words of the package runner that a command starts with; empty if it runs what is installed."""
    return "" if _OFFLINE_OPTIONS.intersection(command) else " ".join(_runner_words(command))


def parse_runner(command: Sequence[str]) -> RunnerCommand:
    """Return what the package runner of `command`, see `runner_of`, would fetch.

    Raises ConfigError if chatops cannot install that.
    """
    start = _runner_words(command)
    ecosystem = _RUNNERS[start]
    package_options = _PACKAGE_OPTIONS.get(ecosystem, ())
    left, package = list(command[len(start) :]), ""
    while left and left[0].startswith("-"):
        option, has_value, value = left.pop(0).partition("=")
        if option in _FLAGS:
            continue
        if option not in package_options or package or not (has_value or left):
            raise _refusal(command, f"{option} is not an option that chatops knows")
        package = value if has_value else left.pop(0)
    if ecosystem is Ecosystem.OTHER or not left or package.startswith("-"):
        raise _refusal(command, "chatops does not know which package that is")
    program = left.pop(0)
    if package:
        return RunnerCommand(ecosystem=ecosystem, package=package, program=program, arguments=tuple(left))
    if ecosystem is Ecosystem.NPM:
        return RunnerCommand(ecosystem=ecosystem, package=program, program="", arguments=tuple(left))
    name, _, version = program.partition("@")
    pinned = f"{name}=={version}" if version not in ("", "latest") else name
    return RunnerCommand(ecosystem=ecosystem, package=pinned, program=name.partition("[")[0], arguments=tuple(left))


def _runner_words(command: Sequence[str]) -> tuple[str, ...]:
    """Return the key of `_RUNNERS` that a command starts with; empty if it starts with none."""
    words = (PurePath(command[0]).name, *command[1:3])
    return next((start for start in _RUNNERS if words[: len(start)] == start), ())


def _refusal(command: Sequence[str], why: str) -> ConfigError:
    return ConfigError(
        f"{' '.join(command)}: {why}, so it cannot be installed here.",
        advice="Install the package yourself, then add its program by its name.",
    )


def limits_of_installing() -> SandboxSpec:
    """Return what npm and uv need, before others narrow it."""
    return SandboxSpec(network=True, env=tuple(name for name in _VARIABLES if name in os.environ))


@frozen_dataclass
class Installed:
    """A package after its installation."""

    command: tuple[str, ...]
    """Starts its program."""
    package: InstalledPackage


@frozen_dataclass
class Installer:
    """Installs packages below `folder`, under the limits `sandbox`."""

    folder: Path
    sandbox: SandboxSpec
    protected: tuple[Path, ...]

    def confinement(self) -> Confinement:
        """Return how npm and uv run. May run the sandbox's probe: call it in a thread."""
        return confinement(self.sandbox, workspace=self.folder, protected=self.protected)

    async def install(self, runner: RunnerCommand) -> Installed:
        """Install a package. Raises ChatopsError."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        name = re.sub(r"[^\w.-]+", "-", runner.package.rpartition("/")[2])[:40].strip("-.")
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self.folder.resolve()))
        try:
            await _run_installer(runner, replace(self, folder=folder))
            find = _npm_program if runner.ecosystem is Ecosystem.NPM else _python_program
            found = find(folder, runner)
            digest = await in_thread(tree_digest, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        package = InstalledPackage(package=found.package, folder=str(folder), digest=digest)
        return Installed(command=(str(found.program), *runner.arguments), package=package)


async def _run_installer(runner: RunnerCommand, installer: Installer) -> None:
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
        timeout_s=_INSTALL_S,
        max_output_chars=_MAX_OUTPUT,
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
            seconds=_INSTALL_S,
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


@frozen_dataclass
class _Found:
    """A package that was asked for and is installed now."""

    package: str
    """Name and version."""
    program: Path


def _npm_program(folder: Path, runner: RunnerCommand) -> _Found:
    """Return what npm has installed. Raises ChatopsError."""
    try:
        name = next(iter(json.loads((folder / "package.json").read_bytes())["dependencies"]))
        about = json.loads((folder / "node_modules" / name / "package.json").read_bytes())
        named = about.get("bin") or {}
        programs = [name.rpartition("/")[2]] if isinstance(named, str) else list(named)
        chosen = runner.program or (programs[0] if len(programs) == 1 else name.rpartition("/")[2])
        package = f"{name}@{about['version']}"
    except (OSError, ValueError, KeyError, StopIteration, AttributeError):
        raise ChatopsError(f"npm installed nothing that can be used for {runner.package}.") from None
    program = _checked_program(folder / "node_modules" / ".bin" / chosen, package, programs)
    return _Found(package=package, program=program)


def _python_program(folder: Path, runner: RunnerCommand) -> _Found:
    """Return what uv has installed. Raises ChatopsError."""
    sites = [str(site) for site in folder.glob("venv/lib/python3*/site-packages")]
    for found in distributions(path=sites):
        programs = [entry.name for entry in found.entry_points.select(group="console_scripts")]
        if runner.program in programs:
            package = f"{found.name}=={found.version}"
            program = _checked_program(folder / "venv" / "bin" / runner.program, package, programs)
            return _Found(package=package, program=program)
    raise ChatopsError(
        f"{runner.package} has no program {runner.program}.", advice="uvx --from PACKAGE PROGRAM names another one."
    )


def _checked_program(program: Path, package: str, programs: list[str]) -> Path:
    """Return `program`. Raises ChatopsError if there is none, or if its name leads out of the folder."""
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
    for place in _paths_below(str(folder)):
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


def _paths_below(folder: str) -> Iterator[str]:
    for place, folders, files in os.walk(folder):
        folders.sort()
        yield from (os.path.join(place, name) for name in sorted((*folders, *files)))
