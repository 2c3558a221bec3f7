"""Checks of a workflow before it runs. Pure, over the definition and what exists here.

An error means that the run could not do what was written (or would do something else), so it does not start. A warning
is a doubt. Keys are those of a definition in a file.
"""

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from enum import StrEnum

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN, ToolSpec, Verdict
from chatops.policy.grant import Grant
from chatops.policy.registry_checks import MAX_TOOLS
from chatops.policy.spelled import MAX_ROUNDS
from chatops.policy.workflow import (
    SHELL_TOOL,
    CommandGate,
    Keys,
    PassesWhen,
    PatternGate,
    StepPlace,
    StepSpec,
    Validation,
    WorkflowSpec,
    belongs,
)

MAX_ATTEMPTS = 20
"""Attempts at a step. A step that needs more is not told well enough what to do."""
MAX_TEMPERATURE = 2.0
"""The highest that servers take."""
_STEP_NAME = re.compile(r"[^\s./](?:[^./\x00-\x1f\x7f]{0,78}[^\s./])?")
_WORKFLOW_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,79}")
_POINTER = re.compile(r"(?:/(?:[^~/]|~[01])*)*")


class ProblemSeverity(StrEnum):
    """Severity of a problem."""

    ERROR = "error"
    """The run does not start."""
    WARNING = "warning"


@frozen_dataclass
class WorkflowProblem:
    """One problem of a definition. `message` has no full stop."""

    keys: Keys
    message: str
    severity: ProblemSeverity = ProblemSeverity.ERROR


@frozen_dataclass
class Known:
    """Tools, roles, models and grants that exist here."""

    tools: Sequence[ToolSpec]
    roles: Sequence[str]
    models: Sequence[str]
    absent: Collection[str] = ()
    """Tools that exist but cannot run here."""
    grants: Sequence[Grant | None] = ()
    """For each step the grant of its role in that step, before the step's own list; None: the role is unknown. Empty:
    check only the definition, not rights and not what a listed tool lacks here."""


def check_workflow(
    spec: WorkflowSpec, *, known: Known, schema_fault: Callable[[str], WorkflowProblem | None]
) -> tuple[WorkflowProblem, ...]:
    """Return all problems, in the order of the definition.

    `schema_fault` returns the problem of a JSON Schema text, if any.
    """
    problems: list[WorkflowProblem] = []
    if fault := workflow_name_fault(spec.name):
        problems.append(WorkflowProblem(keys=(), message=fault))
    if not spec.steps:
        problems.append(WorkflowProblem(keys=("steps",), message="there is no step"))
    names = [step.name for step in spec.steps]
    for index, step in enumerate(spec.steps):
        keys: Keys = ("steps", index)
        if step.name in names[:index]:
            problems.append(WorkflowProblem(keys=(*keys, "name"), message=f"a step before is called {step.name!r} too"))
        grant = known.grants[index] if known.grants else None
        checks = _StepChecks(step, at=StepPlace(workflow=spec.name, step=step.name), known=known, grant=grant)
        of_step = (*checks.problems(), *_schema_problems(step, schema_fault))
        problems.extend(replace(problem, keys=(*keys, *problem.keys)) for problem in of_step)
    return tuple(problems)


def workflow_name_fault(name: str) -> str:
    """Return the problem with a workflow's name; empty if there is none."""
    if _WORKFLOW_NAME.fullmatch(name):
        return ""
    return f"{name!r} is not a valid workflow name: letters, digits, - and _, at most 80"


def step_name_fault(name: str) -> str:
    """Return the problem with a step's name; empty if there is none.

    A name has no dot, because a dot separates workflow and step where a tool is bound to one.
    """
    if _STEP_NAME.fullmatch(name):
        return ""
    return f"{name!r} is not a valid step name: one line of at most 80 characters, no dot or slash, no space at an end"


def _schema_problems(step: StepSpec, fault: Callable[[str], WorkflowProblem | None]) -> Iterator[WorkflowProblem]:
    problem = fault(step.output_schema) if step.output_schema else None
    if problem is not None:
        yield replace(problem, keys=("output_schema", *problem.keys))


