"""One conversation as a face sees it: what can be asked of it, and what it shows.

Live, resumed and headless use are the same: every change goes through `Runner` and so through `advance`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from chatops.domain.decisions import Approved, Decision, RememberedGrant
from chatops.domain.errors import AlreadyDecided, ChatopsError, NotSaved
from chatops.domain.events import (
    Event,
    Notice,
    PendingCall,
    Published,
    ToolFinished,
    TurnFinished,
    TurnPaused,
    TurnStarted,
)
from chatops.domain.ids import CallId, SessionId
from chatops.engine.inputs import (
    CallDecided,
    GrantsRevoked,
    TurnCancelled,
    TurnRetried,
)
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import in_flight, pending_calls
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.runtime.bus import Bus, Listener
from chatops.runtime.denials import with_roles
from chatops.runtime.handover import HandOver
from chatops.runtime.kept import HOLDING, KeptTexts
from chatops.runtime.perform import Performer
from chatops.runtime.posted import PostedDecisions
from chatops.runtime.rights import RegistryNews
from chatops.runtime.runner import Runner
from chatops.runtime.saving import refused_approval, unsaved_text
from chatops.runtime.services import Services
from chatops.runtime.snapshot import Snapshot as Snapshot
from chatops.runtime.standing import Standing
from chatops.runtime.switching import Switching
from chatops.runtime.turns import MakeStep, Turns
from chatops.store.base import DecisionRow, Holder, SessionInfo
from chatops.tools.base import Tool, ToolContext


class ChatSession:
    """A conversation. Methods raise ChatopsError with a sentence for the person; none for a model's doing."""

    def __init__(self, services: Services, info: SessionInfo | None, standing: Standing) -> None:
        """Use `runtime.opening.open_session`, which takes the lease and loads what is stored."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._told = 0
        self._store_notices = len(services.store.notices)
        self._store_word = ""
        """What the store said of itself last, until the person goes on."""
        self._unheard: list[str] = []
        """What is told as soon as a face listens."""
        self._bus = Bus()
        self._taking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._runner = Runner(store=services.store, offload=services.offload, bus=self._bus)
        self._performer = Performer(
            models=services.models,
            tools=services.tools,
            context_for=self._context_for,
            may_start=self._may_start,
            deliver=self._runner.deliver,
            publish=self._bus.publish,
        )
        self._runner.attach(self._performer)
        self._hands = HandOver(
            services, self._runner, taking=self._taking, spawn=self._spawn, tell=self.tell, looked=self._heed_store
        )
        self._turns = Turns(services, self._runner, self._hands, info=info, standing=standing, tell=self.tell)
        self._switching = Switching(
            services,
            self._runner,
            self._hands,
            self._turns,
            taking=self._taking,
            publish=self._bus.publish,
            tell=self.tell,
        )
        self._kept = KeptTexts(
            services, self._turns, taking=self._taking, tell=self.tell, hindered=self._runner.hindered
        )
        self._posted = PostedDecisions(services.store, services.offload, self._runner)
        self._bus.subscribe(self._heard)

    # what it shows

    @property
    def state(self) -> TurnState | None:
        """The last turn, as committed."""
        return self._runner.state

    @property
    def standing(self) -> Standing:
        """Role, pinned model, persona and what was taken away."""
        return self._turns.standing

    @property
    def session_id(self) -> SessionId:
        """Empty until the first message is taken."""
        info = self._turns.info
        return info.id if info is not None else SessionId("")

    @property
    def workspace(self) -> Path:
        """Where its tools work."""
        return self._services.workspace

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for the person."""
        if self.state is None:
            return ()
        return with_roles(pending_calls(self.state), self._turns.standing, self._services.rights)

    @property
    def unfinished(self) -> bool:
        """True while a turn is running or paused."""
        return self._turns.unfinished

    @property
    def trouble(self) -> ChatopsError | None:
        """What keeps the turn from going on here: a store that cannot be written, another process that went on."""
        return self._runner.trouble

    @property
    def wanted_by(self) -> Holder | None:
        """The process that asks for the conversation and gets it as soon as nothing runs here."""
        return self._hands.wanted_by

    @property
    def unsaved(self) -> str:
        """Why what happens here is not saved, for as long as that is so; empty if all is well."""
        return unsaved_text(self._services.store, self._runner.trouble)

    @property
    def passing(self) -> bool:
        """Whether it ends with this process, since nothing can be stored: nobody else can ever find it."""
        return bool(self._services.store.unsaved)

    @property
    def gone(self) -> ChatopsError | None:
        """That another process has the conversation now: here it can be read along with, see `runtime.reading`."""
        return self._hands.gone

    def snapshot(self) -> Snapshot:
        """The conversation as it stands, consistent with the events published so far."""
        return self._turns.record.snapshot(
            self.state,
            info=self._turns.info,
            workspace=str(self.workspace),
            grant=self._turns.grant,
            persona=self._turns.standing.persona,
            rights=self._services.rights,
            pending=self.pending,
            queued=self._kept.texts,
            queue_held=self._kept.held and not self._turns.unfinished,
            registry=self._switching.note,
            concern=self.unsaved or self._store_word,
        )

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the event loop with each event from now on; returns the way to stop it."""
        return self._bus.subscribe(listener)

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        """The system prompt's layers in order, as the next model call would get them."""
        now = self._turns.standing
        return self._services.rights.prompt_layers(
            now.role, model_pin=now.model_pin, persona=now.persona, step=now.step
        )

    def grant(self) -> Grant:
        """What the present role may do now."""
        return self._turns.grant

    # what can be asked of it

    async def submit(self, text: str) -> bool:
        """Take a message. False: it is queued behind a turn, a run or older messages, and sent after them."""
        if not text.strip():
            return True
        self._tell_unheard()
        self._store_word = ""
        async with self._taking:
            try:
                return await self._kept.submit(await self._turns.stored(), text)
            except NotSaved as error:
                self._runner.hindered(error)
                raise

    async def take_queued(self, *, into: str) -> str:
        """Take the newest message out of the queue; it is stored as setting `into` instead. Empty if there is none.

        Raises Conflict once another process owns the session, and StoreError.
        """
        self._hands.must_be_here()
        return await self._kept.take_last(into=into)

    async def resume_queue(self) -> None:
        """Send what is queued, also after a turn that failed or was interrupted."""
        self._kept.held = False
        await self._kept.send_next()

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Answer a pending call as shown (`digest`). False: it no longer waits for that.

        Raises StoreError if the answer cannot be recorded: then it counts for nothing.
        """
        if isinstance(decision, Approved) and self._services.store.unsaved:
            raise refused_approval(self._services.store)
        try:
            await self._posted.take()
            decided = CallDecided(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
            return await self._runner.take_or_fail(decided)
        except AlreadyDecided:
            # Left by another process since they were taken.
            await self._posted.take()
            return False
        except NotSaved as error:
            raise NotSaved(f"Your answer was not taken. {error}", advice=error.advice, reason=error.reason) from error

    async def answer_to(self, call_id: CallId) -> DecisionRow | None:
        """Who has decided a call, what and when; None if nobody has."""
        return await self._posted.answer_to(self.session_id, call_id)

    async def switch_role(self, name: str) -> None:
        """Put another role in force from the next model call on. Raises ConfigError for an unknown one."""
        await self._switching.to(replace(self._turns.standing, role=name))
        await self._services.offload(self._services.store.set_setting, f"role:{self.workspace}", name)

    async def pin_model(self, name: str | None) -> None:
        """Use this model whatever the role says, and as the default from now on; None: as the role says again.

        The demo is pinned for this session only and becomes no default.
        Raises ConfigError for one that is not there or can answer nobody here.
        """
        if name:
            self._services.rights.check_model(name)
        await self._switching.to(replace(self._turns.standing, model_pin=name or ""))
        if name and not self._services.rights.is_demo(name):
            self._services.rights.choose_model(name)

    async def set_persona(self, name: str) -> None:
        """Speak as another persona from the next model call on."""
        await self._switching.to(replace(self._turns.standing, persona=name))

    async def revoke_tool(self, name: str) -> None:
        """Take a tool away from this conversation, whatever the role; it stays away."""
        await self._switching.revoke(name)

    async def cancel(self) -> bool:
        """Stop the answer or the running tools, and hold the queue. False: nothing was running."""
        state = self.state
        if not self.pending and not self._turns.leader:
            # Also where the turn ends, or the next one is about to begin, while the key is on its way.
            self._kept.held = True
        if state is None or not in_flight(state):
            return False
        text, reasoning = self._performer.partial()
        return await self._runner.take(TurnCancelled(partial_text=text, partial_reasoning=reasoning))

    async def retry(self) -> bool:
        """Go on with a turn that failed, or save what could not be saved. False: there is nothing to retry."""
        if await self._runner.retry_unsaved():
            return True
        self._kept.held = False
        self._turns.grant = self._turns.standing.grant(self._services.rights)
        return await self._runner.take(TurnRetried(grant=self._turns.grant))

    async def resume(self) -> None:
        """Go on with an unfinished turn from its checkpoint, taking decisions that other doors left."""
        self._tell_unheard()
        state = self.state
        if state is None or isinstance(state.phase, Finished):
            await self._kept.send_next()
            return
        await self._turns.take_up(state)
        await self._posted.take()

    async def settle(self) -> TurnState | None:
        """Wait until the turn is paused or finished, and return it."""
        await self._runner.settle()
        return self.state

    async def rename(self, title: str) -> None:
        """Give the conversation another title."""
        async with self._taking:
            info = await self._turns.stored()
            await self._services.offload(self._services.store.update_session, info.id, title=title)
            self._turns.info = replace(info, title=title)

    async def withdraw(self, grant: RememberedGrant) -> None:
        """Take a remembered grant back, in the store and in the turn in progress."""
        self._hands.must_be_here()
        await self._services.offload(self._services.store.revoke_grants, self.session_id, [grant])
        await self._runner.take(GrantsRevoked(grants=(grant,)))

    def registry_changed_soon(self, news: RegistryNews) -> None:
        """`registry_changed` in its turn: whoever noticed, in whatever thread, may be asking for something now."""
        self._loop.call_soon_threadsafe(self.registry_changed, news)

    def registry_changed(self, news: RegistryNews) -> None:
        """A file of the registry has changed, or was put in force, see `Switching`."""
        self._switching.registry_changed(news)

    def tell(self, text: str, *, advice: str = "") -> None:
        """Let the faces say something."""
        self._told += 1
        number = f"{self.session_id}.notice{self._told}"
        self._bus.publish(Notice(id=number, parent_id=self.session_id, text=text, advice=advice, level="warning"))

    def tell_soon(self, text: str) -> None:
        """`tell`, from any thread."""
        self._loop.call_soon_threadsafe(self.tell, text)

    def tell_when_heard(self, text: str) -> None:
        """`tell` with the next thing that a face asks for: when it is opened nobody listens yet."""
        self._unheard.append(text)

    def remark(self, text: str) -> None:
        """Have something about the store stand on the screen until the person goes on."""
        self._store_word = text

    async def aclose(self) -> None:
        """Stop what runs, release the session, leave pending calls pending."""
        await self._hands.close()
        for task in self._tasks:
            task.cancel()
        await self._runner.aclose()
        await self._hands.lease.release()

    # loading, for `runtime.opening`

    async def load(self) -> None:
        """Take the lease and load messages and the unfinished turn; for a run that is not over, its last turn in
        any case. Raises SessionHeld, Unreadable."""
        await self._turns.load()
        if self._turns.info is not None:
            await self._kept.recall(self._turns.info)

    # led by a run, for `runtime.workflow`

    def lead(self, workflow: str, standing: Standing) -> None:
        """From now on a run of `workflow` says which turn comes next; an unfinished one belongs to `standing`."""
        self._turns.leader = workflow
        self._turns.standing = standing

    async def free(self, standing: Standing) -> None:
        """The run is over: from now on it is a chat under `standing`, and what was kept is sent."""
        self._turns.leader = ""
        self._turns.standing, self._turns.grant = standing, standing.grant(self._services.rights)
        await self._kept.send_next()

    async def begin(self, standing: Standing, make: MakeStep) -> None:
        """Begin the turn that `make` gives for the grant of `standing`. Raises ConfigError, StoreError."""
        async with self._taking:
            await self._turns.begin(await self._turns.stored(), standing, make)

    async def stop_turn(self) -> None:
        """End an unfinished turn, also one that waits for a person; what another process left is looked at first."""
        if self._turns.left_off:
            await self.resume()
        text, reasoning = self._performer.partial()
        await self._runner.take(TurnCancelled(partial_text=text, partial_reasoning=reasoning))

    def publish(self, event: Event) -> None:
        """Tell the faces what happened to the run."""
        self._bus.publish(event)

    # inside

    async def _may_start(self) -> bool:
        return await self._hands.lease.is_ours()

    def _context_for(self, call_id: CallId, *, attempt: int, tool: Tool, output: Callable[[str], None]) -> ToolContext:
        return self._services.contexts(self.session_id, call_id, attempt=attempt, tool=tool, output=output)

    def _heard(self, published: Published) -> None:
        self._heed_store()
        match published.event:
            case TurnPaused() if self._watching is None or self._watching.done():
                self._watching = self._spawn(self._posted.watch())
            case TurnStarted():
                self._kept.held = False
            case TurnFinished(result=result) if result in HOLDING:
                self._kept.held = True
            case TurnFinished():
                self._spawn(self._kept.send_next())
            case Notice() if self._kept.waits and self._runner.trouble is None:
                self._spawn(self._kept.send_next())
            case ToolFinished(id=call_id):
                self._services.offload.later(self._services.outputs.forget, call_id)
            case _:
                pass

    def _tell_unheard(self) -> None:
        unheard, self._unheard = self._unheard, []
        for text in unheard:
            self.tell(text)

    def _heed_store(self) -> None:
        """Say what the store has found out about itself since it was asked last: that it was deleted, or damaged."""
        fresh = self._services.store.notices[self._store_notices :]
        self._store_notices += len(fresh)
        if fresh:
            self._store_word = " ".join(fresh)
            self.tell(self._store_word)

    def _spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
