"""Performer of effects: asks models, inspects and runs tools, and delivers the outcomes as inputs.

Theory of operation

The engine decides, the performer acts. Every effect runs in a task of its own, so `perform` never waits. A task is
named after its round or call, which is how AbortModel and CancelTool find the task to cancel.

A started effect ends with one input for the runner. Exceptions of models and tools become inputs as well: a failed
reply, a problem of the call, a failed result. There are two exceptions. A cancelled model call delivers nothing,
because the CancelTurn input already carries what was streamed (`partial`). A tool that is not started because
another process owns the session delivers nothing either.

A tool starts only after three checks. Its intent is committed before the runner passes the effect on. Right before the
start `is_narrowed` looks whether the user has taken away rights in another process, and `holds_lease` asks the store
for the lease: this process may have been suspended in between. While the store cannot be read for now, the tool waits;
otherwise it does not start.

A cancelled tool still has a result (`run_attempt`): the outcome is unknown if it is not known whether it took effect.
A tool that does not stop is abandoned: neither the turn nor the end of the program waits for it.

Once closed, the performer starts and delivers nothing: the next process resumes from the stored state.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from enum import Enum, auto
from typing import assert_never

from chatops.config.failpoints import reach
from chatops.domain.decisions import Answer, AnswerAction, RememberedRule, ServerQuestion
from chatops.domain.errors import StoreError, ToolError
from chatops.domain.events import Event, ToolOutput
from chatops.domain.ids import CallId, SessionId, round_of
from chatops.domain.known_keys import without_keys
from chatops.domain.model import ModelRequest
from chatops.domain.tools import CallFacts, Outcome, Problem, ResultFacts, ToolCall, ToolResult, ToolSpec
from chatops.domain.wording import describe_error
from chatops.engine import feedback
from chatops.engine.contract import AnswerFacts
from chatops.engine.effects import (
    AbortModel,
    CallModel,
    CancelTool,
    CheckAnswer,
    DeliverAnswer,
    DiscardCopy,
    Effect,
    InspectCall,
    ReconcileTool,
    RunTool,
    ToolEffect,
)
from chatops.engine.inputs import (
    AnswerCheckInput,
    Input,
    InspectionInput,
    QuestionInput,
    QuestionWithdrawnInput,
    ReconcileInput,
    ToolResultInput,
)
from chatops.runtime.delegation import ChildOfCall, Children
from chatops.runtime.model_call import ModelCall, PartialReply
from chatops.runtime.services import (
    Services,
    is_workspace_gone,
    progress_publisher,
    retry_while_away,
    workspace_gone_text,
)
from chatops.store.audit import SinkError
from chatops.toolkit.base import Ask, Tool, ToolContext, inspect_call, with_limit_paused
from chatops.toolkit.counting import shown_by
from chatops.toolkit.output import cap
from chatops.toolkit.threads import in_thread

log = logging.getLogger(__name__)

DISCARD_S = 1.0
"""Seconds to wait at the end for the removal of a copy."""
INSPECT_S = 30.0
"""Seconds after which an inspection has failed: the user waits for it before each question."""
MAX_QUESTIONS = 20
"""Maximum number of questions of one call. Further ones are declined."""


class _Blocker(Enum):
    """Change by another process, since the intent of a call was stored, that keeps its tool from starting."""

    NARROWED = auto()
    """The user has taken away rights there."""
    OTHER_OWNER = auto()
    """It took over the session while this process was suspended, and asks the user about the call itself."""


class Performer:
    """Runs one task per effect. `deliver` takes the resulting input, `publish` the events until then.

    Right before a tool starts, `is_narrowed` returns True if rights were taken away since a time (`time.monotonic`),
    and `holds_lease` if this process still holds the session's lease. If one raises StoreError, it does not start:
    see `retry_while_away`.
    """

    def __init__(
        self,
        services: Services,
        *,
        session_id: Callable[[], SessionId],
        holds_lease: Callable[[], Awaitable[bool]],
        is_narrowed: Callable[[float], Awaitable[bool]],
        deliver: Callable[[Input], None],
        publish: Callable[[Event], None],
        children: Children,
    ) -> None:
        self._services = services
        self._children = children
        self._session_id = session_id
        self._holds_lease, self._is_narrowed = holds_lease, is_narrowed
        self._deliver = deliver
        self._publish = publish
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._discarding: set[asyncio.Task[None]] = set()
        """Those tasks that remove copies of contained turns."""
        self._closed = False
        # Not `_deliver` itself, which `aclose` replaces.
        self._questions = Questions(lambda asked: self._deliver(asked))
        self._model_call: ModelCall | None = None
        """The model call that was started last."""

    def perform(self, effect: Effect) -> None:
        """Start to perform `effect`, without waiting for it."""
        if self._closed:
            # The step was still being stored when the session was closed. The next process resumes from there.
            return
        match effect:
            case CallModel(round_id=round_id, request=request):
                self._model_call = ModelCall(round_id, self._publish)
                self._start_task(round_id, self._ask_model(self._model_call, request))
            case CheckAnswer(round_id=round_id):
                self._start_task(f"{round_id}.check", self._check_answer(effect))
            case InspectCall():
                self._start_task(f"{effect.call.id}.inspect", self._inspect_call(effect))
            case RunTool():
                self._start_task(effect.call.id, self._run_tool(effect))
            case ReconcileTool():
                self._start_task(f"{effect.call.id}.reconcile", self._reconcile(effect))
            case DeliverAnswer(call_id=call_id, question_id=question_id, answer=answer):
                self._questions.answer(call_id, question_id, answer)
            case DiscardCopy(name=name):
                self._discarding.add(self._start_task(f"{name}.discard", self._discard_copy(name)))
            case AbortModel(round_id=round_id):
                self._cancel_task(round_id)
            case CancelTool(call_id=call_id):
                self._cancel_task(call_id)
            case _ as never:
                assert_never(never)

    def partial(self) -> PartialReply:
        """Return what has streamed of the current reply."""
        return self._model_call.partial() if self._model_call is not None else PartialReply()

    async def aclose(self) -> None:
        """Stop all tasks and wait until they have stopped. Afterwards nothing is started or delivered."""
        self._closed = self._children.closed = True
        self._deliver = lambda turn_input: None
        tasks = list(self._tasks.values())
        if self._discarding:
            # What is not removed now is removed at a later start.
            await asyncio.wait(self._discarding, timeout=DISCARD_S)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_task(self, key: str, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=key)
        self._tasks[key] = task

        def done(ended: asyncio.Task[None]) -> None:
            if self._tasks.get(key) is ended:
                del self._tasks[key]
            self._discarding.discard(ended)
            if not ended.cancelled() and (error := ended.exception()) is not None:
                log.error("performing %s failed", key, exc_info=error)

        task.add_done_callback(done)
        return task

    def _cancel_task(self, key: str) -> None:
        if (task := self._tasks.get(key)) is not None:
            task.cancel()

    async def _ask_model(self, call: ModelCall, request: ModelRequest) -> None:
        self._deliver(await call.run(self._services.models, request))

    async def _check_answer(self, effect: CheckAnswer) -> None:
        from chatops.tools.answers import read_answer  # only steps need its pydantic and schema reader

        try:
            facts = await in_thread(read_answer, effect.text, schema=effect.schema, patterns=effect.patterns)
        except Exception as error:
            log.exception("checking an answer failed")
            problem = Problem(path="", message=f"it could not be checked ({describe_error(error)})")
            facts = AnswerFacts(problems=(problem,))
        self._deliver(AnswerCheckInput(round_id=effect.round_id, facts=facts))

    async def _inspect_call(self, effect: InspectCall) -> None:
        call, contained = effect.call, effect.contained
        tool = self._find_tool(call.name, contained)
        if tool is None:
            missing = Problem(path="", message="this tool no longer exists")
            facts = CallFacts(arguments=call.arguments, problems=(missing,))
        else:
            with shown_by(progress_publisher(call.id, self._publish)):
                facts = replace(await self._find_facts(tool, effect), contained=contained)
        # The inspection may have noticed a changed registry. Yield once, so that the turn gets that input first.
        await asyncio.sleep(0)
        reach("after_inspect")
        self._deliver(InspectionInput(call_id=call.id, facts=facts, rules=await self._read_rules(call)))

    async def _read_rules(self, call: ToolCall) -> tuple[RememberedRule, ...]:
        """Return this user's rules about the tool of a call, as stored now. If they cannot be read, there are none."""
        store, worker, by = self._services.store, self._services.worker, self._services.by.uid
        try:
            rows = await worker(store.rules, session_id=self._session_id(), uid=by, tool=call.name)
        except StoreError:
            log.exception("remembered rules could not be read")
            return ()
        # A rule of a version that did not store its user answers for the user of this session.
        return tuple(row.rule if row.rule.uid is not None else replace(row.rule, uid=by) for row in rows)

    async def _find_facts(self, tool: Tool, effect: InspectCall) -> CallFacts:
        call = effect.call
        context = self._make_context(effect, tool)
        context = replace(context, sandbox=effect.sandbox, ceiling=effect.ceiling, contained=effect.contained)
        try:
            async with asyncio.timeout(INSPECT_S):
                facts = await inspect_call(tool, call, context)
        except Exception as error:
            log.exception("inspecting %s failed", call.name)
            problem = Problem(path="", message=f"it could not be inspected ({describe_error(error)})")
            facts = CallFacts(arguments=call.arguments, problems=(problem,))
        if not facts.folder and await in_thread(is_workspace_gone, context.workspace):
            return CallFacts(arguments=call.arguments, refusal=workspace_gone_text(context.workspace))
        return facts

    async def _run_tool(self, effect: RunTool) -> None:
        call, attempt = effect.call, effect.attempt
        began = time.monotonic()
        reach("before_tool")
        try:
            blocker = await retry_while_away(lambda: self._find_blocker(began), call.id, self._publish)
        except StoreError as error:
            why = "" if isinstance(error, SinkError) else "the session store could not be read. "
            result = ToolResult(outcome=Outcome.FAILED, content=f"Not run: {why}{error}")
        except asyncio.CancelledError:
            # The turn waits for the result of a cancelled call, even if the tool has not started.
            result = ToolResult(outcome=Outcome.INTERRUPTED, content=feedback.STOPPED)
        else:
            if blocker is _Blocker.OTHER_OWNER:
                log.warning("%s was not started: another process owns the session", call.id)
                return
            result = feedback.NARROWED if blocker is _Blocker.NARROWED else await self._run_permitted(effect)
            reach("after_tool")
        worked_s = time.monotonic() - began - self._questions.forget_wait(call.id)
        if not result.duration_ms:
            result = replace(result, duration_ms=round(worked_s * 1000))
        self._deliver(ToolResultInput(call_id=call.id, attempt=attempt, result=result))

    async def _find_blocker(self, began: float) -> "_Blocker | None":
        """Return what keeps the tool of an effect that arrived at `began` from starting; None if nothing does."""
        await self._services.send_head(self._session_id())
        narrowed = await self._is_narrowed(began)
        if not await self._holds_lease():
            return _Blocker.OTHER_OWNER
        return _Blocker.NARROWED if narrowed else None

    async def _run_permitted(self, effect: RunTool) -> ToolResult:
        call, contained = effect.call, effect.facts.contained
        tool = self._find_tool(call.name, contained)
        if tool is None:
            return ToolResult(outcome=Outcome.FAILED, content=f"{call.name} no longer exists")

        def output(text: str) -> None:
            self._publish(ToolOutput(id=call.id, parent_id=round_of(call.id), text=text))

        context = self._make_context(effect, tool, output)
        context = replace(context, exposure=effect.exposure, sandbox=effect.sandbox, contained=contained)
        if self._services.attended:
            context = replace(context, ask=self._questions.ask_function(call.id, effect.attempt))
        try:
            with shown_by(progress_publisher(call.id, self._publish)):
                result = await run_attempt(tool, effect.facts, context)
                return replace(result, content=without_keys(result.content))
        finally:
            self._questions.end(call.id)

    async def _reconcile(self, effect: ReconcileTool) -> None:
        call, contained = effect.call, effect.facts.contained
        tool = self._find_tool(call.name, contained)
        found = ReconcileInput(call_id=call.id, attempt=effect.attempt, result=None)
        if tool is not None:
            context = replace(self._make_context(effect, tool), contained=contained)
            try:
                answer = await tool.reconcile(effect.facts, context)
                found = replace(found, result=answer.result, repeat=answer.repeat, found=answer.found)
            except Exception:
                log.exception("reconciling %s failed", call.name)
        reach("after_reconcile")
        self._deliver(found)

    def _find_tool(self, name: str, contained: str) -> Tool | None:
        """Return the tool of a call; in a contained turn, the one that works on its copy."""
        tool = self._services.tools.get(name)
        if not contained:
            return tool
        return self._services.contained().tool(name, tool)

    async def _discard_copy(self, name: str) -> None:
        await in_thread(self._services.contained().discard, name)

    def _make_context(
        self, effect: ToolEffect, tool: Tool, output: Callable[[str], None] = lambda text: None
    ) -> ToolContext:
        attempt = 1 if isinstance(effect, InspectCall) else effect.attempt
        context = self._services.contexts(self._session_id(), effect.call.id, attempt=attempt, tool=tool, output=output)
        return replace(context, child=ChildOfCall(self._children, effect))


