"""The programs that a model of type ``cli`` may run: how their own tools are switched off, and what they need.

A program that is not in the table is refused: chatops cannot tell whether it acts by itself, past the gate. One is
added with the options that switch its tools off, and the way in which it shows that they are.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import PurePath
from types import MappingProxyType

from chatops.domain.errors import ConfigError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.policy.registry import ModelSpec

PROMPT_FILE = "prompt.txt"
SYSTEM_FILE = "system.txt"
"""Names of the files with the request, in the folder in which the program runs."""


@frozen_dataclass
class CliProgram:
    """A program that answers a prompt on its standard input."""

    options: tuple[str, ...]
    """Added to the command. They switch its own tools off."""
    permitted: Mapping[str, int]
    """Words that the command may have too, each with the number of values after it. Others could switch tools on."""
    events: bool = False
    """True if it writes events as JSON lines, and names its tools in the first one; else its output is the answer."""
    hosts: tuple[str, ...] = ()
    """Hosts that its sandbox lets it reach."""
    credentials: tuple[str, ...] = ()
    """Files of its login, relative to the home folder. It sees them read-only, and nothing else of that folder."""
    variables: tuple[str, ...] = ()
    """Variables of the environment that it gets: its own keys."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Variables that are set for it."""
    install: str = ""
    """How to get it, as advice."""
    login: str = ""
    """How to log in, as advice."""


PROGRAMS: Mapping[str, CliProgram] = MappingProxyType(
    {
        # Options: https://code.claude.com/docs/en/cli-reference, variables: https://code.claude.com/docs/en/env-vars,
        # hosts: https://code.claude.com/docs/en/network-config, as of November 2026. Without attachments, a path
        # after @ in a tool's result is only text.
        "claude": CliProgram(
            options=(
                *("--output-format", "stream-json", "--verbose", "--include-partial-messages"),
                *("--tools", "", "--strict-mcp-config", "--setting-sources", ""),
                *("--system-prompt-file", SYSTEM_FILE),
            ),
            permitted={
                "-p": 0,
                "--print": 0,
                "--verbose": 0,
                "--model": 1,
                "--fallback-model": 1,
                "--effort": 1,
                "--max-budget-usd": 1,
            },
            events=True,
            hosts=("api.anthropic.com", "platform.claude.com", "console.anthropic.com"),
            credentials=(".claude/.credentials.json", ".claude.json"),
            variables=("ANTHROPIC_API_KEY", "CLAUDE_CODE_OAUTH_TOKEN"),
            settings={
                "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
                "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
                "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
                "DISABLE_AUTOUPDATER": "1",
            },
            install="Install it: https://code.claude.com/docs/en/setup",
            login="Log in once: run claude, then type /login",
        ),
        # Tools only with an option: https://llm.datasette.io/en/stable/help.html, as of November 2026.
        "llm": CliProgram(
            options=("--no-log",),
            permitted={"prompt": 0, "-m": 1, "--model": 1, "-o": 2, "--option": 2},
            credentials=(".config/io.datasette.llm/keys.json",),
            install="Install it: https://llm.datasette.io/en/stable/setup.html",
            login="Give it a key: llm keys set NAME",
        ),
    }
)


@frozen_dataclass
class CliCommand:
    """The command of a model."""

    program: CliProgram
    argv: tuple[str, ...]


def command_of(spec: ModelSpec) -> CliCommand:
    """Return the command of a model of type ``cli``, with the options that switch its tools off.

    Raises ConfigError for a command that is refused.
    """
    name = spec.label or spec.name
    if not spec.command:
        raise ConfigError(f"Model {name!r} has no command to run.", advice='Add "command": ["claude", "-p"]')
    known = PROGRAMS.get(PurePath(spec.command[0]).name)
    if known is None:
        raise ConfigError(
            f"Model {name!r} runs {spec.command[0]}, and chatops does not know how to switch off the tools of that"
            " program.",
            advice=f"Programs that can be used: {', '.join(PROGRAMS)}.",
        )
    if (bad := _not_permitted(known, spec.command[1:])) is not None:
        raise ConfigError(
            f"The command of model {name!r} has {bad!r}, which could give the program tools of its own.",
            advice=f"Remove it in the registry. It may have: {', '.join(known.permitted)}.",
        )
    chosen = ("--model", spec.model_name) if spec.model_name else ()
    return CliCommand(program=known, argv=(*spec.command, *known.options, *chosen))


def _not_permitted(known: CliProgram, words: Sequence[str]) -> str | None:
    """Return the first word that is not permitted; None if all are. The word may be empty."""
    values_to_skip = 0
    for word in words:
        if values_to_skip:
            values_to_skip -= 1
            continue
        option, has_value, _ = word.partition("=")
        if option not in known.permitted:
            return word
        values_to_skip = known.permitted[option] - bool(has_value)
    return None
