"""Calls that a model writes as text: certain text is passed on at once, a possible call is held back and read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from chatops.dialects import CallReader, Confidence, Diagnostic, DiagnosticKind, Piece, ReadCall, Reading, Schema
from chatops.dialects.families import Family
from chatops.dialects.formats.json_objects import ARGUMENT_KEYS
from chatops.domain.tools import ALIASES, RawCall, ToolSpec
from chatops.models.calls import NAME_LIMIT
from chatops.models.wire import scrub

UNSURE = "it may have been meant as an example and not as a call"
"""Sentence for the user about a call with low confidence; such a call always asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """The tools that the text of a reply may call: schemas by name, and a model's other names for them."""

    tools: Mapping[str, Schema] | None = None
    """With None, nothing in the text is a call, and only thought is separated from prose."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    may_call: bool = True
    """If False, calls are dropped: the model was told not to make any."""


NO_OFFER = Offer()


class OfferMaker:
    """Maker of offers for one model. It caches parsed schemas between requests."""

    def __init__(self, family: Family) -> None:
        self._aliases = {**ALIASES, **family.aliases}
        self._specs: tuple[ToolSpec, ...] = ()
        self._tools: Mapping[str, Schema] = {}

    def of(self, specs: tuple[ToolSpec, ...], *, may_call: bool) -> Offer:
        """Return the offer of these tools; without tools, no calls are read."""
        if not specs:
            return NO_OFFER
        if specs != self._specs:
            self._specs, self._tools = specs, {spec.name: _schema(spec.schema) for spec in specs}
        return Offer(tools=self._tools, aliases=self._aliases, may_call=may_call)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnd:
    """The end of a text: its last pieces and calls, and its whole prose if that differs from what was passed on."""

    pieces: list[Piece]
    calls: tuple[RawCall, ...] = ()
    format: str = ""
    """Format of the first call that can be run; empty without any."""
    prose: str | None = None


class TextReader:
    """Reader of the text of one reply."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._reader = CallReader(offer.tools, aliases=offer.aliases)
        self._raw: list[str] = []

    def feed(self, text: str) -> list[Piece]:
        """Return the pieces that are certain by now."""
        if not text:
            return []
        if self._offer.tools is not None:
            self._raw.append(text)
        return self._reader.feed(text)

    def close(self, *, finish_reason: str, called_natively: bool) -> TextEnd:
        """Return the end of the text. After native calls, all of the text is prose, whatever it looks like."""
        pieces, reading = self._reader.close(finish_reason)
        if not reading.calls and not reading.diagnostics:
            return TextEnd(pieces=pieces)
        if called_natively:
            plain = CallReader(None)
            plain.feed("".join(self._raw))
            return TextEnd(pieces=pieces, prose=plain.close(finish_reason)[1].content)
        if not self._offer.may_call:
            return TextEnd(pieces=pieces)
        return TextEnd(pieces=pieces, calls=_calls(reading), format=reading.calls[0].format if reading.calls else "")


def _calls(reading: Reading) -> tuple[RawCall, ...]:
    """Return everything meant as a call, in the order of the text: calls to run, and calls to answer with an error."""
    found: list[ReadCall | Diagnostic] = [*reading.calls, *reading.diagnostics]
    found.sort(key=lambda one: one.start)
    return tuple(_call(one) if isinstance(one, ReadCall) else _broken(one) for one in found)


def _call(read: ReadCall) -> RawCall:
    repairs = tuple(str(repair) for repair in read.repairs)
    if read.confidence is not Confidence.HIGH:
        repairs = (*repairs, UNSURE)
    return RawCall(name=read.name, arguments=scrub(read.arguments), repairs=repairs)


def _broken(diagnostic: Diagnostic) -> RawCall:
    return RawCall(
        name=scrub(diagnostic.name)[:NAME_LIMIT],
        arguments=scrub(_arguments_in(diagnostic.excerpt)),
        problem=f"it {scrub(diagnostic.message)}",
        guessed=diagnostic.kind is DiagnosticKind.MISSED,
    )


def _arguments_in(excerpt: str) -> str:
    """Return the arguments if `excerpt` begins with a complete call in JSON, otherwise all of it.

    The model sees its call again under the name that it gave. If the arguments were the whole object, it would see, and
    imitate, a call inside a call.
    """
    try:
        value, _ = json.JSONDecoder().raw_decode(excerpt)
    except (ValueError, RecursionError):
        return excerpt
    if not isinstance(value, dict):
        return excerpt
    given = (value[key] for key in ARGUMENT_KEYS if isinstance(value.get(key), dict))
    return next((json.dumps(arguments, ensure_ascii=False) for arguments in given), excerpt)


def _schema(text: str) -> Schema:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
