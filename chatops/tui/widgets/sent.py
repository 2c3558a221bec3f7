"""What was sent and is in no conversation yet, so that it is never nowhere to be seen."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.accidents import Sturdy

_MOST = 200
"""Characters of a text that are shown: enough to know it again."""


class Sent(Sturdy, Static):
    """Shown only while something is on its way; the beginning of each text, on a line of its own."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, texts: Sequence[str]) -> None:
        """These texts, oldest first; none hides it."""
        self.display = bool(texts)
        self.update(Content("\n".join(f"❯ {_beginning(text)}" for text in texts)))


def _beginning(text: str) -> str:
    line = sanitize(" ".join(text[: 2 * _MOST].split()), newlines=False)
    return line if len(text) <= _MOST else f"{line[:_MOST]}…"
