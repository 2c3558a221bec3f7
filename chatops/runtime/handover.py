"""A conversation that another process asks for, or has taken: what runs here comes to rest, and the lease goes over."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from chatops.domain.errors import ChatopsError, Conflict
from chatops.runtime.lease import Lease
from chatops.runtime.runner import Runner
from chatops.runtime.services import Services
from chatops.store.base import Holder

Spawn = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class HandOver:
    """Owns the lease of a conversation, and knows when it is no longer ours."""

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
        """`taking` is held while a message is taken, `looked` is called whenever the store was looked at."""
        self._runner = runner
        self._taking = taking
        self._spawn = spawn
        self._tell = tell
        self._coming: asyncio.Task[None] | None = None
        self._changing = asyncio.Lock()
        """Held while the conversation changes hands."""
        self.closed = False
        """Whether it is no longer driven from here, for whatever reason."""
        self.wanted_by: Holder | None = None
        """The process that asks for the conversation and gets it as soon as nothing runs here."""
        self.gone: ChatopsError | None = None
        """That another process has the conversation now."""
        self.lease = Lease(
            services.store,
            services.offload,
            services.holder,
            asked=self._asked_for,
            lost=self._taken_by,
            looked=looked,
        )

    def must_be_here(self) -> None:
        """Raise what the person is told once another process has the conversation."""
        if self._runner.gone is not None:
            raise self._runner.gone

    async def close(self) -> None:
        """From now on nothing is handed over; what is just being handed over is first."""
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
        """Stop what runs here; the conversation as stored is theirs. What is being sent just now is stored first."""
        async with self._taking, self._changing:
            if self.closed:
                return
            self.closed = True
            await self._runner.give_up(_taken_over(by))
            if by is not None:
                # Another one may have asked since.
                by = await self.lease.hand_over() or by
            # Only now: who sees it reads along, and must not find the lease free.
            self.gone = gone = _taken_over(by)
            self._tell(str(gone), advice=gone.advice)


def _taken_over(by: Holder | None) -> Conflict:
    who = f" (host {by.host}, pid {by.pid})" if by is not None else ""
    return Conflict(f"Taken over by another chatops{who}.", advice="It goes on there; nothing runs here any more.")
