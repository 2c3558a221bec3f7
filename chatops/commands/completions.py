"""``chatops completions SHELL``: a completion script, which asks chatops for the words when the key is pressed.

``chatops completions SHELL chatops WORD…`` prints what may stand for the last word. The user's own ids and names
(calls, sessions, roles, workflows) are the first column of what the commands list. A shell expands what it completes
with, so only plain names are offered.
"""

import argparse
import io
import re
import sys
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress

from chatops.commands.argument_parser import Parser
from chatops.commands.parser import build_parser, handler
from chatops.domain.errors import ChatopsError
from chatops.headless.screen import screen

FILES, FOLDERS = "<files>", "<folders>"
"""Printed instead of words: the script then lets the shell complete names of files or folders."""
_PLAIN_NAME = re.compile(r"(?![A-Z]+$)[A-Za-z0-9][A-Za-z0-9._-]*")
"""A name that no shell expands. Words in capitals are left out: they are the headers of lists."""
_BASH = f"""# chatops completion for bash
_chatops() {{
  local word=${{COMP_WORDS[COMP_CWORD]}}
  local found=$(command chatops completions bash "${{COMP_WORDS[@]:0:COMP_CWORD+1}}" 2>/dev/null </dev/null)
  case $found in
    "{FILES}") COMPREPLY=($(compgen -f -- "$word"));;
    "{FOLDERS}") COMPREPLY=($(compgen -d -- "$word"));;
    *) COMPREPLY=($found);;
  esac
}}
complete -F _chatops chatops
"""
_ZSH = f"""#compdef chatops
_chatops() {{
  local -a found
  found=("${{(@f)$(command chatops completions zsh "${{(@Q)words[1,CURRENT]}}" 2>/dev/null </dev/null)}}")
  case $found[1] in
    "{FILES}") _files;;
    "{FOLDERS}") _files -/;;
    ?*) _describe chatops found;;
  esac
}}
if [[ $funcstack[1] == _chatops ]]; then _chatops "$@"; else compdef _chatops chatops; fi
"""
_FISH = f"""# chatops completion for fish
function __chatops
    set -l word (commandline -ct)
    set -l found (command chatops completions fish (commandline -opc) "$word" 2>/dev/null </dev/null)
    switch "$found[1]"
        case '{FILES}'
            __fish_complete_path "$word"
        case '{FOLDERS}'
            __fish_complete_directories "$word"
        case '*'
            printf '%s\\n' $found
    end
end
complete -c chatops -f -a '(__chatops)'
"""
_SCRIPTS = {
    "bash": (_BASH, 'Use it with: eval "$(chatops completions bash)"'),
    "zsh": (_ZSH, 'Use it with: eval "$(chatops completions zsh)" after compinit'),
    "fish": (_FISH, "Use it with: chatops completions fish > ~/.config/fish/completions/chatops.fish"),
}


def run(arguments: Namespace) -> int:
    """Print the script, and on stderr how to install it; or what may stand for the last of some words."""
    view = screen()
    if arguments.words:
        # bash shows no help texts.
        separator = {"bash": "", "zsh": ":", "fish": "\t"}[arguments.shell]
        for word, text in candidates(arguments.words[1:]):
            view.line(f"{word}{separator}{text}" if text and separator else word)
        return 0
    script, hint = _SCRIPTS[arguments.shell]
    view.line(script)
    if sys.stdout.isatty():
        view.say(hint)
    return 0


def candidates(words: Sequence[str]) -> list[tuple[str, str]]:
    """Return what may stand for the last word, each with its help text."""
    *before, last = words or [""]
    # The parser of the command that is typed, its words, and the option whose value comes next.
    parser, path, option = build_parser(), "", None
    for word in before:
        if option is not None:
            option = None
        elif word in parser._option_string_actions:
            action = parser._option_string_actions[word]
            option = None if action.nargs == 0 else action
        elif parser.actions is not None and word in parser.actions.choices:
            parser, path = parser.actions.choices[word], f"{path} {word}".lstrip()
    if option is not None:
        offered = _value_candidates(path, option)
    elif last.startswith("-"):
        offered = _flag_candidates(parser)
    else:
        offered = _argument_candidates(parser, path)
    return [(word, text) for word, text in offered if word in (FILES, FOLDERS) or word.startswith(last)]


def _visible_actions(parser: Parser) -> list[argparse.Action]:
    return [
        action for action in parser._actions if action.help is not argparse.SUPPRESS and action is not parser.actions
    ]


def _flag_candidates(parser: Parser) -> Iterator[tuple[str, str]]:
    for action in _visible_actions(parser):
        text = (action.help or "").replace("%(choices)s", ", ".join(map(str, action.choices or ())))
        yield from ((name, text) for name in action.option_strings)


def _argument_candidates(parser: Parser, path: str) -> Iterator[tuple[str, str]]:
    """Yield the commands and the values that may follow a command."""
    if parser.actions is not None:
        yield from ((choice.dest, choice.help or "") for choice in parser.actions._choices_actions)
    for action in _visible_actions(parser):
        if not action.option_strings:
            yield from _value_candidates(path, action)


def _value_candidates(path: str, action: argparse.Action) -> Iterator[tuple[str, str]]:
    """Yield the values that an option or argument of the command `path` may have."""
    # The one option that takes two words takes two files.
    metavar = "FILE" if isinstance(action.metavar, tuple) else str(action.metavar)
    if action.choices:
        yield from ((str(choice), "") for choice in action.choices)
    elif metavar in ("PATH", "FILE"):
        yield FILES, ""
    elif metavar == "DIR":
        yield FOLDERS, ""
    elif listing := _listed_by(path, metavar):
        yield from ((name, "") for name in _listed_names(listing))


def _listed_by(path: str, metavar: str) -> str:
    """Return the command that lists the values; empty if none does."""
    group = path.partition(" ")[0]
    match metavar:
        case "ID" if group in ("approvals", "policy", "workflow"):
            return f"{group} list"
        case "NAME" | "NAME-OR-ID" if group in ("workflow", "mcp") and path != "mcp add":
            return f"{group} list"
        case "SESSION" | "ROLE":
            return f"{metavar.lower()}s list"
        case "MODEL":
            return "models list --offline"
        case _:
            return ""


def _listed_names(listing: str) -> Iterator[str]:
    """Run a command of chatops and yield the names in the first column."""
    arguments = build_parser().parse_args(listing.split())
    output = io.StringIO()
    with redirect_stdout(output), redirect_stderr(io.StringIO()), suppress(ChatopsError):
        handler(arguments)(arguments)
    for line in output.getvalue().splitlines():
        name = line.partition(" ")[0]
        if _PLAIN_NAME.fullmatch(name):
            yield name
