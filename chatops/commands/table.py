"""Text tables: columns as wide as needed, one line per row, whatever the cells contain."""

from collections.abc import Sequence
from datetime import datetime
from unicodedata import combining, east_asian_width

from chatops.domain.sanitize import sanitize

WIDEST = 60
"""Maximum characters of a cell. The last column is never cut."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return header and rows in aligned columns. Control characters are shown, line feeds too."""
    cells = [[_cell(cell, last=i == len(row) - 1) for i, cell in enumerate(row)] for row in (header, *rows)]
    widths = [max(_width(row[column]) for row in cells) for column in range(len(header))]
    lines = ["  ".join(_padded(cell, width) for cell, width in zip(row, widths, strict=True)) for row in cells]
    return "\n".join(line.rstrip() for line in lines)


def when(seconds: float) -> str:
    """Return a time of the store in the user's time zone, to the second."""
    return datetime.fromtimestamp(seconds).astimezone().strftime("%Y-%m-%d %H:%M:%S")


def _cell(text: str, *, last: bool) -> str:
    clean = sanitize(text, newlines=False)
    return clean if last or len(clean) <= WIDEST else f"{clean[: WIDEST - 1]}…"


def _padded(text: str, width: int) -> str:
    return text + " " * (width - _width(text))


def _width(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(0 if combining(c) else 2 if east_asian_width(c) in "WF" else 1 for c in text)
