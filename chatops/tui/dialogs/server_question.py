"""The dialog for a question of an MCP server: what it asks, and three answers.

The dialog shows who asks in our words, and the server's words marked as such. A form opens with `a`; it is checked
against what the server asked for before anything is sent. Nothing is opened here: an address is only copied.
"""

from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import urlsplit

from textual import on

from chatops.domain.canonical import canonical, json_or_text
from chatops.domain.decisions import Decision, Edited
from chatops.domain.errors import ChatopsError
from chatops.domain.questions import Answer, AnswerAction, OpenQuestion, ServerQuestion, secret_word
from chatops.domain.sanitize import reveal, sanitize
from chatops.domain.tools import Problem
from chatops.tui.clipboard import copy
from chatops.tui.composer.composer import Composer
from chatops.tui.dialogs.argument_fields import ABSENT, Absent, ArgumentField, FieldKind, choice_text, fields_of
from chatops.tui.dialogs.arguments import ArgumentsForm, Check
from chatops.tui.dialogs.framed import DialogFrame
from chatops.tui.dialogs.guarded import GuardedDialog
from chatops.tui.dialogs.payload import PayloadView
from chatops.tui.dialogs.rows import FOREIGN, Description, Row, line, read_on
from chatops.tui.keys import KeyGroup
from chatops.tui.notice import show_notice

if TYPE_CHECKING:
    from chatops.runtime.session import Session

_LOOKS_SECRET = "looks like a secret. "
_FORBIDDEN = "MCP forbids servers to ask for keys and passwords in a form."


class AnswerForm(ArgumentsForm):
    """The values that a server asks for. ctrl+s sends them once they fit."""

    KEYS: ClassVar[str] = "ctrl+s sends them to the server   Tab next field   Esc back"
    MAY_BE_UNCHANGED: ClassVar[bool] = True


class ServerQuestionScreen(GuardedDialog):
    """Asks one question of a server, until it is answered or void, or the user postpones it with Esc."""

    DECIDING: ClassVar[frozenset[str]] = frozenset("adx")
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
        self._sending = False

    def on_mount(self) -> None:
        """Start the pause, because a user who is typing has not read the dialog yet."""
        self._drawn = True
        self.fit()
        self.start_pause()
        self.payload.show(_described(self.asked, self._fields), key=self.asked.question.id, seen=False)
        self.show_frame()
        self.call_after_refresh(self.show_frame)
        self.follow()

    def follow(self) -> None:
        """Close the dialog when nothing waits for this answer any more."""
        if self.can_draw and not self._sending and self.asked not in self._session.snapshot().questions:
            show_notice(self.app, f"The question of {self.asked.question.server} is void: nothing was sent.")
            self.finish()

    # Answers

    def answer(self, key: str, *, typed: bool) -> None:
        """Handle one key."""
        match key:
            case _ if self._sending and key in self.DECIDING:
                self.not_taken("an answer is being stored")
            case "a" if self.too_small:
                self.show_note("Make the window larger: what is not shown cannot be answered.")
            case "a" if not self.payload.end_seen:
                self.payload.read_on()
                self.call_after_refresh(self.show_frame)
            case "a" if self._fields:
                self._open_form()
            case "a":
                self._send(Answer(action=AnswerAction.ACCEPT, content="{}" if self.asked.question.schema else ""))
            case "d":
                self._send(Answer(action=AnswerAction.DECLINE))
            case "x":
                self._send(Answer(action=AnswerAction.CANCEL))
            case _ if typed:
                self.pause_again()
            case _:
                pass

    def _open_form(self) -> None:
        def done(decision: Decision | None) -> None:
            if isinstance(decision, Edited):
                self.finish()

        self.app.push_screen(answer_form(self.asked.question, self._fields, check=self._sent, kept=self._kept), done)

    async def _sent(self, content: str) -> Sequence[Problem]:
        """Send the values of the form, unless they do not fit: then return why."""
        self._sending = True
        try:
            answer = Answer(action=AnswerAction.ACCEPT, content=content)
            problems = await self._session.actions.answer(self.asked, answer)
        except ChatopsError as error:
            problems = (Problem(path="", message=error.full),)
        if problems:
            self._sending = False
            self.call_later(self.follow)
        return problems

    def _send(self, answer: Answer) -> None:
        self._sending = True
        # Run on the app: a worker of this screen would be cancelled when the dialog closes, before it is stored.
        self.app.run_worker(self._answered(answer), group="decide")

    async def _answered(self, answer: Answer) -> None:
        try:
            await self._session.actions.answer(self.asked, answer)
        except ChatopsError as error:
            self._sending = False
            self.not_answered(sanitize(error.full))
            return
        if answer.action is AnswerAction.ACCEPT and self.asked.question.url:
            copy(self.app, self.asked.question.url, "the address")
            show_notice(self.app, "The address is copied: open it in your browser.")
        self.finish()

    # Drawing

    def frame(self) -> DialogFrame:
        """Return title and keys."""
        question = self.asked.question
        left = 0 if self.payload.end_seen else self.payload.lines_below
        narrow = self.has_class("-narrow")
        accept = "agree, and copy the address" if question.url else "answer" if self._fields else "say yes"
        if narrow:
            first = read_on(left, short=True) if left else accept.partition(",")[0]
            keys = f"a {first}  d decline  x dismiss  Esc later"
        else:
            first = f"a {read_on(left)}" if left else f"a {accept}"
            keys = f"{first}   d decline   x dismiss\nEsc later: the call waits"
        return DialogFrame(title=f"The MCP server {line(question.server)} asks you", keys=keys)

    @on(PayloadView.EndSeen)
    def end_seen(self, event: PayloadView.EndSeen) -> None:
        """Allow an answer, now that all of the question has been on screen."""
        event.stop()
        self.show_frame()


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


def _described(asked: OpenQuestion, fields: Sequence[ArgumentField]) -> Description:
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
        choices = ", ".join(choice_text(one) for one in field.choices if one is not ABSENT)
        kind = choices or ("list" if field.kind is FieldKind.JSON else field.kind.value)
        optional = "" if field.required else ", optional"
        said = f": {field.description}" if field.description else ""
        # The form may be too long for the window, so what it proposes is part of what has to be read.
        proposed = "" if isinstance(field.value, Absent) else f" – it proposes {canonical(field.value)}"
        yield Row(text=line(f"{field.name} ({kind}{optional}){proposed}{said}"), tone="quiet", exact=True, lead=FOREIGN)
