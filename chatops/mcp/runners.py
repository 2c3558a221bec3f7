"""Servers that a package runner starts (``npx -y PACKAGE``): it fetches them from the network, at every start.

The sandbox has no network, so such a command hangs there. `chatops mcp add` installs the package once; see `packages`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import PurePath

from chatops.domain.errors import ConfigError


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
_OFFLINE = frozenset({"--no", "--no-install", "--offline", "--prefer-offline"})
_FLAGS = frozenset({"-y", "--yes", "-q", "--quiet", "--"})
_PACKAGE = {Ecosystem.NPM: ("-p", "--package"), Ecosystem.PYTHON: ("--from",)}


@dataclass(frozen=True, slots=True, kw_only=True)
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
    start = _start(command)
    return "" if _OFFLINE.intersection(command) else " ".join(start)


def parse_runner(command: Sequence[str]) -> RunnerCommand:
    """Return what the package runner of a command would fetch. Raises ConfigError if chatops cannot install that."""
    start = _start(command)
    ecosystem = _RUNNERS[start]
    names = _PACKAGE.get(ecosystem, ())
    left, package = list(command[len(start) :]), ""
    while left and left[0].startswith("-"):
        option, has_value, value = left.pop(0).partition("=")
        if option in _FLAGS:
            continue
        if option not in names or package or not (has_value or left):
            raise _not_installed(command, f"{option} is not an option that chatops knows")
        package = value if has_value else left.pop(0)
    if ecosystem is Ecosystem.OTHER or not left or package.startswith("-"):
        raise _not_installed(command, "chatops does not know which package that is")
    program = left.pop(0)
    if package:
        return RunnerCommand(ecosystem=ecosystem, package=package, program=program, arguments=tuple(left))
    if ecosystem is Ecosystem.NPM:
        return RunnerCommand(ecosystem=ecosystem, package=program, program="", arguments=tuple(left))
    name, _, version = program.partition("@")
    pinned = f"{name}=={version}" if version not in ("", "latest") else name
    return RunnerCommand(ecosystem=ecosystem, package=pinned, program=name.partition("[")[0], arguments=tuple(left))


def _start(command: Sequence[str]) -> tuple[str, ...]:
    words = (PurePath(command[0]).name, *command[1:3])
    return next((start for start in _RUNNERS if words[: len(start)] == start), ())


def _not_installed(command: Sequence[str], why: str) -> ConfigError:
    return ConfigError(
        f"{' '.join(command)}: {why}, so it cannot be installed here.",
        advice="Install the package yourself, then add its program by its name.",
    )
