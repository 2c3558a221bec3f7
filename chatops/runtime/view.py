"""A session as frontends see it, whether this process owns it or follows it read-only.

A frontend draws a `Snapshot` and then follows the events. `SessionView` has what both kinds of session answer. What
only the owner can do is on `runtime.session.Session`, which `runtime.session.owned` returns.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Protocol

from chatops.domain.decisions import Decision, OpenQuestion
from chatops.domain.errors import ChatopsError, NotSavedError, ToolFailedError
from chatops.domain.events import Event, PendingCall, TurnStatus
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId, SessionId, TurnId, session_of, turn_of
from chatops.domain.messages import Message, ToolMessage, Usage
from chatops.domain.tools import (
    CONTAINED_APPLY,
    AccessLevel,
    Capabilities,
    Problem,
    ToolCall,
    built_in_capabilities,
    is_undo,
    tool_name,
)
from chatops.engine.budgets import summary_lines
from chatops.engine.state import Finished, TurnState, new_turn
from chatops.engine.view import (
    correction_of,
    open_questions,
    pending_calls,
    permitted_calls,
    turn_status,
)
from chatops.policy.grant import Grant
from chatops.policy.prompt import PromptLayer
from chatops.runtime.descriptions import find_decision, with_roles
from chatops.runtime.history import History
from chatops.runtime.rule_offer import RecordedCall, RuleOffer, recorded_calls
from chatops.runtime.services import EventBus, Listener, Services
from chatops.runtime.settings import SessionSettings
from chatops.store.base import DecisionRow, SessionInfo
from chatops.toolkit.base import Tool, ToolContext

if TYPE_CHECKING:
    from chatops.contained.text import Change, ContainedReview
    from chatops.engine.workflow.state import WorkflowState

log = logging.getLogger(__name__)


@frozen_dataclass
class Snapshot:
    """A session at one moment. `session_id` is empty until the first message is submitted."""

    session_id: SessionId
    title: str
    workspace: str
    role: str
    roles: tuple[str, ...]
    level: AccessLevel
    model: str
    model_label: str
    is_demo: bool
    persona: str
    """The persona that the user chose; empty: the role's."""
    messages: tuple[Message, ...]
    """All stored messages of the session, including those of the current turn and the results of its open round."""
    status: TurnStatus | None
    """Status of the last turn; None if there was none."""
    detail: str
    """Reason of the end of the last turn; empty if there is none to give."""
    advice: str
    noticed: bool
    """True if a notice of the turn gives `detail` already."""
    pending: tuple[PendingCall, ...]
    usage: Usage | None
    """Usage of all turns of the session."""
    context_used: int
    """Estimated tokens of the next request."""
    context_window: int | None
    """None if it is unknown."""
    notices: tuple[str, ...]
    queued: tuple[str, ...] = ()
    """Messages to be sent after the current turn, oldest first."""
    queue_held: bool = False
    """True if the queue is held for the user: the last turn failed or was interrupted."""
    questions: tuple[OpenQuestion, ...] = ()
    """Questions of MCP servers that wait for the user."""
    correction: str = ""
    """Message with which the turn continues once the running calls have stopped."""
    permitted: Mapping[CallId, str] = field(default_factory=dict)
    """Calls that may run but wait for earlier ones of their round, each with who or what allowed it."""
    concern: str = ""
    """Problem of the store that the user should see; empty if there is none."""
    contained: bool = False
    """True if the unfinished turn, or the next one, is contained."""
    budget: tuple[str, ...] = ()
    """A line for each limit of the budget of the last turn, else of the next one: what is spent of it and left."""
    registry: str = ""
    """Problem of the registry: its file is broken, or has changed and is not in force; else empty."""

    @property
    def runs(self) -> bool:
        """True while the last turn is under way and does not wait for the user."""
        return self.status is TurnStatus.RUNNING

    @property
    def has_failed(self) -> bool:
        """True if the last turn has failed."""
        return self.status is TurnStatus.FAILED


class SessionSource(Protocol):
    """The source of a view's session: the turns of the owner, or the rows that a follower has read."""

    @property
    def info(self) -> SessionInfo | None:
        """The session as stored; None until the first message is submitted."""

    @property
    def settings(self) -> SessionSettings:
        """Role, pinned model, persona and revoked tools."""

    @property
    def state(self) -> TurnState | None:
        """The last turn, as committed."""

    @property
    def history(self) -> History:
        """The session before that turn."""


