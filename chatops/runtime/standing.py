"""Session settings: role, pinned model, persona and revoked tools, and the grant that they give."""

from dataclasses import dataclass, replace

from chatops.domain.errors import ConfigError
from chatops.domain.ids import MessageId
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.rights import Verdict
from chatops.engine.workflow.state import CheckingGate, RunFinished, WorkflowState
from chatops.policy.grant import Grant, tool_difference
from chatops.policy.resolve import revoked
from chatops.policy.verdicts import Layer
from chatops.runtime.rights import Rights, StepRights


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """Session settings. The grant is resolved again for every turn, because the registry may have changed."""

    role: str
    model_pin: str = ""
    persona: str = ""
    revoked: tuple[str, ...] = ()
    """Tools that the user revoked for this session, whatever the role."""
    step: StepRights | None = None
    """The current step, while a workflow run determines the session's turns."""

    def grant(self, rights: Rights) -> Grant:
        """Return the current grant. Raises ConfigError for an unknown role, model or persona."""
        grant = rights.grant(self.role, model_pin=self.model_pin, persona=self.persona, step=self.step)
        return grant.narrowed(revoked(self.revoked)) if self.revoked else grant

    def change(self, rights: Rights) -> tuple[Grant, Grant] | None:
        """Return the grant under the registry in force and under a changed one; None if it has not changed."""
        both = rights.change(self.role, model_pin=self.model_pin, persona=self.persona, step=self.step)
        if both is None:
            return None
        layer = revoked(self.revoked)
        return both[0].narrowed(layer), both[1].narrowed(layer)

    def grant_for(self, stored: Grant, rights: Rights) -> tuple[Grant, ConfigError | None]:
        """Return the current grant of an unfinished turn under `stored`.

        If its role is gone, the grant permits nothing, and the second value is the reason.
        """
        try:
            return replace(self, role=stored.role).grant(rights), None
        except ConfigError as error:
            return stored.narrowed(role_gone(stored.role)), error


def revoked_tools(setting: str | None) -> tuple[str, ...]:
    """Return the tools in the stored setting `revoked:SESSION`, one per line."""
    return tuple(name for name in (setting or "").split("\n") if name)


def role_gone(role: str) -> Layer:
    """Return the policy layer of a role that the registry lacks: it denies everything."""
    return Layer(name=f"role {role} is gone", rules=(), default=Verdict.DENY)


def at_step(standing: Standing, run: WorkflowState) -> Standing:
    """Return the settings at the current step of a run; once the run is over, those that it was started with."""
    phase = run.phase
    if isinstance(phase, RunFinished):
        return replace(standing, role=run.role, model_pin=run.model, step=None)
    step = run.spec.step(phase.step)
    gate = step.gates[phase.gate].name if isinstance(phase, CheckingGate) else ""
    return replace(
        standing,
        role=step.role or run.role,
        model_pin=step.model or run.model,
        step=StepRights(workflow=run.spec, step=step, gate=gate),
    )


def divider(before: Grant, after: Grant, *, id: MessageId, suspended: int) -> RoleSwitchMessage:
    """Return the line in the transcript for a change from one grant to another."""
    added, removed = tool_difference(before, after)
    return RoleSwitchMessage(
        id=id,
        before=before.role,
        after=after.role,
        model=after.models[0].label or after.models[0].name,
        added=added,
        removed=removed,
        suspended=suspended,
    )
