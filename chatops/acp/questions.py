"""Ask in the editor about the calls that wait in a session, if that is safe.

Whenever something has changed, `Questions.update` compares what waits with what was asked. A new question gets a card
with all its facts. The editor is asked about it only if `offer.offer_line` finds a line for it, and then a task of its
own waits for the answer. A question that waits no longer was decided elsewhere: its task ends, so that a late answer of
the editor has no effect, and its card says so. A decision is bound to the digest that was kept here, never to anything
that the editor sends. An answer that decides nothing leaves the call as it is: pending, for every other surface.
"""

import asyncio
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from chatops.acp.client import CallAnswer, Client
from chatops.acp.display import Display
from chatops.acp.offer import SOONEST_S, offer_line
from chatops.acp.show import Card, pending_card
from chatops.domain.canonical import JsonValue, json_or_text
from chatops.domain.decisions import Answer, AnswerAction, Approved, Decision, OpenQuestion, Rejected, ServerQuestion
from chatops.domain.errors import ChatopsError, ConfigError, StoreError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.sanitize import sanitize
from chatops.engine.view import open_questions
from chatops.runtime.session import Session
from chatops.store.editor_answers import note_answer
from chatops.wiring.app import App

VIA = "acp"
MAX_FORMS = 3
"""Forms that are shown until answers fit that a server does not accept; then its question is declined."""
MAX_REASON = 4_000
"""Characters of a reason: the model reads all of it."""
REASON_FORM: dict[str, JsonValue] = {
    "type": "object",
    "properties": {"reason": {"type": "string", "title": "Reason, for the model", "maxLength": MAX_REASON}},
    "required": ["reason"],
}


class _Shown(NamedTuple):
    """A call as it was shown: another digest is another question."""

    call: CallId
    digest: str


@frozen_dataclass
class _Undecided:
    """An answer that decides nothing."""

    why: str


