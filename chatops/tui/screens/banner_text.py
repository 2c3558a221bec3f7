"""What the line above the message says about a conversation: the most urgent thing that needs the person."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.sanitize import sanitize

if TYPE_CHECKING:
    from chatops.domain.events import PendingCall
    from chatops.runtime.snapshot import Snapshot
    from chatops.tui.widgets.banner import Tone

Said = tuple[str, "Tone"]
NOTHING: Said = ("", "quiet")


def calls_waiting(pending: "Sequence[PendingCall]") -> Said:
    """Calls that wait while their dialog is closed."""
    what = ", ".join(dict.fromkeys(one.call.name for one in pending))
    return f"{len(pending)} waiting – ctrl+g  ({sanitize(what, newlines=False)})", "waiting"


def greeting(snapshot: "Snapshot") -> Said:
    """An empty conversation: what this is, and how to find out more and to leave."""
    asks = "Ask for something in this folder; what could change anything asks you first."
    if snapshot.is_demo:
        asks = "This is a demo, no AI. It understands commands such as: list .   read FILE   run `ls`"
    return f"{asks}\n/help shows keys and commands, ctrl+q quits.", "quiet"


def queue_heading(snapshot: "Snapshot", *, led: bool, reading: bool) -> str:
    """What happens to the queued messages, and how to change that. `led`: a run of a workflow is in progress."""
    if not snapshot.queued:
        return ""
    if reading:
        return "Queued in the other window:"
    if snapshot.queue_held:
        return "Queue on hold. Enter sends it, Up takes back the last message:"
    return f"Queued until this {'run' if led else 'turn'} ends. Up takes back the last message:"


def no_tool_works(trouble: str) -> Said:
    """The workspace was deleted or moved."""
    return sanitize(trouble, newlines=False), "error"


def turn_failed() -> Said:
    """The last turn has failed; why and what to do about it stand in the transcript."""
    return "Press R to retry.", "error"


def of_registry(told: str) -> Said:
    """The registry's file is broken, or has changed."""
    return sanitize(told, newlines=False), "waiting"


def waits_elsewhere(told: str) -> Said:
    """What waits in other conversations, as the host said it at the start."""
    return sanitize(told, newlines=False), "waiting"
