"""A session in an editor: what happens is shown there, and what waits is asked there if that is safe.

Theory of operation

A session is opened as for the terminal (`wiring.workspace`), so an unfinished turn continues and what waits is asked
again. This process owns it, or follows it if another one does. Events go into one queue, from which one task shows them
in order (`acp.display`), each once, so that it does not matter whether it was published, replayed, or read by a
follower. After each event, what waits is asked (`acp.questions`).

It does not stand on `api.chat.Chat`, which opens a session for one message and lets go of it when a call waits. An
editor has to hear of what happens between messages: decisions and role changes elsewhere, another owner, a run.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from enum import Enum, auto
from typing import Any, TypeVar

from chatops.acp import commands
from chatops.acp.client import Client
from chatops.acp.display import ROLES_OWN, Display
from chatops.acp.questions import Questions
from chatops.acp.show import Settings, notice
from chatops.domain.errors import ConfigError, SessionHeldError
from chatops.domain.events import CallDecided, CallStreamed, Event, ReasoningDelta, TextDelta, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.domain.messages import Usage
from chatops.runtime.session import Session, owned
from chatops.runtime.session_follower import SessionFollower
from chatops.runtime.view import SessionView
from chatops.wiring.app import App
from chatops.wiring.stored import Options
from chatops.wiring.workspace import Workspace

log = logging.getLogger(__name__)
T = TypeVar("T")


class _Prompt(Enum):
    """The state of the editor's last prompt. The editor has one at a time."""

    ENDED = auto()
    """Or there was none yet."""
    RUNNING = auto()
    CANCELLED = auto()
    """The user has cancelled it, and it has not ended yet."""


@frozen_dataclass
class PromptEnd:
    """End of the turn of a prompt, and the usage of the session. A cancelled prompt may leave its turn waiting."""

    status: TurnStatus
    usage: Usage | None = None


class EditorSession:
    """An open session. Methods raise ChatopsError with a message for the user."""

    def __init__(self, app: App, workspace: Workspace, view: SessionView, client: Client, *, notices: Sequence[str]):
        """Use `open_editor_session` instead."""
        self.app, self._workspace, self._client = app, workspace, client
        self._display = Display(client, workspace, view)
        self._questions = Questions(app, client, self._display)
        self._notices = list(notices)
        """Sentences to show with the first prompt."""
        self._to_show: asyncio.Queue[Event | asyncio.Event] = asyncio.Queue()
        """Events to show; an `asyncio.Event` is set when all before it were shown."""
        self._may_have_changed = asyncio.Event()
        self._may_ask = False
        """True once the editor has heard of the session, and can be asked about what waits."""
        self._prompt = _Prompt.ENDED
        self._closed = False
        self._requests: set[asyncio.Task[Any]] = set()
        """Requests of the user that are not finished yet."""
        self._reopening = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._unsubscribe: Callable[[], None] = lambda: None
        self._show_task = asyncio.create_task(self._show_events(), name="editor session")

    # State

    async def roles(self) -> Sequence[tuple[str, str]]:
        """Return the name of each role, and what it may do."""
        rows = await asyncio.to_thread(self._workspace.roles)
        return [(row.name, row.description or "; ".join(row.rights)) for row in rows]

    @property
    def view(self) -> SessionView:
        """The session as it is open now."""
        return self._display.view

    @property
    def settings(self) -> Settings:
        """Role and model in force, and the models to choose from."""
        return self._display.settings

    # Opening and closing

    async def begin(self, *, replay: bool) -> None:
        """Show the session from now on, after what was before it if that is wanted."""
        self._follow()
        for event in self.view.events():
            if replay:
                self._to_show.put_nowait(event)
            else:
                self._display.skip(event)
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
        work = (self._show_task, *self._tasks, *self._questions.tasks, *self._requests)
        for task in work:
            task.cancel()
        # None of it may go on over a closed store.
        await asyncio.wait(work)
        await self._workspace.aclose()

    # What the user does

    async def prompt(self, text: str) -> PromptEnd:
        """Send a message, or run a command, and wait for its end. It is CANCELLED too if the session was closed.

        While a call waits, the message is queued behind its turn.
        """
        if self._prompt is not _Prompt.ENDED:
            raise ConfigError("The last message is still being answered.", advice="Wait for it, or cancel it.")
        self._prompt = _Prompt.RUNNING
        try:
            return await self._until_closed(self._send_prompt(text)) or PromptEnd(status=TurnStatus.CANCELLED)
        finally:
            self._prompt = _Prompt.ENDED

    async def _send_prompt(self, text: str) -> PromptEnd:
        command = commands.read_command(text)
        session = await self._own_session()
        await self._display.show_notices_once(*self._notices, *self.app.notices(session.grant()))
        if command is not None:
            if shown := await commands.run(command, session, self._workspace):
                await self._wait_until_shown()
                await self._client.show(notice(shown))
                return PromptEnd(status=TurnStatus.ANSWERED, usage=session.snapshot().usage)
        elif not await session.submit(text) and session.pending:
            # Some editors drop a question that comes while they wait for no answer, as when they load a session.
            for pending in session.pending:
                why = "Your message is sent once this call is decided."
                await self._questions.say_where_to_decide(pending, why)
        await self._display.show_notices_once(*self.app.servers.failures())
        if self._prompt is _Prompt.CANCELLED:
            await session.cancel()
        self._questions.renew()
        await self._ask_what_waits()
        return await self._wait_for_end(session)

    async def cancel(self) -> None:
        """Stop what runs. A call that waits stays pending, and the prompt ends all the same.

        An answer that comes later decides nothing: the next message asks again.
        """
        if self._prompt is _Prompt.RUNNING:
            self._prompt = _Prompt.CANCELLED
        self._questions.cancel()
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
            self._display.view, _ = await self._workspace.sessions.open_and_resume(other.session_id)
            self._follow()
            await other.aclose()
            self._show_what_was_read()

    async def _wait_for_end(self, session: Session) -> PromptEnd:
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
                    await self._display.show_notices(obstacle.full)
                elif not now.noticed:
                    await self._display.show_notices(f"{now.detail} {now.advice}")
                return PromptEnd(status=now.status or TurnStatus.FAILED, usage=now.usage)
            if self._prompt is _Prompt.CANCELLED:
                await self._wait_until_shown()
                return PromptEnd(status=TurnStatus.CANCELLED, usage=now.usage)
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
                else:
                    await self._take(event)
                if self.view.taken_over is not None:
                    self._spawn(self._reopen())
            except Exception:
                # One event that cannot be shown ends neither the session nor what is shown of it.
                log.exception("an event was not shown in the editor")
            self._may_have_changed.set()

    async def _take(self, event: Event) -> None:
        """Show an event, then ask about what waits because of it."""
        if isinstance(event, CallDecided):
            self._questions.forget_decided(event.id)
        is_new = await self._display.show_if_new(event, typed_here=self._prompt is not _Prompt.ENDED)
        if is_new and not isinstance(event, TextDelta | ReasoningDelta | CallStreamed):
            await self._ask_what_waits()

    async def _catch_up(self) -> None:
        await self._display.show_state()
        await self._ask_what_waits()
        self._may_have_changed.set()

    async def _ask_what_waits(self) -> None:
        if self._may_ask:
            await self._questions.update()
            if self._display.run is not None:
                await self._display.show_state()

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        def done(task: "asyncio.Task[None]") -> None:
            self._tasks.discard(task)
            if not task.cancelled() and (error := task.exception()) is not None:
                log.warning("a session in the editor was not brought up to date: %r", error)

        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(done)


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
