"""One line above the message for what needs the person: calls that wait, a failed turn, a stopped answer."""

from typing import Literal

from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.accidents import Sturdy

Tone = Literal["waiting", "error", "quiet"]


class Banner(Sturdy, Static):
    """Shown only while it has something to say; one line per sentence, nothing of it is ever markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def say(self, text: str, *, tone: Tone, standing: str = "") -> None:
        """Show a text below one that stands while something is not well; without both the banner is hidden."""
        shown = "\n".join(part for part in (standing, text) if part)
        self.display = bool(shown)
        for name in ("waiting", "error", "quiet"):
            self.set_class(name == ("error" if standing else tone), f"-{name}")
        self.update(Content(sanitize(shown)))
