"""What is known of an attempt to run a call that was started and whose end nobody saw."""

from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.ids import CallId


class Processes(StrEnum):
    """What was found out about the processes of an interrupted attempt."""

    GONE = "gone"
    """None was found."""
    STOPPED = "stopped"
    """Some were still running; they have been stopped."""
    RUNNING = "running"
    """Some could not be stopped."""
    ELSEWHERE = "elsewhere"
    """The chatops that started them is alive, so what runs is left alone, and more may come."""
    RESTARTED = "restarted"
    """This is not the machine any more that it was started on, or not since its last start."""
    UNSEEN = "unseen"
    """They cannot be looked at here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Attempt number `attempt` of a call may have taken effect, and this is all that is left of it."""

    call_id: CallId
    attempt: int
    started_at: float | None = None
    """Seconds since the epoch, by the journal."""
    output: str = ""
    """What it had put out, cut to size: text of a stranger."""
    processes: Processes = Processes.UNSEEN
    count: int = 0
    """How many processes that is."""
