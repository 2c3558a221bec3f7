"""A page with a text to read, which can be scrolled, searched and copied; and bars of characters that show shares.

A letter names each share, so that a bar can be read without colours and in ASCII, where blocks become number signs.
"""

import re
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural
from chatops.tui.dialogs.modal import TALL, KeyUse, Legend, Page, Title
from chatops.tui.keys import BACK, SCROLL, KeyHint
from chatops.tui.notice import copy
from chatops.tui.text_fields import LineField
from chatops.tui.transcript.lines import prefixed, wrap

_INDENTATION = re.compile(r"\s*(?:[-*•] +)?")
"""The start of a line, with the sign of an item in a list."""
_COLUMN_GAP = re.compile(r"\S {2,}(?=\S)")
"""The gap before the next column of a table."""
_LINES_AROUND = 5
"""Lines of the window outside its text."""
_CELLS_BESIDE = 6
"""Cells of the window beside its text: the frame and the scrollbar."""
_MIN_WIDTH, _MAX_WIDTH = 80, 110
"""Cells of the window: at least a usual terminal, so that none shows parts of words beside it."""
_MIN_WRAPPED = 24
"""Minimum cells for the wrapped words. With less room, they do not stay in their column."""
_BELOW_INDENT = 4
"""Cells of indentation of a second column that continues below the first one."""
_FILLED, _EMPTY = "█", "─"
_FILLS = "█▒"
"""Signs of shares beside each other, which are told apart without colours too."""
_SHADES = ("$primary", "$success", "$secondary", "$warning", "$primary 50%", "$success 50%")
"""Colours of shares beside each other."""


@frozen_dataclass(kw_only=False)
class Share:
    """A part of a whole."""

    letter: str
    name: str
    size: int
    free: bool = False
    """True for what is left of the whole."""


def stacked_bar(shares: Sequence[Share], *, width: int) -> Content:
    """Return one bar of all shares. Each that is not empty has at least a cell, with its letter."""
    cells = _share_cells([share.size for share in shares], width=width)
    parts = [Content("")]
    filled = 0
    for share, count in zip(shares, cells, strict=True):
        if not count:
            continue
        if share.free:
            parts.append(Content.styled(_EMPTY * count, "$text-muted"))
            continue
        parts += [
            Content.styled(share.letter, "bold"),
            Content.styled(_FILLS[filled % len(_FILLS)] * (count - 1), _SHADES[filled % len(_SHADES)]),
        ]
        filled += 1
    return Content("").join(parts)


def bar(size: float, *, most: float, width: int) -> str:
    """Return a bar that is `width` cells long for the size `most`, and a cell for the least that is not nothing."""
    return _FILLED * max(1, round(size / most * width)) if size > 0 and most > 0 else ""


def _share_cells(sizes: Sequence[int], *, width: int) -> list[int]:
    """Return the number of cells of each size: one for each that is not zero, and the others by their shares.

    All are 0 if there is no room for one cell each.
    """
    whole, shown = sum(sizes), sum(size > 0 for size in sizes)
    if not whole or width < shown:
        return [0] * len(sizes)
    exact = [size / whole * (width - shown) for size in sizes]
    cells = [int(part) + (size > 0) for part, size in zip(exact, sizes, strict=True)]
    # The cells that rounding down has left go to the largest remainders.
    by_rest = sorted(range(len(sizes)), key=lambda at: exact[at] % 1, reverse=True)
    for at in by_rest[: width - sum(cells)]:
        cells[at] += 1
    return cells


