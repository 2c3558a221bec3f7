"""Jobs: turns that continue in the background, each in a process of its own that ends when the turn waits or is over.

Theory of operation

A job is a row beside its session (`store.jobs`) with the options that it was started with. Its process is
``chatops jobs resume ID --foreground``, detached: it takes the session's lease and resumes the turn, as every resumed
turn is. A turn that waits for a decision needs no process.

A program that commits a decision calls `start_if_job`. That starts the process and stores the lease in its name, so
that of two programs that decide at the same time only one starts it: the other process finds the lease taken, and ends.
A decision that is committed while the process is about to end is found by that process, which looks once more after it
has released the lease.

The job continues by itself only where it was (`job_binding`). Otherwise the reason is stored, and shown until the user
starts it: ``chatops jobs resume ID``. If the program that decided died before it could start the job, no reason is
stored. After a restart of the machine nothing continues by itself.
"""

import asyncio
import logging
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from enum import StrEnum
from functools import partial
from threading import Thread
from typing import NamedTuple

from chatops.config.failpoints import reach
from chatops.config.paths import REGISTRY_VARIABLE, find_paths, show_folder
from chatops.domain.errors import ChatopsError, ConflictError, SessionHeldError, UnreadableError
from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.domain.sanitize import reveal
from chatops.engine.inputs import Recover
from chatops.engine.state import AwaitingModel, Finished, TurnState
from chatops.engine.turn import advance
from chatops.engine.view import is_in_flight, pending_calls
from chatops.runtime.call_sheet import budget_question
from chatops.runtime.descriptions import call_line
from chatops.runtime.lease import LEASE_S
from chatops.runtime.session import Session
from chatops.store.base import JobRow, LeaseRow
from chatops.store.process_identity import holder_of, this_process
from chatops.store.store import Store
from chatops.toolkit.counting import count_work
from chatops.toolkit.threads import in_thread
from chatops.wiring.app import App
from chatops.wiring.job_binding import add_models, has_own_options, job_row, options_of, why_not_here
from chatops.wiring.not_started import NotStarted, WhyNot
from chatops.wiring.stored import STORE_VARIABLE, database_address

log = logging.getLogger(__name__)

_LEASE_LOOK_S = 0.02
"""Seconds between two looks of a new process for the lease that its starter reserves for it."""
_STARTER_VARIABLE = "CHATOPS_STARTER"
"""Environment variable with the pid of the process that has started a job's process."""


class JobState(StrEnum):
    """The state of a job. Only a running one has a process."""

    RUNNING = "running"
    WAITING = "waiting"
    NOT_STARTED = "decided, not started"
    INTERRUPTED = "interrupted"
    DONE = "done"
    LIMIT = "limit"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_over(self) -> bool:
        """True if the turn is over."""
        return self in _STATE_OF_RESULT.values()


_STARTABLE_STATES = (JobState.INTERRUPTED, JobState.NOT_STARTED)
_STATE_OF_RESULT = {
    TurnStatus.ANSWERED: JobState.DONE,
    TurnStatus.LIMIT: JobState.LIMIT,
    TurnStatus.FAILED: JobState.FAILED,
    TurnStatus.CANCELLED: JobState.CANCELLED,
}


@frozen_dataclass
class Job:
    """A job as it is now."""

    row: JobRow
    state: JobState
    turn: TurnState | None = None
    """None if it cannot be read."""
    pending: tuple[PendingCall, ...] = ()
    """The calls that wait for a decision."""
    lease: LeaseRow | None = None
    why: str = ""
    """Reason why it was not started or was interrupted, as a clause; empty if none is known."""

    @property
    def id(self) -> SessionId:
        """The id of its session."""
        return self.row.session.id

    @property
    def title(self) -> str:
        """The title of its session, in one line."""
        return reveal(self.row.session.title, newlines=False) or "(no title)"

    @property
    def folder(self) -> str:
        """Its workspace, in one line."""
        return show_folder(self.row.session.workspace)

    @property
    def about(self) -> str:
        """The process, the calls that wait, or the reason for its state, in one line."""
        match self.state:
            case JobState.RUNNING if self.lease is not None:
                return f"pid {self.lease.holder.pid}"
            case JobState.WAITING:
                return "; ".join(map(_question_line, self.pending))
            case _:
                return self.why


def _question_line(pending: PendingCall) -> str:
    """Return what a pending call asks, in one line."""
    about = budget_question(pending) or call_line(pending.call, pending.facts)
    return f"outcome unknown of {about}" if pending.outcome_unknown else about


def job_of(store: Store, row: JobRow) -> Job:
    """Return the job with its state. Raises StoreError."""
    lease = store.lease(row.session.id)
    try:
        turn = store.load_turn(row.turn_id)
    except UnreadableError as error:
        return Job(row=row, state=JobState.INTERRUPTED, lease=lease, why=str(error))
    stored_calls = store.pending_calls(session_id=row.session.id)
    pending = tuple(call.pending for call in stored_calls if call.decided is None)
    state = _state_of(turn, lease, waits=bool(pending), any_decided=len(pending) < len(stored_calls))
    not_started = NotStarted.read(row.not_started)
    why = "" if not_started is None or state.is_over or state is JobState.WAITING else not_started.sentence
    if state is JobState.NOT_STARTED:
        why = why or "it was decided elsewhere, or a process was killed before the job went on"
    return Job(row=row, state=state, turn=turn, pending=pending, lease=lease, why=why)


