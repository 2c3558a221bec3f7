"""Workflow definitions as values, with the positions of their parts in a file, and the layers that they add to a grant.

A step sees only its own tools, has to answer in its schema, and is accepted only when its validations have been called
and passed. Nothing in a definition can widen a right: a step's `tools`, and the steps that a tool is bound to, are
layers like any other. So a call outside its step is refused when it is proposed, when it is decided and when it runs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import field, replace
from enum import StrEnum

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import ToolSpec, Verdict
from chatops.policy.verdicts import Layer, Rule


class OnFail(StrEnum):
    """Action when a step has used up its attempts."""

    STOP = "stop"
    ASK = "ask"
    """The run waits for the user: retry, edit the input, skip (where allowed) or stop."""
    GO_ON = "go_on"
    """The next step starts and is told that this one failed, and why."""


DEFAULT_ITERATIONS = 10
"""Model calls of an attempt at a step."""
DEFAULT_ATTEMPTS = 3
DEFAULT_TEMPERATURE = 0.1
"""Low, because a step follows instructions; a higher one gives more varied answers, and fails more validations."""
DEFAULT_OUTPUT_TOKENS = 4_096
"""Tokens of a reply."""
ITERATIONS = {"quick": 5, "normal": DEFAULT_ITERATIONS, "complex": 15}
"""Presets of `max_iterations`."""


@frozen_dataclass
class Subject:
    """An argument that names what is validated, and where the step's answer names the same thing."""

    argument: str
    """Name of an argument of the validation tool."""
    pointer: str = ""
    """JSON pointer (RFC 6901) into the answer. Its value, or each item if it is a list, needs a pass of its own. Empty:
    the last validation of every value must have passed."""


class PassesWhen(StrEnum):
    """The evidence that makes a validation pass."""

    VALID = "valid"
    """The result is an object with ``valid`` true and no contradicting member: the contract of validators."""
    SUCCESS = "success"
    """The tool succeeded, and its result, if it is an object, does not contradict that."""
    EXIT_CODE_0 = "exit_code_0"
    """The program ended with exit code 0. For a tool that runs no program, the result's ``exit_code`` is 0."""


@frozen_dataclass
class Validation:
    """A tool that has to be called and to pass before the step's answer is accepted."""

    tool: str
    subject: tuple[Subject, ...] = ()
    depends_on: tuple[str, ...] | None = None
    """Tools that make an earlier pass stale when they run, whatever they report. None: every tool that can change
    something."""
    passes_when: PassesWhen = PassesWhen.VALID


@frozen_dataclass
class PatternGate:
    """A check that the answer's text, or the value at `pointer`, matches (or does not match) a regular expression."""

    name: str
    pattern: str
    pointer: str = ""
    negated: bool = False
    kind: str = "pattern"
    """Tells it from a `CommandGate` where both are stored."""


@frozen_dataclass
class CommandGate:
    """A command that has to end with exit code 0.

    It runs as a call of shell_exec: judged, asked about and journaled.
    """

    name: str
    command: str
    timeout_s: int | None = None
    kind: str = "command"


Gate = PatternGate | CommandGate
SHELL_TOOL = "shell_exec"
"""The tool that runs the command of a gate, which is its argument ``command``."""


@frozen_dataclass
class StepSpec:
    """One step. Empty `role`: the role that the run was started with; empty `model`: the role's."""

    name: str
    system_prompt: str
    role: str = ""
    model: str = ""
    tools: tuple[str, ...] | None = None
    """None: all tools that the role permits; empty: none."""
    validations: tuple[Validation, ...] = ()
    gates: tuple[Gate, ...] = ()
    """Patterns are checked with the answer, after schema and validations. Commands run in order once it is accepted."""
    output_schema: str = ""
    """JSON Schema (text) of the result; empty: any result."""
    max_iterations: int = DEFAULT_ITERATIONS
    max_attempts: int = DEFAULT_ATTEMPTS
    """Total number of attempts; `max_step_retries` in a definition."""
    temperature: float = DEFAULT_TEMPERATURE
    max_output_tokens: int = DEFAULT_OUTPUT_TOKENS
    on_fail: OnFail = OnFail.STOP
    may_skip: bool = False
    """True if the user may skip the step when it has failed."""
    review: bool = False
    """True if the user has to accept the answer before the next step starts."""
    order: tuple[str, ...] = ()
    """Tools in the order in which they have to succeed. A later one is refused until those before have."""
    once: tuple[str, ...] = ()
    """Tools that may succeed only once in the step."""


