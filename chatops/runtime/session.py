"""A session that this process owns: the actions that a UI offers and the state that it shows.

Live, resumed and headless use are the same: every change goes through `Runner` and so through `advance`.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path

from chatops.domain.decisions import Approved, Decision, RememberedGrant
from chatops.domain.errors import AlreadyDecidedError, ChatopsError, NotSavedError
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
    CancelTurn,
    DecideCall,
    RetryTurn,
    RevokeGrants,
)
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import in_flight, pending_calls
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.runtime.denials import with_roles
from chatops.runtime.kept import HOLDING, KeptTexts
from chatops.runtime.ownership import HandOver
from chatops.runtime.performer import Performer
from chatops.runtime.posted import PostedDecisions
from chatops.runtime.runner import Bus, Listener, Runner
from chatops.runtime.services import Services
from chatops.runtime.settings import RegistryNews, SessionSettings
from chatops.runtime.switching import Switching
from chatops.runtime.turns import MakeStep, Turns
from chatops.runtime.view import Snapshot
from chatops.store.base import DecisionRow, Holder, SessionInfo, Store
from chatops.tools.base import Tool, ToolContext


class ChatSession:
    """A session that this process owns.

    Methods raise ChatopsError with a message for the user. A model's mistakes raise nothing.
    """

    def __init__(self, services: Services, info: SessionInfo | None, settings: SessionSettings) -> None:
        """Use `runtime.opening.open_session` instead, which takes the lease and loads the stored state."""
        self._services = services
        self._loop = asyncio.get_running_loop()
        self._told = 0
        self._store_notices = len(services.store.notices)
        self._store_word = ""
        """The last notice of the store about itself, shown until the user continues."""
        self._unheard: list[str] = []
        """Notices to publish as soon as a UI listens."""
        self._bus = Bus()
        self._taking = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._runner = Runner(store=services.store, worker=services.worker, bus=self._bus)
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
        self._turns = Turns(services, self._runner, self._hands, info=info, settings=settings, tell=self.tell)
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
        self._posted = PostedDecisions(services.store, services.worker, self._runner)
        self._bus.subscribe(self._heard)

    # State

    @property
    def state(self) -> TurnState | None:
        """The last turn, as committed."""
        return self._runner.state

    @property
    def settings(self) -> SessionSettings:
        """The session settings: role, pinned model, persona and revoked tools."""
        return self._turns.settings

    @property
    def session_id(self) -> SessionId:
        """Id of the session; empty until the first message is submitted."""
        info = self._turns.info
        return info.id if info is not None else SessionId("")

    @property
    def workspace(self) -> Path:
        """Folder in which the tools work."""
        return self._services.workspace

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for a decision."""
        if self.state is None:
            return ()
        return with_roles(pending_calls(self.state), self._turns.settings, self._services.rights)

    @property
    def unfinished(self) -> bool:
        """True while a turn is running or paused."""
        return self._turns.unfinished

    @property
    def trouble(self) -> ChatopsError | None:
        """The error that blocks the turn here: the store cannot be written, or another process has taken over."""
        return self._runner.trouble

    @property
    def wanted_by(self) -> Holder | None:
        """The process that requests the session. It gets it as soon as nothing runs here."""
        return self._hands.wanted_by

    @property
    def unsaved(self) -> str:
        """Reason that the session is not being saved; empty if it is."""
        return unsaved_text(self._services.store, self._runner.trouble)

    @property
    def passing(self) -> bool:
        """True if the session ends with this process because nothing can be stored. No other process can find it."""
        return bool(self._services.store.unsaved)

    @property
    def gone(self) -> ChatopsError | None:
        """Set once another process owns the session. It can still be followed: see `runtime.reading`."""
        return self._hands.gone

    def snapshot(self) -> Snapshot:
        """Return the current session, consistent with the events published so far."""
        return self._turns.record.snapshot(
            self.state,
            info=self._turns.info,
            workspace=str(self.workspace),
            grant=self._turns.grant,
            persona=self._turns.settings.persona,
            rights=self._services.rights,
            pending=self.pending,
            queued=self._kept.texts,
            queue_held=self._kept.held and not self._turns.unfinished,
            registry=self._switching.note,
            concern=self.unsaved or self._store_word,
        )

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the event loop with each event from now on. Returns a function that unsubscribes it."""
        return self._bus.subscribe(listener)

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt in order, as the next model call would get them."""
        return self._services.rights.prompt_layers(self._turns.settings)

    def grant(self) -> Grant:
        """Return what the current role may do now."""
        return self._turns.grant

    # Actions

    async def submit(self, text: str) -> bool:
        """Submit a message. Returns False if it is queued behind a turn, a run or older messages."""
        if not text.strip():
            return True
        self._tell_unheard()
        self._store_word = ""
        async with self._taking:
            try:
                return await self._kept.submit(await self._turns.stored(), text)
            except NotSavedError as error:
                self._runner.hindered(error)
                raise

    async def take_queued(self, *, into: str) -> str:
        """Remove the newest message from the queue and store it as setting `into`. Empty if nothing is queued.

        Raises ConflictError once another process owns the session, and StoreError.
        """
        self._hands.must_be_here()
        return await self._kept.take_last(into=into)

    async def resume_queue(self) -> None:
        """Send the queued messages, even after a turn that failed or was interrupted."""
        self._kept.held = False
        await self._kept.send_next()

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Decide a pending call as shown (`digest`). Returns False if it is no longer pending under that digest.

        Raises StoreError if the decision cannot be recorded: then it is void.
        """
        if isinstance(decision, Approved) and self._services.store.unsaved:
            raise refused_approval(self._services.store)
        try:
            await self._posted.take()
            decided = DecideCall(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
            return await self._runner.take_or_fail(decided)
        except AlreadyDecidedError:
            # Another process posted a decision after the last look.
            await self._posted.take()
            return False
        except NotSavedError as error:
            raise NotSavedError(
                f"Your answer was not taken. {error}", advice=error.advice, reason=error.reason
            ) from error

    async def answer_to(self, call_id: CallId) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        return await self._posted.answer_to(self.session_id, call_id)

    async def switch_role(self, name: str) -> None:
        """Switch to another role from the next model call on. Raises ConfigError for an unknown role."""
        await self._switching.to(replace(self._turns.settings, role=name))
        await self._services.worker(self._services.store.set_setting, f"role:{self.workspace}", name)

    async def pin_model(self, name: str | None) -> None:
        """Use this model whatever the role says, and as the default from now on; None: the role's model again.

        The demo is pinned for this session only and does not become the default. Raises ConfigError for a model that
        does not exist or cannot be used here.
        """
        if name:
            self._services.rights.check_model(name)
        await self._switching.to(replace(self._turns.settings, model_pin=name or ""))
        if name and not self._services.rights.is_demo(name):
            self._services.rights.choose_model(name)

    async def set_persona(self, name: str) -> None:
        """Use another persona from the next model call on."""
        await self._switching.to(replace(self._turns.settings, persona=name))

    async def revoke_tool(self, name: str) -> None:
        """Revoke a tool for the rest of this session, whatever the role."""
        await self._switching.revoke(name)

    async def cancel(self) -> bool:
        """Stop the reply or the running tools, and hold the queue. Returns False if nothing was running."""
        state = self.state
        if not self.pending and not self._turns.leader:
            # Also if the turn ends, or the next one is about to start, while the key press is being handled.
            self._kept.held = True
        if state is None or not in_flight(state):
            return False
        text, reasoning = self._performer.partial()
        return await self._runner.take(CancelTurn(partial_text=text, partial_reasoning=reasoning))

    async def retry(self) -> bool:
        """Retry a failed turn, or store what could not be stored. Returns False if there is nothing to retry."""
        if await self._runner.retry_unsaved():
            return True
        self._kept.held = False
        self._turns.grant = self._turns.settings.grant(self._services.rights)
        return await self._runner.take(RetryTurn(grant=self._turns.grant))

    async def resume(self) -> None:
        """Resume an unfinished turn from its checkpoint, taking the decisions that other processes posted."""
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
        """Give the session another title."""
        async with self._taking:
            info = await self._turns.stored()
            await self._services.worker(self._services.store.update_session, info.id, title=title)
            self._turns.info = replace(info, title=title)

    async def withdraw(self, grant: RememberedGrant) -> None:
        """Withdraw a remembered grant, in the store and in the current turn."""
        self._hands.must_be_here()
        await self._services.worker(self._services.store.revoke_grants, self.session_id, [grant])
        await self._runner.take(RevokeGrants(grants=(grant,)))

    def registry_changed_soon(self, news: RegistryNews) -> None:
        """Call `registry_changed` on the event loop later, from any thread.

        The caller may itself be inside a request for rights, which must not be interrupted.
        """
        self._loop.call_soon_threadsafe(self.registry_changed, news)

    def registry_changed(self, news: RegistryNews) -> None:
        """Apply a changed or reloaded registry file: see `Switching`."""
        self._switching.registry_changed(news)

    def tell(self, text: str, *, advice: str = "") -> None:
        """Publish a notice to the UIs."""
        self._told += 1
        number = f"{self.session_id}.notice{self._told}"
        self._bus.publish(Notice(id=number, parent_id=self.session_id, text=text, advice=advice, level="warning"))

    def tell_soon(self, text: str) -> None:
        """Call `tell` from any thread."""
        self._loop.call_soon_threadsafe(self.tell, text)

    def tell_when_heard(self, text: str) -> None:
        """Publish a notice with the next action of a UI. Nothing listens yet while the session is being opened."""
        self._unheard.append(text)

    def remark(self, text: str) -> None:
        """Show a notice about the store until the user continues."""
        self._store_word = text

    async def aclose(self) -> None:
        """Stop all work and release the session. Pending calls stay pending."""
        await self._hands.close()
        for task in self._tasks:
            task.cancel()
        await self._runner.aclose()
        await self._hands.lease.release()

    # Loading, for `runtime.opening`

    async def load(self) -> None:
        """Take the lease and load messages and the unfinished turn; in an unfinished run, its last turn in any case.

        Raises SessionHeldError, UnreadableError.
        """
        await self._turns.load()
        if self._turns.info is not None:
            await self._kept.recall(self._turns.info)

    # For `runtime.workflow`, while a run determines the turns

    def lead(self, workflow: str, settings: SessionSettings) -> None:
        """Let a run of `workflow` determine the next turn from now on. An unfinished turn belongs to `settings`."""
        self._turns.leader = workflow
        self._turns.settings = settings

    async def free(self, settings: SessionSettings) -> None:
        """End the lead of a run: the session is a chat under `settings` again, and queued messages are sent."""
        self._turns.leader = ""
        self._turns.settings, self._turns.grant = settings, settings.grant(self._services.rights)
        await self._kept.send_next()

    async def begin(self, settings: SessionSettings, make: MakeStep) -> None:
        """Start the turn that `make` returns for the grant of `settings`. Raises ConfigError, StoreError."""
        async with self._taking:
            await self._turns.begin(await self._turns.stored(), settings, make)

    async def stop_turn(self) -> None:
        """End an unfinished turn, even one that waits for the user. One left by another process is recovered first."""
        if self._turns.left_off:
            await self.resume()
        text, reasoning = self._performer.partial()
        await self._runner.take(CancelTurn(partial_text=text, partial_reasoning=reasoning))

    def publish(self, event: Event) -> None:
        """Publish an event of the run to the UIs."""
        self._bus.publish(event)

    # Internals

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
                self._services.worker.later(self._services.outputs.forget, call_id)
            case _:
                pass

    def _tell_unheard(self) -> None:
        unheard, self._unheard = self._unheard, []
        for text in unheard:
            self.tell(text)

    def _heed_store(self) -> None:
        """Publish what the store has noticed about itself, such as that it was deleted or damaged."""
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


def unsaved_text(store: Store, trouble: ChatopsError | None) -> str:
    """Return why the session is not being saved; empty if it is."""
    if store.unsaved:
        return f"Not saving: {store.unsaved}. What is said here is gone when chatops ends; no call can be approved."
    if isinstance(trouble, NotSavedError):
        reason = trouble.reason[:1].upper() + trouble.reason[1:]
        return f"{reason}: this turn is not saved. No call is approved or run until it is; R tries again now."
    return ""


def refused_approval(store: Store) -> NotSavedError:
    """Return the error for an approval that cannot be recorded."""
    return NotSavedError(
        f"Not approved: nothing can be saved ({store.unsaved}), and no call runs without a record of who allowed it.",
        advice="Deny it (d), or make saving possible and start chatops again.",
        reason=store.unsaved,
    )
