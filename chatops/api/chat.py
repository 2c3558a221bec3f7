"""A chat from Python: the same sessions, roles, rights and approvals as in the terminal.

A `Chat` holds no process and no connection between two calls. Each call opens the session, continues until the turn is
over or needs the user, stores it, and lets go. So a call that waits can be decided by another program, in a terminal or
here, and the next call, also of another process, takes the decision along.
"""

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from chatops.api.tools import AnyTool, as_tool
from chatops.domain.decisions import Approved, Decision, Rejected
from chatops.domain.errors import ChatopsError, ConfigError
from chatops.domain.events import Event, PendingCall, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId, session_of
from chatops.domain.messages import Usage
from chatops.domain.tools import ENGINE_CALLS
from chatops.engine.inputs import DecideCall
from chatops.engine.view import turn_status
from chatops.headless.pending import describe
from chatops.headless.report import CallReport, report
from chatops.policy.budget import NO_BUDGET, parse_budget
from chatops.policy.registry import RoleSpec
from chatops.runtime.session import Session
from chatops.toolkit.base import Tool
from chatops.toolkit.threads import DaemonThreadExecutor
from chatops.wiring.app import App
from chatops.wiring.jobs import start_if_job
from chatops.wiring.rights import current_user
from chatops.wiring.stored import Options, Storage, in_session_workspace, open_store, principal_of

ROLE = "python"
"""The role of a chat that names none. It has the tools that the program gives, and the models of the default role."""
_VIA = "python"
_UNFINISHED = frozenset({TurnStatus.PAUSED, TurnStatus.RUNNING})
T = TypeVar("T")


@frozen_dataclass(kw_only=False)
class Asked:
    """A call that waits for a decision."""

    pending: PendingCall
    registry: Path | None = None
    """The registry of its chat, which may name the store; None: the user's own."""

    @property
    def id(self) -> str:
        """The id of the call, as ``chatops approvals`` shows it."""
        return self.pending.call.id

    @property
    def tool(self) -> str:
        """The name of the tool."""
        return self.pending.call.name

    @property
    def arguments(self) -> str:
        """The arguments, as JSON."""
        return self.pending.call.arguments

    @property
    def digest(self) -> str:
        """The digest of all that an approval is bound to."""
        return self.pending.digest

    @property
    def text(self) -> str:
        """Everything that the approval dialog shows, line by line, with invisible characters made visible."""
        return describe(self.pending)

    def approve(self, *, digest: str) -> str:
        """Let the call run at the next `Chat.resume`, exactly as shown under this `digest`.

        A job continues at once, in the background. Then return what became of it, as a sentence; else an empty text.

        Changes of a contained turn, a call whose outcome is unknown, and a budget need a user: ``chatops approvals``.

        Raises ChatopsError if the digest is another one, if the role in force denies the call, if a user has to decide,
        or if the call was decided already.
        """
        if digest != self.digest:
            raise ChatopsError(
                f"{self.tool} ({self.id}) is not what was approved: its digest is {self.digest}.",
                advice="Look at it again, and approve what it says now.",
            )
        if self.pending.denial is not None:
            raise ChatopsError(f"{self.tool} ({self.id}) cannot be approved: {self.pending.denial.by} denies it.")
        if self.tool in ENGINE_CALLS or self.pending.outcome_unknown or self.pending.approvers:
            raise ChatopsError(
                f"Only a user decides about {self.tool} ({self.id}).", advice=f"chatops approvals show {self.id}"
            )
        return self._post(Approved())

    def deny(self, reason: str = "") -> str:
        """Refuse the call at the next `Chat.resume`, and give the model the reason. Return the same as `approve`.

        Raises ChatopsError if it was decided already, or if the site does not let programs decide.
        """
        return self._post(Rejected(reason=reason))

    def _post(self, decision: Decision) -> str:
        App(Options(via=_VIA, registry=self.registry)).rights.check_surface(_VIA)
        by = principal_of(current_user(), via=_VIA)
        with open_store(Storage.NEEDED, registry=self.registry) as store:
            decided = DecideCall(call_id=self.pending.call.id, digest=self.digest, decision=decision, by=by)
            if not store.post_decision(decided):
                raise ChatopsError(
                    f"{self.tool} ({self.id}) waits no longer: it was decided, or has changed.",
                    advice="chatops audit list shows what was decided.",
                )
            return start_if_job(store, session_of(self.id))


