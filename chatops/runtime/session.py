"""A session that this process owns: the actions that a UI offers and the state that it shows.

Live, resumed and headless use are the same: every change goes through `Runner` and so through `advance`.

Changed settings apply to the current turn from its next model call on. Rights that they take away are gone at once.

`open_session` takes the lease of a session, loads what is stored, and puts the wanted settings in force.
"""

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from chatops.domain.decisions import Approved, Decision, Rejected, RuleScope
from chatops.domain.errors import (
    AlreadyDecidedError,
    ChatopsError,
    ConfigError,
    ConflictError,
    NotSavedError,
    SessionBusyError,
    SessionHeldError,
)
from chatops.domain.events import PendingCall, RoleSwitched
from chatops.domain.ids import CallId, MessageId, SessionId, TurnId
from chatops.domain.messages import AttachedFile
from chatops.engine.effects import ComposerDraft
from chatops.engine.inputs import DecideCall, NarrowGrant, RetryTurn, SpentBeside, SwitchRole
from chatops.engine.state import Finished, RoundRecord, Spending, TurnState
from chatops.engine.turn import start
from chatops.engine.view import is_in_flight, may_be_retried, waits_for_child
from chatops.policy.budget import Budget
from chatops.policy.grant import Grant
from chatops.policy.resolve import revoked_layer
from chatops.policy.sandbox import SandboxChange, is_in_force, resolve
from chatops.runtime.services import Services
from chatops.runtime.settings import (
    Rights,
    SessionSettings,
    change_notices,
    missing_role,
    registry_notice,
    role_switch,
    stored_settings,
)
from chatops.runtime.turns import MakeStep, Turns
from chatops.runtime.user_actions import MessageQueue, UserActions, no_draft
from chatops.runtime.view import RuleOffer, SessionView, Snapshot
from chatops.store.base import Holder, SessionInfo
from chatops.store.store import Store
from chatops.toolkit.confine import link_target, why_not_for_commands


