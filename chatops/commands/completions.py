"""``chatops completions SHELL``: a completion script, generated from the parser's commands and flags.

The user's own ids and names (calls, sessions, roles, workflows) are looked up when the key is pressed: they are the
first column of what the program lists. A shell expands what it completes with, so only plain names are offered.
"""

import argparse
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from chatops.commands.parser import build_parser
from chatops.headless.screen import Screen

_FIRST_COLUMN = r"awk '$1 ~ /^[A-Za-z0-9][A-Za-z0-9._-]*$/ && $1 !~ /^[A-Z]+$/ {print $1}'"
"""Skips the headers, which are in capitals."""


Takes = Literal["nothing", "word", "file", "folder"]
"""Kind of word that follows a flag; nothing follows a switch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An option and what may follow it."""

    names: tuple[str, ...]
    choices: tuple[str, ...]
    takes: Takes
    listed_by: str
    """The command that lists what may follow; empty if none does."""
    help: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandNode:
    """A command path such as ``("approvals", "show")`` and what may follow it."""

    path: tuple[str, ...]
    commands: tuple[tuple[str, str], ...]
    flags: tuple[Flag, ...]
    values: tuple[str, ...]
    """Fixed words for its positional argument."""
    listed_by: str
    """The command that lists what its positional argument may be; empty if none does."""
    takes_folder: bool
    """True if its positional argument is a folder."""


def run(arguments: Namespace) -> int:
    """Print the script, and on stderr how to install it."""
    writers = {"bash": bash, "zsh": zsh, "fish": fish}
    hints = {
        "bash": 'Use it with: eval "$(chatops completions bash)"',
        "zsh": 'Use it with: eval "$(chatops completions zsh)" after compinit',
        "fish": "Use it with: chatops completions fish > ~/.config/fish/completions/chatops.fish",
    }
    view = Screen(out=sys.stdout, err=sys.stderr)
    view.line(writers[arguments.shell](nodes()))
    if sys.stdout.isatty():
        view.say(hints[arguments.shell])
    return 0


def nodes() -> list[CommandNode]:
    """Return all command paths, outermost first."""
    found: list[CommandNode] = []
    _walk(build_parser(), (), found)
    return found


def bash(tree: Sequence[CommandNode]) -> str:
    """Return a function for ``complete -F``, which finds the command path and offers what fits there."""
    cases = "\n".join(_bash_case(node) for node in tree)
    folders, files = _flags_that_take("folder", tree), _flags_that_take("file", tree)
    words = _after_flags(tree, 'COMPREPLY=($(compgen -W "{words}" -- "$cur"))')
    paths = " ".join(f'"{" ".join(node.path)}"' for node in tree if node.path)
    return f"""# chatops completion for bash
_chatops_names() {{ command chatops "$@" 2>/dev/null </dev/null | {_FIRST_COLUMN}; }}
_chatops() {{
  local cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}} at="" word known i
  COMPREPLY=()
  case $prev in
    {folders}) COMPREPLY=($(compgen -d -- "$cur")); return;;
    {files}) COMPREPLY=($(compgen -f -- "$cur")); return;;
  esac
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    for known in {paths}; do
      if [[ "${{at:+$at }}$word" == "$known" ]]; then at=$known; break; fi
    done
  done
  case "$at $prev" in
{words}
  esac
  case $at in
{cases}
  esac
}}
complete -F _chatops chatops
"""


def zsh(tree: Sequence[CommandNode]) -> str:
    """Return a function for ``compdef``: like the one for bash, with help texts for commands and flags."""
    cases = "\n".join(_zsh_case(node) for node in tree)
    folders, files = _flags_that_take("folder", tree), _flags_that_take("file", tree)
    words = _after_flags(tree, "names=({words}); compadd -a names")
    paths = " ".join(f'"{" ".join(node.path)}"' for node in tree if node.path)
    return f"""#compdef chatops
_chatops_names() {{ command chatops "$@" 2>/dev/null </dev/null | {_FIRST_COLUMN} }}
_chatops() {{
  local at="" known previous=${{words[CURRENT-1]}}
  local -i i
  local -a commands flags names
  case $previous in
    {folders}) _files -/; return;;
    {files}) _files; return;;
  esac
  for ((i = 2; i < CURRENT; i++)); do
    for known in {paths}; do
      if [[ "${{at:+$at }}${{words[i]}}" == "$known" ]]; then at=$known; break; fi
    done
  done
  case "$at $previous" in
{words}
  esac
  case $at in
{cases}
  esac
  if [[ $PREFIX == -* ]]; then
    _describe -t options option flags
  else
    _describe -t commands command commands
    compadd -a names
  fi
}}
if [[ $funcstack[1] == _chatops ]]; then _chatops "$@"; else compdef _chatops chatops; fi
"""


def fish(tree: Sequence[CommandNode]) -> str:
    """Return one ``complete`` line per word and flag, conditional on the command path."""
    asking = f"function __chatops_names; command chatops $argv 2>/dev/null </dev/null | {_FIRST_COLUMN}; end"
    lines = ["# chatops completion for fish", asking, "complete -c chatops -f"]
    tops = " ".join(name for name, _ in tree[0].commands)
    for node in tree:
        condition = _fish_condition(node, tops)
        for name, text in node.commands:
            lines.append(f"complete -c chatops {condition} -a {name} -d {_quoted(text)}")
        lines += [f"complete -c chatops {condition} -a {value}" for value in node.values]
        if node.listed_by:
            lines.append(f"complete -c chatops {condition} -a '(__chatops_names {node.listed_by})'")
        if node.takes_folder:
            lines.append(f"complete -c chatops {condition} -a '(__fish_complete_directories)'")
        lines += [f"complete -c chatops {condition} {_fish_flag(flag)}" for flag in node.flags]
    return "\n".join(lines) + "\n"


