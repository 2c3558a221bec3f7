"""A session in an editor: what happens is shown there, and what waits is asked there if that is safe.

Theory of operation

A session is opened as for the terminal (`wiring.workspace`), so an unfinished turn continues and what waits is asked
again. This process owns it, or follows it if another one does. Events go into one queue, from which one task shows them
in order. Each is shown once, by its kind and id, so that it does not matter whether it was published, replayed, or read
by a follower.

Whenever something has changed, `_ask_what_waits` compares what waits with what was asked. A new question gets a card
with all its facts. The editor is asked about it only if `offer.offer_line` finds a line for it, and then a task of its
own waits for the answer. A question that waits no longer was decided elsewhere: its task ends, so that a late answer of
the editor has no effect, and its card says so. A decision is bound to the digest that was kept here, never to anything
that the editor sends. An answer that decides nothing leaves the call as it is: pending, for every other surface.

It does not stand on `api.chat.Chat`, which opens a session for one message and lets go of it when a call waits. An
editor has to hear of what happens between messages: decisions and role changes elsewhere, another owner, a run.
"""

import asyncio
import json
import logging
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeVar

from chatops.acp import commands
from chatops.acp.offer import SOONEST_S, offer_line
from chatops.acp.show import Card, Commands, Settings, Update, Window, notice, pending_card, plan, updates
from chatops.domain.canonical import json_or_text
from chatops.domain.decisions import Answer, AnswerAction, Approved, Decision, OpenQuestion, Rejected, ServerQuestion
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeldError, StoreError
from chatops.domain.events import (
    AnswerRefused,
    CallDecided,
    CallProposed,
    CallStreamed,
    Event,
    Notice,
    PendingCall,
    ReasoningDelta,
    ReviewRequested,
    RoleSwitched,
    TextDelta,
    ThoughtFinished,
    ToolFinished,
    TurnCorrected,
    TurnFinished,
    TurnStarted,
    TurnStatus,
)
from chatops.domain.ids import CallId, SessionId
from chatops.domain.messages import Usage
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import NO_CAPABILITIES
from chatops.engine.view import open_questions
from chatops.engine.workflow.view import run_view
from chatops.runtime.descriptions import way_to_continue
from chatops.runtime.session import Session, owned
from chatops.runtime.session_follower import SessionFollower
from chatops.runtime.view import SessionView
from chatops.store.editor_answers import note_answer
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from chatops.wiring.workspace import Workspace

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue
    from chatops.engine.workflow.state import WorkflowState

log = logging.getLogger(__name__)
T = TypeVar("T")

VIA = "acp"
MAX_FORMS = 3
"""Forms that are shown until answers fit that a server does not accept; then its question is declined."""
MAX_REASON = 4_000
"""Characters of a reason: the model reads all of it."""
REASON_FORM: "dict[str, JsonValue]" = {
    "type": "object",
    "properties": {"reason": {"type": "string", "title": "Reason, for the model", "maxLength": MAX_REASON}},
    "required": ["reason"],
}
ROLES_OWN = ":role"
"""Value of the option for the model that is the role's own."""
Reply = Literal["allow", "reject", "reason", ""]
"""The user's answer to a question; empty: none of those that were offered."""


class Client(Protocol):
    """The editor, for one session."""

    has_forms: bool

    async def show(self, update: Update) -> None:
        """Show what has happened or changed."""

    async def ask(self, card: Card) -> tuple[Reply, float]:
        """Ask about a call. Return the answer, and the seconds that it took since the question was sent."""

    async def form(self, message: str, fields: "JsonValue") -> tuple[AnswerAction | None, "JsonValue"]:
        """Show a form of `fields`, a JSON Schema, and return what was answered; None if the editor has failed."""