@frozen_dataclass
class Reply:
    """The state of a turn that is over or needs the user."""

    status: TurnStatus
    """``answered``, ``paused``, ``limit``, ``failed`` or ``cancelled``."""
    text: str
    """The answer; of a turn that is not over, what the model has said so far."""
    calls: tuple[CallReport, ...]
    pending: tuple[Asked, ...]
    """Calls that wait for a decision: decide each, then `Chat.resume`."""
    usage: Usage | None
    """Tokens and cost, as far as the server states them."""
    files: tuple[str, ...]
    """Paths that the calls have written."""
    session_id: str
    detail: str = ""
    """Reason that there is no answer, as a sentence; empty if there is one."""


class Chat:
    """A chat with a model in a folder."""

    def __init__(
        self,
        *,
        role: str = "",
        model: str = "",
        workspace: str | Path | None = None,
        tools: Sequence[AnyTool] = (),
        registry: str | Path | None = None,
        approve: Sequence[str] = (),
        max_rounds: int | None = None,
        budget: str = "",
    ) -> None:
        """Create a chat; its session is stored with the first message.

        Without a `role`, the chat has exactly `tools`: functions, and names of existing tools; the models are those of
        the default role. With one, the role's own list counts, and has to name the functions if it names any tool.
        `approve` are rules as of ``--approve``. The other arguments are as on the command line.
        """
        own = [as_tool(tool) for tool in tools if not isinstance(tool, str)]
        names = tuple([tool for tool in tools if isinstance(tool, str)] + [one.spec.name for one in own])
        self._tools = tuple(own)
        self._role = RoleSpec(name=ROLE, tools=names)
        self._options = replace(
            options_of(registry, workspace, role=role or ROLE, model=model, approve=approve),
            max_rounds=max_rounds,
            budget=parse_budget((budget,)) if budget else NO_BUDGET,
        )
        self.session_id = ""
        """The id of the session; empty before the first message."""
        self.reply: Reply | None = None
        """The last reply, also of `events`."""

    @classmethod
    def open(cls, session_id: str, **options: Any) -> "Chat":
        """Return a chat that continues a stored session, by its id or a unique beginning of it, in its own folder.

        Its role and model stay unless `options` name others; they are those of `Chat`. Raises NoSuchSessionError.
        """
        chat = cls(**options)
        with open_store(Storage.READ, registry=chat._options.registry) as store:
            info = store.session(SessionId(session_id))
        # None: that of the session. The constructor has chosen the role of a new chat.
        role = options.get("role") or None
        chat._options = replace(in_session_workspace(chat._options, info), role=role)
        chat.session_id = info.id
        return chat

    def send(self, text: str) -> Reply:
        """Send a message and wait until the turn is over or needs the user. Raises ChatopsError."""
        return run_blocking(self.asend(text), instead="await chat.asend(…)")

    def resume(self) -> Reply:
        """Continue a turn that was paused or killed, with the decisions made in the meantime.

        Raises ChatopsError, also if the last turn is over.
        """
        return run_blocking(self.aresume(), instead="await chat.aresume(…)")

    def events(self, text: str) -> Iterator[Event]:
        """Send a message, and yield what happens as it happens. Afterwards `reply` is the result. Raises ChatopsError.

        A caller that stops early stops the turn, which can be resumed.
        """
        found: queue.Queue[Event | BaseException | None] = queue.Queue()
        is_abandoned = threading.Event()

        async def pass_on() -> None:
            async for event in self.aevents(text):
                found.put(event)
                if is_abandoned.is_set():
                    return

        def run() -> None:
            try:
                run_blocking(pass_on(), instead="chat.aevents(…)")
            except BaseException as error:
                found.put(error)
            else:
                found.put(None)

        thread = threading.Thread(target=run, name="chatops events", daemon=True)
        thread.start()
        try:
            while (event := found.get()) is not None:
                if isinstance(event, BaseException):
                    raise event
                yield event
        finally:
            is_abandoned.set()
            thread.join()

    async def asend(self, text: str) -> Reply:
        """Do what `send` does."""
        async with self._session(attaches=text) as session:
            _require_turn_over(session)
            await session.submit(text)
            return await self._settle(session)

    async def aresume(self) -> Reply:
        """Do what `resume` does."""
        if not self.session_id:
            raise ConfigError("There is nothing to resume: no message was sent.", advice="Chat.open opens a session.")
        async with self._session() as session:
            if session.state is None:
                raise ConfigError("There is nothing to resume: the last turn of this session is over.")
            await session.resume()
            return await self._settle(session)

    async def aevents(self, text: str) -> AsyncGenerator[Event]:
        """Do what `events` does."""
        found: asyncio.Queue[Event | None] = asyncio.Queue()
        async with self._session(attaches=text) as session:
            _require_turn_over(session)
            unsubscribe = session.subscribe(lambda published: found.put_nowait(published.event))
            await session.submit(text)
            settling = asyncio.ensure_future(self._settle(session))
            settling.add_done_callback(lambda _: found.put_nowait(None))
            try:
                while (event := await found.get()) is not None:
                    yield event
                await settling
            finally:
                unsubscribe()
                settling.cancel()

    async def _settle(self, session: Session) -> Reply:
        state = await session.settle()
        if state is None:
            raise session.blocked_by or ChatopsError("The turn could not be started.")
        if session.blocked_by is not None:
            raise session.blocked_by
        self.session_id = session.session_id
        found = report(state, workspace=session.snapshot().workspace)
        self.reply = Reply(
            status=found.status,
            text=found.answer,
            calls=found.calls,
            pending=tuple(Asked(pending, self._options.registry) for pending in found.pending),
            usage=found.usage,
            files=found.files,
            session_id=found.session_id,
            detail=f"{found.detail} {found.advice}".strip(),
        )
        return self.reply

    @asynccontextmanager
    async def _session(self, *, attaches: str = "") -> AsyncIterator[Session]:
        async with open_app(self._options, tools=self._tools, role=self._role) as app:
            session_id = SessionId(self.session_id) if self.session_id else None
            yield await app.open_session(session_id, attended=False, attaches=attaches)


