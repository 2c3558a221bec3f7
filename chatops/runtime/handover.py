"""Hand a session over to the process that asked for it, or give it up if it was seized.

Quiesce, flush, then release the lease.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from chatops.domain.errors import ChatopsError, ConflictError
from chatops.runtime.lease import Lease
from chatops.runtime.runner import Runner
from chatops.runtime.services import Services
from chatops.store.base import Holder

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class HandOver:
    """Owns the lease of a session, and gives the session up when another process requests or seizes it."""

    def __init__(
        self,
        services: Services,
        runner: Runner,
        *,
        taking: asyncio.Lock,
        spawn: Spawn,
        tell: Callable[..., None],
        looked: Callable[[], None],
    ) -> None:
        """Set up the handover of one session.

        `taking` is held while a message is submitted. `looked` is called after each look at the store.
        """
        self._runner = runner
        self._taking = taking
        self._spawn = spawn
        self._tell = tell
        self._coming: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        """Held while the session is handed over."""
        self.closed = False
        """True once this process no longer owns the session, for whatever reason."""
        self.wanted_by: Holder | None = None
        """The process that requests the session. It gets it as soon as nothing runs here."""
        self.gone: ChatopsError | None = None
        """Set once another process owns the session."""
        self.lease = Lease(
            services.store,
            services.worker,
            services.holder,
            asked=self._asked_for,
            lost=self._taken_by,
            looked=looked,
        )

    def must_be_here(self) -> None:
        """Raise the error for the user if another process owns the session."""
        if self._runner.gone is not None:
            raise self._runner.gone

    async def close(self) -> None:
        """Hand over no more from now on; a handover that is in progress ends first."""
        async with self._changing:
            self.closed = True

    def _asked_for(self, by: Holder | None) -> None:
        if self.closed:
            return
        self.wanted_by = by
        if self._coming is not None and self._coming.cancel():
            self._runner.stay()
        self._coming = self._spawn(self._hand_over(by)) if by is not None else None

    def _taken_by(self, by: Holder | None) -> None:
        self._spawn(self._let_go(by))

    async def _hand_over(self, by: Holder) -> None:
        await self.lease.answer()
        if not self._runner.idle:
            self._tell(f"Another chatops (host {by.host}, pid {by.pid}) takes this over when the present step is done.")
        await self._runner.yield_up()
        await self._let_go(by)

    async def _let_go(self, by: Holder | None) -> None:
        """Stop what runs here, since the stored session now belongs to the other process.

        A message that is just being submitted is stored first.
        """
        async with self._taking, self._changing:
            if self.closed:
                return
            self.closed = True
            await self._runner.give_up(_taken_over(by))
            if by is not None:
                # Another process may have asked in the meantime.
                by = await self.lease.hand_over() or by
            # Set only now: a UI that sees it starts to follow the session, and must not find the lease free.
            self.gone = gone = _taken_over(by)
            self._tell(str(gone), advice=gone.advice)


def _taken_over(by: Holder | None) -> ConflictError:
    who = f" (host {by.host}, pid {by.pid})" if by is not None else ""
    return ConflictError(f"Taken over by another chatops{who}.", advice="It goes on there; nothing runs here any more.")