class _StepChecks:
    """The checks of one step. Keys start at the step."""

    def __init__(self, step: StepSpec, *, at: StepPlace, known: Known, grant: Grant | None) -> None:
        self.step = step
        self.at = at
        self.known = known
        self.grant = grant
        self.tools = {spec.name: spec for spec in known.tools}

    def problems(self) -> Iterator[WorkflowProblem]:
        yield from self._check_limits()
        yield from self._check_role_and_model()
        yield from self._check_listed_tools()
        for index, validation in enumerate(self.step.validations):
            yield from self._check_validation(validation, index)
        yield from self._check_circles()
        yield from self._check_gates()
        yield from self._check_order()
        yield from self._check_once()

    def _check_limits(self) -> Iterator[WorkflowProblem]:
        step = self.step
        if fault := step_name_fault(step.name):
            yield WorkflowProblem(keys=("name",), message=fault)
        if not step.system_prompt.strip():
            yield WorkflowProblem(keys=("system_prompt",), message="the step is not told what to do")
        limits: tuple[tuple[str, float, float, float], ...] = (
            ("max_iterations", step.max_iterations, 1, MAX_ROUNDS),
            ("max_step_retries", step.max_attempts, 1, MAX_ATTEMPTS),
            ("temperature", step.temperature, 0, MAX_TEMPERATURE),
        )
        for key, value, least, most in limits:
            if not least <= value <= most:
                yield WorkflowProblem(keys=(key,), message=f"{value:g} is not between {least:g} and {most:g}")
        if step.max_output_tokens < 1:
            yield WorkflowProblem(keys=("max_tokens",), message=f"{step.max_output_tokens} is less than 1")

    def _check_role_and_model(self) -> Iterator[WorkflowProblem]:
        for key, name, existing in (
            ("role", self.step.role, self.known.roles),
            ("model", self.step.model, self.known.models),
        ):
            if name and name not in existing:
                near = _suggest_nearest(name, existing)
                yield WorkflowProblem(keys=(key,), message=f"there is no {key} {name!r}{near}")

    def _check_listed_tools(self) -> Iterator[WorkflowProblem]:
        listed = self.step.tools
        by_role = len(self.grant.tools) if self.grant is not None else 0
        offered = by_role if listed is None else len(set(listed))
        if offered > MAX_TOOLS:
            yield WorkflowProblem(
                keys=("tools",) if listed is not None else (),
                message=f"the step has {offered} tools; models choose badly among more than {MAX_TOOLS}",
                severity=ProblemSeverity.WARNING,
            )
        for index, tool in enumerate(listed or ()):
            yield from self._check_listed_tool(tool, ("tools", index))

    def _check_listed_tool(self, tool: str, keys: Keys) -> Iterator[WorkflowProblem]:
        if tool in self.known.absent and tool not in self.tools:
            # Like a role, the step runs without a built-in tool that lacks something here. Only the user who starts
            # the run needs to know; the definition is not wrong.
            if self.known.grants:
                message = f"{self._why_unknown(tool)}; the step continues without it"
                yield WorkflowProblem(keys=keys, message=message, severity=ProblemSeverity.WARNING)
        elif why := self._why_unknown(tool):
            yield WorkflowProblem(keys=keys, message=why)
        elif why := self._why_bound_elsewhere(tool):
            yield WorkflowProblem(keys=keys, message=f"the step may not call {tool}: {why}")
        elif why := self._why_denied(tool):
            # A tool that this user may not use is just not offered.
            message = f"the step may not call {tool}: {why}"
            yield WorkflowProblem(keys=keys, message=message, severity=ProblemSeverity.WARNING)

    def _check_validation(self, validation: Validation, index: int) -> Iterator[WorkflowProblem]:
        keys: Keys = ("validation_tools", index)
        tool = validation.tool
        if why := self._why_unknown(tool) or self._why_not_callable(tool):
            yield WorkflowProblem(keys=(*keys, "tool"), message=why)
        if tool in [other.tool for other in self.step.validations[:index]]:
            yield WorkflowProblem(keys=(*keys, "tool"), message=f"{tool} is a validation of this step already")
        spec = self.tools.get(tool)
        arguments = None if spec is None else _argument_names(spec.schema)
        for subject in validation.subject:
            where = (*keys, "subject", subject.argument)
            if arguments is not None and subject.argument not in arguments:
                near = _suggest_nearest(subject.argument, arguments)
                yield WorkflowProblem(keys=where, message=f"{tool} has no argument {subject.argument!r}{near}")
            if fault := _pointer_fault(subject.pointer):
                yield WorkflowProblem(keys=where, message=fault)
        yield from self._check_pass(validation, keys)
        yield from self._check_unseen_changes(validation, keys)
        for place, other in enumerate(validation.depends_on or ()):
            where = (*keys, "depends_on", place)
            if other == tool:
                message = f"{tool} cannot depend on itself: each pass would undo the one before"
                yield WorkflowProblem(keys=where, message=message)
            elif why := self._why_unknown(other):
                yield WorkflowProblem(keys=where, message=why)

    def _check_pass(self, validation: Validation, keys: Keys) -> Iterator[WorkflowProblem]:
        """Check that a pass is possible and shows something."""
        tool, when = validation.tool, validation.passes_when
        where: Keys = (*keys, "tool")
        spec = self.tools.get(tool)
        if spec is None:
            return
        runs = spec.capabilities.command or spec.capabilities.code  # The name of the argument that is run.
        if runs and not self._fixes_what_runs(validation, runs):
            message = (
                f"{tool} passes with whatever the model runs; fix it with subject {{{runs}: /NAME}} and a"
                " const or enum for NAME in output_schema, or run your own command as a gate"
            )
            yield WorkflowProblem(keys=where, message=message)
        elif spec.source != BUILT_IN:
            return
        elif when is PassesWhen.EXIT_CODE_0 and not runs:
            message = f"{tool} runs no program, so it has no exit code; write passes_when: success"
            yield WorkflowProblem(keys=(*keys, "passes_when"), message=message)
        elif when is PassesWhen.VALID:
            enough = "{exit_code: 0}" if runs else "success"
            message = (
                f"{tool} is not a validator, so it passes only if its result happens to be"
                f' {{"valid": true, …}}; if its success is enough, add passes_when: {enough}'
            )
            yield WorkflowProblem(keys=where, message=message, severity=ProblemSeverity.WARNING)

    def _fixes_what_runs(self, validation: Validation, argument: str) -> bool:
        """Return True if the answer has to name what was run, and the schema permits only what the step lists."""
        pointers = [subject.pointer for subject in validation.subject if subject.argument == argument]
        return any(pointer and _is_listed(self.step.output_schema, pointer) for pointer in pointers)

    def _check_unseen_changes(self, validation: Validation, keys: Keys) -> Iterator[WorkflowProblem]:
        """Warn about tools that can undo what was validated without making the pass stale."""
        tool, depends = validation.tool, validation.depends_on
        if depends is None:
            return
        running = [name for name, spec in sorted(self.tools.items()) if spec.capabilities.runs_anything]
        for other in running:
            if other not in (tool, *depends) and not self._why_not_callable(other):
                message = f"{other} can change anything, and {tool} is not validated again after it"
                yield WorkflowProblem(keys=(*keys, "depends_on"), message=message, severity=ProblemSeverity.WARNING)

    def _check_circles(self) -> Iterator[WorkflowProblem]:
        """Report validations that make each other stale: they could never be passed at the same time."""
        edges = {validation.tool: validation.depends_on or () for validation in self.step.validations}
        for index, validation in enumerate(self.step.validations):
            circle = _find_circle(validation.tool, edges)
            # Each circle is reported once. That a tool depends on itself is reported with its validation.
            if len(circle) > 2 and validation.tool == min(circle):
                yield WorkflowProblem(
                    keys=("validation_tools", index, "depends_on"),
                    message=f"these depend on each other in a circle: {' → '.join(circle)}",
                )

    def _check_gates(self) -> Iterator[WorkflowProblem]:
        names = [gate.name for gate in self.step.gates]
        for index, gate in enumerate(self.step.gates):
            keys: Keys = ("gates", index)
            if gate.name in names[:index]:
                yield WorkflowProblem(keys=(*keys, "name"), message=f"a gate before is called {gate.name!r} too")
            match gate:
                case PatternGate():
                    if fault := _pattern_fault(gate.pattern):
                        yield WorkflowProblem(keys=(*keys, "pattern"), message=fault)
                    if fault := _pointer_fault(gate.pointer):
                        yield WorkflowProblem(keys=(*keys, "pointer"), message=fault)
                case CommandGate():
                    if not gate.command.strip() or "\0" in gate.command:
                        yield WorkflowProblem(keys=(*keys, "command"), message="there is no command to run here")
                    elif why := self._why_unknown(SHELL_TOOL) or self._why_denied(SHELL_TOOL):
                        yield WorkflowProblem(keys=(*keys, "command"), message=f"a command cannot run here: {why}")

    def _check_order(self) -> Iterator[WorkflowProblem]:
        for index, tool in enumerate(self.step.order):
            keys: Keys = ("order", index)
            if tool in self.step.order[:index]:
                yield WorkflowProblem(
                    keys=keys, message=f"{tool} stands here a second time, so it would wait for itself"
                )
            elif why := self._why_unknown(tool) or self._why_not_callable(tool):
                yield WorkflowProblem(keys=keys, message=why)
            else:
                yield from self._check_stale_in_order(tool, keys, later=self.step.order[index + 1 :])

    def _check_stale_in_order(self, tool: str, keys: Keys, *, later: Sequence[str]) -> Iterator[WorkflowProblem]:
        """Report a validation that has to succeed before a tool that makes its pass stale.

        It has to run again afterwards. If it may succeed only once, it can never pass, which is an error.
        """
        depends = [
            other
            for validation in self.step.validations
            if validation.tool == tool
            for other in validation.depends_on or ()
        ]
        if changing := [other for other in later if other in depends]:
            stuck = tool in self.step.once
            yield WorkflowProblem(
                keys=keys,
                message=f"{tool} has to succeed before {changing[0]}, which makes its pass stale again"
                + (", and it may succeed only once" if stuck else ""),
                severity=ProblemSeverity.ERROR if stuck else ProblemSeverity.WARNING,
            )

    def _check_once(self) -> Iterator[WorkflowProblem]:
        validations = [validation.tool for validation in self.step.validations]
        for index, tool in enumerate(self.step.once):
            keys: Keys = ("once", index)
            if why := self._why_unknown(tool) or self._why_not_callable(tool):
                yield WorkflowProblem(keys=keys, message=why)
            elif tool in validations:
                message = f"{tool} is a validation: after a change it could not be called again"
                yield WorkflowProblem(keys=keys, message=message, severity=ProblemSeverity.WARNING)

    def _why_unknown(self, tool: str) -> str:
        if tool in self.tools:
            return ""
        if tool in self.known.absent:
            return f"the tool {tool!r} is not offered here; chatops tools list says what it lacks"
        return f"there is no tool {tool!r}{_suggest_nearest(tool, list(self.tools))}"

    def _why_not_callable(self, tool: str) -> str:
        """Return why the step could never call a tool that it needs; empty if it may."""
        if self.step.tools is not None and tool not in self.step.tools:
            return f"the step may not call {tool}: it is not among its tools"
        why = self._why_denied(tool)
        return f"the step may not call {tool}: {why}" if why else ""

    def _why_bound_elsewhere(self, tool: str) -> str:
        """Return to which other steps a tool is bound; empty if it may be used here."""
        spec = self.tools[tool]
        return "" if belongs(spec, at=self.at) else f"it is bound to {', '.join(spec.steps)}"

    def _why_denied(self, tool: str) -> str:
        """Return why a tool that exists is denied to the step, apart from the step's own list; empty if it is not."""
        if why := self._why_bound_elsewhere(tool):
            return why
        if self.grant is None:
            return ""
        judged = self.grant.permits(tool)
        return f"denied by {judged.reason}" if judged.verdict is Verdict.DENY else ""


