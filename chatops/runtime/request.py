"""Request for a session that another process owns: ask, track the progress, and take the lease in the end."""

import logging
import time
from collections.abc import Callable
from enum import StrEnum

from chatops.domain.errors import StoreError
from chatops.domain.ids import SessionId
from chatops.runtime.lease import LEASE_S
from chatops.runtime.services import Services
from chatops.store.base import Hold

log = logging.getLogger(__name__)

ANSWER_S = 3.0
"""Seconds without an answer after which the owner counts as silent."""


class Handing(StrEnum):
    """Progress of a request for a session."""

    HELD = "held"
    """Another process owns the session."""
    ASKED = "asked"
    """The owner was asked to hand over."""
    COMING = "coming"
    """The owner has answered, and hands over when its current step is done."""
    SILENT = "silent"
    """The owner was asked and does not answer."""
    FREE = "free"
    """No process owns the session."""
    OURS = "ours"
    """This process holds the lease and can open the session."""


class Request:
    """Request for one session. The caller follows the session and passes in the current lease."""

    def __init__(self, services: Services, session_id: SessionId, *, tell: Callable[..., None]) -> None:
        self._services = services
        self._session_id = session_id
        self._tell = tell
        self._asked_at: float | None = None
        self._asking = False
        """True while the request may not be in the store yet."""

    def handing(self, hold: Hold | None) -> Handing:
        """Return the progress of the request, given the current lease."""
        if hold is None:
            return Handing.FREE
        if hold.holder == self._services.holder:
            return Handing.OURS
        if self._asked_at is None or hold.wanted_by != self._services.holder:
            # The request is void once another process has asked as well, or has got the lease.
            return Handing.HELD
        if hold.heard:
            return Handing.COMING
        return Handing.SILENT if time.monotonic() - self._asked_at >= ANSWER_S else Handing.ASKED

    async def press(self, hold: Hold | None) -> None:
        """Ask for the lease, or take it if it is free, or seize it once the owner has answered or counts as silent.

        Raises SessionHeldError, StoreError.
        """
        store, worker, me = self._services.store, self._services.worker, self._services.holder
        match self.handing(hold):
            case Handing.HELD:
                self._asked_at, self._asking = time.monotonic(), True
                try:
                    await worker(store.want, self._session_id, me)
                except StoreError:
                    self._asked_at = None
                    raise
                finally:
                    self._asking = False
            case Handing.COMING | Handing.SILENT if hold is not None:
                await worker(store.take_over, self._session_id, me, of=hold.holder, ttl_s=LEASE_S)
            case Handing.FREE:
                await worker(store.hold, self._session_id, me, ttl_s=LEASE_S)
                # Counts as requested, so that `withdraw` releases the lease if the session is not opened.
                self._asked_at = time.monotonic()
            case _:
                pass

    def heed(self, hold: Hold | None) -> None:
        """Notify the user if the request is void because another process has asked since, or has got the lease."""
        me = self._services.holder
        if self._asked_at is None or self._asking or hold is None or me in (hold.holder, hold.wanted_by):
            return
        self._asked_at = None
        other = hold.wanted_by or hold.holder
        self._tell(
            f"Another chatops (host {other.host}, pid {other.pid}) has asked for this conversation too, and is the one "
            "that gets it.",
            advice="F2 asks again.",
        )

    async def withdraw(self) -> None:
        """Withdraw the request, and release the lease if it has arrived."""
        if self._asked_at is None:
            return
        store, worker, me = self._services.store, self._services.worker, self._services.holder
        try:
            await worker(store.release, self._session_id, me)
            await worker(store.want_no_more, self._session_id, me)
        except StoreError:
            log.exception("a request for a conversation was not taken back")
