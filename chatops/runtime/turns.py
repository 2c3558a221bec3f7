"""Turns of a session that this process owns: load, resume and start them, and hand the session over.

The session is stored before its first turn. Each turn gets its number and the rights of the moment in which it starts.
While a turn is paused, decisions that other processes have posted (another window, `chatops approvals`) are taken from
the store in their order; the store determines which one counts.

Handover: quiesce, flush, then release the lease to the process that asked for it. A message that is just being
submitted is stored first. If the lease was seized, what runs here stops.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from chatops.config.failpoints import reach
from chatops.domain.decisions import Approved, Rejected
from chatops.domain.errors import ChatopsError, ConfigError, ConflictError, NotSavedError, SessionBusyError, StoreError
from chatops.domain.events import Published, ToolFinished, TurnPaused, TurnStatus
from chatops.domain.ids import SessionId, TurnId
from chatops.domain.messages import RoleSwitchMessage, SummaryMessage
from chatops.domain.tools import built_in_capabilities
from chatops.engine.budgets import continue_spending
from chatops.engine.effects import ComposerDraft, TurnStep
from chatops.engine.inputs import CancelTurn, DecideCall, NarrowGrant, Recover
from chatops.engine.state import Finished, TurnState, new_turn
from chatops.engine.turn import advance, start
from chatops.engine.view import own_pending_calls, turn_status
from chatops.policy.budget import Budget, strictest
from chatops.policy.grant import Grant
from chatops.policy.resolve import revoked_layer
from chatops.policy.sandbox import SandboxChange
from chatops.runtime.crash_recovery import UNSENT, CrashRecovery
from chatops.runtime.delegation import Children
from chatops.runtime.history import History
from chatops.runtime.lease import Lease
from chatops.runtime.performer import STOP_S, Performer
from chatops.runtime.runner import Runner
from chatops.runtime.services import EventBus, ServerWait, Services, changes
from chatops.runtime.settings import SessionSettings, missing_role, narrowed_by_user
from chatops.store.base import Holder, SessionInfo
from chatops.store.sessions import turn_after
from chatops.toolkit.threads import in_thread

log = logging.getLogger(__name__)

WATCH_S = 0.5
"""Seconds between two looks for posted decisions while a call is pending."""
MakeStep = Callable[[TurnState], TurnStep]
"""Makes the first step of a new turn."""
TakeDraft = Callable[[], ComposerDraft | None]
"""Called when a text is about to be stored; returns the draft to store with it."""


class Turns:
    """The turns of one session, its history, and its lease.

    One turn at a time: the caller of `start` or `begin` holds `submitting`.
    """

    def __init__(self, services: Services, bus: EventBus, info: SessionInfo | None, settings: SessionSettings) -> None:
        self._services = services
        self._bus = bus
        self._recovery = CrashRecovery(services.store, services.worker, services.outputs, services.holder)
        self._last_turn = info.last_turn if info is not None else None
        """The last turn. Once `_is_next_number_known`, the number after it is free, as only the owner starts turns."""
        self._is_next_number_known = info is None
        """False until the store was asked for a number: an earlier owner may have had one that it never used."""
        self._tasks: set[asyncio.Task[Any]] = set()
        self._watch_task: asyncio.Task[None] | None = None
        self._ending_children: set[asyncio.Task[None]] = set()
        """The stopping of children whose calls are over."""
        self._handover_task: asyncio.Task[None] | None = None
        self._handover_lock = asyncio.Lock()
        """Held while the session is handed over."""
        self._seen_notices = len(services.store.notices)
        self.runner = Runner(store=services.store, worker=services.worker, bus=bus, lease=lambda: self.lease.token)
        self.lease = Lease(
            services.store,
            services.worker,
            services.holder,
            on_request=self._on_request,
            on_loss=self._on_loss,
            on_stop=self._on_stop,
            on_look=self._notify_of_store,
        )
        self.children = Children(
            services,
            settings=lambda: self.settings,
            state=lambda: self.runner.state,
            take=self.runner.take,
            publish=bus.publish,
        )
        """The child turns that calls of the current turn wait for."""
        self.performer = Performer(
            services,
            session_id=lambda: self.session_id,
            holds_lease=self.lease.is_ours,
            is_narrowed=self._is_narrowed,
            deliver=self.runner.deliver,
            publish=bus.publish,
            children=self.children,
        )
        self.runner.attach(self.performer)
        self.submitting = asyncio.Lock()
        """Held while a message is submitted, or something else that determines the next turn."""
        self.info = info
        """The session as stored; None until the first message is submitted."""
        self.settings = settings
        self.grant = settings.grant(services.rights)
        """The grant that `settings` give."""
        self._inherit_lock = asyncio.Lock()
        self._narrowed_at = 0.0
        """The time at which a child session has last lost rights, as `time.monotonic` counts."""
        self.history = History()
        """The messages before the current turn."""
        self.contain_next = False
        """True if the next turn is contained, whatever its role says."""
        self.workflow = ""
        """The workflow whose run determines the next turn; empty in a chat."""
        self.interrupted = False
        """True if the turn was loaded as another process left it and has not been resumed yet."""
        self.closed = False
        """True once this process no longer owns the session, for whatever reason."""
        self.wanted_by: Holder | None = None
        """The process that requests the session. It gets it as soon as nothing runs here."""
        self.taken_over: ChatopsError | None = None
        """Set once another process owns the session."""
        self.server_wait = ServerWait(services.servers, self._notify)
        """The wait for MCP servers before a turn of a model, outside of `submitting`."""
        self.store_notice = ""
        """The last notice of the store about itself, shown until the user continues."""
        bus.subscribe(self._on_event)

    @property
    def session_id(self) -> SessionId:
        """Id of the session; empty until it is stored."""
        return self.info.id if self.info is not None else SessionId("")

    @property
    def state(self) -> TurnState | None:
        """The last turn, as committed."""
        return self.runner.state

    @property
    def unfinished(self) -> bool:
        """True while a turn is running or paused."""
        return self.state is not None and not isinstance(self.state.phase, Finished)

    # Loading and resuming

    async def load(self) -> None:
        """Take the lease and load messages and the unfinished turn; in an unfinished run, its last turn in any case.

        Raises SessionHeldError, UnreadableError.
        """
        if self.info is None:
            return
        store, worker = self._services.store, self._services.worker
        await self.lease.take(self.info.id)
        # Read it again under the lease: the previous owner may have changed it.
        info = self.info = await worker(store.session, self.info.id)
        self._last_turn = info.last_turn
        messages = await worker(store.history, info.id)
        turn = info.active_turn or (info.last_turn if info.unfinished_run is not None else None)
        state = await worker(store.load_turn, turn) if turn is not None else None
        spent = await worker(store.usage, info.id, besides=turn)
        self.history.load(messages, state, spent=spent)
        self.runner.load(state)
        self.interrupted = self.unfinished

    async def resume(self, state: TurnState, *, to_stop: bool = False) -> None:
        """Resume a loaded turn under the current rights, once. A turn that was started here needs no recovery.

        `to_stop`: it is only resumed to be stopped, so nothing that was decided elsewhere starts.
        """
        if self.interrupted:
            self.interrupted = False
            await self._recover(state)
        if to_stop:
            return
        await self.take_decisions()
        # A turn that waits as it was loaded does not pause again, so there is no event for it.
        self._start_watching()

    async def _recover(self, state: TurnState) -> None:
        self.settings = replace(self.settings, role=state.grant.role)
        try:
            grant = self.grant = self.settings.grant(self._services.rights)
        except ConfigError as missing:
            grant = state.grant.narrowed(missing_role(state.grant.role))
            text = f"{missing} No tool of this turn's role is permitted until the role exists again."
            self._notify(text, advice=missing.advice)
        interrupted = await self._recovery.interruptions(state)
        copied = await self._recovery.copied(state)
        unsent = await self._recovery.unsent(state)
        if await self.runner.take(Recover(grant=grant, interrupted=interrupted, copied=copied, unsent=unsent)):
            self._services.worker.later(self._recovery.clear, state, interrupted)
        if not self.workflow and (state.contract is not None or state.gate is not None):
            # Its run is over: it was ended before this turn could be.
            await self.runner.take(CancelTurn())

    async def inherit(self, revoked: tuple[str, ...], sandbox: tuple[SandboxChange, ...]) -> None:
        """Bind the turn of a child session by what the user has taken from the session with the call."""
        async with self._inherit_lock:
            if (settings := self.settings.bound_by_parent(revoked, sandbox)) == self.settings:
                return
            self.settings, self.grant = settings, settings.grant_for(self.grant, self._services.rights)
            await self.runner.take(NarrowGrant(layers=(revoked_layer(settings.revoked),), sandbox=self.grant.sandbox))
            self._narrowed_at = time.monotonic()

    async def _inherit_stored(self) -> None:
        """As `inherit`, with what is stored: another process may have the session open that has delegated."""
        if self.info is not None and self.info.parent is not None:
            await self.inherit(*await self._services.worker(narrowed_by_user, self._services.store, self.info.parent))

    async def _is_narrowed(self, since: float) -> bool:
        """Return True if the user has taken away rights of a child session since a time of `time.monotonic`."""
        await self._inherit_stored()
        return self._narrowed_at >= since

    async def take_decisions(self) -> None:
        """Pass decisions that other processes have posted to the turn."""
        state = self.runner.state
        if state is None or isinstance(state.phase, Finished):
            return
        await self._inherit_stored()
        for decided in await self._services.worker(self._services.store.posted_decisions, state.turn_id):
            reach("decision_found")
            try:
                self._services.rights.check_surface(decided.by.via)
                await self.check_decider(state, decided)
                self._check_is_answer(decided)
            except ConfigError as error:
                # The site has forbidden it since, another program posted it, or it is beyond the rights of who decided.
                self._notify(f"{error} {decided.call_id} stays pending.", advice=error.advice)
                await self._services.worker(self._services.store.withdraw_decision, decided)
                continue
            await self.runner.take(decided)

    def _check_is_answer(self, decided: DecideCall) -> None:
        """Raise ConfigError if the call waits for a decision, but not for such a one: it would stay posted for ever."""
        state = self.runner.state
        if state is None:
            return
        pending = {(waiting.call.id, waiting.digest) for waiting in own_pending_calls(state)}
        if (decided.call_id, decided.digest) in pending and advance(state, decided).state is state:
            raise ConfigError(f"Nothing was decided: {decided.decision.kind} is no answer to what it asks.")

    async def check_decider(self, state: TurnState, decided: DecideCall) -> None:
        """Raise ConfigError if a decision would let a call run and its author may not do that."""
        store, by, decision = self._services.store, decided.by, decided.decision
        pending = next((call for call in own_pending_calls(state) if call.call.id == decided.call_id), None)
        if pending is None or isinstance(decision, Rejected):
            return
        foreign = by.member not in ("", store.role)
        if not foreign and not pending.approvers:
            return
        if foreign and isinstance(decision, Approved) and decision.remember is not None:
            raise ConfigError(
                f"Nothing was decided: a rule of {by.member} does not answer in a session of another.",
                advice="Approve the call once.",
            )
        known = await self._services.worker(store.decider, state.session_id, by.member, pending.approvers)
        self._services.rights.check_decider(pending, by, known, foreign=foreign, containment=state.containment)

    def _start_watching(self) -> None:
        if self._watch_task is None or self._watch_task.done():
            self._watch_task = self.spawn(self._watch_decisions())

    async def _watch_decisions(self) -> None:
        """Take posted decisions for as long as the turn is paused."""
        last_version: int | None = None
        with changes(self._services.store, self.info.id if self.info is not None else "") as pause:
            while (state := self.runner.state) is not None and turn_status(state) is TurnStatus.PAUSED:
                try:
                    version = await self._services.worker(self._services.store.data_version)
                    if version != last_version:
                        last_version = version
                        await self.take_decisions()
                except StoreError:
                    log.exception("posted decisions could not be read")
                await pause(WATCH_S)

    # Starting

    async def ensure_stored(self) -> SessionInfo:
        """Return the stored session, creating it if necessary. Raises ConflictError, StoreError."""
        self.check_owned()
        if self.info is None:
            store, worker, now = self._services.store, self._services.worker, self.settings
            workspace = str(self._services.workspace)
            info = await worker(store.create_session, workspace=workspace, role=now.role, persona=now.persona)
            await self.lease.take(info.id)
            reach("after_create")
            if now.model_pin:
                await worker(store.update_session, info.id, model_pin=now.model_pin)
            self.info = info
        return self.info

    async def start(self, info: SessionInfo, text: str, *, draft: TakeDraft, queued: bool = False) -> None:
        """Start a turn of the chat with a message. `queued`: it is the oldest queued one. Raises StoreError."""
        if queued:
            # The message stays queued until its turn is stored, so it must not start a second turn before that.
            await self.runner.catch_up()
        turn_id = await self.next_turn_id(info.id)
        files = await asyncio.to_thread(self._services.attach, info.id, text) if "@" in text else ()
        grant = self.settings.grant(self._services.rights)
        wants_copy = self.contain_next or grant.contain
        contained = wants_copy and await self._contain_or_notify()

        def make(turn: TurnState) -> TurnStep:
            step = start(turn, text, files=files, contained=contained)
            return replace(step, takes_queued=queued, draft=draft())

        # After that wait `begin` makes the grant again, as rights may have changed meanwhile.
        await self.begin(turn_id, self.settings, make, grant=None if wants_copy else grant)
        self.contain_next = False

    async def start_child(self, info: SessionInfo, make: Callable[..., TurnStep], *, budget: Budget) -> None:
        """Start the turn of a delegated call, always under the same id, within the `budget` of its caller too.

        Raises ConfigError, StoreError.
        """
        settings = self.settings
        grant = settings.grant(self._services.rights)
        grant = replace(grant, run_budget=strictest(grant.run_budget, budget))
        contained = grant.contain and await self._contain_or_notify()
        caller = settings.child.caller if settings.child is not None else ""
        step = partial(make, contained=contained, caller=caller)
        await self.begin(TurnId(f"{info.id}.1"), settings, step, grant=grant)

    async def _contain_or_notify(self) -> bool:
        """Return True if a turn can be contained here; else say why not, and that its calls ask."""
        why = await self.why_not_contained()
        if why:
            self._notify(f"{why} This turn is not contained: what would ask, asks.")
        return not why

    async def why_not_contained(self) -> str:
        """Return why turns cannot be contained here, as a sentence; empty if they can."""
        if not self.settings.grant(self._services.rights).may_contain:
            return "The registry forbids contained turns."
        return await in_thread(self._services.contained().why_not, self._services.workspace)

    async def begin(
        self, turn_id: TurnId, settings: SessionSettings, make: MakeStep, *, grant: Grant | None = None
    ) -> None:
        """Start a turn under the grant of `settings` with the step that `make` returns. Raises ConfigError, StoreError.

        `grant` is that grant if the caller has made it and not waited since.
        """
        grant = grant or settings.grant(self._services.rights)
        earlier = self.runner.state if self.workflow else None
        self._archive_finished()
        self.settings, self.grant = settings, grant
        self._last_turn = turn_id
        before = self.history
        turn = new_turn(turn_id, self.session_id, grant=grant, parent_id=before.head, history=before.messages)
        await self.runner.begin(make(turn if earlier is None else continue_spending(turn, earlier)))

    async def append(self, info: SessionInfo, message: RoleSwitchMessage | SummaryMessage) -> None:
        """Store a message after the last turn. Raises StoreError."""
        self._archive_finished()
        await self.runner.catch_up()
        await self._services.worker(self._services.store.append_message, info.id, message, self.lease.token)
        self.history.add(message)

    def _archive_finished(self) -> None:
        state = self.runner.state
        if state is not None and isinstance(state.phase, Finished):
            self.history.add(*state.messages, usage=state.usage)
            self.runner.load(None)

    async def next_turn_id(self, session_id: SessionId) -> TurnId:
        """Return the id of the next turn.

        The first turn of a child session answers its caller, so it is always that of the task. Raises SessionBusyError
        where that has not begun.
        """
        if self.info is not None and self.info.parent is not None and self._last_turn is None:
            raise SessionBusyError(
                "Nothing was sent: the delegated task of this session has not begun.",
                advice=f"It begins once its caller continues: chatops resume {self.info.parent}",
            )
        with suppress(NotSavedError):
            if not self._is_next_number_known:
                # A turn that is not stored yet has its number too.
                await self.runner.catch_up()
                turn_id = await self._services.worker(self._services.store.next_turn_id, session_id)
                self._is_next_number_known = True
                return turn_id
        return turn_after(session_id, self._last_turn)

    # Handing over

    def check_owned(self) -> None:
        """Raise the error for the user if another process owns the session."""
        if self.runner.taken_over is not None:
            raise self.runner.taken_over

    def _on_request(self, by: Holder | None) -> None:
        if self.closed:
            return
        self.wanted_by = by
        # A handover that is not done yet starts again with the new requester, or is undone.
        if self._handover_task is not None and self._handover_task.cancel():
            self.runner.continue_here()
        self._handover_task = self.spawn(self._hand_over(by)) if by is not None else None

    def _on_stop(self) -> bool:
        """Stop the turn, as another process asks for. Return False while it is being resumed."""
        if self.interrupted:
            return False
        self.spawn(self.cancel())
        return True

    async def cancel(self) -> bool:
        """Stop the turn, even one that waits for the user. Return False if it is over."""
        text, reasoning = self.performer.partial()
        return await self.runner.take(CancelTurn(partial_text=text, partial_reasoning=reasoning))

    def _on_loss(self, by: Holder | None) -> None:
        self.spawn(self.lose(by))

    async def _hand_over(self, by: Holder) -> None:
        if not self.runner.idle:
            who = f"host {by.host}, pid {by.pid}"
            self._notify(f"Another chatops ({who}) takes this session over when the current step is done.")
        await self.runner.quiesce()
        await self.lose(by)

    async def lose(self, by: Holder | None) -> None:
        """Stop what runs here, since the stored session belongs to another process now, which may not be known."""

        async def hand_over() -> ConflictError:
            # Another process may have asked in the meantime.
            return _taken_over_error(await self.lease.hand_over() or by if by is not None else None)

        await self._let_go(_taken_over_error(by), hand_over)

    async def leave(self, why: ConflictError) -> None:
        """Release the session, which is quiet, of its own accord. `why` is what the user is told."""

        async def release() -> ConflictError:
            await self.lease.release()
            return why

        await self._let_go(why, release)

    async def _let_go(self, why: ConflictError, pass_on: Callable[[], Awaitable[ConflictError]]) -> None:
        """Stop what runs here, and pass the lease on, which returns what the user is told."""
        async with self.submitting, self._handover_lock:
            if self.closed:
                return
            self.closed = True
            await self._store_unsent()
            await self.runner.give_up(why)
            # Set only now: a UI that sees it starts to follow the session, and must not find the lease free.
            self.taken_over = error = await pass_on()
            self._notify(str(error), advice=error.advice)

    async def aclose(self) -> None:
        """Stop all work and release the lease. A handover that is in progress ends first."""
        async with self._handover_lock:
            self.closed = True
        if self._ending_children:
            await asyncio.wait(self._ending_children, timeout=STOP_S)
        for task in self._tasks:
            task.cancel()
        await self._store_unsent()
        await self.runner.aclose()
        await self.lease.release()

    # Internals

    async def _store_unsent(self) -> None:
        """Store which round's request was withheld here, so that it does not count as cut off."""
        if self.state is not None and (unsent := self.runner.unsent):
            with suppress(StoreError):
                await self._services.worker(self._services.store.set_setting, f"{UNSENT}{self.state.turn_id}", unsent)

    def spawn(self, work: Coroutine[None, None, Any]) -> asyncio.Task[Any]:
        """Run `work` in a task that ends with the session."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _on_event(self, published: Published) -> None:
        self._notify_of_store()
        match published.event:
            case TurnPaused():
                self._start_watching()
            case ToolFinished(id=call_id, tool=tool):
                if built_in_capabilities(tool).delegates:
                    self._ending_children.add(self.spawn(self.children.end(call_id)))
                self._services.worker.later(self._services.outputs.forget, call_id)
            case _:
                pass

    def _notify_of_store(self) -> None:
        """Publish what the store has noticed about itself, such as that it was deleted or damaged."""
        fresh = self._services.store.notices[self._seen_notices :]
        self._seen_notices += len(fresh)
        if fresh:
            self.store_notice = " ".join(fresh)
            self._notify(self.store_notice)

    def _notify(self, text: str, *, advice: str = "") -> None:
        self._bus.notify(text, advice=advice, parent_id=self.session_id)


def _taken_over_error(by: Holder | None) -> ConflictError:
    who = f" (host {by.host}, pid {by.pid})" if by is not None else ""
    return ConflictError(
        f"Taken over by another chatops{who}.", advice="It continues there; nothing runs here any more."
    )
