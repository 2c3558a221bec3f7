"""Child turns: start, follow and stop the turn of a call that delegates, and describe its end.

A child is an ordinary session with an ordinary turn, so it runs as every other: `Session`, its runner, its checkpoint,
its lease, its pending calls. Its id follows from the call, so a caller that is resumed finds its child in the store
instead of starting a second one. The end of the child is the end of its stored turn, so the caller gets it once.

While the child works, the attempt at the caller's call waits for it. `ChildInput` tells the caller what the
user has to decide; the decisions go to the child's session. When the caller is stopped, the child's is stopped
first. When this process ends, or another one takes the caller over, the child is only closed, to be continued.

A child counts on from what its caller had spent when it started, so it is told what the others spend from then on
(`SpentBeside`). It compares its limits with that before its next request, so once a limit is reached, each child that
runs here makes at most one more. A child that another process has learns of the others when it comes back.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from chatops.config.failpoints import reach
from chatops.domain.errors import (
    ChatopsError,
    NoSuchSessionError,
    SessionHeldError,
    ToolFailedError,
    UnreadableError,
)
from chatops.domain.events import CallDecided, Event, PendingCall, Published, ToolStarted, TurnStatus
from chatops.domain.ids import CallId, TurnId, child_session, round_of, turn_of
from chatops.domain.tools import CallFacts, Outcome, ResultFacts, ToolCall, ToolResult
from chatops.domain.wording import one_line
from chatops.engine.delegation import spent_by
from chatops.engine.effects import ReconcileTool, RunTool, ToolEffect
from chatops.engine.inputs import ChildInput
from chatops.engine.state import ChildTurn, Finished, InRound, RoundRecord, Settled, Spending, TurnState
from chatops.engine.view import turn_status
from chatops.policy.delegation import DELEGATE_TOOL, only_tools_of
from chatops.runtime.child_result import child_result
from chatops.runtime.child_rights import ChildRights
from chatops.runtime.services import ChildSession, Services
from chatops.runtime.settings import SessionSettings
from chatops.store.base import SessionInfo
from chatops.toolkit.base import Delegated, Reconciled
from chatops.toolkit.confine import with_problem

LOOK_S = 0.5
"""Seconds between two looks while another process has the child session."""
_CALLER_STOPPED = "The turn was stopped, and the delegated task with it."


class Children:
    """The child turns that run for the turns of one session."""

    def __init__(
        self,
        services: Services,
        *,
        settings: Callable[[], SessionSettings],
        state: Callable[[], TurnState | None],
        take: Callable[[ChildInput], Awaitable[bool]],
        publish: Callable[[Event], None],
    ) -> None:
        self.services = services
        self.settings = settings
        self.state = state
        self.take = take
        self.publish = publish
        self.closed = False
        """True once this process lets the session go: children are then closed, not stopped."""
        self.running: dict[CallId, ChildOfCall] = {}
        self.spent: dict[CallId, RoundRecord] = {}
        """Spending of each child, by the id of its call."""

    async def end(self, call_id: CallId) -> None:
        """Stop the child turn of a call that is over, in case it was left: the call was denied after a restart."""
        call = ToolCall(id=call_id, name=DELEGATE_TOOL, arguments="{}")
        facts = CallFacts(arguments=call.arguments)
        with suppress(ChatopsError):
            effect = ReconcileTool(call=call, facts=facts, attempt=0, stopping=True)
            await ChildOfCall(self, effect).find_or_stop()

    @property
    def sessions(self) -> tuple[ChildSession, ...]:
        """The sessions of the children that run."""
        return tuple(child.session for child in self.running.values() if child.session is not None)

    def spent_beside(self, child: CallId, earlier: int) -> tuple[RoundRecord, ...]:
        """Return what the other children have spent since one started, whose turn counts on from `earlier` records."""
        parent = self.state()
        if parent is None:
            return ()
        ended = parent.spending.earlier[max(0, earlier - len(parent.rounds)) :]
        calls = parent.phase.calls if isinstance(parent.phase, InRound) else ()
        # A settled call's spending is among `ended` already.
        others = {call.call.id for call in calls if not isinstance(call.status, Settled)} - {child}
        return (*ended, *(record for call_id, record in self.spent.items() if call_id in others))

    def record_spent(self, call_id: CallId, child: TurnState | None) -> None:
        """Note what a child has spent by now, and tell the others if that has changed."""
        if child is None or all(record.failure is not None for record in child.rounds):
            return
        record = spent_by(child, self.state())
        if self.spent.get(call_id) != record:
            self.spent[call_id] = record
            for other in self.running.values():
                other.count_siblings()

    def child_asking(self, call_id: CallId) -> "ChildOfCall | None":
        """Return the child with this pending call, or None."""
        children = self.running.values()
        return next((child for child in children if any(asked.call.id == call_id for asked in child.pending)), None)


class ChildOfCall:
    """The child turn of one attempt at a call, see `toolkit.base.Child`."""

    def __init__(self, children: Children, effect: ToolEffect) -> None:
        self._children = children
        self._services = children.services
        self._call_id = call_id = effect.call.id
        self._effect = effect
        self._id = child_session(call_id)
        self._turn_id = TurnId(f"{self._id}.1")
        self._last_report = ChildTurn()
        self._report_lock = asyncio.Lock()
        self.session: ChildSession | None = None

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls of the child that wait for the user."""
        return self.session.pending if self.session is not None else ()

    # The turn

    @property
    def _rights(self) -> ChildRights | None:
        """None if the rights of the caller are not known, as of an attempt that is only reconciled."""
        caller = None if isinstance(self._effect, ReconcileTool) else self._effect.grant
        if caller is None:
            return None
        return ChildRights(self._services, self._call_id, caller=caller, sandbox=self._children.settings().sandbox)

    async def compare(self, facts: CallFacts, given: Delegated) -> CallFacts:
        """Return `facts` with the rights that the child's role adds, and with what is wrong with the arguments."""
        if (rights := self._rights) is None:
            return with_problem(facts, "", "the rights of the turn are not known")
        return await rights.compare(facts, given)

    async def run(self, facts: CallFacts, given: Delegated, output: Callable[[str], None]) -> ToolResult:
        """Start the child turn, or continue it, and return its answer. If cancelled, stop it first."""
        effect, rights = self._effect, self._rights
        if not isinstance(effect, RunTool) or rights is None or facts.delegation is None:
            raise ToolFailedError("The rights of the role were not compared.")
        await self._create(rights, given, approved=facts.delegation.grant, is_first=effect.attempt == 1)
        reach("child_created")
        while True:
            if (ended := (await self.find_or_stop()).result) is not None:
                return ended
            try:
                session = await self._services.open_child(self._id)
            except SessionHeldError:
                # The user has opened it in another window, or the process that ran it is just letting it go.
                with suppress(UnreadableError):
                    stored = await self._services.worker(self._services.store.load_turn, self._turn_id)
                    self._children.record_spent(self._call_id, stored)
                await asyncio.sleep(LOOK_S)
                continue
            state = await self._follow(session, effect, given, output)
            if state is not None:
                return child_result(given.role, state, state.messages, caller=self._children.state())

    async def _create(self, rights: ChildRights, given: Delegated, *, approved: str, is_first: bool) -> None:
        """Create the session. One of an earlier attempt is bound by what was revoked since, too.

        Raises ToolFailedError if its rights are not those that were `approved`, a digest.
        """
        binding = rights.binding
        if (stored := await self._stored_child()) is not None:
            # A store that was copied may bring sessions of any name and role.
            if is_first or (stored.last_turn is None and stored.role != given.role):
                raise ToolFailedError(f"There is a session {self._id} already, which is not of this task.")
        else:
            child = await rights.of_role(given.role)
            if child.digest != approved:
                raise ToolFailedError(
                    f"The rights of role {given.role} have changed since they were compared. Try again."
                )
            binding = replace(binding, layers=(*binding.layers, only_tools_of(child.grant)))
        create, workspace = self._services.store.create_child, str(self._services.workspace)
        await self._services.worker(partial(create, self._id, workspace=workspace, role=given.role, binding=binding))

    async def _follow(
        self, session: ChildSession, effect: RunTool, given: Delegated, output: Callable[[str], None]
    ) -> TurnState | None:
        """Run the turn to its end and return it; None if another process has taken the session over."""
        changed = asyncio.Event()
        decided: list[CallDecided] = []

        def listen(published: Published) -> None:
            match published.event:
                case CallDecided() as event:
                    decided.append(event)
                case ToolStarted(tool=tool, arguments=arguments):
                    output(f"{tool} {one_line(arguments, most=200)}\n")
                case _:
                    pass
            changed.set()
            self._children.record_spent(self._call_id, session.state)

        unsubscribe = session.subscribe(listen)
        self.session = session
        self._children.running[self._call_id] = self
        try:
            if session.state is None:
                await self._start(session, effect, given)
            else:
                await session.resume()
            self._children.record_spent(self._call_id, session.state)
            self.count_siblings()
            reach("child_started")
            while (state := session.state) is not None and not isinstance(state.phase, Finished):
                changed.clear()
                await self.report()
                # Published as decisions on the caller's call, after the caller knows what was asked.
                while decided:
                    event = decided.pop(0)
                    self._children.publish(replace(event, id=self._call_id, parent_id=round_of(self._call_id)))
                await changed.wait()
            # Until its result is there, the caller must not look as if it waits for the user.
            await self.report()
            return state
        except asyncio.CancelledError:
            if not self._children.closed:
                await _stop_child(session)
            raise
        finally:
            unsubscribe()
            self.session = None
            self._children.running.pop(self._call_id, None)
            await session.aclose()

    def count_siblings(self) -> None:
        """Tell the child's turn what the other children have spent."""
        if self.session is not None and (state := self.session.state) is not None:
            self.session.count_siblings(self._children.spent_beside(self._call_id, len(state.spending.earlier)))

    async def _start(self, session: ChildSession, effect: RunTool, given: Delegated) -> None:
        mentions = " ".join(f'@"{path}"' for path in given.files)
        files = await asyncio.to_thread(self._services.read_files, self._id, mentions) if mentions else ()
        spending = effect.spending or Spending()
        beside = self._children.spent_beside(self._call_id, len(spending.earlier))
        await session.start_child(
            given.task,
            files=files,
            reads_workspace=effect.workspace_read,
            spending=replace(spending, beside=beside),
            budget=effect.budget,
        )

    async def report(self) -> None:
        """Tell the caller what the user has to know of the child, if that has changed. Returns once it knows."""
        async with self._report_lock:
            if self.session is None:
                return
            report = ChildTurn()  # Another process has taken it over: what it asks is asked there.
            if (state := self.session.state) is not None:
                report = ChildTurn(pending=self.session.pending, paused=turn_status(state) is TurnStatus.PAUSED)
            if report != self._last_report and isinstance(self._effect, RunTool):
                self._last_report = report
                told = ChildInput(call_id=self._call_id, attempt=self._effect.attempt, child=report)
                await self._children.take(told)

    # The end

    async def find_or_stop(self) -> Reconciled:
        """Return the result of the child turn if it has ended; stop it if the caller was stopped."""
        info = await self._stored_child()
        if info is None or info.last_turn is None:
            return Reconciled(result=None, repeat=True)
        if info.active_turn == self._turn_id:
            if not (isinstance(self._effect, ReconcileTool) and self._effect.stopping):
                return Reconciled(result=None, repeat=True)
            with suppress(SessionHeldError):
                session = await self._services.open_child(self._id)
                try:
                    await _stop_child(session)
                finally:
                    await session.aclose()
            facts = ResultFacts(reads_workspace=True)
            return Reconciled(result=ToolResult(outcome=Outcome.INTERRUPTED, content=_CALLER_STOPPED, facts=facts))
        store, worker = self._services.store, self._services.worker
        said = [message for message in await worker(store.history, self._id) if turn_of(message.id) == self._turn_id]
        state: TurnState | None = None
        with suppress(UnreadableError):  # The user has gone on in the session: only its messages are left of the turn.
            state = await worker(store.load_turn, self._turn_id)
        return Reconciled(result=child_result(info.role, state, said, caller=self._children.state()))

    async def _stored_child(self) -> SessionInfo | None:
        try:
            info = await self._services.worker(self._services.store.session, self._id)
        except NoSuchSessionError:
            return None
        # The id of one child may be the beginning of another's.
        return info if info.id == self._id else None


async def _stop_child(session: ChildSession) -> None:
    await session.stop_turn()
    await session.settle()
