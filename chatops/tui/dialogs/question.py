"""A small dialog that asks for a text: a rule, a reason, a title, a memory, or a summary that is loaded first."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Offset
from textual.timer import Timer
from textual.widgets import Input, Static, TextArea

from chatops.domain.errors import ChatopsError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural, spent
from chatops.tui.dialogs.modal import TALL, Legend, Modal, Title
from chatops.tui.keys import BACK, KeyHint
from chatops.tui.text_fields import LineField, TextField
from chatops.tui.theme import SPINNER
from chatops.tui.ticker import FRAMES_A_SECOND, frame_at

AnswerT = TypeVar("AnswerT")
_ROWS_AROUND = 12
"""Rows of a tall window outside a text of several lines: frame 2, explanation 3, error 3, keys 2, empty 2."""
_ROWS_AROUND_LOW = 6
"""The same in a low window, without frame and empty rows: title 1, explanation 3, keys 2. An error takes some more."""
_MIN_ROWS = 3
"""The least height of such a text, as in the style sheet."""


@frozen_dataclass
class LateText:
    """A text that has to be made before the user can edit it."""

    load: Callable[[], Awaitable[str]]
    """Returns it. May raise ChatopsError. Cancelled by Esc."""
    waiting: str
    """Name of the work that the user waits for, shown beside the moving sign and the time."""
    received: Callable[[], int]
    """Returns the number of tokens so far, which is shown too."""


class Question(Modal[AnswerT | None], Generic[AnswerT]):
    """Asks for a text until `check` accepts it. The result is what `check` returned, None after Esc.

    `check` raises ValueError or ChatopsError with a message for the user. ctrl+s answers. Enter answers only if
    `enter_answers` is set, for short answers that are harmless if given by accident. With `lines`, the text has several
    lines, and Enter makes a new one. With `late`, `text` is shown only once that is loaded, in place of it.
    """

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#answer"

    def __init__(
        self,
        title: str,
        *,
        explain: str,
        text: str,
        check: Callable[[str], AnswerT],
        done: str,
        lines: bool = False,
        enter_answers: bool = False,
        late: LateText | None = None,
    ) -> None:
        super().__init__()
        self._title = title
        self._explain = explain
        self._text = text
        self._check = check
        self._lines = lines
        self._enter = enter_answers and not lines
        self._keys = KeyHint("enter" if self._enter else "ctrl+s", done), BACK
        self._late = late
        self._has_text = late is None
        """False while a text is loaded, and after that has failed: there is nothing to answer yet."""

    def compose(self) -> ComposeResult:
        """Yield title, explanation, text field, error and keys."""
        with Vertical(id="question", classes="-lines" if self._lines else ""):
            yield Title(self._title)
            yield Static(Content(self._explain), id="question-explain")
            if self._lines:
                yield TextField(self._text, id="answer", compact=True, highlight_cursor_line=False)
            else:
                # An answer that Enter gives is rather typed anew than edited, so the first key replaces it.
                yield LineField(self._text, id="answer", compact=True, select_on_focus=self._enter)
            yield Static("", id="question-problem", markup=False)
            yield Legend(*self._keys, id="question-keys")

    def on_mount(self) -> None:
        """Load the text if it is not there yet."""
        if self._late is not None:
            self.query_one("#answer").display = False
            self.run_worker(self._show_loaded(self._late), group="load")
        elif self._lines:
            self._place_cursor()

    def on_resize(self) -> None:
        """Limit the height of a text of several lines, so that the keys stay on screen."""
        self.match_covered()
        # In a low window the style sheet gives the text all rows that are left.
        if self._lines and self.size.height >= TALL:
            self.query_one("#answer").styles.max_height = self._most_rows

    @property
    def row_in_focus(self) -> Offset | None:
        """The place of the sign while the text is loaded; None, which is the field, after that."""
        waits = None if self._has_text else self.query("#question-explain")
        return waits.first().content_region.offset if waits else None

    @property
    def _most_rows(self) -> int:
        """The height that a text of several lines can have."""
        around = _ROWS_AROUND if self.size.height >= TALL else _ROWS_AROUND_LOW
        return max(_MIN_ROWS, self.size.height - around)

    def _place_cursor(self) -> None:
        """Put the cursor after the text before it is drawn, or at its start if it does not fit into the window."""
        field = self.query_one("#answer", TextArea)
        end = field.document.end
        field.move_cursor(end)

        def to_start_if_too_long() -> None:
            is_untouched = field.document.end == end and field.cursor_location == end
            if self.size and is_untouched and field.wrapped_document.height > self._most_rows:
                field.move_cursor((0, 0))

        to_start_if_too_long()
        # The text may be wrapped for its width only later. It then has another height.
        self.watch(field, "virtual_size", to_start_if_too_long, init=False)

    @on(TextArea.Changed)
    @on(Input.Changed)
    def forget_problem(self) -> None:
        """Clear the error, because the text is being corrected."""
        if self._has_text:
            self._show_problem("")

    @on(Input.Submitted)
    def answer_by_enter(self, event: Input.Submitted) -> None:
        """Answer on Enter if that is allowed."""
        event.stop()
        if self._enter:
            self._answer()

    def on_key(self, event: events.Key) -> None:
        """Go back on Esc, answer on ctrl+s."""
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
        elif event.key == "ctrl+s" and self._has_text:
            event.stop()
            self._answer()

    def _answer(self) -> None:
        text = self.query_one("#answer", TextArea).text if self._lines else self.query_one("#answer", Input).value
        try:
            answer = self._check(text)
        except (ValueError, ChatopsError) as error:
            self._show_problem(str(error))
            return
        self.dismiss(answer)

    def _show_problem(self, problem: str) -> None:
        self.query_one("#question-problem", Static).update(Content(sanitize(problem)))

    async def _show_loaded(self, late: LateText) -> None:
        explain, keys = self.query_one("#question-explain", Static), self.query_one(Legend)
        keys.show(KeyHint("escape", "stops"))
        timer = self._show_wait(late, explain)
        try:
            text = await late.load()
        except ChatopsError as error:
            explain.update("")
            self._show_problem(error.full)
            keys.show(BACK)
            return
        finally:
            timer.stop()
        explain.update(Content(self._explain))
        keys.show(*self._keys)
        field = self.query_one("#answer", TextArea)
        field.text, field.display = text, True
        field.focus()
        self._has_text = True
        self._place_cursor()

    def _show_wait(self, late: LateText, line: Static) -> Timer:
        """Show in `line` what is waited for and how long, again and again until the timer is stopped."""
        since = time.monotonic()
        # False in `ChatopsApp` for reduced motion and plain terminals. Then only the seconds change.
        frames = SPINNER if getattr(self.app, "moves", True) else ""

        def show() -> None:
            tokens, now = late.received(), time.monotonic()
            so_far = [spent(int(now - since)), plural(tokens, "token") if tokens else ""]
            text = f"{frame_at(now, frames)} {late.waiting} {' · '.join(filter(None, so_far))}"
            line.update(Content(text.strip()))

        show()
        return self.set_interval(1 / FRAMES_A_SECOND if frames else 1.0, show)
