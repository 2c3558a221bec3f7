"""Patterns of arguments: the rule syntax of ``--approve`` (``shell_exec:git status *``), and matching against calls.

Which kind of pattern a tool has follows from its `Capabilities`: words of a command, hosts, or path globs.

`parse_rule` parses the output of `show_rule` back into the same pattern. `suggest_exact` and `suggest_rules` give what
the keys ``s`` and ``r`` of the dialog offer. They always match the call they were made from.

In path globs ``*`` and ``?`` stay within one folder, ``**`` crosses folders, and everything else is literal. A wildcard
does not match a name that starts with a dot, except in a rule that restricts: ``src/**`` should not silently permit
``src/.git/hooks``.

A pattern is matched in two directions, and one that permits never matches more than it says. `matches` answers an
*ask*: missing facts never match, and a trailing ``*`` stands for harmless words only. `covers` is for rules that
restrict, so it looks at every word, path and host.
"""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import assert_never

from chatops.domain.canonical import canonical
from chatops.domain.decisions import (
    ANY_ARGUMENTS,
    AnyArguments,
    ArgumentPattern,
    ArgvPattern,
    ExactArguments,
    HostPattern,
    PathPattern,
)
from chatops.domain.errors import ConfigError
from chatops.domain.tools import BUILT_IN, BUILT_IN_TOOLS, NO_CAPABILITIES, CallFacts, Capabilities, ToolSpec, tool_name
from chatops.shell.effects import Danger, effects
from chatops.shell.harmless import credential_word, harmless_tail, known_reader
from chatops.shell.program_effects import may_run_code
from chatops.shell.simple_command import bare_name, simple_words

__all__ = [
    "ToolCapabilities",
    "matches",
    "never_matches",
    "parse_rule",
    "pattern_from_list",
    "reread",
    "rule_text",
    "show_rule",
    "suggest_exact",
    "suggest_rules",
]

_MAX_WIDER = 4
"""Wider patterns that are offered: the narrowest and the widest ones."""

