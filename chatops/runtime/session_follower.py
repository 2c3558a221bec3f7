"""Read-only view of a session whose lease another process holds.

It never changes the session. It can post decisions, which the owner takes, and request the lease. The owner grants a
request, or a later request of a third process voids it. If the owner has not handed over after ANSWER_S seconds, as the
model replies or a tool runs there, or it hangs, the user may seize the lease. Calls that were running there then have
an unknown outcome.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum

from chatops.domain.decisions import Approved, Decision, Rejected
from chatops.domain.errors import ConfigError, StoreError
from chatops.domain.events import Notice, PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId, round_of, session_of
from chatops.domain.messages import Usage
from chatops.engine.inputs import DecideCall
from chatops.engine.state import Finished, TurnState
from chatops.engine.view import pending_calls
from chatops.engine.workflow.state import WorkflowState
from chatops.policy.grant import Grant
from chatops.runtime.history import History
from chatops.runtime.lease import LEASE_S, LOOK_S
from chatops.runtime.services import Services, changes
from chatops.runtime.settings import SessionSettings
from chatops.runtime.view import SessionView, Snapshot
from chatops.store.base import Holder, LeaseRow, SessionInfo
from chatops.store.leases import since
from chatops.store.store import Store
from chatops.toolkit.threads import in_thread

log = logging.getLogger(__name__)

ANSWER_S = 3.0
"""Seconds that the owner has to hand over, until the lease may be seized."""


class LeaseRequestState(StrEnum):
    """Progress of a request for a session."""

    HELD = "held"
    """Another process owns the session."""
    REQUESTED = "requested"
    """The owner was asked to hand over."""
    OVERDUE = "overdue"
    """The owner was asked, and has not handed over in time."""
    FREE = "free"
    """No process owns the session."""
    GRANTED = "granted"
    """This process holds the lease and can open the session."""


@frozen_dataclass
class _Stored:
    """The followed session as one look at the store found it."""

    info: SessionInfo
    lease: LeaseRow | None
    history: History
    spent: Usage | None
    """Usage of all turns except the one in `state`."""
    state: TurnState | None
    run: WorkflowState | None
    queued: tuple[str, ...]
    is_job: bool
    posted: tuple[DecideCall, ...]
    """Decisions on calls of `state` that the owner has not taken yet."""

    @property
    def settings(self) -> SessionSettings:
        """The session settings, as stored."""
        return SessionSettings(self.info.role, model_pin=self.info.model_pin, persona=self.info.persona)


@frozen_dataclass
class _Request:
    """A request for the lease."""

    at: float
    """In seconds, as `time.monotonic` counts."""
    is_stored: bool
    """False while it may not be in the store yet."""


class SessionFollower(SessionView):
    """A session that is followed read-only. Create it with `follow_session`.

    Its events are its own notices only. For changes of the session, use `on_change`.
    """

    is_followed = True
    _is_starting = False
    """True while a process is being started for the job."""

    def __init__(self, services: Services, stored: _Stored) -> None:
        super().__init__(services)
        self._source: _Stored = stored
        self._on_change: Callable[[], None] = lambda: None
        self._request: _Request | None = None
        """This process's request for the lease."""
        self._follow_task = asyncio.create_task(self._follow(), name="session follower")

    # State

    @property
    def run(self) -> WorkflowState | None:
        """The workflow run that the session belongs to, if any."""
        return self._source.run

    @property
    def is_job(self) -> bool:
        """True if its last turn continues in the background."""
        return self._source.is_job

    @property
    def is_executed(self) -> bool:
        """True if another process executes the turn, or is being started for it."""
        return self.lease is not None or self._is_starting

    @property
    def lease(self) -> LeaseRow | None:
        """The current lease; None if no live process holds it."""
        return self._source.lease

    @property
    def request_state(self) -> LeaseRequestState:
        """Progress of the request for the lease."""
        lease, me = self._source.lease, self._services.holder
        if lease is None:
            return LeaseRequestState.FREE
        if lease.holder == me:
            return LeaseRequestState.GRANTED
        if self._request is None or lease.requested_by != me:
            # The request is void once another process has asked as well, or has got the lease.
            return LeaseRequestState.HELD
        overdue = time.monotonic() - self._request.at >= ANSWER_S
        return LeaseRequestState.OVERDUE if overdue else LeaseRequestState.REQUESTED

    @property
    def has_lease(self) -> bool:
        """True if this process holds the lease and can open the session."""
        return self.request_state is LeaseRequestState.GRANTED

    def grant(self) -> Grant:
        """Return what the session's role may do. Raises ConfigError if this process's registry lacks the role."""
        if self.state is not None and not isinstance(self.state.phase, Finished):
            return self.state.grant
        return self.settings.grant(self._services.rights)

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for a decision, without those whose decision the owner has not taken yet."""
        posted = {(decision.call_id, decision.digest) for decision in self._source.posted}
        return tuple(pending for pending in super().pending if (pending.call.id, pending.digest) not in posted)

    def snapshot(self) -> Snapshot:
        """Return the session as of the last look at the store."""
        return replace(super().snapshot(), queued=self._source.queued)

    @property
    def is_over(self) -> bool:
        """True if no process owns the session, and no turn of it is unfinished."""
        return self._source.lease is None and not self.unfinished

    def whereabouts(self) -> str:
        """Return which process owns the session, in words."""
        lease = self._source.lease
        if lease is None:
            return "this session is read-only here, and no process has it open"
        return f"this session is open elsewhere (pid {lease.holder.pid} on {lease.holder.host})"

    def since(self) -> str:
        """Return since when the owner has had the session, in local time."""
        lease = self._source.lease
        return since(lease, now=time.time()) if lease is not None else ""

    def on_change(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop whenever something to show has changed, including `request_state`."""
        self._on_change = changed

    def _next_grant(self) -> Grant:
        rights = self._services.rights
        try:
            return self.settings.grant(rights)
        except ConfigError:
            return SessionSettings(rights.roles()[0]).grant(rights)

    # Actions

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Post a decision on a pending call as shown (`digest`).

        Returns False if another decision came first or the call is no longer pending. Raises ConfigError if the site
        does not let users decide here.
        """
        await self._check_decision(call_id, decision)
        decided = DecideCall(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
        posted = await self._services.worker(self._services.store.post_decision, decided)
        await self._read_all()
        if posted:
            then = "The session continues in the window that has it open."
            if self._source.lease is None:
                self._is_starting = True
                self._on_change()
                try:
                    started = await in_thread(self._services.start_job, self.session_id)
                    await self._read_all()
                finally:
                    self._is_starting = False
                then = started or "The session continues once it is opened: /takeover opens it here."
            text = f"Your decision counts. {then}"
            # One notice for all calls of a round.
            self._bus.publish(Notice(id=f"{round_of(call_id)}.decided", parent_id=self.session_id, text=text))
        return posted

    async def _check_decision(self, call_id: CallId, decision: Decision) -> None:
        """Raise ConfigError if this user may not decide so, or not here."""
        services, by = self._services, self._services.by
        services.rights.check_surface(by.via)
        if isinstance(decision, Approved) and decision.remember is not None:
            if whose := await services.worker(services.store.foreign, self.session_id):
                raise ConfigError(
                    f"Nothing was decided: a rule of yours does not answer in a session of {whose}.",
                    advice="Approve the call once.",
                )
        calls = pending_calls(self.state) if self.state is not None else ()
        pending = next((call for call in calls if call.call.id == call_id), None)
        if pending is not None and pending.approvers and not isinstance(decision, Rejected):
            session_id = session_of(call_id)
            decider = await services.worker(services.store.decider, session_id, by.member, pending.approvers)
            services.rights.check_decider(pending, by, decider, foreign=False, containment=None)

    async def cancel(self) -> bool:
        """Return False: nothing runs in this process."""
        return False

    async def take_over(self) -> None:
        """Request the lease; take it if it is free; seize it if it was requested before. See `request_state`.

        A second call has no effect until the request is overdue. If the lease is seized, calls that were running in the
        old owner have an unknown outcome, and it starts nothing more. Raises SessionHeldError, StoreError.
        """
        store, worker, me = self._services.store, self._services.worker, self._services.holder
        lease = self._source.lease
        match self.request_state:
            case LeaseRequestState.HELD:
                self._request = _Request(at=time.monotonic(), is_stored=False)
                try:
                    await worker(store.request_lease, self.session_id, me)
                except StoreError:
                    self._request = None
                    raise
                self._request = replace(self._request, is_stored=True)
            case LeaseRequestState.OVERDUE if lease is not None:
                await worker(store.seize_lease, self.session_id, me, of=lease.holder, ttl_s=LEASE_S)
            case LeaseRequestState.FREE:
                await worker(store.reserve_lease, self.session_id, me, ttl_s=LEASE_S)
                # Counts as requested, so that `aclose` releases the lease if the session is not opened.
                self._request = _Request(at=time.monotonic(), is_stored=True)
            case _:
                pass
        await self._read_all()

    def stop(self) -> None:
        """Stop following: this process has opened the session."""
        self.is_closed = True
        self._follow_task.cancel()
        self._on_change = lambda: None

    async def aclose(self) -> None:
        """Stop following, withdraw the request, and release the lease if it has arrived."""
        if self._follow_task.done():
            return
        self.stop()
        await self._mark_followed(None)
        if self._request is None:
            return
        store, worker, me = self._services.store, self._services.worker, self._services.holder
        try:
            await worker(store.release_lease, self.session_id, me)
            await worker(store.withdraw_request, self.session_id, me)
        except StoreError:
            log.exception("a request for a session was not withdrawn")

    # Internals

    async def _follow(self) -> None:
        """Read the store when it has changed, and the lease every time: a process that dies writes nothing."""
        last_version: int | None = None
        last_state = self.request_state
        await self._mark_followed(self._services.holder)
        with changes(self._services.store, self.session_id) as pause:
            while True:
                await pause(LOOK_S)
                try:
                    version = await self._services.worker(self._services.store.data_version)
                    if version != last_version:
                        await self._read_all()
                        last_version = version
                    else:
                        lease = await self._services.worker(self._services.store.lease, self.session_id)
                        self._source = replace(self._source, lease=lease)
                        self._drop_void_request()
                    if self.request_state is not last_state:
                        last_state = self.request_state
                        self._on_change()
                except StoreError as error:
                    log.warning("the session could not be read: %s", error)
                except Exception:
                    # A bug in drawing must not end the task that follows the session.
                    log.exception("a change of the session could not be shown")

    async def _mark_followed(self, by: Holder | None) -> None:
        """Store that the session is on a screen, so that its user is not notified elsewhere."""
        try:
            await self._services.worker(self._services.store.mark_followed, self.session_id, by)
        except StoreError as error:
            log.warning("it is not stored that session %s is followed: %s", self.session_id, error)

    async def _read_all(self) -> None:
        found = await self._services.worker(_read_stored, self._services.store, self.session_id, self._source)
        if found != self._source:
            self._source = found
            self._drop_void_request()
            self._on_change()

    def _drop_void_request(self) -> None:
        """Forget the request, and notify the user, if another process has asked since, or has got the lease."""
        lease, me = self._source.lease, self._services.holder
        if self._request is None or not self._request.is_stored or lease is None:
            return
        if me in (lease.holder, lease.requested_by):
            return
        self._request = None
        other = lease.requested_by or lease.holder
        self.notify(
            f"Another chatops (host {other.host}, pid {other.pid}) has requested this session since and gets it.",
            advice="/takeover requests it again.",
        )


async def follow_session(services: Services, session_id: SessionId) -> SessionFollower:
    """Follow a stored session, whether or not another process owns it. Raises NoSuchSessionError, UnreadableError."""
    return SessionFollower(services, await services.worker(_read_stored, services.store, session_id, None))


def _read_stored(store: Store, session_id: SessionId, before: _Stored | None) -> _Stored:
    info = store.session(session_id)
    turn = info.active_turn or info.last_turn
    state = store.load_turn(turn) if turn is not None else None
    if state is not None and isinstance(state.phase, Finished):
        if all(message.id != info.head for message in state.messages):
            # A message was appended after the turn, so the turn is part of the history.
            state = None
    turn_id = state.turn_id if state is not None else None
    is_unchanged = before is not None and (before.info.head, before.state) == (info.head, state)
    is_same_turn = before is not None and before.state is not None and before.state.turn_id == turn_id
    if before is not None and (is_unchanged or is_same_turn):
        # Each step of the followed turn leads here, and only that turn adds to the usage: the sum of the others stays.
        spent = before.spent
    else:
        spent = store.usage(info.id, besides=turn_id)
    if before is not None and is_unchanged:
        history = before.history
    else:
        history = History()
        history.load(store.history(info.id), state, spent=spent)
    return _Stored(
        info=info,
        lease=store.lease(info.id),
        history=history,
        spent=spent,
        state=state,
        run=store.load_run(info.id) if info.run is not None else None,
        queued=store.queued_messages(info.id),
        is_job=store.job(info.id) is not None,
        posted=tuple(store.posted_decisions(state.turn_id)) if state is not None else (),
    )
