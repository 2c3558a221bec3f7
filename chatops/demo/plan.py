"""The demo model's plans for a message with plain commands. No randomness, no clock.

`plan` returns the rounds of tool calls for a message. Several commands are joined by "and" (one round, in parallel) or
"then" (the next round).
"""

import re
from collections.abc import Iterator

from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.frozen_dataclass import frozen_dataclass

# Parts of the patterns below. `{0}` is the name of the argument; each group adds a letter for the way it was written:
# _b, _d and _s for backticks, double and single quotes, _w for one bare word, _r for the rest of the text.
_QUOTED = r"`(?P<{0}_b>[^`]+)`|\"(?P<{0}_d>[^\"]+)\"|'(?P<{0}_s>[^']+)'"
_ONE_WORD = r"(?P<{0}_w>[^\s`\"']+)"
_REST = r"(?P<{0}_r>\S.*?)"


def _target(name: str) -> str:
    """Return the pattern of one word, or of anything in quotes."""
    return f"(?:{_QUOTED.format(name)}|{_ONE_WORD.format(name)})"


def _text(name: str) -> str:
    """Return the pattern of text up to what follows it, or of anything in quotes."""
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
_USE_TOOL = re.compile(rf"use\s+(?P<tool>[\w-]+)\s+(?P<arguments>\{{.*\}}){_END}", _FLAGS)
"""Any tool by its name, with its arguments as JSON."""
_VERBS = "use|read|show|open|list|search|run|write|replace|fetch|remember"
_FIRST_VERB = re.compile(rf"(?<![\w./-])(?:{_VERBS})\b", re.IGNORECASE)
_SEPARATOR = re.compile(
    rf"(?P<joint>\s*,?\s*\b(?:and\s+then|then|and|after that)\b,?|\s*[;,&\n]|\s*[.!?](?=\s))"
    rf"\s+(?:(?:then|please|also|finally|next|now|afterwards)\s+)*(?={_VERBS}\b)",
    re.IGNORECASE,
)
_FILE = r"[\w./~-]*[./][\w./~-]*\w"
_FILE_WITHOUT_VERB = re.compile(
    rf"(?P<verb>read|show|open|list)\s+{_FILE}(?P<joint>\s*,(?:\s*and)?\s+|\s+and\s+)(?={_FILE}(?!\w))", re.IGNORECASE
)
"""A file, and another one after it without a verb."""
_QUOTED_SPAN = re.compile(r"`[^`]*`|\"[^\"]*\"|(?<!\w)'[^']*'(?!\w)")
_NOT_NAMES = frozenset("it them that me my you your about more an and all some what something anything for to".split())
_CLOSING_MARKS = " \t\r\n.,;:!?"
_MAX_MESSAGE = 20_000
"""Characters of a message that are searched for commands: the patterns take more than linear time."""


@frozen_dataclass
class Action:
    """One call that the demo model wants to make."""

    tool: str
    arguments: tuple[tuple[str, JsonValue], ...]


def plan(message: str) -> list[list[Action]]:
    """Return the rounds of calls for `message`; empty if it has no command that the demo knows."""
    rounds: list[list[Action]] = []
    for waits, segment in _segments(message[:_MAX_MESSAGE]):
        parsed = [_parse_command(command) for command in _per_file(segment)]
        actions = [action for action in parsed if action is not None]
        if (waits and actions) or not rounds:
            rounds.append([])
        rounds[-1] += actions
    return [actions for actions in rounds if actions]


def _per_file(segment: str) -> Iterator[str]:
    """Yield a command for each of its files: "read a.py, b.py" is "read a.py" and "read b.py"."""
    while listed := _FILE_WITHOUT_VERB.match(_mask_quotes(segment)):
        yield segment[: listed.start("joint")]
        segment = f"{listed['verb']} {segment[listed.end('joint') :]}"
    yield segment


def _mask_quotes(message: str) -> str:
    """Return `message` with what stands in quotes masked, so that no command is found there."""
    return _QUOTED_SPAN.sub(lambda span: "\0" * len(span.group()), message)


def _segments(message: str) -> Iterator[tuple[bool, str]]:
    """Yield commands, each with True if it waits for the ones before. Separators inside quotes are ignored."""
    masked = _mask_quotes(message)
    first = _FIRST_VERB.search(masked)
    if first is None:
        return
    waits, begin = False, first.start()
    for separator in _SEPARATOR.finditer(masked, begin):
        yield waits, message[begin : separator.start()]
        waits, begin = separator["joint"].strip(" \t,").lower() not in {"and", "", "&"}, separator.end()
    yield waits, message[begin:]


def _parse_command(segment: str) -> Action | None:
    segment = segment.strip()
    text = segment.rstrip(_CLOSING_MARKS)
    # "list ." and "read .." keep their dots, and so does "list src/.".
    if text.endswith(("/", " ")) or re.search(r"\s\.{1,2}$", segment):
        text = segment
    if used := _USE_TOOL.match(text):
        arguments = json_or_text(used["arguments"])
        return Action(tool=used["tool"], arguments=tuple(arguments.items())) if isinstance(arguments, dict) else None
    for tool, form in _FORMS:
        if match := form.match(text):
            return _fill_form(tool, match)
    return None


def _fill_form(tool: str, match: re.Match[str]) -> Action | None:
    values: dict[str, JsonValue] = {}
    for group, value in match.groupdict().items():
        if value is None:
            continue
        name, _, kind = group.rpartition("_")
        if kind == "w":
            # A bare word may end a sentence, and may be no name at all: "read it".
            value = value if set(value) <= {"."} else value.rstrip(",;:!?").removesuffix(".")
            if value.lower() in _NOT_NAMES:
                return Action(tool=tool, arguments=(("path", "."),)) if tool == "file_list" else None
        values[name] = value
    if tool == "file_list":
        values.setdefault("path", ".")
    if tool == "web_fetch" and "://" not in str(values["url"]):
        values["url"] = f"https://{values['url']}"
    return Action(tool=tool, arguments=tuple(values.items()))