class EditorSession:
    """An open session. Methods raise ChatopsError with a message for the user."""

    def __init__(self, app: App, workspace: Workspace, view: SessionView, client: Client, *, notices: Sequence[str]):
        """Use `open_editor_session` instead."""
        self.app, self._workspace, self._client = app, workspace, client
        self.view = view
        self._notices = list(notices)
        """Sentences to show with the next prompt."""
        self._noticed: set[str] = set()
        """Sentences that are not shown again."""
        self._to_show: asyncio.Queue[Event | asyncio.Event] = asyncio.Queue()
        """Events to show; an `asyncio.Event` is set when all before it were shown."""
        self._may_have_changed = asyncio.Event()
        self._may_ask = False
        """True once the editor has heard of the session, and can be asked about what waits."""
        self._prompting = False
        """True while a prompt of the editor is answered."""
        self._cancelled = False
        """True from a cancel until the next prompt."""
        self._closed = False
        self._requests: set[asyncio.Task[Any]] = set()
        """Requests of the user that are not finished yet."""
        self._reopening = asyncio.Lock()
        self._shown_events: set[tuple[str, str]] = set()
        """Keys, as `_event_key` makes them, of the events that the editor has got."""
        self._streamed_rounds: set[str] = set()
        """Rounds whose text was shown as it came."""
        self._opened_cards: set[str] = set()
        """The ids of calls whose card the editor has got."""
        self._asked_calls: dict[tuple[CallId, str], asyncio.Task[None] | None] = {}
        """Calls that wait and were shown, by id and digest, with the task that asks; None: nothing asks any more."""
        self._decided_here: set[CallId] = set()
        """Calls that the user has decided here."""
        self._asked_by_servers: dict[str, asyncio.Task[None]] = {}
        """Open questions of servers, by id, with the tasks that ask them."""
        self._last_updates: dict[type, Update] = {}
        """The last update of each kind that the editor got about role, model, steps and context window."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._show_task = asyncio.create_task(self._show_events(), name="editor session")

    # State

    async def roles(self) -> Sequence[tuple[str, str]]:
        """Return the name of each role, and what it may do."""
        rows = await asyncio.to_thread(self._workspace.roles)
        return [(row.name, row.description or "; ".join(row.rights)) for row in rows]

    @property
    def settings(self) -> Settings:
        """The role in force, the model that the user has chosen (`ROLES_OWN`: that of the role), and the others."""
        chosen, models = self.view.settings.model_pin or ROLES_OWN, {ROLES_OWN: "The role's own model"}
        models |= {row.name: row.label or row.name for row in self._workspace.models() if not row.missing}
        models.setdefault(chosen, chosen)
        return Settings(self.view.snapshot().role, chosen, tuple(models.items()))

    # Opening and closing

    async def begin(self, *, replay: bool) -> None:
        """Show the session from now on, after what was before it if that is wanted."""
        self._follow()
        if not replay:
            self._shown_events |= {key for event in self.view.events() if (key := _event_key(event)) is not None}
            self._opened_cards |= {event_id for kind, event_id in self._shown_events if kind == "CallProposed"}
        for event in self.view.events() if replay else ():
            self._to_show.put_nowait(event)
        await self._wait_until_shown()
        if (run := self._workspace.runs.run_of(self.view)) is not None:
            self._spawn(run.resume())
        # What waits comes after the answer that opens the session: nothing is awaited until that is sent.
        self._may_ask = True
        self._spawn(self._catch_up())

    def _follow(self) -> None:
        """Hear of every change of the session."""
        self._unsubscribe()
        self._unsubscribe = self.view.subscribe(lambda published: self._to_show.put_nowait(published.event))
        if isinstance(self.view, SessionFollower):
            self.view.on_change(self._show_what_was_read)

    async def aclose(self) -> None:
        """Close the session. What waits stays pending."""
        self._closed = True
        self._unsubscribe()
        questions = (*filter(None, self._asked_calls.values()), *self._asked_by_servers.values())
        work = (self._show_task, *self._tasks, *questions, *self._requests)
        for task in work:
            task.cancel()
        # None of it may go on over a closed store.
        await asyncio.wait(work)
        await self._workspace.aclose()

    # What the user does

    async def prompt(self, text: str) -> tuple[TurnStatus, Usage | None]:
        """Send a message, or run a command. Return how its turn ended, and the usage of the session.

        CANCELLED: the user has cancelled it, or the session was closed.

        While a call waits, the message is queued behind its turn.
        """
        if self._prompting:
            raise ConfigError("The last message is still being answered.", advice="Wait for it, or cancel it.")
        self._prompting, self._cancelled = True, False
        try:
            return await self._until_closed(self._send_prompt(text)) or (TurnStatus.CANCELLED, None)
        finally:
            self._prompting = False

    async def _send_prompt(self, text: str) -> tuple[TurnStatus, Usage | None]:
        name, argument = commands.split(text)
        session = await self._own_session()
        await self._show_notices_once(*self._notices, *self.app.notices(session.grant()))
        if name:
            shown = await commands.run(name, argument, session, self._workspace)
            if shown:
                await self._wait_until_shown()
                await self._client.show(notice(shown))
                return TurnStatus.ANSWERED, session.snapshot().usage
        elif not await session.submit(text) and session.pending:
            # Some editors drop a question that comes while they wait for no answer, as when they load a session.
            for pending in session.pending:
                await self._decide_elsewhere(pending, "Your message is sent once this call is decided.")
        await self._show_notices_once(*self.app.servers.failures())
        if self._cancelled:
            await session.cancel()
        # A new message asks again about every call that the editor is not being asked about.
        self._asked_calls = {
            key: task for key, task in self._asked_calls.items() if task is not None and not task.done()
        }
        await self._ask_what_waits()
        return await self._wait_for_end(session)

    async def cancel(self) -> None:
        """Stop what runs. A call that waits stays pending, and the prompt ends all the same.

        An answer that comes later decides nothing: the next message asks again.
        """
        self._cancelled = True
        for task in filter(None, self._asked_calls.values()):
            task.cancel()
        await self.view.cancel()
        self._may_have_changed.set()

    async def switch_role(self, name: str) -> None:
        """Switch to another role from the next model call on."""

        async def switch() -> None:
            await (await self._own_session()).switch_role(name)

        await self._until_closed(switch())

    async def choose_model(self, name: str) -> None:
        """Use another model in this session."""

        async def choose() -> None:
            await (await self._own_session()).pin_model(None if name == ROLES_OWN else name, as_default=False)

        await self._until_closed(choose())

    async def _until_closed(self, work: Coroutine[None, None, T]) -> T | None:
        """Do what the user has asked for, until the session is closed: None."""
        task = asyncio.create_task(work)
        if self._closed:
            task.cancel()
        self._requests.add(task)
        task.add_done_callback(self._requests.discard)
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def _own_session(self) -> Session:
        """Return the session, opened again if another process had it meanwhile. Raises SessionHeldError."""
        await self._reopen()
        if isinstance(self.view, Session):
            return self.view
        raise SessionHeldError(
            f"Nothing was done: {self.view.whereabouts()}.",
            advice="Leave it there first. Until then it is followed here, and calls can be decided.",
        )

    async def _reopen(self) -> None:
        """Open the session again if it is not this process's: to own it, or else to follow it."""
        async with self._reopening:
            if isinstance(self.view, Session) and self.view.taken_over is None:
                return
            other = self.view
            self.view, _ = await self._workspace.sessions.open_and_resume(other.session_id)
            self._follow()
            await other.aclose()
            self._show_what_was_read()

    async def _wait_for_end(self, session: Session) -> tuple[TurnStatus, Usage | None]:
        """Wait until nothing is left to do, or the user has cancelled."""
        while True:
            self._may_have_changed.clear()
            run = self._workspace.runs.run_of(session)
            await (run or session).settle()
            now = session.snapshot()
            obstacle = session.taken_over or (run or session).blocked_by
            is_running = session.unfinished or (run is not None and not run.over)
            will_run = now.queued and not now.queue_held
            if obstacle or not (is_running or will_run):
                await self._wait_until_shown()
                if obstacle:
                    await self._show_notices(obstacle.full)
                elif not now.noticed:
                    await self._show_notices(f"{now.detail} {now.advice}")
                return now.status or TurnStatus.FAILED, now.usage
            if self._cancelled:
                await self._wait_until_shown()
                return TurnStatus.CANCELLED, now.usage
            await self._may_have_changed.wait()

    # Showing

    def _show_what_was_read(self) -> None:
        """Show the events that were not shown yet, and what has changed with them."""
        for event in self.view.events():
            self._to_show.put_nowait(event)
        self._spawn(self._catch_up())

    async def _wait_until_shown(self) -> None:
        done = asyncio.Event()
        self._to_show.put_nowait(done)
        await done.wait()

    async def _show_events(self) -> None:
        while True:
            event = await self._to_show.get()
            try:
                if isinstance(event, asyncio.Event):
                    event.set()
                elif isinstance(event, ThoughtFinished) and event.parent_id in self._streamed_rounds:
                    # Its text was shown as it came.
                    self._shown_events |= {("ThoughtFinished", event.parent_id)}
                elif (key := _event_key(event)) is None or key not in self._shown_events:
                    self._shown_events |= {key} if key is not None else set()
                    await self._show_event(event)
                    if not isinstance(event, TextDelta | ReasoningDelta | CallStreamed):
                        await self._ask_what_waits()
                if self.view.taken_over is not None:
                    self._spawn(self._reopen())
            except Exception:
                # One event that cannot be shown ends neither the session nor what is shown of it.
                log.exception("an event was not shown in the editor")
            self._may_have_changed.set()

    async def _show_event(self, event: Event) -> None:
        if isinstance(event, CallDecided):
            # Not by `event.by`: that is the same user in another window of this editor.
            if event.id in self._decided_here:
                return
            self._end_question(event.id)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._streamed_rounds.add(event.parent_id)
        if isinstance(event, ToolFinished) and event.id not in self._opened_cards:
            # A replayed call has only its end.
            opening = CallProposed(id=event.id, parent_id=event.parent_id, tool=event.tool, arguments=event.arguments)
            await self._show_event(opening)
        capabilities = self.view.capabilities(event.tool) if isinstance(event, CallProposed) else NO_CAPABILITIES
        for update in updates(event, capabilities, workspace=str(self.view.workspace), typed_here=self._prompting):
            await self._show_update(update)
        if isinstance(event, ReviewRequested):
            way = way_to_continue(self.view.session_id, self._run.spec if self._run is not None else None)
            await self._show_notices(f"Step {event.name} waits for your review. Review it in chatops: {way}")
        if isinstance(event, RoleSwitched | TurnFinished):
            await self._show_settings()

    async def _show_update(self, update: Update) -> None:
        if isinstance(update, Card):
            self._opened_cards.add(update.id)
        await self._client.show(update)

    async def _show_notices(self, *sentences: str) -> None:
        for text in sentences:
            if text.strip():
                await self._client.show(notice(text))

    async def _show_notices_once(self, *sentences: str) -> None:
        await self._show_notices(*(text for text in dict.fromkeys(sentences) if text not in self._noticed))
        self._noticed.update(sentences)

    @property
    def _run(self) -> "WorkflowState | None":
        if (own := self._workspace.runs.run_of(self.view)) is not None:
            return own.state
        return self.view.run if isinstance(self.view, SessionFollower) else None

    async def _show_settings(self) -> None:
        """Show role, model, steps and usage if they have changed, wherever that was done."""
        now, turn, run = self.view.snapshot(), self.view.state, self._run
        updates: list[Update] = [Commands(), self.settings]
        if run is not None:
            updates.append(plan(run_view(run, () if turn is None else (turn,))))
        if now.context_window:
            cost = now.usage.cost if now.usage is not None else None
            updates.append(Window(now.context_used, now.context_window, cost))
        for update in updates:
            if self._last_updates.get(type(update)) != update:
                self._last_updates[type(update)] = update
                await self._client.show(update)

    async def _catch_up(self) -> None:
        await self._show_settings()
        await self._ask_what_waits()
        self._may_have_changed.set()

    # What waits

    async def _ask_what_waits(self) -> None:
        """Ask about what waits now, and end the questions about what waits no longer."""
        if not self._may_ask:
            return
        waiting = {(pending.call.id, pending.digest): pending for pending in self.view.pending}
        for call, digest in list(self._asked_calls):
            if (call, digest) not in waiting and self._end_question(call):
                await self._show_update(Card(id=call, status="in_progress", text="Decided elsewhere."))
        for key, pending in waiting.items():
            if key not in self._asked_calls:
                self._asked_calls[key] = None
                await self._ask(key, pending)
        if self._run is not None:
            await self._show_settings()
        if isinstance(self.view, Session):
            still_open = open_questions(self.view.state) if self.view.state is not None else ()
            questions = {question.question.id: question for question in still_open}
            for question_id in self._asked_by_servers.keys() - questions.keys():
                self._asked_by_servers.pop(question_id).cancel()
            for question_id in questions.keys() - self._asked_by_servers.keys():
                asking = self._answer_server(self.view, questions[question_id])
                self._asked_by_servers[question_id] = asyncio.create_task(asking)

    def _end_question(self, call: CallId) -> bool:
        """Forget a call of any digest, so that a late answer is void. Return True if the editor was being asked."""
        tasks = [self._asked_calls.pop(key) for key in list(self._asked_calls) if key[0] == call]
        asking = [task for task in tasks if task is not None and not task.done()]
        for task in asking:
            task.cancel()
        return bool(asking)

    async def _ask(self, key: tuple[CallId, str], pending: PendingCall) -> None:
        opens = pending.call.id not in self._opened_cards
        card = pending_card(pending, workspace=str(self.view.workspace), opens=opens)
        line = offer_line(pending)
        try:
            self.app.rights.check_surface(VIA)
        except ConfigError as error:
            line = ""
            await self._show_notices(error.full)
        if not line:
            await self._show_update(card)
            await self._decide_elsewhere(pending)
            return
        card = replace(card, title=line)
        await self._show_update(card)
        if key in self._asked_calls:
            self._asked_calls[key] = asyncio.create_task(self._ask_and_decide(key, pending, replace(card, opens=False)))

    async def _decide_elsewhere(self, pending: PendingCall, why: str = "") -> None:
        page = await asyncio.to_thread(self.app.store.page_address)
        link = f"{page}/call/{pending.call.id} or " if page else ""
        ways = f"{link}chatops approvals show {pending.call.id}"
        await self._show_notices(f"{why or 'A call waits for your decision.'} Decide in chatops: {ways}")

    async def _ask_and_decide(self, key: tuple[CallId, str], pending: PendingCall, card: Card) -> None:
        """Ask the editor about a call, and decide as its user answers."""
        try:
            reply, seconds = await self._client.ask(card)
            # From here on nothing ends this task: a decision that has begun is recorded.
            self._asked_calls[key] = None
            if not reply:
                if not self._cancelled:
                    await self._decide_elsewhere(pending, "Nothing was decided.")
                return
            is_too_soon = reply == "allow" and seconds < SOONEST_S
            client = self.app.options.client
            with suppress(StoreError):
                await asyncio.to_thread(note_answer, self.app.store, client, seconds=seconds, void=is_too_soon)
            if is_too_soon:
                why = f"{client} allowed this call {seconds:.2f} s after it was asked, before anyone could read it. "
                await self._decide_elsewhere(pending, f"{why}Nothing was decided.")
                return
            decision: Decision = Approved() if reply == "allow" else Rejected()
            if reply == "reason":
                action, content = await self._client.form("Why do you reject this call?", REASON_FORM)
                reason = content.get("reason") if isinstance(content, dict) else None
                if action is not AnswerAction.ACCEPT or not isinstance(reason, str) or not reason.strip():
                    await self._decide_elsewhere(pending, "No reason was given, and nothing was decided.")
                    return
                decision = Rejected(reason=reason.strip()[:MAX_REASON])
            self._decided_here.add(pending.call.id)
            if not await self.view.decide(pending.call.id, digest=pending.digest, decision=decision):
                self._decided_here.discard(pending.call.id)
                await self._show_notices("Another decision on this call came first, and counts.")
        except ChatopsError as error:
            await self._show_notices(error.full)
        except ConnectionError:
            # The editor is gone. The call stays pending.
            return

    async def _answer_server(self, session: Session, question: OpenQuestion) -> None:
        """Let the user answer a question of a server. Where that is not possible, decline it and say why."""
        schema, asks = json_or_text(question.question.schema), question.question
        message, why = f"{asks.server} asks: {asks.message}", ""
        with suppress(ConnectionError):
            try:
                for _ in range(MAX_FORMS):
                    if why := self._why_not_asked(asks, schema):
                        break
                    action, content = await self._client.form(sanitize(message), schema)
                    if action is None:
                        why = "the editor did not let you answer"
                        break
                    accepted = action is AnswerAction.ACCEPT
                    answer = Answer(action=action, content=json.dumps(content) if accepted else "")
                    # The site may have forbidden it meanwhile.
                    with suppress(ConfigError):
                        if not (problems := await session.actions.answer(question, answer)):
                            return
                        message = "\n".join(f"{problem.path}: {problem.message}" for problem in problems)
                declined = Answer(action=AnswerAction.DECLINE)
                await session.actions.answer(question, declined, why=why or "no answer has fitted its form")
            except ChatopsError as error:
                await self._show_notices(error.full)

    def _why_not_asked(self, asks: ServerQuestion, schema: "JsonValue") -> str:
        """Return why the user is not asked what a server wants to know, as a clause; empty if the user is asked."""
        try:
            self.app.rights.check_surface(VIA)
        except ConfigError:
            return "the site does not let users decide in editors"
        if not self._client.has_forms:
            return "this editor has no forms"
        if asks.secrets:
            return "it asks for what looks like a secret"
        return "" if isinstance(schema, dict) else "it asks to open an address"

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        def done(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a session in the editor was not brought up to date: %r", error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)


def _event_key(event: Event) -> tuple[str, str] | None:
    """Return the key of an event that may come twice, as when it is replayed; None for one that comes once."""
    match event:
        case TurnStarted() | TurnCorrected() | CallProposed() | ToolFinished() | Notice() | AnswerRefused():
            return type(event).__name__, event.id
        case ThoughtFinished():
            return "ThoughtFinished", event.parent_id
        case _:
            return None


async def open_editor_session(
    options: Options, session_id: SessionId | None, client: Client, *, notices: Sequence[str]
) -> EditorSession:
    """Open a session, a new one for None, in its folder. `notices` are sentences to show. Raises ChatopsError."""

    def prepare() -> tuple[App, Workspace]:
        app = App(options)
        app.prepare()
        return app, Workspace(app)

    app, workspace = await asyncio.to_thread(prepare)
    try:
        view, news = await workspace.sessions.open_and_resume(session_id)
        if session_id is None:
            await owned(view, "Nothing was done").store()
        workspace.upkeep.watch_files()
        return EditorSession(app, workspace, view, client, notices=(*notices, *news))
    except BaseException:
        await workspace.aclose()
        raise
