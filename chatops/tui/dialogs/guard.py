"""Guard against keys typed before the user can have read a dialog (faults F12, surface section 5)."""

from collections.abc import Callable
from dataclasses import dataclass

GRACE_S = 0.5
"""Seconds without a key before a dialog accepts one."""
STROKE_S = 0.08
"""Seconds in which no other key may follow an answering key.

Text pasted into a terminal that does not mark pastes, or sent by a script, follows its first character at once.
"""


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
