"""Sentences about an interrupted attempt, the same in every UI."""

from datetime import datetime

from chatops.domain.interruption import Interruption, Processes
from chatops.domain.tools import CallFacts

UNKNOWN = "Outcome unknown: it was started and interrupted; it may have taken effect. Look before you answer."
NO_OUTPUT = "none was kept"
_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"), (1, "second"))


def since(interruption: Interruption, *, now: float) -> str:
    """Return the start time in the user's time zone, and how long before `now` (seconds since the epoch) that was."""
    if interruption.started_at is None:
        return "not known"
    at = datetime.fromtimestamp(interruption.started_at).astimezone().strftime("%Y-%m-%d %H:%M:%S")
    ago = _ago(now - interruption.started_at)
    return f"{at} ({ago})" if ago else at


def processes(interruption: Interruption, facts: CallFacts) -> str:
    """Return what became of the attempt's processes; empty for a call that starts none."""
    many = interruption.count != 1
    number = f"{interruption.count} {'were' if many else 'was'}"
    match interruption.processes:
        case Processes.GONE | Processes.UNSEEN if not facts.command:
            return ""
        case Processes.GONE:
            return "stopped: none is left running"
        case Processes.STOPPED:
            return f"stopped now: {number} still running"
        case Processes.RUNNING:
            return f"{interruption.count} still running, and could not be stopped"
        case Processes.ELSEWHERE if not interruption.count:
            return "none was seen; the chatops that started it is still there, and was not touched"
        case Processes.ELSEWHERE:
            return f"{interruption.count} still running in another chatops, which was not touched"
        case Processes.RESTARTED:
            return "none here: this machine has been restarted since, or it ran on another one, or in another container"
        case Processes.UNSEEN:
            return "cannot be looked at on this machine"


def _ago(seconds: float) -> str:
    """Return a duration in the largest unit that fits; empty if negative, as after a change of the clock."""
    if seconds < 0:
        return ""
    for size, name in _UNITS:
        if seconds >= size:
            count = int(seconds // size)
            return f"{count} {name}{'s' if count > 1 else ''} ago"
    return "just now"
