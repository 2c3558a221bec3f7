"""Decide if a failed attempt is repeated, and after how long.

Theory of operation

A failed attempt ends in an `AttemptFailure`: the failure for the user, and what can be done about it. `OpenAIChat`
tries, in this order:

1. `remedy`: the server refused part of the request. The request is sent again at once in another way: without a field,
   with the tools in the prompt, or with the earlier reasoning. This is reported to the user, does not use up an
   attempt, and is remembered for the endpoint if it worked. There are at most `chat.MAX_REMEDIES` per request.
2. `again`: the same request may succeed a little later, such as after a broken connection, a rate limit or a transient
   status. There are at most three attempts. The pause is the one that the server asked for (`after_s`), else
   `Pace.retry_base_s`, doubled with each attempt. The UI shows it as a countdown.
3. Otherwise the request fails, and the failure states the next step.

Rules:

- Nothing is repeated after the first token (`failure.started`): part of the reply has been shown, so the user decides.
- If the server asks for more than `LONGEST_WAIT_S`, the request fails at once instead of waiting silently.
- Timeouts, servers that cannot be reached, quota and configuration errors are not repeated.
"""

import math
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.model import FailureKind, ModelFailure

ATTEMPTS = 3
"""Attempts of one request, the first one included. More make the user wait longer for a failure."""
AGAIN = "Try again, or choose another model."
"""Advice if the cause is unknown."""
LONGEST_WAIT_S = 30.0
"""Maximum pause in seconds. If a server asks for a longer one, the request fails and the user decides."""


@frozen_dataclass
class LeaveOut:
    """Ask again without this field of the request, which the server refuses."""

    field: str


@frozen_dataclass
class DescribeTools:
    """Ask again with the tools described in the prompt: the server refuses them in their own field."""


@frozen_dataclass
class ReplayReasoning:
    """Ask again and send the model's reasoning before its calls, because the server requires it."""


Remedy = LeaveOut | DescribeTools | ReplayReasoning
"""Change to a request that was refused."""


@frozen_dataclass
class AttemptFailure:
    """Reason why an attempt failed, and what can be done about it."""

    failure: ModelFailure
    again: bool = False
    """True if the same request may succeed a little later."""
    after_s: float | None = None
    """Pause in seconds that the server asked for; None if it asked for none."""
    remedy: Remedy | None = None
    """Change with which to ask again at once."""


def failed_attempt(
    kind: FailureKind, message: str, advice: str, *, again: bool = False, after_s: float | None = None, limit: int = 0
) -> AttemptFailure:
    """Return the failure with these words. `limit` is the context limit in tokens, if the server named one."""
    failure = ModelFailure(kind=kind, message=message, advice=advice, context_limit=limit)
    return AttemptFailure(failure=failure, again=again, after_s=after_s)


def delay_before(failed: AttemptFailure, *, attempt: int, base_s: float) -> float | None:
    """Return the seconds before attempt number `attempt` (from 2), or None if there is to be none."""
    if not failed.again or failed.failure.started or attempt > ATTEMPTS:
        return None
    if failed.after_s is not None:
        return failed.after_s if failed.after_s <= LONGEST_WAIT_S else None
    return float(base_s * 2.0 ** (attempt - 2))


def countdown(delay_s: float) -> list[float]:
    """Return the remaining seconds of a pause at each update of the UI: all of it, then every full second."""
    below = math.ceil(delay_s) - 1
    return [delay_s, *(float(left) for left in range(below, 0, -1))]


def retry_after(seconds: str, *, milliseconds: str = "") -> float | None:
    """Return the seconds of `Retry-After` (a number or a date, RFC 9110 section 10.2.3) or `retry-after-ms`."""
    try:
        if milliseconds:
            return _finite_pause(float(milliseconds) / 1000)
        if seconds:
            return _finite_pause(float(seconds))
    except ValueError:
        pass
    try:
        moment = parsedate_to_datetime(seconds)
    except (ValueError, TypeError):
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _finite_pause(seconds: float) -> float | None:
    """Return `seconds`, at least 0, or None for ``inf`` and ``nan``, which Python reads as numbers."""
    return max(0.0, seconds) if math.isfinite(seconds) else None


def in_words(seconds: float) -> str:
    """Return a duration for messages: ``0.4 s``, ``8 s``, ``5 min``, ``1 h``."""
    if 0 < seconds < 1:
        return f"{seconds:.1g} s"
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 3570:  # A longer one would be rounded to 60 min.
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.0f} h"