PYTHON_PROGRAM = "python"
"""Source of a workflow that a Python program defines, with tools and a role of its own."""


@frozen_dataclass
class WorkflowSpec:
    """A workflow: steps in the order in which they run."""

    name: str
    steps: tuple[StepSpec, ...]
    description: str = ""
    source: str = ""
    """Place of its definition, for the user: a file, the registry, ``python``."""

    def step(self, index: int) -> StepSpec:
        """Return the step at `index`, from 0."""
        return self.steps[index]

    def without(self, tools: Collection[str]) -> "WorkflowSpec":
        """Return this workflow with `tools` removed from the tool lists of all steps."""
        return replace(self, steps=tuple(_step_without(step, tools) for step in self.steps))


def _step_without(step: StepSpec, tools: Collection[str]) -> StepSpec:
    if step.tools is None:
        return step
    return replace(step, tools=tuple(tool for tool in step.tools if tool not in tools))


@frozen_dataclass
class StepPlace:
    """The workflow step that a grant is for."""

    workflow: str
    step: str

    def __str__(self) -> str:
        """Return the name used in layers and messages."""
        return f"step {self.step} of workflow {self.workflow}"


def belongs(spec: ToolSpec, *, at: StepPlace | None) -> bool:
    """Return True if a tool is bound to the step `at`, or to none; `at` is None in a chat.

    A tool names its steps as ``STEP`` or ``WORKFLOW.STEP``.
    """
    if not spec.steps:
        return True
    return at is not None and (at.step in spec.steps or f"{at.workflow}.{at.step}" in spec.steps)


def binding_layers(specs: Iterable[ToolSpec], *, at: StepPlace | None) -> tuple[Layer, ...]:
    """Return the layer that denies tools bound to other steps; empty if there is nothing to deny."""
    rules = tuple(Rule(tool=spec.name, verdict=Verdict.DENY) for spec in specs if not belongs(spec, at=at))
    return (Layer(name="the steps that the tool is bound to", rules=rules),) if rules else ()


def step_layers(step: StepSpec, *, at: StepPlace) -> tuple[Layer, ...]:
    """Return the layer of a step's `tools`; empty for a step without the list."""
    if step.tools is None:
        return ()
    rules = tuple(Rule(tool=tool, verdict=Verdict.ALLOW) for tool in dict.fromkeys(step.tools))
    return (Layer(name=str(at), rules=rules, default=Verdict.DENY),)


Keys = tuple[str | int, ...]
"""Keys and indexes from the workflow's own object down to a value, as spelled in the file."""


@frozen_dataclass
class Definition:
    """A workflow with the positions of its values. A workflow made in Python has none."""

    spec: WorkflowSpec
    prefix: Keys = ()
    """Keys of the workflow's object in its file: ``workflows`` and its name; empty for a file of its own."""
    places: Mapping[Keys, tuple[int, int]] = field(default_factory=dict, repr=False, compare=False)
    """Line and column (from 1) by keys, which start at the top of the file."""

    @property
    def name(self) -> str:
        """The workflow's name."""
        return self.spec.name

    def place(self, keys: Keys) -> tuple[int, int] | None:
        """Return line and column of the value at `keys`, or of the closest one around it; None without a file."""
        path = (*self.prefix, *keys)
        while path and path not in self.places:
            path = path[:-1]
        return self.places.get(path)
