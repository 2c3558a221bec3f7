"""Messages and spending of a session before its current turn."""

from collections.abc import Sequence

from chatops.domain.ids import MessageId
from chatops.domain.messages import Message, SummaryMessage, ToolMessage, Usage, total
from chatops.engine.pairing import stand_ins
from chatops.engine.state import TurnState
from chatops.engine.transcript import fit_messages
from chatops.engine.view import settled_so_far
from chatops.policy.grant import Grant


class History:
    """Messages and usage of a session before the current turn."""

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
        self._spent = total(spent, *_summary_usage(messages))
        own = {message.id for message in turn.messages} if turn is not None else set()
        self.messages = tuple(message for message in messages if message.id not in own)
        self._lost = stand_ins(self.messages)

    def add(self, *messages: Message, usage: Usage | None = None) -> None:
        """Append messages, and add the usage of their turn and of summaries."""
        self.messages = (*self.messages, *messages)
        self._lost = stand_ins(self.messages) if self._lost else ()
        self._spent = total(self._spent, usage, *_summary_usage(messages))

    @property
    def head(self) -> MessageId | None:
        """Id of the last message, the parent of the next turn."""
        return self.messages[-1].id if self.messages else None

    def usage(self, state: TurnState | None) -> Usage | None:
        """Return the usage of all turns, `state` included."""
        return total(self._spent, state.usage if state is not None else None)

    def with_turn(self, state: TurnState | None) -> tuple[Message, ...]:
        """Return all messages, including those of the turn `state` and the results of its open round."""
        if state is None:
            return (*self.messages, *self._lost)
        return (*self.messages, *self._lost, *state.messages, *settled_so_far(state))

    def context_used(self, state: TurnState | None, grant: Grant) -> int:
        """Return the estimated tokens of the next request."""
        messages = self.messages if state is None else (*state.history, *state.messages)
        key = (messages[-1].id if messages else "", len(messages), grant.prompt, grant.tools, grant.models)
        made_from, tokens = self._context
        if made_from != key:
            tokens = fit_messages(messages, system=grant.prompt, tools=grant.tools, model=grant.models[0]).tokens
            self._context = (key, tokens)
        return tokens


def _summary_usage(messages: Sequence[Message]) -> list[Usage | None]:
    return [message.usage for message in messages if isinstance(message, SummaryMessage)]
