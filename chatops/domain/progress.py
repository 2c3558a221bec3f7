"""Progress of long work, as a value that each UI puts into words or draws. `toolkit.counting` makes it."""

from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.wording import plural, spent

DUE_S = 0.2
"""Seconds of work before anything is shown of it: a line for work that is over at once would only flicker."""
_MIN_ESTIMATE_S = 2.0
"""Seconds of work before the rest is estimated; an earlier estimate would jump about."""
_MAX_BAR_CELLS = 24
"""Cells of the widest bar. A longer one would not be easier to read."""


@frozen_dataclass
class Progress:
    """Progress of one piece of work. `what` and `unit` are words of ours in ASCII.

    `done` and `total` are numbers of `unit`. With the `total` 0 the work cannot be measured, and shows its seconds.
    """

    what: str
    done: int
    total: int
    unit: str
    since: float
    """Time of its start, in monotonic seconds."""
    counted_since: float
    """Time from which on units are counted: their total may have been counted first. In monotonic seconds."""

    def is_due(self, now: float) -> bool:
        """Return True if the work has taken long enough to be shown."""
        return now - self.since >= DUE_S

    def bar(self, width: int) -> tuple[str, str]:
        """Return the filled and the empty part of a bar for a line of `width` cells; empty if nothing is measured."""
        cells = min(_MAX_BAR_CELLS, width // 4) if self.total else 0
        filled = min(cells, self.done * cells // max(1, self.total))
        return "█" * filled, "─" * (cells - filled)

    def words(self, now: float, *, between: str = " · ") -> str:
        """Return how far it is and what is left, such as ``1,200 of 4,000 files · about 20 s left``."""
        if not self.total:
            seconds = int(now - self.since)
            return spent(seconds) if seconds > 0 else ""
        # `plural` writes the number without commas, so only its noun is used.
        counted = f"{self.done:,} of {self.total:,} {plural(self.total, self.unit).partition(' ')[2]}"
        rest = _time_left(now - self.counted_since, self.done / self.total)
        return f"{counted}{between}{rest}" if rest else counted


def _time_left(seconds: float, share: float) -> str:
    """Return an estimate of the rest, after `seconds` for a `share` of the work; empty if it is too early for one."""
    if seconds < _MIN_ESTIMATE_S or not 0 < share < 1:
        return ""
    rest = seconds * (1 - share) / share
    if rest < 5:
        return "a few seconds left"
    return f"about {5 * round(rest / 5)} s left" if rest < 90 else f"about {round(rest / 60)} min left"