class Session(SessionView):
    """A session that this process owns.

    Methods raise ChatopsError with a message for the user. A model's mistakes raise nothing.
    """

    def __init__(self, services: Services, info: SessionInfo | None, settings: SessionSettings) -> None:
        """Use `open_session` instead, which takes the lease and loads the stored state."""
        super().__init__(services)
        self._source = self._turns = Turns(services, self._bus, info, settings)
        self._runner = self._turns.runner
        """Takes inputs in order: `deliver` does not wait, `take` waits, `take_or_fail` raises if one is not stored."""
        self._deferred: list[str] = []
        """Notices to publish as soon as a UI listens."""
        self.queue = MessageQueue(self._turns, services, self._bus)
        """The queued messages."""
        self.actions = UserActions(self._turns, services, self._bus)
        """User actions besides sending messages."""
        self._registry_notice = registry_notice(settings, services.rights)
        """Lasting notice about the registry, until the user acts: the file is broken, or has changed."""
        self._replaced: tuple[SessionSettings, Grant] | None = None
        """While a changed registry file waits for /reload: settings and grant without it, to say then what differs."""

    # State

    @property
    def is_executed(self) -> bool:
        """True unless the turn was loaded as another process left it, and is not resumed yet."""
        return not self._turns.interrupted

    @property
    def blocked_by(self) -> ChatopsError | None:
        """The error that blocks the turn here: the store cannot be written, or another process has taken over."""
        return self._runner.blocked_by

    @property
    def taken_over(self) -> ChatopsError | None:
        """Set once another process has taken the session over. It can still be followed."""
        return self._turns.taken_over

    @property
    def lease(self) -> str:
        """Token of the lease; empty while this process has none."""
        return self._turns.lease.token

    @property
    def lease_age_s(self) -> float:
        """Seconds since the lease was renewed last."""
        return self._turns.lease.age_s

    async def stop_working(self) -> None:
        """Stop tools and requests at once and start no more. What has ended is still stored."""
        await self._turns.performer.aclose()

    @property
    def wanted_by(self) -> Holder | None:
        """The process that requests the session. It gets it as soon as nothing runs here."""
        return self._turns.wanted_by

    def snapshot(self) -> Snapshot:
        """Return the current session, consistent with the events published so far."""
        snapshot = super().snapshot()
        return replace(
            snapshot,
            contained=snapshot.contained or self._turns.contain_next,
            queued=self.queue.messages,
            queue_held=self.queue.held and not self._turns.unfinished,
            registry=self._registry_notice,
            concern=self.unsaved or self._turns.store_notice,
        )

    def grant(self) -> Grant:
        """Return what the current role may do now."""
        return self._turns.grant

    async def store(self) -> SessionId:
        """Store the session before its first message, and return its id. Raises ConflictError, StoreError."""
        async with self._turns.submitting:
            return (await self._turns.ensure_stored()).id

    # Messages

    async def submit(self, text: str, *, draft: Callable[[], ComposerDraft | None] | None = None) -> bool:
        """Submit a message. Returns False if it is queued behind a turn, a run or older messages.

        `draft` is called when the message is about to be stored, and returns the draft to store with it.

        With no user at the screen, older messages stay queued.
        """
        if not text.strip():
            return True
        self._publish_deferred()
        self._turns.store_notice = ""
        if not (self._turns.unfinished or self._turns.workflow):
            await self._turns.server_wait.wait(lambda: self.settings)
        async with self._turns.submitting:
            try:
                return await self.queue.submit(await self._turns.ensure_stored(), text, draft or no_draft)
            except NotSavedError as error:
                self._runner.report_unsaved(error)
                raise

    async def start_child(
        self,
        task: str,
        *,
        files: tuple[AttachedFile, ...],
        reads_workspace: bool,
        spending: Spending | None,
        budget: Budget,
    ) -> None:
        """Start the turn of the call that this session was made for. Raises ConfigError, StoreError."""
        await self._turns.server_wait.wait(lambda: self.settings)
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
            make = partial(start, text=task, files=files, reads_workspace=reads_workspace, spending=spending)
            await self._turns.start_child(info, make, budget=budget)

    def count_siblings(self, children: tuple[RoundRecord, ...]) -> None:
        """Count what siblings, the caller's other `children`, spent against this turn's budget, from its next call."""
        state = self.state
        if state is not None and not isinstance(state.phase, Finished) and state.spending.beside != children:
            self._runner.deliver(SpentBeside(children=children))

    # The turn

    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Decide a pending call as shown (`digest`). Returns False if it is no longer pending under that digest.

        A decision that another process has posted counts first, except that a denial here withdraws an approval that
        the turn has not taken. Raises StoreError if the decision cannot be recorded: then it is void. Raises
        ConfigError if the site does not let users decide here.

        A call of a child turn is decided in its session.
        """
        if (asking := self._turns.children.child_asking(call_id)) is not None and asking.session is not None:
            taken = await asking.session.decide(call_id, digest=digest, decision=decision)
            await asking.report()
            return taken
        self._services.rights.check_surface(self._services.by.via)
        if isinstance(decision, Approved) and self._services.store.unsaved:
            raise _refused_approval(self._services.store)
        try:
            if not isinstance(decision, Rejected):
                await self._turns.take_decisions()
            decided = DecideCall(call_id=call_id, digest=digest, decision=decision, by=self._services.by)
            if self.state is not None:
                await self._turns.check_decider(self.state, decided)
            return await self._runner.take_or_fail(decided)
        except AlreadyDecidedError:
            # Another process posted a decision after the last look.
            await self._turns.take_decisions()
            return False
        except NotSavedError as error:
            text = f"Your decision was not recorded. {error}"
            raise NotSavedError(text, advice=error.advice, reason=error.reason) from error

    async def cancel(self) -> bool:
        """Stop the reply or the running tools, and hold the queue. Returns False if nothing was running.

        A turn that waits for MCP servers starts without them.
        """
        if self._services.attended and self._turns.server_wait.skip():
            return True
        state = self.state
        if not self.pending and not self._turns.workflow:
            # Held even if the turn ends while the key press is handled: the next one must not start.
            self.queue.held = True
        if state is None or not (is_in_flight(state) or waits_for_child(state)):
            return False
        return await self._turns.cancel()

    async def retry(self) -> bool:
        """Retry a failed turn, or store what could not be stored. Returns False if there is nothing to retry."""
        if await self._runner.retry_unsaved():
            return True
        self.queue.held = False
        self._turns.grant = self._turns.settings.grant(self._services.rights)
        return await self._runner.take(RetryTurn(grant=self._turns.grant))

    async def resume(self) -> None:
        """Resume an unfinished turn from its checkpoint, taking the decisions that other processes posted."""
        self._publish_deferred()
        state = self.state
        if state is None or isinstance(state.phase, Finished):
            await self.queue.send()
        else:
            await self._turns.resume(state)

    async def quiesce(self) -> None:
        """Wait for a point where another process can resume the turn; if none runs, the next turn is left to it."""
        await self._runner.quiesce()

    def continue_here(self) -> None:
        """Undo `quiesce`."""
        self._runner.continue_here()

    async def let_go(self, why: ConflictError) -> None:
        """Release the session, which is quiet, to whichever process takes it next. `why` is what the user is told."""
        await self._turns.let_go(by=None, why=why)

    async def settle(self) -> TurnState | None:
        """Wait until the turn is paused or finished, and return it."""
        await self._runner.settle()
        return self.state

    def rule_offer(self, pending: PendingCall) -> RuleOffer:
        """Return the rules that the decision on a pending call can make, for a child's call under its own grant."""
        child = self._turns.children.child_asking(pending.call.id)
        session = child.session if child is not None else None
        return session.rule_offer(pending) if isinstance(session, Session) else super().rule_offer(pending)

    # Settings

    async def switch_role(self, name: str) -> None:
        """Switch to another role from the next model call on. Raises ConfigError for an unknown role."""
        await self.change_settings(replace(self.settings, role=name))

    async def pin_model(self, name: str | None, *, as_default: bool = True) -> bool:
        """Use this model whatever the role says, and as the default from now on; None: the role's model again.

        The demo, and any model without `as_default`, is pinned for this session only. Return True if the default has
        changed. Raises ConfigError for a model that does not exist or cannot be used here.
        """
        if name:
            self._services.rights.check_model(name)
        await self.change_settings(replace(self.settings, model_pin=name or ""))
        rights = self._services.rights
        return as_default and name is not None and not rights.is_demo(name) and rights.choose_model(name)

    async def set_persona(self, name: str) -> None:
        """Use another persona from the next model call on."""
        await self.change_settings(replace(self.settings, persona=name))

    async def change_settings(self, settings: SessionSettings) -> None:
        """Put `settings` in force, with a divider in the transcript. A new role becomes this workspace's last used one.

        The divider goes into the current turn, or into a failed turn that can be retried, else after the last turn.
        With no unfinished turn, there is none unless role, models or tools change: another persona alone makes none.

        Raises SessionBusyError in a run, ConfigError for an unknown name, ConflictError, StoreError.
        """
        turns = self._turns
        turns.check_owned()
        if turns.workflow:
            raise SessionBusyError(
                f"A run of workflow {turns.workflow} sets role, model and persona until it is over.",
                advice="Wait for its end, or end it: /workflow cancel",
            )
        after = settings.grant(self._services.rights)
        async with turns.submitting:
            state, messages, before = self.state, turns.history.messages, turns.grant
            number = len(messages) + (len(state.messages) if state is not None else 0)
            divider_id = MessageId(f"{self.session_id}.switch{number}")
            switch = role_switch(before, after, id=divider_id, suspended=await self._suspended_by(after))
            self._put_in_force(settings, after)
            self._registry_notice = registry_notice(settings, self._services.rights)
            has_other_tools = bool(switch.added or switch.removed)
            differs = has_other_tools or (before.role, before.models) != (after.role, after.models)
            if turns.unfinished or (differs and state is not None and may_be_retried(state)):
                await self._runner.take(SwitchRole(grant=after, switch=switch))
            elif differs:
                if turns.info is not None and (messages or state is not None):
                    await turns.append(turns.info, switch)
                self.publish(RoleSwitched(id=switch.id, parent_id=self.session_id, switch=switch))
            await self._update_stored(role=settings.role, model_pin=settings.model_pin, persona=settings.persona)
        if settings.role != before.role:
            await self._services.worker(self._services.store.set_setting, f"role:{self.workspace}", settings.role)

    async def revoke_tool(self, name: str) -> None:
        """Revoke a tool for the rest of this session, whatever the role. Raises ConflictError, StoreError."""
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
        taken = tuple(dict.fromkeys((*self.settings.revoked, name)))
        settings = replace(self.settings, revoked=taken)
        self._put_in_force(settings, settings.grant(self._services.rights))
        # The current turn first: it must lose the tool even if that cannot be stored.
        await self._runner.take(NarrowGrant(layers=(revoked_layer(taken),)))
        await self._bind_children()
        await self._services.worker(self._services.store.set_setting, f"revoked:{info.id}", "\n".join(taken))

    async def change_sandbox(self, change: SandboxChange | None) -> None:
        """Change what commands of this session may see, write and reach; None: as without any change.

        What it takes away is gone at once, what it adds counts from the next message on.

        Raises ConfigError if a layer does not permit it; ConflictError, StoreError.
        """
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
        changes: tuple[SandboxChange, ...] = ()
        if change is not None:
            changes = (*(made for made in self.settings.sandbox if not made.is_replaced_by(change)), change)
        settings = replace(self.settings, sandbox=changes)
        limits = resolve(self._services.rights.sandbox_layers(settings))
        if change is not None and not is_in_force(limits, change):
            why = "the site registry, the role, or a model whose key it is"
            raise ConfigError(f"{change} is not permitted by {why}.", advice="Nothing has changed.")
        if change is not None and change.key in ("read", "write"):
            sign, path = change.value[:1], change.value[1:]
            # Limits compare paths as they are written, and a link could lead out of the site's.
            if sign == "+" and (target := link_target(path)):
                raise ConfigError(f"{path} is a link.", advice=f"Name what it leads to: {target}")
            if path in (*limits.read, *limits.write) and (fault := why_not_for_commands([path])):
                raise ConfigError(fault, advice="Nothing has changed.")
        self._put_in_force(settings, settings.grant(self._services.rights))
        await self._runner.take(NarrowGrant(layers=(), sandbox=limits))
        await self._bind_children()
        stored = "\n".join(map(str, settings.sandbox))
        await self._services.worker(self._services.store.set_setting, f"sandbox:{info.id}", stored)

    async def _bind_children(self) -> None:
        """Pass what the user took away to the child sessions that run here.

        Other child sessions read it from the store when they are resumed or decided on.
        """
        for child in self._turns.children.sessions:
            await child.inherit(self.settings.revoked, self.settings.sandbox)

    async def inherit(self, revoked: tuple[str, ...], sandbox: tuple[SandboxChange, ...]) -> None:
        """Bind this child session by what the user has taken from the session with the call."""
        await self._turns.inherit(revoked, sandbox)
        self._remember_replaced()

    def _put_in_force(self, settings: SessionSettings, grant: Grant) -> None:
        self._turns.settings, self._turns.grant = settings, grant
        self._remember_replaced()

    async def _suspended_by(self, after: Grant) -> int:
        """Return how many rules of the session are suspended once `after` is in force, because of its other role."""
        role = self._turns.grant.role
        if self._turns.info is None or role == after.role:
            return 0
        rows = await self._services.worker(self._services.store.rules, session_id=self.session_id)
        return sum(1 for row in rows if row.rule.scope is RuleScope.SESSION and row.rule.role == role)

    async def rename(self, title: str) -> None:
        """Give the session another title."""
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
            await self._update_stored(title=title)
            self._turns.info = replace(info, title=title)

    async def _update_stored(self, **values: str) -> None:
        if self._turns.info is not None:
            await self._services.worker(self._services.store.update_session, self.session_id, **values)

    def registry_changed_soon(self, notices: Sequence[str]) -> None:
        """Call `registry_changed` on the event loop later, from any thread.

        The caller may itself be inside a request for rights, which must not be interrupted.
        """
        self._loop.call_soon_threadsafe(self.registry_changed, notices)

    def registry_changed(self, notices: Sequence[str]) -> None:
        """Apply a changed or reloaded registry file and say what differs. The current turn can only lose rights by it.

        `notices` are sentences for the user, besides what the change means for a role: see `Rights.change`.

        A session that was closed here may have another owner by now, so it is left alone.
        """
        turns, rights = self._turns, self._services.rights
        if turns.closed:
            return
        settings, before = turns.settings, turns.grant
        self._registry_notice = registry_notice(settings, rights)
        try:
            turns.grant = settings.grant(rights)
            changes = change_notices(settings, before, turns.grant, replaced=self._replaced, rights=rights)
            self._remember_replaced()
        except ConfigError as error:
            self.notify(f"The registry has changed. {error}", advice=error.advice)
            self._runner.deliver(NarrowGrant(layers=(missing_role(settings.role),), answers=(), rule_scopes=()))
            return
        if text := " ".join([*changes, *notices]):
            self.notify(text)
        self._runner.deliver(
            NarrowGrant(
                layers=turns.grant.layers,
                answers=turns.grant.answers,
                sandbox=turns.grant.sandbox,
                ceiling=turns.grant.ceiling,
                rule_scopes=turns.grant.rule_scopes,
                may_contain=turns.grant.may_contain,
            )
        )

    def _remember_replaced(self) -> None:
        """Keep the grant without a changed registry file until the user reloads it, see `_replaced`."""
        with suppress(ConfigError):
            if (change := self.settings.change(self._services.rights)) is None:
                self._replaced = None
            else:
                in_force, _ = change
                self._replaced = (self.settings, in_force)

    # Opening, closing, notices

    async def load(self) -> None:
        """Take the lease and load what is stored, performing nothing. Raises SessionHeldError, UnreadableError."""
        await self._turns.load()
        if (info := self._turns.info) is not None:
            await self.queue.load(info)

    async def aclose(self) -> None:
        """Stop all work and release the session. Pending calls stay pending."""
        self.is_closed = True
        await self._turns.aclose()

    def notify_later(self, text: str) -> None:
        """Publish a notice with the next action of a UI. Nothing listens yet while the session is being opened."""
        self._deferred.append(text)

    def _publish_deferred(self) -> None:
        deferred, self._deferred = self._deferred, []
        for text in deferred:
            self.notify(text)

    def show_store_notice(self, text: str) -> None:
        """Show a notice about the store until the user continues."""
        self._turns.store_notice = text

    # For `runtime.workflow`, while a run determines the turns

    def bind_to_run(self, workflow: str, settings: SessionSettings) -> None:
        """Let a run of `workflow` determine the turns from now on. `settings` are those of its current step."""
        self._turns.workflow = workflow
        # No grant yet: a run also opens if its step's role is gone. It is made when a turn begins or is resumed.
        self._turns.settings = settings

    async def release_from_run(self, settings: SessionSettings) -> None:
        """Undo `bind_to_run`: be a chat under `settings` again, and send queued messages. Raises ConfigError."""
        self._turns.workflow = ""
        self._turns.settings, self._turns.grant = settings, settings.grant(self._services.rights)
        await self.queue.send()

    async def begin(self, turn_id: TurnId, settings: SessionSettings, make: MakeStep) -> None:
        """Start a turn of a run, see `Turns.begin`. Raises ConfigError, StoreError."""
        await self._turns.server_wait.wait(lambda: settings)
        async with self._turns.submitting:
            await self._turns.ensure_stored()
            await self._turns.begin(turn_id, settings, make)

    async def stop_turn(self) -> None:
        """End an unfinished turn, even one that waits for the user. One left by another process is recovered first."""
        if self._turns.interrupted and self.state is not None:
            await self._turns.resume(self.state, to_stop=True)
        await self._turns.cancel()


