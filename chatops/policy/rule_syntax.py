"""The syntax of rules, as in ``--approve`` (``shell_exec:git status *``), and the rules that a dialog offers.

Which kind of pattern a tool has follows from its `Capabilities`: words of a command, hosts, or path globs.

`parse_rule` parses the output of `show_rule` back into the same pattern. `suggest_exact` and `suggest_rules` give what
the keys ``s`` and ``r`` of the dialog offer. They always match the call they were made from.
"""

import json
import re
from collections.abc import Mapping
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
from chatops.policy.patterns import STAR, is_literal, matches
from chatops.shell.harmless import reader_word_count
from chatops.shell.simple_command import is_bare_name, simple_words

_MAX_WIDER = 4
"""Wider patterns that a dialog offers, which has a row for each: the narrowest one and the widest ones."""

ToolCapabilities = Mapping[str, Capabilities]
"""The tools that a rule may be about, by name. A tool that is not listed has no capabilities."""

_TOOL_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_HOST = re.compile(
    r"(?:\*\.)?[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?(?::[0-9]{1,5})?|\[[0-9a-fA-F:.]+\](?::[0-9]{1,5})?"
)
_SAFE_WORD = re.compile(r"[A-Za-z0-9_./+%,:^@=-]+")


def parse_rule(text: str, *, tools: ToolCapabilities = BUILT_IN_TOOLS) -> tuple[str, ArgumentPattern]:
    """Return the tool and the pattern that `text` names.

    Raises ConfigError with advice on what to write instead.
    """
    tool, colon, argument = text.strip().partition(":")
    tool, argument = tool_name(tool.strip()), argument.strip()
    if not _TOOL_NAME.fullmatch(tool):
        raise _unreadable_rule(text, "it has to start with the name of a tool")
    if not colon:
        return tool, ANY_ARGUMENTS
    if not argument:
        raise _unreadable_rule(text, "nothing follows the colon")
    if argument.startswith("{"):
        return tool, _parse_exact(text, argument)
    known = tools.get(tool, NO_CAPABILITIES)
    if known.command:
        return tool, _parse_argv(text, argument)
    if known.code:
        raise _unreadable_rule(text, "code has no pattern")
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
            has_star = pattern.words[-1:] == (STAR,)
            words = [_quote(word) for word in (pattern.words[:-1] if has_star else pattern.words)]
            return f"{tool}:{' '.join([*words, STAR] if has_star else words)}"
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
        if not is_bare_name(match[0]):
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
    """Return `pattern` as one of the kind that `tool` has. Raises ConfigError if it is none of that kind.

    A registry is read before the tools of a program are known, and takes their patterns for path globs.
    """
    known = tool.capabilities
    if isinstance(pattern, PathPattern) and (known.runs_anything or known.url):
        _, pattern = parse_rule(f"{tool.name}:{pattern.glob}", tools={tool.name: known})
    return pattern


def suggest_exact(tool: str, facts: CallFacts, *, tools: ToolCapabilities = BUILT_IN_TOOLS) -> ArgumentPattern:
    """Return what an approval "for the session" remembers: this command, file or host, and nothing wider."""
    if facts.argv:
        candidate: ArgumentPattern = ArgvPattern(words=facts.argv)
        usable = facts.argv[-1] != STAR and _only_command(facts)
    elif len(facts.paths) == 1 and not facts.command:
        candidate, usable = PathPattern(glob=facts.paths[0]), is_literal(facts.paths[0])
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
        case ArgvPattern(words=words) if fewest := reader_word_count(words):
            # From all words and a star to as few words as still name a program that only reads.
            prefixes = (words[:count] for count in range(len(words), fewest - 1, -1))
            if matches(ArgvPattern(words=(*words[:fewest], STAR)), facts):
                wider = [ArgvPattern(words=(*prefix, STAR)) for prefix in prefixes]
        case PathPattern():
            wider = _folder_globs(facts)
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


def _folder_globs(facts: CallFacts) -> list[ArgumentPattern]:
    """Return globs around the file of a call: its kind in its folder, its folder, everything below that."""
    base = facts.workspace.rstrip("/") + "/"
    path = facts.paths[0]
    if base == "/" or not path.startswith(base):
        return []
    folder, slash, name = path[len(base) :].rpartition("/")
    _, dot, suffix = name.rpartition(".")
    globs = [f"{folder}{slash}*{dot}{suffix}"] if dot and is_literal(suffix) else []
    globs += [f"{folder}/*", f"{folder}/**"] if folder else []
    return [PathPattern(glob=glob) for glob in globs if is_literal(folder)]


def _only_command(facts: CallFacts) -> bool:
    """Return True if the arguments consist of the command and at most a time limit."""
    try:
        arguments = json.loads(facts.arguments)
    except (ValueError, RecursionError):
        return False
    if not isinstance(arguments, dict):
        return False
    return {name for name, value in arguments.items() if value is not None} <= {"command", "timeout_s"}


def _parse_argv(text: str, argument: str) -> ArgvPattern:
    has_star = argument == STAR or argument.endswith(f" {STAR}")
    words = simple_words(argument[:-1].rstrip() if has_star else argument)
    if not words:
        raise _unreadable_rule(text, "the command has to be the words of one simple command")
    if not is_bare_name(words[0]):
        raise _unreadable_rule(text, f"{words[0]!r} is a path, and a rule has to name a program")
    if not has_star and words[-1] == STAR:
        raise _unreadable_rule(text, "a quoted * cannot be the last word")
    return ArgvPattern(words=(*words, STAR) if has_star else words)


def _parse_exact(text: str, argument: str) -> ExactArguments:
    try:
        value = json.loads(argument)
        return ExactArguments(arguments=canonical(value))
    except (ValueError, RecursionError):
        raise _unreadable_rule(text, "the arguments are not a JSON object") from None


def _checked_host(text: str, host: str) -> str:
    if not _HOST.fullmatch(host) or (host.startswith("*.") and "." not in host[2:].strip(".")):
        raise _unreadable_rule(text, "a host is a name such as example.org or *.example.org")
    return host


def _checked_glob(text: str, glob: str) -> str:
    parts = glob.split("/")
    if ".." in parts or "." in parts or glob.startswith("~"):
        raise _unreadable_rule(text, "a path glob has no . or .. parts and no ~")
    return glob


def _quote(word: str) -> str:
    if _SAFE_WORD.fullmatch(word):
        return word
    return "'" + word.replace("'", "'\"'\"'") + "'"


def _unreadable_rule(text: str, why: str) -> ConfigError:
    return ConfigError(
        f"The rule {text!r} cannot be read: {why}.",
        advice="Write e.g. file_edit, 'file_edit:src/**', 'shell_exec:git status *' or web_fetch:example.org.",
    )
