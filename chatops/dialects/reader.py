"""Read a model's reply as it arrives: one scan from left to right that separates calls and thought from text.

Theory of operation

Modes. `Message` holds the text and the position `at`. Its `mode` is a function that reads on from there: `at_start` at
the beginning of the content, `in_text` in text, and others in thought, quotations, fences and after a call. A mode
passes text as content or thought, removes it, changes the mode, or pauses for more text.

One scan. In text, a pattern (`scanner.SCAN`) finds the next place where something may begin. The first of these
decides: thought, a call marker, code, a quotation. A call is read as a unit, so its arguments are data and nothing in
them is interpreted.

Outcome. The reader of a format returns `Found` or `Nothing`, each with `sure`: True if no further text could change it.
An outcome that is not sure is discarded until more text or the end of the message has come.

Hold-back. Text is given out as soon as it is certain:

- The end of the text is held back while it may be the beginning of a marker (`hold_from`).
- A message that begins like a call without a marker is held back until its end: a single word of prose before or after
  makes it text. So is a fence that may be a call, until other text follows.
- Calls and diagnostics are given out only by `close`.
- One piece takes back earlier content: a closing tag of thought whose opening tag was in the prompt
  (`ReclassifiedPiece`).

What is text, whatever it looks like: calls in code spans, fences that are followed by other text, indented code,
quotations, comments, echoes of tool output, invented turns of other roles, the framed answer to the user, and pairs of
unknown tags (`enclosing.py`).

Confidence. A call is HIGH unless it may have been an example: it is in a fence that is not the whole message, was
introduced as an example, is in an unclosed unknown tag, or is code after a marker that named no tool. A LOW call is
still a call, but always asks the user.

Repairs. A value is repaired only where one meaning is left, and each repair is listed with the call. A value that was
cut off is never completed. A call that was recognised but cannot be used becomes a `Diagnostic`, so that the model
learns that nothing ran. If a finished message has neither, `missed.py` looks for a call that was meant.

Invariants: the result does not depend on how the text is split into chunks (`tests/dialects/test_incremental.py`), all
pieces together are the content and reasoning of the `Reading`, and time is linear in the length of the text
(`Message.arrive`).
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
    """Read a complete message. See `CallReader`."""
    reader = CallReader(tools, aliases=aliases)
    reader._message.arrive(text)
    return reader.close(finish_reason)[1]


class CallReader:
    """Reader of one message that arrives in chunks.

    `tools` are the tools on offer, name → schema; a call of any other becomes a diagnostic. With None, nothing is read
    as a call, and only thought is separated from text. `aliases` maps names that models were trained with to tools
    (`brave_search` → `web_search`).
    """

    def __init__(self, tools: Tools | None, *, aliases: Mapping[str, str] | None = None) -> None:
        self._message = Message(Offers(tools, aliases or {}), begin=at_start, plain=in_text)

    def feed(self, chunk: str) -> list[Piece]:
        """Read the next chunk; return the content and reasoning that are certain by now."""
        if chunk and self._message.arrive(chunk):
            self._message.go_on()
        return self._message.ledger.drain()

    def close(self, finish_reason: str = "stop") -> tuple[list[Piece], Reading]:
        """End the message; return the last pieces and the whole reading.

        After `finish_reason` "length", only calls with their closing mark count: the arguments of the others may be cut
        off.
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
