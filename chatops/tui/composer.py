"""The message field: several lines, history at the edges, folded pastes, completion of / and @.

It knows nothing about sessions. It posts what was typed, and the screen decides what that means.
"""

import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from rich.cells import cell_len
from textual import events
from textual.color import Color
from textual.content import Content
from textual.message import Message
from textual.widgets import Static, TextArea

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import cut, plural
from chatops.tui.keys import key_of
from chatops.tui.notice import plain
from chatops.tui.text_fields import TextField, types_invisible
from chatops.tui.textual_internals import ErrorBoundary

_MAX_HEIGHT_DIVISOR = 3
"""The field grows to this part of the screen: a third."""
ALONE_S = 0.35
"""Seconds after which a letter that stands alone in the field counts as a key. Until then it may start a text."""
_PAUSE_S = 0.5
"""Seconds without a key after which the user is not in the middle of a word."""
_FOLD_LINES, _FOLD_CHARACTERS = 10, 2_000
"""Lines and characters of the longest paste that stands in the field as it is."""
_FOLDED_PASTE = r"\[pasted (\d+) lines?, [^\]#]* #(\d+)\]"
"""Pattern of what stands in the field for a longer paste."""
MAX_SHOWN = 6
"""Maximum lines of the list of completions."""
_RUN_BETWEEN_TURNS = ("!", "/undo", "/compact")
"""Beginnings of commands that are refused while a turn runs."""
_LINES_AROUND = 4
"""Lines of the window that are not for the list: the message field, the status line and some of the transcript."""
_ARGUMENTS_WIDTH = 70
"""Columns below which a command is listed without its arguments."""
_TEXT_WIDTH = 24
"""Maximum width of a text beside its note, in cells, so that a long syntax does not push the notes away."""


@frozen_dataclass
class Completion:
    """One completion: the text to insert, the text to show, and a note."""

    insert: str
    text: str
    note: str = ""