def _find_circle(start: str, edges: dict[str, tuple[str, ...]]) -> list[str]:
    """Return a path from `start` back to it; empty if there is none."""
    paths = [[start]]
    seen = set()
    while paths:
        path = paths.pop()
        for following in edges.get(path[-1], ()):
            if following == start:
                return [*path, following]
            if following not in seen:
                seen.add(following)
                paths.append([*path, following])
    return []


def _argument_names(schema: str) -> list[str] | None:
    """Return the names of a tool's arguments; None if its schema does not list them explicitly."""
    value = json.loads(schema)
    properties = value.get("properties") if isinstance(value, dict) else None
    if not isinstance(properties, dict) or any(key in value for key in ("$ref", "allOf", "anyOf", "oneOf")):
        return None
    return None if "patternProperties" in value else list(properties)


def _is_listed(schema: str, pointer: str) -> bool:
    """Return True if `schema` fixes the value at `pointer`, or the items of a list there, by ``const`` or ``enum``."""
    try:
        node = json.loads(schema or "{}")
    except (ValueError, RecursionError):
        return False
    for part in pointer.split("/")[1:]:
        properties = node.get("properties") if isinstance(node, dict) else None
        name = part.replace("~1", "/").replace("~0", "~")
        node = properties.get(name) if isinstance(properties, dict) else None
    if not isinstance(node, dict):
        return False
    items = node.get("items")
    of_items = items if isinstance(items, dict) and "prefixItems" not in node and node.get("type") == "array" else {}
    return not {"const", "enum"}.isdisjoint((*node, *of_items))


def _pointer_fault(pointer: str) -> str:
    if _POINTER.fullmatch(pointer):
        return ""
    return f"{pointer!r} is no JSON pointer: it is empty or like /components/name (~1 for a slash, ~0 for a tilde)"


def _pattern_fault(pattern: str) -> str:
    try:
        re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return f"this is not a regular expression ({error})"
    return ""


def _suggest_nearest(word: str, known: Sequence[str]) -> str:
    near = get_close_matches(word, known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
