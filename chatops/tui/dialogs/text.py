"""A text to read: scrolls, copies, closes."""

import re

from rich.cells import cell_len
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from chatops.domain.sanitize import sanitize
from chatops.tui.clipboard import copy
from chatops.tui.dialogs.modal import Modal
from chatops.tui.keys import legend
from chatops.tui.transcript.lines import prefixed, wrap

_INDENTATION = re.compile(r"\s*(?:[-*•] +)?")
_COLUMNS = re.compile(r"\S {2,}(?=\S)")
"""The gap before the next column of a table."""
_LEAST = 24
"""Minimum cells for the wrapped words. With less room, lines wrap to the left margin."""


class TextScreen(Modal[None]):
    """Shows a read-only text, which is never read as markup."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#text-body"

    def __init__(self, title: str, *, text: str) -> None:
        super().__init__()
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield title, text and keys."""
        with Vertical(id="text"):
            yield Static(Content(sanitize(self._title, newlines=False)), id="text-title")
            with VerticalScroll(id="text-body"):
                yield HangingText(sanitize(self._text), id="text-content")
            yield Static(legend("PgUp PgDn scroll   c copies   Esc back"), id="text-keys")

    def on_key(self, event: events.Key) -> None:
        """Close on Esc, q or Enter, copy on c."""
        match event.key:
            case "escape" | "q" | "enter":
                self.dismiss(None)
            case "c":
                copy(self.app, self._text)
            case _:
                return
        event.stop()


class HangingText(Static):
    """Shows sanitised text, wrapped to its width. Text is never read as markup."""

    def __init__(self, text: str, *, id: str | None = None) -> None:
        super().__init__(Content(text), id=id)
        self._text = text
        self._broken_at = 0

    def on_resize(self, event: events.Resize) -> None:
        """Wrap the text again for a new width."""
        width = self.content_size.width
        if width and width != self._broken_at:
            self._broken_at = width
            self.update(Content("\n".join(hanging(line, width=width) for line in self._text.split("\n"))))


def hanging(line: str, *, width: int) -> str:
    """Return `line` wrapped at words into lines of at most `width` cells."""
    if cell_len(line) <= width:
        return line
    before = line[: _words_begin(line, width=width)]
    parts = wrap(Text(line[len(before) :]), width=width - cell_len(before))
    joined = prefixed(parts, first=Text(before), rest=Text(" " * cell_len(before)))
    return "\n".join(part.plain for part in joined)


def _words_begin(line: str, *, width: int) -> int:
    """Return where the hanging text starts, as far right as the width allows.

    This is after the indentation and list sign, or after a later column.
    """
    indentation = _INDENTATION.match(line)
    ends = [indentation.end() if indentation is not None else 0, *(found.end() for found in _COLUMNS.finditer(line))]
    return max((end for end in ends if cell_len(line[:end]) <= min(2 * width // 3, width - _LEAST)), default=0)
