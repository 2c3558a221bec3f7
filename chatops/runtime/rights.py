"""The seam to policy and configuration: what a role may do now, for this person, here."""

from dataclasses import dataclass
from typing import Protocol

from chatops.domain.rights import AccessLevel
from chatops.policy.grant import Grant
from chatops.policy.isolation import StepPlace
from chatops.policy.prompt import PromptLayer
from chatops.policy.workflow import StepSpec, WorkflowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRights:
    """The step of a workflow, or the command of one of its gates, that a grant is for."""

    workflow: WorkflowSpec
    step: StepSpec
    gate: str = ""
    """Name of the gate: then only ``shell_exec`` is on offer, whatever tools the step has."""

    @property
    def place(self) -> StepPlace:
        """As layers name it."""
        return StepPlace(workflow=self.workflow.name, step=self.step.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNews:
    """That a file of the registry is no longer what it was."""

    told: tuple[str, ...]
    """Sentences for the person, besides what it means for a role: see `Rights.change`."""


class Rights(Protocol):
    """Answers from the registry in force at the moment of asking, less what a file that has changed takes away."""

    @property
    def level(self) -> AccessLevel:
        """The person's access level."""
        ...

    def roles(self) -> tuple[str, ...]:
        """The names of all roles."""
        ...

    def grant(self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None) -> Grant:
        """What `role` may do now, in a chat or at a step. Raises ConfigError for an unknown role or model."""
        ...

    def change(
        self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None
    ) -> tuple[Grant, Grant] | None:
        """What `role` may do under the registry in force, and once the one that was read last is; None if it is.
        Raises ConfigError if the role is not in that one."""
        ...

    def broken(self) -> str:
        """Why the registry's file cannot be used as it is now, and what is in force instead; empty if it can."""
        ...

    def prompt_layers(
        self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None
    ) -> tuple[PromptLayer, ...]:
        """The system prompt's layers, named."""
        ...

    def is_demo(self, model: str) -> bool:
        """Whether a model of the registry is the built-in demo."""
        ...

    def personas(self) -> tuple[str, ...]:
        """The names of all personas."""
        ...

    def notices(self) -> tuple[str, ...]:
        """What the person has to know about configuration: warnings, an ignored workspace registry."""
        ...

    def check_model(self, name: str) -> None:
        """Raises ConfigError for a model of the registry that can answer nobody here."""
        ...

    def choose_model(self, name: str) -> None:
        """From now on `default` means this model, for this person."""
        ...
