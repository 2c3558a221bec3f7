"""The form in which the user edits the arguments of a call: one field for each, checked before it is sent."""

import re
from collections.abc import Awaitable, Callable, MutableMapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Input, Static, TextArea

from chatops.domain.decisions import Decision, Edited
from chatops.domain.errors import ChatopsError
from chatops.domain.events import PendingCall
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import Problem
from chatops.tui.dialogs.fields import ArgumentField, ArgumentValue, FieldKind, choice_text, fields_of, with_values
from chatops.tui.dialogs.modal import TALL, Legend, Modal, Title
from chatops.tui.dialogs.rows import line
from chatops.tui.keys import BACK, KeyHint
from chatops.tui.text_fields import LineField, TextField
from chatops.tui.textual_internals import ErrorBoundary
from chatops.tui.theme import UNICODE

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView

_EARLIER_EDIT = " · your earlier edit"
"""Follows the title while texts of an earlier attempt are shown."""
_LINES_AROUND = 7
"""Lines of the window that the fields cannot have: frame, problem, keys."""
_MOVES = {"up": -1, "down": 1}
"""Fields that a key moves the cursor on."""
_ARGUMENT_NAME = re.compile(r"[^.\[]*")
"""The argument that the path of a problem begins with."""

Check = Callable[[str], Awaitable[Sequence[Problem]]]
"""Returns what is wrong with arguments (JSON); empty if nothing."""


class _MultilineField(TextField):
    """A field of several lines, which Up leaves at its first one and Down at its last one, for another field."""

    async def on_key(self, event: events.Key) -> None:
        """Go to the next or previous field."""
        at, by = self.cursor_location, _MOVES.get(event.key, 0)
        ends = self.navigator.is_first_wrapped_line(at) if by < 0 else self.navigator.is_last_wrapped_line(at)
        if by and ends and cast(ArgumentsForm, self.screen).move(by):
            event.stop()
            event.prevent_default()


class ChoiceField(ErrorBoundary, Static, can_focus=True):
    """A few values, of which one is chosen with Left, Right or Space.

    Not a `RadioSet`, which takes a row for each value and holds the choice apart from the key that moves the highlight.
    """

    class Changed(Message):
        """Posted when another value was chosen."""

    def __init__(self, field: ArgumentField, chosen: str, *, id: str) -> None:
        super().__init__("", id=id, markup=False)
        self._texts = [choice_text(choice) for choice in field.choices]
        wanted = chosen or choice_text(field.value)
        self.index = self._texts.index(wanted) if wanted in self._texts else 0

    @property
    def value(self) -> str:
        """The chosen value as text."""
        return self._texts[self.index]

    def on_mount(self) -> None:
        """Draw the values."""
        self._draw()

    def on_key(self, event: events.Key) -> None:
        """Choose the next or previous value."""
        by = {"right": 1, "space": 1, "left": -1}.get(event.key)
        if by is not None:
            event.stop()
            event.prevent_default()
            self.choose(self._texts[(self.index + by) % len(self._texts)])

    def choose(self, text: str) -> None:
        """Choose the value with this text."""
        self.index = self._texts.index(text)
        self._draw()
        self.post_message(self.Changed())

    def _draw(self) -> None:
        parts = [
            Content.styled(
                f"(x) {line(text)}" if at == self.index else f"( ) {line(text)}", "bold" * (at == self.index)
            )
            for at, text in enumerate(self._texts)
        ]
        self.update(Content("   ").join(parts))


