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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from chatops.config.failpoints import reach
from chatops.config.folder_identity import folder_identity
from chatops.domain.canonical import canonical
from chatops.domain.decisions import RuleScope
from chatops.domain.errors import (
    ChatopsError,
    ConfigError,
    NoSuchSessionError,
    SessionHeldError,
    ToolFailedError,
    UnreadableError,
)
from chatops.domain.events import CallDecided, Event, PendingCall, Published, ToolStarted, TurnStatus
from chatops.domain.ids import CallId, TurnId, child_session, round_of, turn_of
from chatops.domain.messages import AssistantMessage, Message, NoticeMessage
from chatops.domain.tools import CallFacts, DelegationFacts, Outcome, ResultFacts, ToolCall, ToolResult, Verdict
from chatops.domain.usage import total
from chatops.domain.wording import one_line
from chatops.engine.delegation import spent_by
from chatops.engine.effects import ReconcileTool, RunTool, ToolEffect
from chatops.engine.inputs import ChildInput
from chatops.engine.state import ChildTurn, Finished, InRound, RoundRecord, Settled, Spending, TurnState
from chatops.engine.view import answer_so_far, any_read_workspace, turn_status
from chatops.policy.delegation import DELEGATE_TOOL, ChildBinding, added_rights, binding, grant_digest, only_tools_of
from chatops.policy.grant import Grant
from chatops.policy.remembered import why_not_here
from chatops.runtime.services import ChildSession, Services
from chatops.runtime.settings import SessionSettings
from chatops.store.base import SessionInfo
from chatops.toolkit.base import Delegated, Reconciled
from chatops.toolkit.confine import with_problem
from chatops.toolkit.output import cap
from chatops.toolkit.threads import in_thread