def _flags_that_take(what: Takes, tree: Sequence[CommandNode]) -> str:
    """Return all flags that take a file or a folder, as a pattern of ``case``."""
    return "|".join(sorted({name for node in tree for f in node.flags if f.takes == what for name in f.names}))


def _after_flags(tree: Sequence[CommandNode], offer: str) -> str:
    """Return the branches of ``case`` that offer words after a flag, by the shell code `offer`.

    They name the command too: other commands may give the flag other values.
    """
    found: list[str] = []
    for node in tree:
        for flag in node.flags:
            if flag.takes == "word":
                after = "|".join(f'"{" ".join(node.path)} {name}"' for name in flag.names)
                words = f"$(_chatops_names {flag.listed_by})" if flag.listed_by else " ".join(flag.choices)
                found.append(f"    {after}) {offer.format(words=words)}; return;;")
    return "\n".join(found)


def _bash_case(node: CommandNode) -> str:
    words = [name for name, _ in node.commands] + [name for f in node.flags for name in f.names] + list(node.values)
    words += [f"$(_chatops_names {node.listed_by})"] if node.listed_by else []
    folders = "-d " if node.takes_folder else ""
    return f'    "{" ".join(node.path)}") COMPREPLY=($(compgen {folders}-W "{" ".join(words)}" -- "$cur"));;'


def _zsh_case(node: CommandNode) -> str:
    commands = " ".join(_zsh_entry(name, text) for name, text in node.commands)
    flags = " ".join(_zsh_entry(name, flag.help) for flag in node.flags for name in flag.names)
    names = " ".join([*node.values, *([f"$(_chatops_names {node.listed_by})"] if node.listed_by else [])])
    folders = "; _files -/" if node.takes_folder else ""
    return f'    "{" ".join(node.path)}") commands=({commands}) flags=({flags}) names=({names}){folders};;'


def _zsh_entry(name: str, text: str) -> str:
    """Return a word of an array of name:description, for single quotes in zsh."""
    entry = f"{name}:{text}" if text else name
    return "'" + entry.replace("'", "'\\''") + "'"


def _fish_condition(node: CommandNode, tops: str) -> str:
    if not node.path:
        return f"-n 'not __fish_seen_subcommand_from {tops}'"
    seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in node.path)
    if node.commands:
        seen += f"; and not __fish_seen_subcommand_from {' '.join(name for name, _ in node.commands)}"
    return f"-n '{seen}'"


def _fish_flag(flag: Flag) -> str:
    parts = [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names]
    if flag.choices:
        parts.append(f"-x -a {_quoted(' '.join(flag.choices))}")
    elif flag.listed_by:
        parts.append(f"-x -a '(__chatops_names {flag.listed_by})'")
    elif flag.takes in ("file", "folder"):
        parts.append("-r -F")
    elif flag.takes == "word":
        parts.append("-x")
    return " ".join([*parts, f"-d {_quoted(flag.help)}"])


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def _walk(parser: argparse.ArgumentParser, path: tuple[str, ...], found: list[CommandNode]) -> None:
    nested = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    children = [(name, child) for action in nested for name, child in action.choices.items()]
    texts = {pseudo.dest: pseudo.help or "" for action in nested for pseudo in action._choices_actions}
    plain = [action for action in parser._actions if action not in nested and action.help is not argparse.SUPPRESS]
    values = [str(c) for action in plain if not action.option_strings for c in action.choices or ()]
    listed = [_listed_by(path, str(action.metavar)) for action in plain if not action.option_strings]
    found.append(
        CommandNode(
            path=path,
            commands=tuple((name, texts.get(name, "")) for name, _ in children),
            flags=tuple(_flag(path, action) for action in plain if action.option_strings),
            values=tuple(values),
            listed_by=listed[0] if listed else "",
            takes_folder=any(action.metavar == "DIR" for action in plain if not action.option_strings),
        )
    )
    for name, child in children:
        _walk(child, (*path, name), found)


def _listed_by(path: tuple[str, ...], metavar: str) -> str:
    match path, metavar:
        case ("approvals", _), "ID":
            return "approvals list"
        case ("policy", _), "ID":
            return "policy list"
        case ("workflow", _), "ID" | "NAME" | "NAME-OR-ID":
            return "workflow list"
        case ("mcp", "remove" | "check" | "login"), "NAME":
            return "mcp list"
        case _, "SESSION":
            return "sessions list"
        case _, "ROLE":
            return "roles list"
        case _, "MODEL":
            return "models list --offline"
        case _:
            return ""


def _flag(path: tuple[str, ...], action: argparse.Action) -> Flag:
    metavar = str(action.metavar)
    takes: Takes = "folder" if metavar == "DIR" else "file" if metavar in ("PATH", "FILE") else "word"
    choices = tuple(str(choice) for choice in action.choices or ())
    text = (action.help or "").replace("%(choices)s", ", ".join(choices))
    listed = _listed_by(path, metavar)
    return Flag(
        names=tuple(action.option_strings),
        choices=choices,
        takes="nothing" if action.nargs == 0 else takes,
        listed_by=listed,
        help=text,
    )
