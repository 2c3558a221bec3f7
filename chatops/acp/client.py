"""The editor as a session uses it: what it is shown, and what it is asked. `acp.editor` speaks its protocol."""

from typing import Literal, Protocol

from chatops.acp.show import Card, Update
from chatops.domain.canonical import JsonValue
from chatops.domain.decisions import Answer
from chatops.domain.frozen_dataclass import frozen_dataclass

Reply = Literal["allow", "reject", "reason"]
"""An answer that an editor offers for a call; ``reason`` rejects the call and gives a reason."""


@frozen_dataclass
class CallAnswer:
    """The user's answer to a question about a call."""

    reply: Reply
    after_s: float
    """Seconds since the question was sent."""


class Client(Protocol):
    """The editor, for one session."""

    has_forms: bool

    async def show(self, update: Update) -> None:
        """Show what has happened or changed."""

    async def ask(self, card: Card) -> CallAnswer | None:
        """Ask about a call. Return None if the editor gave no answer, or one that was not offered."""

    async def form(self, message: str, fields: JsonValue) -> Answer | None:
        """Show a form of `fields`, a JSON Schema. Return None if the editor has failed."""
