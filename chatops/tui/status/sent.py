"""Messages that were sent and are not in the transcript yet: queued, or being stored."""

from collections.abc import Sequence

from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.error_boundary import ErrorBoundary

MOST_LINES = 3
"""Maximum number of messages shown with a line each."""
_MOST = 200
"""Characters of a message that are shown, enough to recognise it."""


class Sent(ErrorBoundary, Static):
    """Lists sent messages under a heading that says what happens to them. Hidden while there are none."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, texts: Sequence[str], *, heading: str = "") -> None:
        """Show the start of each text, oldest first. If there are too many, show the first and the last."""
        self.display = bool(texts)
        lines = [f"❯ {_beginning(text)}" for text in texts]
        if len(lines) > MOST_LINES:
            lines[1:-1] = [f"  … {len(lines) - 2} more"]
        self.update(Content("\n".join([heading, *lines] if heading else lines)))


def _beginning(text: str) -> str:
    line = sanitize(" ".join(text[: 2 * _MOST].split()), newlines=False)
    return line if len(text) <= _MOST else f"{line[:_MOST]}…"
