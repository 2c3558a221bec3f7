"""Turns of a session: start them, and resume one that another process left unfinished.

The session is stored first. Each turn gets its number and the rights of that moment.
"""

from collections.abc import Callable
from dataclasses import replace

from chatops.config.failpoints import reach
from chatops.domain.decisions import RememberedGrant
from chatops.domain.errors import NotSavedError
from chatops.domain.ids import SessionId, TurnId
from chatops.engine.effects import Step
from chatops.engine.inputs import CancelTurn, Recover
from chatops.engine.state import Finished, TurnState
from chatops.engine.turn import start
from chatops.policy.grant import Grant
from chatops.runtime.crash_recovery import Aftermath
from chatops.runtime.ownership import HandOver
from chatops.runtime.runner import Runner
from chatops.runtime.services import Services
from chatops.runtime.settings import SessionSettings
from chatops.runtime.view import Record
from chatops.store.base import SessionInfo
from chatops.store.derive import turn_after

MakeStep = Callable[[Grant, tuple[RememberedGrant, ...]], Step]
"""Makes the first step of a turn, given the grant and the remembered grants that it starts with."""


class Turns:
    """The session so far, and what its next turn starts with.

    One turn at a time: the caller of `start` or `begin` holds the lock under which messages are submitted.
    """

    def __init__(
        self,
        services: Services,
        runner: Runner,
        hands: HandOver,
        *,
        info: SessionInfo | None,
        settings: SessionSettings,
        tell: Callable[..., None],
    ) -> None:
        self._services = services
        self._runner = runner
        self._hands = hands
        self._tell = tell
        self._aftermath = Aftermath(services.store, services.worker, services.outputs, services.holder)
        self._last = info.last_turn if info is not None else None
        self.info = info
        """The session as stored; None until the first message is submitted."""
        self.settings = settings
        self.grant = settings.grant(services.rights)
        """The grant that `settings` gives."""
        self.record = Record()
        """The messages before the current turn."""
        self.leader = ""
        """The workflow whose run determines the next turn; empty in a chat."""
        self.left_off = False
        """True if the turn was loaded as another process left it and has not been resumed yet."""

    @property
    def unfinished(self) -> bool:
        """True while a turn is running or paused."""
        state = self._runner.state
        return state is not None and not isinstance(state.phase, Finished)

    async def load(self) -> None:
        """Take the lease and load messages and the unfinished turn; in an unfinished run, its last turn in any case.

        Raises SessionHeldError, UnreadableError.
        """
        if self.info is None:
            return
        store, worker = self._services.store, self._services.worker
        await self._hands.lease.take(self.info.id)
        # Read it again under the lease: the previous owner may have changed it.
        info = self.info = await worker(store.session, self.info.id)
        self._last = info.last_turn
        history = await worker(store.history, info.id)
        turn = info.active_turn or (info.last_turn if info.run is not None and not info.run.result else None)
        state = await worker(store.load_turn, turn) if turn is not None else None
        spent = await worker(store.usage, info.id, besides=turn)
        self.record.load(history, state, spent=spent)
        self._runner.load(state)
        self.left_off = self.unfinished

    async def take_up(self, state: TurnState) -> None:
        """Resume a loaded turn under the current rights, once. A turn that was started here needs no recovery."""
        if not self.left_off:
            return
        self.left_off = False
        self.settings = replace(self.settings, role=state.grant.role)
        grant, gone = self.settings.grant_for(state.grant, self._services.rights)
        if gone is not None:
            text = f"{gone} Nothing of this turn's role is permitted until it is there again."
            self._tell(text, advice=gone.advice)
        else:
            self.grant = grant
        interrupted = await self._aftermath.of(state)
        copied = await self._aftermath.copied(state)
        if await self._runner.take(Recover(grant=grant, interrupted=interrupted, copied=copied)):
            self._services.worker.later(self._aftermath.clear, state, interrupted)
        if not self.leader and (state.contract is not None or state.gate is not None):
            # Its run is over: it was ended before this turn could be.
            await self._runner.take(CancelTurn())

    async def stored(self) -> SessionInfo:
        """Return the stored session, creating it if necessary. Raises ConflictError, StoreError."""
        self._hands.must_be_here()
        if self.info is None:
            store, worker, now = self._services.store, self._services.worker, self.settings
            workspace = str(self._services.workspace)
            info = await worker(store.create_session, workspace=workspace, role=now.role, persona=now.persona)
            await self._hands.lease.take(info.id)
            reach("after_create")
            if now.model_pin:
                await worker(store.update_session, info.id, model_pin=now.model_pin)
            self.info = info
        return self.info

    async def start(self, info: SessionInfo, text: str, *, kept: bool = False) -> None:
        """Start a turn of the chat with a message. `kept`: it is the oldest queued one. Raises StoreError."""
        if kept:
            # The message stays queued until its turn is stored, so it must not start a second turn before that.
            await self._runner.catch_up()
        turn_id = self._last = await self._next_id(info.id)

        def make(grant: Grant, remembered: tuple[RememberedGrant, ...]) -> Step:
            step = start(
                turn_id=turn_id,
                session_id=info.id,
                parent_id=self.record.head,
                grant=grant,
                history=self.record.messages,
                text=text,
                remembered=remembered,
            )
            return replace(step, takes_kept=kept)

        await self.begin(info, self.settings, make)

    async def begin(self, info: SessionInfo, settings: SessionSettings, make: MakeStep) -> None:
        """Start the turn that `make` returns for the grant of `settings`. Raises ConfigError, StoreError."""
        grant = settings.grant(self._services.rights)
        self.close()
        self.settings, self.grant = settings, grant
        remembered = await self._services.worker(self._services.store.grants, info.id)
        await self._runner.begin(make(grant, remembered))

    def close(self) -> None:
        """Move a finished turn into the record."""
        state = self._runner.state
        if state is not None and isinstance(state.phase, Finished):
            self.record.add(*state.messages, usage=state.usage)
            self._runner.load(None)

    async def _next_id(self, session_id: SessionId) -> TurnId:
        try:
            # A turn that is not stored yet has its number too.
            await self._runner.catch_up()
            return await self._services.worker(self._services.store.next_turn_id, session_id)
        except NotSavedError:
            # Only the owner starts turns in a session, so the next number is free.
            return turn_after(session_id, self._last)
