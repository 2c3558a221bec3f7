"""The page of ``/diff``: each file that a session changed, with the diff from before to now. It decides nothing."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Static

from chatops.domain.wording import plural
from chatops.tui.dialogs.diff_rows import DiffRows, missing_columns
from chatops.tui.dialogs.modal import Legend, Page
from chatops.tui.dialogs.payload import PayloadView, dialog_theme
from chatops.tui.dialogs.rows import Description, Row, line
from chatops.tui.keys import BACK, SCROLL, KeyHint
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from chatops.contained.text import Change

COMMANDS_ARE_MISSING = "What commands (shell, Python) changed is not shown here: see !git diff."
_ELSEWHERE = "also changed outside this session"


def titled(change: "Change", diff: DiffRows) -> str:
    """Return the line about a change that ``/diff`` and the dialogs share: what happened, to which file, how much."""
    return f"{line(change.title)}  {diff.counts if change.diff else ''}".rstrip()


class ChangesScreen(Page):
    """Shows the changes of files, all below each other."""

    CSS_PATH = "dialogs.tcss"

    def __init__(self, title: str, changes: "Sequence[Change]", *, note: str = COMMANDS_ARE_MISSING) -> None:
        super().__init__()
        self._title = title
        self._changes = changes
        self._note = note
        self._diffs: list[DiffRows] = []
        self._starts: list[int] = []
        """The first row of each file."""
        self._side_by_side = False

    def compose(self) -> ComposeResult:
        """Yield heading, changes and keys."""
        with Vertical(id="changes"):
            yield Static("", id="changes-title")
            yield PayloadView(id="changes-payload")
            yield Legend(id="changes-keys")

    def on_mount(self) -> None:
        """Draw in the colours of the theme, also when it is changed."""
        self._draw()
        self.app.theme_changed_signal.subscribe(self, lambda _: self._draw())

    def on_resize(self) -> None:
        """Leave side by side where there is no room for it, and offer it where there is."""
        if self._side_by_side and missing_columns(self.size.width):
            self._toggle_sides()
        self._show_keys()

    def on_key(self, event: events.Key) -> None:
        """Scroll, go to another file, or close."""
        view = self.query_one(PayloadView)
        match event.character if event.is_printable else event.key:
            case "escape" | "q" | "enter":
                self.dismiss("")
            case "tab" | "n" | "right":
                self._go(1)
            case "shift+tab" | "p" | "left":
                self._go(-1)
            case "|":
                self._toggle_sides()
            case "up" | "k":
                view.scroll_up(animate=False)
            case "down" | "j":
                view.scroll_down(animate=False)
            case "pageup":
                view.page(-1)
            case "pagedown" | " ":
                view.page(1)
            case "home" | "g":
                view.scroll_home(animate=False)
            case "end" | "G":
                view.scroll_end(animate=False)
            case _:
                self.typed(event, meant=False)
                return
        self.typed(event, meant=True)
        event.stop()
        event.prevent_default()

    def _go(self, by: int) -> None:
        """Scroll to the next file, or to the previous one, and past the last one to the first."""
        view = self.query_one(PayloadView)
        top, at_end = view.top_row, view.scroll_offset.y >= view.max_scroll_y
        after = [start for start in self._starts if start > top and not at_end]
        before = [start for start in self._starts if start < top]
        view.show_row(next(iter(after), 0) if by > 0 else next(reversed(before), self._starts[-1] if not top else 0))

    def _toggle_sides(self) -> None:
        if not self._side_by_side and (missing := missing_columns(self.size.width)):
            show_notice(self.app, missing)
            return
        self._side_by_side = not self._side_by_side
        self._show()

    def _draw(self) -> None:
        theme = dialog_theme(self.app)
        self._diffs = [DiffRows(one.diff, name=one.path, theme=theme) for one in self._changes]
        added, removed = sum(one.added for one in self._diffs), sum(one.removed for one in self._diffs)
        counts = f"{plural(len(self._changes), 'file')}, +{added} {theme.symbols.minus}{removed}"
        heading = Content.styled(f"{line(self._title)}: {counts}", "bold")
        self.query_one("#changes-title", Static).update(heading)
        self._show()

    def _show(self) -> None:
        rows = tuple(self._rows())
        self._starts = [at for at, row in enumerate(rows) if row.tone == "heading"]
        self.query_one(PayloadView).show(Description(rows=rows, payload=len(rows)), key="changes", seen=True)
        self._show_keys()

    def _show_keys(self) -> None:
        files = [KeyHint("n p", "next, previous file")] if len(self._changes) > 1 else []
        sides = [KeyHint("|", "one column" if self._side_by_side else "side by side")]
        self.query_one(Legend).show(BACK, *files, *([] if missing_columns(self.size.width) else sides), SCROLL)

    def _rows(self) -> Iterator[Row]:
        yield Row(text=self._note, tone="quiet")
        for one, diff in zip(self._changes, self._diffs, strict=True):
            yield Row()
            yield Row(text=titled(one, diff), tone="heading")
            if one.elsewhere:
                yield Row(text=_ELSEWHERE, tone="caution")
            yield from (Row(text=line(text.strip()), tone="quiet", exact=True) for text in one.lines)
            yield from diff.rows(side_by_side=self._side_by_side)
