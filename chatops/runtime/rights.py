"""Interface to policy and configuration: what a role may do now, for this user, in this workspace."""

from dataclasses import dataclass
from typing import Protocol

from chatops.domain.rights import AccessLevel
from chatops.policy.grant import Grant
from chatops.policy.isolation import StepPlace
from chatops.policy.prompt import PromptLayer
from chatops.policy.workflow import StepSpec, WorkflowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class StepRights:
    """The workflow step, or the command of one of its gates, that a grant is for."""

    workflow: WorkflowSpec
    step: StepSpec
    gate: str = ""
    """Name of the gate. A gate offers only ``shell_exec``, whatever tools the step has."""

    @property
    def place(self) -> StepPlace:
        """The step as policy layers name it."""
        return StepPlace(workflow=self.workflow.name, step=self.step.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryNews:
    """Notice that a file of the registry has changed."""

    told: tuple[str, ...]
    """Sentences for the user, besides what the change means for a role: see `Rights.change`."""


class Rights(Protocol):
    """Answers from the registry in force at the time of the call, less what a changed file takes away."""

    @property
    def level(self) -> AccessLevel:
        """Access level of the user."""
        ...

    def roles(self) -> tuple[str, ...]:
        """Return the names of all roles."""
        ...

    def grant(self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None) -> Grant:
        """Return what `role` may do now, in a chat or at a step. Raises ConfigError for an unknown role or model."""
        ...

    def change(
        self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None
    ) -> tuple[Grant, Grant] | None:
        """Return `role`'s grants under the registry in force and under the last one read.

        None if they are the same registry. Raises ConfigError if the last one read lacks the role.
        """
        ...

    def broken(self) -> str:
        """Return why the registry file cannot be used, and what is in force instead; empty if it can."""
        ...

    def prompt_layers(
        self, role: str, *, model_pin: str, persona: str, step: StepRights | None = None
    ) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt, named."""
        ...

    def is_demo(self, model: str) -> bool:
        """Return True if `model` is the built-in demo."""
        ...

    def personas(self) -> tuple[str, ...]:
        """Return the names of all personas."""
        ...

    def notices(self) -> tuple[str, ...]:
        """Return what the user has to know about the configuration: warnings, an ignored workspace registry."""
        ...

    def check_model(self, name: str) -> None:
        """Raise ConfigError for a model of the registry that cannot be used here."""
        ...

    def choose_model(self, name: str) -> None:
        """Make this model the user's `default` from now on."""
        ...
