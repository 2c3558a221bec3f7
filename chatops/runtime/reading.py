"""A conversation that another process drives, as a face sees it: read as it grows, decided on, asked for.

Nothing of it is changed from here. A decision is left for the process that has it, as from any other door.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from chatops.domain.decisions import Decision, RememberedGrant
from chatops.domain.errors import ChatopsError, ConfigError, SessionHeld, StoreError
from chatops.domain.events import Event, Notice, PendingCall
from chatops.domain.ids import CallId, SessionId
from chatops.domain.usage import Usage
from chatops.engine.inputs import CallDecided
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.runtime.answered import answer_to
from chatops.runtime.bus import Bus, Listener
from chatops.runtime.denials import with_roles
from chatops.runtime.lease import LOOK_S
from chatops.runtime.record import Record
from chatops.runtime.request import Handing, Request
from chatops.runtime.rights import RegistryNews
from chatops.runtime.services import Services
from chatops.runtime.snapshot import Snapshot
from chatops.runtime.standing import Standing
from chatops.store.base import DecisionRow, Hold, SessionInfo, Store
from chatops.store.derive import since

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What one look at the store has found."""

    info: SessionInfo
    hold: Hold | None
    record: Record
    spent: Usage | None
    """Of all turns but the one that `state` is of."""
    state: TurnState | None
    run: WorkflowState | None
    kept: tuple[str, ...]


