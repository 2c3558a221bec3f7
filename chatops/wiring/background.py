"""Background work of the terminal app: load what comes next, offer models, watch files."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from importlib import import_module

from chatops.runtime.conversation import Conversation
from chatops.wiring.app import App
from chatops.wiring.offers import offer

log = logging.getLogger(__name__)

WARM_UP_S = 0.5
"""Seconds after opening until the needs of the first message are loaded. The first key presses come first."""
FILES_S = 1.0
"""Seconds between two looks at registry and workspace while nothing else asks for them."""


class Background:
    """Tasks that run for as long as the event loop does."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._tasks: list[asyncio.Task[None]] = []

    def warm_up(self, model: str) -> None:
        """Load what the first message needs (about a second of work in a thread), after the first key presses."""
        self._begin(self._warm_up(model), name="warm-up")

    def offer_models(self, chat: Conversation) -> None:
        """If the demo answers, look for a key and for servers on this machine, and tell the user about them."""
        if chat.snapshot().is_demo:
            self._begin(self._offer(chat), name="offer models")

    def watch_files(self) -> None:
        """Watch for a changed registry and a missing workspace from now on, even while nothing asks for them."""
        self._begin(self._watch_files(), name="files")

    def _begin(self, work: Coroutine[None, None, None], *, name: str) -> None:
        # The event loop itself keeps no reference to a task.
        self._tasks.append(asyncio.create_task(work, name=name))

    async def _warm_up(self, model: str) -> None:
        await asyncio.sleep(WARM_UP_S)
        try:
            await asyncio.to_thread(_load)
            await self._app.models.prepare(model)
        except Exception:
            # The first message tries again and reports the error to the user.
            log.info("the model client could not be prepared", exc_info=True)

    async def _offer(self, chat: Conversation) -> None:
        await asyncio.sleep(WARM_UP_S)
        found = await offer(os.environ)
        if found and chat.snapshot().is_demo:
            chat.tell(found)

    async def _watch_files(self) -> None:
        told: set[str] = set()
        while True:
            await asyncio.sleep(FILES_S)
            for look in (self._app.look_at_registry, self._app.look_at_workspace):
                try:
                    await asyncio.to_thread(look)
                except Exception as error:
                    # A failed look must stop neither the watching nor the other look. Each error is logged once.
                    if repr(error) not in told:
                        told.add(repr(error))
                        log.exception("files cannot be watched for now")


def _load() -> None:
    from chatops.models import client
    from chatops.store import codec

    codec.warm_up()
    client.warm_up()
    import_module("chatops.demo.model")
