"""Commit steps in order; buffer them while the store is unavailable.

A step is performed only once it is stored, with one exception. While the store cannot be written (a full disk), a step
that starts no tool and carries no result, decision or grant continues in memory, so that the user and the model can go
on talking. It is stored as soon as that works. Nothing that must not happen twice ever depends on such a step.
"""

import asyncio
from collections import deque

from chatops.domain.errors import ChatopsError, NotSavedError
from chatops.engine.effects import ReconcileTool, RunTool, Step
from chatops.runtime.worker import WorkerThread
from chatops.store.base import Store

RETRY_S = 3.0
"""Seconds between two attempts to write to the store again."""
_TRIED = "saving was tried"
"""Setting that is written to test the store when no step waits."""


class Saving:
    """Commits the steps of one session."""

    def __init__(self, store: Store, worker: WorkerThread) -> None:
        self._store = store
        self._worker = worker
        self._waiting: deque[Step] = deque()
        self._turn = asyncio.Lock()

    @property
    def behind(self) -> bool:
        """True if steps that are not stored yet continue in memory."""
        return bool(self._waiting)

    async def commit(self, step: Step) -> NotSavedError | None:
        """Store a step after those that wait. Returns the error if the step may continue in memory, else None.

        Raises StoreError if it must not take place.
        """
        async with self._turn:
            try:
                await self._store_waiting()
                await self._worker(self._store.commit, step)
            except NotSavedError as error:
                if not may_wait(step):
                    raise
                self._waiting.append(step)
                return error
        return None

    async def catch_up(self) -> None:
        """Store the waiting steps, or test that storing works. Raises StoreError."""
        async with self._turn:
            if not self._waiting:
                await self._worker(self._store.set_setting, _TRIED, "")
            await self._store_waiting()

    async def _store_waiting(self) -> None:
        while self._waiting:
            await self._worker(self._store.commit, self._waiting[0])
            self._waiting.popleft()


def may_wait(step: Step) -> bool:
    """Return True if losing the step in a crash loses nothing but text."""
    begins = any(isinstance(effect, RunTool | ReconcileTool) for effect in step.effects)
    return not (begins or step.results or step.decisions or step.grants)


def unsaved_text(store: Store, trouble: ChatopsError | None) -> str:
    """Return why the session is not being saved; empty if it is."""
    if store.unsaved:
        return f"Not saving: {store.unsaved}. What is said here is gone when chatops ends; no call can be approved."
    if isinstance(trouble, NotSavedError):
        reason = trouble.reason[:1].upper() + trouble.reason[1:]
        return f"{reason}: this turn is not saved. No call is approved or run until it is; R tries again now."
    return ""


def refused_approval(store: Store) -> NotSavedError:
    """Return the error for an approval that cannot be recorded."""
    return NotSavedError(
        f"Not approved: nothing can be saved ({store.unsaved}), and no call runs without a record of who allowed it.",
        advice="Deny it (d), or make saving possible and start chatops again.",
        reason=store.unsaved,
    )
