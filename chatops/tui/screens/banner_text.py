"""Texts of the banner above the message field: the most urgent thing that needs the user."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from chatops.domain.sanitize import sanitize
from chatops.tui.status.status_line import approvals_pending

if TYPE_CHECKING:
    from chatops.domain.events import PendingCall
    from chatops.runtime.view import Snapshot
    from chatops.tui.status.banner import BannerTone

Said = tuple[str, "BannerTone"]
NOTHING: Said = ("", "quiet")


def calls_waiting(pending: "Sequence[PendingCall]") -> Said:
    """Return the text for pending calls while their dialog is closed."""
    what = ", ".join(dict.fromkeys(one.call.name for one in pending))
    return f"{approvals_pending(len(pending))} – ctrl+g  ({sanitize(what, newlines=False)})", "waiting"


def greeting(snapshot: "Snapshot") -> Said:
    """Return the text for an empty session: what to do, and how to get help and quit."""
    asks = "Ask for something in this folder; what could change anything asks you first."
    if snapshot.is_demo:
        asks = "This is a demo, no AI. It understands commands such as: list .   read FILE   search TEXT"
    return f"{asks}\n/help shows keys and commands, ctrl+q quits.", "quiet"


def queue_heading(snapshot: "Snapshot", *, led: bool, reading: bool) -> str:
    """Return the heading of the queued messages: when they are sent and how to change that.

    `led` is True while a workflow run is in progress.
    """
    if not snapshot.queued:
        return ""
    if reading:
        return "Queued in the other window:"
    if snapshot.queue_held:
        return "Queue on hold. Enter sends it, Up takes back the last message:"
    return f"Queued until this {'run' if led else 'turn'} ends. Up takes back the last message:"


def no_tool_works(trouble: str) -> Said:
    """Return the text for a workspace that was deleted or moved."""
    return sanitize(trouble, newlines=False), "error"


def turn_failed() -> Said:
    """Return the text for a failed turn. The transcript shows the cause and the next step."""
    return "Press R to retry.", "error"


def of_registry(told: str) -> Said:
    """Return the text for a model registry that is broken or has changed."""
    return sanitize(told, newlines=False), "waiting"


def waits_elsewhere(told: str) -> Said:
    """Return the text about approvals pending in other sessions, as the host reported it at the start."""
    return sanitize(told, newlines=False), "waiting"