class ReadAlong:
    """Use `read_along`. Methods raise ChatopsError with a sentence for the person."""

    def __init__(self, services: Services, found: _Stored) -> None:
        self._services = services
        self._found = found
        self._loop = asyncio.get_running_loop()
        self._bus = Bus()
        self._changed: Callable[[], None] = lambda: None
        self._told = 0
        self._request = Request(services, found.info.id, tell=self.tell)
        self._following = asyncio.create_task(self._follow(), name="read along")

    # what it shows

    @property
    def session_id(self) -> SessionId:
        """Its id."""
        return self._found.info.id

    @property
    def workspace(self) -> Path:
        """Where this process works, which the tools of the other one need not do."""
        return self._services.workspace

    @property
    def state(self) -> TurnState | None:
        """The turn that is not finished, or the one that came last, as committed."""
        return self._found.state

    @property
    def run(self) -> WorkflowState | None:
        """The run of a workflow that it is, if it is one."""
        return self._found.run

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for a person."""
        if self.state is None:
            return ()
        return with_roles(pending_calls(self.state), self.standing, self._services.rights)

    @property
    def trouble(self) -> ChatopsError | None:
        """Nothing is done here that could fail."""
        return None

    @property
    def unsaved(self) -> str:
        """Nothing is said here that would have to be stored."""
        return ""

    @property
    def passing(self) -> bool:
        """It is stored by the process that drives it."""
        return False

    @property
    def gone(self) -> ChatopsError | None:
        """It was never here."""
        return None

    @property
    def hold(self) -> Hold | None:
        """Who has it; None if nobody does any more."""
        return self._found.hold

    @property
    def handing(self) -> Handing:
        """How far it is with getting it."""
        return self._request.handing(self._found.hold)

    @property
    def standing(self) -> Standing:
        """What is in force in it, as stored."""
        info = self._found.info
        return Standing(role=info.role, model_pin=info.model_pin, persona=info.persona)

    def grant(self) -> Grant:
        """What its role may do here now. Raises ConfigError for a role that this registry does not have."""
        if self.state is not None and not isinstance(self.state.phase, Finished):
            return self.state.grant
        return self.standing.grant(self._services.rights)

    def snapshot(self) -> Snapshot:
        """The conversation as it was stored when it was looked at last."""
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
        """The system prompt's layers, as this registry has them."""
        now = self.standing
        return self._services.rights.prompt_layers(now.role, model_pin=now.model_pin, persona=now.persona)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """What is told here, which is not what happens in the conversation: see `on_change` for that."""
        return self._bus.subscribe(listener)

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop whenever there is something else to show, `handing` included."""
        self._changed = changed

    def tell(self, text: str, *, advice: str = "") -> None:
        """Let the faces say something."""
        self._told += 1
        number = f"{self.session_id}.reading{self._told}"
        self.publish(Notice(id=number, parent_id=self.session_id, text=text, advice=advice, level="warning"))

    def tell_soon(self, text: str) -> None:
        """`tell`, from any thread."""
        self._loop.call_soon_threadsafe(self.tell, text)

    def publish(self, event: Event) -> None:
        """Tell the faces something."""
        self._bus.publish(event)

    # what can be asked of it

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Leave an answer to a pending call as shown. False: another one was first, or it waits no longer."""
        decided = CallDecided(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
        taken = await self._services.offload(self._services.store.post_decision, decided)
        await self._look()
        return taken

    async def answer_to(self, call_id: CallId) -> DecisionRow | None:
        """Who has decided a call, what and when; None if nobody has."""
        return await self._services.offload(answer_to, self._services.store, self.session_id, call_id)

    async def get(self) -> None:
        """Ask for the conversation; once it is known whether that is answered, take it. `handing` says how far it is.

        What was seen to run in a process that does not answer, or that is not waited for, has an outcome that nobody
        knows; nothing further begins there.
        """
        await self._request.press(self._found.hold)
        await self._look()

    def stop(self) -> None:
        """Read no further: the conversation has been opened here."""
        self._following.cancel()
        self._changed = lambda: None

    async def aclose(self) -> None:
        """Read no further; what was asked for is not wanted any more, and goes back if it has come."""
        if self._following.done():
            return
        self.stop()
        await self._request.withdraw()

    # what only the process that has it can do

    async def submit(self, text: str) -> bool:
        """Raises SessionHeld."""
        raise self._elsewhere("The message was not sent")

    async def take_queued(self, *, into: str) -> str:
        """Raises SessionHeld."""
        raise self._elsewhere("The queue was not changed")

    async def resume_queue(self) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("The queue was not sent")

    async def switch_role(self, name: str) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("The role was not switched")

    async def pin_model(self, name: str | None) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("No model was pinned")

    async def set_persona(self, name: str) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("The persona was not changed")

    async def revoke_tool(self, name: str) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("Nothing was taken away")

    async def withdraw(self, grant: RememberedGrant) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("Nothing was withdrawn")

    async def rename(self, title: str) -> None:
        """Raises SessionHeld."""
        raise self._elsewhere("It was not renamed")

    async def retry(self) -> bool:
        """Raises SessionHeld."""
        raise self._elsewhere("Nothing was tried again")

    async def cancel(self) -> bool:
        """Nothing runs here."""
        return False

    def registry_changed_soon(self, news: RegistryNews) -> None:
        """Its rights are those of the process that has it."""

    # inside

    def _elsewhere(self, what: str) -> SessionHeld:
        return SessionHeld(f"{what}: {self.whereabouts()}.", advice="F2 takes the conversation over.")

    def whereabouts(self) -> str:
        """Where it is open, in words."""
        hold = self._found.hold
        if hold is None:
            return "this conversation is open nowhere now"
        return f"this conversation is open elsewhere (pid {hold.holder.pid} on {hold.holder.host})"

    def since(self) -> str:
        """Since when it is open there, in this place's time."""
        hold = self._found.hold
        return since(hold, now=time.time()) if hold is not None else ""

    def _grant_or_default(self) -> Grant:
        rights = self._services.rights
        try:
            return self.grant()
        except ConfigError:
            return Standing(role=rights.roles()[0]).grant(rights)

    async def _follow(self) -> None:
        """Look at the store whenever somebody wrote, and at the holder in any case: a death writes nothing."""
        seen, before = -1, self.handing
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                version = await self._services.offload(self._services.store.version)
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
                # Whoever draws has made a mistake: it is not to be the last thing that is seen of the conversation.
                log.exception("what was read could not be shown")

    async def _look(self) -> None:
        found = await self._services.offload(_read, self._services.store, self.session_id, self._found)
        if found != self._found:
            self._found = found
            self._request.heed(self._found.hold)
            self._changed()

    async def _look_at_holder(self) -> None:
        hold = await self._services.offload(self._services.store.held, self.session_id)
        self._found = replace(self._found, hold=hold)
        self._request.heed(self._found.hold)


async def read_along(services: Services, session_id: SessionId) -> ReadAlong:
    """A stored conversation, whoever has it. Raises NoSuchSession, Unreadable."""
    return ReadAlong(services, await services.offload(_read, services.store, session_id, None))


def _read(store: Store, session_id: SessionId, before: _Stored | None) -> _Stored:
    info = store.session(session_id)
    turn = info.active_turn or info.last_turn
    state = store.load_turn(turn) if turn is not None else None
    if state is not None and isinstance(state.phase, Finished) and info.head not in {one.id for one in state.messages}:
        # Something was put behind it, so its place is among what was said before.
        state = None
    same = before is not None and (before.info.head, before.state) == (info.head, state)
    record = before.record if before is not None and same else Record()
    followed = state.turn_id if state is not None else None
    before_followed = before.state.turn_id if before is not None and before.state is not None else None
    if before is not None and (same or (followed is not None and followed == before_followed)):
        # Only the turn that is followed costs more, and every step of it is looked at.
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
