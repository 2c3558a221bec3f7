"""The dialog for a question of an MCP server: what it asks, and three answers.

The dialog shows who asks in our words, and the server's words marked as such. A form opens with `a`; it is checked
against what the server asked for before anything is sent. Nothing is opened here: an address is only copied.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from chatops.domain.canonical import canonical, json_or_text
from chatops.domain.decisions import Answer, AnswerAction, Decision, Edited, OpenQuestion, ServerQuestion
from chatops.domain.errors import ChatopsError
from chatops.domain.names import secret_word
from chatops.domain.sanitize import reveal
from chatops.domain.tools import Problem
from chatops.tui.composer import Composer
from chatops.tui.dialogs.arguments import ArgumentsForm, Check
from chatops.tui.dialogs.body import DialogFrame
from chatops.tui.dialogs.dialog_keys import AnswerKey, DialogKey, Room
from chatops.tui.dialogs.fields import ABSENT, Absent, ArgumentField, FieldKind, choice_text, fields_of
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.rows import FOREIGN, Description, Row, line
from chatops.tui.keys import KeyGroup, KeyHint, KeyLegend
from chatops.tui.notice import copy, show_notice

if TYPE_CHECKING:
    from chatops.runtime.session import Session

_LOOKS_SECRET = "looks like a secret. "
_FORBIDDEN = "MCP forbids servers to ask for keys and passwords in a form."


class AnswerForm(ArgumentsForm):
    """The values that a server asks for. ctrl+s sends them once they fit."""

    SEND: ClassVar[KeyHint] = KeyHint("ctrl+s", "sends them to the server")
    MAY_BE_UNCHANGED: ClassVar[bool] = True


class ServerQuestionScreen(GuardedDialog):
    """Asks one question of a server, until it is answered or void, or the user postpones it with Esc."""

    KEYS = (
        AnswerKey(
            "a",
            "accept",
            "answer, once all of it has been on screen: opens the form, which ctrl+s sends",
            lambda self: self.accept_label,
            needs_reading=True,
        ),
        AnswerKey("d", "decline", "decline", "decline"),
        AnswerKey("x", "dismiss_question", "dismiss: no answer, neither yes nor no", "dismiss"),
        DialogKey(
            "escape",
            "go_back",
            "later: the call waits, and its time limit is paused",
            ("later: the call waits", "later"),
        ),
    )
    DONE: ClassVar[str] = "answered"
    KEY_GROUP: ClassVar[KeyGroup] = "question"

    def __init__(
        self, session: "Session", asked: OpenQuestion, composer: Composer, *, kept: MutableMapping[str, str]
    ) -> None:
        """Create the dialog. `kept` holds what was typed into the form and not sent, by field."""
        super().__init__(composer)
        self._session = session
        self.asked = asked
        self._kept = kept
        self._fields = _fields(asked.question)

    def begin(self) -> None:
        """Show the question, if its call still waits."""
        self.show_subject(_describe(self.asked, self._fields), key=self.asked.question.id, seen=False)
        self.follow()

    def refresh_subject(self) -> None:
        """Close the dialog when nothing waits for this answer any more."""
        if not self.sending and self.asked not in self._session.snapshot().questions:
            show_notice(self.app, f"The question of {self.asked.question.server} is void: nothing was sent.")
            self.finish()

    # Answers

    def _accept(self) -> None:
        if self._fields:
            self._open_form()
        else:
            self._answer(AnswerAction.ACCEPT, "{}" if self.asked.question.schema else "")

    def _open_form(self) -> None:
        def done(decision: Decision | None) -> None:
            if isinstance(decision, Edited):
                self.finish()

        self.app.push_screen(
            answer_form(self.asked.question, self._fields, check=self._send_values, kept=self._kept), done
        )

    async def _send_values(self, content: str) -> Sequence[Problem]:
        """Send the values of the form, unless they do not fit: then return why."""
        self.sending = True
        try:
            answer = Answer(action=AnswerAction.ACCEPT, content=content)
            problems = await self._session.actions.answer(self.asked, answer)
        except ChatopsError as error:
            problems = (Problem(path="", message=error.full),)
        if problems:
            self.sending = False
            self.call_later(self.follow)
        return problems

    def _decline(self) -> None:
        self._answer(AnswerAction.DECLINE)

    def _dismiss_question(self) -> None:
        self._answer(AnswerAction.CANCEL)

    def _answer(self, action: AnswerAction, content: str = "") -> None:
        self.send(self._store_answer(Answer(action=action, content=content)))

    async def _store_answer(self, answer: Answer) -> str:
        await self._session.actions.answer(self.asked, answer)
        if answer.action is AnswerAction.ACCEPT and self.asked.question.url:
            copy(self.app, self.asked.question.url, "the address")
            show_notice(self.app, "The address is copied: open it in your browser.")
        self.finish()
        return ""

    @property
    def accept_label(self) -> tuple[str, ...]:
        """What accepting means, in full and in short."""
        if self.asked.question.url:
            return "agree, and copy the address", "agree"
        return ("answer" if self._fields else "say yes",)

    # Drawing

    def frame(self) -> DialogFrame:
        """Return the title."""
        return DialogFrame(title=f"The MCP server {line(self.asked.question.server)} asks you")

    def legend(self, unread: str) -> KeyLegend:
        """Return the legend of keys."""
        return self.hints(*(("a d x", "escape") if self.room is Room.USUAL else ("a d x escape",)), unread=unread)


def answer_form(
    question: ServerQuestion, fields: Sequence[ArgumentField], *, check: Check, kept: MutableMapping[str, str]
) -> AnswerForm:
    """Return the form of a question, with what the server proposes marked."""
    fields = tuple(
        field
        if isinstance(field.value, Absent)
        else replace(field, description=f"{field.description} (proposed by the server)".strip())
        for field in fields
    )
    return AnswerForm(
        f"Answer the MCP server {line(question.server)}", _defaults(question), fields, check=check, kept=kept
    )


def _fields(question: ServerQuestion) -> tuple[ArgumentField, ...]:
    if not question.schema:
        return ()
    fields = fields_of(question.schema, _defaults(question))
    return tuple(
        replace(field, description=f"{_LOOKS_SECRET}{field.description}".strip())
        if field.name in question.secrets
        else field
        for field in fields
    )


def _secrets(question: ServerQuestion, fields: Sequence[ArgumentField], in_message: str) -> Iterator[str]:
    """Yield the fields that look like secrets, each with the word that says so unless that is part of its name."""
    described = {field.name: field.description.removeprefix(_LOOKS_SECRET) for field in fields}
    for name in question.secrets:
        word = secret_word(name, described.get(name, "")) or in_message
        yield line(name) if not word or secret_word(name) else f'{line(name)} (the server says "{word}")'


def _defaults(question: ServerQuestion) -> str:
    """Return the values that the server proposes, as JSON."""
    schema = json_or_text(question.schema)
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.items() if isinstance(properties, dict) else ()
    return canonical({name: field["default"] for name, field in found if "default" in field})


def _describe(asked: OpenQuestion, fields: Sequence[ArgumentField]) -> Description:
    """Return who asks for what. All of it must have been on screen before it is answered."""
    rows = tuple(_rows(asked, fields))
    return Description(rows=rows, payload=len(rows))


def _rows(asked: OpenQuestion, fields: Sequence[ArgumentField]) -> Iterator[Row]:
    question = asked.question
    yield Row(text="An MCP server asks, not chatops and not the model. It gets what you answer.", tone="heading")
    yield Row(label="server", text=line(question.server))
    yield Row(label="for the call", text=line(asked.tool))
    in_message = secret_word(question.message)
    if question.secrets or in_message:
        names = f": {', '.join(_secrets(question, fields, in_message))}" if question.secrets else ""
        yield Row(
            text=f"It seems to ask for a secret{names}. {_FORBIDDEN} Decline, unless you are sure.", tone="caution"
        )
    yield Row()
    yield Row(text="The server says" if question.message.strip() else "The server says nothing", tone="heading")
    for part in reveal(question.message.strip()).split("\n") if question.message.strip() else ():
        yield Row(text=part, tone="quiet", exact=True, lead=FOREIGN)
    yield Row()
    if question.url:
        yield Row(text="It wants you to open this address in a browser", tone="heading")
        yield Row(text=line(question.url), tone="code", exact=True)
        yield Row(label="its host", text=line(urlsplit(question.url).netloc))
        yield Row(text="chatops opens nothing. Check the host before you enter anything there.", tone="quiet")
        return
    yield Row(text="It asks for" if fields else "It asks for a yes, without any value", tone="heading")
    for field in fields:
        choices = ", ".join(choice_text(choice) for choice in field.choices if choice is not ABSENT)
        kind = choices or ("list" if field.kind is FieldKind.JSON else field.kind.value)
        optional = "" if field.required else ", optional"
        said = f": {field.description}" if field.description else ""
        # The form may be too long for the window, so what it proposes is part of what has to be read.
        proposed = "" if isinstance(field.value, Absent) else f" – it proposes {canonical(field.value)}"
        yield Row(text=line(f"{field.name} ({kind}{optional}){proposed}{said}"), tone="quiet", exact=True, lead=FOREIGN)
