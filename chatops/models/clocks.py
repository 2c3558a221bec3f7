"""Time limits of one reply, in seconds (`timeout_s` of the registry; `connect` belongs to the connection).

- None before `start`: the request waits for a free slot (`max_concurrent`), which is not silence of the server.
- `first_token` from `start` to the first token, then `idle` between two chunks of data.
- `total` from `start` to the end. It stops replies that never end although data keeps coming.

Only data resets the clock of `first_token` and `idle`. Comments and empty chunks do not, because a server that sends
nothing else forever is as good as silent. They only set `alive` in the next `Waiting`.

`Waiting` is sent every `waiting_s` seconds without data. If the limit is short, it is sent after every quarter of the
limit, but not more than once per second.

A wait for bytes that began before `start` ends only when the next `Waiting` is due, which may be after the limit of
`first_token`. So the source of the bytes yields an empty chunk right after `start` (`OpenAIChat._response_bytes`). It
ends that wait, and the next one ends at the limit.
"""

import math
from collections.abc import Callable

from chatops.domain.model import FailureKind
from chatops.models.base import Waiting
from chatops.models.byte_feed import loop_time
from chatops.models.retry import AttemptFailure, failed_attempt, in_words
from chatops.policy.registry import Timeouts

_LOADING_S = 3.0
"""Seconds between two `Waiting` events while the server loads the model."""


class ReplyClocks:
    """The clocks of one reply from `host`."""

    def __init__(self, *, host: str, timeouts: Timeouts, waiting_s: float, unloaded: Callable[[], bool]) -> None:
        """Create them. `unloaded` returns True once the server has stated that it has not loaded the model."""
        self._host = host
        self._timeouts = timeouts
        self._waiting_s = waiting_s
        self._unloaded = unloaded
        self._sent = False
        self._last_data = self._last_sign = self._last_notice = loop_time()
        """Loop times of the last new data, of the last bytes of any kind, and of the last `Waiting` or data."""
        self._deadline = math.inf
        """Loop time by which the whole reply must have come."""

    def start(self) -> None:
        """Start the clocks: the request goes out now."""
        self._sent = True
        self._last_data = self._last_sign = self._last_notice = loop_time()
        self._deadline = self._last_data + self._timeouts.total

    def note_bytes(self) -> None:
        """Note that bytes have come, whatever they are."""
        self._last_sign = loop_time()

    def note_data(self) -> None:
        """Note that new data has come."""
        self._last_data = self._last_notice = loop_time()

    def next_wait(self, *, started: bool) -> float:
        """Return the seconds until `due` has something to return. `started`: the first token has come."""
        silence_ends = self._last_data + self._silence_limit(started=started)
        notice_at = self._last_notice + self._notice_interval(started=started)
        return max(0.0, min(silence_ends, notice_at, self._deadline) - loop_time())

    def due(self, *, started: bool) -> Waiting | AttemptFailure | None:
        """Return the failure if a time limit has passed, a `Waiting` if one is due, else None."""
        now, limit = loop_time(), self._silence_limit(started=started)
        silent = now - self._last_data
        if silent >= limit:
            return self._silence_failure(silent, started=started)
        if now >= self._deadline:
            return self._total_failure()
        if now - self._last_notice < self._notice_interval(started=started):
            return None
        alive = self._last_sign > self._last_notice
        self._last_notice = now
        limit_s = limit if math.isfinite(limit) else None
        return Waiting(seconds=silent, alive=alive, limit_s=limit_s, loading=self._is_loading(started=started))

    def _silence_limit(self, *, started: bool) -> float:
        if not self._sent:
            return math.inf
        return self._timeouts.idle if started else self._timeouts.first_token

    def _notice_interval(self, *, started: bool) -> float:
        """Return the seconds between two `Waiting` events; fewer if the limit is short, so that some come in time."""
        pace = min(self._waiting_s, _LOADING_S) if self._is_loading(started=started) else self._waiting_s
        return min(pace, max(1.0, self._silence_limit(started=started) / 4))

    def _is_loading(self, *, started: bool) -> bool:
        return self._sent and not started and self._unloaded()

    def _silence_failure(self, silent: float, *, started: bool) -> AttemptFailure:
        what, setting = ("no further data", "idle") if started else ("no first token", "first_token")
        return failed_attempt(
            FailureKind.TIMEOUT,
            f"There was {what} from {self._host} for {in_words(silent)}.",
            f"Try again; timeout_s.{setting} in the registry allows more time.",
        )

    def _total_failure(self) -> AttemptFailure:
        """Return the failure for a reply that took too long although data kept coming."""
        return failed_attempt(
            FailureKind.TIMEOUT,
            f"The reply of {self._host} was not complete after {in_words(self._timeouts.total)}.",
            "Ask for less at once; timeout_s.total in the registry allows more time.",
        )
