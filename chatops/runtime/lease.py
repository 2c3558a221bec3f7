"""Whose conversation it is: taken when it is opened, renewed while it is open, given back or handed over at the end."""

import asyncio
import logging
from collections.abc import Callable

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime.offload import Offload
from chatops.store.base import Hold, Holder, Store

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""How long another host waits for us after the last sign of life."""
LOOK_S = 0.5
"""How often a holder looks whether another process asks for the conversation, or has taken it."""


class Lease:
    """One process drives a conversation at a time; on the same host a dead holder is replaced at once."""

    def __init__(
        self,
        store: Store,
        offload: Offload,
        holder: Holder,
        *,
        asked: Callable[[Holder | None], None],
        lost: Callable[[Holder | None], None],
        looked: Callable[[], None],
    ) -> None:
        """`asked` is called with each process that asks for the conversation, None when it does not any more; `lost`
        once when it was taken: with the process that has it, None if that has left again. `looked` is called after
        each look at the store, which may have found out something about itself."""
        self._store = store
        self._offload = offload
        self._holder = holder
        self._asked = asked
        self._lost = lost
        self._looked = looked
        self._session: SessionId | None = None
        self._keeping: asyncio.Task[None] | None = None

    async def take(self, session: SessionId) -> None:
        """Hold `session` and keep it. Raises SessionHeld."""
        await self._offload(self._store.hold, session, self._holder, ttl_s=LEASE_S)
        self._forget()
        self._session = session
        self._keeping = asyncio.create_task(self._keep(session), name="lease")

    async def is_ours(self) -> bool:
        """Whether the store still says so. Raises StoreError where it cannot be looked at.

        A lease that is gone is not ours: another process may have had the session, and have left again.
        """
        session = self._session
        if session is None:
            return False
        hold = await self._offload(self._store.held, session)
        return hold is not None and hold.holder == self._holder

    async def answer(self) -> None:
        """Let whoever asks know that the conversation comes as soon as it can; it comes, whether or not they know."""
        if self._session is None:
            return
        try:
            await self._offload(self._store.heard, self._session, self._holder)
        except StoreError as error:
            log.warning("whoever asks for the session was not answered: %s", error)

    async def hand_over(self) -> Holder | None:
        """Make it theirs who want it by now, else nobody's; who got it. Harmless if it is ours no longer."""
        session, to = self._session, None
        if session is None:
            return None
        try:
            hold = await self._offload(self._store.held, session)
            if hold is not None and hold.holder == self._holder and hold.wanted_by is not None:
                self._forget()
                await self._offload(self._store.take_over, session, hold.wanted_by, of=self._holder, ttl_s=LEASE_S)
                to = hold.wanted_by
        except StoreError:
            log.exception("the session was not handed over")
        await self.release()
        return to

    async def release(self) -> None:
        """Give it back; harmless if it was never taken."""
        session = self._forget()
        if session is None:
            return
        try:
            await self._offload(self._store.release, session, self._holder)
        except StoreError:
            log.exception("the session's lease was not released")

    def _forget(self) -> SessionId | None:
        if self._keeping is not None:
            self._keeping.cancel()
        session, self._session = self._session, None
        return session

    async def _keep(self, session: SessionId) -> None:
        clock = asyncio.get_running_loop().time
        renewed, seen = clock(), -1
        asker: Holder | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if clock() - renewed >= LEASE_S / 3:
                    # If it is not ours by now, the look at it says whose.
                    await self._offload(self._store.renew, session, self._holder, ttl_s=LEASE_S)
                    renewed = clock()
                version = await self._offload(self._store.version)
                self._looked()
                if version == seen:
                    continue
                hold = await self._offload(self._store.held, session)
                seen = version
            except StoreError as error:
                log.warning("the lease was not looked at: %s", error)
                continue
            if hold is None or hold.holder != self._holder:
                self._lost(hold.holder if isinstance(hold, Hold) else None)
                return
            if hold.wanted_by != asker:
                asker = hold.wanted_by
                self._asked(asker)
