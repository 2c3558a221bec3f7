"""Decisions posted by other processes (another window, `chatops approvals`), stored until the turn takes them."""

import asyncio
import logging

from chatops.config.failpoints import reach
from chatops.domain.errors import StoreError
from chatops.domain.events import TurnStatus
from chatops.domain.ids import CallId, SessionId
from chatops.engine.state import Finished
from chatops.engine.view import turn_status
from chatops.runtime.descriptions import answer_to
from chatops.runtime.runner import Runner
from chatops.runtime.worker import WorkerThread
from chatops.store.base import DecisionRow, Store

log = logging.getLogger(__name__)

WATCH_S = 0.5
"""Seconds between two looks at the store while a call is pending."""


class PostedDecisions:
    """Takes decisions posted by other processes, in order. The store determines which one came first."""

    def __init__(self, store: Store, worker: WorkerThread, runner: Runner) -> None:
        self._store = store
        self._worker = worker
        self._runner = runner

    async def take(self) -> None:
        """Pass the posted decisions to the turn."""
        state = self._runner.state
        if state is None or isinstance(state.phase, Finished):
            return
        for decided in await self._worker(self._store.posted, state.turn_id):
            reach("decision_found")
            await self._runner.take(decided)

    async def answer_to(self, session: SessionId, call_id: CallId) -> DecisionRow | None:
        """Return the decision on a call, whether or not the turn has taken it."""
        return await self._worker(answer_to, self._store, session, call_id)

    async def watch(self) -> None:
        """Take posted decisions for as long as the turn is paused."""
        seen = -1
        while (state := self._runner.state) is not None and turn_status(state) is TurnStatus.PAUSED:
            try:
                version = await self._worker(self._store.version)
                if version != seen:
                    seen = version
                    await self.take()
            except StoreError:
                log.exception("the queue could not be read")
            await asyncio.sleep(WATCH_S)
