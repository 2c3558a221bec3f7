"""A small dialog that asks for a text: arguments to edit, a rule, a reason, a title."""

import time
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static, TextArea

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural, spent
from chatops.tui.dialogs.modal import TALL, Legend, Modal
from chatops.tui.keys import BACK, KeyHint
from chatops.tui.text_fields import LineField, TextField
from chatops.tui.theme import SPINNER
from chatops.tui.ticker import FRAMES_A_SECOND, frame_at

AnswerT = TypeVar("AnswerT")
_LINES_AROUND, _LINES_AROUND_LOW, _MIN_LINES = 13, 6, 3
"""Lines of a window, and of a low one, outside the text of several lines, at most; the least height of that text."""


class Question(Modal[AnswerT | None], Generic[AnswerT]):
    """Asks for a text until `check` accepts it. The result is what `check` returned, None after Esc.

    `check` raises ValueError or ChatopsError with a message for the user. ctrl+s answers. Enter answers only if
    `enter_answers` is set, for answers that are harmless if given by accident.

    With `load`, the dialog shows the moving sign, `waiting`, the time and the tokens that `received` returns until
    `load` returns the text to edit. Esc cancels `load`.
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
        load: Callable[[], Awaitable[str]] | None = None,
        waiting: str = "",
        received: Callable[[], int] = lambda: 0,
    ) -> None:
        super().__init__()
        self._title = title
        self._explain = explain
        self._text = text
        self._check = check
        self._lines = lines
        self._enter = enter_answers and not lines
        self._keys = KeyHint("enter" if self._enter else "ctrl+s", done), BACK
        self._load = load
        self._waiting = waiting
        self._received = received

    def compose(self) -> ComposeResult:
        """Yield title, explanation, text field, error and keys."""
        with Vertical(id="question", classes="-lines" if self._lines else ""):
            yield Static(Content(self._title), id="question-title")
            yield Static(Content(self._explain), id="question-explain")
            if self._lines:
                yield TextField(self._text, id="answer", compact=True, highlight_cursor_line=False)
            else:
                yield LineField(self._text, id="answer", compact=True, select_on_focus=self._enter)
            yield Static("", id="question-problem", markup=False)
            yield Legend(*self._keys, id="question-keys")

    def on_mount(self) -> None:
        """Load the text if it is not there yet."""
        if self._load is not None:
            self.query_one("#answer").display = False
            self.run_worker(self._show_loaded(self._load), group="load")
        elif self._lines:
            self._place_cursor()

    async def _show_loaded(self, load: Callable[[], Awaitable[str]]) -> None:
        explain, keys, since = self.query_one("#question-explain", Static), self.query_one(Legend), time.monotonic()
        frames = SPINNER if getattr(self.app, "moves", True) else ""

        def show_time() -> None:
            tokens, now = self._received(), time.monotonic()
            so_far = [spent(int(now - since)), plural(tokens, "token") if tokens else ""]
            text = f"{frame_at(now, frames)} {self._waiting} {' · '.join(filter(None, so_far))}"
            explain.update(Content(text.strip()))

        show_time()
        keys.show(KeyHint("escape", "stops"))
        timer = self.set_interval(1 / FRAMES_A_SECOND if frames else 1.0, show_time)
        try:
            text = await load()
        except ChatopsError as error:
            explain.update("")
            self.query_one("#question-problem", Static).update(Content(sanitize(error.full)))
            keys.show(BACK)
            return
        finally:
            timer.stop()
        explain.update(Content(self._explain))
        keys.show(*self._keys)
        field = self.query_one("#answer", TextArea)
        field.text, field.display = text, True
        field.focus()
        self._load = None
        self._place_cursor()

    def on_resize(self) -> None:
        """Limit the height of a text of several lines, so that the keys stay on screen."""
        if self._lines and self.size.height >= TALL:
            self.query_one("#answer").styles.max_height = self._most_rows

    @property
    def _most_rows(self) -> int:
        """The height that a text of several lines can have."""
        return max(_MIN_LINES, self.size.height - (_LINES_AROUND if self.size.height >= TALL else _LINES_AROUND_LOW))

    def _place_cursor(self) -> None:
        """Put the cursor after the text before it is drawn, or at its start if it does not fit into the window."""
        field = self.query_one("#answer", TextArea)
        end = field.document.end
        field.move_cursor(end)

        def laid_out() -> None:
            untouched = field.cursor_location == field.document.end == end
            if self.size and untouched and field.wrapped_document.height > self._most_rows:
                field.move_cursor((0, 0))

        laid_out()
        self.watch(field, "virtual_size", laid_out, init=False)

    @on(TextArea.Changed)
    @on(Input.Changed)
    def forget_problem(self) -> None:
        """Clear the error, because the text is being corrected."""
        if self._load is None:
            self.query_one("#question-problem", Static).update("")

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
        elif event.key == "ctrl+s" and self._load is None:
            event.stop()
            self._answer()

    def _answer(self) -> None:
        field = self.query_one("#answer", TextArea).text if self._lines else self.query_one("#answer", Input).value
        try:
            answer = self._check(field)
        except (ValueError, ChatopsError) as error:
            self.query_one("#question-problem", Static).update(Content(sanitize(str(error))))
            return
        self.dismiss(answer)