class TextScreen(Page):
    """Shows a read-only text, which is never read as markup. A search keeps the lines that contain what is typed."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#text-body"

    def __init__(
        self, title: str, *, text: str, shares: Sequence[Share] = (), draw: Callable[[str], Content] = Content
    ) -> None:
        """Show `text` as `draw` draws it once it is wrapped, and above it the `shares` of a whole as a bar."""
        super().__init__()
        self._draw = draw
        self._shares = shares
        self._title = title
        self._text = text

    def compose(self) -> ComposeResult:
        """Yield title, search field, text and keys."""
        with Vertical(id="text"):
            yield Title(self._title)
            yield LineField(placeholder="search", id="text-search", compact=True)
            if self._shares:
                yield Static("", id="text-shares")
            with VerticalScroll(id="text-body"):
                yield HangingText(sanitize(self._text), draw=self._draw, id="text-content")
            yield Legend(BACK, KeyHint("/", "search"), KeyHint("y", "copy"), SCROLL, id="text-keys")

    def on_mount(self) -> None:
        """Hide the search until it is opened, and say how much is out of view."""
        self.query_one(LineField).display = False
        body = self.query_one("#text-body", VerticalScroll)
        for changing in ("scroll_y", "virtual_size", "size"):
            self.watch(body, changing, self._show_rest_soon)

    def on_resize(self) -> None:
        """Limit the height of the text, so that title and keys stay on screen. The window is as large as its text."""
        if not self._has_parts:
            return
        tall = self.size.height >= TALL
        widest = max(map(cell_len, sanitize(self._text).split("\n"))) + _CELLS_BESIDE
        self.query_one("#text").styles.max_width = min(max(widest, _MIN_WIDTH), _MAX_WIDTH) if tall else None
        around = _LINES_AROUND + (2 if self._shares else 0)
        self.query_one("#text-body").styles.max_height = max(1, self.size.height - around) if tall else None
        self.call_after_refresh(self._show_shares)

    def _show_shares(self) -> None:
        """Draw the bar as wide as the window."""
        for widget in self.query("#text-shares").results(Static):
            widget.update(stacked_bar(self._shares, width=widget.content_size.width))

    @property
    def _has_parts(self) -> bool:
        """False before the parts of the screen are mounted, and once it is being closed."""
        return bool(self.query("#text-body"))

    def _show_rest_soon(self) -> None:
        self.call_after_refresh(self._show_rest)

    def _show_rest(self) -> None:
        if not self._has_parts:
            return
        body = self.query_one("#text-body", VerticalScroll)
        rest = int(body.max_scroll_y - body.scroll_y)
        self.query_one(Title).show(self._title, f"↓ {plural(rest, 'more line')}" if rest > 0 else "")

    @on(LineField.Changed)
    def search(self, event: LineField.Changed) -> None:
        """Show the lines that contain what is typed."""
        body = self.query_one("#text-body", VerticalScroll)
        found = found_in(sanitize(self._text), event.value.strip())
        self.query_one(HangingText).show(found or "Nothing matches. Esc ends the search.")
        body.scroll_home(animate=False)

    def act_on_key(self, key: str) -> KeyUse:
        """Scroll, search or copy."""
        search, body = self.query_one(LineField), self.query_one("#text-body", VerticalScroll)
        match key:
            case "escape" if search.display:
                search.value = ""
                search.display = False
                body.styles.min_height = None
                self.on_resize()
                body.focus()
            case "enter" if search.has_focus:
                body.focus()
            case "up" | "down" | "pageup" | "pagedown":
                _SCROLLS[key](body)
            case _ if search.has_focus:
                return KeyUse.TYPES
            case "/":
                # The window keeps its size while one types, and the field takes a line of the text.
                body.styles.max_height = body.styles.min_height = max(1, body.size.height - 1)
                search.display = True
                search.focus()
            case "y":
                copy(self.app, self._text, "this text")
            case _ if key in _SCROLLS:
                _SCROLLS[key](body)
            case _:
                return KeyUse.UNKNOWN
        return KeyUse.ACTS


_SCROLLS: dict[str, Callable[[VerticalScroll], None]] = {
    "up": lambda body: body.scroll_up(animate=False),
    "down": lambda body: body.scroll_down(animate=False),
    "pageup": lambda body: body.scroll_page_up(animate=False),
    "pagedown": lambda body: body.scroll_page_down(animate=False),
    "k": lambda body: body.scroll_up(animate=False),
    "j": lambda body: body.scroll_down(animate=False),
    "g": lambda body: body.scroll_home(animate=False),
    "G": lambda body: body.scroll_end(animate=False),
}


def found_in(text: str, wanted: str) -> str:
    """Return the lines that contain `wanted` in any case, each below the lines that it is indented under.

    In "Keys", "  a  add", "  b  bold", "  c  bolder", what contains "bold" is "Keys", "  b  bold", "  c  bolder".
    """
    if not wanted:
        return text
    above: list[str] = []
    """The lines that the present one is indented under, without those returned."""
    found: list[str] = []
    for line in text.split("\n"):
        above = [other for other in above if _indent(other) < _indent(line)] if line.strip() else []
        if wanted.casefold() not in line.casefold():
            above += [line] if line.strip() else []
            continue
        shown = [*above, line]
        if found and not _indent(shown[0]):
            found.append("")
        found += shown
        above = []  # They are returned once. Lines found next under them follow.
    return "\n".join(found)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


class HangingText(Static):
    """Shows sanitised text, wrapped to its width. Text is never read as markup."""

    def __init__(self, text: str, *, draw: Callable[[str], Content] = Content, id: str | None = None) -> None:
        super().__init__(draw(text), id=id)
        self._text = text
        self._draw = draw
        self._wrapped_width = 0
        """The cells that the text was wrapped for."""

    def show(self, text: str) -> None:
        """Show another text."""
        self._text = text
        self._wrap()

    def on_resize(self, event: events.Resize) -> None:
        """Wrap the text again for a new width."""
        if self.content_size.width != self._wrapped_width:
            self._wrap()

    def _wrap(self) -> None:
        self._wrapped_width = width = self.content_size.width
        if width:
            self.update(self._draw("\n".join(hanging(line, width=width) for line in self._text.split("\n"))))


def key_table(text: str) -> Content:
    """Return a table of keys or commands with bold headings and, as in legends, its first column in the accent."""
    lines = []
    for line in text.split("\n"):
        drawn, indent, gap = Content(line), len(line) - len(line.lstrip()), _COLUMN_GAP.search(line)
        if not indent:
            drawn = drawn.stylize("bold")
        elif gap is not None:
            drawn = drawn.stylize("bold $text-accent", indent, gap.start() + 1)
        lines.append(drawn)
    return Content("\n").join(lines)


def hanging(line: str, *, width: int) -> str:
    """Return `line` wrapped at words into lines of at most `width` cells. Further lines are indented to its column."""
    if cell_len(line) <= width:
        return line
    begin, first_gap = _hanging_start(line, width=width), _COLUMN_GAP.search(line)
    before, hang = line[:begin], cell_len(line[:begin])
    if first_gap is not None and begin < first_gap.end():
        # No room beside the first column: "name     what it does" becomes "name  what it", and "does" stands below it.
        line, hang = f"{line[: first_gap.start() + 1]}  {line[first_gap.end() :]}", hang + _BELOW_INDENT
    parts = wrap(Text(line[begin:]), width=width - hang)
    return "\n".join(part.plain for part in prefixed(parts, first=Text(before), rest=Text(" " * hang)))


def _hanging_start(line: str, *, width: int) -> int:
    """Return where the hanging text starts, as far right as the width allows.

    This is after the indentation and list sign, or after a later column.
    """
    indentation = _INDENTATION.match(line)
    ends = [indentation.end() if indentation is not None else 0, *(found.end() for found in _COLUMN_GAP.finditer(line))]
    return max((end for end in ends if cell_len(line[:end]) <= min(2 * width // 3, width - _MIN_WRAPPED)), default=0)
