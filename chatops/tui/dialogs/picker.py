"""A list to choose from, filtered by typing; the base of the role switcher and the session list."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from rich.cells import cell_len
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import cut
from chatops.tui.dialogs.modal import TALL, Legend, Modal, Title
from chatops.tui.keys import BACK, KeyHint, key_label
from chatops.tui.text_fields import LineField

MAX_SHOWN = 200
"""Maximum rows in the list. Users filter longer lists, and more rows would slow every key."""

_PREVIEW_LINES = 4
"""Lines of a preview at most; also in dialogs.tcss."""
_LINES_AROUND = 13
"""Lines of the dialog outside its list, plus one for notices."""
_MIN_WIDTH, _MAX_WIDTH = 80, 110
"""Cells of the window: at least a usual terminal, so that none shows parts of words beside it."""
_BETWEEN_LETTERS = re.compile(r"[\W_]+")
_CELLS_BESIDE = 9
"""Cells of the window beside the text of a row: its mark, the scrollbar, the frame."""


@frozen_dataclass
class Choice:
    """One choice. The filter searches `find`; `preview` is shown while the choice is highlighted."""

    key: str
    text: str
    find: str
    preview: str = ""
    current: bool = False
    role: str = ""
    """The role whose name its text begins with, which is drawn in its colour; empty: it is no role."""
    accent: int = 0
    """Number of characters at the start of its text that are drawn in the accent."""


class _Filter(LineField):
    """The filter of a picker. A key that acts on a row is posted behind the text that was typed before it."""

    @dataclass
    class RowKey(Message):
        """A key of `Picker.row_keys`."""

        key: str
        is_early: bool
        """True if it was pressed before the list was drawn."""

    drawn_at = math.inf
    """Monotonic seconds just before the list was drawn for the first time."""

    def on_show(self, event: events.Show) -> None:
        """Take note of the time."""
        self.drawn_at = min(event.time, self.drawn_at)

    async def on_key(self, event: events.Key) -> None:
        """Post a key that acts on a row, and edit the text with any other."""
        if event.key in cast("Picker", self.screen).row_keys:
            self.post_message(self.RowKey(event.key, is_early=event.time < self.drawn_at))
            event.stop()
            event.prevent_default()


class Picker(Modal[str | None]):
    """Up and Down move, Enter or a click chooses, Esc cancels (result None).

    A key that was pressed before the list was on the screen types, moves and cancels, but chooses only a row whose name
    was typed whole. The same holds for a click.
    """

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#picker-filter"

    def __init__(
        self,
        title: str,
        *,
        choices: Sequence[Choice],
        unfiltered: Sequence[Choice] = (),
        hint: Sequence[KeyHint] = (),
        empty: str = "Nothing here.",
        on_move: Callable[[str], str] | None = None,
        wanted: str = "",
    ) -> None:
        """Create the picker. `wanted` is in its filter at first.

        `unfiltered` is listed instead of `choices` while no filter is typed. `on_move` is called with the highlighted
        key, and with the current one after Esc. It returns the preview.
        """
        super().__init__()
        self._on_move = on_move
        self._wanted_first = wanted
        self._title = title
        self.choices = tuple(choices)
        """All choices, in their order."""
        self._unfiltered = tuple(unfiltered)
        self._shown: tuple[Choice, ...] = ()
        self._marked: int | None = None
        """The row that has the sign of the highlighted one."""
        self._hint = hint
        self._empty = empty

    def compose(self) -> ComposeResult:
        """Yield title, filter, list, preview and keys."""
        with Vertical(id="picker"):
            yield Title(self._title)
            yield _Filter(placeholder="type to filter", id="picker-filter", compact=True)
            yield OptionList(id="picker-list", compact=True, markup=False)
            yield Static("", id="picker-preview", markup=False)
            yield Legend(*self.keys, id="picker-keys")

    @property
    def keys(self) -> Sequence[KeyHint]:
        """The legend of keys."""
        return KeyHint("enter", "chooses"), BACK, *self._hint

    @property
    def row_keys(self) -> Mapping[str, Callable[[], None]]:
        """Actions on the highlighted row, by key. A click on it has the key `click`."""
        return {"enter": self.take, "click": self.take}

    @property
    def start(self) -> str:
        """The choice that is highlighted at first if none is the current one; empty for the first."""
        return ""

    @property
    def preview_lines(self) -> int:
        """Height of the preview, if it is always the same; 0: that of its text, at most `_PREVIEW_LINES`."""
        return 0

    def on_mount(self) -> None:
        """Highlight the current choice, and put the words that were given into the filter."""
        self.query_one(OptionList).can_focus = False
        self._fill("")
        if self._wanted_first:
            self.query_one(Input).insert_text_at_cursor(self._wanted_first)

    def on_resize(self) -> None:
        """Limit the list's height, so that preview and keys stay on screen. The window is as wide as its texts."""
        tall, lines, preview = self.size.height >= TALL, self.preview_lines, self.query_one("#picker-preview")
        room = self.size.height - _LINES_AROUND - max(0, lines - _PREVIEW_LINES)
        options = self.query_one(OptionList)
        options.styles.min_height, options.styles.max_height = None, min(12, room) if tall else None
        preview.styles.height = preview.styles.max_height = lines if tall and lines else None
        choices = (*self.choices, *self._unfiltered)
        texts = [line for choice in choices for line in (choice.text, *choice.preview.split("\n"))]
        widest = max(map(cell_len, texts), default=0) + _CELLS_BESIDE
        self.query_one("#picker").styles.max_width = min(max(widest, _MIN_WIDTH), _MAX_WIDTH) if tall else None

    @on(Input.Changed)
    def filter_changed(self, event: Input.Changed) -> None:
        """Show the matching choices. The window keeps its size while one types."""
        options = self.query_one(OptionList)
        options.styles.min_height = options.size.height
        self._fill(event.value.strip())

    @on(_Filter.RowKey)
    def act_on_row(self, event: _Filter.RowKey) -> None:
        """Do what a key does with the highlighted row."""
        choice, typed = self.highlighted_choice, self.query_one(Input).value.strip()
        if not event.is_early or (choice is not None and choice.find.split()[:1] == [typed]):
            self.row_keys[event.key]()
        else:
            self.show_text(f"not taken: {key_label(event.key)}, too early")

    def take(self) -> None:
        """Choose the highlighted row (Enter)."""
        if (choice := self.highlighted_choice) is not None:
            self.choose(choice.key)

    @on(OptionList.OptionSelected)
    def clicked(self) -> None:
        """Choose the clicked row, which the click has highlighted."""
        self.act_on_row(_Filter.RowKey("click", is_early=self.mouse_down_at < self.query_one(_Filter).drawn_at))

    @on(OptionList.OptionHighlighted)
    def highlighted(self, event: OptionList.OptionHighlighted) -> None:
        """Mark the row, and show what this choice would change."""
        self._mark(event.option_index)
        self._preview(event.option_index)

    def _mark(self, at: int) -> None:
        """Put the sign of the highlighted row before row `at` only, so that it is not told by colour alone."""
        options = self.query_one(OptionList)
        for index in {self._marked, at}:
            if index is not None and index < len(self._shown):
                row = _choice_row(self._shown[index], self._colours, marked=index == at)
                options.replace_option_prompt_at_index(index, row)
        self._marked = at

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the highlighted row; None, which is the filter, without one."""
        if not self._shown:
            return None
        options = self.query_one(OptionList)
        return options.content_region.offset + Offset(0, (options.highlighted or 0) - options.scroll_offset.y)

    @property
    def highlighted_choice(self) -> Choice | None:
        """The choice that Enter takes, if there is one."""
        at = self.query_one(OptionList).highlighted
        return self._shown[at] if at is not None and at < len(self._shown) else None

    def on_key(self, event: events.Key) -> None:
        """Move in the list with arrow keys while the filter has the cursor."""
        options = self.query_one(OptionList)
        match event.key:
            case "escape":
                self.go_back()
            case "up":
                options.action_cursor_up()
            case "down":
                options.action_cursor_down()
            case "pageup" | "pagedown" if not self._shown:
                # Textual's list does not expect to be empty.
                pass
            case "pageup":
                options.action_page_up()  # type: ignore[no-untyped-call]
            case "pagedown":
                options.action_page_down()  # type: ignore[no-untyped-call]
            case _:
                return
        event.stop()
        event.prevent_default()

    def choose(self, key: str) -> None:
        """Handle Enter: close the picker with this choice."""
        self.dismiss(key)

    def go_back(self) -> None:
        """Handle Esc: close the picker without a choice."""
        self._undo_moves()
        self.dismiss(None)

    def _fill(self, wanted: str) -> None:
        found = self.matching(wanted)
        self._shown = _first_with_current(found)
        options = self.query_one(OptionList)
        self._marked = None
        options.clear_options()
        options.add_options([Option(_choice_row(choice, self._colours)) for choice in self._shown])
        if (left := len(found) - len(self._shown)) > 0:
            options.add_option(Option(f"   … and {left} more: type to filter", disabled=True))
        if self._shown:
            start = next((choice.key for choice in self._shown if choice.current), self.start)
            at = next((at for at, choice in enumerate(self._shown) if choice.key == start), 0)
            options.highlighted = 0 if wanted else at
            self._preview(options.highlighted or 0)
        else:
            self.query_one("#picker-preview", Static).update(Content(self._empty))

    def matching(self, wanted: str) -> list[Choice]:
        """Return the choices with all words of a text, those first that have them first. All match an empty one."""
        if not wanted:
            return list(self._unfiltered or self.choices)
        words = wanted.casefold().split()
        places = [[_place(word, choice.find) for word in words] for choice in self.choices]
        found = [(at[0], choice) for at, choice in zip(places, self.choices, strict=True) if min(at) >= 0]
        return [choice for _, choice in sorted(found, key=lambda pair: pair[0])]

    def refill(self) -> None:
        """List the choices again after they have changed. The same one stays highlighted, or the one in its place."""
        options, before = self.query_one(OptionList), self.highlighted_choice
        index = options.highlighted or 0
        self._fill(self.query_one(Input).value.strip())
        kept = (at for at, choice in enumerate(self._shown) if before is not None and choice.key == before.key)
        if self._shown:
            options.highlighted = next(kept, min(index, len(self._shown) - 1))

    def describe(self, choice: Choice) -> str:
        """Return what is shown of a choice while it is highlighted."""
        return choice.preview if self._on_move is None else self._on_move(choice.key)

    def show_preview(self) -> None:
        """Show the preview of the highlighted choice again."""
        if self.is_attached and (choice := self.highlighted_choice) is not None:
            self.show_text(self.describe(choice))

    def show_text(self, text: str) -> None:
        """Show a text in place of the preview."""
        self.query_one("#picker-preview", Static).update(Content(sanitize(text)))

    @property
    def _colours(self) -> Mapping[str, str]:
        return getattr(self.app, "role_colours", {})

    def _preview(self, at: int) -> None:
        if at < len(self._shown):
            self.show_text(self.describe(self._shown[at]))

    def _undo_moves(self) -> None:
        """Undo what moving has shown: call `on_move` for the current choice."""
        current = next((choice for choice in self.choices if choice.current), None)
        if self._on_move is not None and current is not None:
            self._on_move(current.key)


def _first_with_current(found: Sequence[Choice]) -> tuple[Choice, ...]:
    """Return the first `MAX_SHOWN` choices. The current one comes first if it would not be among them."""
    shown = tuple(found[:MAX_SHOWN])
    current = next((choice for choice in found[MAX_SHOWN:] if choice.current), None)
    return shown if current is None else (current, *shown[:-1])


def _place(word: str, text: str) -> int:
    """Return the place of a word in `text`, or in its letters and digits alone (gpt4 in GPT-4); -1 if it has none."""
    text = text.casefold()
    return text.find(word) if word in text else _BETWEEN_LETTERS.sub("", text).find(word)


def _choice_row(choice: Choice, colours: Mapping[str, str], *, marked: bool = False) -> Content:
    mark = f"{'>' if marked else ' '}{'*' if choice.current else ' '} "
    row = Content.styled(mark + sanitize(choice.text, newlines=False), "bold" if choice.current else "")
    if colour := colours.get(choice.role):
        row = row.stylize(f"bold {colour}", len(mark), len(mark) + len(choice.role))
    return row.stylize("bold $text-accent", len(mark), len(mark) + choice.accent) if choice.accent else row


def table(rows: Sequence[tuple[str, ...]], *, most: Sequence[int]) -> list[str]:
    """Return each row with its cells in columns as wide as their texts, up to `most`."""
    widths = [min(limit, max(map(len, column))) for limit, column in zip(most, zip(*rows, strict=True), strict=True)]
    return [columns(*zip(row, widths, strict=True)) for row in rows]


def columns(*cells: tuple[str, int]) -> str:
    """Return the texts padded or cut to their widths, two spaces apart."""
    parts = []
    for text, width in cells:
        flat = sanitize(text, newlines=False)
        parts.append(cut(flat, most=width).ljust(width))
    return "  ".join(parts).rstrip()
