"""Workflows written in Python: the same steps as in a file, with functions as tools and classes as schemas.

A run uses the same application, engine, store and policy as in the UI.
"""

import asyncio
import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, assert_never

from pydantic import BaseModel, ValidationError

from chatops.api.chat import open_app, options_of, run_blocking
from chatops.api.tools import SOURCE, AnyTool, StepKey, ToolRegistry, as_tool
from chatops.config.document import Document, Located
from chatops.config.workflow_read import definition_in
from chatops.domain.decisions import Approved, Decision, Rejected
from chatops.domain.errors import ConfigError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import SessionId
from chatops.engine.state import TurnState
from chatops.engine.workflow.progress import failed_steps
from chatops.engine.workflow.state import (
    AwaitingReview,
    CheckingGate,
    RunFinished,
    RunningStep,
    RunPhase,
    RunResult,
    WorkflowState,
)
from chatops.engine.workflow.view import StepView, run_view
from chatops.headless.report import reasoning_of
from chatops.headless.run import NO_USER
from chatops.policy.registry import RoleSpec
from chatops.policy.workflow import (
    DEFAULT_ATTEMPTS,
    DEFAULT_ITERATIONS,
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TEMPERATURE,
    Definition,
    StepSpec,
    WorkflowSpec,
)
from chatops.runtime.workflow import WorkflowRun
from chatops.toolkit.base import Tool
from chatops.tools.function import FunctionTool
from chatops.wiring.checks import check_to_run
from chatops.wiring.stored import Options, Storage, in_session_workspace, open_store

Validator = AnyTool | Mapping[str, Any]
"""A validator tool; or, as in a file, ``{"tool": …, "subject": {…}, "depends_on": […], "passes_when": …}``."""


@frozen_dataclass(kw_only=False)
class Step:
    """One step. Every field means the same as in a file. It is checked when its `Workflow` is created."""

    name: str
    system_prompt: str
    _: KW_ONLY
    tools: Sequence[AnyTool] | None = ()
    """Functions, or names of existing tools. None: all that the role permits."""
    validation_tools: Sequence[Validator] = ()
    gates: Sequence[Mapping[str, Any]] = ()
    output_schema: Mapping[str, Any] | type[BaseModel] | None = None
    """A JSON Schema, or a class that the result becomes an instance of."""
    role: str = ""
    model: str = ""
    max_iterations: int | Literal["quick", "normal", "complex"] = DEFAULT_ITERATIONS
    max_step_retries: int = DEFAULT_ATTEMPTS
    """Total number of attempts, including the first."""
    temperature: float = DEFAULT_TEMPERATURE
    max_tokens: int = DEFAULT_OUTPUT_TOKENS
    on_fail: Literal["stop", "ask", "go_on"] = "stop"
    may_skip: bool = False
    review: bool = False
    order: Sequence[AnyTool] = ()
    once: Sequence[AnyTool] = ()


class _ProgramTools:
    """The program's tools with the steps that use them, collected while the definition is made."""

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self._own: dict[str, FunctionTool] = {}
        self._made: dict[int, FunctionTool] = {}
        """From the identity of what was given, so that one function is one tool in all steps."""
        self._steps: dict[str, dict[str | None, None]] = {}
        """By the name of a tool, in their order; None: every step."""

    def take(self, given: AnyTool, *, step: str) -> str:
        """Add a tool that `step` names, if it is one of the program. Return its name."""
        if isinstance(given, str):
            return given
        own = self._made.get(id(given)) or as_tool(given)
        self._made[id(given)] = own
        self.add(own, step=step)
        return own.spec.name

    def add(self, own: FunctionTool, *, step: str | None) -> None:
        """Bind a tool to a step; None: to every step. Raises ConfigError if another tool has its name."""
        name = own.spec.name
        if self._own.setdefault(name, own) is not own:
            raise ConfigError(
                f"Workflow {self.workflow}: two tools are called {name}.", advice="Name one otherwise: tool(name=…)."
            )
        self._steps.setdefault(name, {})[step] = None

    def bound(self) -> tuple[Tool, ...]:
        """Return all tools, with the steps that they are bound to in their specs."""
        bindings = {
            name: () if None in steps else tuple(f"{self.workflow}.{step}" for step in steps)
            for name, steps in self._steps.items()
        }
        return tuple(replace(own, spec=replace(own.spec, steps=bindings[name])) for name, own in self._own.items())