LOOK_S = 0.5
"""Seconds between two looks while another process has the child session."""
_READING_TOOL = "file_read"
"""The tool whose rights the files of a task need."""
_MAX_ANSWER_CHARS = 16_000
"""Characters of an answer that the caller gets; head and tail are kept."""
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
        self._grant = None if isinstance(effect, ReconcileTool) else effect.grant
        """Grant of the caller."""
        self._run_effect = effect if isinstance(effect, RunTool) else None
        self._stopping = isinstance(effect, ReconcileTool) and effect.stopping
        self._id = child_session(call_id)
        self._turn_id = TurnId(f"{self._id}.1")
        self._last_report = ChildTurn()
        self._report_lock = asyncio.Lock()
        self.session: ChildSession | None = None

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """The calls of the child that wait for the user."""
        return self.session.pending if self.session is not None else ()

    # Rights

    async def compare(self, facts: CallFacts, given: Delegated) -> CallFacts:
        """Return `facts` with the rights that the child's role adds, and with what is wrong with the arguments."""
        if self._grant is None:
            return with_problem(facts, "", "the rights of the turn are not known")
        try:
            child, words = await self._child_grant(given.role, self._grant)
        except ConfigError as error:
            return with_problem(facts, "role", f"cannot work on it: {error.full}", given=given.role)
        for number, path in enumerate(given.files):
            facts = await self._add_file(facts, f"files[{number}]", path, self._grant)
        model = child.models[0]
        found = DelegationFacts(
            role=given.role, model=model.label or model.name, adds=words, grant=grant_digest(child, words)
        )
        needs_user = f"role {given.role} has rights that this turn lacks" if words else ""
        return replace(facts, delegation=found, needs_user=needs_user)

    async def _child_grant(self, role: str, grant: Grant) -> tuple[Grant, tuple[str, ...]]:
        """Return the child's grant, and what it adds in words. Raises ConfigError for an unknown role."""
        bound = ChildBinding(call_id=self._call_id, caller=grant.role, layers=binding(grant))
        settings = SessionSettings(role=role, inherited=self._children.settings().sandbox, child=bound)
        child = settings.grant(self._services.rights)
        store, worker, by = self._services.store, self._services.worker, self._services.by.uid
        rows = await worker(partial(store.rules, uid=by))
        folder = await in_thread(folder_identity, self._services.workspace)
        rules = [row.rule for row in rows if row.rule.scope is not RuleScope.SESSION]
        rules = [rule for rule in rules if not why_not_here(rule, folder=folder, scopes=child.rule_scopes)]
        return child, added_rights(child, grant, remembered=rules).words

    async def _add_file(self, facts: CallFacts, field: str, path: str, grant: Grant) -> CallFacts:
        """Return `facts` with a file of the task, which the turn must be allowed to read without a question."""
        tool = self._services.tools.get(_READING_TOOL) if grant.tool(_READING_TOOL) is not None else None
        if tool is None:
            return with_problem(facts, field, f"needs {_READING_TOOL}, which this role does not have", given=path)
        if '"' in path or "\n" in path:
            return with_problem(facts, field, "has a name that cannot be attached", given=path)
        call = ToolCall(id=self._call_id, name=_READING_TOOL, arguments=canonical({"path": path}))
        context = self._services.contexts(self._id, self._call_id, attempt=1, tool=tool, output=lambda text: None)
        read = await tool.inspect(call, context)
        if read.problems:
            return with_problem(facts, field, read.problems[0].message, given=path)
        judged = grant.judge(_READING_TOOL, read)
        if judged.verdict is not Verdict.ALLOW:
            return with_problem(
                facts, field, f"cannot be given: {_READING_TOOL} of it is not allowed ({judged.why})", given=path
            )
        return replace(facts, paths=(*facts.paths, *read.paths))

    # The turn

    async def run(self, facts: CallFacts, given: Delegated, output: Callable[[str], None]) -> ToolResult:
        """Start the child turn, or continue it, and return its answer. If cancelled, stop it first."""
        await self._create(facts, given)
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
            state = await self._follow(session, given, output)
            if state is not None:
                return self._child_result(given.role, state, state.messages)

    async def _create(self, facts: CallFacts, given: Delegated) -> None:
        """Create the session. One of an earlier attempt is bound by what was revoked since, too.

        Raises ToolFailedError if the rights have changed.
        """
        grant = self._grant
        if grant is None or facts.delegation is None:
            raise ToolFailedError("The rights of the role were not compared.")
        layers = binding(grant)
        if (stored := await self._stored_child()) is not None and self._run_effect is not None:
            # A store that was copied may bring sessions of any name and role.
            if self._run_effect.attempt == 1 or (stored.last_turn is None and stored.role != given.role):
                raise ToolFailedError(f"There is a session {self._id} already, which is not of this task.")
        if stored is None:
            child, words = await self._child_grant(given.role, grant)
            if grant_digest(child, words) != facts.delegation.grant:
                raise ToolFailedError(
                    f"The rights of role {given.role} have changed since they were compared. Try again."
                )
            layers = (*layers, only_tools_of(child))
        store, workspace = self._services.store, str(self._services.workspace)
        create = partial(
            store.create_child,
            self._id,
            workspace=workspace,
            role=given.role,
            binding=ChildBinding(call_id=self._call_id, caller=grant.role, layers=layers),
        )
        await self._services.worker(create)

    async def _follow(self, session: ChildSession, given: Delegated, output: Callable[[str], None]) -> TurnState | None:
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
                await self._start(session, given)
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

    async def _start(self, session: ChildSession, given: Delegated) -> None:
        mentions = " ".join(f'@"{path}"' for path in given.files)
        files = await asyncio.to_thread(self._services.read_files, self._id, mentions) if mentions else ()
        assert self._run_effect is not None
        spending = self._run_effect.spending or Spending()
        beside = self._children.spent_beside(self._call_id, len(spending.earlier))
        await session.start_child(
            given.task,
            files=files,
            reads_workspace=self._run_effect.workspace_read,
            spending=replace(spending, beside=beside),
            budget=self._run_effect.budget,
        )

    async def report(self) -> None:
        """Tell the caller what the user has to know of the child, if that has changed. Returns once it knows."""
        async with self._report_lock:
            if self.session is None:
                return
            report = ChildTurn()  # Another process has taken it over: what it asks is asked there.
            if (state := self.session.state) is not None:
                report = ChildTurn(pending=self.session.pending, paused=turn_status(state) is TurnStatus.PAUSED)
            if report != self._last_report and self._run_effect is not None:
                self._last_report, attempt = report, self._run_effect.attempt
                await self._children.take(ChildInput(call_id=self._call_id, attempt=attempt, child=report))

    # The end

    async def find_or_stop(self) -> Reconciled:
        """Return the result of the child turn if it has ended; stop it if the caller was stopped."""
        info = await self._stored_child()
        if info is None or info.last_turn is None:
            return Reconciled(result=None, repeat=True)
        if info.active_turn == self._turn_id:
            if not self._stopping:
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
        return Reconciled(result=self._child_result(info.role, state, said))

    async def _stored_child(self) -> SessionInfo | None:
        try:
            info = await self._services.worker(self._services.store.session, self._id)
        except NoSuchSessionError:
            return None
        # The id of one child may be the beginning of another's.
        return info if info.id == self._id else None

    def _child_result(self, role: str, state: TurnState | None, messages: Sequence[Message]) -> ToolResult:
        """Return the end of a child turn for the model of the caller. `state` is None if only its messages are left.

        A notice for the child's model after its last reply, as on the changes that were applied, goes to the caller.
        """
        replies = [message for message in messages if isinstance(message, AssistantMessage)]
        rest = messages[messages.index(replies[-1]) + 1 :] if replies else ()
        if state is not None:
            spent = spent_by(state, self._children.state())
            status, answer, usage, duration_ms = (
                turn_status(state),
                answer_so_far(state),
                spent.usage,
                spent.duration_ms,
            )
            detail = state.phase.detail if isinstance(state.phase, Finished) else ""
        else:
            ended = all(isinstance(message, NoticeMessage) for message in rest)
            answered = bool(replies) and ended and not replies[-1].incomplete
            status = TurnStatus.ANSWERED if answered else TurnStatus.FAILED
            answer = next((reply.text for reply in reversed(replies) if reply.text.strip()), "")
            detail = "its turn ended without an answer"
            usage, duration_ms = total(*(reply.usage for reply in replies)), 0
        if status.has_answer:
            outcome, text = Outcome.SUCCESS, answer or f"[{role} gave no answer]"
        else:
            outcome = Outcome.INTERRUPTED if status is TurnStatus.CANCELLED else Outcome.FAILED
            text = f"{role} did not finish: {detail or status.value}" + (f"\nSo far:\n{answer}" if answer else "")
        notices = (message for message in rest if isinstance(message, NoticeMessage) and message.for_model)
        text = "\n\n".join([text, *(f"[{message.to_model or message.text}]" for message in notices)])
        facts = ResultFacts(reads_workspace=any_read_workspace(messages), usage=usage)
        content, truncated = (capped := cap(text, limit=_MAX_ANSWER_CHARS)).text, capped.truncated
        return ToolResult(outcome=outcome, content=content, truncated=truncated, duration_ms=duration_ms, facts=facts)


async def _stop_child(session: ChildSession) -> None:
    await session.stop_turn()
    await session.settle()