class Questions:
    """Questions of servers whose calls run here, by call: each waits for the answer that the turn delivers."""

    def __init__(self, deliver: Callable[[QuestionInput | QuestionWithdrawnInput], None]) -> None:
        self._deliver = deliver
        self._open: dict[CallId, tuple[str, asyncio.Future[Answer]]] = {}
        self._waited: dict[CallId, float] = {}
        """Seconds in which a call waited for the user. They are no time of its tool."""

    def ask_function(self, call_id: CallId, attempt: int) -> Ask:
        """Return a function that asks the user on behalf of one attempt at a call."""
        asked = 0

        async def ask(question: ServerQuestion) -> Answer:
            nonlocal asked
            asked += 1
            if asked > MAX_QUESTIONS:
                return Answer(action=AnswerAction.DECLINE)
            question_id = f"{call_id}.{attempt}.q{asked}"
            answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
            self._open[call_id] = (question_id, answer)
            self._deliver(QuestionInput(call_id=call_id, attempt=attempt, question=replace(question, id=question_id)))
            asked_at = time.monotonic()
            try:
                return await answer
            except asyncio.CancelledError:
                self._deliver(QuestionWithdrawnInput(call_id=call_id, question_id=question_id))
                raise
            finally:
                self._waited[call_id] = self._waited.get(call_id, 0.0) + time.monotonic() - asked_at

        return ask

    def answer(self, call_id: CallId, question_id: str, answer: Answer) -> None:
        """Give a call the answer, which is stored by now."""
        open_id, waiting = self._open.get(call_id, ("", None))
        if open_id == question_id and waiting is not None and not waiting.done():
            waiting.set_result(answer)

    def forget_wait(self, call_id: CallId) -> float:
        """Return how many seconds a call that is over has waited for the user, and forget it."""
        return self._waited.pop(call_id, 0.0)

    def end(self, call_id: CallId) -> None:
        """Answer that there is no answer: the call is over. Its server may still wait in a task of the connection."""
        _, waiting = self._open.pop(call_id, ("", None))
        if waiting is not None and not waiting.done():
            waiting.set_result(Answer(action=AnswerAction.CANCEL))