@asynccontextmanager
async def open_app(options: Options, *, tools: Sequence[Tool], role: RoleSpec) -> AsyncIterator[App]:
    """Open the application with a program's own tools and role. Raises the error of a broken registry."""
    app = App(options, tools=tools, roles=(role,))
    try:
        if app.loaded.broken is not None:
            raise app.loaded.broken
        yield app
    finally:
        await app.aclose()


def options_of(
    registry: str | Path | None, workspace: str | Path | None, *, role: str, model: str, approve: Sequence[str]
) -> Options:
    """Return the options of a program, as those of the command line."""
    return Options(
        registry=None if registry is None else Path(registry).expanduser(),
        workspace=None if workspace is None else Path(workspace).expanduser(),
        role=role or None,
        model=model or None,
        approvals=tuple(approve),
        via=_VIA,
    )


def _require_turn_over(session: Session) -> None:
    """Raise ChatopsError if the last turn is not over: its calls may wait for a decision."""
    if session.state is not None and turn_status(session.state) in _UNFINISHED:
        raise ChatopsError(
            "The message was not sent: the last turn of this session is not over.",
            advice="Decide its pending calls and resume it first.",
        )


def run_blocking(work: Coroutine[None, None, T], *, instead: str) -> T:
    """Run `work` in an event loop of its own. Raises RuntimeError, which names what to use `instead`, inside of one."""

    async def run() -> T:
        # A thread that hangs in a tool must not keep the program from ending.
        asyncio.get_running_loop().set_default_executor(DaemonThreadExecutor())
        return await work

    if _in_a_loop():
        work.close()
        raise RuntimeError(f"An event loop runs here already: use {instead} instead.")
    return asyncio.run(run())


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
