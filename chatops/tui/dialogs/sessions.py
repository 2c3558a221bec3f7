"""Pickers of stored sessions, with pending approvals marked."""

from collections.abc import Sequence

from chatops.tui.dialogs.picker import Choice, Picker, columns
from chatops.tui.host import SessionRow


def session_picker(sessions: Sequence[SessionRow], *, current: str) -> Picker:
    """Return the picker for a session to resume."""
    choices = [
        Choice(
            key=row.id,
            text=columns(
                (row.title or "(untitled)", 30),
                (row.when, 15),
                (f"{row.messages} message{'s' if row.messages != 1 else ''}", 12),
                (f"{row.pending} waiting" if row.pending else "unfinished" if row.state else "", 10),
            ),
            find=f"{row.title} {row.id} {'waiting' if row.pending else ''} {row.state} {row.run}",
            preview=_preview(row, current=row.id == current),
            current=row.id == current,
        )
        for row in sessions
    ]
    return Picker("Conversations", choices=choices, empty="No conversation matches.")


def pending_picker(sessions: Sequence[SessionRow], *, current: str) -> Picker:
    """Return the picker for a session with something to decide."""
    choices = [
        Choice(
            key=row.id,
            text=columns(
                (row.title or "(untitled)", 30),
                (row.when, 15),
                (f"{row.pending} pending" if row.pending else "to review", 10),
            ),
            find=f"{row.title} {row.id} {row.state} {row.run}",
            preview="   ".join(text for text in (row.id, "open now" if row.id == current else "", row.state) if text),
            current=row.id == current,
        )
        for row in sessions
    ]
    return Picker("Pending", choices=choices, empty="No session matches.")


def _preview(row: SessionRow, *, current: bool) -> str:
    about = ("open now" if current else row.state, f"run, {row.run}" if row.run else "")
    return "   ".join([row.id, *(text for text in about if text)])
