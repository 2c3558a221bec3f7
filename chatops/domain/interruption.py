"""What is known of an attempt to run a call that was started and whose end was not recorded."""

from dataclasses import dataclass
from enum import StrEnum

from chatops.domain.ids import CallId


class Processes(StrEnum):
    """State of the processes of an interrupted attempt."""

    GONE = "gone"
    """No process was found."""
    STOPPED = "stopped"
    """Some were still running and have been stopped."""
    RUNNING = "running"
    """Some could not be stopped."""
    ELSEWHERE = "elsewhere"
    """The chatops process that started them is alive. So they are left alone, and it may start more."""
    RESTARTED = "restarted"
    """The attempt was started on another machine, or before the last restart of this one."""
    UNSEEN = "unseen"
    """Processes cannot be inspected here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interruption:
    """Knowledge about attempt `attempt` of a call, which may have taken effect."""

    call_id: CallId
    attempt: int
    started_at: float | None = None
    """Seconds since the epoch, by the journal."""
    output: str = ""
    """Its output until then, cut to size; untrusted text."""
    processes: Processes = Processes.UNSEEN
    count: int = 0
    """Number of processes that `processes` is about."""