def _state_of(turn: TurnState, lease: LeaseRow | None, *, waits: bool, any_decided: bool) -> JobState:
    """Return the state of a job. `waits`: for a decision; `any_decided`: the turn has not taken a decision yet."""
    if isinstance(turn.phase, Finished):
        return _STATE_OF_RESULT.get(turn.phase.result, JobState.CANCELLED)
    if lease is not None and (is_in_flight(turn) or not waits):
        return JobState.RUNNING
    if any_decided:
        return JobState.NOT_STARTED
    return JobState.WAITING if waits else JobState.INTERRUPTED


def _unfinished_job(store: Store, session_id: SessionId) -> JobRow | None:
    """Return the job of a session if its turn is the session's unfinished one; else None."""
    row = store.job(session_id)
    return row if row is not None and row.session.active_turn == row.turn_id else None


async def move_to_background(
    app: App, session: Session, leave: Callable[[], Awaitable[None]], *, on_approval: str = "pause"
) -> SessionId:
    """Let a process of its own continue the unfinished turn of a session that is quiet. Return the session's id.

    `leave` releases the session here. A turn that waits for a decision needs no process. Raises ChatopsError if none
    can be started: the job can be resumed.
    """
    row = await in_thread(partial(job_row, app, session, on_approval=on_approval))
    await in_thread(app.store.put_job, row)
    is_running = session.state is not None and is_in_flight(session.state)
    await leave()
    try:
        if is_running:
            await in_thread(start_process, app.store, row)
    except OSError as error:
        raise ChatopsError(
            f"The turn does not continue: a process cannot be started ({error.strerror}).",
            advice=f"To start it: chatops jobs resume {row.session.id}",
        ) from error
    except SessionHeldError as error:
        log.info("job %s is not started twice: %s", row.session.id, error)
    return row.session.id


# Starting

CONTINUES_IN_BACKGROUND = ConflictError("The turn continues in the background.", advice="/jobs lists it.")
"""Does not say how to bring it back: the banner of the followed session names the key."""
_CONTINUES_ELSEWHERE = "The job continues where it is open."


def start_if_job(store: Store, session_id: SessionId) -> str:
    """Start the session's job again after a decision was committed, if it is one.

    Return what the deciding surface has to say; empty if the session is no job. May take a second. Raises StoreError.
    """
    own = store.session(store.session(session_id).parent or session_id)
    if own.queue:
        return f"The workers of {own.queue} go on with it: chatops queue list"
    if (row := _unfinished_job(store, own.id)) is None:
        return ""
    if whose := store.foreign(row.session.id):
        return f"The job belongs to {whose}: chatops there continues it."
    if store.lease(row.session.id) is not None:
        return _CONTINUES_ELSEWHERE
    reach("before_job_start")
    why = why_not_here(store, row)
    if why is None:
        try:
            start_process(store, row)
        except SessionHeldError:
            return _CONTINUES_ELSEWHERE
        except OSError as error:
            why = NotStarted(WhyNot.FAILED, f"a process cannot be started: {error.strerror}")
        else:
            return state_sentence(row.session.id, JobState.RUNNING)
    store.update_job(row.session.id, not_started=str(why))
    state = job_of(store, row).state
    return f"{state.capitalize()}: {why.sentence}. To start it: chatops jobs resume {row.session.id}"


def state_sentence(session_id: SessionId, state: JobState) -> str:
    """Return the sentence for a job in this state, in the word that lists have for it."""
    return f"The job is {state}: chatops jobs show {session_id}"


def _asks_about_outcome(turn: TurnState) -> bool:
    """Return True if the turn, once it is resumed, asks about a call that ran when it was left."""
    return any(asked.outcome_unknown for asked in pending_calls(advance(turn, Recover(grant=turn.grant)).state))


