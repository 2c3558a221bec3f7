"""What a package runner of a server's command would fetch."""

import pytest

from chatops.domain.errors import ConfigError
from chatops.mcp.packages import parse_runner, runner_of
from tests.support.cases import for_each


@for_each(
    ("command", "package", "program", "arguments"),
    [
        ("npx -y @scope/files@1.2 . --flag", "@scope/files@1.2", "", (". --flag")),
        ("/usr/bin/npx --yes --package=files serve x", "files", "serve", "x"),
        ("npm exec -- files x", "files", "", "x"),
        ("uvx clock", "clock", "clock", ""),
        ("uvx clock@1.2 --zone x", "clock==1.2", "clock", "--zone x"),
        ("uvx clock@latest", "clock", "clock", ""),
        ("uvx clock[all]@1", "clock[all]==1", "clock", ""),
        ("uv tool run --from clock==1 tick", "clock==1", "tick", ""),
    ],
)
def test_the_package_is_read_out_of_the_command(command: str, package: str, program: str, arguments: str) -> None:
    found = parse_runner(command.split())
    assert (found.package, found.program, " ".join(found.arguments)) == (package, program, arguments)


@for_each(
    "command",
    [
        "npx --call x",
        "npx",
        "npx -p",
        "npx -p --call x",
        "npx -p a -p b c",
        "bunx files",
        "pipx run x",
        "uvx --with a b",
    ],
)
def test_what_is_not_known_is_not_guessed(command: str) -> None:
    assert runner_of(command.split())
    with pytest.raises(ConfigError, match="cannot be installed here"):
        parse_runner(command.split())


@for_each("command", ["node npx", "uv run x", "npm start", "npx --no files", "uvx --offline clock"])
def test_what_is_installed_is_run_as_it_is(command: str) -> None:
    assert not runner_of(command.split())
