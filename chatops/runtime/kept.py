"""Queued messages: submitted and stored during a turn, sent one at a time after it, in the order of typing."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from chatops.config.failpoints import reach
from chatops.domain.errors import ChatopsError, NotSavedError, UnreadableError
from chatops.domain.events import TurnStatus
from chatops.engine.view import turn_status
from chatops.runtime.services import Services
from chatops.runtime.turns import Turns
from chatops.store.base import SessionInfo

HOLDING = (TurnStatus.FAILED, TurnStatus.CANCELLED)
"""Turn results that hold the queue until the user continues."""


class KeptTexts:
    """Message queue of one session.

    A message leaves it in the commit that starts its turn, so it is sent exactly once.
    """

    def __init__(
        self,
        services: Services,
        turns: Turns,
        *,
        taking: asyncio.Lock,
        tell: Callable[..., None],
        hindered: Callable[[NotSavedError], None],
    ) -> None:
        """Set up the queue of one session.

        `taking` is held while a message is submitted. `hindered` is called with the error if the store cannot be
        written.
        """
        self._services = services
        self._turns = turns
        self._taking = taking
        self._tell = tell
        self._hindered = hindered
        self.texts: tuple[str, ...] = ()
        """The queued messages as stored, oldest first."""
        self.held = False
        """True after an interrupted or failed turn: nothing is sent until the user sends, resumes or retries."""
        self.waits = False
        """True if the next message is sent as soon as the store can be written again."""

    async def recall(self, info: SessionInfo) -> None:
        """Load the queue of an earlier process. It is held if the last turn held it."""
        await self._reload(info)
        self.held = bool(self.texts) and await self._services.worker(_last_turn_holds, self._services, info)

    async def submit(self, info: SessionInfo, text: str) -> bool:
        """Start a turn with `text`; if a turn, a run or older messages come first, queue it and return False.

        With no user present, older messages stay queued. The caller holds the lock.
        """
        blocked = bool(self._turns.leader) or self._turns.unfinished
        with suppress(NotSavedError):
            await self._reload(info)
        if not blocked and not (self.texts and self._services.attended):
            await self._turns.start(info, text)
            return True
        await self._services.worker(self._services.store.queue_text, info.id, text)
        self.texts = (*self.texts, text)
        if not blocked:
            self.held = False
            await self._send_next()
        return False

    async def take_last(self, *, into: str) -> str:
        """Remove the newest message and return it, storing it as setting `into`. Empty if nothing is queued."""
        async with self._taking:
            info = self._turns.info
            if info is None:
                return ""
            text = await self._services.worker(self._services.store.take_queued_text, info.id, into=into)
            await self._reload(info)
            return text or ""

    async def send_next(self) -> None:
        """Start the next turn with the oldest message, unless the queue is held."""
        async with self._taking:
            await self._send_next()

    async def _send_next(self) -> None:
        """Start the next turn. A message that cannot be sent stays queued, with a notice."""
        self.waits = False
        turns = self._turns
        if turns.leader or not self._services.attended or turns.info is None or turns.unfinished:
            return
        try:
            await self._reload(turns.info)
            if self.texts and not self.held:
                reach("sending_kept")
                await turns.start(turns.info, self.texts[0], kept=True)
                self.texts = self.texts[1:]
        except NotSavedError as error:
            self.waits = True
            self._hindered(error)
        except ChatopsError as error:
            self.held = True
            self._tell(f"A queued message could not be sent: {error}", advice=error.advice)

    async def _reload(self, info: SessionInfo) -> None:
        self.texts = await self._services.worker(self._services.store.kept_texts, info.id)


def _last_turn_holds(services: Services, info: SessionInfo) -> bool:
    if info.last_turn is None:
        return False
    try:
        return turn_status(services.store.load_turn(info.last_turn)) in HOLDING
    except UnreadableError:
        # Not known how it ended, so the user decides.
        return True