GRACE_S = 5.0
"""Seconds that a tool may take beyond its own limit before the runtime stops it."""
STOP_S = 1.8
"""Seconds to wait for a tool after it was asked to stop; twice as long for a child turn, whose tools stop first."""
STOPPED_BY_USER = "Stopped by the user while it ran."

_MAX_KEPT_CHARS = 4_000
"""Characters of output kept in the result of a stopped call."""


async def run_attempt(tool: Tool, facts: CallFacts, context: ToolContext) -> ToolResult:
    """Run `tool` and return its result. Never raises.

    If cancelled, it stops the tool and returns the result all the same, with the output so far.
    """
    output = _OutputTail(context)
    began = time.monotonic()
    clock = asyncio.timeout(context.timeout_s + GRACE_S)
    ask = None if context.ask is None else with_limit_paused(context.ask, clock)
    work = asyncio.ensure_future(tool.run(facts, replace(context, output=output.add, ask=ask)))
    stop_requested = False
    try:
        async with clock:
            await asyncio.wait({work})
    except TimeoutError:
        pass
    except asyncio.CancelledError:
        stop_requested = True
    if work.done():
        return _result_of(tool.spec, work)
    work.cancel()
    try:
        await asyncio.wait({work}, timeout=STOP_S * (2 if tool.spec.capabilities.delegates else 1))
    except asyncio.CancelledError:
        stop_requested = True
    if _ended_by_itself(work):
        return _result_of(tool.spec, work)
    work.add_done_callback(_log_end)
    if not work.done():
        log.warning("%s does not stop; it is abandoned", tool.spec.name)
    took_s = time.monotonic() - began
    stopped = STOPPED_BY_USER if stop_requested else f"Stopped after {took_s:.0f} s: it took too long."
    outcome = Outcome.INTERRUPTED if stop_requested else Outcome.FAILED
    is_repeatable = tool.spec.read_only or tool.spec.idempotent
    obeyed_user = stop_requested and work.cancelled()
    if not is_repeatable and not obeyed_user:
        # The tool may still be running, as a thread does, or was half-way when its time was over.
        outcome, stopped = Outcome.UNKNOWN, f"{stopped} It is not known whether it took effect."
    so_far = output.text()
    content = f"{stopped}\nOutput so far:\n{so_far}" if so_far else stopped
    return ToolResult(outcome=outcome, content=content, facts=ResultFacts(so_far=len(so_far)))


