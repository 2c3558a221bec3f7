"""One conversation as a face sees it: what can be asked of it, and what it shows.

Live, resumed and headless use are the same: every change goes through `Runner` and so through `advance`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.domain.decisions import Approved, Decision, RememberedGrant
from chatops.domain.errors import AlreadyDecided, Busy, ChatopsError, ConfigError, NotSaved
from chatops.domain.events import (
    Event,
    Notice,
    PendingCall,
    Published,
    ToolFinished,
    TurnFinished,
    TurnPaused,
    TurnStatus,
)
from chatops.domain.events import RoleSwitched as RoleSwitchedEvent
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.engine.effects import Step
from chatops.engine.inputs import (
    CallDecided,
    GrantNarrowed,
    GrantsRevoked,
    Recovered,
    RoleSwitched,
    TurnCancelled,
    TurnRetried,
)
from chatops.engine.state import Finished, TurnState
from chatops.engine.turn import start
from chatops.engine.view import in_flight, pending_calls
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.policy.resolve import revoked
from chatops.runtime.aftermath import Aftermath
from chatops.runtime.bus import Bus, Listener
from chatops.runtime.doors import KeptTexts, PostedDecisions
from chatops.runtime.handover import HandOver
from chatops.runtime.perform import Performer
from chatops.runtime.record import Record
from chatops.runtime.registry_note import note_on_registry, told_of_change
from chatops.runtime.rights import RegistryNews
from chatops.runtime.runner import Runner
from chatops.runtime.saving import refused_approval, unsaved_text
from chatops.runtime.services import Services
from chatops.runtime.snapshot import Snapshot as Snapshot
from chatops.runtime.standing import Standing, divider, role_gone
from chatops.store.base import DecisionRow, Holder, SessionInfo
from chatops.store.derive import turn_after
from chatops.tools.base import Tool, ToolContext


class ChatSession:
    """A conversation. Methods raise ChatopsError with a sentence for the person; none for a model's doing."""

    def __init__(self, services: Services, info: SessionInfo | None, standing: Standing) -> None:
        """Use `runtime.opening.open_session`, which takes the lease and loads what is stored."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._info = info
        self._standing = standing
        self._grant = standing.grant(services.rights)
        self._record = Record()
        self._leader = ""
        """The workflow whose run says which turn comes next."""
        self._left_off = False
        """Whether the turn was loaded as another process left it and has not been taken up yet."""
        self._registry_note = note_on_registry(standing, rights=services.rights)
        self._told = 0
        self._last_turn = info.last_turn if info is not None else None
        self._store_notices = len(services.store.notices)
        self._store_word = ""
        """What the store said of itself last, until the person goes on."""
        self._bus = Bus()
        self._taking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._runner = Runner(store=services.store, offload=services.offload, bus=self._bus)
        self._performer = Performer(
            models=services.models,
            tools=services.tools,
            context_for=self._context_for,
            deliver=self._runner.deliver,
            publish=self._bus.publish,
        )
        self._runner.attach(self._performer)
        self._hands = HandOver(
            services, self._runner, taking=self._taking, spawn=self._spawn, tell=self.tell, looked=self._heed_store
        )
        self._aftermath = Aftermath(services.store, services.offload, services.outputs, services.holder)
        self._kept = KeptTexts(services.store, services.offload)
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
        return self._standing

    @property
    def session_id(self) -> SessionId:
        """Empty until the first message is taken."""
        return self._info.id if self._info is not None else SessionId("")

    @property
    def workspace(self) -> Path:
        """Where its tools work."""
        return self._services.workspace

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls that wait for the person."""
        return pending_calls(self.state) if self.state is not None else ()

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
        return self._record.snapshot(
            self.state,
            info=self._info,
            workspace=str(self.workspace),
            grant=self._grant,
            persona=self._standing.persona,
            rights=self._services.rights,
            queued=self._kept.count,
            registry=self._registry_note,
            concern=self.unsaved or self._store_word,
        )

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the event loop with each event from now on; returns the way to stop it."""
        return self._bus.subscribe(listener)

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        """The system prompt's layers in order, as the next model call would get them."""
        now = self._standing
        return self._services.rights.prompt_layers(
            now.role, model_pin=now.model_pin, persona=now.persona, step=now.step
        )

    def grant(self) -> Grant:
        """What the present role may do now."""
        return self._grant

    # what can be asked of it

    async def submit(self, text: str) -> bool:
        """Take a message. False: a turn or a run is in the way, the message is kept and sent after it."""
        if not text.strip():
            return True
        self._store_word = ""
        async with self._taking:
            try:
                info = await self._ensure_stored()
                if self._leader or self._unfinished():
                    await self._kept.keep(info.id, text)
                    return False
                await self._start(info, text)
            except NotSaved as error:
                self._runner.hindered(error)
                raise
            return True

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
        await self._change(replace(self._standing, role=name))
        await self._services.offload(self._services.store.set_setting, f"role:{self.workspace}", name)

    async def pin_model(self, name: str | None) -> None:
        """Use this model whatever the role says, and as the default from now on; None: as the role says again."""
        await self._change(replace(self._standing, model_pin=name or ""))
        if name:
            self._services.rights.choose_model(name)

    async def set_persona(self, name: str) -> None:
        """Speak as another persona from the next model call on."""
        await self._change(replace(self._standing, persona=name))

    async def revoke_tool(self, name: str) -> None:
        """Take a tool away from this conversation, whatever the role; it stays away."""
        async with self._taking:
            info = await self._ensure_stored()
        taken = tuple(dict.fromkeys((*self._standing.revoked, name)))
        self._standing = replace(self._standing, revoked=taken)
        self._grant = self._standing.grant(self._services.rights)
        # The turn in progress first: it is to lose the tool even where that cannot be stored.
        await self._runner.take(GrantNarrowed(layers=(revoked(taken),)))
        store = self._services.store
        await self._services.offload(store.set_setting, f"revoked:{info.id}", "\n".join(taken))

    async def cancel(self) -> bool:
        """Stop the answer or the running tools. False: nothing was running."""
        state = self.state
        if state is None or not in_flight(state):
            return False
        text, reasoning = self._performer.partial()
        return await self._runner.take(TurnCancelled(partial_text=text, partial_reasoning=reasoning))

    async def retry(self) -> bool:
        """Go on with a turn that failed, or save what could not be saved. False: there is nothing to retry."""
        if await self._runner.retry_unsaved():
            return True
        self._grant = self._standing.grant(self._services.rights)
        return await self._runner.take(TurnRetried(grant=self._grant))

    async def resume(self) -> None:
        """Go on with an unfinished turn from its checkpoint, taking decisions that other doors left.

        Only what was loaded is recovered, and only once: what was begun here is no interruption.
        """
        state = self.state
        if state is None or isinstance(state.phase, Finished):
            await self._send_kept()
            return
        if self._left_off:
            self._left_off = False
            self._standing = replace(self._standing, role=state.grant.role)
            grant, gone = self._standing.grant_for(state.grant, self._services.rights)
            if gone is not None:
                text = f"{gone} Nothing of this turn's role is permitted until it is there again."
                self.tell(text, advice=gone.advice)
            else:
                self._grant = grant
            interrupted = await self._aftermath.of(state)
            if await self._runner.take(Recovered(grant=grant, interrupted=interrupted)):
                self._services.offload.later(self._aftermath.clear, interrupted)
            if not self._leader and (state.contract is not None or state.gate is not None):
                # Its run is over: it was ended before this turn could be.
                await self._runner.take(TurnCancelled())
        await self._posted.take()

    async def settle(self) -> TurnState | None:
        """Wait until the turn is paused or finished, and return it."""
        await self._runner.settle()
        return self.state

    async def rename(self, title: str) -> None:
        """Give the conversation another title."""
        async with self._taking:
            info = await self._ensure_stored()
            await self._services.offload(self._services.store.update_session, info.id, title=title)
            self._info = replace(info, title=title)

    async def withdraw(self, grant: RememberedGrant) -> None:
        """Take a remembered grant back, in the store and in the turn in progress."""
        self._hands.must_be_here()
        await self._services.offload(self._services.store.revoke_grants, self.session_id, [grant])
        await self._runner.take(GrantsRevoked(grants=(grant,)))

    def registry_changed_soon(self, news: RegistryNews) -> None:
        """`registry_changed` in its turn: whoever noticed, in whatever thread, may be asking for something now."""
        self._loop.call_soon_threadsafe(self.registry_changed, news)

    def registry_changed(self, news: RegistryNews) -> None:
        """A file of the registry has changed, or was put in force: say what is different; a turn in progress can only
        lose by it.

        A conversation that was closed here may be driven elsewhere by now, so it is left alone.
        """
        if self._hands.closed:
            return
        before, rights = self._grant, self._services.rights
        self._registry_note = note_on_registry(self._standing, rights=rights)
        try:
            self._grant = self._standing.grant(rights)
            said = told_of_change(self._standing, before, self._grant, rights=rights)
        except ConfigError as error:
            self.tell(f"The registry has changed. {error}", advice=error.advice)
            self._runner.deliver(GrantNarrowed(layers=(role_gone(self._standing.role),), answers=()))
            return
        if text := " ".join([*said, *news.told]):
            self.tell(text)
        self._runner.deliver(GrantNarrowed(layers=self._grant.layers, answers=self._grant.answers))

    def tell(self, text: str, *, advice: str = "") -> None:
        """Let the faces say something."""
        self._told += 1
        number = f"{self.session_id}.notice{self._told}"
        self._bus.publish(Notice(id=number, parent_id=self.session_id, text=text, advice=advice, level="warning"))

    def tell_soon(self, text: str) -> None:
        """`tell`, from any thread."""
        self._loop.call_soon_threadsafe(self.tell, text)

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
        if self._info is None:
            return
        store, offload = self._services.store, self._services.offload
        await self._hands.lease.take(self._info.id)
        # Whoever had it until now may have gone on since it was looked up.
        info = self._info = await offload(store.session, self._info.id)
        self._last_turn = info.last_turn
        history = await offload(store.history, info.id)
        await self._kept.recall(info.id)
        turn = info.active_turn or (info.last_turn if info.run is not None and not info.run.result else None)
        state = await offload(store.load_turn, turn) if turn is not None else None
        self._record.load(history, state)
        self._runner.load(state)
        self._left_off = self._unfinished()

    # led by a run, for `runtime.workflow`

    def lead(self, workflow: str, standing: Standing) -> None:
        """From now on a run of `workflow` says which turn comes next; an unfinished one belongs to `standing`."""
        self._leader = workflow
        self._standing = standing

    async def free(self, standing: Standing) -> None:
        """The run is over: from now on it is a chat under `standing`, and what was kept is sent."""
        self._leader = ""
        self._standing, self._grant = standing, standing.grant(self._services.rights)
        await self._send_kept()

    async def begin(self, standing: Standing, make: Callable[[Grant, tuple[RememberedGrant, ...]], Step]) -> None:
        """Begin the turn that `make` gives for the grant of `standing`. Raises ConfigError, StoreError."""
        async with self._taking:
            await self._begin(await self._ensure_stored(), standing, make)

    async def stop_turn(self) -> None:
        """End an unfinished turn, also one that waits for a person; what another process left is looked at first."""
        if self._left_off:
            await self.resume()
        text, reasoning = self._performer.partial()
        await self._runner.take(TurnCancelled(partial_text=text, partial_reasoning=reasoning))

    def publish(self, event: Event) -> None:
        """Tell the faces what happened to the run."""
        self._bus.publish(event)

    # inside

    def _context_for(self, call_id: CallId, *, attempt: int, tool: Tool, output: Callable[[str], None]) -> ToolContext:
        return self._services.contexts(self.session_id, call_id, attempt=attempt, tool=tool, output=output)

    def _unfinished(self) -> bool:
        return self.state is not None and not isinstance(self.state.phase, Finished)

    async def _ensure_stored(self) -> SessionInfo:
        self._hands.must_be_here()
        if self._info is None:
            store, offload, now = self._services.store, self._services.offload, self._standing
            info = await offload(
                store.create_session, workspace=str(self.workspace), role=now.role, persona=now.persona
            )
            await self._hands.lease.take(info.id)
            reach("after_create")
            if now.model_pin:
                await offload(store.update_session, info.id, model_pin=now.model_pin)
            self._info = info
        return self._info

    async def _start(self, info: SessionInfo, text: str, *, kept: bool = False) -> None:
        turn_id = self._last_turn = await self._next_turn_id(info.id)

        def make(grant: Grant, remembered: tuple[RememberedGrant, ...]) -> Step:
            step = start(
                turn_id=turn_id,
                session_id=info.id,
                parent_id=self._record.head,
                grant=grant,
                history=self._record.messages,
                text=text,
                remembered=remembered,
            )
            return replace(step, takes_kept=kept)

        await self._begin(info, self._standing, make)

    async def _next_turn_id(self, session_id: SessionId) -> TurnId:
        try:
            return await self._services.offload(self._services.store.next_turn_id, session_id)
        except NotSaved:
            # Nobody else begins turns in a conversation that is held here, so the next number is free.
            return turn_after(session_id, self._last_turn)

    async def _begin(
        self, info: SessionInfo, standing: Standing, make: Callable[[Grant, tuple[RememberedGrant, ...]], Step]
    ) -> None:
        grant = standing.grant(self._services.rights)
        self._close_turn()
        self._standing, self._grant = standing, grant
        remembered = await self._services.offload(self._services.store.grants, info.id)
        await self._runner.begin(make(grant, remembered))

    def _close_turn(self) -> None:
        state = self.state
        if state is not None and isinstance(state.phase, Finished):
            self._record.add(*state.messages, usage=state.usage)
            self._runner.load(None)

    async def _change(self, standing: Standing) -> None:
        """Put `standing` in force; the divider goes into the turn in progress or behind the last one."""
        self._hands.must_be_here()
        store, offload = self._services.store, self._services.offload
        if self._leader:
            raise Busy(
                f"This is a run of workflow {self._leader}: its steps say role, model and persona until it is over.",
                advice="Go on when it has ended, or end it: /workflow cancel",
            )
        after = standing.grant(self._services.rights)
        async with self._taking:
            count = len(self._record.messages) + (len(self.state.messages) if self.state is not None else 0)
            switch = divider(
                self._grant,
                after,
                id=MessageId(f"{self.session_id}.switch{count}"),
                suspended=await self._suspended_by(after),
            )
            self._standing, self._grant = standing, after
            self._registry_note = note_on_registry(standing, rights=self._services.rights)
            if self._unfinished():
                await self._runner.take(RoleSwitched(grant=after, switch=switch))
            else:
                if self._info is not None and (self._record.messages or self.state is not None):
                    self._close_turn()
                    await self._runner.catch_up()
                    await offload(store.append_message, self._info.id, switch)
                    self._record.add(switch)
                self._bus.publish(RoleSwitchedEvent(id=switch.id, parent_id=self.session_id, switch=switch))
            if self._info is not None:
                await offload(
                    store.update_session,
                    self._info.id,
                    role=standing.role,
                    model_pin=standing.model_pin,
                    persona=standing.persona,
                )

    async def _suspended_by(self, after: Grant) -> int:
        if self._info is None or self._grant.role == after.role:
            return 0
        grants = await self._services.offload(self._services.store.grants, self._info.id)
        return sum(1 for grant in grants if grant.role == self._grant.role)

    def _heard(self, published: Published) -> None:
        self._heed_store()
        match published.event:
            case TurnPaused() if self._watching is None or self._watching.done():
                self._watching = self._spawn(self._posted.watch())
            case TurnFinished(result=result) if result is not TurnStatus.FAILED:
                self._spawn(self._send_kept())
            case ToolFinished(id=call_id):
                self._services.offload.later(self._services.outputs.forget, call_id)
            case _:
                pass

    def remark(self, text: str) -> None:
        """Have something about the store stand on the screen until the person goes on."""
        self._store_word = text

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

    async def _send_kept(self) -> None:
        """Begin the next turn with the oldest kept message. What cannot be sent stays kept, and is told."""
        async with self._taking:
            if self._leader or not self._services.attended or self._info is None or self._unfinished():
                return
            try:
                text = await self._kept.first(self._info.id)
                if text is not None:
                    reach("sending_kept")
                    await self._start(self._info, text, kept=True)
                    self._kept.sent()
            except ChatopsError as error:
                self.tell(f"A message that was kept could not be sent: {error}", advice=error.advice)
