"""A session in an editor: what happens is shown there, and what waits is asked there if that is safe.

Theory of operation

A session is opened as for the terminal (`wiring.workspace`), so an unfinished turn continues and what waits is asked
again. This process owns it, or follows it if another one does. Events go into one queue, from which one task shows them
in order. Each is shown once, by its kind and id, so that it does not matter whether it was published, replayed, or read
by a follower.

Whenever something has changed, `_look` compares what waits with what was asked. A new question gets a card with all
its facts. The editor is asked about it only if `offer.offered` finds a line for it, and then a task of its own waits
for the answer. A question that waits no longer was decided elsewhere: its task ends, so that a late answer of the
editor has no effect, and its card says so. A decision is bound to the digest that was kept here, never to anything that
the editor sends. An answer that decides nothing leaves the call as it is: pending, for every other surface.

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
from chatops.acp.offer import SOONEST_S, offered
from chatops.acp.show import Card, Commands, Settings, Update, Window, asked, notice, plan, updates
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
from chatops.store.clients import note_answer
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from chatops.wiring.workspace import Workspace

if TYPE_CHECKING:
    from chatops.domain.canonical import JsonValue
    from chatops.engine.workflow.state import WorkflowState

log = logging.getLogger(__name__)
T = TypeVar("T")

VIA = "acp"
TRIES = 3
"""How often a form is shown again whose answers its server does not accept."""
LONGEST_REASON = 4_000
REASON: "dict[str, JsonValue]" = {
    "type": "object",
    "properties": {"reason": {"type": "string", "title": "Reason, for the model", "maxLength": LONGEST_REASON}},
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

    async def form(self, message: str, schema: "JsonValue") -> tuple[AnswerAction | None, "JsonValue"]:
        """Show a form, and return what was answered; None if the editor has failed."""


class EditorSession:
    """An open session. Methods raise ChatopsError with a message for the user."""

    def __init__(self, app: App, workspace: Workspace, view: SessionView, client: Client, *, notices: Sequence[str]):
        """Use `open_editor_session` instead."""
        self.app, self._workspace, self._client = app, workspace, client
        self.view = view
        self._notices = list(notices)
        """Sentences to show with the next prompt."""
        self._noticed: set[str] = set()
        self._work: asyncio.Queue[Event | asyncio.Event] = asyncio.Queue()
        self._moved = asyncio.Event()
        """Set whenever the session may have changed."""
        self._begun = self._cancelled = self._prompting = self._closed = False
        self._serving: set[asyncio.Task[Any]] = set()
        """What the user has asked for and is not done yet."""
        self._reopening = asyncio.Lock()
        self._seen: set[tuple[str, str]] = set()
        self._streamed: set[str] = set()
        """Rounds whose text was shown as it came."""
        self._cards: set[str] = set()
        self._asked: dict[tuple[CallId, str], asyncio.Task[None] | None] = {}
        """Calls that wait and were shown, by id and digest; None: the editor is not asked."""
        self._decided: set[CallId] = set()
        """Calls that the user has decided here."""
        self._questions: dict[str, asyncio.Task[None]] = {}
        self._shown: dict[type, Update] = {}
        """The last update of each kind that the editor got about role, model, steps and context window."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._leave: Callable[[], None] = lambda: None
        self._show_task = asyncio.create_task(self._show(), name="editor session")

    # State

    async def roles(self) -> Sequence[tuple[str, str]]:
        """Return the name of each role, and what it may do."""
        rows = await asyncio.to_thread(self._workspace.roles)
        return [(row.name, row.description or "; ".join(row.rights)) for row in rows]

    @property
    def settings(self) -> Settings:
        """The role in force, the model that the user has chosen (`ROLES_OWN`: that of the role), and the others."""
        chosen, models = self.view.settings.model_pin or ROLES_OWN, {ROLES_OWN: "The role's own model"}
        models |= {row.name: row.label for row in self._workspace.models() if not row.missing}
        models.setdefault(chosen, chosen)
        return Settings(self.view.snapshot().role, chosen, tuple(models.items()))

    # Opening and closing

    async def begin(self, *, replay: bool) -> None:
        """Show the session from now on, after what was before it if that is wanted."""
        self._follow()
        if not replay:
            self._seen |= {key for event in self.view.events() if (key := _key(event)) is not None}
            self._cards |= {key[1] for key in self._seen if key[0] == "CallProposed"}
        for event in self.view.events() if replay else ():
            self._work.put_nowait(event)
        await self._drained()
        if (run := self._workspace.runs.run_of(self.view)) is not None:
            self._spawn(run.resume())
        # What waits comes after the answer that opens the session: nothing is awaited until that is sent.
        self._begun = True
        self._spawn(self._nudge())

    def _follow(self) -> None:
        """Hear of every change of the session."""
        self._leave()
        self._leave = self.view.subscribe(lambda published: self._work.put_nowait(published.event))
        if isinstance(self.view, SessionFollower):
            self.view.on_change(self._changed)

    async def aclose(self) -> None:
        """Close the session. What waits stays pending."""
        self._closed = True
        self._leave()
        questions = (*filter(None, self._asked.values()), *self._questions.values())
        work = (self._show_task, *self._tasks, *questions, *self._serving)
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
            return await self._served(self._prompted(text)) or (TurnStatus.CANCELLED, None)
        finally:
            self._prompting = False

    async def _prompted(self, text: str) -> tuple[TurnStatus, Usage | None]:
        name, argument = commands.split(text)
        session = await self._owned()
        await self._tell_once(*self._notices, *self.app.notices(session.grant()))
        if name:
            shown = await commands.run(name, argument, session, self._workspace)
            if shown:
                await self._drained()
                await self._client.show(notice(shown))
                return TurnStatus.ANSWERED, session.snapshot().usage
        elif not await session.submit(text) and session.pending:
            # Some editors drop a question that comes while they wait for no answer, as when they load a session.
            for one in session.pending:
                await self._decide_elsewhere(one, "Your message is sent once this call is decided.")
        await self._tell_once(*self.app.servers.failures())
        if self._cancelled:
            await session.cancel()
        self._asked = {key: task for key, task in self._asked.items() if task is not None and not task.done()}
        await self._look()
        return await self._over(session)

    async def cancel(self) -> None:
        """Stop what runs. A call that waits stays pending, and the prompt ends all the same.

        An answer that comes later decides nothing: the next message asks again.
        """
        self._cancelled = True
        for task in filter(None, self._asked.values()):
            task.cancel()
        await self.view.cancel()
        self._moved.set()

    async def switch_role(self, name: str) -> None:
        """Switch to another role from the next model call on."""

        async def switch() -> None:
            await (await self._owned()).switch_role(name)

        await self._served(switch())

    async def choose_model(self, name: str) -> None:
        """Use another model in this session."""

        async def choose() -> None:
            await (await self._owned()).pin_model(None if name == ROLES_OWN else name, as_default=False)

        await self._served(choose())

    async def _served(self, work: Coroutine[None, None, T]) -> T | None:
        """Do what the user has asked for, until the session is closed: None."""
        task = asyncio.create_task(work)
        if self._closed:
            task.cancel()
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)
        await asyncio.wait([task])
        return None if task.cancelled() else task.result()

    async def _owned(self) -> Session:
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
            before, (view, _) = self.view, await self._workspace.sessions.open_and_resume(self.view.session_id)
            self.view = view
            self._follow()
            await before.aclose()
            self._changed()

    async def _over(self, session: Session) -> tuple[TurnStatus, Usage | None]:
        """Wait until nothing is left to do, or the user has cancelled."""
        while True:
            self._moved.clear()
            run = self._workspace.runs.run_of(session)
            await (run or session).settle()
            now = session.snapshot()
            blocked = session.taken_over or (run or session).blocked_by
            going = session.unfinished or (run is not None and not run.over)
            if blocked or not (going or (now.queued and not now.queue_held)):
                await self._drained()
                await self._tell(blocked.full if blocked else "" if now.noticed else f"{now.detail} {now.advice}")
                return now.status or TurnStatus.FAILED, now.usage
            if self._cancelled:
                await self._drained()
                return TurnStatus.CANCELLED, now.usage
            await self._moved.wait()

    # Showing

    def _changed(self) -> None:
        """Show what a follower has read."""
        for event in self.view.events():
            self._work.put_nowait(event)
        self._spawn(self._nudge())

    async def _drained(self) -> None:
        """Wait until everything so far was shown."""
        done = asyncio.Event()
        self._work.put_nowait(done)
        await done.wait()

    async def _show(self) -> None:
        while True:
            event = await self._work.get()
            try:
                if isinstance(event, asyncio.Event):
                    event.set()
                elif isinstance(event, ThoughtFinished) and event.parent_id in self._streamed:
                    self._seen |= {("ThoughtFinished", event.parent_id)}
                elif (key := _key(event)) is None or key not in self._seen:
                    self._seen |= {key} if key is not None else set()
                    await self._show_event(event)
                    if not isinstance(event, TextDelta | ReasoningDelta | CallStreamed):
                        await self._look()
                if self.view.taken_over is not None:
                    self._spawn(self._reopen())
            except Exception:
                # One event that cannot be shown ends neither the session nor what is shown of it.
                log.exception("an event was not shown in the editor")
            self._moved.set()

    async def _show_event(self, event: Event) -> None:
        if isinstance(event, CallDecided):
            # Not by the principal: another window of this editor is the same one.
            if event.id in self._decided:
                return
            self._end_question(event.id)
        if isinstance(event, TextDelta | ReasoningDelta):
            self._streamed.add(event.parent_id)
        if isinstance(event, ToolFinished) and event.id not in self._cards:
            # A replayed call has only its end.
            opening = CallProposed(id=event.id, parent_id=event.parent_id, tool=event.tool, arguments=event.arguments)
            await self._show_event(opening)
        known = self.view.capabilities(event.tool) if isinstance(event, CallProposed) else NO_CAPABILITIES
        for update in updates(event, known, workspace=str(self.view.workspace), typed_here=self._prompting):
            await self._show_update(update)
        if isinstance(event, ReviewRequested):
            way = way_to_continue(self.view.session_id, self._run.spec if self._run is not None else None)
            await self._tell(f"Step {event.name} waits for your review. Review it in chatops: {way}")
        if isinstance(event, RoleSwitched | TurnFinished):
            await self._look_at_settings()

    async def _show_update(self, update: Update) -> None:
        if isinstance(update, Card):
            self._cards.add(update.id)
        await self._client.show(update)

    async def _tell(self, *sentences: str) -> None:
        for text in sentences:
            if text.strip():
                await self._client.show(notice(text))

    async def _tell_once(self, *sentences: str) -> None:
        await self._tell(*(one for one in dict.fromkeys(sentences) if one not in self._noticed))
        self._noticed.update(sentences)

    @property
    def _run(self) -> "WorkflowState | None":
        own = self._workspace.runs.run_of(self.view)
        return own.state if own is not None else self.view.run if isinstance(self.view, SessionFollower) else None

    async def _look_at_settings(self) -> None:
        """Show role, model, steps and usage if they have changed, wherever that was done."""
        now, turn, run = self.view.snapshot(), self.view.state, self._run
        updates: list[Update] = [Commands(), self.settings]
        if run is not None:
            updates.append(plan(run_view(run, () if turn is None else (turn,))))
        if now.context_window:
            cost = now.usage.cost if now.usage is not None else None
            updates.append(Window(now.context_used, now.context_window, cost))
        for update in updates:
            if self._shown.get(type(update)) != update:
                self._shown[type(update)] = update
                await self._client.show(update)

    async def _nudge(self) -> None:
        await self._look_at_settings()
        await self._look()
        self._moved.set()

    # What waits

    async def _look(self) -> None:
        """Ask about what waits now, and end the questions about what waits no longer."""
        if not self._begun:
            return
        waiting = {(one.call.id, one.digest): one for one in self.view.pending}
        for key in [key for key in self._asked if key not in waiting]:
            if self._end_question(key[0]):
                await self._show_update(Card(id=key[0], status="in_progress", text="Decided elsewhere."))
        for key, pending in waiting.items():
            if key not in self._asked:
                self._asked[key] = None
                await self._ask(key, pending)
        if self._run is not None:
            await self._look_at_settings()
        if isinstance(self.view, Session):
            asked_now = open_questions(self.view.state) if self.view.state is not None else ()
            questions = {one.question.id: one for one in asked_now}
            for name in [name for name in self._questions if name not in questions]:
                self._questions.pop(name).cancel()
            for name, question in questions.items():
                if name not in self._questions:
                    self._questions[name] = asyncio.create_task(self._answer(self.view, question))

    def _end_question(self, call: CallId) -> bool:
        """Make a late answer void. Return True if the editor was being asked."""
        tasks = [self._asked.pop(key) for key in list(self._asked) if key[0] == call]
        open_ones = [task for task in tasks if task is not None and not task.done()]
        for task in open_ones:
            task.cancel()
        return bool(open_ones)

    async def _ask(self, key: tuple[CallId, str], pending: PendingCall) -> None:
        opens = pending.call.id not in self._cards
        card = asked(pending, workspace=str(self.view.workspace), opens=opens)
        line = offered(pending)
        try:
            self.app.rights.check_surface(VIA)
        except ConfigError as error:
            line = ""
            await self._tell(error.full)
        if not line:
            await self._show_update(card)
            await self._decide_elsewhere(pending)
            return
        card = replace(card, title=line)
        await self._show_update(card)
        if key in self._asked:
            self._asked[key] = asyncio.create_task(self._answered(key, pending, replace(card, opens=False)))

    async def _decide_elsewhere(self, pending: PendingCall, why: str = "") -> None:
        desk = await asyncio.to_thread(self.app.store.desk)
        place = f"{desk}/call/{pending.call.id} or " if desk else ""
        ways = f"{place}chatops approvals show {pending.call.id}"
        await self._tell(f"{why or 'A call waits for your decision.'} Decide in chatops: {ways}")

    async def _answered(self, key: tuple[CallId, str], pending: PendingCall, card: Card) -> None:
        """Ask the editor about a call, and decide as its user answers."""
        try:
            reply, seconds = await self._client.ask(card)
            # From here on nothing ends this task: a decision that has begun is recorded.
            self._asked[key] = None
            if not reply:
                if not self._cancelled:
                    await self._decide_elsewhere(pending, "Nothing was decided.")
                return
            soon = reply == "allow" and seconds < SOONEST_S
            client = self.app.options.client
            with suppress(StoreError):
                await asyncio.to_thread(note_answer, self.app.store, client, seconds=seconds, void=soon)
            if soon:
                why = f"{client} allowed this call {seconds:.2f} s after it was asked, before anyone could read it. "
                await self._decide_elsewhere(pending, f"{why}Nothing was decided.")
                return
            decision: Decision = Approved() if reply == "allow" else Rejected()
            if reply == "reason":
                action, content = await self._client.form("Why do you reject this call?", REASON)
                reason = content.get("reason") if isinstance(content, dict) else None
                if action is not AnswerAction.ACCEPT or not isinstance(reason, str) or not reason.strip():
                    await self._decide_elsewhere(pending, "No reason was given, and nothing was decided.")
                    return
                decision = Rejected(reason=reason.strip()[:LONGEST_REASON])
            self._decided.add(pending.call.id)
            if not await self.view.decide(pending.call.id, digest=pending.digest, decision=decision):
                self._decided.discard(pending.call.id)
                await self._tell("Another decision on this call came first, and counts.")
        except ChatopsError as error:
            await self._tell(error.full)
        except ConnectionError:
            # The editor is gone. The call stays pending.
            return

    async def _answer(self, session: Session, question: OpenQuestion) -> None:
        """Let the user answer a question of a server. Where that is not possible, decline it and say why."""
        schema, asks = json_or_text(question.question.schema), question.question
        message, why = f"{asks.server} asks: {asks.message}", ""
        with suppress(ConnectionError):
            try:
                for _ in range(TRIES):
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
                await self._tell(error.full)

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


def _key(event: Event) -> tuple[str, str] | None:
    """Return what tells if an event was shown; None for pieces and steps that come once."""
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
    app, workspace = await asyncio.to_thread(_prepare, options)
    try:
        view, news = await workspace.sessions.open_and_resume(session_id)
        if session_id is None:
            await owned(view, "Nothing was done").store()
        workspace.upkeep.watch_files()
        return EditorSession(app, workspace, view, client, notices=(*notices, *news))
    except BaseException:
        await workspace.aclose()
        raise


def _prepare(options: Options) -> tuple[App, Workspace]:
    app = App(options)
    app.prepare()
    return app, Workspace(app)