class ArgumentsForm(Modal[Decision | None]):
    """One field for each argument. ctrl+s checks them; the result is the edit once nothing is wrong, None after Esc."""

    CSS_PATH = "dialogs.tcss"
    AUTO_FOCUS = "#field-0"
    SEND: ClassVar[KeyHint] = KeyHint("ctrl+s", "checks them")
    MAY_BE_UNCHANGED: ClassVar[bool] = False
    """True if the arguments are of use as they are."""

    def __init__(
        self,
        title: str,
        arguments: str,
        fields: Sequence[ArgumentField],
        *,
        check: Check,
        kept: MutableMapping[str, str],
        problems: Sequence[Problem] = (),
    ) -> None:
        """Create the form to edit `arguments` (JSON).

        `kept` holds changed texts by argument, from an earlier attempt
        and for the next one. `problems` are shown at first.
        """
        super().__init__()
        self._title = title
        self._arguments = arguments
        self._fields = fields
        self._check = check
        self._kept = kept
        self._problems = problems
        self._loaded: list[str] = []
        """The text of each field before it was edited."""
        self._shows_earlier_edit = False
        """True while texts of an earlier attempt are shown. ctrl+r shows the original ones."""
        self._hidden_edit: list[str] = []
        """The edited texts while the original ones are shown in their place. ctrl+r shows them again."""
        self._texts_checked: list[str] = []
        """The text of each field when its problems were found."""

    def compose(self) -> ComposeResult:
        """Yield title, the fields with their labels and problems, a general problem, keys."""
        with Vertical(id="arguments"):
            yield Title(self._title)
            with VerticalScroll(id="arguments-body", can_focus=False):
                for number, field in enumerate(self._fields):
                    yield Static(_label(field), id=f"label-{number}", classes="argument-label")
                    yield self._widget(number, field)
                    yield Static("", id=f"problem-{number}", classes="argument-problem", markup=False)
            yield Static("", id="arguments-problem", markup=False)
            yield Legend(id="arguments-keys")

    def _widget(self, number: int, field: ArgumentField) -> _MultilineField | LineField | ChoiceField:
        name, text = f"field-{number}", field.text
        if field.kind is FieldKind.CHOICE:
            return ChoiceField(field, self._kept.get(field.name, ""), id=name)
        if field.kind in (FieldKind.LONG, FieldKind.JSON):
            return _MultilineField(text, id=name, compact=True, highlight_cursor_line=False)
        return LineField(text, id=name, compact=True, select_on_focus=False)

    def on_mount(self) -> None:
        """Put back the texts of an earlier attempt, and show the problems found with it."""
        self._loaded = [
            choice_text(field.value) if field.kind is FieldKind.CHOICE else self._text(number)
            for number, field in enumerate(self._fields)
        ]
        for number, field in enumerate(self._fields):
            widget = self.query_one(f"#field-{number}")
            if (kept := self._kept.get(field.name)) is not None:
                self._put(number, kept)
            if isinstance(widget, TextArea) and widget.document.line_count == 1:
                widget.move_cursor(widget.document.end)
        self._shows_earlier_edit = self._texts() != self._loaded
        self._show_keys()
        if self._problems:
            self._show_problems(self._problems)

    def _put(self, number: int, text: str) -> None:
        """Replace the text of a field."""
        widget = self.query_one(f"#field-{number}")
        if isinstance(widget, TextArea):
            widget.load_text(text)
        elif isinstance(widget, Input):
            widget.value = text
            widget.cursor_position = len(text)
        elif isinstance(widget, ChoiceField) and widget.value != text:
            widget.choose(text)

    def _show_keys(self) -> None:
        """Show title and keys: where the texts are from, if there are two versions of them."""
        edited = self._shows_earlier_edit
        self.query_one(Title).show(f"{self._title}{_EARLIER_EDIT if edited else ''}")
        keys = [self.SEND, KeyHint("tab", "next field"), BACK]
        if edited or self._hidden_edit:
            keys.append(KeyHint("ctrl+r", "the original" if edited else "your earlier edit"))
        self.query_one(Legend).show(*keys)

    def on_resize(self) -> None:
        """Limit the height of the fields, which scroll, so that problem, keys and cursor stay on screen."""
        self.match_covered()
        self._show_keys()
        tall = self.size.height >= TALL
        self.query_one("#arguments-body").styles.max_height = self.size.height - _LINES_AROUND if tall else None
        self.call_after_refresh(self._show_focused)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """Mark the label of the field that has the cursor, not by colour alone."""
        sign = UNICODE.selected
        for number, field in enumerate(self._fields):
            has_cursor = event.widget.id == f"field-{number}"
            self.query_one(f"#label-{number}", Static).update(_label(field, sign if has_cursor else " "))
        self.call_after_refresh(self._show_focused)

    def _show_focused(self) -> None:
        """Scroll so that the field with the cursor is on screen together with its label."""
        field = self.focused
        if field is not None and field.id is not None:
            label = self.query_one(f"#label-{field.id.removeprefix('field-')}")
            region = label.virtual_region.union(field.virtual_region)
            self.query_one("#arguments-body").scroll_to_region(region, animate=False)

    def on_key(self, event: events.Key) -> None:
        """Handle the keys that no field has taken."""
        match event.key:
            case "escape":
                self._keep()
                self.dismiss(None)
            case "ctrl+s":
                self._send()
            case "ctrl+r" if self._shows_earlier_edit or self._hidden_edit:
                self._swap_versions()
            case "up" | "down" as key:
                self.move(_MOVES[key])
            case "enter":
                self.next_or_say()
            case _:
                return
        event.stop()

    def _swap_versions(self) -> None:
        """Show the original texts in place of the edited ones, or the edited ones again."""
        shown, hidden = (self._loaded, self._texts()) if self._shows_earlier_edit else (self._hidden_edit, [])
        for number, text in enumerate(shown):
            self._put(number, text)
        self._hidden_edit, self._shows_earlier_edit = hidden, not self._shows_earlier_edit
        self._show_keys()

    def move(self, by: int) -> bool:
        """Move the cursor `by` fields on. Return False if there is no such field."""
        name = (self.focused.id if self.focused is not None else None) or ""
        at = int(name.removeprefix("field-")) + by if name.startswith("field-") else -1
        if not 0 <= at < len(self._fields):
            return False
        self.query_one(f"#field-{at}").focus()
        return True

    @on(Input.Submitted)
    def next_or_say(self) -> None:
        """Go to the next field. At the last one, say which key ends the form."""
        if not self.move(1) and not self.query_one("#arguments-problem").display:
            self._say(f"This is the last field. {self.SEND.draw()}.")
            self._texts_checked = self._texts()

    @on(TextArea.Changed)
    @on(Input.Changed)
    @on(ChoiceField.Changed)
    def forget_problem(self) -> None:
        """Clear the problems of fields whose text has changed since they were found."""
        now = self._texts()
        for number, checked in enumerate(self._texts_checked):
            if now[number] != checked:
                self._say("", field=number)
                self._say("")

    # Answering

    def _text(self, number: int) -> str:
        widget = self.query_one(f"#field-{number}")
        return widget.text if isinstance(widget, TextArea) else widget.value  # type: ignore[attr-defined]

    def _texts(self) -> list[str]:
        return [self._text(number) for number in range(len(self._fields))]

    def _keep(self) -> None:
        """Keep what was changed for the next time that this call is edited."""
        for number, field in enumerate(self._fields):
            text = self._text(number)
            if text != self._loaded[number]:
                self._kept[field.name] = text
            else:
                self._kept.pop(field.name, None)

    def _send(self) -> None:
        values: dict[str, ArgumentValue] = {}
        problems: list[Problem] = []
        for number, field in enumerate(self._fields):
            text = self._text(number)
            try:
                values[field.name] = self._value(number, field, text)
            except ValueError as error:
                problems.append(Problem(path=field.name, message=str(error)))
        self._show_problems(problems)
        if problems:
            return
        if not self.MAY_BE_UNCHANGED and self._texts() == self._loaded:
            self._say("Nothing is changed. Esc goes back.")
            return
        self._say("Checking …")
        arguments = with_values(self._arguments, values)
        self.run_worker(self._checked(arguments), group="check", exclusive=True)

    def _value(self, number: int, field: ArgumentField, text: str) -> ArgumentValue:
        """Return the value of a field: of one that was not touched, exactly what it was."""
        if text == self._loaded[number]:
            return field.value
        if field.kind is FieldKind.CHOICE:
            return next(choice for choice in field.choices if choice_text(choice) == text)
        return field.parsed(text)

    async def _checked(self, arguments: str) -> None:
        problems = await self._check(arguments)
        self._show_problems(problems)
        if not problems:
            self._keep()
            self.dismiss(Edited(arguments=arguments))

    def _show_problems(self, problems: Sequence[Problem]) -> None:
        """Show each problem below the field that it is about, and the others below all fields."""
        numbers = {line(field.name): number for number, field in enumerate(self._fields)}
        found: dict[int | None, list[str]] = {None: [], **{number: [] for number in numbers.values()}}
        for problem in problems:
            argument = _ARGUMENT_NAME.match(problem.path)
            number = numbers.get(problem.path, numbers.get(argument[0] if argument else ""))
            text = problem.message if number is not None else f"{problem.path}: {problem.message}".removeprefix(": ")
            found[number].append(text)
        for number, texts in found.items():
            self._say("\n".join(texts), field=number)
        self._texts_checked = self._texts()
        first = next((number for number in range(len(self._fields)) if found[number]), None)
        if first is not None:
            self.query_one(f"#field-{first}").focus()

    def _say(self, text: str, *, field: int | None = None) -> None:
        """Show a text below all fields, or below the one of that number. An empty text hides what is there."""
        where = self.query_one("#arguments-problem" if field is None else f"#problem-{field}", Static)
        where.update(Content(sanitize(text)))
        where.display = bool(text)


def arguments_form(
    session: "SessionView", pending: PendingCall, *, kept: MutableMapping[str, str], problems: Sequence[Problem] = ()
) -> ArgumentsForm | None:
    """Return the form for a pending call; None if its arguments are no JSON object with members."""
    try:
        spec = session.rule_offer(pending).grant.tool(pending.call.name)
    except ChatopsError:
        spec = None  # The role is gone. The values tell what they are.
    fields = fields_of(spec.schema if spec is not None else "{}", pending.facts.arguments)
    if not fields:
        return None
    return ArgumentsForm(
        f"Edit the arguments of {line(pending.call.name)}",
        pending.facts.arguments,
        fields,
        check=partial(session.argument_problems, pending),
        kept=kept,
        problems=problems,
    )


def _label(field: ArgumentField, mark: str = " ") -> Content:
    kind = "" if field.kind in (FieldKind.LINE, FieldKind.LONG, FieldKind.CHOICE) else f"  {field.kind.value}"
    optional = "" if field.required else "  optional"
    described = f"  {line(field.description)}" if field.description else ""
    return Content.assemble((f"{mark} {line(field.name)}", "bold"), (f"{kind}{optional}{described}", "$text-muted"))
