"""Runner: the single entry point for inputs. Each one advances the state; commit, then publish, then perform.

Theory of operation

The engine is a pure function: `advance(state, input)` returns a Step with the next state, the messages to store, the
events to show and the effects to perform. The runner is its only caller for a live turn. Inputs from the UI, from
performed effects and from posted decisions all go through one inbox and are taken in order.

For each step, in this order:

- Commit the step in one transaction (`store.turns`). A step that starts a tool stores its intent in
  the journal here.
- Publish its events. A UI therefore shows no state that a crash would undo.
- Perform its effects. A tool therefore never runs without a stored intent, so that recovery finds every attempt that
  may have taken effect.

Inspections and results that wait in the inbox one after the other are taken as one step, in one commit. Nothing that
the first leads to is performed before the last is taken.

One step is stored later: that of a reply which only asks for inspections in the workspace. An inspection has no effect,
so it begins at once, and one transaction stores the reply with what the first inspection leads to: a start, a question,
a result. If no inspection ends within INSPECTION_S, or another input comes first, the reply is stored by itself. After
a crash before that transaction, the model is asked again, as after a crash while the reply streamed.

The process may die between any two of these, which the failpoints before_commit, after_commit and after_publish mark.
After a crash, the next process loads the checkpoint and sends `Recover`; nothing is performed before that input.

Invariants

- `state` is the state as committed. The one exception is a step that may wait in memory while the store cannot be
  written: see below.
- Taking an input runs to its end even if the caller is cancelled, so that store and memory never differ.
- An input that does not apply leaves the state as it is and stores nothing.
- An input whose step cannot be stored changes nothing. It is kept and taken again, so that a full disk loses no
  result: every RETRY_S seconds if the error is NotSavedError, and through `retry_unsaved`. Inputs sent with
  `take_or_fail`, such as a decision, are not kept: the caller gets the error.
- A ConflictError means that another process has committed to this session. The runner then drops its state.

While the store cannot be written (a full disk), a step that starts no tool and carries no result, decision or grant
continues in memory, so that the user and the model can continue talking. It is stored as soon as that works. Nothing
that must not happen twice ever depends on such a step.

Handover (`quiesce`): wait for a step that leaves no tool running. That step is committed and published here, but its
effects are withheld for the next owner. Inputs delivered later are put aside, and callers of `take` get False. If the
request is withdrawn (`continue_here`), the effects are performed and the inputs taken after all.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Literal

from chatops.config.failpoints import reach
from chatops.domain.errors import (
    AlreadyDecidedError,
    ChatopsError,
    ConflictError,
    NotSavedError,
    StoreError,
    unsaved_sentence,
)
from chatops.domain.events import Notice
from chatops.engine.effects import CallModel, Effect, ReconcileTool, RunTool, TurnStep, joined, only_inspects
from chatops.engine.inputs import Input, InspectionInput, ModelReplyInput, ToolResultInput
from chatops.engine.state import TurnState
from chatops.engine.turn import advance
from chatops.engine.view import is_in_flight, runs_tools
from chatops.runtime.performer import Performer
from chatops.runtime.services import EventBus, Shield, WorkerThread
from chatops.store.store import Store

log = logging.getLogger(__name__)

INSPECTION_S = 0.5
"""Seconds that a reply waits at most for the inspection of its calls: nobody notices that they are shown later."""
RETRY_S = 3.0
"""Seconds between two attempts to write to the store again."""
_PROBE_SETTING = "saving was tried"
"""Setting that is written to test the store when no step waits."""


class _StepWriter:
    """Commits the steps of one session in order, and buffers them while the store cannot be written."""

    def __init__(self, store: Store, worker: WorkerThread, lease: Callable[[], str]) -> None:
        self._store = store
        self._worker = worker
        self._lease = lease
        self._waiting: deque[TurnStep] = deque()
        self._in_order = asyncio.Lock()

    @property
    def behind(self) -> bool:
        """True if steps that are not stored yet continue in memory."""
        return bool(self._waiting)

    async def commit(self, step: TurnStep) -> NotSavedError | None:
        """Store a step after those that wait. Returns the error if the step may continue in memory, else None.

        Raises StoreError if it must not take place.
        """
        async with self._in_order:
            try:
                await self._store_waiting()
                await self._worker(self._store.commit, step, self._lease())
            except NotSavedError as error:
                if not _may_stay_unsaved(step):
                    raise
                self._waiting.append(step)
                return error
        return None

    async def catch_up(self) -> None:
        """Store the waiting steps, or test that storing works. Raises StoreError."""
        async with self._in_order:
            if not self._waiting:
                await self._worker(self._store.set_setting, _PROBE_SETTING, "")
            await self._store_waiting()

    async def _store_waiting(self) -> None:
        while self._waiting:
            await self._worker(self._store.commit, self._waiting[0], self._lease())
            self._waiting.popleft()


@dataclass
class _QueuedInput:
    """An input in the inbox, with the future of the caller that waits for it."""

    input: Input
    done: asyncio.Future[bool] | None = None
    keep: bool = True
    """True if the input is taken again later when its step cannot be stored; else the caller gets the error."""
    others: tuple[Input, ...] | None = None
    """The inputs that are taken with this one as one step, each time; None until it is taken first.

    The store recognises a step that it has stored already only if the same inputs lead to it.
    """

    @property
    def was_taken(self) -> bool:
        """True for an input that is back in the inbox because its step could not be stored."""
        return self.others is not None

    @property
    def is_report(self) -> bool:
        """True for the end of an inspection or of a tool that nobody waits for."""
        return isinstance(self.input, InspectionInput | ToolResultInput) and self.done is None


class Runner:
    """Runs the turns of one session, one after the other."""

    def __init__(self, *, store: Store, worker: WorkerThread, bus: EventBus, lease: Callable[[], str]) -> None:
        """Set up the runner. `lease` returns the token of the session's lease, which each commit is checked by."""
        self._saving = _StepWriter(store, worker, lease)
        self._bus = bus
        self._performer: Performer | None = None
        self._inbox: deque[_QueuedInput] = deque()
        self._arrived = asyncio.Event()
        """Set when an input has come into the inbox."""
        self._progress = asyncio.Event()
        """Set when an input was taken, so that callers that wait look at the state again."""
        self._loop: asyncio.Task[None] | None = None
        self._retry_task: asyncio.Task[None] | None = None
        self._shield = Shield()
        self._unsaved_inputs: list[_QueuedInput] = []
        self.blocked_by: ChatopsError | None = None
        """The error that keeps steps from being stored; None once storing works."""
        self.state: TurnState | None = None
        self.taken_over: ChatopsError | None = None
        """Set once another process owns the session: no input is taken any more."""
        self._quiescing = False
        self._withheld: tuple[Effect, ...] | None = None
        """Effects of the last step, if they are withheld for another process."""
        self._deferred: list[Input] = []
        """Inputs delivered while effects are withheld. They are taken only if the session stays here."""

    def attach(self, performer: Performer) -> None:
        """Set the performer of effects, which in turn delivers to this runner."""
        self._performer = performer

    def deliver(self, turn_input: Input) -> None:
        """Put an input at the end of the inbox, and do not wait for it."""
        if self.taken_over is not None:
            return
        self._put(_QueuedInput(input=turn_input))

    async def take(self, turn_input: Input) -> bool:
        """Put an input into the inbox and wait for it. Returns False if it no longer applies or is not saved."""
        return await self._enqueue(turn_input, keep=True)

    async def take_or_fail(self, turn_input: Input) -> bool:
        """Take an input that is void if it cannot be stored; `take` keeps it for later. Raises StoreError then."""
        return await self._enqueue(turn_input, keep=False)

    async def _enqueue(self, turn_input: Input, *, keep: bool) -> bool:
        if self.taken_over is not None:
            return False
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._put(_QueuedInput(input=turn_input, done=done, keep=keep))
        return await done

    def _put(self, entry: _QueuedInput) -> None:
        self._inbox.append(entry)
        self._arrived.set()
        if self._loop is None or self._loop.done():
            self._loop = asyncio.create_task(self._run(), name="runner")

    async def begin(self, step: TurnStep) -> None:
        """Start a turn with its first step. Raises StoreError if it cannot be stored."""
        if self.taken_over is not None:
            raise self.taken_over
        await self._shield(self._apply(step))

    def load(self, state: TurnState | None) -> None:
        """Load a turn as it was stored. Nothing is performed until an input (Recover) arrives."""
        self.state = state

    @property
    def idle(self) -> bool:
        """True if the inbox is empty and no effect is in flight, apart from those whose input waits for the store."""
        busy = self.state is not None and is_in_flight(self.state) and not self._unsaved_inputs
        return not busy and not self._inbox

    async def settle(self) -> None:
        """Wait until the turn is paused or finished."""
        while not self.idle:
            self._progress.clear()
            await self._progress.wait()

    @property
    def unsent(self) -> str:
        """Id of the round whose request is withheld for another process; empty if there is none."""
        return next((effect.round_id for effect in self._withheld or () if isinstance(effect, CallModel)), "")

    async def quiesce(self) -> None:
        """Stop at a point where another process can resume.

        That is at once if no effect is in flight, else the next step that leaves no tool running. The effects of that
        step are withheld for the other process.
        """
        self._quiescing = True
        while self._is_behind():
            # An unsaved input, such as a result, would be lost to the other process.
            with suppress(StoreError):
                await self.retry_unsaved()
            if self._is_behind():
                await asyncio.sleep(RETRY_S)
        while self._withheld is None and not self.idle:
            self._progress.clear()
            await self._progress.wait()

    def _is_behind(self) -> bool:
        """Return True if something that happened here is not stored and still can be."""
        return bool(self._saving.behind or self._unsaved_inputs) and not isinstance(self.blocked_by, ConflictError)

    def continue_here(self) -> None:
        """Continue here: the other process has withdrawn its request."""
        self._quiescing = False
        withheld, self._withheld = self._withheld, None
        self._perform(withheld or ())
        late, self._deferred = self._deferred, []
        for turn_input in late:
            self.deliver(turn_input)

    async def give_up(self, why: ChatopsError) -> None:
        """Perform and take nothing any more: another process resumes from the stored state."""
        self.taken_over = self.blocked_by = why
        await self.aclose()
        self.state = None
        self._progress.set()

    async def catch_up(self) -> None:
        """Store the waiting steps, before something that must be stored after them. Raises StoreError."""
        if self._saving.behind:
            await self._saving.catch_up()

    async def retry_unsaved(self) -> bool:
        """Store what could not be stored, then take the inputs that waited for it.

        Returns False if there is nothing to do. Raises StoreError if it still cannot be stored.
        """
        if self.blocked_by is None or isinstance(self.blocked_by, ConflictError) or self.taken_over is not None:
            return False
        try:
            await self._saving.catch_up()
        except ConflictError as error:
            self._on_conflict(error)
            raise
        except StoreError as error:
            self.report_unsaved(error)
            raise
        self.blocked_by = None
        self._notify("Saving works again: everything is stored now.", level="info")
        self._put_unsaved_first()
        return True

    def _put_unsaved_first(self) -> None:
        """Put the unsaved inputs into the inbox again, before all that came later."""
        unsaved, self._unsaved_inputs = self._unsaved_inputs, []
        if self.taken_over is None:
            self._inbox.extendleft(reversed(unsaved))
            self._arrived.set()

    async def aclose(self) -> None:
        """Stop performing and taking inputs, after storing what is in progress. The state then stays as it is.

        Callers that wait for an input are answered.
        """
        if self._retry_task is not None:
            self._retry_task.cancel()
        if self._saving.behind:
            with suppress(StoreError):
                await self._saving.catch_up()
        if self._performer is not None:
            await self._performer.aclose()
        if self._loop is not None:
            self._loop.cancel()
            await asyncio.gather(self._loop, return_exceptions=True)
        await self._shield.wait_ended()
        while self._inbox:
            _answer_caller(self._inbox.popleft().done, changed=False)

    async def _run(self) -> None:
        while True:
            await self._wait_for_input()
            await self._shield(self._take_queued(self._inbox.popleft()))

    async def _wait_for_input(self) -> None:
        while not self._inbox:
            self._arrived.clear()
            await self._arrived.wait()

    async def _take_queued(self, entry: _QueuedInput) -> None:
        changed = False
        try:
            changed = await self._advance(entry)
        except ConflictError as error:
            if await self._retake_unsaved():
                return await self._take_queued(entry)
            self._on_conflict(error)
        except StoreError as error:
            self._on_unsaved(entry, error)
        except Exception:
            # A bug in chatops must not leave the user with a UI that no longer responds.
            log.exception("an input could not be taken: %s", entry.input.kind)
            self._notify(
                "Something went wrong inside chatops; the turn is as it was last stored.",
                advice="chatops doctor shows where the log is.",
            )
        _answer_caller(entry.done, changed=changed)
        self._progress.set()

    async def _retake_unsaved(self) -> bool:
        """Take the unsaved inputs again, after a conflict. Returns True if there were any and all are stored now.

        The step that is in the way may be that of such an input: the store committed it, and was lost before it could
        say so. Taken again, the input finds its step stored.
        """
        self._put_unsaved_first()
        taken_any = False
        while self._inbox and self._inbox[0].was_taken:
            await self._take_queued(self._inbox.popleft())
            taken_any = True
        return taken_any and not self._unsaved_inputs

    def _take_reports(self) -> Iterator[Input]:
        """Take the reports out of the inbox that come first and were not taken before."""
        while self._inbox and self._inbox[0].is_report and not self._inbox[0].was_taken and not self._quiescing:
            yield self._inbox.popleft().input

    async def _advance(self, entry: _QueuedInput) -> bool:
        is_retried = entry.was_taken
        if entry.others is None:
            entry.others = tuple(self._take_reports()) if entry.is_report else ()
        if self.state is None:
            return False
        if self._withheld is not None:
            if entry.done is None:
                self._deferred += (entry.input, *entry.others)
            return False
        step = TurnStep(state=self.state)
        for turn_input in (entry.input, *entry.others):
            following = advance(step.state, turn_input)
            if following.state is not step.state:
                step = following if step.state is self.state else joined(step, following)
        if step.state is self.state:
            return False
        waits = isinstance(entry.input, ModelReplyInput) and only_inspects(step) and not is_retried
        if waits and not self._quiescing:
            step = await self._join_inspection(entry, step)
        await self._apply(step)
        return True

    async def _join_inspection(self, entry: _QueuedInput, reply: TurnStep) -> TurnStep:
        """Begin the inspections of a reply, and return its step joined with that of the first one if it ends soon.

        If the step cannot be stored, `entry` is taken again with that inspection, and the calls are inspected again.
        """
        self._perform(reply.effects)
        reply = replace(reply, effects=())
        with suppress(TimeoutError):
            async with asyncio.timeout(INSPECTION_S):
                await self._wait_for_input()
        first = self._inbox[0] if self._inbox and not self._quiescing else None
        if first is None or not isinstance(first.input, InspectionInput) or first.others is not None:
            return reply
        entry.others = (self._inbox.popleft().input,)
        return joined(reply, advance(reply.state, first.input))

    async def _apply(self, step: TurnStep) -> None:
        reach("before_commit")
        unsaved = await self._saving.commit(step)
        reach("after_commit")
        self.state = step.state
        if unsaved is None:
            self.blocked_by = None
            self._put_unsaved_first()
        else:
            self.report_unsaved(unsaved)
        for event in step.events:
            self._bus.publish(event)
        reach("after_publish")
        # A step that starts a tool is always performed here: another process could not know if the tool had started.
        if self._quiescing and not runs_tools(step.state):
            self._withheld = step.effects
        else:
            self._perform(step.effects)
        self._progress.set()

    def _perform(self, effects: tuple[Effect, ...]) -> None:
        if self._performer is not None:
            for effect in effects:
                self._performer.perform(effect)

    def _on_unsaved(self, entry: _QueuedInput, error: StoreError) -> None:
        is_decided = isinstance(error, AlreadyDecidedError)
        if not is_decided:
            self.report_unsaved(error)
        if entry.keep and not is_decided:
            self._unsaved_inputs.append(_QueuedInput(input=entry.input, others=entry.others))
        elif entry.done is not None and not entry.done.done():
            entry.done.set_exception(error)

    def report_unsaved(self, error: StoreError) -> None:
        """Report that something of this session is not stored, once per reason.

        If it is NotSavedError, retry every RETRY_S seconds.
        """
        log.error("a step was not stored: %s", error)
        before = self.blocked_by
        known = isinstance(before, NotSavedError) and isinstance(error, NotSavedError) and before.reason == error.reason
        if not known:
            advice = error.advice or "Nothing further runs until it can be saved; then try again."
            self._notify(unsaved_sentence(error), advice=advice)
        self.blocked_by = error
        if isinstance(error, NotSavedError) and (self._retry_task is None or self._retry_task.done()):
            self._retry_task = asyncio.create_task(self._retry_until_saved(), name="retry saving")

    def _on_conflict(self, error: ConflictError) -> None:
        log.error("a step was not stored: %s", error)
        text = "Another process has resumed this session; this window no longer follows it."
        advice = "Open it again with: chatops -r"
        self.blocked_by = ConflictError(text, advice=advice)
        self._notify(text, advice=advice)
        self.state = None

    async def _retry_until_saved(self) -> None:
        while isinstance(self.blocked_by, NotSavedError) and self.taken_over is None:
            await asyncio.sleep(RETRY_S)
            with suppress(StoreError):
                await self.retry_unsaved()

    def _notify(self, text: str, *, advice: str = "", level: Literal["info", "warning", "error"] = "error") -> None:
        turn = self.state.turn_id if self.state is not None else ""
        self._bus.publish(Notice(id=f"{turn}.runner", parent_id=turn, text=text, advice=advice, level=level))


def _answer_caller(done: asyncio.Future[bool] | None, *, changed: bool) -> None:
    if done is not None and not done.done():
        done.set_result(changed)


def _may_stay_unsaved(step: TurnStep) -> bool:
    """Return True if losing the step in a crash loses nothing but text."""
    begins = any(isinstance(effect, RunTool | ReconcileTool) for effect in step.effects)
    return not (begins or step.results or step.decisions or step.rules)
