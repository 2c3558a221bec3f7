"""A workflow run as a UI sees it: the pure state machine of the run, over the turns of one session.

Every turn goes through `Session` and so through `Runner`. This module only starts the next one. The order is the
runner's: commit the run's step, publish its events, perform its effects. If the process dies at any point, the stored
state names the turn that the run waits for. On resume that turn is started, or resumed from its own checkpoint, or, if
it has ended, its end is passed to the machine.
"""

import asyncio
import logging
import time
from dataclasses import replace
from functools import partial

from chatops.config.failpoints import reach
from chatops.domain.errors import AlreadyDecidedError, ChatopsError, ConfigError, StoreError, UnreadableError
from chatops.domain.events import Published, TurnFinished
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.domain.messages import Message
from chatops.engine.effects import TurnStep
from chatops.engine.state import TurnState
from chatops.engine.turn import start
from chatops.engine.without_model import start_gate
from chatops.engine.workflow.effects import StartAttempt, StartGate, StopTurn, WorkflowEffect, WorkflowStep
from chatops.engine.workflow.inputs import CancelRun, Review, ReviewStep, StopRun, WorkflowInput
from chatops.engine.workflow.machine import advance_run, start_run, turn_end_input
from chatops.engine.workflow.progress import awaited_turn
from chatops.engine.workflow.state import AwaitingReview, RunFinished, WorkflowState
from chatops.policy.workflow import WorkflowSpec
from chatops.runtime.descriptions import describe_review, way_to_continue
from chatops.runtime.services import Services, Shield
from chatops.runtime.session import Session, open_session
from chatops.runtime.settings import SessionSettings
from chatops.runtime.turns import WATCH_S
from chatops.store.sessions import TITLE_LENGTH
from chatops.store.store import Store

log = logging.getLogger(__name__)


