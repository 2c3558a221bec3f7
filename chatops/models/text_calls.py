"""Calls that a model writes as text: what is certain goes on at once, what may be a call is held back and read."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from chatops.dialects import CallReader, Confidence, Diagnostic, DiagnosticKind, Piece, ReadCall, Reading, Schema
from chatops.dialects.families import Family
from chatops.dialects.formats.shapes import ARGUMENT_KEYS
from chatops.domain.tools import ALIASES, RawCall, ToolSpec
from chatops.models.calls import NAME_LIMIT
from chatops.models.wire import scrub

UNSURE = "it may have been meant as an example and not as a call"
"""What a person is told of a call that the reader is not sure of; with it the call always asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """What the text of a reply may call: schemas by name, and other names that models have for these tools."""

    tools: Mapping[str, Schema] | None = None
    """None: nothing in the text is a call, only thought is told from prose."""
    aliases: Mapping[str, str] = field(default_factory=dict)
    may_call: bool = True
    """Otherwise a call is dropped: the model was told not to make any."""


NO_OFFER = Offer()


class OfferMaker:
    """Makes offers for one model; what it has parsed of schemas is kept from request to request."""

    def __init__(self, family: Family) -> None:
        self._aliases = {**ALIASES, **family.aliases}
        self._specs: tuple[ToolSpec, ...] = ()
        self._tools: Mapping[str, Schema] = {}

    def of(self, specs: tuple[ToolSpec, ...], *, may_call: bool) -> Offer:
        """The offer of these tools; without any, nothing is read."""
        if not specs:
            return NO_OFFER
        if specs != self._specs:
            self._specs, self._tools = specs, {spec.name: _schema(spec.schema) for spec in specs}
        return Offer(tools=self._tools, aliases=self._aliases, may_call=may_call)


@dataclass(frozen=True, slots=True, kw_only=True)
class TextEnd:
    """The end of a text: its last pieces, the calls in it, and all of its prose where that is not what has gone on."""

    pieces: list[Piece]
    calls: tuple[RawCall, ...] = ()
    format: str = ""
    """Of the calls that can be run; empty without any."""
    prose: str | None = None


class TextReader:
    """The text of one reply in the making."""

    def __init__(self, offer: Offer) -> None:
        self._offer = offer
        self._reader = CallReader(offer.tools, aliases=offer.aliases)
        self._raw: list[str] = []

    def feed(self, text: str) -> list[Piece]:
        """What is certain by now."""
        if not text:
            return []
        if self._offer.tools is not None:
            self._raw.append(text)
        return self._reader.feed(text)

    def close(self, *, finish_reason: str, called_natively: bool) -> TextEnd:
        """The end. A model that has called natively has said the rest in plain words, whatever they look like."""
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
    """All that was meant as a call, in the order of the text: what can be run, and what is answered with an error."""
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
    """The arguments of what begins with a whole call in JSON, otherwise all of it.

    The model sees its call again under the name that it gave. With the whole object as arguments it would see, and
    imitate, a call in a call.
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