def _step_entry(step: Step, tools: _ProgramTools) -> dict[str, Any]:
    """Return the step as a file would have it, and add its functions to `tools`."""

    def names(given: Sequence[AnyTool]) -> list[str]:
        return [tools.take(tool, step=step.name) for tool in given]

    def validation(given: Validator) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            return {"tool": tools.take(given, step=step.name)}
        entry: dict[str, Any] = {
            key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()
        }
        if "tool" in entry:
            entry["tool"] = tools.take(entry["tool"], step=step.name)
        if entry.get("depends_on") is not None:
            entry["depends_on"] = names(entry["depends_on"])
        return entry

    if isinstance(step.output_schema, type):
        schema: Mapping[str, Any] | None = step.output_schema.model_json_schema()
    else:
        schema = None if step.output_schema is None else dict(step.output_schema)
    return {
        "name": step.name,
        "system_prompt": step.system_prompt,
        "role": step.role,
        "model": step.model,
        "tools": None if step.tools is None else names(step.tools),
        "validation_tools": [validation(tool) for tool in step.validation_tools],
        "gates": [dict(gate) for gate in step.gates],
        "output_schema": schema,
        "max_iterations": step.max_iterations,
        "max_step_retries": step.max_step_retries,
        "temperature": step.temperature,
        "max_tokens": step.max_tokens,
        "on_fail": step.on_fail,
        "may_skip": step.may_skip,
        "review": step.review,
        "order": names(step.order),
        "once": names(step.once),
    }


def _add_registered(registry: ToolRegistry, entries: Sequence[dict[str, Any]], tools: _ProgramTools) -> None:
    """Bind the registered tools to their steps, and name each in the `entries` of these, as a file would."""
    names = [str(entry["name"]) for entry in entries]
    for own, keys in registry.entries():
        wanted = [_find_step(key, names, workflow=tools.workflow, tool=own.spec.name) for key in keys] or names
        for entry in entries:
            if entry["name"] not in wanted:
                continue
            tools.add(own, step=str(entry["name"]) if keys else None)
            if entry["tools"] is not None and own.spec.name not in entry["tools"]:
                entry["tools"].append(own.spec.name)


def _find_step(key: StepKey, names: Sequence[str], *, workflow: str, tool: str) -> str:
    """Return the step that a registration means; empty if it means another workflow."""
    if isinstance(key, int):
        if 1 <= key <= len(names):
            return names[key - 1]
        raise ConfigError(
            f"Tool {tool} is registered for step {key}, and workflow {workflow} has {len(names)}.",
            advice="Steps are counted from 1.",
        )
    other, dot, step = key.rpartition(".")
    if dot and other != workflow:
        return ""
    if step in names:
        return step
    near = get_close_matches(step, names, n=1)
    raise ConfigError(
        f"Tool {tool} is registered for step {step!r}, which workflow {workflow} does not have.",
        advice=f"Did you mean {near[0]!r}?" if near else f"Its steps: {', '.join(names)}.",
    )


def _parse_spec(name: str, value: dict[str, Any]) -> WorkflowSpec:
    document = Document(
        located=Located(value=None, places={}), source=f"Workflow {name}", advice="Correct its definition."
    )
    try:
        definition = definition_in(document, value, name=name)
    except TypeError as error:
        # What no file can hold.
        raise document.error((), str(error)) from None
    return replace(definition.spec, source=SOURCE)


ROLE = RoleSpec(name="python")
"""The role of a run that names none. It lists no tools, so each step's own list narrows; models as the default role."""

ACCEPTED = "accepted"
REFUSED = "the program that runs this workflow does not permit it"

_Classes = Mapping[str, type[BaseModel]]
"""Class of each step's result, by step name."""
ApprovalPolicy = Literal["pause", "deny"] | Callable[[PendingCall], bool | str | None]
"""Answer to a call that no rule answers."""


@frozen_dataclass
class StepReport:
    """State of a step."""

    name: str
    status: str
    """``accepted``, ``failed``, ``skipped``, ``open`` (started and not over), or ``not begun``."""
    result: Any = None
    """The step's result: the value of its answer, or an instance of the class that is its output_schema."""
    reasoning: str = ""
    """The reason that the model gives for its answer."""
    attempts: int = 0
    """Attempts so far, including the current one."""
    detail: str = ""
    """Reason that it failed, or that its last attempt was not accepted."""


