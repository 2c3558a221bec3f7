"""Workflows as values: what a person has defined, checked and without any file behind it.

A step sees only its own tools, has to answer in its schema, and is accepted only when its validations have been
called and passed. Nothing in a definition can widen a right: `tools` is one more layer on the step's role.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import StrEnum


class OnFail(StrEnum):
    """What happens when a step has used up its attempts."""

    STOP = "stop"
    ASK = "ask"
    """The run waits for a person: retry, edit the input, skip (where allowed) or stop."""
    GO_ON = "go_on"
    """The next step begins, and is told that this one failed and why."""


DEFAULT_ITERATIONS = 10
DEFAULT_ATTEMPTS = 3
DEFAULT_TEMPERATURE = 0.1
DEFAULT_OUTPUT_TOKENS = 4_096
ITERATIONS = {"quick": 5, "normal": DEFAULT_ITERATIONS, "complex": 15}
"""Presets of `max_iterations`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One argument that names what is validated, and where the step's answer names the same thing."""

    argument: str
    """Name of an argument of the validation tool."""
    pointer: str = ""
    """JSON pointer (RFC 6901) into the answer. Its value, or each of a list, needs a pass of its own.
    Empty: every value that was validated has to have passed last."""


class PassesWhen(StrEnum):
    """The evidence by which a validation passes."""

    VALID = "valid"
    """The result is an object with ``valid`` true and nothing that contradicts it: the contract of validators."""
    SUCCESS = "success"
    """The tool succeeded, and its result, if it is an object, does not contradict that."""
    EXIT_CODE_0 = "exit_code_0"
    """The program ended with exit code 0; of a tool that runs none, the result's ``exit_code`` is 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation:
    """A tool that has to be called and to pass before the step's answer is accepted."""

    tool: str
    subject: tuple[Subject, ...] = ()
    depends_on: tuple[str, ...] | None = None
    """Tools whose later success makes a pass stale. None: every tool that can change something."""
    passes_when: PassesWhen = PassesWhen.VALID


@dataclass(frozen=True, slots=True, kw_only=True)
class PatternGate:
    """The answer's text, or the value at `pointer`, has to match (or must not match) a regular expression."""

    name: str
    pattern: str
    pointer: str = ""
    negated: bool = False
    kind: str = "pattern"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandGate:
    """A command has to end with exit code 0. It runs as a call of shell_exec: judged, asked for and journaled."""

    name: str
    command: str
    timeout_s: int | None = None
    kind: str = "command"


Gate = PatternGate | CommandGate


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSpec:
    """One step. Empty `role`: the role the run was started with; empty `model`: the role's."""

    name: str
    system_prompt: str
    role: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    """None: all that the role permits; empty: none."""
    validations: tuple[Validation, ...] = ()
    gates: tuple[Gate, ...] = ()
    """Patterns are checked with the answer, after schema and validations; commands run in order once it is accepted."""
    output_schema: str = ""
    """JSON Schema (text) of the result; empty: any result."""
    max_iterations: int = DEFAULT_ITERATIONS
    max_attempts: int = DEFAULT_ATTEMPTS
    """`max_step_retries` of a definition: attempts in all."""
    temperature: float = DEFAULT_TEMPERATURE
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    on_fail: OnFail = OnFail.STOP
    may_skip: bool = False
    """Whether a person may skip it when it has failed."""
    review: bool = False
    """A person has to accept the answer before the next step begins."""
    order: tuple[str, ...] = ()
    """Tools in the order in which they have to succeed first: a later one is refused before an earlier one has."""
    once: tuple[str, ...] = ()
    """Tools that may succeed once in the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkflowSpec:
    """A workflow: steps in the order in which they run."""

    name: str
    steps: tuple[StepSpec, ...]
    description: str = ""
    source: str = ""
    """Where it was defined, for the person: a file, the registry, ``python``."""

    def step(self, index: int) -> StepSpec:
        """The step at `index`, from 0."""
        return self.steps[index]

    def without(self, tools: Collection[str]) -> "WorkflowSpec":
        """This workflow where `tools` are not offered: no step lists them."""
        return replace(self, steps=tuple(_without(step, tools) for step in self.steps))


def _without(step: StepSpec, tools: Collection[str]) -> StepSpec:
    if step.tools is None:
        return step
    return replace(step, tools=tuple(tool for tool in step.tools if tool not in tools))