def start_process(store: Store, row: JobRow) -> int:
    """Start the process of a job, store the lease in its name, and return its pid.

    The process has a session of its own, so it outlives this one and its terminal. It gets the environment as it is,
    but for the registry, which its options name. It waits until it has the lease.

    Raises OSError, SessionHeldError if another process has the session, and StoreError.
    """
    environment = {name: value for name, value in os.environ.items() if name != REGISTRY_VARIABLE}
    if address := database_address(find_paths(os.environ), options_of(row).registry):
        environment[STORE_VARIABLE] = address
    process = subprocess.Popen(
        # With -P no module of the current folder is imported.
        [sys.executable, "-P", "-m", "chatops", "jobs", "resume", row.session.id, "--foreground"],
        env={**environment, _STARTER_VARIABLE: str(os.getpid())},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    reach("job_started")
    Thread(target=process.wait, daemon=True).start()
    try:
        store.reserve_lease(row.session.id, holder_of(process.pid), ttl_s=LEASE_S)
    except BaseException:
        process.kill()
        raise
    return process.pid


def starter_of_this_process() -> str | None:
    """Return the pid of the process whose `start_process` has started this one; None if the user has.

    Programs that this one starts do not learn of it.
    """
    return os.environ.pop(_STARTER_VARIABLE, "") or None


def wait_for_lease(store: Store, row: JobRow, *, starter: str) -> None:
    """Wait until the process `starter` has reserved the lease for this one, or is gone."""
    while str(os.getppid()) == starter:
        lease = store.lease(row.session.id)
        if lease is not None and lease.holder == this_process():
            return
        time.sleep(_LEASE_LOOK_S)


_WHEN_HANDED_OVER = {True: "if the reply calls a tool", False: "when the current step is done"}
"""Moment in which `ChatJobs` hands a turn over, in words; True: the model replies."""


def _is_replying(session: Session) -> bool:
    return session.state is not None and isinstance(session.state.phase, AwaitingModel)


class _Handover(NamedTuple):
    """A session that is handed over, and the task that does it."""

    session: Session
    task: asyncio.Task[None]


class ChatJobs:
    """The jobs as the chat shows them."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._handover: _Handover | None = None
        """The last one, which may be over."""
        app.start_job = partial(start_if_job, app.store)

    async def listed(self) -> list[Job]:
        """Return all jobs, newest activity first."""
        return await in_thread(lambda: [job_of(self._app.store, row) for row in self._app.store.jobs()])

    async def move_to_background(self, session: Session) -> str:
        """Let a process of its own continue the unfinished turn, as soon as no step of it runs here.

        The turn is a job from now on, so that it is listed. Return what happens until then, in sentences. Raises
        ChatopsError if the session cannot be stored.
        """
        in_run = "a step of a workflow stays with its run" if session.settings.step is not None else ""
        if why := in_run or session.unsaved:
            raise ChatopsError(f"The turn was not handed over: {why}.")
        last = self._handover
        if last is None or last.session is not session or last.task.done():
            await in_thread(lambda: self._app.store.put_job(job_row(self._app, session)))
            # Kept here, because the event loop keeps no reference to a task.
            self._handover = _Handover(session, asyncio.create_task(self._move(session), name="hand over"))
        when = _WHEN_HANDED_OVER[_is_replying(session)]
        if _is_replying(session):
            leaving = "Leaving hands over at once, and the model is asked again."
            return f"Handing over {when}; a reply without calls ends the turn here. {leaving}"
        return f"Handing over {when}. Until then Esc stops the turn. /jobs lists it."

    async def _move(self, session: Session) -> None:
        try:
            with count_work(f"handing over {_WHEN_HANDED_OVER[_is_replying(session)]}"):
                await session.quiesce()
                if session.unfinished:
                    await move_to_background(self._app, session, partial(session.let_go, CONTINUES_IN_BACKGROUND))
                    return
            session.continue_here()
            session.notify("The turn has ended here, so nothing was handed over.")
            await in_thread(partial(self._app.store.update_job, SessionId(session.session_id), seen=True))
        except ChatopsError as error:
            session.notify(str(error), advice=error.advice)

    async def continues(self, session_id: SessionId) -> bool:
        """Return True if the session's unfinished turn is a job, which continues once it is on no screen any more."""
        try:
            return await in_thread(_unfinished_job, self._app.store, session_id) is not None
        except ChatopsError:
            return False

    async def restart(self, session_id: SessionId) -> str:
        """Start a job again that was on the screen until now, if its turn is under way.

        Return what becomes of the job, as a sentence; empty if it is no job, or waits. The address of a model that the
        user has chosen on the screen counts from now on.
        """
        store = self._app.store

        def start_again() -> str:
            if (row := _unfinished_job(store, session_id)) is None:
                return ""
            job = job_of(store, row)
            if job.turn is not None and has_own_options(store, row):
                store.put_job(add_models(self._app, row, job.turn))
            if job.state in _STARTABLE_STATES:
                said = start_if_job(store, session_id)
                waits = job.turn is not None and _asks_about_outcome(job.turn) and store.lease(session_id) is not None
                return state_sentence(session_id, JobState.WAITING) if waits else said
            return state_sentence(session_id, job.state) if job.state is JobState.RUNNING else ""

        try:
            return await in_thread(start_again)
        except ChatopsError as error:
            log.warning("job %s does not continue: %s", session_id, error)
            return ""

    def news(self, known: Collection[SessionId] = ()) -> tuple[str, ...]:
        """Return one line on the jobs that ended or wait for the user since it was last called; empty if none does.

        The user knows already that sessions in `known` are not finished.
        """
        store = self._app.store
        if store.unsaved:
            return ()
        jobs = [
            job_of(store, row)
            for row in store.jobs()
            if (row.session.id not in known if row.session.active_turn is not None else not row.seen)
        ]
        for job in jobs:
            if job.state.is_over:
                store.update_job(job.id, seen=True)
        counts = Counter(job.state for job in jobs)
        clauses = [f"{counts[state]} {state}" for state in JobState if counts[state] and state is not JobState.RUNNING]
        return (f"Jobs: {'; '.join(clauses)} – /jobs",) if clauses else ()