@frozen_dataclass
class WorkflowResult:
    """Result of a run, or its state if it needs the user."""

    success: bool
    """True if the run ended and every step gave a result."""
    result: Any
    """Result of the last step that gave one; None unless the run ended with an answer."""
    steps: tuple[StepReport, ...]
    failed_steps: tuple[str, ...] = ()
    """Names of the steps that the run passed over: failed with ``on_fail: go_on``, or skipped by the user."""
    pending: tuple[PendingCall, ...] = ()
    """Calls that wait for a decision: ``chatops approvals``, then `Workflow.resume`."""
    review: str = ""
    """Name of the step that the user has to review before the run continues."""
    session_id: str = ""
    detail: str = ""
    """Reason that it did not succeed; empty if it did."""


async def _decide_calls(run: WorkflowRun, waiting: tuple[PendingCall, ...], on_approval: ApprovalPolicy) -> bool:
    """Return True if at least one call was decided."""
    is_decided = False
    for pending in waiting:
        decision = await _ask_policy(pending, on_approval)
        if decision is not None:
            is_decided |= await run.session.decide(pending.call.id, digest=pending.digest, decision=decision)
    return is_decided


async def _ask_policy(pending: PendingCall, on_approval: ApprovalPolicy) -> Decision | None:
    """Return the program's decision; None leaves the call to the user."""
    if on_approval == "pause":
        return None
    if on_approval == "deny":
        return Rejected(reason=NO_USER)
    # In a thread, because it may ask a user and wait.
    answer = await asyncio.to_thread(on_approval, pending)
    match answer:
        case True:
            # If a call may have taken effect before a crash, a user must look, not a rule.
            return None if pending.outcome_unknown else Approved()
        case False:
            return Rejected(reason=REFUSED)
        case str():
            return Rejected(reason=answer)
        case None:
            return None
        case _:
            raise TypeError(f"on_approval has to give True, False, a reason or None, not {answer!r}")


def _make_result(
    state: WorkflowState, turns: tuple[TurnState, ...], classes: _Classes, *, pending: tuple[PendingCall, ...]
) -> WorkflowResult:
    steps = tuple(
        _make_report(view, state.spec.step(index), reasoning_of(state, index, turns), classes.get(view.name))
        for index, view in enumerate(run_view(state, turns).steps)
    )
    phase = state.phase
    given = [step for step in steps if step.status == ACCEPTED]
    answered = isinstance(phase, RunFinished) and phase.result is RunResult.ANSWERED
    # An answer may fit the schema and still not be accepted by the class. A run that answered has a step that did.
    unfit = given[-1].detail if answered else ""
    failed = failed_steps(state)
    return WorkflowResult(
        success=answered and not unfit and not failed,
        result=given[-1].result if answered and not unfit else None,
        steps=steps,
        failed_steps=failed,
        pending=pending,
        review=state.spec.step(phase.step).name if isinstance(phase, AwaitingReview) else "",
        session_id=state.session_id,
        detail=unfit or _why_no_success(phase, pending),
    )


def _why_no_success(phase: RunPhase, pending: tuple[PendingCall, ...]) -> str:
    match phase:
        case RunFinished(detail=detail):
            return detail
        case AwaitingReview(reason=reason, detail=detail):
            return f"It needs a review ({reason.value}). {detail}".strip()
        case RunningStep() | CheckingGate():
            tools = ", ".join(call.call.name for call in pending)
            return f"Calls wait for approval: {tools}." if pending else "It was stopped."
        case _ as never:
            assert_never(never)


def _make_report(view: StepView, spec: StepSpec, reasoning: str, kind: type[BaseModel] | None) -> StepReport:
    known = StepReport(name=view.name, status="open", attempts=view.attempt, detail=view.detail, reasoning=reasoning)
    match view.status:
        case "answered":
            return _with_answer(replace(known, status=ACCEPTED, detail=""), view.output, spec, kind)
        case "skipped":
            return replace(known, status="skipped")
        case "failed" | "cancelled" if view.attempt:
            return replace(known, status="failed")
        case "failed" | "cancelled" | "pending":
            return replace(known, status="not begun")
        case _:
            return known


