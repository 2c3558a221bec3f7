"""State of a message that is being read: the text not passed yet, the position of the scan, and the awaited text.

A mode is a function that reads on from `at`. It returns True if it made progress, and otherwise pauses for the text
that it needs. A mode is called about the same text only a bounded number of times (`_PATIENCE`), so time stays linear
even when text arrives one character at a time.
"""

from collections.abc import Callable
from enum import Enum, auto

from chatops.dialects.enclosing import OpenTags
from chatops.dialects.ledger import Ledger
from chatops.dialects.offers import Offers


class Saying(Enum):
    """Frame that marks text as the answer to the user; only its own marks end it."""

    CHANNEL = auto()
    """A message in a channel: Harmony and Muse."""
    RESPONSE = auto()
    """The response part of Kimi K3."""


Mode = Callable[["Message"], bool]

ANYTHING = None
NEVER = ""
"""Argument of `pause`: any text, nothing before the end of the message, or else a string of awaited characters."""
_LOOK_BEHIND = 2
_PATIENCE = 8
_FREE = 8192


class Message:
    """State shared by the modes. `text` holds what has arrived and not been passed, and a little before it."""

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
        """The mode for the beginning of the content."""
        self.plain = plain
        """The mode for text."""
        self.mode = begin
        self.text = "\n\n"
        self.at = _LOOK_BEHIND
        """Index in `text` of the first character that has not been passed."""
        self.final = False
        """True once nothing more will come."""
        self.fresh = True
        """True if `at` counts as the beginning of a line."""
        self.said: Saying | None = None
        """The frame that marks this text as the answer to the user, so that nothing in it runs."""
        self.led_by_call = False
        """True if a call was the first thing in the text."""
        self.runs: list[int] = []
        """Lengths of the runs of backticks that may have opened a code span, in order."""
        self.tags = OpenTags()
        """The tags of no known format that are open at `at`."""
        self.declined = -1
        """Index in the content of the last call marker that no call followed; -1 if there is none."""
        self.documents = False
        """True once a call was announced as an example; the user then decides on it and all later calls."""
        self.wrapper = ""
        self.hold = -1
        """Index from which the end of `text` may be the beginning of a construct; -1 if not known."""
        self._base = -_LOOK_BEHIND
        self._arrived: list[str] = []
        self._length = 0
        self._waits_for: str | None = ANYTHING
        self._spent = 0
        self._raw: list[str] = []
        """All text passed since the last thought, as it was written, for `reclassify`."""

    @property
    def base(self) -> int:
        """Index in the message of the first character of `text`."""
        return self._base

    def arrive(self, chunk: str) -> bool:
        """Store a chunk; return True if the mode can make progress with it."""
        self._arrived.append(chunk)
        self._length += len(chunk)
        wanted = self._waits_for
        if wanted is ANYTHING:
            ready = True
        else:
            ready = any(each in chunk for each in wanted)
        waiting = len(self.text) - self.at + self._length
        if ready and self._spent > _PATIENCE * waiting + _FREE:
            # The waiting text was read too often for its length: wait until it has grown, so that time stays linear.
            return False
        return ready

    def go_on(self) -> None:
        """Read as far as possible."""
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
        """Wait for one of the characters of `wanted`. Always return False."""
        self._waits_for = wanted
        self._spent += len(self.text) - self.at
        return False

    def pass_content(self, end: int) -> None:
        """Move to `end`; the text passed is content."""
        if end > self.at:
            self.ledger.content(self._advance(end))

    def pass_thought(self, end: int) -> None:
        """Move to `end`; the text passed is thought."""
        if end > self.at:
            self.ledger.reasoning(self._advance(end))

    def skip(self, end: int) -> None:
        """Move to `end`; the text passed is removed."""
        self._advance(end)
        self.ledger.removed = True

    def reclassify(self) -> None:
        """Turn everything since the last thought into thought."""
        self.declined = -1
        self.ledger.reclassify("".join(self._raw))
        self.forget()

    def forget(self) -> None:
        """Fix all text passed so far: it can no longer turn out to be thought."""
        self._raw = []

    def _advance(self, end: int) -> str:
        passed = self.text[self.at : end]
        if end > self.at:
            self.at = end
            self._spent = 0
            self.fresh = False
        self._raw.append(passed)
        return passed
