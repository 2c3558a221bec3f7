"""The page of ``/diff`` and of an undo: each changed file with its diff, all below each other. It decides nothing."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Offset

from chatops.domain.wording import plural
from chatops.toolkit.counting import count_work
from chatops.tui.dialogs.modal import TALL, KeyUse, Legend, Page, Title
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import Description, DiffRows, Row, line, too_narrow_for_sides
from chatops.tui.keys import BACK, SCROLL, KeyHint
from chatops.tui.notice import show_notice
from chatops.tui.theme import BlockTheme, theme_of

if TYPE_CHECKING:
    from chatops.contained.text import Change

COMMANDS_ARE_MISSING = "What commands (shell, Python) changed is not shown here."
SEE_GIT_DIFF = f"{COMMANDS_ARE_MISSING[:-1]}: see !git diff."
_LINES_AROUND = 6
"""Lines of the window outside the changes: the frame, the keys, the empty lines between them."""
_USUAL_CELLS = 105
"""Cells of a line up to which the window keeps its usual width."""
_ALSO_CHANGED_ELSEWHERE = "also changed outside this session"


def change_title(change: "Change", diff: DiffRows) -> str:
    """Return the line about a change in ``/diff`` and in dialogs: what happened, to which file, and how much."""
    return f"{line(change.title)}  {diff.counts if change.diff else ''}".rstrip()


class ChangesScreen(Page):
    """Shows the changes of files, all below each other."""

    CSS_PATH = "dialogs.tcss"

    def __init__(self, title: str, changes: "Sequence[Change]", *, note: str = SEE_GIT_DIFF) -> None:
        super().__init__()
        self._title = title
        self._changes = changes
        self._note = note
        """The first line, which says what is not shown here."""
        self._diffs: list[DiffRows] = []
        """The diff of each change, in their order."""
        self._heading_rows: list[int] = []
        """The number of each file's first row."""
        self._side_by_side = False
        self._prepared: tuple[BlockTheme, tuple[Row, ...]] | None = None
        """The rows in one column for a theme, if they were made beforehand."""

    def prepare(self, theme: BlockTheme) -> None:
        """Make the rows before the screen is opened. Large files take seconds: call it in a thread. Counts its work."""
        with count_work("drawing the changes", unit="line") as counter:
            self._make_diffs(theme)
            counter.expect(sum(diff.length for diff in self._diffs))
            rows = []
            for row in self._rows():
                rows.append(row)
                counter.add()
        self._prepared = theme, tuple(rows)

    def _make_diffs(self, theme: BlockTheme) -> None:
        self._diffs = [DiffRows(change.diff, name=change.path, theme=theme) for change in self._changes]

    def compose(self) -> ComposeResult:
        """Yield heading, changes and keys."""
        with Vertical(id="changes"):
            yield Title(self._title)
            yield PayloadView(id="changes-payload")
            yield Legend(id="changes-keys")

    def on_mount(self) -> None:
        """Draw in the colours of the theme, also when it is changed."""
        self._draw()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it, and offer it where there is."""
        if self._side_by_side and too_narrow_for_sides(self.size.width):
            self._toggle_sides()
        self._show_keys()
        self.fit()

    @on(PayloadView.Wrapped)
    def fit(self) -> None:
        """Make the window as large as the changes: a few lines leave the transcript in view."""
        view = self.query_one(PayloadView)
        self.query_one("#changes").set_class(self._side_by_side or view.widest > _USUAL_CELLS, "-wide")
        view.styles.height = (
            min(view.total_lines, self.size.height - _LINES_AROUND) if self.size.height >= TALL else None
        )

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the first line in view; None before there is one."""
        return views.first().content_region.offset if (views := self.query(PayloadView)) else None

    def act_on_key(self, key: str) -> KeyUse:
        """Scroll, or go to another file."""
        match key:
            case "tab" | "n" | "right":
                self._go_next()
            case "shift+tab" | "p" | "left":
                self._go_previous()
            case "|":
                self._toggle_sides()
            case _:
                scrolled = self.query_one(PayloadView).scroll_by_key("space" if key == " " else key)
                return KeyUse.ACTS if scrolled else KeyUse.UNKNOWN
        return KeyUse.ACTS

    def _go_next(self) -> None:
        """Scroll to the next file, after the last one to the top."""
        view = self.query_one(PayloadView)
        at_end = view.scroll_offset.y >= view.max_scroll_y
        below = (row for row in self._heading_rows if row > view.top_row and not at_end)
        view.show_row(next(below, 0))

    def _go_previous(self) -> None:
        """Scroll to the previous file, from the top to the last one."""
        view = self.query_one(PayloadView)
        above = (row for row in reversed(self._heading_rows) if row < view.top_row)
        view.show_row(next(above, 0) if view.top_row else self._heading_rows[-1])

    def _toggle_sides(self) -> None:
        if not self._side_by_side and (reason := too_narrow_for_sides(self.size.width)):
            show_notice(self.app, reason)
            return
        self._side_by_side = not self._side_by_side
        self._show()

    def _draw(self) -> None:
        theme = theme_of(self.app)
        if self._prepared is None or self._prepared[0] != theme:
            self._prepared = None
            self._make_diffs(theme)
        added, removed = sum(diff.added for diff in self._diffs), sum(diff.removed for diff in self._diffs)
        counts = f"{plural(len(self._changes), 'file')}, +{added} {theme.symbols.minus}{removed}"
        self.query_one(Title).show(f"{self._title}: {counts}")
        self._show()

    def _show(self) -> None:
        rows = self._prepared[1] if self._prepared is not None and not self._side_by_side else tuple(self._rows())
        self._heading_rows = [number for number, row in enumerate(rows) if row.tone == "heading"]
        self.query_one(PayloadView).show(Description(rows=rows, payload=len(rows)), key="changes", seen=True)
        self._show_keys()
        self.fit()

    def _show_keys(self) -> None:
        keys = [BACK]
        if len(self._changes) > 1:
            keys.append(KeyHint("n p", "next, previous file"))
        if not too_narrow_for_sides(self.size.width):
            keys.append(KeyHint("|", "one column" if self._side_by_side else "side by side"))
        self.query_one(Legend).show(*keys, SCROLL)

    def _rows(self) -> Iterator[Row]:
        yield Row(text=self._note, tone="quiet")
        for change, diff in zip(self._changes, self._diffs, strict=True):
            yield Row()
            yield Row(text=change_title(change, diff), tone="heading")
            if change.elsewhere:
                yield Row(text=_ALSO_CHANGED_ELSEWHERE, tone="caution")
            yield from (Row(text=line(text.strip()), tone="quiet", exact=True) for text in change.lines)
            yield from diff.rows(side_by_side=self._side_by_side)
