"""A session that this process owns: the actions that a UI offers and the state that it shows.

Live, resumed and headless use are the same: every change goes through `Runner` and so through `advance`.

`open_session` takes the lease of a session, loads what is stored, and puts the wanted settings in force.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from chatops.domain.decisions import Approved, Decision, Rejected
from chatops.domain.errors import (
    AlreadyDecidedError,
    ChatopsError,
    ConfigError,
    ConflictError,
    NotSavedError,
    SessionHeldError,
)
from chatops.domain.events import PendingCall
from chatops.domain.ids import CallId, SessionId, TurnId
from chatops.domain.messages import AttachedFile
from chatops.engine.inputs import DecideCall, RetryTurn, SpentBeside
from chatops.engine.state import Finished, RoundRecord, Spending, TurnState
from chatops.engine.turn import start
from chatops.engine.view import is_in_flight, waits_for_child
from chatops.policy.budget import Budget
from chatops.policy.grant import Grant
from chatops.policy.sandbox import SandboxChange
from chatops.runtime.message_queue import MessageQueue, no_draft
from chatops.runtime.rule_offer import RuleOffer
from chatops.runtime.services import Services
from chatops.runtime.settings import Rights, SessionSettings, stored_settings
from chatops.runtime.settings_changes import SettingsChanges
from chatops.runtime.turns import MakeStep, TakeDraft, Turns
from chatops.runtime.user_actions import UserActions
from chatops.runtime.view import SessionView, Snapshot
from chatops.store.base import Holder, SessionInfo
from chatops.store.store import Store


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
        self._changes = SettingsChanges(self._turns, services, self._bus)

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
            registry=self._changes.registry_notice,
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

    async def submit(self, text: str, *, draft: TakeDraft | None = None) -> bool:
        """Submit a message. Returns False if it is queued behind a turn, a run or older messages.

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
        """Count from the next request what the caller's other `children` spent against this turn's budget."""
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
        await self._turns.leave(why)

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
        """Put `settings` in force, see `SettingsChanges.change`."""
        await self._changes.change(settings)

    async def revoke_tool(self, name: str) -> None:
        """Revoke a tool for the rest of this session, whatever the role. Raises ConflictError, StoreError."""
        await self._changes.revoke_tool(name)

    async def change_sandbox(self, change: SandboxChange | None) -> None:
        """Change the limits of commands, see `SettingsChanges.change_sandbox`."""
        await self._changes.change_sandbox(change)

    async def inherit(self, revoked: tuple[str, ...], sandbox: tuple[SandboxChange, ...]) -> None:
        """Bind this child session by what the user has taken from the session with the call."""
        await self._changes.inherit(revoked, sandbox)

    async def rename(self, title: str) -> None:
        """Give the session another title."""
        async with self._turns.submitting:
            info = await self._turns.ensure_stored()
            await self._services.worker(self._services.store.update_session, info.id, title=title)
            self._turns.info = replace(info, title=title)

    def registry_changed_soon(self, notices: Sequence[str]) -> None:
        """Call `SettingsChanges.registry_changed` on the event loop later, from any thread.

        The caller may itself be inside a request for rights, which must not be interrupted.
        """
        self._loop.call_soon_threadsafe(self._changes.registry_changed, notices)

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
