"""What is in force in a conversation changes: another role, model or persona, a tool taken away, another registry.

A turn in progress goes on under the new rights from its next model call on; what it loses it loses at once.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

from chatops.domain.errors import Busy, ConfigError
from chatops.domain.events import Event
from chatops.domain.events import RoleSwitched as RoleSwitchedEvent
from chatops.domain.ids import MessageId, SessionId
from chatops.engine.inputs import GrantNarrowed, RoleSwitched
from chatops.engine.view import may_be_retried
from chatops.policy.grant import Grant
from chatops.policy.resolve import revoked
from chatops.runtime.handover import HandOver
from chatops.runtime.registry_note import note_on_registry, told_of_change
from chatops.runtime.rights import RegistryNews
from chatops.runtime.runner import Runner
from chatops.runtime.services import Services
from chatops.runtime.standing import Standing, divider, role_gone
from chatops.runtime.turns import Turns


class Switching:
    """Puts something else in force in the conversation whose turns are `turns`."""

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
        """`taking` is held while a message is taken."""
        self._services = services
        self._runner = runner
        self._hands = hands
        self._turns = turns
        self._taking = taking
        self._publish = publish
        self._tell = tell
        self.note = note_on_registry(turns.standing, rights=services.rights)
        """What stays true of the registry until somebody does something about it."""
        self._replaced: tuple[Standing, Grant] | None = None
        """While a changed file is not in force: what the registry that is gives, with what that file takes away."""

    async def to(self, standing: Standing) -> None:
        """Put `standing` in force; the divider goes into the turn in progress, or into one that failed and can be
        retried, else behind the last one.

        Raises Busy in a run, ConfigError for a name that is not there, Conflict, StoreError.
        """
        self._hands.must_be_here()
        store, offload, turns = self._services.store, self._services.offload, self._turns
        if turns.leader:
            raise Busy(
                f"This is a run of workflow {turns.leader}: its steps say role, model and persona until it is over.",
                advice="Go on when it has ended, or end it: /workflow cancel",
            )
        after = standing.grant(self._services.rights)
        async with self._taking:
            state, said = self._runner.state, turns.record.messages
            count = len(said) + (len(state.messages) if state is not None else 0)
            session = turns.info.id if turns.info is not None else SessionId("")
            before = turns.grant
            switch = divider(
                before,
                after,
                id=MessageId(f"{session}.switch{count}"),
                suspended=await self._suspended_by(after),
            )
            turns.standing, turns.grant = standing, after
            self._keep_replaced()
            self.note = note_on_registry(standing, rights=self._services.rights)
            changes = (before.role, before.models) != (after.role, after.models)
            differs = changes or bool(switch.added or switch.removed)
            if turns.unfinished or (differs and state is not None and may_be_retried(state)):
                await self._runner.take(RoleSwitched(grant=after, switch=switch))
            elif differs:
                if turns.info is not None and (said or state is not None):
                    turns.close()
                    await self._runner.catch_up()
                    await offload(store.append_message, turns.info.id, switch)
                    turns.record.add(switch)
                self._publish(RoleSwitchedEvent(id=switch.id, parent_id=session, switch=switch))
            if turns.info is not None:
                await offload(
                    store.update_session,
                    turns.info.id,
                    role=standing.role,
                    model_pin=standing.model_pin,
                    persona=standing.persona,
                )

    async def revoke(self, tool: str) -> None:
        """Take a tool away, whatever the role; it stays away. Raises Conflict, StoreError."""
        turns = self._turns
        async with self._taking:
            info = await turns.stored()
        taken = tuple(dict.fromkeys((*turns.standing.revoked, tool)))
        turns.standing = replace(turns.standing, revoked=taken)
        turns.grant = turns.standing.grant(self._services.rights)
        self._keep_replaced()
        # The turn in progress first: it is to lose the tool even where that cannot be stored.
        await self._runner.take(GrantNarrowed(layers=(revoked(taken),)))
        await self._services.offload(self._services.store.set_setting, f"revoked:{info.id}", "\n".join(taken))

    def registry_changed(self, news: RegistryNews) -> None:
        """A file of the registry has changed, or was put in force: say what is different; a turn in progress can only
        lose by it.

        A conversation that was closed here may be driven elsewhere by now, so it is left alone.
        """
        if self._hands.closed:
            return
        turns, rights = self._turns, self._services.rights
        standing, before = turns.standing, turns.grant
        self.note = note_on_registry(standing, rights=rights)
        try:
            turns.grant = standing.grant(rights)
            said = told_of_change(standing, before, turns.grant, replaced=self._replaced, rights=rights)
            self._keep_replaced()
        except ConfigError as error:
            self._tell(f"The registry has changed. {error}", advice=error.advice)
            self._runner.deliver(GrantNarrowed(layers=(role_gone(standing.role),), answers=()))
            return
        if text := " ".join([*said, *news.told]):
            self._tell(text)
        self._runner.deliver(GrantNarrowed(layers=turns.grant.layers, answers=turns.grant.answers))

    def _keep_replaced(self) -> None:
        """Keep what is in force until the person's word, to say then what has changed by it."""
        try:
            change = self._turns.standing.change(self._services.rights)
        except ConfigError:
            return
        self._replaced = None if change is None else (self._turns.standing, change[0])

    async def _suspended_by(self, after: Grant) -> int:
        """How many remembered approvals rest while the role is another one."""
        turns = self._turns
        if turns.info is None or turns.grant.role == after.role:
            return 0
        grants = await self._services.offload(self._services.store.grants, turns.info.id)
        return sum(1 for grant in grants if grant.role == turns.grant.role)
