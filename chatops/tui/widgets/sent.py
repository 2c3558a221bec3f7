"""Messages that were sent and are not in the transcript yet: the queue, and what is being stored."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.accidents import Sturdy

MOST_LINES = 3
"""Messages that get a line of their own."""
_MOST = 200
"""Characters of a text that are shown: enough to know it again."""


class Sent(Sturdy, Static):
    """One line for each message, under a line that says what happens to them. Hidden while there is none."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, texts: Sequence[str], *, heading: str = "") -> None:
        """Show the beginnings of `texts`, oldest first; of many, the ones next to be sent and to be taken back."""
        self.display = bool(texts)
        lines = [f"❯ {_beginning(text)}" for text in texts]
        if len(lines) > MOST_LINES:
            lines[1:-1] = [f"  … {len(lines) - 2} more"]
        self.update(Content("\n".join([heading, *lines] if heading else lines)))


def _beginning(text: str) -> str:
    line = sanitize(" ".join(text[: 2 * _MOST].split()), newlines=False)
    return line if len(text) <= _MOST else f"{line[:_MOST]}…"
