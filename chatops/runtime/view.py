"""The state that a UI draws before it follows the events, and the record that it is made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from chatops.domain.events import PendingCall, TurnStatus
from chatops.domain.ids import CallId, MessageId, SessionId
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.rights import AccessLevel
from chatops.domain.usage import Usage, total
from chatops.engine.pairing import stand_ins
from chatops.engine.state import Finished, TurnState
from chatops.engine.transcript import fit
from chatops.engine.view import permitted_calls, settled_so_far, turn_status
from chatops.policy.grant import Grant
from chatops.runtime.settings import Rights
from chatops.store.base import SessionInfo


@dataclass(frozen=True, slots=True, kw_only=True)
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
    advice: str
    pending: tuple[PendingCall, ...]
    usage: Usage | None
    """Usage of all turns of the session."""
    context_used: int
    """Estimated tokens of the next request."""
    context_window: int
    queued: tuple[str, ...]
    """Messages to be sent after the current turn, oldest first."""
    notices: tuple[str, ...]
    queue_held: bool = False
    """True if the queue is held for the user: the last turn failed or was interrupted."""
    permitted: Mapping[CallId, str] = field(default_factory=dict)
    """Calls that may run but wait for earlier ones of their round, each with who or what allowed it."""
    concern: str = ""
    """Problem of the store that the user should see; empty if there is none."""
    registry: str = ""
    """Problem of the registry: its file is broken, or has changed and is not in force; else empty."""


class Record:
    """The session up to the current turn, including what that turn does not see."""

    def __init__(self) -> None:
        """Start empty."""
        self.messages: tuple[Message, ...] = ()
        self._lost: tuple[ToolMessage, ...] = ()
        """Stand-ins for tool results that these messages lack. The next turn stores them."""
        self._spent: Usage | None = None
        self._context: tuple[object, int] = (None, 0)
        """The last estimate of the size of the next request, with the values that it was made from."""

    def load(self, messages: Sequence[Message], turn: TurnState | None, *, spent: Usage | None) -> None:
        """Load all stored messages. `turn` is the current turn, `spent` the usage of all other turns."""
        self._spent = spent
        own = {message.id for message in turn.messages} if turn is not None else set()
        self.messages = tuple(message for message in messages if message.id not in own)
        self._lost = stand_ins(self.messages)

    def add(self, *messages: Message, usage: Usage | None = None) -> None:
        """Append messages and add their usage."""
        self.messages = (*self.messages, *messages)
        self._lost = stand_ins(self.messages) if self._lost else ()
        self._spent = total(self._spent, usage)

    @property
    def head(self) -> MessageId | None:
        """Id of the last message, the parent of the next turn."""
        return self.messages[-1].id if self.messages else None

    def snapshot(
        self,
        state: TurnState | None,
        *,
        info: SessionInfo | None,
        workspace: str,
        grant: Grant,
        persona: str,
        rights: Rights,
        pending: tuple[PendingCall, ...],
        queued: tuple[str, ...],
        registry: str,
        queue_held: bool = False,
        concern: str = "",
    ) -> Snapshot:
        """Return the session with the turn `state`. `grant` is what the next turn would get."""
        grant = grant if state is None or isinstance(state.phase, Finished) else state.grant
        messages = (*self.messages, *self._lost, *(state.messages if state is not None else ()))
        seen = self.messages if state is None else (*state.history, *state.messages)
        model = grant.models[min(state.counters.backup if state else 0, len(grant.models) - 1)]
        ended = state.phase if state is not None and isinstance(state.phase, Finished) else None
        return Snapshot(
            session_id=info.id if info is not None else SessionId(""),
            title=info.title if info is not None else "",
            workspace=workspace,
            role=grant.role,
            roles=rights.roles(),
            level=rights.level,
            model=model.name,
            model_label=model.label or model.name,
            is_demo=rights.is_demo(model.name),
            persona=persona,
            messages=(*messages, *settled_so_far(state)) if state is not None else messages,
            status=turn_status(state) if state is not None else None,
            detail=ended.detail if ended is not None else "",
            advice=ended.advice if ended is not None else "",
            pending=pending,
            permitted=permitted_calls(state) if state is not None else {},
            usage=total(self._spent, state.usage if state is not None else None),
            context_used=self._context_used(seen, grant),
            context_window=model.context_window,
            queued=queued,
            queue_held=queue_held,
            registry=registry,
            concern=concern,
            notices=rights.notices(),
        )

    def _context_used(self, messages: tuple[Message, ...], grant: Grant) -> int:
        made_of = (messages[-1].id if messages else "", len(messages), grant.role, grant.models)
        if self._context[0] != made_of:
            fitted = fit(messages, system=grant.prompt, tools=grant.tools, model=grant.models[0])
            self._context = (made_of, fitted.tokens)
        return self._context[1]
