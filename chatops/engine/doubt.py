"""Results of calls whose outcome is unknown: an attempt was interrupted and may have taken effect.

The texts for the model never claim that the call had no effect. They stay true whatever follows: a decision of the
user, a second run, a refusal.
"""

from collections.abc import Iterable
from dataclasses import replace

from chatops.domain.interruption import Interruption
from chatops.domain.messages import Message, ToolMessage
from chatops.domain.tools import Outcome, ResultFacts, ResultSource, ToolResult
from chatops.engine import feedback

THE_SAME = "the same call was made before, and nobody knows whether it took effect"
"""Reason for asking about a call that would need no approval otherwise."""
_AGAIN = (
    "(An earlier run of this call was interrupted and may have taken effect; a person had it run again. "
    "What follows is from the second run.)\n"
)


def told_unknown(interruption: Interruption | None, more: str = "") -> ToolResult:
    """Return a result with outcome unknown; `more` is added to its text, such as a reason that the user gave."""
    text = f"{feedback.UNKNOWN_OUTCOME} {more}".strip()
    return ToolResult(outcome=Outcome.UNKNOWN, content=_with_output(text, interruption))


def told_done(interruption: Interruption | None, outcome: Outcome, note: str) -> ToolResult:
    """Return a result that says that the user confirmed the effect."""
    text = f"{feedback.MARKED_DONE} {note}".strip()
    facts = ResultFacts(source=ResultSource.USER)
    return ToolResult(outcome=outcome, content=_with_output(text, interruption), facts=facts)


def not_again(interruption: Interruption, why: str) -> ToolResult:
    """Return a result for a call that the user wanted run again and that cannot be."""
    return told_unknown(interruption, f"A person wanted it run again, which was not possible: {why}")


def ran_again(interruption: Interruption | None, result: ToolResult) -> ToolResult:
    """Return `result`, marked as the result of a second run if `interruption` is not None."""
    return result if interruption is None else replace(result, content=_AGAIN + result.content)


def is_open(messages: Iterable[Message], tool: str, arguments: str) -> bool:
    """Return True if the outcome of the last such call (same tool and arguments) is unknown."""
    made = [m for m in messages if isinstance(m, ToolMessage) and (m.tool, m.arguments) == (tool, arguments)]
    return bool(made) and made[-1].outcome is Outcome.UNKNOWN


def _with_output(text: str, interruption: Interruption | None) -> str:
    if interruption is None or not interruption.output.strip():
        return text
    return f"{text}\nIts output up to the interruption:\n{interruption.output}"
