"""This process asks for a conversation that another one drives: how far that is, and how it is taken in the end."""

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
"""How long a holder that was asked may say nothing before it counts as one that does not answer."""


class Handing(StrEnum):
    """How far it is with getting the conversation."""

    HELD = "held"
    """Another process has it."""
    ASKED = "asked"
    """It has been asked for it."""
    COMING = "coming"
    """It hands over when what runs there has come to its end."""
    SILENT = "silent"
    """It has been asked and does not answer."""
    FREE = "free"
    """Nobody has it."""
    OURS = "ours"
    """It has been handed over to this process and can be opened."""


class Request:
    """For one conversation. What is known of its holder is looked up by whoever reads along, and handed in."""

    def __init__(self, services: Services, session_id: SessionId, *, tell: Callable[..., None]) -> None:
        self._services = services
        self._session_id = session_id
        self._tell = tell
        self._asked_at: float | None = None
        self._asking = False
        """What is being asked for is not in the store yet, perhaps."""

    def handing(self, hold: Hold | None) -> Handing:
        """How far it is."""
        if hold is None:
            return Handing.FREE
        if hold.holder == self._services.holder:
            return Handing.OURS
        if self._asked_at is None or hold.wanted_by != self._services.holder:
            # What was asked counts no more once another one has asked, or has got it.
            return Handing.HELD
        if hold.heard:
            return Handing.COMING
        return Handing.SILENT if time.monotonic() - self._asked_at >= ANSWER_S else Handing.ASKED

    async def press(self, hold: Hold | None) -> None:
        """Ask; once it is known whether that is answered, take it. Raises SessionHeld, StoreError."""
        store, offload, me = self._services.store, self._services.offload, self._services.holder
        match self.handing(hold):
            case Handing.HELD:
                self._asked_at, self._asking = time.monotonic(), True
                try:
                    await offload(store.want, self._session_id, me)
                except StoreError:
                    self._asked_at = None
                    raise
                finally:
                    self._asking = False
            case Handing.COMING | Handing.SILENT if hold is not None:
                await offload(store.take_over, self._session_id, me, of=hold.holder, ttl_s=LEASE_S)
            case Handing.FREE:
                await offload(store.hold, self._session_id, me, ttl_s=LEASE_S)
                # As if it had been asked for: it goes back if it is not opened.
                self._asked_at = time.monotonic()
            case _:
                pass

    def heed(self, hold: Hold | None) -> None:
        """Say that what was asked for from here counts no more, because another one has asked since or has got it."""
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
        """It is not wanted any more, and goes back if it has come."""
        if self._asked_at is None:
            return
        store, offload, me = self._services.store, self._services.offload, self._services.holder
        try:
            await offload(store.release, self._session_id, me)
            await offload(store.want_no_more, self._session_id, me)
        except StoreError:
            log.exception("a request for a conversation was not taken back")
