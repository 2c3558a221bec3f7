"""Read-only view of a session whose lease another process holds.

It never changes the session. It can post decisions, which the owner takes, and request the lease.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chatops.domain.decisions import Decision, RememberedGrant
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeldError, StoreError
from chatops.domain.events import Event, Notice, PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.usage import Usage
from chatops.engine.inputs import DecideCall
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.runtime.denials import with_roles
from chatops.runtime.descriptions import answer_to
from chatops.runtime.ownership import LOOK_S, Handing, Request
from chatops.runtime.runner import Bus, Listener
from chatops.runtime.services import Services
from chatops.runtime.settings import RegistryNews, SessionSettings
from chatops.runtime.view import Record, Snapshot
from chatops.store.base import DecisionRow, Hold, SessionInfo, Store
from chatops.store.derive import since

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """Result of one look at the store."""

    info: SessionInfo
    hold: Hold | None
    record: Record
    spent: Usage | None
    """Usage of all turns except the one in `state`."""
    state: TurnState | None
    run: WorkflowState | None
    kept: tuple[str, ...]


class ReadAlong:
    """Follows a session read-only. Create it with `read_along`.

    Methods raise ChatopsError with a message for the user.
    """

    def __init__(self, services: Services, found: _Stored) -> None:
        self._services = services
        self._found = found
        self._loop = asyncio.get_running_loop()
        self._bus = Bus()
        self._changed: Callable[[], None] = lambda: None
        self._told = 0
        self._request = Request(services, found.info.id, tell=self.tell)
        self._following = asyncio.create_task(self._follow(), name="read along")

    # State

    @property
    def session_id(self) -> SessionId:
        """Id of the session."""
        return self._found.info.id

    @property
    def workspace(self) -> Path:
        """Workspace of this process. The owner's tools may work in another one."""
        return self._services.workspace

    @property
    def state(self) -> TurnState | None:
        """The unfinished turn, or the last one, as committed."""
        return self._found.state

    @property
    def run(self) -> WorkflowState | None:
        """The workflow run that the session belongs to, if any."""
        return self._found.run

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for a decision."""
        if self.state is None:
            return ()
        return with_roles(pending_calls(self.state), self.settings, self._services.rights)

    @property
    def trouble(self) -> ChatopsError | None:
        """None: a follower performs nothing that could fail."""
        return None

    @property
    def unsaved(self) -> str:
        """Empty: a follower has nothing to store."""
        return ""

    @property
    def passing(self) -> bool:
        """False: the owner stores the session."""
        return False

    @property
    def gone(self) -> ChatopsError | None:
        """None: this process does not own the session."""
        return None

    @property
    def hold(self) -> Hold | None:
        """The current lease; None if no live process holds it."""
        return self._found.hold

    @property
    def handing(self) -> Handing:
        """Progress of the request for the lease."""
        return self._request.handing(self._found.hold)

    @property
    def settings(self) -> SessionSettings:
        """The session settings, as stored."""
        info = self._found.info
        return SessionSettings(role=info.role, model_pin=info.model_pin, persona=info.persona)

    def grant(self) -> Grant:
        """Return what the session's role may do. Raises ConfigError if this process's registry lacks the role."""
        if self.state is not None and not isinstance(self.state.phase, Finished):
            return self.state.grant
        return self.settings.grant(self._services.rights)

    def snapshot(self) -> Snapshot:
        """Return the session as of the last look at the store."""
        found = self._found
        return found.record.snapshot(
            found.state,
            info=found.info,
            workspace=str(self.workspace),
            grant=self._grant_or_default(),
            persona=found.info.persona,
            rights=self._services.rights,
            pending=self.pending,
            queued=found.kept,
            registry="",
        )

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt, according to this process's registry."""
        return self._services.rights.prompt_layers(self.settings)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Subscribe to this view's own notices. For changes of the session, use `on_change`."""
        return self._bus.subscribe(listener)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop whenever something to show has changed, including `handing`."""
        self._changed = changed

    def tell(self, text: str, *, advice: str = "") -> None:
        """Publish a notice to the UIs."""
        self._told += 1
        number = f"{self.session_id}.reading{self._told}"
        self.publish(Notice(id=number, parent_id=self.session_id, text=text, advice=advice, level="warning"))

    def tell_soon(self, text: str) -> None:
        """Call `tell` from any thread."""
        self._loop.call_soon_threadsafe(self.tell, text)

    def publish(self, event: Event) -> None:
        """Publish an event to the UIs."""
        self._bus.publish(event)

    # Actions

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Post a decision on a pending call as shown (`digest`).

        Returns False if another decision came first or the call is no longer pending.
        """
        decided = DecideCall(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
        taken = await self._services.worker(self._services.store.post_decision, decided)
        await self._look()
        return taken

    async def answer_to(self, call_id: CallId) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        return await self._services.worker(answer_to, self._services.store, self.session_id, call_id)

    async def get(self) -> None:
        """Request the lease; take it if it is free; seize it if it was requested before. `handing` tells the progress.

        A second call has no effect until the owner has answered or counts as silent. If the lease is seized, calls that
        were running in the old owner have an unknown outcome, and it starts nothing more.
        """
        await self._request.press(self._found.hold)
        await self._look()

    def stop(self) -> None:
        """Stop following: this process has opened the session."""
        self._following.cancel()
        self._changed = lambda: None

    async def aclose(self) -> None:
        """Stop following, withdraw the request, and release the lease if it has arrived."""
        if self._following.done():
            return
        self.stop()
        await self._request.withdraw()

    # Only the owner can do the following

    async def submit(self, text: str) -> bool:
        """Raise SessionHeldError."""
        raise self._elsewhere("The message was not sent")

    async def take_queued(self, *, into: str) -> str:
        """Raise SessionHeldError."""
        raise self._elsewhere("The queue was not changed")

    async def resume_queue(self) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("The queue was not sent")

    async def switch_role(self, name: str) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("The role was not switched")

    async def pin_model(self, name: str | None) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("No model was pinned")

    async def set_persona(self, name: str) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("The persona was not changed")

    async def revoke_tool(self, name: str) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("Nothing was taken away")

    async def withdraw(self, grant: RememberedGrant) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("Nothing was withdrawn")

    async def rename(self, title: str) -> None:
        """Raise SessionHeldError."""
        raise self._elsewhere("It was not renamed")

    async def retry(self) -> bool:
        """Raise SessionHeldError."""
        raise self._elsewhere("Nothing was tried again")

    async def cancel(self) -> bool:
        """Return False: nothing runs in this process."""
        return False

    def registry_changed_soon(self, news: RegistryNews) -> None:
        """Do nothing: the rights are those of the owner's registry."""

    # Internals

    def _elsewhere(self, what: str) -> SessionHeldError:
        return SessionHeldError(f"{what}: {self.whereabouts()}.", advice="F2 takes the conversation over.")

    def whereabouts(self) -> str:
        """Return which process owns the session, in words."""
        hold = self._found.hold
        if hold is None:
            return "this conversation is open nowhere now"
        return f"this conversation is open elsewhere (pid {hold.holder.pid} on {hold.holder.host})"

    def since(self) -> str:
        """Return since when the owner has had the session, in local time."""
        hold = self._found.hold
        return since(hold, now=time.time()) if hold is not None else ""

    def _grant_or_default(self) -> Grant:
        rights = self._services.rights
        try:
            return self.grant()
        except ConfigError:
            return SessionSettings(role=rights.roles()[0]).grant(rights)

    async def _follow(self) -> None:
        """Read the store when it has changed, and the lease every time: a process that dies writes nothing."""
        seen, before = -1, self.handing
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                version = await self._services.worker(self._services.store.version)
                if version != seen:
                    await self._look()
                    seen = version
                else:
                    await self._look_at_holder()
                if self.handing is not before:
                    before = self.handing
                    self._changed()
            except StoreError as error:
                log.warning("the conversation was not looked at: %s", error)
            except Exception:
                # A bug in drawing must not end the task that follows the session.
                log.exception("what was read could not be shown")

    async def _look(self) -> None:
        found = await self._services.worker(_read, self._services.store, self.session_id, self._found)
        if found != self._found:
            self._found = found
            self._request.heed(self._found.hold)
            self._changed()

    async def _look_at_holder(self) -> None:
        hold = await self._services.worker(self._services.store.held, self.session_id)
        self._found = replace(self._found, hold=hold)
        self._request.heed(self._found.hold)


async def read_along(services: Services, session_id: SessionId) -> ReadAlong:
    """Follow a stored session, whether or not another process owns it. Raises NoSuchSessionError, UnreadableError."""
    return ReadAlong(services, await services.worker(_read, services.store, session_id, None))


def _read(store: Store, session_id: SessionId, before: _Stored | None) -> _Stored:
    info = store.session(session_id)
    turn = info.active_turn or info.last_turn
    state = store.load_turn(turn) if turn is not None else None
    if state is not None and isinstance(state.phase, Finished) and info.head not in {one.id for one in state.messages}:
        # A message was appended after the turn, so the turn is part of the history.
        state = None
    same = before is not None and (before.info.head, before.state) == (info.head, state)
    record = before.record if before is not None and same else Record()
    followed = state.turn_id if state is not None else None
    before_followed = before.state.turn_id if before is not None and before.state is not None else None
    if before is not None and (same or (followed is not None and followed == before_followed)):
        # Only the followed turn adds to the usage, so the sum of the others is kept. This runs at every step of that
        # turn.
        spent = before.spent
    else:
        spent = store.usage(info.id, besides=followed)
    if not same:
        record.load(store.history(info.id), state, spent=spent)
    return _Stored(
        info=info,
        hold=store.held(info.id),
        record=record,
        spent=spent,
        state=state,
        run=store.load_run(info.id) if info.run is not None else None,
        kept=store.kept_texts(info.id),
    )
