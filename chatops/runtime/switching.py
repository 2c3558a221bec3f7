"""Changes of the session settings: another role, model or persona, a revoked tool, another registry.

The current turn gets the new rights from its next model call on. What it loses it loses at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from chatops.domain.errors import ConfigError, SessionBusyError
from chatops.domain.events import Event, RoleSwitched
from chatops.domain.ids import MessageId, SessionId
from chatops.engine.inputs import NarrowGrant, SwitchRole
from chatops.engine.view import may_be_retried
from chatops.policy.grant import Grant
from chatops.policy.resolve import revoked
from chatops.runtime.ownership import HandOver
from chatops.runtime.runner import Runner
from chatops.runtime.services import Services
from chatops.runtime.settings import (
    RegistryNews,
    SessionSettings,
    change_notices,
    missing_role,
    registry_notice,
    role_switch,
)
from chatops.runtime.turns import Turns


class Switching:
    """Changes the settings of the session whose turns are `turns`."""

    def __init__(
        self,
        services: Services,
        runner: Runner,
        hands: HandOver,
        turns: Turns,
        *,
        taking: asyncio.Lock,
        publish: Callable[[Event], None],
        tell: Callable[..., None],
    ) -> None:
        """Set up the changes. `taking` is held while a message is submitted."""
        self._services = services
        self._runner = runner
        self._hands = hands
        self._turns = turns
        self._taking = taking
        self._publish = publish
        self._tell = tell
        self.note = registry_notice(turns.settings, services.rights)
        """Lasting notice about the registry, until the user acts: the file is broken, or has changed."""
        self._replaced: tuple[SessionSettings, Grant] | None = None
        """While a changed file is not in force: the settings, and the grant under the registry that is in force."""

    async def to(self, settings: SessionSettings) -> None:
        """Put `settings` in force, with a divider in the transcript.

        The divider goes into the current turn, or into a failed turn that can be retried, else after the last turn.

        Raises SessionBusyError in a run, ConfigError for an unknown name, ConflictError, StoreError.
        """
        self._hands.must_be_here()
        store, worker, turns = self._services.store, self._services.worker, self._turns
        if turns.leader:
            raise SessionBusyError(
                f"This is a run of workflow {turns.leader}: its steps say role, model and persona until it is over.",
                advice="Go on when it has ended, or end it: /workflow cancel",
            )
        after = settings.grant(self._services.rights)
        async with self._taking:
            state, said = self._runner.state, turns.record.messages
            count = len(said) + (len(state.messages) if state is not None else 0)
            session = turns.info.id if turns.info is not None else SessionId("")
            before = turns.grant
            switch = role_switch(
                before,
                after,
                id=MessageId(f"{session}.switch{count}"),
                suspended=await self._suspended_by(after),
            )
            turns.settings, turns.grant = settings, after
            self._keep_replaced()
            self.note = registry_notice(settings, self._services.rights)
            changes = (before.role, before.models) != (after.role, after.models)
            differs = changes or bool(switch.added or switch.removed)
            if turns.unfinished or (differs and state is not None and may_be_retried(state)):
                await self._runner.take(SwitchRole(grant=after, switch=switch))
            elif differs:
                if turns.info is not None and (said or state is not None):
                    turns.close()
                    await self._runner.catch_up()
                    await worker(store.append_message, turns.info.id, switch)
                    turns.record.add(switch)
                self._publish(RoleSwitched(id=switch.id, parent_id=session, switch=switch))
            if turns.info is not None:
                await worker(
                    store.update_session,
                    turns.info.id,
                    role=settings.role,
                    model_pin=settings.model_pin,
                    persona=settings.persona,
                )

    async def revoke(self, tool: str) -> None:
        """Revoke a tool for the rest of the session, whatever the role. Raises ConflictError, StoreError."""
        turns = self._turns
        async with self._taking:
            info = await turns.stored()
        taken = tuple(dict.fromkeys((*turns.settings.revoked, tool)))
        turns.settings = replace(turns.settings, revoked=taken)
        turns.grant = turns.settings.grant(self._services.rights)
        self._keep_replaced()
        # The current turn first: it must lose the tool even if that cannot be stored.
        await self._runner.take(NarrowGrant(layers=(revoked(taken),)))
        await self._services.worker(self._services.store.set_setting, f"revoked:{info.id}", "\n".join(taken))

    def registry_changed(self, news: RegistryNews) -> None:
        """Apply a changed or reloaded registry file and say what differs. The current turn can only lose rights by it.

        A session that was closed here may have another owner by now, so it is left alone.
        """
        if self._hands.closed:
            return
        turns, rights = self._turns, self._services.rights
        settings, before = turns.settings, turns.grant
        self.note = registry_notice(settings, rights)
        try:
            turns.grant = settings.grant(rights)
            said = change_notices(settings, before, turns.grant, replaced=self._replaced, rights=rights)
            self._keep_replaced()
        except ConfigError as error:
            self._tell(f"The registry has changed. {error}", advice=error.advice)
            self._runner.deliver(NarrowGrant(layers=(missing_role(settings.role),), answers=()))
            return
        if text := " ".join([*said, *news.notices]):
            self._tell(text)
        self._runner.deliver(NarrowGrant(layers=turns.grant.layers, answers=turns.grant.answers))

    def _keep_replaced(self) -> None:
        """Keep the grant in force until the user reloads the registry, to say then what has changed."""
        try:
            change = self._turns.settings.change(self._services.rights)
        except ConfigError:
            return
        self._replaced = None if change is None else (self._turns.settings, change[0])

    async def _suspended_by(self, after: Grant) -> int:
        """Return how many remembered grants are suspended while another role is in force."""
        turns = self._turns
        if turns.info is None or turns.grant.role == after.role:
            return 0
        grants = await self._services.worker(self._services.store.grants, turns.info.id)
        return sum(1 for grant in grants if grant.role == turns.grant.role)
