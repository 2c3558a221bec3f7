"""Lines above the message field: what needs the user (approvals, a failed turn), and notices."""

from collections.abc import Sequence
from typing import Literal

from textual.content import Content
from textual.notifications import Notification
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.textual_internals import refresh_notices

Tone = Literal["waiting", "error", "quiet"]


class Banner(ErrorBoundary, Static):
    """Shown only while it has a text, one line per sentence. Text is never read as markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def say(self, text: str, *, tone: Tone, standing: str = "") -> None:
        """Show `text` below `standing`, a lasting problem. Hides the banner if both are empty."""
        shown = "\n".join(part for part in (standing, text) if part)
        self.display = bool(shown)
        for name in ("waiting", "error", "quiet"):
            self.set_class(name == ("error" if standing else tone), f"-{name}")
        self.update(Content(sanitize(shown)))


class Notices(ErrorBoundary, Static):
    """Notices above the message field, newest last. Text is never read as markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False

    def show(self, notices: Sequence[Notification]) -> None:
        """Replace the notices. An empty sequence hides the widget."""
        self.display = bool(notices)
        self.set_class(any(notice.severity == "error" for notice in notices), "-error")
        self.update(Content("\n".join(sanitize(notice.message) for notice in notices)))
        if notices:
            left = min(notice.time_left for notice in notices)
            self.set_timer(max(left, 0.0) + 0.01, lambda: refresh_notices(self.app))