class _OutputTail:
    """Passes output on and keeps the end of it."""

    def __init__(self, context: ToolContext) -> None:
        self._show = context.output
        self._last = ""

    def add(self, text: str) -> None:
        self._last = (self._last + text)[-2 * _MAX_KEPT_CHARS :]
        self._show(without_keys(text))

    def text(self) -> str:
        return cap(self._last, limit=_MAX_KEPT_CHARS).text if self._last.strip() else ""


def _ended_by_itself(work: "asyncio.Future[ToolResult]") -> bool:
    return work.done() and not work.cancelled() and work.exception() is None


def _log_end(work: "asyncio.Future[ToolResult]") -> None:
    """Log how an abandoned tool ended; its result is not used."""
    if not work.cancelled() and (error := work.exception()) is not None:
        log.info("a tool that was stopped ended with %s", type(error).__name__)


def _result_of(spec: ToolSpec, work: "asyncio.Future[ToolResult]") -> ToolResult:
    try:
        return work.result()
    except asyncio.CancelledError:
        return ToolResult(outcome=Outcome.FAILED, content="Tool execution failed: it was cancelled from inside.")
    except ToolError as error:
        return ToolResult(outcome=Outcome.FAILED, content=describe_error(error))
    except Exception as error:
        log.exception("%s failed", spec.name)
        return ToolResult(outcome=Outcome.FAILED, content=f"Tool execution failed: {describe_error(error)}")
