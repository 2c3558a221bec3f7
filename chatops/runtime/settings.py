"""Session settings (role, model, persona, revoked tools), and the rights that policy and configuration give for them.

A grant is resolved again for every turn, because the registry may have changed. A changed registry file takes rights
away at once and adds rights only after a reload; the notices below say which.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple, Protocol

from chatops.domain.decisions import Principal
from chatops.domain.errors import ConfigError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import MessageId, SessionId
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.tools import AccessLevel, Verdict
from chatops.engine.state import Containment
from chatops.engine.workflow.state import CheckingGate, RunFinished, WorkflowState
from chatops.policy.delegation import ChildBinding
from chatops.policy.grant import Grant, tool_difference
from chatops.policy.prompt import PromptLayer
from chatops.policy.resolve import revoked_layer
from chatops.policy.sandbox import SandboxChange, SandboxLayers, parse_change
from chatops.policy.verdicts import Layer
from chatops.policy.workflow import StepPlace, StepSpec, WorkflowSpec
from chatops.store.base import Decider, SessionInfo
from chatops.store.store import Store


@frozen_dataclass
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


class GrantChange(NamedTuple):
    """The grant of some settings under two registries."""

    in_force: Grant
    changed: Grant
    """Under the file as it is now, which waits for /reload."""


@frozen_dataclass(kw_only=False)
class SessionSettings:
    """The settings that determine a session's grant."""

    role: str
    model_pin: str = ""
    """The model that the user chose; empty: the role's."""
    persona: str = ""
    """The persona that the user chose; empty: the role's."""
    step: StepRights | None = None
    """The current step, while a workflow run determines the session's turns."""
    revoked: tuple[str, ...] = ()
    """Tools that the user revoked for this session, whatever the role."""
    sandbox: tuple[SandboxChange, ...] = ()
    """Changes that the user made to the limits of commands, for this session."""
    child: ChildBinding | None = None
    """Set in a session that works for a call of another one."""
    inherited: tuple[SandboxChange, ...] = ()
    """For such a session: the changes that the user made for the other one."""

    def bound_by_parent(self, revoked: Sequence[str], sandbox: tuple[SandboxChange, ...]) -> "SessionSettings":
        """Return these settings of a child session, bound by what the user has taken from the session with the call."""
        return replace(self, revoked=tuple(dict.fromkeys((*self.revoked, *revoked))), inherited=sandbox)

    def grant(self, rights: "Rights") -> Grant:
        """Return the current grant. Raises ConfigError for an unknown role, model or persona."""
        return self._bind_grant(rights.grant(self), rights)

    def _bind_grant(self, grant: Grant, rights: "Rights") -> Grant:
        if self.child is not None:
            if changes := [made for made in (self.inherited, self.sandbox) if made]:
                # What the user has approved is the role without any change: here they can only narrow.
                grant = rights.grant(replace(self, sandbox=()))
                for made in changes:
                    grant = grant.confined(rights.grant(replace(self, sandbox=made)).sandbox)
            grant = grant.narrowed(*self.child.layers)
        return grant.narrowed(revoked_layer(self.revoked)) if self.revoked else grant

    def change(self, rights: "Rights") -> "GrantChange | None":
        """Return what a changed registry file would change; None if it has not changed."""
        if (change := rights.change(self)) is None:
            return None
        in_force, changed = change
        return GrantChange(self._bind_grant(in_force, rights), self._bind_grant(changed, rights))

    def grant_for(self, stored: Grant, rights: "Rights") -> Grant:
        """Return the current grant of an unfinished turn under `stored`. It permits nothing if its role is gone."""
        try:
            return replace(self, role=stored.role).grant(rights)
        except ConfigError:
            return stored.narrowed(missing_role(stored.role))

    def at_step(self, run: WorkflowState) -> "SessionSettings":
        """Return the settings at the current step of a run; once it is over, those that it was started with."""
        phase = run.phase
        if isinstance(phase, RunFinished):
            return replace(self, role=run.role, model_pin=run.model, step=None)
        step = run.spec.step(phase.step)
        gate = step.gates[phase.gate].name if isinstance(phase, CheckingGate) else ""
        return replace(
            self,
            role=step.role or run.role,
            model_pin=step.model or run.model,
            step=StepRights(workflow=run.spec, step=step, gate=gate),
        )