class SessionView(ABC):
    """A session on a screen.

    Methods raise ChatopsError with a message for the user.
    """

    is_followed: ClassVar[bool] = False
    """True if it is only followed: another process owns it, or none does."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._source: SessionSource
        self._loop = asyncio.get_running_loop()
        self._bus = EventBus()
        self.is_closed = False
        """True once `aclose` was called."""

    @property
    def state(self) -> TurnState | None:
        """The last turn, as committed."""
        return self._source.state

    @property
    def unfinished(self) -> bool:
        """True while a turn is running or paused."""
        return self.state is not None and not isinstance(self.state.phase, Finished)

    @property
    def settings(self) -> SessionSettings:
        """The session settings: role, pinned model, persona and revoked tools."""
        return self._source.settings

    def _next_grant(self) -> Grant:
        """Return the grant that the next turn would get."""
        return self.grant()

    @abstractmethod
    def grant(self) -> Grant:
        """Return what the current role may do now. Raises ConfigError if the registry lacks the role."""

    @abstractmethod
    async def decide(self, call_id: CallId, *, digest: str, decision: Decision) -> bool:
        """Decide a pending call as shown (`digest`).

        Returns False if another decision came first or the call is no longer pending under that digest. Raises
        StoreError if the decision cannot be recorded: then it is void.
        """

    @abstractmethod
    async def cancel(self) -> bool:
        """Stop the reply or the running tools of this process. Returns False if nothing was running here."""

    @abstractmethod
    async def aclose(self) -> None:
        """Stop all work and release the session."""

    @property
    def session_id(self) -> SessionId:
        """Id of the session; empty until the first message is submitted."""
        return self._source.info.id if self._source.info is not None else SessionId("")

    @property
    def workspace(self) -> Path:
        """Workspace of this process. If another process owns the session, its tools may work in another one."""
        return self._services.workspace

    @property
    def pending(self) -> tuple[PendingCall, ...]:
        """Calls that wait for a decision."""
        if self.state is None:
            return ()
        return with_roles(pending_calls(self.state), self.settings, self._services.rights)

    @property
    @abstractmethod
    def is_executed(self) -> bool:
        """True if a process executes the unfinished turn. False if it was loaded and is not resumed yet."""

    @property
    def blocked_by(self) -> ChatopsError | None:
        """The error that blocks the turn here: the store cannot be written, or another process has taken over."""
        return None

    @property
    def taken_over(self) -> ChatopsError | None:
        """Set once another process has taken the session over from this one. It can still be followed."""
        return None

    @property
    def unsaved(self) -> str:
        """Reason that the session is not being saved; empty if it is."""
        if reason := self._services.store.unsaved:
            return f"Not saving: {reason}. Messages here are lost when chatops ends; no call can be approved."
        if isinstance(self.blocked_by, NotSavedError):
            reason = self.blocked_by.reason[:1].upper() + self.blocked_by.reason[1:]
            return f"{reason}: this turn is not saved. No call is approved or run until it is; R tries again now."
        return ""

    @property
    def in_memory_only(self) -> bool:
        """True if the session ends with this process because nothing can be stored. No other process can find it."""
        return bool(self._services.store.unsaved)

    def capabilities(self, tool: str) -> Capabilities:
        """Return the capabilities of a tool, also of one that the role does not have."""
        found = self._services.tools.get(tool_name(tool))
        return found.spec.capabilities if found is not None else built_in_capabilities(tool)

    def snapshot(self) -> Snapshot:
        """Return the current session, consistent with the events published so far."""
        state, info, rights = self.state, self._source.info, self._services.rights
        ended = state.phase if state is not None and isinstance(state.phase, Finished) else None
        grant = self._next_grant() if state is None or ended is not None else state.grant
        pending = self.pending
        undoes = any(call.call.name == CONTAINED_APPLY and is_undo(call.call.arguments) for call in pending)
        model = grant.models[min(state.counters.backup if state is not None else 0, len(grant.models) - 1)]
        return Snapshot(
            session_id=self.session_id,
            title=info.title if info is not None else "",
            workspace=str(self.workspace),
            role=grant.role,
            roles=rights.roles(),
            level=rights.level,
            model=model.name,
            model_label=model.label or model.name,
            is_demo=rights.is_demo(model.name),
            persona=self.settings.persona,
            messages=self._source.history.with_turn(state),
            status=turn_status(state) if state is not None else None,
            detail=ended.detail if ended is not None else "",
            advice=ended.advice if ended is not None else "",
            noticed=ended is not None and ended.noticed,
            pending=pending,
            questions=open_questions(state) if state is not None else (),
            correction=correction_of(state),
            permitted=permitted_calls(state) if state is not None else {},
            contained=state is not None and ended is None and state.containment is not None and not undoes,
            usage=self._source.history.usage(state),
            budget=tuple(summary_lines(state or new_turn(TurnId(""), self.session_id, grant=grant))),
            context_used=self._source.history.context_used(state, grant),
            context_window=model.context_window,
            notices=rights.notices(grant),
        )

    def events(self, run: "WorkflowState | None" = None) -> Iterator[Event]:
        """Yield the events published so far, as far as they are stored. `run` is the session's workflow run."""
        # Loaded here, after the first paint.
        from chatops.engine.replay import replay

        now = self.snapshot()
        return replay(
            now.messages,
            self.state,
            session_id=now.session_id,
            role=now.role,
            model=now.model,
            pending=now.pending,
            executed=self.is_executed,
            run=run,
        )

    def whereabouts(self) -> str:
        """Return which process owns the session, in words."""
        return "this session is open here"

    def prompt_layers(self) -> tuple[PromptLayer, ...]:
        """Return the layers of the system prompt in order, as the next model call would get them."""
        return self._services.rights.prompt_layers(self.settings)

    def contained_changes(self, arguments: str) -> "ContainedReview":
        """Return the changes that a pending call of `CONTAINED_APPLY` is about. Blocks. Raises ChatopsError."""
        return self._services.contained().review(arguments)

    def changed_files(self, messages: Sequence[Message]) -> "tuple[Change, ...]":
        """Return what file tools changed in the turns of `messages`, from before to now, by path.

        Reads files: call it in a thread. Raises ChatopsError.
        """
        results = [message for message in messages if isinstance(message, ToolMessage)]
        # What calls in a copy of the workspace have written is in the list of changes of their turn.
        contained = {turn_of(result.id) for result in results if result.tool == CONTAINED_APPLY}
        wrote = {
            result.call_id: result.facts.wrote
            for result in results
            if result.facts.wrote and turn_of(result.id) not in contained
        }
        turns = tuple(dict.fromkeys(filter(None, (turn_of(message.id) for message in messages))))
        try:
            return self._services.contained().changed_files(self.workspace, turns=turns, wrote=wrote)
        except (OSError, ToolFailedError) as error:
            raise ChatopsError(f"What was changed cannot be read: {error}") from error

    async def decision_on(self, call_id: CallId) -> DecisionRow | None:
        """Return the decision on a call, or None."""
        # It may be a call of a child session.
        return await self._services.worker(find_decision, self._services.store, session_of(call_id), call_id)

    def rule_offer(self, pending: PendingCall) -> RuleOffer:
        """Return the rules that the decision on a pending call can make. Raises ConfigError if its role is gone."""
        return RuleOffer(pending=pending, grant=replace(self._grant_in_force(), role=pending.role))

    async def recorded_calls(self, name: str) -> tuple[RecordedCall, ...]:
        """Return the session's calls of a tool as `rule_offer` has them. Raises ConfigError if the role is gone."""
        messages, sandbox = self._source.history.with_turn(self.state), self._grant_in_force().sandbox
        if (tool := self._services.tools.get(name)) is None:
            return ()
        return await recorded_calls(tool, messages, context=partial(self._context, tool), sandbox=sandbox)

    async def argument_problems(self, pending: PendingCall, arguments: str) -> tuple[Problem, ...]:
        """Return what is wrong with other arguments (JSON) for a pending call. Inspects the call, without any effect.

        The engine checks an edit again, so a tool that cannot be inspected here has no problems.
        """
        tool = self._services.tools.get(pending.call.name)
        if tool is None or pending.facts.contained:
            return ()
        call = ToolCall(id=pending.call.id, name=pending.call.name, arguments=arguments)
        try:
            facts = await tool.inspect(call, self._context(tool, call.id))
        except Exception:
            log.exception("edited arguments of %s could not be inspected", call.name)
            return ()
        refused = (Problem(path="", message=facts.refusal),) if facts.refusal else ()
        return (*facts.problems, *refused)

    def _context(self, tool: Tool, call: CallId) -> ToolContext:
        """Return the context in which a call is only inspected."""
        return self._services.contexts(self.session_id, call, attempt=1, tool=tool, output=lambda text: None)

    def _grant_in_force(self) -> Grant:
        return self.state.grant if self.state is not None else self.grant()

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` on the event loop with each event from now on. Returns a function that unsubscribes it."""
        return self._bus.subscribe(listener)

    def publish(self, event: Event) -> None:
        """Publish an event to the UIs."""
        self._bus.publish(event)

    def notify(self, text: str, *, advice: str = "") -> None:
        """Publish a notice to the UIs."""
        self._bus.notify(text, advice=advice, parent_id=self.session_id)

    def notify_soon(self, text: str) -> None:
        """Call `notify` from any thread."""
        self._loop.call_soon_threadsafe(self.notify, text)