def _with_answer(known: StepReport, text: str, step: StepSpec, kind: type[BaseModel] | None) -> StepReport:
    """Add a step's answer as a value, and as `detail` why it is not an instance of the requested class.

    Without a schema only an object or a list is taken for JSON: any other text is the answer itself.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return replace(known, result=text)
    if kind is None:
        is_json = step.output_schema or isinstance(value, dict | list)
        return replace(known, result=value if is_json else text)
    try:
        return replace(known, result=kind.model_validate_json(text))
    except ValidationError as error:
        unfit = f"The result of step {step.name} is not a {kind.__name__}: {error}"
        return replace(known, result=value, detail=unfit)


class Workflow:
    """A workflow: steps in the order in which they run, with their tools."""

    def __init__(
        self, name: str, steps: Sequence[Step], *, description: str = "", tools: ToolRegistry | None = None
    ) -> None:
        """Check and assemble the workflow. `tools` adds to each step those that belong to it.

        Raises ConfigError for errors that do not depend on where it runs.
        """
        own = _ProgramTools(name)
        entries = [_step_entry(step, own) for step in steps]
        if tools is not None:
            _add_registered(tools, entries, own)
        self.spec = _parse_spec(name, {"description": description, "steps": entries})
        """The workflow as a definition in a file would say it."""
        self._tools = own.bound()
        self._classes = {step.name: schema for step in steps if isinstance(schema := step.output_schema, type)}

    def run(
        self,
        query: str,
        *,
        model: str = "",
        role: str = "",
        registry: str | Path | None = None,
        workspace: str | Path | None = None,
        approve: Sequence[str] = (),
        on_approval: ApprovalPolicy = "pause",
    ) -> WorkflowResult:
        """Run the workflow for `query` and wait. Rights, approvals and storage are the same as on the command line.

        Without a `role`, the run has one that lists no tools, with the models of the default role. The `tools` of any
        other role have to name the functions too. `approve` are rules as of ``--approve``. `on_approval` says what
        happens to a call that no rule answers: ``pause`` (the run stops there, `resume` continues it), ``deny``, or a
        function that gets the `PendingCall` and returns True, False, a reason for the model, or None to leave it
        pending.

        Raises ChatopsError.
        """
        options = options_of(registry, workspace, role=role, model=model, approve=approve)
        work = self._start(query, options, on_approval)
        return run_blocking(work, instead="await asyncio.to_thread(workflow.run, …)")

    def resume(
        self,
        session_id: str,
        *,
        registry: str | Path | None = None,
        workspace: str | Path | None = None,
        approve: Sequence[str] = (),
        on_approval: ApprovalPolicy = "pause",
    ) -> WorkflowResult:
        """Resume a run that paused or crashed, with the decisions made in the meantime (``chatops approvals``).

        Its steps are as they were when it started. Raises ChatopsError.
        """
        options = options_of(registry, workspace, role="", model="", approve=approve)
        work = self._resume(SessionId(session_id), options, on_approval)
        return run_blocking(work, instead="await asyncio.to_thread(workflow.resume, …)")

    async def _start(self, query: str, options: Options, on_approval: ApprovalPolicy) -> WorkflowResult:
        async with open_app(options, tools=self._tools, role=ROLE) as app:
            role = options.role or ROLE.name
            checked = await check_to_run(app, Definition(spec=self.spec), role=role)
            checked.or_raise()
            for warning in checked.warnings:
                warnings.warn(warning, stacklevel=1)
            run = await app.new_run(self.spec, query, attended=False, role=role)
            return await self._run_to_pause(run, on_approval)

    async def _resume(self, session_id: SessionId, options: Options, on_approval: ApprovalPolicy) -> WorkflowResult:
        # The run continues in its own folder: what was approved there must not run in another one.
        with open_store(Storage.READ, registry=options.registry) as store:
            options = in_session_workspace(options, store.session(session_id))
        async with open_app(options, tools=self._tools, role=ROLE) as app:
            run = await app.open_run(session_id, attended=False)
            if run.state.spec.name != self.spec.name:
                raise ConfigError(
                    f"{session_id} is a run of workflow {run.state.spec.name}, not of {self.spec.name}.",
                    advice=f"Resume it with the workflow it belongs to, or: chatops resume {session_id}",
                )
            return await self._run_to_pause(run, on_approval)

    async def _run_to_pause(self, run: WorkflowRun, on_approval: ApprovalPolicy) -> WorkflowResult:
        """Run until the run is over or waits for the user. Raises the error that blocks it, if any."""
        await run.resume()
        state = await run.settle()
        while (waiting := run.session.pending) and await _decide_calls(run, waiting, on_approval):
            state = await run.settle()
        if run.blocked_by is not None:
            raise run.blocked_by
        return _make_result(state, await run.turns(), self._classes, pending=run.session.pending)
