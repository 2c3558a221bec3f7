"""Models that get their earlier reasoning back, and how it is sent.

Most servers drop or refuse reasoning in the history, so it is not sent. The exceptions think between their calls, and
lose track or answer 400 without it. DeepSeek from V3.2 on and Kimi want it with every message that has calls. MiniMax,
GLM, gpt-oss, MiMo and others, whose templates keep it until the next message of the user, want it within the turn.
Reasoning is sent back in the field that it came in, and only to the model that wrote it.
"""

import re
from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.messages import AssistantMessage

IN_CONTENT = "content"
"""Value for `field`: the model writes its thought in tags at the beginning of its text."""
FIELDS = ("reasoning_content", "reasoning")
"""Fields in which servers send reasoning and accept it, the most common one first."""
_NOTHING_THOUGHT = " "
"""Content of a field that must be present: some servers treat an empty one as missing."""


class Scope(StrEnum):
    """Messages with which reasoning is sent back."""

    NOWHERE = "nowhere"
    THIS_TURN = "this_turn"
    """All messages of the model after the user's last one."""
    EVERY_CALL = "every_call"
    """Also each older message with calls; the field is always present there."""


_TABLE: tuple[tuple[str, Scope], ...] = (
    (r"deepseek-(v3\.2|v[4-9]|reasoner|chat$)", Scope.EVERY_CALL),
    (r"kimi-(k2-thinking|k2\.[5-9]|k[3-9])", Scope.EVERY_CALL),
    (r"minimax-m\d|glm-(4\.[5-9]|[5-9])|gpt-oss|mimo-v\d|nemotron-3|step-3\.[5-9]|qwen3\.[5-9]", Scope.THIS_TURN),
)


def scope_of(model_name: str) -> Scope:
    """Return what a model wants, by the server's name for it."""
    name = re.sub(r"[^a-z0-9.]+", "-", model_name.lower())
    return next((scope for pattern, scope in _TABLE if re.search(pattern, name)), Scope.NOWHERE)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenBack:
    """The way in which reasoning is sent back in one request."""

    scope: Scope = Scope.NOWHERE
    field: str = FIELDS[0]
    """A field of the message, or IN_CONTENT."""
    to: str = ""
    """The registry's name of the model that is asked. Reasoning of other models is not sent to it."""

    def of(self, message: AssistantMessage, *, this_turn: bool) -> str:
        """Return the reasoning to send with `message`; empty means that the field is left out."""
        if self.scope is Scope.NOWHERE:
            return ""
        own = message.reasoning if message.model == self.to else ""
        if self.scope is Scope.EVERY_CALL and message.calls:
            return own or ("" if self.field == IN_CONTENT else _NOTHING_THOUGHT)
        return own if this_turn else ""


NOT_GIVEN_BACK = GivenBack()
