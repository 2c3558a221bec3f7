"""The state of a message that is being read: the text that waits, where the scan is, what it waits for.

A mode is a function that goes on from `at` and returns whether it got anywhere; what it could not decide yet, it pauses
for. A mode is never asked about the same text more than a bounded number of times (`_PATIENCE`), so that time stays
linear when text arrives one character at a time.
"""

from collections.abc import Callable
from enum import Enum, auto

from chatops.dialects.enclosing import OpenTags
from chatops.dialects.ledger import Ledger
from chatops.dialects.offers import Offers


class Saying(Enum):
    """What frames text as said to the user; only its own marks end it."""

    CHANNEL = auto()
    """A message in a channel, Harmony and Muse."""
    RESPONSE = auto()
    """The response part of Kimi K3."""


Mode = Callable[["Message"], bool]

ANYTHING = None
NEVER = ""
"""What to pause for: any text, nothing before the end; otherwise one of some characters."""
_LOOK_BEHIND = 2
_PATIENCE = 8
_FREE = 8192


class Message:
    """What modes share. `text` holds what has arrived and not been passed, and a little before it."""

    __slots__ = (
        "_arrived",
        "_base",
        "_length",
        "_raw",
        "_spent",
        "_waits_for",
        "at",
        "begin",
        "declined",
        "documents",
        "final",
        "fresh",
        "hold",
        "led_by_call",
        "ledger",
        "mode",
        "offers",
        "plain",
        "runs",
        "said",
        "tags",
        "text",
        "wrapper",
    )

    def __init__(self, offers: Offers, *, begin: Mode, plain: Mode) -> None:
        self.offers = offers
        self.ledger = Ledger()
        self.begin = begin
        """The mode for the first of what the person sees."""
        self.plain = plain
        """The mode for text."""
        self.mode = begin
        self.text = "\n\n"
        self.at = _LOOK_BEHIND
        """Index of the first character of `text` that has not been passed."""
        self.final = False
        """Whether nothing more will come."""
        self.fresh = True
        """Whether `at` counts as the beginning of a line."""
        self.said: Saying | None = None
        """What frames this text as said to the user, so that nothing in it runs."""
        self.led_by_call = False
        """Whether a call was the first thing in the text."""
        self.runs: list[int] = []
        """Lengths of the runs of backticks that may have opened a code span, in order."""
        self.tags = OpenTags()
        """Tags of no known format that are open at `at`."""
        self.declined = -1
        """Index in the content of the last marker of a call behind which there is none; -1 without any."""
        self.documents = False
        """Whether a call was announced as an example or a quotation, so that the user decides on all that follow."""
        self.wrapper = ""
        self.hold = -1
        """Index from which on the end of `text` may be the beginning of something; -1 if it is not known."""
        self._base = -_LOOK_BEHIND
        self._arrived: list[str] = []
        self._length = 0
        self._waits_for: str | None = ANYTHING
        self._spent = 0
        self._raw: list[str] = []

    @property
    def base(self) -> int:
        """Index in the message of the first character of `text`."""
        return self._base

    def arrive(self, chunk: str) -> bool:
        """Takes a chunk; whether it is worth going on."""
        self._arrived.append(chunk)
        self._length += len(chunk)
        wanted = self._waits_for
        if wanted is ANYTHING:
            ready = True
        else:
            ready = any(each in chunk for each in wanted)
        waiting = len(self.text) - self.at + self._length
        if ready and self._spent > _PATIENCE * waiting + _FREE:
            return False
        return ready

    def go_on(self) -> None:
        """Reads as far as can be read."""
        if self._arrived:
            kept = max(self.at - _LOOK_BEHIND, 0)
            self._base += kept
            self.at -= kept
            self.text = self.text[kept:] + "".join(self._arrived)
            self._arrived = []
            self._length = 0
            self.hold = -1
        while self.mode(self):
            pass

    def pause(self, wanted: str | None) -> bool:
        """Waits for one of the characters of `wanted`; always False."""
        self._waits_for = wanted
        self._spent += len(self.text) - self.at
        return False

    def pass_content(self, end: int) -> None:
        """Goes on to `end`; what lies between is for the person."""
        if end > self.at:
            self.ledger.content(self._advance(end))

    def pass_thought(self, end: int) -> None:
        """Goes on to `end`; what lies between was thought."""
        if end > self.at:
            self.ledger.reasoning(self._advance(end))

    def skip(self, end: int) -> None:
        """Goes on to `end`; what lies between is nobody's."""
        self._advance(end)
        self.ledger.removed = True

    def reclassify(self) -> None:
        """All since the last thought was thought too."""
        self.declined = -1
        self.ledger.reclassify("".join(self._raw))
        self.forget()

    def forget(self) -> None:
        """What was passed so far can no longer turn out to be thought."""
        self._raw = []

    def _advance(self, end: int) -> str:
        passed = self.text[self.at : end]
        if end > self.at:
            self.at = end
            self._spent = 0
            self.fresh = False
        self._raw.append(passed)
        return passed
