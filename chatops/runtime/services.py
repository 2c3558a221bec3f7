"""Services that all sessions share. `wiring` makes them, and they outlive each session.

`EventBus` delivers a session's events to UIs. `WorkerThread` makes blocking store calls: in order, and never abandoned
half-way. `ServerWait` waits before a turn until the MCP servers that it needs are connected.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, Protocol, TypeVar

from chatops.domain.decisions import Decision, Principal
from chatops.domain.errors import NotSavedError
from chatops.domain.events import CallProgressed, Event, Notice, PendingCall, Published
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, RoundId, SessionId, round_of
from chatops.domain.messages import AttachedFile
from chatops.domain.progress import Progress
from chatops.domain.sanitize import show_path
from chatops.engine.state import RoundRecord, Spending, TurnState
from chatops.models.base import ModelClient
from chatops.policy.budget import Budget
from chatops.policy.sandbox import SandboxChange
from chatops.runtime.settings import Rights, SessionSettings
from chatops.store.audit import SINK_PATIENCE_S, SINK_TIMEOUT_S, SinkError
from chatops.store.base import Holder
from chatops.store.store import Store
from chatops.store.tool_outputs import Outputs
from chatops.toolkit.base import Tool, ToolContext
from chatops.toolkit.counting import Show

if TYPE_CHECKING:
    from chatops.contained.turns import ContainedTurns


log = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
Listener = Callable[[Published], None]
NOTICE_AFTER_S = 0.5
"""Seconds after which the user is told what a turn waits for. Most MCP servers are connected by then."""


class Shield:
    """Runs work to its end even if the caller is cancelled.

    Once a commit has started, the change that it makes in memory must follow, or store and memory would differ.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[object]] = set()

    async def __call__(self, work: Coroutine[None, None, T]) -> T:
        """Run `work` and return its result or raise its exception."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return await asyncio.shield(task)

    async def wait_ended(self) -> None:
        """Wait for the work in progress."""
        await asyncio.gather(*self._running, return_exceptions=True)


class WorkerThread:
    """Runs calls one after the other in its own thread.

    Cancelling the awaiting task does not cancel a call that has started. Later calls queue up behind it, so they never
    see a commit whose outcome is still unknown.
    """

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="store")

    async def __call__(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run `function` in the thread and return its result or raise its exception."""
        loop = asyncio.get_running_loop()
        return await asyncio.shield(loop.run_in_executor(self._pool, lambda: function(*args, **kwargs)))

    def later(self, function: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> None:
        """Queue `function` without waiting for it; an exception is logged."""

        def work() -> None:
            try:
                function(*args, **kwargs)
            except Exception:
                log.exception("a queued call failed")

        self._pool.submit(work)

    def close(self) -> None:
        """Wait for the calls that have started, and end the thread."""
        self._pool.shutdown(wait=True)


@contextmanager
def changes(store: Store, *names: str) -> Iterator[Callable[..., Awaitable[None]]]:
    """Yield a function that sleeps for some seconds, or until another process has changed what `names` listen to.

    Events given to the function end the sleep too.
    """
    loop, changed = asyncio.get_running_loop(), asyncio.Event()

    async def pause(seconds: float, *events: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(event.wait()) for event in (changed, *events)]
        try:
            await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        changed.clear()

    stop_listening = store.listen(partial(loop.call_soon_threadsafe, changed.set), *names)
    try:
        yield pause
    finally:
        stop_listening()


class ToolLookup(Protocol):
    """A lookup of tools by name."""

    def get(self, name: str) -> Tool | None:
        """Return the tool with that name, or None."""


class ToolServers(Protocol):
    """The MCP servers, which are started for the grants that hold their tools."""

    def start_for(self, settings: SessionSettings) -> tuple[str, ...]:
        """Start those that the grant of `settings` needs. Return the names of those that a turn has to wait for."""

    async def settled(self, names: Collection[str]) -> None:
        """Wait until each of these servers is connected, or cannot be for now."""


class Contexts(Protocol):
    """A factory of tool contexts for a session."""

    def __call__(
        self,
        session_id: SessionId,
        call_id: CallId,
        *,
        attempt: int,
        tool: Tool,
        output: Callable[[str], None],
    ) -> ToolContext:
        """Return the context for one attempt of a call."""


class ChildSession(Protocol):
    """The part of `Session` that a caller needs of its child: `delegation` must not import `session`."""

    @property
    def session_id(self) -> SessionId:
        """Id of the session."""

    @property
    def state(self) -> TurnState | None:
        """The turn, as committed."""

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for a decision."""

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event."""

    async def start_child(
        self,
        task: str,
        *,
        files: tuple[AttachedFile, ...],
        reads_workspace: bool,
        spending: Spending | None,
        budget: Budget,
    ) -> None:
        """Start the turn."""

    async def resume(self) -> None:
        """Resume the turn."""

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Decide a pending call."""

    async def inherit(self, revoked: tuple[str, ...], sandbox: tuple[SandboxChange, ...]) -> None:
        """Take away what the user has taken from the session with the call."""

    def count_siblings(self, children: tuple[RoundRecord, ...]) -> None:
        """Count what the other children have spent, one record for each."""

    async def stop_turn(self) -> None:
        """End the turn."""

    async def settle(self) -> TurnState | None:
        """Wait until the turn is paused or finished."""

    async def aclose(self) -> None:
        """Release the session."""


@frozen_dataclass
class Services:
    """The adapters, and the user and process that use them."""

    store: Store
    worker: WorkerThread
    models: ModelClient
    tools: ToolLookup
    contexts: Contexts
    rights: Rights
    by: Principal
    holder: Holder
    outputs: Outputs
    workspace: Path
    attach: Callable[[SessionId, str], tuple[AttachedFile, ...]]
    """Reads the files that a message names. Blocks: call it in a thread."""
    read_files: Callable[[SessionId, str], tuple[AttachedFile, ...]]
    """Reads the files that a text names, whoever wrote it. Blocks: call it in a thread."""
    open_child: Callable[[SessionId], Awaitable[ChildSession]]
    """Opens the session of a delegated call. Raises SessionHeldError."""
    contained: "Callable[[], ContainedTurns]"
    """Returns the copies of contained turns, loaded when they are needed."""
    servers: ToolServers
    start_job: Callable[[SessionId], str]
    """Starts a session again that is a job, after a decision was committed, and returns what to say. Blocks."""
    send_head: Callable[[SessionId], Awaitable[None]]
    """Sends the head of a session's decision log to the sinks of the site. Raises SinkError."""
    attended: bool
    """True if a user is at the screen. Queued messages are then sent automatically when a turn ends."""


async def retry_while_away(
    work: Callable[[], Awaitable[T]], of: CallId | RoundId, publish: Callable[[Event], None]
) -> T:
    """Return the result of `work`, done again while the store, or a sink of its log, fails for now.

    `of` is the call that is about to start, or the round that asks the model. Raises StoreError after
    `SINK_PATIENCE_S`.
    """
    began, was_notified = time.monotonic(), False
    while True:
        try:
            return await work()
        except (SinkError, NotSavedError) as error:
            if time.monotonic() - began > SINK_PATIENCE_S:
                raise
            if not was_notified:
                text = f"{of} waits. {error}"
                publish(Notice(id=f"{of}.away", parent_id="", text=text, advice=error.advice, level="error"))
            was_notified = True
            await asyncio.sleep(SINK_TIMEOUT_S)


def workspace_gone_text(workspace: Path) -> str:
    """Return the message for the user and the model: no tool runs in another folder instead."""
    return f"The workspace {show_path(str(workspace))} is gone: no tool runs until it exists again."


def is_workspace_gone(workspace: Path) -> bool:
    """Return True if the folder does not exist any more."""
    try:
        return not workspace.is_dir()
    except OSError:
        return True


def progress_publisher(call_id: CallId, publish: Callable[[Event], None]) -> Show:
    """Return what publishes the progress of a call on this event loop, from any thread."""
    loop = asyncio.get_running_loop()

    def show(progress: Progress | None) -> None:
        event = CallProgressed(id=call_id, parent_id=round_of(call_id), progress=progress)
        with suppress(RuntimeError):  # The event loop has ended.
            loop.call_soon_threadsafe(publish, event)

    return show


class EventBus:
    """Delivers events to listeners, in order, on the event loop. A UI takes a snapshot first and then subscribes.

    An exception in a listener is logged and never stops the turn.
    """

    def __init__(self) -> None:
        self._listeners: list[Listener] = []
        self._notice_count = 0

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with each event from now on. Returns a function that unsubscribes it."""
        self._listeners.append(listener)

        def stop() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return stop

    def publish(self, event: Event) -> None:
        """Deliver `event` to all listeners."""
        published = Published(at=time.time(), event=event)
        for listener in tuple(self._listeners):
            try:
                listener(published)
            except Exception:
                log.exception("a listener failed on %s", type(event).__name__)

    def notify(self, text: str, *, advice: str = "", parent_id: str) -> None:
        """Deliver a warning for the user."""
        self._notice_count += 1
        number = f"{parent_id}.notice{self._notice_count}"
        self.publish(Notice(id=number, parent_id=parent_id, text=text, advice=advice, level="warning"))


class ServerWait:
    """Waits before a turn for its MCP servers. The user can end the wait. Turns wait in the order of their requests."""

    def __init__(self, servers: ToolServers, notify: Callable[[str], None]) -> None:
        self._servers = servers
        self._notify = notify
        self._in_order = asyncio.Lock()
        self._skipped: set[str] = set()
        """Servers without which the user continued."""
        self._skip: asyncio.Event | None = None
        """Ends the current wait; None: nothing waits."""

    def start_needed(self, settings: SessionSettings) -> tuple[str, ...]:
        """Start the servers that these settings need. Return those to wait for."""
        return tuple(name for name in self._servers.start_for(settings) if name not in self._skipped)

    async def wait(self, settings: Callable[[], SessionSettings]) -> None:
        """Wait until the servers that the settings need, which may change meanwhile, are connected or cannot be."""
        async with self._in_order:
            while names := self.start_needed(settings()):
                skip = self._skip = asyncio.Event()
                ends = {asyncio.ensure_future(self._servers.settled(names)), asyncio.ensure_future(skip.wait())}
                try:
                    done, _ = await asyncio.wait(ends, timeout=NOTICE_AFTER_S, return_when=asyncio.FIRST_COMPLETED)
                    if not done:
                        which = f"MCP server{'s' if names[1:] else ''} {', '.join(names)}"
                        self._notify(f"Waiting for the {which} to connect. Esc continues without.")
                        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
                    # What did not connect by now is not waited for again.
                    self._skipped.update(names)
                finally:
                    self._skip = None
                    for end in ends:
                        end.cancel()

    def skip(self) -> bool:
        """Let the turn start now. Return False if none waits."""
        if self._skip is None:
            return False
        self._skip.set()
        return True