class WorkflowRun:
    """One run. Approvals, transcript and events are those of its `session`.

    Methods raise ChatopsError.
    """

    def __init__(
        self, services: Services, session: Session, state: WorkflowState, *, first: WorkflowStep | None = None
    ) -> None:
        """Use `new_run` or `open_run` instead. `first` is the step that starts the run, if it is not stored yet."""
        self._services = services
        self._state = state
        self._unstored_step = first
        self._step_lock = asyncio.Lock()
        self._shield = Shield()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch_task: asyncio.Task[None] | None = None
        self._blocked_by: ChatopsError | None = None
        self._last_review: tuple[ReviewStep, float] | None = None
        """The last review taken by this process, and when, in seconds since the epoch."""
        self.session = session
        """The session whose turns are the run's."""
        if not self.over:
            session.bind_to_run(state.spec.name, session.settings.at_step(state))
        session.subscribe(self._on_event)

    @property
    def state(self) -> WorkflowState:
        """The run as committed."""
        return self._state

    @property
    def run_id(self) -> SessionId:
        """Id of the run and of its session."""
        return self._state.session_id

    @property
    def stored(self) -> bool:
        """True if the run is stored."""
        return self._unstored_step is None

    @property
    def over(self) -> bool:
        """True if the run has ended."""
        return isinstance(self._state.phase, RunFinished)

    @property
    def pending_review(self) -> AwaitingReview | None:
        """The review that the run waits for, if any."""
        return self._state.phase if isinstance(self._state.phase, AwaitingReview) else None

    @property
    def blocked_by(self) -> ChatopsError | None:
        """The error that blocks the run here: a failed write to the store, a missing role, or a takeover."""
        return self._blocked_by or self.session.blocked_by

    @property
    def way_to_continue(self) -> str:
        """The command or call that continues the run, also where its own tools are."""
        return way_to_continue(self._state.session_id, self._state.spec)

    async def undecided(self) -> frozenset[CallId]:
        """Return the pending calls that no other process has posted a decision for. Raises StoreError."""
        store, session_id = self._services.store, self._state.session_id
        rows = await self._services.worker(partial(store.pending_calls, session_id=session_id))
        return frozenset(row.pending.call.id for row in rows if row.decided is None)

    async def resume(self) -> None:
        """Start the run, or resume it from the stored state, taking the reviews posted since."""
        if self._watch_task is None:
            self._watch_task = asyncio.create_task(self._watch(), name="posted reviews")
        first, self._unstored_step = self._unstored_step, None
        if first is not None:
            async with self._step_lock:
                await self._apply(first)
            return
        await self._take_posted_reviews()
        asked, current = awaited_turn(self._state), self.session.state
        if asked is None:
            await self.session.resume()
        elif current is None or current.turn_id != asked.turn_id:
            async with self._step_lock:
                await self._perform(asked)
        elif (ended := turn_end_input(current)) is not None:
            await self._take(ended)
        elif (missing := self._why_not_here(asked)) is not None:
            # Resuming anyway would deny calls that the user has approved, because their tool or role is missing.
            self._block(missing)
        else:
            await self.session.resume()

    async def review(self, review: Review, *, step: int, attempt: int) -> bool:
        """Take the user's review of an attempt as it was shown.

        Returns False if the run does not (or no longer) wait for that review. Raises AlreadyDecidedError, which names
        the reviewer, if another process posted a review first.
        """
        await self._take_posted_reviews()
        taken = await self._take_or_yield(ReviewStep(step=step, attempt=attempt, review=review, by=self._services.by))
        if not taken and (first := self.describe_other_review(step=step, attempt=attempt)):
            name = self._state.spec.step(step).name
            raise AlreadyDecidedError(f"Step {name} was {first}; the first review counts.")
        return taken

    def describe_other_review(self, *, step: int, attempt: int) -> str:
        """Return who reviewed an attempt from another process, where and when; empty if there is no such review."""
        if self._last_review is None:
            return ""
        review, at = self._last_review
        elsewhere = (review.step, review.attempt) == (step, attempt) and review.by != self._services.by
        return describe_review(review, at=at) if elsewhere else ""

    async def cancel(self) -> bool:
        """End the run and its current turn. Returns False if it was over already, or ended by another process."""
        return await self._take_or_yield(CancelRun(by=self._services.by))

    async def retry(self) -> bool:
        """Retry after `blocked_by`: store what could not be stored, start what could not start."""
        if await self.session.retry():
            return True
        if self._blocked_by is None:
            return False
        self._blocked_by = None
        await self.resume()
        return True

    async def turns(self) -> tuple[TurnState, ...]:
        """Return the run's turns so far, as committed."""
        return await self._services.worker(turns_of, self._services.store, self._state)

    async def settle(self) -> WorkflowState:
        """Wait until the run is over or waits for the user, and return its state."""
        while True:
            await self.session.settle()
            if not self._tasks:
                return self._state
            await asyncio.wait(self._tasks)

    async def aclose(self) -> None:
        """Stop all tasks and release the session. The stored run is not changed."""
        if self._watch_task is not None:
            self._watch_task.cancel()
        for task in self._tasks:
            task.cancel()
        await self._shield.wait_ended()
        await self.session.aclose()

    # Internals

    def _step_settings(self) -> SessionSettings:
        return self.session.settings.at_step(self._state)

    async def _take(self, run_input: WorkflowInput) -> bool:
        async with self._step_lock:
            step = advance_run(self._state, run_input)
            if step.state is self._state:
                return False
            await self._apply(step)
            return True

    async def _take_or_yield(self, run_input: ReviewStep | CancelRun) -> bool:
        """Take the user's input, or yield to one that another process has posted since the last look."""
        try:
            return await self._take(run_input)
        except AlreadyDecidedError:
            await self._take_posted_reviews()
            return False

    async def _apply(self, step: WorkflowStep) -> None:
        await self._shield(self._commit(step))
        for effect in step.effects:
            await self._perform(effect)
        if self.over:
            try:
                await self.session.release_from_run(self._step_settings())
            except ChatopsError as error:
                self._block(error)

    async def _commit(self, step: WorkflowStep) -> None:
        reach("before_run_commit")
        await self._services.worker(self._services.store.commit_run, step, self.session.lease)
        reach("after_run_commit")
        self._state, self._blocked_by = step.state, None
        if isinstance(step.user_input, ReviewStep):
            self._last_review = (step.user_input, time.time())
        for event in step.events:
            self.session.publish(event)

    async def _perform(self, effect: WorkflowEffect) -> None:
        """Perform `effect`; if that fails, notify the user and wait for `retry`.

        A missing role does not fail the step.
        """
        try:
            match effect:
                case StartAttempt() | StartGate():
                    await self._start_turn(effect)
                case StopTurn(turn_id=turn_id):
                    if self.session.state is not None and self.session.state.turn_id == turn_id:
                        await self.session.stop_turn()
        except ChatopsError as error:
            self._block(error)

    def _why_not_here(self, asked: StartAttempt | StartGate) -> ConfigError | None:
        """Return why the turn cannot run in this process, or None."""
        step = asked.step
        needed: list[str] = []
        if isinstance(asked, StartAttempt):
            needed = [*(step.tools or ()), *(validation.tool for validation in step.validations)]
        missing = [tool for tool in dict.fromkeys(needed) if self._services.tools.get(tool) is None]
        if missing:
            return ConfigError(
                f"Step {step.name} needs tools that are not available here: {', '.join(missing)}.",
                advice=f"Resume it where they are: {self.way_to_continue}",
            )
        try:
            self._step_settings().grant(self._services.rights)
        except ConfigError as error:
            return error
        return None

    async def _start_turn(self, asked: StartAttempt | StartGate) -> None:
        if (missing := self._why_not_here(asked)) is not None:
            raise missing
        before = await self._earlier_messages(asked)

        def make(turn: TurnState) -> TurnStep:
            turn = replace(turn, parent_id=before[-1].id if before else None, history=before)
            if isinstance(asked, StartGate):
                return start_gate(turn, asked.gate, step=asked.step.name)
            return start(turn, asked.text, contract=asked.contract)

        await self.session.begin(asked.turn_id, self._step_settings(), make)

    async def _earlier_messages(self, asked: StartAttempt | StartGate) -> tuple[Message, ...]:
        if isinstance(asked, StartGate) or asked.after is None:
            return ()
        earlier = await self._services.worker(self._services.store.load_turn, asked.after)
        return (*earlier.history, *earlier.messages)

    def _on_event(self, published: Published) -> None:
        if isinstance(published.event, TurnFinished) and not self.over:
            task = asyncio.create_task(self._take_turn_end(published.event.id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _take_turn_end(self, turn_id: TurnId) -> None:
        state = self.session.state
        ended = turn_end_input(state) if state is not None and state.turn_id == turn_id else None
        if ended is None:
            return
        try:
            await self._take(ended)
        except StoreError as error:
            self._block(error)

    def _block(self, error: ChatopsError) -> None:
        log.error("the run is blocked: %s", error)
        self._blocked_by = error
        self.session.notify(f"The run is blocked: {error}", advice=error.advice)

    async def _take_posted_reviews(self) -> None:
        store, worker = self._services.store, self._services.worker
        for posted in await worker(store.posted_reviews, self.run_id):
            if posted is None or not (await self._may_review(posted) and await self._take(posted)):
                await worker(store.withdraw_review, self.run_id, posted)

    async def _may_review(self, posted: ReviewStep | CancelRun) -> bool:
        """Return False, with a notice, for a role of the database that lets tools be used and may not use them."""
        store, member, phase = self._services.store, posted.by.member, self._state.phase
        ends = isinstance(posted, CancelRun) or isinstance(posted.review, StopRun)
        if ends or member in ("", store.role) or not isinstance(phase, AwaitingReview):
            return True
        level = await self._services.worker(store.level_of, member)
        try:
            for step in range(phase.step, len(self._state.spec.steps)):
                place = replace(self._state, phase=replace(phase, step=step))
                self._services.rights.check_reviewer(self.session.settings.at_step(place), member, level)
        except ConfigError as error:
            self.session.notify(f"{error} The run waits for another review.", advice=error.advice)
            return False
        return True

    async def _watch(self) -> None:
        """Take reviews and cancellations posted by other processes until the run is over."""
        last_version: int | None = None
        while not self.over:
            await asyncio.sleep(WATCH_S)
            try:
                version = await self._services.worker(self._services.store.data_version)
                if version != last_version:
                    last_version = version
                    await self._take_posted_reviews()
            except StoreError:
                log.exception("posted reviews could not be read")


async def new_run(
    services: Services, workflow: WorkflowSpec, *, query: str, role: str, model: str = "", empty: Session | None = None
) -> WorkflowRun:
    """Create a run of `workflow` in an `empty` session, or a new one: call `resume` when a UI listens.

    Raises ConfigError, StoreError.
    """
    store, worker = services.store, services.worker
    settings = SessionSettings(role=role, model_pin=model)
    settings.grant(services.rights)
    title = " ".join(f"{workflow.name}: {query}".split())[:TITLE_LENGTH].rstrip()
    if (session := empty) is None:
        info = await worker(store.create_session, workspace=str(services.workspace), role=role, persona="", title=title)
        await worker(store.update_session, info.id, model_pin=model)
        session = Session(services, info, settings)
        await session.load()
    else:
        await session.rename(title)
    first = start_run(session_id=session.session_id, spec=workflow, query=query, role=role, model=model)
    return WorkflowRun(services, session, first.state, first=first)


async def open_run(services: Services, session_id: SessionId, *, default_role: str) -> WorkflowRun:
    """Open a stored run: call `resume` when a UI listens.

    Raises NoSuchSessionError if the session is not a run, SessionHeldError, UnreadableError.
    """
    await services.worker(services.store.load_run, session_id)
    session = await open_session(services, session_id, default_role=default_role)
    # Read it again under the lease: until now another process may have resumed it.
    state = await services.worker(services.store.load_run, session.session_id)
    return WorkflowRun(services, session, state)


def turns_of(store: Store, run: WorkflowState) -> tuple[TurnState, ...]:
    """Return the turns of a run that were started, in order, without those that cannot be read."""
    asked = awaited_turn(run)
    ids = [record.turn_id for record in run.attempts] + ([asked.turn_id] if asked is not None else [])
    turns: list[TurnState] = []
    for turn_id in ids:
        try:
            turns.append(store.load_turn(turn_id))
        except UnreadableError as error:
            # Not started yet, or damaged. The run's own record of the turn is enough.
            log.info("a turn of run %s is left out: %s", run.session_id, error)
    return tuple(turns)
