"""The lease of a session that this process owns: take it, keep it, hand it over, release it.

Theory of operation

A session has one owner at a time: the process that holds its lease, a row in the store. `store.leases` says who may
take it, and `runtime.session_follower` is the side of a process that wants it.

- Taken: `take` stores the lease with a new random token, and starts a task that keeps it. The task
  renews the lease every LEASE_S / 3 seconds and looks at the store every LOOK_S seconds.
- Requested: another process has written its name into the row. The task reports it through `on_request`. The owner
  finishes what runs, then calls `hand_over`, which makes the newest requester the holder, or releases the lease if
  there is none.
- Asked to stop: another process wants the turn stopped. The task reports it through `on_stop` until that returns True.
- Lost: the row has another token, or is gone. The task reports it through `on_loss`, once, and ends. A lease that is
  gone counts as lost: while this process was suspended, another may have owned the session and left it again, so the
  state in memory may be outdated. It is never taken again.
- Released: `release` deletes the row if it still has the token.

The task only reports. What makes the rule hold is that the store compares the token in the transaction of every commit,
and that the performer calls `is_ours` right before a tool starts. A process that was suspended and lost its lease can
therefore neither store a step nor start a tool. A look that fails proves nothing and is repeated.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeGuard

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime.services import WorkerThread
from chatops.store.base import Holder, LeaseRow
from chatops.store.leases import new_token
from chatops.store.store import Store

log = logging.getLogger(__name__)

LEASE_S = 30.0
"""Seconds after the last renewal until other hosts, which cannot see the process, may take the lease."""
LOOK_S = 0.5
"""Seconds between two looks for a process that requests the session, or has seized it."""
_unreleased: dict[SessionId, str] = {}
"""Tokens of leases that could not be released, by session. Before the session's lease is taken again, they are."""


class Lease:
    """The lease of one session. On the same host, a dead holder is replaced at once."""

    def __init__(
        self,
        store: Store,
        worker: WorkerThread,
        holder: Holder,
        *,
        on_request: Callable[[Holder | None], None],
        on_loss: Callable[[Holder | None], None],
        on_stop: Callable[[], bool],
        on_look: Callable[[], None],
    ) -> None:
        """Set up the lease of one session, without taking it.

        `on_request` is called with each process that requests the session, and with None when the request is withdrawn.
        `on_loss` is called once, with the new holder, or None if that has left again. `on_stop` is called when the turn
        is to be stopped, and returns False if it cannot be yet. `on_look` is called after each look at the store, since
        the store may have noticed a problem of its own.
        """
        self._store = store
        self._worker = worker
        self._holder = holder
        self._on_request = on_request
        self._on_loss = on_loss
        self._on_stop = on_stop
        self._on_look = on_look
        self._session: SessionId | None = None
        self.token = ""
        """What the store knows this lease by; empty while there is none."""
        self._keep_task: asyncio.Task[None] | None = None
        self._renewed_at = 0.0

    @property
    def age_s(self) -> float:
        """Seconds since the lease was taken or renewed last; 0 without a lease."""
        return time.monotonic() - self._renewed_at if self.token else 0.0

    async def take(self, session: SessionId) -> None:
        """Take the lease of `session` and renew it until released. Raises SessionHeldError."""
        token, began = new_token(), time.monotonic()
        self._release_later(_unreleased.pop(session, ""), session)
        try:
            await self._worker(self._store.acquire_lease, session, self._holder, token=token, ttl_s=LEASE_S)
        except asyncio.CancelledError:
            # The thread of the store takes the lease all the same.
            self._release_later(token, session)
            raise
        self._stop_keeping()
        self._session, self.token, self._renewed_at = session, token, began
        self._keep_task = asyncio.create_task(self._renew_and_watch(session), name="lease")

    async def is_ours(self) -> bool:
        """Return True if the store still has this lease. Raises StoreError if the store cannot be read."""
        session = self._session
        if session is None:
            return False
        return self._is_this_lease(await self._worker(self._store.lease, session))

    def _is_this_lease(self, lease: LeaseRow | None) -> TypeGuard[LeaseRow]:
        return lease is not None and (lease.holder, lease.token) == (self._holder, self.token)

    async def hand_over(self) -> Holder | None:
        """Pass the lease to the process that requests it by now, else release it. Returns the new holder, if any.

        Has no effect if this process does not hold the lease any more.
        """
        session, successor = self._session, None
        if session is None:
            return None
        try:
            lease = await self._worker(self._store.lease, session)
            if self._is_this_lease(lease) and lease.requested_by is not None:
                await self._worker(self._store.seize_lease, session, lease.requested_by, of=self._holder, ttl_s=LEASE_S)
                successor = lease.requested_by
        except StoreError:
            log.exception("the session was not handed over")
        await self.release()
        return successor

    async def release(self) -> None:
        """Release the lease. Has no effect if it was never taken."""
        token = self.token
        session = self._stop_keeping()
        if session is None:
            return
        try:
            await self._worker(self._store.release_lease, session, self._holder, token)
        except StoreError:
            _unreleased[session] = token
            log.exception("the session's lease was not released")

    def _release_later(self, token: str, session: SessionId) -> None:
        if token:
            self._worker.later(self._store.release_lease, session, self._holder, token)

    def _stop_keeping(self) -> SessionId | None:
        """End the task that keeps the lease, and return the session that the lease was of, if any."""
        if self._keep_task is not None:
            self._keep_task.cancel()
        session, self._session, self.token = self._session, None, ""
        return session

    async def _renew_and_watch(self, session: SessionId) -> None:
        last_version: int | None = None
        """Version of the store at the last look at the lease; None: look again, whatever the version."""
        requester: Holder | None = None
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                if self.age_s >= LEASE_S / 3:
                    began = time.monotonic()
                    # If it is lost by now, the look below tells to whom.
                    await self._worker(self._store.renew_lease, session, self.token, ttl_s=LEASE_S)
                    self._renewed_at = began
                version = await self._worker(self._store.data_version)
                self._on_look()
                if version == last_version:
                    continue
                lease = await self._worker(self._store.lease, session)
                last_version = version
                if self._is_this_lease(lease) and lease.stop:
                    if self._on_stop():
                        await self._worker(self._store.ask_to_stop, session, stop=False)
                    else:
                        # Ask again at the next look, even if nothing changes until then.
                        last_version = None
            except StoreError as error:
                log.warning("the lease was not looked at: %s", error)
                continue
            if not self._is_this_lease(lease):
                self._on_loss(lease.holder if lease is not None else None)
                return
            if lease.requested_by != requester:
                requester = lease.requested_by
                self._on_request(requester)
