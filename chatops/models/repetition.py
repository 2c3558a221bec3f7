"""Notices that a reply has become one short piece of text, over and over.

Models fall into such loops, and some servers never end them. Nobody waits for an answer whose last fifty thousand
characters are one word, written token by token: what is shorter than that, changes ever so little, or comes in large
pieces is left alone.
"""

LONGEST_UNIT = 50
"""Characters of what is repeated, at most: so it has come a thousand times at least."""
MOST_REPEATED = 50_000
"""Characters that may be nothing but repetition."""
LONGEST_PIECE = 256
"""Characters that come at once when a model is writing; a larger piece is something that a server had ready."""
_LOOK_EVERY = 1_000
_LOOK_AT = 4 * LONGEST_UNIT


class Repetition:
    """Watches one growing text."""

    def __init__(self) -> None:
        """Of nothing yet."""
        self._tail = ""
        """The end of the text, as far as it has to be known to go on."""
        self._unread = 0
        """Characters since the end was last looked at for a unit."""
        self.unit = ""
        """What is being repeated, as it stands at the end of the text; empty if nothing is."""
        self.length = 0
        """Characters at the end of the text that repeat `unit`."""

    @property
    def is_endless(self) -> bool:
        """Whether that is more than any answer can mean."""
        return self.length >= MOST_REPEATED

    @property
    def shown(self) -> str:
        """The unit as a person would say it: from the beginning of a word."""
        space = self.unit.find(" ") + 1
        return (self.unit[space:] + self.unit[:space]).strip(" ") or self.unit

    def feed(self, text: str) -> None:
        """Take what comes next of the text, as it comes."""
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
        """`text` with at most `keep` characters of repetition at its end."""
        size, start = len(self.unit), len(text)
        while size and start > size and text[start - 1] == text[start - 1 - size]:
            start -= 1
        return text[: start + keep]

    def _goes_on(self, text: str) -> bool:
        """Whether `text` repeats the unit; if so, `unit` is turned to the end of it."""
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