class Questions:
    """The questions of one session: about calls, and of MCP servers."""

    def __init__(self, app: App, client: Client, display: Display) -> None:
        self._app, self._client, self._display = app, client, display
        self._shown: set[_Shown] = set()
        """The calls that wait and were shown."""
        self._asking: dict[_Shown, asyncio.Task[None]] = {}
        """Those of them that the editor is being asked about, each with the task that waits for its answer."""
        self._of_servers: dict[str, asyncio.Task[None]] = {}
        """Open questions of servers, by id, with the tasks that ask them."""
        self._cancelled = False
        """True from a cancel until the next message. Editors then end questions by themselves, which needs no word."""

    @property
    def tasks(self) -> tuple[asyncio.Task[None], ...]:
        """The tasks that wait for an answer."""
        return (*self._asking.values(), *self._of_servers.values())

    async def update(self) -> None:
        """Ask about what waits now, and end the questions about what waits no longer."""
        waiting = {_Shown(pending.call.id, pending.digest): pending for pending in self._display.view.pending}
        for shown in sorted(self._shown - waiting.keys()):
            if self._forget(shown.call):
                await self._display.show(Card(id=shown.call, status="in_progress", text="Decided elsewhere."))
        for shown, pending in waiting.items():
            if shown not in self._shown:
                self._shown.add(shown)
                await self._show_and_ask(shown, pending)
        if isinstance(session := self._display.view, Session):
            self._update_of_servers(session)

    def cancel(self) -> None:
        """Ask no more until the next message: an answer that comes later decides nothing."""
        self._cancelled = True
        for task in self._asking.values():
            task.cancel()
        self._asking.clear()

    def renew(self) -> None:
        """Let the next `update` ask again about every call that the editor is not being asked about."""
        self._cancelled = False
        self._shown.intersection_update(self._asking)

    def forget_decided(self, call: CallId) -> None:
        """Forget a call that was decided elsewhere. One decided here may wait a moment longer, and is not asked again.

        Not by who has decided: that is the same user in another window of this editor.
        """
        if call not in self._display.decided_here:
            self._forget(call)

    async def say_where_to_decide(self, pending: PendingCall, why: str = "A call waits for your decision.") -> None:
        """Name the other surfaces on which a call can be decided."""
        page = await asyncio.to_thread(self._app.store.page_address)
        link = f"{page}/call/{pending.call.id} or " if page else ""
        ways = f"{link}chatops approvals show {pending.call.id}"
        await self._display.show_notices(f"{why} Decide in chatops: {ways}")

    # Calls

    def _forget(self, call: CallId) -> bool:
        """Forget a call of any digest, so that a late answer is void. Return True if the editor was being asked."""
        self._shown = {shown for shown in self._shown if shown.call != call}
        ended = [self._asking.pop(shown) for shown in list(self._asking) if shown.call == call]
        for task in ended:
            task.cancel()
        return bool(ended)

    async def _show_and_ask(self, shown: _Shown, pending: PendingCall) -> None:
        opens = not self._display.has_card(pending.call.id)
        card = pending_card(pending, workspace=str(self._display.view.workspace), opens=opens)
        line = offer_line(pending)
        try:
            self._app.rights.check_surface(VIA)
        except ConfigError as error:
            line = ""
            await self._display.show_notices(error.full)
        if not line:
            await self._display.show(card)
            await self.say_where_to_decide(pending)
            return
        card = replace(card, title=line)
        await self._display.show(card)
        if shown in self._shown:
            asking = self._ask_and_decide(shown, pending, replace(card, opens=False))
            self._asking[shown] = asyncio.create_task(asking)

    async def _ask_and_decide(self, shown: _Shown, pending: PendingCall, card: Card) -> None:
        """Ask the editor about a call, and decide as its user answers."""
        try:
            answer = await self._client.ask(card)
            # From here on nothing ends this task: a decision that has begun is recorded.
            self._asking.pop(shown, None)
            if answer is None and self._cancelled:
                return
            decision = await self._to_decision(answer)
            if isinstance(decision, _Undecided):
                await self.say_where_to_decide(pending, decision.why)
                return
            self._display.decided_here.add(shown.call)
            if not await self._display.view.decide(shown.call, digest=shown.digest, decision=decision):
                self._display.decided_here.discard(shown.call)
                await self._display.show_notices("Another decision on this call came first, and counts.")
        except ChatopsError as error:
            await self._display.show_notices(error.full)
        except ConnectionError:
            # The editor is gone. The call stays pending.
            return

    async def _to_decision(self, answer: CallAnswer | None) -> Decision | _Undecided:
        """Return what an answer decides. Asks for the reason if the user wants to give one."""
        if answer is None:
            return _Undecided(why="Nothing was decided.")
        is_too_soon = answer.reply == "allow" and answer.after_s < SOONEST_S
        client = self._app.options.client
        with suppress(StoreError):
            await asyncio.to_thread(note_answer, self._app.store, client, seconds=answer.after_s, void=is_too_soon)
        if is_too_soon:
            what = f"{client} allowed this call {answer.after_s:.2f} s after it was asked, before anyone could read it."
            return _Undecided(why=f"{what} Nothing was decided.")
        match answer.reply:
            case "allow":
                return Approved()
            case "reject":
                return Rejected()
            case "reason":
                filled = await self._client.form("Why do you reject this call?", REASON_FORM)
                fields = json_or_text(filled.content) if filled is not None else None
                reason = fields.get("reason") if isinstance(fields, dict) else None
                if not isinstance(reason, str) or not reason.strip():
                    return _Undecided(why="No reason was given, and nothing was decided.")
                return Rejected(reason=reason.strip()[:MAX_REASON])

    # Questions of servers

    def _update_of_servers(self, session: Session) -> None:
        still_open = open_questions(session.state) if session.state is not None else ()
        questions = {question.question.id: question for question in still_open}
        for question_id in self._of_servers.keys() - questions.keys():
            self._of_servers.pop(question_id).cancel()
        for question_id in questions.keys() - self._of_servers.keys():
            answering = self._answer_server(session, questions[question_id])
            self._of_servers[question_id] = asyncio.create_task(answering)

    async def _answer_server(self, session: Session, question: OpenQuestion) -> None:
        """Let the user answer a question of a server. Where that is not possible, decline it and say why."""
        with suppress(ConnectionError):
            try:
                if why := await self._let_user_answer(session, question):
                    await session.actions.answer(question, Answer(action=AnswerAction.DECLINE), why=why)
            except ChatopsError as error:
                await self._display.show_notices(error.full)

    async def _let_user_answer(self, session: Session, question: OpenQuestion) -> str:
        """Show the form of a question until its answer fits. Return why none does, as a clause; empty if one does."""
        asks, schema = question.question, json_or_text(question.question.schema)
        message = f"{asks.server} asks: {asks.message}"
        for _ in range(MAX_FORMS):
            if why := self._why_not_asked(asks, schema):
                return why
            if (answer := await self._client.form(sanitize(message), schema)) is None:
                return "the editor did not let you answer"
            # The site may have forbidden it meanwhile: then the next `_why_not_asked` says so.
            with suppress(ConfigError):
                if not (problems := await session.actions.answer(question, answer)):
                    return ""
                message = "\n".join(f"{problem.path}: {problem.message}" for problem in problems)
        return "no answer has fitted its form"

    def _why_not_asked(self, asks: ServerQuestion, schema: JsonValue) -> str:
        """Return why the user is not asked what a server wants to know, as a clause; empty if the user is asked."""
        try:
            self._app.rights.check_surface(VIA)
        except ConfigError:
            return "the site does not let users decide in editors"
        if not self._client.has_forms:
            return "this editor has no forms"
        if asks.secrets:
            return "it asks for what looks like a secret"
        return "" if isinstance(schema, dict) else "it asks to open an address"
