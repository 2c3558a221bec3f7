"""Tools of a workflow step: the step's own list, and tools that are bound to steps.

Both are layers, so a call outside its step is refused when it is proposed, when it is decided and when it runs.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from chatops.domain.rights import Verdict
from chatops.domain.tools import ToolSpec
from chatops.policy.verdicts import Layer, Rule
from chatops.policy.workflow import StepSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepPlace:
    """The workflow step that a grant is for."""

    workflow: str
    step: str

    def __str__(self) -> str:
        """Return the name used in layers and messages."""
        return f"step {self.step} of workflow {self.workflow}"


def belongs(spec: ToolSpec, *, at: StepPlace | None) -> bool:
    """Return True if the binding of a tool allows its use at `at`; None stands for a chat."""
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
