"""What an earlier process left of a turn: attempts without a result, their processes and their output.

The findings go into the `Recover` input, so that every UI shows the same. `engine.recovery` decides what follows from
them.
"""

import asyncio
import logging
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from chatops.domain.errors import StoreError
from chatops.domain.ids import CallId
from chatops.domain.tools import Interruption, Processes
from chatops.engine.recovery import unknown_attempts
from chatops.engine.state import TurnState
from chatops.runtime.services import WorkerThread
from chatops.sandbox.orphans import can_find_orphans, count_orphans, stop_orphans
from chatops.store.base import Holder, JournalRow
from chatops.store.identity import copied_key
from chatops.store.process_identity import is_alive
from chatops.store.store import Store
from chatops.store.tool_outputs import Outputs

log = logging.getLogger(__name__)

UNSENT = "unsent:"
"""Before the id of a turn: the setting with the round whose request was left to the next owner."""


class _Left(NamedTuple):
    """The processes that an attempt has left."""

    processes: Processes
    number: int = 0
    """Number of attempts that `processes` is true of."""


class CrashRecovery:
    """Inspects what an earlier process left of a turn, and deletes those traces once the findings are stored."""

    def __init__(self, store: Store, worker: WorkerThread, outputs: Outputs, here: Holder) -> None:
        self._store = store
        self._worker = worker
        self._outputs = outputs
        self._here = here

    async def interruptions(self, state: TurnState) -> tuple[Interruption, ...]:
        """Return what is known of each attempt that was running when `state` was stored.

        Orphan processes are stopped first. `Interruption.processes` says if some of them still run.
        """
        attempts = unknown_attempts(state)
        rows = await self._journal_rows(state) if attempts else {}
        await asyncio.to_thread(self._outputs.forget_others, state.session_id, attempts)
        return tuple([await asyncio.to_thread(self._inspect, *attempt, rows.get(attempt)) for attempt in attempts])

    async def copied(self, state: TurnState) -> bool:
        """Return True if `state` was also stored in another copy of the store, where the turn may have been resumed.

        Also True if the store cannot be read: then it is not known.
        """
        try:
            return bool(await self._worker(self._store.setting, copied_key(state.turn_id)))
        except StoreError:
            log.exception("whether turn %s was copied cannot be read", state.turn_id)
            return True

    async def unsent(self, state: TurnState) -> str:
        """Return the round whose request the last owner has left to this one, and forget it; empty if there is none."""
        key = f"{UNSENT}{state.turn_id}"
        with suppress(StoreError):
            if found := await self._worker(self._store.setting, key):
                await self._worker(self._store.set_setting, key, "")
                return found
        return ""

    def clear(self, state: TurnState, interrupted: tuple[Interruption, ...]) -> None:
        """Delete the traces of the interrupted attempts in `state`, once the findings are stored with the turn."""
        for found in interrupted:
            self._outputs.forget(found.call_id)
        if self._store.setting(copied_key(state.turn_id)):
            self._store.set_setting(copied_key(state.turn_id), "")

    async def _journal_rows(self, state: TurnState) -> dict[tuple[CallId, int], JournalRow]:
        try:
            rows = await self._worker(self._store.journal, state.turn_id)
        except StoreError:
            log.exception("the journal of turn %s cannot be read", state.turn_id)
            return {}
        return {(row.call_id, row.attempt): row for row in rows}

    def _inspect(self, call_id: CallId, attempt: int, row: JournalRow | None) -> Interruption:
        left = self._stop_processes(call_id, attempt, row)
        return Interruption(
            call_id=call_id,
            attempt=attempt,
            started_at=row.started_at if row is not None else None,
            # Read after the processes are stopped: then the output is complete.
            output=self._outputs.read(call_id, attempt),
            processes=left.processes,
            count=left.number,
        )

    def _stop_processes(self, call_id: CallId, attempt: int, row: JournalRow | None) -> _Left:
        """Stop the processes of an attempt, and return what became of them."""
        if row is not None and row.machine != self._here.machine:
            return _Left(Processes.OTHER_MACHINE)
        if row is None or not can_find_orphans():
            return _Left(Processes.UNSEEN)
        starter = replace(self._here, pid=row.pid, boot_id=row.boot_id, pid_started=row.pid_started)
        if starter.boot_id != self._here.boot_id:
            return _Left(Processes.RESTARTED)
        if starter != self._here and is_alive(starter):
            # The other process may be suspended between storing the intent and starting the tool, so finding no process
            # proves nothing.
            return _Left(Processes.ELSEWHERE, count_orphans(call_id, attempt))
        stopped = stop_orphans(call_id, attempt)
        if stopped.running:
            return _Left(Processes.RUNNING, len(stopped.running))
        return _Left(Processes.STOPPED, stopped.count) if stopped.count else _Left(Processes.GONE)
