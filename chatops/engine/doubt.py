"""Calls in doubt: an attempt was interrupted and may have taken effect, so nothing is said or done as if it had not.

What the model is told stays true whatever comes later: a person's word, a second run, a refusal.
"""

from collections.abc import Iterable
from dataclasses import replace

from chatops.domain.interruption import Interruption
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import Outcome, ToolResult
from chatops.engine import feedback

THE_SAME = "the same call was made before, and nobody knows whether it took effect"
"""Why a call asks although it needs no approval."""
_AGAIN = (
    "(An earlier run of this call was interrupted and may have taken effect; a person had it run again. "
    "What follows is from the second run.)\n"
)


def told_unknown(interruption: Interruption | None, more: str = "") -> ToolResult:
    """Nobody knows what came of it; `more` is what else there is to say, such as a person's words."""
    text = f"{feedback.UNKNOWN_OUTCOME} {more}".strip()
    return ToolResult(outcome=Outcome.UNKNOWN, content=_with_output(text, interruption))


def told_done(interruption: Interruption | None, outcome: Outcome, note: str) -> ToolResult:
    """A person says that it took effect."""
    text = f"{feedback.MARKED_DONE} {note}".strip()
    return ToolResult(outcome=outcome, content=_with_output(text, interruption))


def not_again(interruption: Interruption, why: str) -> ToolResult:
    """A person wanted it run again, and it cannot be."""
    return told_unknown(interruption, f"A person wanted it run again, which was not possible: {why}")


def ran_again(interruption: Interruption | None, result: ToolResult) -> ToolResult:
    """The result of a run that came after one in doubt, if `interruption` is one."""
    return result if interruption is None else replace(result, content=_AGAIN + result.content)


def is_open(messages: Iterable[Message], tool: str, arguments: str) -> bool:
    """Whether it is not known what came of this very call when it was made last."""
    made = [m for m in messages if isinstance(m, ToolMessage) and (m.tool, m.arguments) == (tool, arguments)]
    return bool(made) and made[-1].outcome is Outcome.UNKNOWN


def _with_output(text: str, interruption: Interruption | None) -> str:
    if interruption is None or not interruption.output.strip():
        return text
    return f"{text}\nIts output up to the interruption:\n{interruption.output}"
