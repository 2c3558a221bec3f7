"""How far long work is, as a value that whoever shows it puts into words. `toolkit.counting` makes it."""

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import plural, spent

DUE_S = 0.5
"""Seconds of work before anything is shown of it: a bar for work that is over at once would only flicker."""
_GUESS_S = 2.0
"""Seconds of work from which on a guess of the rest is worth something."""
_BAR = 24
"""Widest bar in cells."""


@frozen_dataclass
class Progress:
    """How far work is. `what` and `unit` are words of ours in ASCII.

    `done` and `total` are numbers of `unit`. With the `total` 0 the work cannot be measured, and shows its seconds.
    """

    what: str
    done: int
    total: int
    unit: str
    since: float
    """Time of its start, in monotonic seconds."""
    counted_since: float
    """Time from which on units are counted: how many there are may have been found out first."""

    def is_due(self, now: float) -> bool:
        """Return True if the work has taken long enough to be shown."""
        return now - self.since >= DUE_S

    def bar(self, width: int) -> tuple[str, str]:
        """Return the filled and the empty part of a bar for a line of `width` cells; empty if nothing is measured."""
        cells = min(_BAR, width // 4) if self.total else 0
        filled = min(cells, self.done * cells // max(1, self.total))
        return "█" * filled, "─" * (cells - filled)

    def words(self, now: float, *, between: str = " · ") -> str:
        """Return how far it is and what is left, such as ``1,200 of 4,000 files · about 20 s left``."""
        if not self.total:
            return spent(took) if (took := int(now - self.since)) > 0 else ""
        counted = f"{self.done:,} of {self.total:,} {plural(self.total, self.unit).partition(' ')[2]}"
        rest = _time_left(now - self.counted_since, self.done / self.total)
        return f"{counted}{between}{rest}" if rest else counted


def _time_left(took: float, share: float) -> str:
    """Return how long the rest will take, rounded as a guess is; empty if there is nothing to guess from."""
    if took < _GUESS_S or not 0 < share < 1:
        return ""
    left = took * (1 - share) / share
    if left < 5:
        return "a few seconds left"
    return f"about {5 * round(left / 5)} s left" if left < 90 else f"about {round(left / 60)} min left"
