"""The demo model's plan for a message: rounds of tool calls, from plain commands. No randomness, no clock.

Several commands are joined by "and" (one round, in parallel) or "then" (the next round).
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from chatops.domain.canonical import JsonValue, json_or_text

_QUOTED = r"`(?P<{0}_b>[^`]+)`|\"(?P<{0}_d>[^\"]+)\"|'(?P<{0}_s>[^']+)'"
_WORD = r"(?P<{0}_w>[^\s`\"']+)"
_REST = r"(?P<{0}_r>\S.*?)"


def _target(name: str) -> str:
    return f"(?:{_QUOTED.format(name)}|{_WORD.format(name)})"


def _text(name: str) -> str:
    return f"(?:{_QUOTED.format(name)}|{_REST.format(name)})"


_FILLER = r"(?:(?:the|this|a|file|files|folder|directory|contents?|of|in|page|url|command)\s+)*"
_FLAGS = re.IGNORECASE | re.DOTALL
_END = r"\s*$"
_FORMS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "web_search",
        re.compile(rf"search\s+(?:the\s+)?(?:web|internet|online)\s+(?:for\s+)?{_text('query')}{_END}", _FLAGS),
    ),
    (
        "file_edit",
        re.compile(
            rf"replace\s+{_text('old')}\s+(?:with|by)\s+{_text('new')}\s+in\s+{_FILLER}{_target('path')}", _FLAGS
        ),
    ),
    ("file_write", re.compile(rf"write\s+{_text('content')}\s+(?:in)?to\s+{_FILLER}{_target('path')}", _FLAGS)),
    ("file_read", re.compile(rf"(?:read|show|open)\s+{_FILLER}{_target('path')}", _FLAGS)),
    ("file_list", re.compile(rf"list(?:\s+{_FILLER}{_target('path')})?", _FLAGS)),
    (
        "file_search",
        re.compile(
            rf"search\s+(?:for\s+)?{_text('pattern')}(?:\s+in\s+{_FILLER}{_target('path')})?{_END}",
            _FLAGS,
        ),
    ),
    ("shell_exec", re.compile(rf"run\s+{_FILLER}{_text('command')}{_END}", _FLAGS)),
    ("web_fetch", re.compile(rf"fetch\s+{_FILLER}{_target('url')}", _FLAGS)),
    ("memory_write", re.compile(rf"remember\s+(?:that\s+)?{_text('text')}{_END}", _FLAGS)),
)
_USE = re.compile(rf"use\s+(?P<tool>[\w-]+)\s+(?P<arguments>\{{.*\}}){_END}", _FLAGS)
"""Any tool by its name, with its arguments as JSON."""
_VERBS = "use|read|show|open|list|search|run|write|replace|fetch|remember"
_START = re.compile(rf"(?<![\w./-])(?:{_VERBS})\b", re.IGNORECASE)
_JOINT = re.compile(
    rf"(?P<joint>\s*,?\s*\b(?:and\s+then|then|and|after that)\b,?|\s*[;,&\n]|\s*[.!?](?=\s))"
    rf"\s+(?:(?:then|please|also|finally|next|now|afterwards)\s+)*(?={_VERBS}\b)",
    re.IGNORECASE,
)
_FILE = r"[\w./~-]*[./][\w./~-]*\w"
_LISTED = re.compile(
    rf"(?P<verb>read|show|open|list)\s+{_FILE}(?P<joint>\s*,(?:\s*and)?\s+|\s+and\s+)(?={_FILE}(?!\w))", re.IGNORECASE
)
"""A file, and another one after it without a verb."""
_SPAN = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_NOT_NAMES = frozenset("it them that me my you your about more an and all some what something anything for to".split())
_TRAILING = " \t\r\n.,;:!?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """One call that the demo model wants to make."""

    tool: str
    arguments: tuple[tuple[str, JsonValue], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoReply:
    """The demo's text, and its calls."""

    text: str
    calls: tuple[Action, ...] = ()


def plan(message: str) -> list[list[Action]]:
    """Return the rounds of calls for `message`; empty if it has no command that the demo knows."""
    rounds: list[list[Action]] = []
    for is_next, segment in _segments(message[:20_000]):
        actions = [action for one in _one_by_one(segment) if (action := _action(one)) is not None]
        if (is_next and actions) or not rounds:
            rounds.append([])
        rounds[-1] += actions
    return [actions for actions in rounds if actions]


def _one_by_one(segment: str) -> Iterator[str]:
    """Yield a command for each of its files: "read a.py, b.py" is "read a.py" and "read b.py"."""
    while found := _LISTED.match(_masked(segment)):
        yield segment[: found.start("joint")]
        segment = f"{found['verb']} {segment[found.end('joint') :]}"
    yield segment


def _masked(message: str) -> str:
    """Return `message` with what stands in quotes masked, so that no command is found there."""
    return _SPAN.sub(lambda span: "\0" * len(span.group()), message)


def _segments(message: str) -> Iterator[tuple[bool, str]]:
    """Yield commands, each with True if it waits for the ones before. Separators inside quotes are ignored."""
    masked = _masked(message)
    first = _START.search(masked)
    if first is None:
        return
    is_next, begin = False, first.start()
    for joint in _JOINT.finditer(masked, begin):
        yield is_next, message[begin : joint.start()]
        is_next, begin = _waits(joint["joint"]), joint.end()
    yield is_next, message[begin:]


def _waits(joint: str) -> bool:
    word = joint.strip(" \t,").lower()
    return word not in {"and", "", "&"}


def _action(segment: str) -> Action | None:
    segment = segment.strip()
    masked = segment.rstrip(_TRAILING) if not segment.rstrip(_TRAILING).endswith(("/", " ")) else segment
    # "list ." and "read .." keep their dots.
    text = segment if re.search(r"\s\.{1,2}$", segment) else masked
    used = _USE.match(text)
    if used is not None:
        given = json_or_text(used["arguments"])
        return Action(tool=used["tool"], arguments=tuple(given.items())) if isinstance(given, dict) else None
    for tool, form in _FORMS:
        match = form.match(text)
        if match is not None:
            return _with_values(tool, match)
    return None


def _with_values(tool: str, match: re.Match[str]) -> Action | None:
    values: dict[str, JsonValue] = {}
    for group, value in match.groupdict().items():
        if value is None:
            continue
        name, _, kind = group.rpartition("_")
        if kind == "w":
            value = value if set(value) <= {"."} else value.rstrip(",;:!?").removesuffix(".")
            if value.lower() in _NOT_NAMES:
                return Action(tool=tool, arguments=(("path", "."),)) if tool == "file_list" else None
        values[name] = value
    if tool == "file_list":
        values.setdefault("path", ".")
    if tool == "web_fetch" and "://" not in str(values["url"]):
        values["url"] = f"https://{values['url']}"
    return Action(tool=tool, arguments=tuple(values.items()))
