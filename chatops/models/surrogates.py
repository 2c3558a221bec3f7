"""Text as it streams, with split surrogate pairs joined."""

from chatops.models.wire import scrub


class SurrogateJoiner:
    """Buffer for the first half of a surrogate pair until the second half has come."""

    def __init__(self) -> None:
        self._half = ""

    def feed(self, text: str) -> str:
        """Return `text` without an unfinished pair at its end; lone halves inside it are replaced."""
        text = self._half + text
        self._half = ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._half = text[:-1], text[-1]
        return scrub(text)

    def close(self) -> str:
        """Return the text that was held back, with a lone half replaced."""
        half, self._half = self._half, ""
        return scrub(half)