ToolCapabilities = Mapping[str, Capabilities]
"""The tools that a rule may be about, by name. A tool that is not listed has no capabilities."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?(?::[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](?::[0-9]{1,5})?"
)
_SAFE_WORD = re.compile(r"[A-Za-z0-9_./+%,:^@=-]+")
STAR = "*"


def parse_rule(text: str, *, tools: ToolCapabilities = BUILT_IN_TOOLS) -> tuple[str, ArgumentPattern]:
    """Return the tool and the pattern that `text` names.

    Raises ConfigError with advice on what to write instead.
    """
    tool, colon, argument = text.strip().partition(":")
    tool, argument = tool_name(tool.strip()), argument.strip()
    if not _TOOL_NAME.fullmatch(tool):
        raise _unreadable(text, "it has to start with the name of a tool")
    if not colon:
        return tool, ANY_ARGUMENTS
    if not argument:
        raise _unreadable(text, "nothing follows the colon")
    if argument.startswith("{"):
        return tool, _exact(text, argument)
    known = tools.get(tool, NO_CAPABILITIES)
    if known.command:
        return tool, _argv(text, argument)
    if known.code:
        raise _unreadable(text, "code has no pattern")
    if known.url:
        return tool, HostPattern(host=_checked_host(text, argument))
    return tool, PathPattern(glob=_checked_glob(text, argument))


def show_rule(tool: str, pattern: ArgumentPattern) -> str:
    """Return `tool` and `pattern` as they are written after ``--approve``."""
    match pattern:
        case AnyArguments():
            return tool
        case ExactArguments():
            return f"{tool}:{pattern.arguments}"
        case ArgvPattern():
            star = pattern.words[-1:] == (STAR,)
            words = [_quoted(word) for word in (pattern.words[:-1] if star else pattern.words)]
            return f"{tool}:{' '.join([*words, STAR] if star else words)}"
        case PathPattern():
            return f"{tool}:{pattern.glob}"
        case HostPattern():
            return f"{tool}:{pattern.host}"
        case _:
            assert_never(pattern)


def rule_text(tool: str, pattern: ArgumentPattern) -> str:
    """Return a rule for a dialog that shows the call: as `show_rule` does, but without JSON."""
    return f"exactly this call of {tool}" if isinstance(pattern, ExactArguments) else show_rule(tool, pattern)


def pattern_from_list(tool: str, match: tuple[str, ...]) -> ArgumentPattern:
    """Return the pattern of a role rule's ``match``.

    Several words for a tool that is not built in are the words of a command: they match nothing if it runs none.

    Raises ConfigError if it is not a pattern for `tool`.
    """
    if not match:
        return ANY_ARGUMENTS
    known = BUILT_IN_TOOLS.get(tool, NO_CAPABILITIES)
    if known.command or (tool not in BUILT_IN_TOOLS and len(match) > 1):
        if not bare_name(match[0]):
            raise ConfigError(
                f"The first word of match is {match[0]!r}, but a rule for {tool} has to name a program.",
                advice='Write the words of the command, e.g. ["git", "status", "*"].',
            )
        return ArgvPattern(words=match)
    if known.code or len(match) != 1:
        raise ConfigError(
            f"match of a rule for {tool} has to be one path glob or one host.",
            advice='Write e.g. "src/**" for files or "*.example.org" for the web.',
        )
    return parse_rule(f"{tool}:{match[0]}")[1]


def reread(tool: ToolSpec, pattern: ArgumentPattern) -> ArgumentPattern:
    """Return `pattern`, as read before anything was known of `tool`, as a pattern of the kind that the tool has.

    A registry is read before the tools of a program are known, and takes their patterns for path globs.

    Raises ConfigError if it is none of that kind.
    """
    known = tool.capabilities
    if not isinstance(pattern, PathPattern) or not (known.runs_anything or known.url):
        return pattern
    return parse_rule(f"{tool.name}:{pattern.glob}", tools={tool.name: known})[1]


def suggest_exact(tool: str, facts: CallFacts, *, tools: ToolCapabilities = BUILT_IN_TOOLS) -> ArgumentPattern:
    """Return what an approval "for the session" remembers: this command, file or host, and nothing wider."""
    if facts.argv:
        candidate: ArgumentPattern = ArgvPattern(words=facts.argv)
        usable = facts.argv[-1] != STAR and _only_command(facts)
    elif len(facts.paths) == 1 and not facts.command:
        candidate, usable = PathPattern(glob=facts.paths[0]), literal(facts.paths[0])
    elif facts.hosts and len(set(facts.hosts)) == 1 and not facts.command:
        candidate, usable = HostPattern(host=facts.hosts[0]), not facts.hosts[0].startswith(STAR)
    else:
        candidate, usable = ExactArguments(arguments=facts.arguments), True
    if usable and not tools.get(tool, NO_CAPABILITIES).code and matches(candidate, facts):
        return candidate
    return ExactArguments(arguments=facts.arguments)


def suggest_rules(tool: str, facts: CallFacts, *, tools: ToolCapabilities = BUILT_IN_TOOLS) -> list[ArgumentPattern]:
    """Return what the key ``r`` offers, from narrow to wide: this call, then patterns that leave more and more open.

    Each matches the call. Words are left open only for programs that are known to do no harm with them, never for one
    whose arguments can run other programs.
    """
    exact = suggest_exact(tool, facts, tools=tools)
    wider: list[ArgumentPattern] = []
    match exact:
        case ArgvPattern(words=words) if known := known_reader(words):
            opened = (ArgvPattern(words=(*words[:kept], STAR)) for kept in range(len(words), known - 1, -1))
            wider = list(opened) if matches(ArgvPattern(words=(*words[:known], STAR)), facts) else []
        case PathPattern():
            wider = _folders(facts)
        case ExactArguments() if tool in tools and not tools[tool].has_pattern:
            wider = [ANY_ARGUMENTS]
        case _:
            pass
    offered = [pattern for pattern in wider if matches(pattern, facts)]
    return [exact, *(offered if len(offered) <= _MAX_WIDER else (*offered[:1], *offered[1 - _MAX_WIDER :]))]


def never_matches(tool: ToolSpec | None, pattern: ArgumentPattern) -> str:
    """Return why no call of `tool` can match `pattern`; empty if one can, or if that is not known."""
    if not isinstance(pattern, PathPattern):
        return ""
    if tool is not None and tool.source == BUILT_IN and not tool.capabilities.path:
        return f"calls of {tool.name} name no file"
    if pattern.glob.endswith("/"):
        return f"no path ends with a slash; write {pattern.glob}**"
    if "//" in pattern.glob:
        return "no path has two slashes in a row"
    return ""


def _folders(facts: CallFacts) -> list[ArgumentPattern]:
    """Return globs around the file of a call: its kind in its folder, its folder, everything below that."""
    base = facts.workspace.rstrip("/") + "/"
    path = facts.paths[0]
    if len(base) < 2 or not path.startswith(base):
        return []
    folder, slash, name = path[len(base) :].rpartition("/")
    dot, suffix = name.rpartition(".")[1:]
    globs = [f"{folder}{slash}*{dot}{suffix}"] if dot and literal(suffix) else []
    globs += [f"{folder}/*", f"{folder}/**"] if folder else []
    return [PathPattern(glob=glob) for glob in globs if literal(folder)]


def _only_command(facts: CallFacts) -> bool:
    """Return True if the arguments consist of the command and at most a time limit."""
    try:
        arguments = json.loads(facts.arguments)
    except (ValueError, RecursionError):
        return False
    if not isinstance(arguments, dict):
        return False
    return {name for name, value in arguments.items() if value is not None} <= {"command", "timeout_s"}


def _argv(text: str, argument: str) -> ArgvPattern:
    star = argument == STAR or argument.endswith(f" {STAR}")
    words = simple_words(argument[:-1].rstrip() if star else argument)
    if not words:
        raise _unreadable(text, "the command has to be the words of one simple command")
    if not bare_name(words[0]):
        raise _unreadable(text, f"{words[0]!r} is a path, and a rule has to name a program")
    if not star and words[-1] == STAR:
        raise _unreadable(text, "a quoted * cannot be the last word")
    return ArgvPattern(words=(*words, STAR) if star else words)


def _exact(text: str, argument: str) -> ExactArguments:
    try:
        value = json.loads(argument)
        return ExactArguments(arguments=canonical(value))
    except (ValueError, RecursionError):
        raise _unreadable(text, "the arguments are not a JSON object") from None


def _checked_host(text: str, host: str) -> str:
    if not _HOST.fullmatch(host) or (host.startswith("*.") and "." not in host[2:].strip(".")):
        raise _unreadable(text, "a host is a name such as example.org or *.example.org")
    return host


def _checked_glob(text: str, glob: str) -> str:
    parts = glob.split("/")
    if ".." in parts or "." in parts or glob.startswith("~"):
        raise _unreadable(text, "a path glob has no . or .. parts and no ~")
    return glob


def _quoted(word: str) -> str:
    if _SAFE_WORD.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _unreadable(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"The rule {text!r} cannot be read: {why}.",
        advice="Write e.g. file_edit, 'file_edit:src/**', 'shell_exec:git status *' or web_fetch:example.org.",
    )


def matches(pattern: ArgumentPattern, facts: CallFacts) -> bool:
    """Return True if `pattern` matches a call with these facts. Missing facts never match."""
    match pattern:
        case AnyArguments():
            return True
        case ExactArguments():
            return facts.arguments == pattern.arguments
        case ArgvPattern():
            return _argv_fault(pattern.words, facts) == ""
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
            return any(_argv_covered(pattern.words, argv) for argv in (facts.argv, *_programs(facts)))
        case PathPattern():
            return any(path_matches(pattern.glob, path=path, base=facts.workspace, hidden=True) for path in facts.paths)
        case HostPattern():
            names = {name for host in facts.hosts for name in (host, _without_port(host))}
            return any(host_matches(pattern.host, host=name) for name in names)
        case AnyArguments() | ExactArguments():
            return matches(pattern, facts)
        case _:
            assert_never(pattern)


def _programs(facts: CallFacts) -> tuple[tuple[str, ...], ...]:
    """Return the words of each program in a shell command, so that ``true; rm x`` is known to run rm."""
    return effects(facts.command).argvs if facts.command and not facts.interpreter else ()


def undecided(pattern: ArgumentPattern, facts: CallFacts) -> bool:
    """Return True if a restricting rule cannot be checked: only the running shell knows all programs of the command."""
    return isinstance(pattern, ArgvPattern) and (not facts.argv or _hides_programs(facts))


def _hides_programs(facts: CallFacts) -> bool:
    if not facts.command or facts.interpreter:
        return False
    found = effects(facts.command)
    return bool(found.unclear) or any(
        warning.danger in (Danger.COMPUTED, Danger.RUNS_INPUT) for warning in found.warnings
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
    found = re.fullmatch(r"\[(.*)\](?::\d+)?|([^:]*):\d+", host)
    return host if found is None else found[1] or found[2]


def why_not_matched(pattern: ArgumentPattern, facts: CallFacts) -> str:
    """Return why `pattern` does not match a call whose words or path it names; empty if it does, or names others."""
    if isinstance(pattern, ArgvPattern):
        return _argv_fault(pattern.words, facts) or ""
    if isinstance(pattern, PathPattern) and facts.paths and not matches(pattern, facts) and covers(pattern, facts):
        return "a wildcard stands for no name that begins with a dot"
    return ""


def _argv_fault(words: tuple[str, ...], facts: CallFacts) -> str | None:
    """Return why these words do not answer for a command that begins with them; None if it does not begin so."""
    argv = facts.argv or simple_words(facts.command)
    star = words[-1:] == (STAR,)
    prefix = words[:-1] if star else words
    if not prefix or (argv[: len(prefix)] if star else argv) != prefix or not bare_name(argv[0]):
        return None
    if not facts.argv:
        return "its program is not found, or only a shell can run it"
    if facts.caution:
        # These words do more here than elsewhere.
        return facts.caution.removesuffix(".")
    if _elsewhere(facts):
        return "it names a folder to run in"
    # Words that only read say themselves what they read. Code of the folder reads what it likes.
    if facts.reveals and (star or may_run_code(argv, cwd=facts.cwd)):
        return facts.reveals.removesuffix(".")
    if star and not stays_inside(facts):
        return "it names files outside of its folder, or places of secrets"
    if star and not harmless_tail(prefix=prefix, tail=argv[len(prefix) :], cwd=facts.cwd):
        return f"the words after {' '.join(prefix)} may do harm, such as running or loading other files"
    return ""


def stays_inside(facts: CallFacts) -> bool:
    """Return True if every path of a command is in the folder that it runs in and names no place of secrets.

    Paths are known if the tool has resolved the words: a link may lead out of the folder, or to secrets.
    """
    below = facts.cwd.rstrip("/")
    if any(path != below and not path.startswith(f"{below}/") for path in facts.paths):
        return False
    return not any(credential_word(path[len(below) :]) for path in facts.paths)


def _elsewhere(facts: CallFacts) -> bool:
    """Return True if the call names a folder to run in, where the same words mean something else."""
    try:
        arguments = json.loads(facts.arguments)
    except (ValueError, RecursionError):
        return True
    return isinstance(arguments, dict) and arguments.get("cwd") not in (None, "", ".")


def _argv_covered(words: tuple[str, ...], argv: tuple[str, ...]) -> bool:
    if not argv or not words:
        return False
    program = (argv[0].rsplit("/", 1)[-1], *argv[1:])
    if words[-1] != STAR:
        return words in (argv, program)
    prefix = words[:-1]
    return prefix in (argv[: len(prefix)], program[: len(prefix)])


WILDCARDS = frozenset("*?")


def path_matches(glob: str, *, path: str, base: str, hidden: bool = False) -> bool:
    """Return True if the absolute, resolved `path` matches `glob` (absolute or relative to `base`)."""
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
    return _compiled(glob, hidden).fullmatch(path) is not None


@lru_cache(maxsize=256)
def _compiled(glob: str, hidden: bool) -> re.Pattern[str]:
    not_hidden = "" if hidden else r"(?!\.)"
    pieces: list[str] = []
    parts = glob.split("/")
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            pieces.append(f"(?:{not_hidden}[^/]+/)*" + (f"{not_hidden}[^/]+" if last else ""))
            continue
        guard = not_hidden if part[:1] in WILDCARDS else ""
        body = "".join("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in part)
        pieces.append(guard + body + ("" if last else "/"))
    return re.compile("".join(pieces), re.DOTALL)


def literal(path: str) -> bool:
    """Return True if `path` can be written as a glob that matches only itself."""
    return path == path.strip() and not any(char in WILDCARDS for char in path)