class Rights(Protocol):
    """Answers from the registry in force at the time of the call, less what a changed file takes away."""

    @property
    def level(self) -> AccessLevel:
        """Access level of the user."""

    def check_surface(self, via: str) -> None:
        """Raise ConfigError if users may not decide on calls there. `via` is as in `Principal`."""

    def check_decider(
        self, pending: PendingCall, by: Principal, known: Decider, *, foreign: bool, containment: Containment | None
    ) -> None:
        """Raise ConfigError if the call has other approvers, or `by` is `foreign` and could not use the tool itself.

        `foreign`: a role of the database decides that does not drive the session. `containment` is that of the turn.
        """

    def check_reviewer(self, settings: SessionSettings, member: str, level: AccessLevel | None) -> None:
        """Raise ConfigError if a role of the database with this level could not use all tools of a step itself."""

    def roles(self) -> tuple[str, ...]:
        """Return the names of all roles."""

    def grant(self, settings: SessionSettings) -> Grant:
        """Return the grant of these settings, before revoked tools. Raises ConfigError for an unknown name."""

    def change(self, settings: SessionSettings) -> tuple[Grant, Grant] | None:
        """Return the grants under the registry in force and under the last one read; None if they are one registry.

        Raises ConfigError if the last one read lacks the role.
        """

    def sandbox_layers(self, settings: SessionSettings) -> SandboxLayers:
        """Return what the registries, the command line, the role and the session say about the limits of commands."""

    def broken(self) -> str:
        """Return why the registry file cannot be used, and what is in force instead; empty if it can."""

    def prompt_layers(self, settings: SessionSettings) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt, named."""

    def is_demo(self, model: str) -> bool:
        """Return True if `model` is the built-in demo."""

    def notices(self, grant: Grant) -> tuple[str, ...]:
        """Return what the user has to know about the configuration, as far as it is about what `grant` uses."""

    def check_model(self, name: str) -> None:
        """Raise ConfigError for a model of the registry that cannot be used here."""

    def choose_model(self, name: str) -> bool:
        """Make this model the user's `default` from now on. Return False if it is that already."""


def stored_settings(store: Store, info: SessionInfo, *, role: str) -> SessionSettings:
    """Return the settings of a stored session in `role`. Blocks. Raises StoreError."""
    revoked, sandbox = narrowed_by_user(store, info.id)
    settings = SessionSettings(
        role=role, model_pin=info.model_pin, persona=info.persona, revoked=revoked, sandbox=sandbox
    )
    if info.parent is None:
        return settings
    settings = replace(settings, child=store.child_binding(info.id))
    return settings.bound_by_parent(*narrowed_by_user(store, info.parent))


class ByUser(NamedTuple):
    """Rights that the user has taken from a session, whatever its role."""

    revoked: tuple[str, ...]
    """Tools."""
    sandbox: tuple[SandboxChange, ...]
    """Changes of the limits of commands."""


def narrowed_by_user(store: Store, session_id: SessionId) -> ByUser:
    """Return what the user has taken from a session. Blocks. Raises StoreError."""
    changes = []
    for line in (store.setting(f"sandbox:{session_id}") or "").split("\n"):
        with suppress(ConfigError):  # one of another version
            changes.append(parse_change(line))
    names = (store.setting(f"revoked:{session_id}") or "").split("\n")
    return ByUser(tuple(filter(None, names)), tuple(changes))


def missing_role(role: str) -> Layer:
    """Return the policy layer of a role that the registry lacks: it denies everything."""
    return Layer(name=f"role {role} is gone", rules=(), default=Verdict.DENY)


def role_switch(before: Grant, after: Grant, *, id: MessageId, suspended: int) -> RoleSwitchMessage:
    """Return the transcript's divider for a change from one grant to another."""
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


def registry_notice(settings: SessionSettings, rights: Rights) -> str:
    """Return what stays true of the registry until the user acts: the file is broken, or has changed."""
    return rights.broken() or _pending_change(settings, rights)


def change_notices(
    settings: SessionSettings,
    before: Grant,
    now: Grant,
    *,
    replaced: tuple[SessionSettings, Grant] | None,
    rights: Rights,
) -> tuple[str, ...]:
    """Return the notices for a changed or reloaded registry file; none if it does not affect this role.

    `before` already lacks what the changed file took away. `replaced` is the grant of the registry that was in force,
    with the settings that it was made for.
    """
    pending = _pending_change(settings, rights)
    if pending:
        return (pending,)
    compared = [before]
    if replaced is not None:
        settings_then, grant_then = replaced
        if settings_then == settings:
            compared = [grant_then, before]
    for then in compared:
        if _rights_of(then) != _rights_of(now):
            return (f"Rights have changed ({_describe_difference(then, now)}).",)
        if then.models != now.models:
            old, new = then.models[0].name, now.models[0].name
            change = f"another model: {old} → {new}" if old != new else "a model with other settings"
            return (f"Role {now.role} has {change}.",)
    return ()


def _rights_of(grant: Grant) -> tuple[object, ...]:
    return grant.layers, grant.answers, grant.rule_scopes


def _pending_change(settings: SessionSettings, rights: Rights) -> str:
    """Return how a changed file that is not in force differs for this role; empty if it does not."""
    try:
        change = settings.change(rights)
    except ConfigError as error:
        return f"The registry has changed: {error} No tool of this role is permitted until the role exists again."
    if change is None:
        return ""
    _, lost = tool_difference(*change)
    next_step = "Removed rights no longer apply; /reload applies the rest." if lost else "/reload applies it."
    return f"The registry has changed ({_describe_difference(*change)}). {next_step}"


def _describe_difference(before: Grant, after: Grant) -> str:
    """Return added and removed tools and a new model: ``for role coder: + web_fetch − shell_exec, model a → b``."""
    gained, lost = tool_difference(before, after)
    tools = " ".join([*(f"+ {name}" for name in gained), *(f"− {name}" for name in lost)])
    parts = [f"for role {after.role}: {tools}" if tools else f"same tools for role {after.role}"]
    old, new = before.models[0].name, after.models[0].name
    return ", ".join([*parts, *([f"model {old} → {new}"] if old != new else [])])
