"""Working time of each step of a run, without waiting for the user and the time before the app was started."""

import json
from collections.abc import Sequence


class StepClock:
    """Adds up seconds per step. All times are monotonic seconds."""

    def __init__(self, count: int, seconds: Sequence[float] = ()) -> None:
        """Create a clock for `count` steps. `seconds` are the times stored when the run was last shown."""
        known = [*seconds, *([0.0] * count)]
        self._seconds = known[:count]
        self._step: int | None = None
        self._since = 0.0

    def follow(self, step: int | None, *, now: float) -> bool:
        """Count time for `step` from now on (None: for no step). Return True if the step has changed."""
        if step == self._step:
            return False
        if self._step is not None:
            self._seconds[self._step] += max(0.0, now - self._since)
        self._step, self._since = step, now
        return True

    def seconds(self, *, now: float) -> tuple[float, ...]:
        """Return the seconds of each step, the present one up to now."""
        shown = list(self._seconds)
        if self._step is not None:
            shown[self._step] += max(0.0, now - self._since)
        return tuple(shown)


def kept(seconds: Sequence[float]) -> str:
    """Return the times as text, to be stored."""
    return json.dumps([round(one, 1) for one in seconds])


def recalled(text: str) -> tuple[float, ...]:
    """Return the times from a text made by `kept`; empty if it cannot be read."""
    try:
        value = json.loads(text or "[]")
    except ValueError:
        return ()
    if not isinstance(value, list) or not all(isinstance(one, int | float) and one >= 0 for one in value):
        return ()
    return tuple(float(one) for one in value)
