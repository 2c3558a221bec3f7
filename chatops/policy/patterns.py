"""Match patterns of arguments against calls.

In path globs ``*`` and ``?`` stay within one folder, ``**`` crosses folders, and everything else is literal. A wildcard
does not match a name that starts with a dot, except in a rule that restricts: ``src/**`` should not silently permit
``src/.git/hooks``.

A pattern is matched in two directions, and one that permits never matches more than it says. `matches` answers an
*ask*: missing facts never match, and a trailing ``*`` stands for harmless words only. `covers` is for rules that
restrict, so it looks at every word, path and host.
"""

import json
import re
from functools import lru_cache
from typing import assert_never

from chatops.domain.decisions import (
    AnyArguments,
    ArgumentPattern,
    ArgvPattern,
    ExactArguments,
    HostPattern,
    PathPattern,
)
from chatops.domain.tools import CallFacts
from chatops.shell.effects import Danger, effects
from chatops.shell.harmless import harmless_tail, is_credential_word
from chatops.shell.program_effects import may_run_code
from chatops.shell.simple_command import is_bare_name, simple_words

STAR = "*"
"""As the last word of a pattern: any further words."""
WILDCARDS = frozenset("*?")


def matches(pattern: ArgumentPattern, facts: CallFacts) -> bool:
    """Return True if `pattern` matches a call with these facts. Missing facts never match."""
    match pattern:
        case AnyArguments():
            return True
        case ExactArguments():
            return facts.arguments == pattern.arguments
        case ArgvPattern():
            return _has_words(pattern.words, facts) and not _why_argv_not_matched(pattern.words, facts)
        case PathPattern():
            return bool(facts.paths) and all(
                path_matches(pattern.glob, path=path, base=facts.workspace) for path in facts.paths
            )
        case HostPattern():
            return bool(facts.hosts) and all(host_matches(pattern.host, host=host) for host in facts.hosts)
        case _:
            assert_never(pattern)


def covers(pattern: ArgumentPattern, facts: CallFacts) -> bool:
    """Return True if a restricting rule with `pattern` applies to this call: any path, any host, any further words."""
    match pattern:
        case ArgvPattern():
            return any(_covers_argv(pattern.words, argv) for argv in (facts.argv, *_program_argvs(facts)))
        case PathPattern():
            return any(path_matches(pattern.glob, path=path, base=facts.workspace, hidden=True) for path in facts.paths)
        case HostPattern():
            names = {name for host in facts.hosts for name in (host, _without_port(host))}
            return any(host_matches(pattern.host, host=name) for name in names)
        case AnyArguments() | ExactArguments():
            return matches(pattern, facts)
        case _:
            assert_never(pattern)


def _program_argvs(facts: CallFacts) -> tuple[tuple[str, ...], ...]:
    """Return the words of each program in a shell command, so that ``true; rm x`` is known to run rm."""
    return effects(facts.command).argvs if facts.command and not facts.interpreter else ()


def cannot_be_checked(pattern: ArgumentPattern, facts: CallFacts) -> bool:
    """Return True if a restricting rule cannot be checked: only the running shell knows all programs of the command."""
    return isinstance(pattern, ArgvPattern) and (not facts.argv or _hides_programs(facts))


def _hides_programs(facts: CallFacts) -> bool:
    if not facts.command or facts.interpreter:
        return False
    command = effects(facts.command)
    return bool(command.unclear) or any(
        warning.danger in (Danger.COMPUTED, Danger.RUNS_INPUT) for warning in command.warnings
    )


def host_matches(pattern: str, *, host: str) -> bool:
    """Return True for equal names, or a true sub-domain of ``*.x.y``.

    Case and one trailing dot do not count; a port does.
    """
    wanted, given = pattern.casefold().removesuffix("."), host.casefold().removesuffix(".")
    if wanted.startswith("*."):
        return given.endswith(wanted[1:]) and len(given) > len(wanted) - 1
    return bool(wanted) and wanted == given


def _without_port(host: str) -> str:
    """Return the name in ``name:port`` or ``[address]:port``: a restricting rule without a port means every port."""
    found = re.fullmatch(r"\[(?P<address>.*)\](?::\d+)?|(?P<name>[^:]*):\d+", host)
    return host if found is None else found["address"] or found["name"]


