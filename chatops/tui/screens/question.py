"""A small dialog that asks for a text: arguments to edit, a rule, a reason, a title."""

from collections.abc import Callable
from typing import Generic, TypeVar

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input, Static, TextArea

from chatops.domain.errors import ChatopsError
from chatops.domain.sanitize import sanitize
from chatops.tui.screens.modal import Modal
from chatops.tui.widgets.fields import TextField
from chatops.tui.widgets.legend import legend
from chatops.tui.widgets.line_field import LineField

Answer = TypeVar("Answer")


class Question(Modal[Answer | None], Generic[Answer]):
    """Asks for a text until `check` takes it; the result is what `check` made of it, None after Esc.

    `check` raises ValueError or ChatopsError with a sentence. ctrl+s answers; Enter does so only where
    `enter_answers` says that nothing can be done by accident.
    """

    CSS_PATH = "windows.tcss"
    AUTO_FOCUS = "#answer"

    def __init__(
        self,
        title: str,
        *,
        explain: str,
        text: str,
        check: Callable[[str], Answer],
        done: str,
        lines: bool = False,
        enter_answers: bool = False,
    ) -> None:
        super().__init__()
        self._title = title
        self._explain = explain
        self._text = text
        self._check = check
        self._lines = lines
        self._enter = enter_answers and not lines
        keys = f"Enter {done}" if self._enter else f"ctrl+s {done}"
        self._keys = f"{keys}   Esc back"

    def compose(self) -> ComposeResult:
        """Title, explanation, the text, what is wrong with it, keys."""
        with Vertical(id="question", classes="-lines" if self._lines else ""):
            yield Static(Content(self._title), id="question-title")
            yield Static(Content(self._explain), id="question-explain")
            if self._lines:
                yield TextField(self._text, id="answer", compact=True, highlight_cursor_line=False)
            else:
                yield LineField(self._text, id="answer", compact=True, select_on_focus=False)
            yield Static("", id="question-problem", markup=False)
            yield Static(legend(self._keys), id="question-keys")

    def on_mount(self) -> None:
        """A resting cursor costs nothing when it does not blink."""
        if self._lines:
            self.query_one("#answer", TextArea).cursor_blink = False
        else:
            self.query_one("#answer", Input).cursor_blink = False

    @on(TextArea.Changed)
    @on(Input.Changed)
    def forget_problem(self) -> None:
        """What was wrong is being corrected."""
        self.query_one("#question-problem", Static).update("")

    @on(Input.Submitted)
    def answer_by_enter(self, event: Input.Submitted) -> None:
        """Enter answers only where nothing can be done by accident."""
        event.stop()
        if self._enter:
            self._answer()

    def on_key(self, event: events.Key) -> None:
        """Esc goes back, ctrl+s answers."""
        if event.key == "escape":
            event.stop()
            self.dismiss(None)
        elif event.key == "ctrl+s":
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
