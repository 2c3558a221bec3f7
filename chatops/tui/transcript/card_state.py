"""The state of a tool call in a sign and a few words, as its card shows them.

A call that did not run never looks as if it had. Its words say so, in addition to sign and colour.
"""

import os
import time
from typing import assert_never

from rich.style import Style

from chatops.domain.decisions import deciding_login
from chatops.domain.tools import NOT_RUN_HERE, Outcome
from chatops.domain.wording import duration, spent
from chatops.policy.verdicts import BY_POLICY
from chatops.tui.theme import BlockTheme
from chatops.tui.transcript.blocks import CardStatus, ToolCardBlock
from chatops.tui.transcript.lines import one_line, truncated

clock = time.time
"""The present time, as `ToolCardBlock.started_at` counts."""
_LONGEST_REASON = 100


def sign_of(card: ToolCardBlock, theme: BlockTheme) -> tuple[str, Style]:
    """Return the sign before the call, and its style."""
    signs = theme.symbols
    match card.status:
        case CardStatus.UNSETTLED | CardStatus.PERMITTED:
            return signs.unsettled, theme.muted
        case CardStatus.WAITING | CardStatus.HELD:
            return signs.waiting, theme.warn
        case CardStatus.UNKNOWN_WAITING:
            return signs.unknown, theme.bad
        case CardStatus.RUNNING:
            return signs.running, theme.link + Style(underline=False)
        case CardStatus.SETTLED if card.imported:
            return signs.unsettled, theme.muted
        case CardStatus.SETTLED:
            if card.outcome is Outcome.SUCCESS:
                return signs.done, theme.good
            if card.outcome is Outcome.UNKNOWN:
                return signs.unknown, theme.bad
            return signs.failed, theme.bad
        case _ as never:
            assert_never(never)


def words_of(card: ToolCardBlock, dot: str) -> str:
    """Return the state of the call in words; `dot` separates them."""
    match card.status:
        case CardStatus.UNSETTLED:
            return "no result yet"
        case CardStatus.PERMITTED:
            return f"{_permission(card.decided_by)}, runs after the calls before it"
        case CardStatus.WAITING:
            return "approval pending"
        case CardStatus.HELD:
            return "still pending, cannot be approved or run here"
        case CardStatus.UNKNOWN_WAITING:
            return "outcome unknown, decision pending"
        case CardStatus.RUNNING:
            return _elapsed(card, dot)
        case CardStatus.SETTLED:
            return _result_words(card, dot)
        case _ as never:
            assert_never(never)


def _elapsed(card: ToolCardBlock, dot: str) -> str:
    """Return how long a running call has taken and how to stop it, from one second on."""
    seconds = int(clock() - card.started_at) if card.started_at else 0
    return f"{spent(seconds)} {dot} Esc to stop" if seconds >= 1 else "running"


def _permission(decided_by: str) -> str:
    if user := login(decided_by):
        return f"approved by {user}"
    return "allowed" if decided_by == BY_POLICY else "allowed by a rule"


def _result_words(card: ToolCardBlock, dot: str) -> str:
    if card.imported:
        claimed = "" if card.outcome in (None, Outcome.SUCCESS) else f" {dot} {card.outcome.value}"
        return f"{NOT_RUN_HERE}{claimed}"
    match card.outcome:
        case None:
            return "no result"
        case Outcome.SUCCESS:
            approved = f"approved {dot} " if login(card.decided_by) and not card.own else ""
            return approved + duration(card.duration_ms) + _further(card)
        case Outcome.FAILED:
            return _failure(card, dot)
        case Outcome.INVALID:
            return f"not run: {_reason(card)}" if card.end.ended_because else "not run: invalid call"
        case Outcome.DENIED:
            return _denial(card)
        case Outcome.INTERRUPTED:
            stopped = f"interrupted {dot} {duration(card.duration_ms)}" if card.duration_ms else "interrupted"
            return f"not run: {one_line(card.end.ended_because)}" if card.end.ended_because else stopped
        case Outcome.UNKNOWN:
            return "outcome unknown"
        case _ as never:
            assert_never(never)


def _failure(card: ToolCardBlock, dot: str) -> str:
    ended = one_line(card.end.ended_because) or "failed"
    words = ended if card.end.timed_out else f"{ended} {dot} {duration(card.duration_ms)}"
    return words + _further(card)


def _further(card: ToolCardBlock) -> str:
    also = truncated(one_line(card.end.aftermath), width=_LONGEST_REASON, ellipsis="…")
    return (f", {also}" if also.strip() else "") + (", result shortened" if card.truncated else "")


def _denial(card: ToolCardBlock) -> str:
    by = _decider(card.decided_by)
    words = f"not run, denied by {by}" if by else "not run, denied"
    return f'{words}: "{_reason(card)}"' if card.end.ended_because.strip() else words


def _reason(card: ToolCardBlock) -> str:
    return truncated(one_line(card.end.ended_because), width=_LONGEST_REASON, ellipsis="…")


def _decider(decided_by: str) -> str:
    """Return who decided, in short form: "you", another user's login, else the text on one line."""
    return login(decided_by) or one_line(decided_by)


def login(decided_by: str) -> str:
    """Return "you" or the login of another user who decided; empty if it was not a user."""
    name = deciding_login(decided_by)
    return "you" if name and decided_by.startswith(f"uid {os.getuid()} (") else one_line(name)
