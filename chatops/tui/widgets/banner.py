"""One line above the message for what needs the person: calls that wait, a failed turn, a stopped answer."""

from collections.abc import Sequence
from typing import Literal

from textual.content import Content
from textual.notifications import Notification
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


class Notices(Sturdy, Static):
    """Lines above the message for what is said in passing, the newest last; nothing of them is ever markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, notices: Sequence[Notification]) -> None:
        """Show these notices instead of those before; none hides it."""
        self.display = bool(notices)
        self.set_class(any(notice.severity == "error" for notice in notices), "-error")
        self.update(Content("\n".join(sanitize(notice.message) for notice in notices)))
        if notices:
            left = min(notice.time_left for notice in notices)
            self.set_timer(max(left, 0.0) + 0.01, self.app._refresh_notifications)
