"""Bars made of characters: one that shows the shares of a whole, and rows whose lengths compare.

A letter names each share, so that a bar can be read without colours and in ASCII, where blocks become number signs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from textual.content import Content

_FILLED, _EMPTY = "█", "─"
_SHADES = ("$primary", "$primary 50%")
"""Colours of shares beside each other."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole."""

    letter: str
    name: str
    size: int
    free: bool = False
    """True for what is left of the whole."""


def stacked(shares: Sequence[Share], *, width: int) -> Content:
    """Return one bar of all shares. Each that is not empty has at least a cell, with its letter."""
    cells = _cells([share.size for share in shares], width=width)
    parts = [Content("")]
    filled = 0
    for share, count in zip(shares, cells, strict=True):
        if not count:
            continue
        if share.free:
            parts.append(Content.styled(_EMPTY * count, "$text-muted"))
            continue
        parts += [Content.styled(share.letter, "bold"), Content.styled(_FILLED * (count - 1), _SHADES[filled % 2])]
        filled += 1
    return Content("").join(parts)


def bar(size: float, *, most: float, width: int) -> str:
    """Return a bar that is `width` cells long for the size `most`, and a cell for the least that is not nothing."""
    return _FILLED * max(1, round(size / most * width)) if size > 0 and most > 0 else ""


def _cells(sizes: Sequence[int], *, width: int) -> list[int]:
    """Return the number of cells of each size: one for each that is not zero, and the others by their shares."""
    whole, some = sum(sizes), sum(size > 0 for size in sizes)
    if not whole or width < some:
        return [0] * len(sizes)
    exact = [size / whole * (width - some) for size in sizes]
    cells = [int(part) + (size > 0) for part, size in zip(exact, sizes, strict=True)]
    by_rest = sorted(range(len(sizes)), key=lambda at: exact[at] % 1, reverse=True)
    for at in by_rest[: width - sum(cells)]:
        cells[at] += 1
    return cells
