"""Reads a message of a model as it arrives: one scan from left to right, each part of the text looked at once.

At each place the first of these decides: thought, a marker of a call, code, a quotation. A call is taken as a unit, so
that what stands in its arguments is data. Text is given out as soon as it is certain; what could still become something
else waits. The same text comes to the same reading in whatever chunks it arrives.
"""

from collections.abc import Mapping
from dataclasses import replace

from chatops.dialects.message import Message
from chatops.dialects.missed import missed_call, thought_call
from chatops.dialects.offers import Offers
from chatops.dialects.prose import in_text
from chatops.dialects.reading import Diagnostic, Piece, Reading, Tools
from chatops.dialects.start import at_start

_CUT_BY_THE_SERVER = "length"


def read_calls(
    text: str, tools: Tools, *, finish_reason: str = "stop", aliases: Mapping[str, str] | None = None
) -> Reading:
    """What there is in a whole message. See `CallReader`."""
    reader = CallReader(tools, aliases=aliases)
    reader._message.arrive(text)
    return reader.close(finish_reason)[1]


class CallReader:
    """Reads one message of a model while it arrives.

    `tools` are those on offer, name → schema: a call of any other is a diagnostic. None: nothing is read as a call, and
    only thought is told from text. `aliases` are names that models were trained with and the tools they mean
    (`brave_search` → `web_search`).
    """

    def __init__(self, tools: Tools | None, *, aliases: Mapping[str, str] | None = None) -> None:
        self._message = Message(Offers(tools, aliases or {}), begin=at_start, plain=in_text)

    def feed(self, chunk: str) -> list[Piece]:
        """Takes the next chunk; returns the content and the reasoning that are certain by now."""
        if chunk and self._message.arrive(chunk):
            self._message.go_on()
        return self._message.ledger.drain()

    def close(self, finish_reason: str = "stop") -> tuple[list[Piece], Reading]:
        """Ends the message: the last pieces, and all of it.

        After `finish_reason` "length" only calls count whose end is there: what follows may have been more of them.
        """
        message = self._message
        message.final = True
        message.hold = -1
        message.go_on()
        message.ledger.finish()
        pieces = message.ledger.drain()
        cut = finish_reason == _CUT_BY_THE_SERVER
        reading = message.ledger.reading(cut=cut)
        if message.offers.are_read and not cut and not message.ledger.has_calls:
            missed = self._missed(reading)
            if missed is not None:
                reading = replace(reading, diagnostics=(missed,), format=missed.format)
        return pieces, reading

    def _missed(self, reading: Reading) -> Diagnostic | None:
        if reading.content.strip():
            return missed_call(reading.content, self._message.declined, self._message.offers)
        thought = Message(self._message.offers, begin=at_start, plain=in_text)
        thought.arrive(reading.reasoning)
        thought.final = True
        thought.go_on()
        return thought_call(reading.reasoning, thought.ledger.reading(cut=False))