def owned(session: SessionView, refused: str) -> Session:
    """Return the session if this process owns it.

    Raises SessionHeldError if another process does. Its message begins with `refused`, which says what was not done:
    ``The message was not sent``.
    """
    if isinstance(session, Session):
        return session
    does = "takes it over" if session.is_executed else "opens it here"
    raise SessionHeldError(f"{refused}: {session.whereabouts()}.", advice=f"/takeover {does}.")


def _refused_approval(store: Store) -> NotSavedError:
    return NotSavedError(
        f"Not approved: nothing can be saved ({store.unsaved}), and no call runs without a record of who allowed it.",
        advice="Deny it (d), or make saving possible: it can be approved then.",
        reason=store.unsaved,
    )


async def open_session(
    services: Services,
    session_id: SessionId | None,
    *,
    role: str = "",
    default_role: str,
    model_pin: str = "",
) -> Session:
    """Open a session. A stored one keeps its persona, and its role and model unless others are given.

    With no user at the screen, an unfinished turn also keeps role and model. An unfinished turn is loaded but not
    resumed: call `resume` when a UI listens. The session of a workflow run is opened as it is, and its next turn is not
    started: see `runtime.workflow.open_run`.

    Raises NoSuchSessionError, SessionHeldError, UnreadableError, ConfigError.
    """
    if session_id is None:
        return Session(services, None, SessionSettings(role=role or default_role, model_pin=model_pin))
    info = await services.worker(services.store.session, session_id)
    stored = info.role if info.role in services.rights.roles() else default_role
    settings = await services.worker(stored_settings, services.store, info, role=stored)
    settings, notices = _drop_missing(settings, services.rights, chosen=bool(model_pin))
    session = Session(services, info, settings)
    for text in notices:
        session.notify_later(text)
    try:
        await session.load()
        if info.unfinished_run is not None:
            run = await services.worker(services.store.load_run, info.id)
            session.bind_to_run(run.spec.name, settings.at_step(run))
        # With no user at the screen, `headless.run.ask` refuses its prompt if a turn is unfinished. The settings given
        # with that prompt must not count either.
        wanted = replace(settings, role=role or stored, model_pin=model_pin or settings.model_pin)
        if wanted != settings and (services.attended or not session.unfinished):
            await session.change_settings(wanted)
    except BaseException:
        await session.aclose()
        raise
    return session


def _drop_missing(settings: SessionSettings, rights: Rights, *, chosen: bool) -> tuple[SessionSettings, list[str]]:
    """Return the settings without a pinned model or persona that no longer exists, and the notices about them.

    If the user has just `chosen` another model, there is no notice about the stored one. The session opens all the
    same, because pending calls wait in it for the user.
    """
    notices: list[str] = []
    for kind, pin, persona in (("model", settings.model_pin, ""), ("persona", "", settings.persona)):
        try:
            SessionSettings(settings.role, model_pin=pin, persona=persona).grant(rights)
        except ConfigError as error:
            settings = replace(settings, model_pin="") if pin else replace(settings, persona="")
            if not (pin and chosen):
                notices.append(f"{error} The role's own {kind} is used until it exists again; /{kind} chooses another.")
    return settings, notices