class Completions(ErrorBoundary, Static):
    """Shows up to `MAX_SHOWN` completions around the highlighted one. Never takes the focus."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__("", id=id, markup=False)
        self.display = False
        self._items: tuple[Completion, ...] = ()
        self._at: int | None = None
        """The highlighted completion."""
        self._note = ""

    @property
    def current(self) -> Completion | None:
        """The highlighted completion, or None if none is or the list is closed."""
        return self._items[self._at] if self.display and self._items and self._at is not None else None

    def offer(self, items: Sequence[Completion], *, highlight: bool = True, note: str = "") -> None:
        """Show these completions, the first one highlighted if wanted, and a note below them.

        Without completions and note the list is closed.
        """
        self._items = tuple(items)
        self._note = note
        self._at = 0 if highlight else None
        self.display = bool(items or note)
        self.screen.set_class(self.display, "-completing")
        self._draw()

    def move(self, by: int) -> None:
        """Move the highlight by `by` entries, wrapping around."""
        if self._items:
            # From no entry, Down leads to the first one and Up to the last.
            before = self._at if self._at is not None else min(0, -by)
            self._at = (before + by) % len(self._items)
            self._draw()

    def _draw(self) -> None:
        count = len(self._items)
        max_lines = max(2, min(MAX_SHOWN, self.screen.size.height - _LINES_AROUND))
        # The last line counts where not all fit.
        room = max_lines if count <= max_lines else max_lines - 1
        first = max(0, min((self._at or 0) - room + 1, count - room))
        shown = self._items[first : first + room]
        # Where there is little room, what a command does says more than its arguments.
        is_narrow = self.screen.size.width < _ARGUMENTS_WIDTH
        names = [item.text.split(" ")[0] if item.note and is_narrow else item.text for item in shown]
        texts = [cut(name, most=_TEXT_WIDTH) if item.note else name for item, name in zip(shown, names, strict=True)]
        width = min(max(map(cell_len, texts), default=0), _TEXT_WIDTH)
        lines = []
        for offset, (item, shown_text) in enumerate(zip(shown, texts, strict=True)):
            is_current = first + offset == self._at
            gap = " " * (width - cell_len(shown_text))
            text = f"{'>' if is_current else ' '} {shown_text}{gap}  {item.note}".rstrip()
            lines.append(Content.styled(text, "bold" if is_current else ""))
        if count > room:
            place = f"{self._at + 1} of {count}" if self._at is not None else f"{count} in all"
            lines.append(Content(f"  {place}, Down for more"))
        if self._note:
            lines.append(Content(f"  {self._note}"))
        self.update(Content("\n").join(lines))


@dataclass(eq=False, repr=False, slots=True)
class Folds:
    """The pastes of the message being written, by the number in the item for each. No number is used twice."""

    _texts: dict[int, str] = field(default_factory=dict)
    _count: int = 0

    def fold(self, text: str) -> str:
        """Return the text to insert for a paste: the paste itself if short, otherwise an item in its place."""
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _FOLD_LINES and len(text) <= _FOLD_CHARACTERS:
            return text
        self._count += 1
        self._texts[self._count] = text
        return f"[pasted {plural(lines, 'line')}, {_size_words(text)} #{self._count}]"

    def unfold(self, text: str) -> str:
        """Return `text` with each known item replaced by its paste. Anything else stays as typed."""
        return re.sub(_FOLDED_PASTE, lambda found: self._texts.get(int(found[2]), found[0]), text)

    def clear(self) -> None:
        """Forget the pastes after the message was sent."""
        self._texts.clear()


@dataclass(eq=False, repr=False, slots=True)
class History:
    """The texts that Up recalls, oldest first."""

    texts: list[str] = field(default_factory=list)
    _recalled: int | None = None
    """Index of the text that Up has recalled; None if none is."""
    _unsent: str = ""
    """Text typed before Up recalled another. Down comes back to it."""

    @property
    def is_recalled(self) -> bool:
        """True while a text of the history is shown."""
        return self._recalled is not None

    def add(self, text: str) -> None:
        """Add the newest text. The same text twice in a row is kept once."""
        if text.strip() and self.texts[-1:] != [text]:
            self.texts.append(text)
        self.leave()

    def leave(self) -> None:
        """Recall no text any more: Up begins with the newest one again."""
        self._recalled = None

    def move(self, by: int, *, typed: str) -> str:
        """Return the text `by` places further on. After the newest one, what was `typed` follows."""
        if self._recalled is None:
            self._unsent = typed
        end = len(self.texts)
        at = max(0, min(end, by + (end if self._recalled is None else self._recalled)))
        self._recalled = at if at < end else None
        return self.texts[at] if at < end else self._unsent


class Composer(TextField):
    """A text area that sends on Enter."""

    @dataclass(eq=False, repr=False)
    class Submitted(Message):
        """Posted when the user sends `text`, with pastes in full. `correcting`: interrupt the turn with it (ctrl+s)."""

        text: str
        correcting: bool

    class Stop(Message):
        """Posted on Esc: stop the answer."""

    class Retry(Message):
        """Posted on R typed alone."""

    class ImageWanted(Message):
        """Posted to attach the image on the clipboard."""

    @dataclass(eq=False, repr=False)
    class QueueKey(Message):
        """Posted for a key that changes or sends the queue, with nothing typed."""

        key: str

    class Quit(Message):
        """Posted on ctrl+d with nothing typed."""

    @dataclass(eq=False, repr=False)
    class TranscriptKey(Message):
        """Posted for a key that scrolls the transcript, or selects, opens or copies a block of it."""

        key: str

    @dataclass(eq=False, repr=False)
    class CompletionRequested(Message):
        """Posted when completions may be needed. `key` is empty if the text changed, otherwise the key pressed."""

        key: str = ""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.monotonic,
        may_send: Callable[[str], bool] = lambda text: True,
        id: str | None = None,
    ) -> None:
        """Create the field. `may_send` returns False for a text that stays in it on Enter."""
        super().__init__(
            id=id,
            compact=True,
            highlight_cursor_line=False,
            placeholder=f"Message (Enter sends, {key_of('newline')} newline, / commands)",
            show_line_numbers=False,
        )
        self.clock = clock
        self.typed_at: float | None = None
        """Time of the last key typed here; None after sending, when the user is not in the middle of a word."""
        self.keys_while_running = ""
        """The keys that send a text while a turn runs, such as ``Enter queues``; empty while none runs."""
        self._may_send = may_send
        self._model = ""
        self.retry_offered = False
        """True if R typed alone retries the turn."""
        self.sent_in_view = ""
        """The text sent last, if all of it was on screen."""
        self.queue_offered = False
        """True if Up with nothing typed takes back a queued message."""
        self.block_selected = False
        """True if y typed alone, and Esc, concern the selected block of the transcript."""
        self.opens_by = ""
        """The key that opens more of the selected block, with nothing typed: `o` or Enter."""
        self.refused_text = ""
        """The text that the app has put back and selected; what is typed next replaces it."""
        self.placed_text = ""
        """The text that was put into the field as a whole, such as one of the history. It is not completed."""
        self._offered_text = ""
        """The text to send again that a command has put into the field."""
        self._withdrawn_text = ""
        """The offered text in whose place a command is typed. It comes back once the field is empty."""
        self.popup_open = False
        """True if Up, Down, Tab, Enter and Esc go to the list of completions first."""
        self._letter: Message | None = None
        """Meaning of the letter in the field if no further key follows."""
        self._folds = Folds()
        self._history = History()

    # Used by the screen

    @property
    def idle(self) -> bool:
        """True if nothing is typed and the user has `paused`."""
        return not self.text and self.paused

    @property
    def paused(self) -> bool:
        """True if no key came in the last `_PAUSE_S`, or none since a message was sent."""
        return self.typed_at is None or self.clock() - self.typed_at >= _PAUSE_S

    @property
    def full_text(self) -> str:
        """The text that would be sent, with pastes in full."""
        return self._folds.unfold(self.text)

    @property
    def selected_text(self) -> str:
        """The selected text, with pastes in full."""
        return self._folds.unfold(super().selected_text)

    def set_history(self, entries: Sequence[str]) -> None:
        """Set the texts that Up recalls, oldest first."""
        self._history = History(list(entries))

    def add_history(self, text: str) -> None:
        """Add the newest history entry. The same text twice in a row is kept once."""
        self._history.add(text)

    def recall(self) -> None:
        """Show the message sent before."""
        if self._history.texts:
            self._browse(-1)

    def set_text(self, text: str) -> None:
        """Replace what is typed. Long text is folded."""
        self._folds.clear()
        self.load_text(self._folds.fold(plain(text)))
        self.placed_text = self.text
        self.move_cursor(self.document.end)

    def offer_text(self, text: str) -> None:
        """Replace what is typed by a text to send again. A command typed right after it is typed in its place."""
        self.set_text(text)
        self._offered_text, self._withdrawn_text = self.text, ""

    def _withdraw_offer(self, character: str) -> None:
        """Take the offered text out if a command starts, which would be appended to it otherwise."""
        if character == "/" and self.text and self.text == self._offered_text:
            self._withdrawn_text = self.take_text()

    def note_typing(self) -> float:
        """Take note that the user is typing, here or in a bar beside it. Return the time."""
        self.typed_at = self.clock()
        return self.typed_at

    def insert_paste(self, text: str) -> None:
        """Insert a paste, folded if it is long."""
        self.note_typing()
        self.replace_selection(self._folds.fold(plain(text)))

    def attach(self, name: str) -> None:
        """Insert the reference that attaches a file."""
        self.note_typing()
        row, column = self.cursor_location
        apart = "" if not column or self.document.get_line(row)[column - 1].isspace() else " "
        self.replace_selection(f"{apart}@{name} ")

    def append_typed(self, character: str) -> None:
        """Append a character that was typed while a dialog had the keyboard."""
        self.note_typing()
        self._withdraw_offer(character)
        self.insert(character, self.document.end)
        self.move_cursor(self.document.end)

    def erase_typed(self, key: str) -> bool:
        """Delete at the end, for a key pressed while a dialog had the keyboard. Return False if it deletes nothing."""
        erase = {
            "backspace": self.action_delete_left,
            "ctrl+w": self.action_delete_word_left,
            "ctrl+u": self.action_delete_to_start_of_line,
        }.get(key)
        if erase is None:
            return False
        self.move_cursor(self.document.end)
        erase()
        return True

    def take_text(self) -> str:
        """Clear the field and return what it held, with pastes in full."""
        text = self.full_text
        self.load_text("")
        self._folds.clear()
        self.refused_text = ""
        self._history.leave()
        return text

    def put_back_refused(self, text: str) -> None:
        """Put back a command that cannot be run now, selected. The history has it."""
        self.set_text(text)
        self.select_all()
        self.refused_text = self.full_text

    # Keys

    async def on_key(self, event: events.Key) -> None:
        """Handle the keys that mean something here. All others go to the text area."""
        if event.key in ("escape", "ctrl+up", "ctrl+down", "ctrl+o"):
            self._act_on_letter()
        if (meaning := self._meaning_of(event.key)) is not None:
            self._letter = meaning
            self.set_timer(ALONE_S, partial(self._act_on_letter, meaning))
        elif self.block_selected and event.is_printable:
            self.post_message(self.TranscriptKey("escape"))
        if self._handle_key(event):
            event.stop()
            event.prevent_default()
        elif event.is_printable or types_invisible(event) or event.key in ("backspace", "delete"):
            self.note_typing()
            self._withdraw_offer(event.character or "")

    def _meaning_of(self, key: str) -> Message | None:
        """Return what a letter means if it is typed into the empty field and no key follows; None if nothing."""
        if self.text:
            return None
        if (key == "y" and self.block_selected) or (key == "o" == self.opens_by):
            return self.TranscriptKey(key)
        return self.Retry() if key in ("R", "upper_r") and self.retry_offered else None

    def _act_on_letter(self, only: Message | None = None) -> None:
        """Remove a letter that still stands alone in the field, and post what it means, if that is `only` or any."""
        if only is not None and only is not self._letter:
            return
        meaning, self._letter = self._letter, None
        letter = meaning.key if isinstance(meaning, self.TranscriptKey) else "R"
        if meaning is not None and self.text == letter:
            self.load_text("")
            self.post_message(meaning)

    def _handle_key(self, event: events.Key) -> bool:
        key = event.key
        if self.popup_open and key in ("up", "down", "tab", "enter", "escape"):
            self.post_message(self.CompletionRequested(key))
            return True
        match key:
            case "enter" if not self.text and self.opens_by == key:
                self.post_message(self.TranscriptKey(key))
            case "enter":
                self._enter()
            case "ctrl+s":
                self.send(correcting=True)
            case "ctrl+j" | "shift+enter" | "alt+enter":
                self.insert("\n")
            case "escape":
                self.post_message(self.TranscriptKey(key) if self.block_selected else self.Stop())
            case "tab":
                self.post_message(self.CompletionRequested("tab"))
            case "up" if self.cursor_at_first_line and (self._history.texts or self.queue_offered):
                self._up()
            case "down" if self.cursor_at_last_line and self._history.is_recalled:
                self._browse(1)
            case _:
                return self._post_key(key)
        return True

    def _post_key(self, key: str) -> bool:
        """Post a key that concerns something else than the text. Return False if it is no such key."""
        match key:
            case "ctrl+d" if not self.text:
                self.post_message(self.Quit())
            case "ctrl+v":
                self.post_message(self.ImageWanted())
            case "pageup" | "pagedown" | "ctrl+home" | "ctrl+end" | "ctrl+up" | "ctrl+down" | "ctrl+o":
                self.post_message(self.TranscriptKey(key))
            case "home" | "end" if not self.text:
                self.post_message(self.TranscriptKey(key))
            case "shift+up" | "shift+down" | "delete" if self.queue_offered and not self.text:
                self.post_message(self.QueueKey(key))
            case _:
                return False
        return True

    def _up(self) -> None:
        if self.queue_offered and not self.text:
            self.post_message(self.QueueKey("up"))
        else:
            self.recall()

    def _enter(self) -> None:
        row, column = self.cursor_location
        before = self.document.get_line(row)[:column]
        # A backslash at the end of a line asks for another line, as in shells.
        if before.endswith("\\") and not before.endswith("\\\\"):
            self.replace("\n", (row, column - 1), (row, column))
            self.move_cursor((row + 1, 0))
            return
        self.send()

    def send(self, *, correcting: bool = False) -> None:
        """Post what is typed and clear it. With nothing typed, send the queue."""
        if not self.text:
            self.post_message(self.QueueKey("enter"))
        elif self.text.strip() and self._may_send(self.full_text):
            in_view = self.full_text == self.text and self.wrapped_document.height <= self.content_size.height
            text = self.take_text()
            self.sent_in_view = text if in_view else ""
            self.typed_at = None
            self.post_message(self.Submitted(text, correcting=correcting))

    def _browse(self, by: int) -> None:
        """Show the text `by` places further on in the history. After the newest one, what was typed follows."""
        self.set_text(self._history.move(by, typed=self.full_text))

    async def on_paste(self, event: events.Paste) -> None:
        """Insert a paste, folded if it is long."""
        event.stop()
        event.prevent_default()
        if event.text:
            self.insert_paste(event.text)
        else:
            # A terminal pastes nothing if the clipboard holds no text.
            self.post_message(self.ImageWanted())

    def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Grow with the text, and let the screen look for completions."""
        event.stop()
        if self._withdrawn_text and not self.text:
            self.offer_text(self._withdrawn_text)
        self._fit_height()
        self._label()
        self.post_message(self.CompletionRequested())

    def on_resize(self) -> None:
        """Fit the height to the text once it is wrapped to another width."""
        self.call_later(self._fit_height)

    def _fit_height(self) -> None:
        edges = 2 if self.has_class("-framed") else int(self.has_class("-lined"))
        rows = max(1, min(self.screen.size.height // _MAX_HEIGHT_DIVISOR - edges, self.wrapped_document.height)) + edges
        if self.styles.height is None or self.styles.height.value != rows:
            self.styles.height = rows

    def frame(self, role: str, model: str, *, colour: str, framed: bool) -> None:
        """Show who answers: the role's name and colour, and the model. `framed` is False where there is no room."""
        self.set_class(framed, "-framed")
        self.border_title = Content(role) if role else None
        self._model = model
        self._label()
        for edge in ("top", "right", "bottom", "left"):
            if colour and (framed or edge == "left"):
                self.styles.set_rule(f"border_{edge}", ("round" if framed else "solid", Color.parse(colour)))
            else:
                self.styles.clear_rule(f"border_{edge}")
        self.styles.border_title_color = colour or None
        self._fit_height()

    def _label(self) -> None:
        """Show the model on the frame, or the keys for a text that is typed while a turn runs."""
        keys = self.keys_while_running if self.text else ""
        if keys and self.text.startswith(_RUN_BETWEEN_TURNS):
            keys = "not while the turn runs, Esc stops it"
        elif keys and self.text.startswith("/"):
            keys = "Enter runs it now"
        self.border_subtitle = Content(keys or self._model) if keys or self._model else None


def _size_words(text: str) -> str:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size < 1_000:
        return f"{size} bytes"
    if size < 1_000_000:
        return f"{size / 1_000:.0f} kB"
    return f"{size / 1_000_000:.1f} MB"
