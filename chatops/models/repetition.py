"""Detection of a reply that repeats one short text over and over.

Models fall into such loops, and some servers never end them. The limit is fifty thousand characters of one repeated
unit, written token by token. A shorter repetition, one with any change, and text that comes in large pieces are not
stopped.
"""

LONGEST_UNIT = 50
"""Maximum length of the repeated unit in characters, so that it has come at least a thousand times."""
MOST_REPEATED = 50_000
"""Maximum number of characters that may be only repetition."""
LONGEST_PIECE = 256
"""Maximum number of characters that come at once while a model writes; a larger piece was ready on the server."""
_LOOK_EVERY = 1_000
_LOOK_AT = 4 * LONGEST_UNIT


class Repetition:
    """Watcher of one growing text."""

    def __init__(self) -> None:
        """Start with an empty text."""
        self._tail = ""
        """The end of the text, as much of it as the next check needs."""
        self._unread = 0
        """Number of characters since the end was last checked for a unit."""
        self.unit = ""
        """The repeated unit, as it is at the end of the text; empty if nothing is repeated."""
        self.length = 0
        """Number of characters at the end of the text that repeat `unit`."""

    @property
    def is_endless(self) -> bool:
        """True if the repetition has reached `MOST_REPEATED`."""
        return self.length >= MOST_REPEATED

    @property
    def shown(self) -> str:
        """The unit for messages, from the beginning of a word."""
        space = self.unit.find(" ") + 1
        return (self.unit[space:] + self.unit[:space]).strip(" ") or self.unit

    def feed(self, text: str) -> None:
        """Add the next piece of the text, in the size in which it came."""
        if len(text) > LONGEST_PIECE:
            self.unit, self.length, self._tail, self._unread = "", 0, "", 0
            return
        if self.unit and self._goes_on(text):
            self.length += len(text)
            return
        self.unit, self.length = "", 0
        self._unread += len(text)
        self._tail = (self._tail + text)[-_LOOK_AT:]
        if self._unread >= _LOOK_EVERY:
            self._unread = 0
            self._look()

    def cut_out_of(self, text: str, *, keep: int) -> str:
        """Return `text` with at most `keep` characters of repetition at its end."""
        size, start = len(self.unit), len(text)
        while size and start > size and text[start - 1] == text[start - 1 - size]:
            start -= 1
        return text[: start + keep]

    def _goes_on(self, text: str) -> bool:
        """Return True if `text` continues the repetition; rotate `unit` to the new end then."""
        size = len(self.unit)
        times = len(text) // size + 2
        if not (self.unit * times).startswith(text):
            return False
        turned = len(text) % size
        self.unit = self.unit[turned:] + self.unit[:turned]
        return True

    def _look(self) -> None:
        tail = self._tail
        for size in range(1, LONGEST_UNIT + 1):
            if tail[size:] == tail[:-size]:
                self.unit, self.length = tail[-size:], len(tail)
                return
