"""When an attempt is worth repeating, and after how long. Only before the first token: later it is the person's."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from chatops.domain.model import ModelFailure

ATTEMPTS = 3
AGAIN = "Try again, or choose another model."
"""The next step where nothing is known but that it did not work."""
LONGEST_WAIT_S = 30.0
"""A server that asks for a longer pause gets it from the person, not from a silent wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveOut:
    """Ask again without this field of the request: the server does not take it."""

    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeTools:
    """Ask again with the tools described in the prompt: the server takes none in their own field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveReasoningBack:
    """Ask again with what the model had thought before its calls: the server wants to see it."""


Remedy = LeaveOut | DescribeTools | GiveReasoningBack
"""What to change about a request that was refused as it was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an attempt failed, and what may be done about it."""

    failure: ModelFailure
    again: bool = False
    """The same request may well succeed a little later."""
    after_s: float | None = None
    """What the server asked to wait."""
    remedy: Remedy | None = None
    """How to ask at once instead."""


def delay_before(trouble: Trouble, *, attempt: int, base_s: float) -> float | None:
    """Seconds until attempt number `attempt` (from 2) starts, or None if there is to be none."""
    if not trouble.again or trouble.failure.started or attempt > ATTEMPTS:
        return None
    if trouble.after_s is not None:
        return trouble.after_s if trouble.after_s <= LONGEST_WAIT_S else None
    return float(base_s * 2.0 ** (attempt - 2))


def countdown(delay_s: float) -> list[float]:
    """What is left of a pause each time that a person is told: all of it, then every full second."""
    below = math.ceil(delay_s) - 1
    return [delay_s, *(float(left) for left in range(below, 0, -1))]


def retry_after(seconds: str, *, milliseconds: str = "") -> float | None:
    """Seconds out of `Retry-After` (a number or a date, RFC 9110 section 10.2.3) or its millisecond cousin."""
    try:
        if milliseconds:
            return _pause(float(milliseconds) / 1000)
        if seconds:
            return _pause(float(seconds))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(seconds)
    except (ValueError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _pause(seconds: float) -> float | None:
    """None for what Python reads as a number and is no time: ``inf``, ``nan``."""
    return max(0.0, seconds) if math.isfinite(seconds) else None


def in_words(seconds: float) -> str:
    """A span of time for a person: ``0.4 s``, ``8 s``, ``5 min``, ``1 h``."""
    if 0 < seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 3570:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
