"""Keys typed before a person can have read a dialog never answer it (faults F12, surface section 5)."""

from collections.abc import Callable
from dataclasses import dataclass

GRACE_S = 0.5
"""Seconds without a key before a dialog takes one."""
STROKE_S = 0.08
"""Seconds that an answering key has to stand alone: text that is pasted into a terminal which does not mark pastes, or
sent by a script, follows its first character at once."""


@dataclass(slots=True)
class KeyGuard:
    """Armed once `GRACE_S` have passed since the dialog appeared and since the last key meant for elsewhere.

    `clock` gives monotonic seconds, so that tests need not wait.
    """

    clock: Callable[[], float]
    armed_at: float = 0.0

    def rearm(self) -> None:
        """Begin a new grace period now."""
        self.armed_at = self.clock() + GRACE_S

    def typed_elsewhere(self, at: float) -> None:
        """Take into account a key typed at `at`, before the dialog was there."""
        self.armed_at = max(self.armed_at, at + GRACE_S)

    @property
    def armed(self) -> bool:
        """Whether a key acts now."""
        return self.clock() >= self.armed_at

    @property
    def left(self) -> float:
        """Seconds until a key acts."""
        return max(0.0, self.armed_at - self.clock())
