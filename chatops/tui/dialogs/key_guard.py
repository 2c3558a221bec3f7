"""When the keys of a dialog act: not before the user can have seen it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

GRACE_S = 0.5
"""Seconds without a key before a dialog accepts one."""


@runtime_checkable
class ShowsLate(Protocol):
    """Protocol of an app whose terminal may show output late, and whose keys may arrive late."""

    def shown_for(self) -> float:
        """Return for how many seconds the user can have seen what was drawn last."""

    def keys_wait(self) -> bool:
        """Return True if keys that were read already have not been delivered yet."""


@dataclass(slots=True)
class KeyGuard:
    """Armed once `GRACE_S` seconds have passed since the dialog appeared and since the last key meant for elsewhere.

    `clock` returns monotonic seconds. It is an argument so that tests need not wait.
    """

    clock: Callable[[], float]
    armed_at: float = 0.0

    def rearm(self) -> None:
        """Start a new grace period now."""
        self.armed_at = self.clock() + GRACE_S

    def typed_elsewhere(self, at: float) -> None:
        """Account for a key typed at `at`, before the dialog was shown."""
        self.armed_at = max(self.armed_at, at + GRACE_S)

    @property
    def armed(self) -> bool:
        """True if a key acts now."""
        return self.clock() >= self.armed_at

    @property
    def left(self) -> float:
        """Seconds until a key acts."""
        return max(0.0, self.armed_at - self.clock())
