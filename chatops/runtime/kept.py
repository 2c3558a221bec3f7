"""Messages that a person sent while a turn was in the way: stored at once, sent one after the other when it is over."""

import asyncio
from collections.abc import Callable

from chatops.config.failpoints import reach
from chatops.domain.errors import ChatopsError, NotSaved
from chatops.domain.ids import SessionId
from chatops.runtime.services import Services
from chatops.runtime.turns import Turns


class KeptTexts:
    """The messages that wait for the turns of one conversation. A text is forgotten in the commit that begins its
    turn, so it is sent exactly once."""

    def __init__(
        self,
        services: Services,
        turns: Turns,
        *,
        taking: asyncio.Lock,
        tell: Callable[..., None],
        hindered: Callable[[NotSaved], None],
    ) -> None:
        """`taking` is held while a message is taken; `hindered` is told what keeps the store from taking anything."""
        self._services = services
        self._turns = turns
        self._taking = taking
        self._tell = tell
        self._hindered = hindered
        self.count = 0
        """How many are not yet sent."""
        self.waits = False
        """Whether the next one is to be sent as soon as saving works."""

    async def recall(self, session: SessionId) -> None:
        """What an earlier process kept."""
        self.count = len(await self._services.offload(self._services.store.kept_texts, session))

    async def keep(self, session: SessionId, text: str) -> None:
        """Store a text behind the others."""
        await self._services.offload(self._services.store.queue_text, session, text)
        self.count += 1

    async def send_next(self) -> None:
        """Begin the next turn with the oldest one. What cannot be sent stays kept, and is told."""
        async with self._taking:
            self.waits = False
            turns, services = self._turns, self._services
            if turns.leader or not services.attended or turns.info is None or turns.unfinished:
                return
            try:
                texts = await services.offload(services.store.kept_texts, turns.info.id)
                self.count = len(texts)
                if texts:
                    reach("sending_kept")
                    await turns.start(turns.info, texts[0], kept=True)
                    self.count -= 1
            except NotSaved as error:
                self.waits = True
                self._hindered(error)
            except ChatopsError as error:
                self._tell(f"A message that was kept could not be sent: {error}", advice=error.advice)
