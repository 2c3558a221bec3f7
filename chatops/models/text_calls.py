"""Read the calls of a reply that are in its text, with `chatops.dialects`.

Text that is certain is passed on at once. A possible call is held back until it is read.
"""

import json
from collections.abc import Mapping
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING

from chatops.dialects import Confidence, Diagnostic, DiagnosticKind, ReadCall, Reading, Schema, Segment
from chatops.dialects.families import Family
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ALIASES, RawCall, ToolSpec
from chatops.models.calls import LONGEST_NAME
from chatops.models.wire import scrub

if TYPE_CHECKING:
    from chatops.dialects.reader import CallReader

UNSURE = "it may have been meant as an example and not as a call"
"""Sentence for the user about a call with low confidence; such a call always asks."""


@frozen_dataclass
class TextTools:
    """The tools that the text of a reply may call: schemas by name, and a model's other names for them."""

    tools: Mapping[str, Schema] | None = None
    """With None, nothing in the text is a call, and only thought is separated from prose."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    may_call: bool = True
    """If False, calls are dropped: the model was told not to make any."""


NO_TEXT_TOOLS = TextTools()


class TextToolsBuilder:
    """Builder of the `TextTools` of one model. It caches parsed schemas between requests."""

    def __init__(self, family: Family) -> None:
        self._aliases = {**ALIASES, **family.aliases}
        self._specs: tuple[ToolSpec, ...] = ()
        self._tools: Mapping[str, Schema] = {}

    def of(self, specs: tuple[ToolSpec, ...], *, may_call: bool) -> TextTools:
        """Return these tools as `TextTools`; without tools, no calls are read."""
        if not specs:
            return NO_TEXT_TOOLS
        if specs != self._specs:
            self._specs, self._tools = specs, {spec.name: _parse_schema(spec.schema) for spec in specs}
        return TextTools(tools=self._tools, aliases=self._aliases, may_call=may_call)


@frozen_dataclass
class TextEnd:
    """The end of a text: its last segments and calls, and its whole prose if that differs from what was passed on."""

    segments: list[Segment]
    calls: tuple[RawCall, ...] = ()
    format: str = ""
    """Format of the first call that can be run; empty without any."""
    prose: str | None = None


class TextReader:
    """Reader of the text of one reply."""

    def __init__(self, text_tools: TextTools) -> None:
        self._text_tools = text_tools
        self._raw: list[str] = []
        """All of the text, in the pieces in which it came; empty if the text may call no tool."""

    @cached_property
    def _reader(self) -> "CallReader":
        # Slow to import, and not needed before a reply arrives.
        from chatops.dialects.reader import CallReader

        return CallReader(self._text_tools.tools, aliases=self._text_tools.aliases)

    def feed(self, text: str) -> list[Segment]:
        """Return the segments that are certain by now."""
        if not text:
            return []
        if self._text_tools.tools is not None:
            self._raw.append(text)
        return self._reader.feed(text)

    def close(self, *, finish_reason: str, called_natively: bool) -> TextEnd:
        """Return the end of the text. After native calls, all of the text is prose, whatever it looks like."""
        segments, reading = self._reader.close(finish_reason)
        if not reading.calls and not reading.diagnostics:
            return TextEnd(segments=segments)
        if called_natively:
            # Without tools, such a reader finds no calls. Its class is not imported at the top.
            reader_of_prose = type(self._reader)(None)
            reader_of_prose.feed("".join(self._raw))
            return TextEnd(segments=segments, prose=reader_of_prose.close(finish_reason)[1].content)
        if not self._text_tools.may_call:
            return TextEnd(segments=segments)
        return TextEnd(
            segments=segments, calls=_raw_calls(reading), format=reading.calls[0].format if reading.calls else ""
        )


def _raw_calls(reading: Reading) -> tuple[RawCall, ...]:
    """Return everything meant as a call, in the order of the text: calls to run, and calls to answer with an error."""
    found: list[ReadCall | Diagnostic] = sorted((*reading.calls, *reading.diagnostics), key=lambda item: item.start)
    return tuple(_read_call(item) if isinstance(item, ReadCall) else _broken_call(item) for item in found)


def _read_call(read: ReadCall) -> RawCall:
    repairs = tuple(str(repair) for repair in read.repairs)
    if read.confidence is not Confidence.HIGH:
        repairs = (*repairs, UNSURE)
    return RawCall(name=read.name, arguments=scrub(read.arguments), repairs=repairs)


def _broken_call(diagnostic: Diagnostic) -> RawCall:
    return RawCall(
        name=scrub(diagnostic.name)[:LONGEST_NAME],
        arguments=scrub(_arguments_in(diagnostic.excerpt)),
        problem=f"it {scrub(diagnostic.message)}",
        guessed=diagnostic.kind is DiagnosticKind.MISSED,
    )


def _arguments_in(excerpt: str) -> str:
    """Return the arguments if `excerpt` begins with a complete call in JSON, otherwise all of it.

    The model sees its call again under the name that it gave. If the arguments were the whole object, it would see, and
    imitate, a call inside a call.
    """
    from chatops.dialects.formats.json_objects import ARGUMENT_KEYS  # loaded with the reader of calls

    try:
        value, _ = json.JSONDecoder().raw_decode(excerpt)
    except (ValueError, RecursionError):
        return excerpt
    if not isinstance(value, dict):
        return excerpt
    given = (value[key] for key in ARGUMENT_KEYS if isinstance(value.get(key), dict))
    return next((json.dumps(arguments, ensure_ascii=False) for arguments in given), excerpt)


def _parse_schema(text: str) -> Schema:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
