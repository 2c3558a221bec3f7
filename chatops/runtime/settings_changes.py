"""Change the settings and rights of a session when its user, its caller's user or the registry does.

A change applies to the current turn from its next model call on. Rights that it takes away are gone at once.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from chatops.domain.decisions import RuleScope
from chatops.domain.errors import ConfigError, SessionBusyError
from chatops.domain.events import RoleSwitched
from chatops.domain.ids import MessageId
from chatops.domain.messages import RoleSwitchMessage
from chatops.domain.sandbox import SandboxSpec
from chatops.engine.inputs import NarrowGrant, SwitchRole
from chatops.engine.view import may_be_retried
from chatops.policy.grant import Grant
from chatops.policy.resolve import revoked_layer
from chatops.policy.sandbox import SandboxChange, is_in_force, resolve
from chatops.runtime.services import EventBus, Services
from chatops.runtime.settings import SessionSettings, change_notices, missing_role, registry_notice, role_switch
from chatops.runtime.turns import Turns
from chatops.toolkit.confine import link_target, why_not_for_commands


class SettingsChanges:
    """Changes the settings of a session, with the grant that they give: `Turns` has both."""

    def __init__(self, turns: Turns, services: Services, bus: EventBus) -> None:
        """Start with the settings that `turns` has."""
        self._turns, self._services, self._bus = turns, services, bus
        self.registry_notice = registry_notice(turns.settings, services.rights)
        """Lasting notice about the registry, until the user acts: the file is broken, or has changed."""
        self._replaced: tuple[SessionSettings, Grant] | None = None
        """While a changed registry file waits for /reload: settings and grant without it, to say then what differs."""

    async def change(self, settings: SessionSettings) -> None:
        """Put `settings` in force, with a divider in the transcript. A new role becomes this workspace's last used one.

        Raises SessionBusyError in a run, ConfigError for an unknown name, ConflictError, StoreError.
        """
        turns, store = self._turns, self._services.store
        turns.check_owned()
        if turns.workflow:
            raise SessionBusyError(
                f"A run of workflow {turns.workflow} sets role, model and persona until it is over.",
                advice="Wait for its end, or end it: /workflow cancel",
            )
        after = settings.grant(self._services.rights)
        async with turns.submitting:
            before, switch = turns.grant, await self._divider(after)
            self._put_in_force(settings, after)
            self.registry_notice = registry_notice(settings, self._services.rights)
            await self._add_divider(switch, before=before, after=after)
            if turns.info is not None:
                values = {"role": settings.role, "model_pin": settings.model_pin, "persona": settings.persona}
                await self._services.worker(store.update_session, turns.info.id, **values)
        if settings.role != before.role:
            await self._services.worker(store.set_setting, f"role:{self._services.workspace}", settings.role)

    async def _divider(self, after: Grant) -> RoleSwitchMessage:
        turns, state = self._turns, self._turns.state
        number = len(turns.history.messages) + (len(state.messages) if state is not None else 0)
        divider_id = MessageId(f"{turns.session_id}.switch{number}")
        return role_switch(turns.grant, after, id=divider_id, suspended=await self._suspended_by(after))

    async def _suspended_by(self, after: Grant) -> int:
        """Return how many rules of the session are suspended once `after` is in force, because of its other role."""
        role = self._turns.grant.role
        if self._turns.info is None or role == after.role:
            return 0
        rows = await self._services.worker(self._services.store.rules, session_id=self._turns.session_id)
        return sum(1 for row in rows if row.rule.scope is RuleScope.SESSION and row.rule.role == role)

    async def _add_divider(self, switch: RoleSwitchMessage, *, before: Grant, after: Grant) -> None:
        """Add the divider to the current turn, or to a failed turn that can be retried, else after the last turn.

        With no unfinished turn, there is none unless role, models or tools change: another persona alone makes none.
        """
        turns, state = self._turns, self._turns.state
        has_other_tools = bool(switch.added or switch.removed)
        differs = has_other_tools or (before.role, before.models) != (after.role, after.models)
        if turns.unfinished or (differs and state is not None and may_be_retried(state)):
            await turns.runner.take(SwitchRole(grant=after, switch=switch))
        elif differs:
            if turns.info is not None and (turns.history.messages or state is not None):
                await turns.append(turns.info, switch)
            self._bus.publish(RoleSwitched(id=switch.id, parent_id=turns.session_id, switch=switch))

    async def revoke_tool(self, name: str) -> None:
        """Revoke a tool for the rest of this session, whatever the role. Raises ConflictError, StoreError."""
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
        revoked = tuple(dict.fromkeys((*self._turns.settings.revoked, name)))
        narrowing = NarrowGrant(layers=(revoked_layer(revoked),))
        await self._narrow(replace(self._turns.settings, revoked=revoked), narrowing)
        await self._services.worker(self._services.store.set_setting, f"revoked:{info.id}", "\n".join(revoked))

    async def change_sandbox(self, change: SandboxChange | None) -> None:
        """Change what commands of this session may see, write and reach; None: as without any change.

        What it takes away is gone at once, what it adds counts from the next message on.

        Raises ConfigError if a layer does not permit it; ConflictError, StoreError.
        """
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
        changes: tuple[SandboxChange, ...] = ()
        if change is not None:
            changes = (*(made for made in self._turns.settings.sandbox if not made.is_replaced_by(change)), change)
        settings = replace(self._turns.settings, sandbox=changes)
        limits = resolve(self._services.rights.sandbox_layers(settings))
        if change is not None:
            _check_change(change, limits)
        await self._narrow(settings, NarrowGrant(layers=(), sandbox=limits))
        stored = "\n".join(map(str, changes))
        await self._services.worker(self._services.store.set_setting, f"sandbox:{info.id}", stored)

    async def _narrow(self, settings: SessionSettings, narrowing: NarrowGrant) -> None:
        """Put `settings` in force, and let the current turn and the child sessions that run here lose rights by it.

        It is done even if it cannot be stored afterwards. Other child sessions read it from the store when they are
        resumed or decided on.
        """
        self._put_in_force(settings, settings.grant(self._services.rights))
        await self._turns.runner.take(narrowing)
        for child in self._turns.children.sessions:
            await child.inherit(settings.revoked, settings.sandbox)

    async def inherit(self, revoked: tuple[str, ...], sandbox: tuple[SandboxChange, ...]) -> None:
        """Bind this child session by what the user has taken from the session with the call."""
        await self._turns.inherit(revoked, sandbox)
        self._remember_replaced()

    def registry_changed(self, notices: Sequence[str]) -> None:
        """Apply a changed or reloaded registry file and say what differs. The current turn can only lose rights by it.

        `notices` are sentences for the user, besides what the change means for a role: see `Rights.change`.

        A session that was closed here may have another owner by now, so it is left alone.
        """
        turns, rights = self._turns, self._services.rights
        if turns.closed:
            return
        settings, before = turns.settings, turns.grant
        self.registry_notice = registry_notice(settings, rights)
        try:
            turns.grant = settings.grant(rights)
            changes = change_notices(settings, before, turns.grant, replaced=self._replaced, rights=rights)
            self._remember_replaced()
        except ConfigError as error:
            text = f"The registry has changed. {error}"
            self._bus.notify(text, advice=error.advice, parent_id=turns.session_id)
            turns.runner.deliver(NarrowGrant(layers=(missing_role(settings.role),), answers=(), rule_scopes=()))
            return
        if text := " ".join([*changes, *notices]):
            self._bus.notify(text, parent_id=turns.session_id)
        turns.runner.deliver(
            NarrowGrant(
                layers=turns.grant.layers,
                answers=turns.grant.answers,
                sandbox=turns.grant.sandbox,
                ceiling=turns.grant.ceiling,
                rule_scopes=turns.grant.rule_scopes,
                may_contain=turns.grant.may_contain,
            )
        )

    def _put_in_force(self, settings: SessionSettings, grant: Grant) -> None:
        self._turns.settings, self._turns.grant = settings, grant
        self._remember_replaced()

    def _remember_replaced(self) -> None:
        """Keep the grant without a changed registry file until the user reloads it, see `_replaced`."""
        settings = self._turns.settings
        with suppress(ConfigError):
            change = settings.change(self._services.rights)
            self._replaced = (settings, change.in_force) if change is not None else None


def _check_change(change: SandboxChange, limits: SandboxSpec) -> None:
    """Raise ConfigError if a change has no effect in the `limits` that it leads to, or names a path that it may not."""
    if not is_in_force(limits, change):
        why = "the site registry, the role, or a model whose key it is"
        raise ConfigError(f"{change} is not permitted by {why}.", advice="Nothing has changed.")
    if change.key in ("read", "write"):
        sign, path = change.value[:1], change.value[1:]
        # Limits compare paths as they are written, and a link could lead out of the site's.
        if sign == "+" and (target := link_target(path)):
            raise ConfigError(f"{path} is a link.", advice=f"Name what it leads to: {target}")
        if path in (*limits.read, *limits.write) and (fault := why_not_for_commands([path])):
            raise ConfigError(fault, advice="Nothing has changed.")
