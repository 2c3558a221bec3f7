"""Lines between transcript and message field: what arrived below, queued messages, notices, what needs the user."""

from collections.abc import Sequence
from typing import Literal

from textual.content import Content
from textual.message import Message
from textual.notifications import Notification
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.error_boundary import ErrorBoundary
from chatops.tui.keys import BACK, KeyHint, KeyLegend, with_user_keys
from chatops.tui.textual_internals import refresh_notices

BannerTone = Literal["waiting", "error", "quiet"]
MOST_LINES = 3
"""Maximum number of messages shown with a line each."""
_MOST_NOTICE_LINES = 6
"""Maximum lines of notices, as in ``app.tcss``."""
_MOST = 200
"""Characters of a message that are shown, enough to recognise it."""


class _Lines(ErrorBoundary, Static):
    """Lines that take no room while there is nothing to show. Text is never read as markup."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False


class Banner(_Lines):
    """Says what needs the user, one line per sentence."""

    def show(self, text: str, *, tone: BannerTone, problem: str = "") -> None:
        """Show `text` below a lasting `problem`. Hides the banner if both are empty."""
        whole = "\n".join(part for part in (problem, text) if part)
        self.display = bool(whole)
        for name in ("waiting", "error", "quiet"):
            self.set_class(name == ("error" if problem else tone), f"-{name}")
        self.update(Content(with_user_keys(sanitize(whole))))


class Notices(_Lines):
    """Notices, newest last."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._texts: list[str] = []

    def show(self, notices: Sequence[Notification]) -> None:
        """Replace the notices. An empty sequence hides the widget."""
        self.display = bool(notices)
        self.set_class(any(notice.severity == "error" for notice in notices), "-error")
        self._texts = [with_user_keys(sanitize(notice.message)) for notice in notices]
        self._draw()
        if notices:
            left = min(notice.time_left for notice in notices)
            self.set_timer(max(left, 0.0) + 0.01, lambda: refresh_notices(self.app))

    def on_resize(self) -> None:
        """Wrap the notices for the new width."""
        self._draw()

    def _draw(self) -> None:
        """Show as many lines as there is room for, those of the newest notice first; a mark where some are missing."""
        width = max(1, self.app.size.width - 2)
        lines: list[Content] = []
        for text in reversed(self._texts):
            room = _MOST_NOTICE_LINES - len(lines)
            own = [part for line in text.split("\n") for part in Content(line).wrap(width)]
            if len(own) > room > 0:
                own[room - 1 :] = [own[room - 1].truncate(width - 2) + " …"]
            lines = [*own[:room], *lines]
        self.update(Content("\n").join(lines))


class QueuedMessages(_Lines):
    """Messages that were sent and are not in the transcript yet, under a heading that says what happens to them."""

    def show(self, texts: Sequence[str], *, heading: str = "", marked: int = -1) -> None:
        """Show the start of each text, oldest first, and a sign beside the one that is `marked`.

        If there are too many, show the first and the last, or the ones around the marked one.
        """
        self.display = bool(texts)
        lines = [f"{'✗' if at == marked else '❯'} {_beginning(text)}" for at, text in enumerate(texts)]
        if len(lines) > MOST_LINES and marked >= 0:
            start = max(0, min(marked - 1, len(lines) - MOST_LINES))
            lines = lines[start : start + MOST_LINES]
        elif len(lines) > MOST_LINES:
            lines[1:-1] = [f"  … {len(lines) - 2} more"]
        self.update(Content("\n".join([heading, *lines] if heading else lines)))


def _beginning(text: str) -> str:
    line = sanitize(" ".join(text[: 2 * _MOST].split()), newlines=False)
    return line if len(text) <= _MOST else f"{line[:_MOST]}…"


class TranscriptHint(ErrorBoundary, Static):
    """Hidden while there is nothing to say."""

    class Clicked(Message):
        """Posted on a click while blocks are out of view."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id)
        self._unseen = 0
        self._selected = False
        self._has_files = False

    def count_unseen(self, count: int) -> None:
        """Show how many blocks arrived or grew below the view."""
        self._unseen = count
        self._show()

    def show_keys(self, *, selected: bool, has_files: bool = False) -> None:
        """Show or hide the keys of the selected block."""
        self._selected, self._has_files = selected, has_files
        self._show()

    def on_click(self) -> None:
        """Post `Clicked` if there is something to scroll to."""
        if self._unseen:
            self.post_message(self.Clicked())

    def _show(self) -> None:
        keys = [KeyHint(does=f"↓ {self._unseen} new"), KeyHint(does="shows the end", id="end")] if self._unseen else []
        if self._selected:
            files = [KeyHint("o", "open the file")] if self._has_files else []
            keys += [KeyHint("y", "copy"), KeyHint(does="open", id="open-block"), *files, BACK]
        self.update(KeyLegend([keys]).draw())
        self.display = bool(keys)
