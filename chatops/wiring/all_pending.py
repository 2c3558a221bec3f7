"""What ``/pending --all`` shows: the pending calls of all sessions of this user, kept up to date and decided.

Decisions are posted by `PendingCalls`. Rights are judged when a call is listed, again when it is decided, and by the
turn that takes the decision.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from chatops.config.paths import show_folder
from chatops.domain.decisions import Decision
from chatops.domain.errors import NoSuchSessionError, NotSavedError, ToolFailedError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.domain.tools import CONTAINED_APPLY
from chatops.runtime.call_facts import Fact, Form, Weight
from chatops.runtime.descriptions import describe_time, find_decision
from chatops.runtime.services import changes
from chatops.store.base import CALLS, DecisionRow, PendingCallRow
from chatops.wiring.app import App
from chatops.wiring.pending import PendingCalls
from chatops.wiring.rows import NO_TITLE

if TYPE_CHECKING:
    from chatops.contained.text import ContainedReview

log = logging.getLogger(__name__)

LOOK_S = 1.0
"""Seconds between two looks at what waits."""


@frozen_dataclass
class WaitingCall:
    """An undecided call, as the rights of now judge it, and its session."""

    pending: PendingCall
    session_id: SessionId
    title: str
    folder: str
    since: float
    """When it was asked, in seconds since the epoch."""
    changes: "ContainedReview | str | None" = None
    """The changes that a call of `CONTAINED_APPLY` is about, or why they cannot be shown. None for other calls."""

    @property
    def age(self) -> float:
        """For how many seconds it has waited."""
        return time.time() - self.since

    @property
    def facts(self) -> tuple[Fact, ...]:
        """What the user has to know of the session, beside the call's own sheet."""
        return (
            Fact(label="session", value=self.title, weight=Weight.EFFECT),
            Fact(label="folder", value=show_folder(self.folder), weight=Weight.EFFECT, form=Form.EXACT),
            Fact(label="asked", value=f"{describe_time(self.since)}, as {self.pending.role}", weight=Weight.EFFECT),
        )


class AllPending:
    """The pending calls of this user. Works in threads, since it touches the disk. Raises ChatopsError."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._calls = PendingCalls(app.store, rights=lambda: app.rights, data=app.paths.data)

    async def waiting(self) -> Sequence[WaitingCall]:
        """Return the undecided calls, oldest turn first."""
        return await asyncio.to_thread(self._waiting)

    def _waiting(self) -> tuple[WaitingCall, ...]:
        found: list[WaitingCall] = []
        for row in self._app.store.pending_calls():
            try:
                if row.decided is None:
                    found.append(self._waiting_call(row))
            except NoSuchSessionError as error:
                log.info("%s was deleted meanwhile: %s", row.pending.call.id, error)
        return tuple(found)

    def _waiting_call(self, row: PendingCallRow) -> WaitingCall:
        info = self._app.store.session(row.session_id)
        return WaitingCall(
            pending=self._calls.judge_again(row).pending,
            session_id=info.id,
            title=info.title or NO_TITLE,
            folder=info.workspace,
            since=row.requested_at,
            changes=self._changes_of(row.pending),
        )

    def _changes_of(self, pending: PendingCall) -> "ContainedReview | str | None":
        """Return the changes that a call asks about, and which of them are in conflict by now."""
        if pending.call.name != CONTAINED_APPLY:
            return None
        try:
            return self._app.contained.review(pending.call.arguments)
        except (ToolFailedError, OSError) as error:
            return str(error)

    async def interrupted(self) -> Sequence[str]:
        """Return a sentence about each session with a call that a crash interrupted and no user was asked about."""
        found = await asyncio.to_thread(lambda: list(self._calls.interrupted()))
        return [f"Session {session} was {state}. To decide: chatops resume {session}" for session, state in found]

    def watch(self, on_change: Callable[[Sequence[WaitingCall]], None]) -> "asyncio.Task[None]":
        """Call `on_change` on the event loop with what waits, whenever that changes, until the task is cancelled."""
        return asyncio.create_task(self._watch(on_change), name="all pending")

    async def _watch(self, on_change: Callable[[Sequence[WaitingCall]], None]) -> None:
        before: Sequence[WaitingCall] | None = None
        with changes(self._app.store, CALLS) as pause:
            while True:
                began = time.monotonic()
                try:
                    found = await self.waiting()
                    if found != before:
                        before = found
                        on_change(found)
                except Exception:
                    # Neither a store that cannot be read for a moment nor a bug in drawing ends the task.
                    log.exception("what waits could not be shown")
                # Many calls take long to read: no more than a tenth of the time goes into reading.
                await asyncio.sleep(rest := 10 * (time.monotonic() - began))
                await pause(max(0.0, LOOK_S - rest))

    async def decide(self, call: WaitingCall, decision: Decision) -> str:
        """Post a decision on exactly what `call` shows. A job is started again.

        Return what continues the session, as a sentence, or nothing if another decision was first.
        """
        return await asyncio.to_thread(self._decide, call, decision)

    def _decide(self, call: WaitingCall, decision: Decision) -> str:
        if reason := self._app.store.unsaved:
            raise NotSavedError("Nothing was decided, because it cannot be saved.", reason=reason)
        # Read again: the same call may have been interrupted meanwhile, and may have taken effect.
        rows = self._app.store.pending_calls(session_id=call.session_id)
        row = next((row for row in rows if row.pending.call.id == call.pending.call.id), None)
        by, digest = self._app.principal, call.pending.digest
        posted = row is not None and self._calls.decide(row, decision, by=by, digest=digest)
        return self._calls.continue_session(row) if row is not None and posted else ""

    async def decision_on(self, call: WaitingCall) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        return await asyncio.to_thread(find_decision, self._app.store, call.session_id, call.pending.call.id)
