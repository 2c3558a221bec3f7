"""Steps in Python, and the workflow made of them: the definition as in a file, the tools, and the result classes."""

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from chatops.api.tools import SOURCE, AnyTool, StepKey, ToolRegistry, as_tool
from chatops.config.document import EXPECTED, key_of, nearest
from chatops.config.workflow_read import WorkflowEntry, keys_beside, spec_of
from chatops.domain.errors import ConfigError
from chatops.policy.workflow import (
    DEFAULT_ATTEMPTS,
    DEFAULT_ITERATIONS,
    DEFAULT_OUTPUT_TOKENS,
    DEFAULT_TEMPERATURE,
    WorkflowSpec,
)
from chatops.toolkit.base import Tool
from chatops.tools.function import FunctionTool

Validator = AnyTool | Mapping[str, Any]
"""A validator tool; or, as in a file, ``{"tool": …, "subject": {…}, "depends_on": […], "passes_when": …}``."""


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Assembled:
    """A workflow that can be run."""

    spec: WorkflowSpec
    tools: tuple[Tool, ...]
    """The program's own tools, each bound to the steps that name it."""
    classes: Mapping[str, type[BaseModel]]
    """Class of each step's result, by step name."""


def assemble(name: str, steps: Sequence[Step], *, description: str, registry: ToolRegistry | None) -> Assembled:
    """Return the workflow made of `steps`.

    Raises ConfigError for errors that do not depend on where it runs.
    """
    tools = _Tools(name)
    entries = [_entry(step, tools) for step in steps]
    if registry is not None:
        _distribute(registry, entries, tools)
    return Assembled(
        spec=_checked(name, {"description": description, "steps": entries}),
        tools=tools.bound(),
        classes={step.name: schema for step in steps if isinstance(schema := step.output_schema, type)},
    )


class _Tools:
    """The program's tools by name, each with the steps that use it."""

    def __init__(self, workflow: str) -> None:
        self.workflow = workflow
        self._own: dict[str, FunctionTool] = {}
        self._made: dict[int, FunctionTool] = {}
        """From the identity of what was given, so that one function is one tool in all steps."""
        self._steps: dict[str, dict[str, None]] = {}

    def name(self, given: AnyTool, *, step: str) -> str:
        """Return the name of a tool that `step` names."""
        if isinstance(given, str):
            return given
        own = self._made.get(id(given)) or as_tool(given)
        self._made[id(given)] = own
        self.add(own, step=step)
        return own.spec.name

    def add(self, own: FunctionTool, *, step: str) -> None:
        """Bind a tool to a step; empty: to every step. Raises ConfigError if another tool has its name."""
        name = own.spec.name
        if self._own.setdefault(name, own) is not own:
            raise ConfigError(
                f"Workflow {self.workflow}: two tools are called {name}.", advice="Name one otherwise: tool(name=…)."
            )
        self._steps.setdefault(name, {})[step] = None

    def bound(self) -> tuple[Tool, ...]:
        """Return all tools, with the steps that they are bound to in their specs."""
        return tuple(replace(own, spec=replace(own.spec, steps=self._binding(name))) for name, own in self._own.items())

    def _binding(self, name: str) -> tuple[str, ...]:
        steps = self._steps[name]
        return () if "" in steps else tuple(f"{self.workflow}.{step}" for step in steps)


def _entry(step: Step, tools: _Tools) -> dict[str, Any]:
    """Return the step as a file would have it."""

    def names(given: Sequence[AnyTool]) -> list[str]:
        return [tools.name(one, step=step.name) for one in given]

    def validation(given: Validator) -> dict[str, Any]:
        if not isinstance(given, Mapping):
            return {"tool": tools.name(given, step=step.name)}
        one: dict[str, Any] = {key: _plain(value) for key, value in given.items()}
        if "tool" in one:
            one["tool"] = tools.name(one["tool"], step=step.name)
        if one.get("depends_on") is not None:
            one["depends_on"] = names(one["depends_on"])
        return one

    schema = step.output_schema
    return {
        "name": step.name,
        "system_prompt": step.system_prompt,
        "role": step.role,
        "model": step.model,
        "tools": None if step.tools is None else names(step.tools),
        "validation_tools": [validation(one) for one in step.validation_tools],
        "gates": [dict(gate) for gate in step.gates],
        "output_schema": schema.model_json_schema() if isinstance(schema, type) else schema and dict(schema),
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


def _plain(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value


def _distribute(registry: ToolRegistry, entries: Sequence[dict[str, Any]], tools: _Tools) -> None:
    """Give each step the registered tools that belong to it."""
    names = [str(entry["name"]) for entry in entries]
    for own, keys in registry.entries():
        wanted = [_step_named(key, names, workflow=tools.workflow, tool=own.spec.name) for key in keys]
        for entry in entries:
            if keys and entry["name"] not in wanted:
                continue
            tools.add(own, step=str(entry["name"]) if keys else "")
            if entry["tools"] is not None and own.spec.name not in entry["tools"]:
                entry["tools"].append(own.spec.name)


def _step_named(key: StepKey, names: Sequence[str], *, workflow: str, tool: str) -> str:
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


def _checked(name: str, value: dict[str, Any]) -> WorkflowSpec:
    try:
        entry = WorkflowEntry.model_validate(value)
    except ValidationError as error:
        detail = error.errors(include_url=False, include_input=False)[0]
        keys = tuple(part for part in detail["loc"] if part != "[key]")
        why = EXPECTED.get(detail["type"]) or detail["msg"]
        if detail["type"] == "extra_forbidden":
            why = f"there is no such key here{nearest(str(keys[-1]), keys_beside(keys))}"
        raise ConfigError(
            f"Workflow {name}{key_of(keys)}: {why[:1].lower()}{why[1:]}.", advice="Correct its definition."
        ) from None
    return spec_of(entry, name=name, source=SOURCE)
