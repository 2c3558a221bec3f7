"""How steps get into the store: in their order, and whatever hinders it.

A step is performed only once it is stored, with one exception: while the store takes nothing (a full disk), a step that
begins no tool and carries no result, decision or grant goes on in memory, so that a person and a model can go on
talking. It is stored as soon as that works. Nothing that must not happen twice ever depends on such a step.
"""

import asyncio
from collections import deque

from chatops.domain.errors import ChatopsError, NotSaved
from chatops.engine.effects import ReconcileTool, RunTool, Step
from chatops.runtime.offload import Offload
from chatops.store.base import Store

RETRY_S = 3.0
"""How often it is tried whether the store takes something again."""
_TRIED = "saving was tried"
"""The setting that is written to find that out when nothing else waits to be."""


class Saving:
    """The steps of one conversation on their way into the store."""

    def __init__(self, store: Store, offload: Offload) -> None:
        self._store = store
        self._offload = offload
        self._waiting: deque[Step] = deque()
        self._turn = asyncio.Lock()

    @property
    def behind(self) -> bool:
        """Whether something has gone on that is not stored."""
        return bool(self._waiting)

    async def commit(self, step: Step) -> NotSaved | None:
        """Store a step, after those that wait. What hinders it if it may go on all the same, else None.

        Raises StoreError if nothing of it may happen.
        """
        async with self._turn:
            try:
                await self._store_waiting()
                await self._offload(self._store.commit, step)
            except NotSaved as error:
                if not may_wait(step):
                    raise
                self._waiting.append(step)
                return error
        return None

    async def catch_up(self) -> None:
        """Store what waits, and find out that storing works. Raises StoreError."""
        async with self._turn:
            if not self._waiting:
                await self._offload(self._store.set_setting, _TRIED, "")
            await self._store_waiting()

    async def _store_waiting(self) -> None:
        while self._waiting:
            await self._offload(self._store.commit, self._waiting[0])
            self._waiting.popleft()


def may_wait(step: Step) -> bool:
    """Whether a step loses nothing but words if the process dies before it is stored."""
    begins = any(isinstance(effect, RunTool | ReconcileTool) for effect in step.effects)
    return not (begins or step.results or step.decisions or step.grants)


def unsaved_text(store: Store, trouble: ChatopsError | None) -> str:
    """Why what happens in a conversation is not saved, for as long as that is so; empty if all is well."""
    if store.unsaved:
        return f"Not saving: {store.unsaved}. What is said here is gone when chatops ends; no call can be approved."
    if isinstance(trouble, NotSaved):
        reason = trouble.reason[:1].upper() + trouble.reason[1:]
        return f"{reason}: this turn is not saved. No call is approved or run until it is; R tries again now."
    return ""


def refused_approval(store: Store) -> NotSaved:
    """That a call cannot be approved where no decision can be recorded."""
    return NotSaved(
        f"Not approved: nothing can be saved ({store.unsaved}), and no call runs without a record of who allowed it.",
        advice="Deny it (d), or make saving possible and start chatops again.",
        reason=store.unsaved,
    )
