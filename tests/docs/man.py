"""Write docs/chatops.1, the man page, from the parser of the command line: ``python -m tests.docs.man``.

Macros are those of man(7) in groff and mandoc.
"""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

from chatops.commands.parser import DESCRIPTION, EPILOG, build_parser

PAGE = Path(__file__).parents[2] / "docs" / "chatops.1"

ENVIRONMENT = {
    "CHATOPS_HOME": "one folder for configuration, sessions, logs and caches, instead of those of the platform",
    "CHATOPS_REGISTRY": "the registry to use, unless --registry names one",
    "CHATOPS_SEARXNG": "address of a SearXNG server that web_search asks",
    "OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_MODEL": "make up the model named env",
    "NO_COLOR": "if it is not empty, nothing is coloured",
}
FILES = {
    "~/.config/chatops/model_registry.json": "models, roles, users, tools, servers",
    "/etc/chatops/model_registry.json": "the ceiling for everyone on the machine",
    "~/.config/chatops/settings.yaml": "theme, keys, favourite roles, notifications",
    "~/.local/share/chatops/": "sessions, approvals, rules, the decision log",
}


def page() -> str:
    """Return the page."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    parser = build_parser()
    yield '.TH CHATOPS 1 "" chatops "User Commands"'
    yield from (".SH NAME", "chatops \\- terminal chat with role\\-based tool access")
    yield from (".SH SYNOPSIS", *_synopsis(parser))
    yield from (".SH DESCRIPTION", _text(DESCRIPTION))
    yield _text("Without a command, the chat starts in the current folder. With -p it answers and exits.")
    yield from (".SH OPTIONS", *_options(parser))
    yield ".SH COMMANDS"
    for command in _commands(parser):
        yield from (f".SS {_text(command.prog)}", *_command(command))
        for action in _commands(command):
            yield from (f".SS {_text(action.prog)}", *_command(action))
    yield from (".SH EXIT STATUS", *_table(dict(_exit_codes())))
    yield from (".SH ENVIRONMENT", *_table(ENVIRONMENT))
    yield from (".SH FILES", *_table(FILES))
    yield from (
        ".SH SECURITY",
        _text("What it protects from, and what it does not, is in docs/rights.md of its source."),
    )


def _commands(parser: argparse.ArgumentParser) -> list[argparse.ArgumentParser]:
    subparsers = next((a for a in parser._actions if isinstance(a, argparse._SubParsersAction)), None)
    return [*subparsers.choices.values()] if subparsers else []


def _command(parser: argparse.ArgumentParser) -> Iterator[str]:
    if not _commands(parser):
        yield from _synopsis(parser)
        yield ".PP"
    yield _text((parser.description or "").removesuffix(".") + ".")
    yield from _options(parser)


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the command with its arguments. The options follow it, and argparse's own usage differs between Pythons."""
    arguments = [
        f"[{name}]" if action.nargs in ("?", argparse.REMAINDER) else name
        for action in parser._actions
        if not action.option_strings and action.help != argparse.SUPPRESS and (name := str(action.metavar))
    ]
    yield f".B {_text(parser.prog)}"
    yield _text(" ".join(["[options]", *arguments]))


def _options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the arguments of a command. The flags of every command are listed once, under OPTIONS."""
    everywhere = {"--registry", "--workspace", "--add-dir", "--access", "--help"}
    for action in parser._actions:
        repeated = parser.prog != "chatops" and everywhere.intersection(action.option_strings)
        if repeated or isinstance(action, argparse._SubParsersAction) or action.help == argparse.SUPPRESS:
            continue
        several = action.metavar if isinstance(action.metavar, tuple) else ()
        name = " ".join(several) or action.metavar or "|".join(map(str, action.choices or ())) or action.dest
        value = "" if action.nargs == 0 else f"[{name}]" if action.nargs == "?" and action.option_strings else name
        flags = ", ".join(f"\\fB{_text(flag)}\\fR" for flag in action.option_strings)
        yield from (".TP", f"{flags} \\fI{_text(str(value))}\\fR".strip().removesuffix(" \\fI\\fR"))
        yield _text(parser._get_formatter()._expand_help(action) if action.help else "see above")


def _exit_codes() -> Iterator[tuple[str, str]]:
    for code in re.split(r", (?=\d)", EPILOG.removeprefix("exit codes: ")):
        number, _, meaning = code.partition(" ")
        yield number, meaning


def _table(rows: dict[str, str]) -> Iterator[str]:
    for name, meaning in rows.items():
        yield from (".TP", f"\\fB{_text(name)}\\fR", _text(meaning))


def _text(text: str) -> str:
    """Escape what groff would read as its own: backslashes, hyphens to be copied, a control character first."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\n", " ")
    return f"\\&{escaped}" if escaped[:1] in {".", "'"} else escaped


if __name__ == "__main__":
    PAGE.write_text(page())