def why_not_matched(pattern: ArgumentPattern, facts: CallFacts) -> str:
    """Return why `pattern` does not match a call whose words or path it names; empty if it does, or names others."""
    if isinstance(pattern, ArgvPattern):
        return _why_argv_not_matched(pattern.words, facts) if _has_words(pattern.words, facts) else ""
    if isinstance(pattern, PathPattern) and facts.paths and not matches(pattern, facts) and covers(pattern, facts):
        return "a wildcard stands for no name that begins with a dot"
    return ""


def _has_words(words: tuple[str, ...], facts: CallFacts) -> bool:
    """Return True if the words of a command are `words`, or begin with those before the star at their end."""
    argv = facts.argv or simple_words(facts.command)
    has_star = words[-1:] == (STAR,)
    prefix = words[:-1] if has_star else words
    compared = argv[: len(prefix)] if has_star else argv
    return bool(prefix) and compared == prefix and is_bare_name(argv[0])


def _why_argv_not_matched(words: tuple[str, ...], facts: CallFacts) -> str:
    """Return why a pattern of these words does not match a command that has them; empty if it does."""
    if not facts.argv:
        return "its program is not found, or only a shell can run it"
    if facts.caution:
        # These words do more here than elsewhere.
        return facts.caution.removesuffix(".")
    if _names_a_folder(facts):
        return "it names a folder to run in"
    has_star = words[-1] == STAR
    # A command that only reads names what it reads. Code of the folder reads what it likes.
    if facts.reveals and (has_star or may_run_code(facts.argv, cwd=facts.cwd)):
        return facts.reveals.removesuffix(".")
    if not has_star:
        return ""
    if not stays_inside(facts):
        return "it names files outside of its folder, or places of secrets"
    prefix = words[:-1]
    if not harmless_tail(prefix=prefix, tail=facts.argv[len(prefix) :], cwd=facts.cwd):
        return f"the words after {' '.join(prefix)} may do harm, such as running or loading other files"
    return ""


def stays_inside(facts: CallFacts) -> bool:
    """Return True if every path of a command is in the folder that it runs in and names no place of secrets.

    Paths are known if the tool has resolved the words: a link may lead out of the folder, or to secrets.
    """
    below = facts.cwd.rstrip("/")
    if any(path != below and not path.startswith(f"{below}/") for path in facts.paths):
        return False
    return not any(is_credential_word(path[len(below) :]) for path in facts.paths)


def _names_a_folder(facts: CallFacts) -> bool:
    """Return True if the call names a folder to run in, where the same words mean something else."""
    try:
        arguments = json.loads(facts.arguments)
    except (ValueError, RecursionError):
        return True
    return isinstance(arguments, dict) and arguments.get("cwd") not in (None, "", ".")


def _covers_argv(words: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    if not argv or not words:
        return False
    program = (argv[0].rsplit("/", 1)[-1], *argv[1:])
    if words[-1] != STAR:
        return words in (argv, program)
    prefix = words[:-1]
    return prefix in (argv[: len(prefix)], program[: len(prefix)])


def path_matches(glob: str, *, path: str, base: str, hidden: bool = False) -> bool:
    """Return True if the absolute, resolved `path` matches `glob` (absolute or relative to `base`).

    With `hidden`, wildcards also match names that start with a dot.
    """
    if not glob or not path.startswith("/"):
        return False
    if not glob.startswith("/"):
        if not base.startswith("/"):
            return False
        folder = base.rstrip("/") + "/"
        if not path.startswith(folder):
            return False
        path = path[len(folder) :]
    parts = glob.split("/")
    if ".." in parts or "." in parts or ".." in path.split("/"):
        return False
    return _glob_pattern(glob, hidden).fullmatch(path) is not None


@lru_cache(maxsize=256)
def _glob_pattern(glob: str, hidden: bool) -> re.Pattern[str]:
    """Return the expression for a glob. Not `fnmatch`, whose ``*`` crosses folders."""
    not_hidden = "" if hidden else r"(?!\.)"
    pieces: list[str] = []
    parts = glob.split("/")
    for index, part in enumerate(parts):
        is_last = index == len(parts) - 1
        if part == "**":
            pieces.append(f"(?:{not_hidden}[^/]+/)*" + (f"{not_hidden}[^/]+" if is_last else ""))
            continue
        guard = not_hidden if part[:1] in WILDCARDS else ""
        body = "".join("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in part)
        pieces.append(guard + body + ("" if is_last else "/"))
    return re.compile("".join(pieces), re.DOTALL)


def is_literal(path: str) -> bool:
    """Return True if `path` can be written as a glob that matches only itself."""
    return path == path.strip() and not any(char in WILDCARDS for char in path)
