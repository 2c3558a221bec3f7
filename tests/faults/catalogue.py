"""The faults that chatops has to live with: connection, stream, shape of replies, death, storage, terminal, tools.

A fault passes if the user sees what they have to see, nothing is lost or done twice, and the next turn works. The test
of a fault bears the mark ``@pytest.mark.fault(id)``.
"""

from dataclasses import dataclass

FAMILIES = {"A": 22, "B": 21, "C": 30, "D": 22, "E": 20, "F": 15, "G": 11}
"""Number of faults per family; their ids count from 1, with two digits."""

IDS = tuple(f"{family}{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1))

SILENT = frozenset({"A19", "A20", "A21", "B03", "B04", "B09", "B14", "C05"})
"""Faults that a provider's client library reports as success; here none of them may pass for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """Reason that a fault is not counted as passed."""

    reason: str


NOT_HERE: dict[str, NotHere] = {
    "G11": NotHere(
        reason="there are no MCP servers or plugin processes yet; that an approval is void once its tool has changed "
        "is tested with a program's own tools"
    ),
}
"""Faults that cannot be made on Linux without hardware, or that chatops does not meet yet; all others have a test."""

STORAGE = {
    "E01": "Disk full: the session continues in memory. No call is approved or run until it can be stored.",
    "E02": "Home read-only, or a pipe at the path of the store: the session continues in memory, and says so.",
    "E03": "No home folder: sessions are kept in the temporary folder, and the user is told where.",
    "E04": "Not a database: the file is quarantined, and a new store is made, from the backup if there is one.",
    "E05": "Damaged pages: the readable rows are copied into a new store. Lost messages come from the backup, else "
    "a notice says that some are lost. The damaged file is quarantined.",
    "E06": "A newer store: it is refused and not changed.",
    "E07": "An older store: it is migrated. One from before the first release is refused and stays as it is.",
    "E08": "Damaged rows: each costs only itself, and lets nothing run.",
    "E09": "Two windows on one session: one owns it, the other follows it.",
    "E10": "Two chats in one store: both are stored.",
    "E11": "Deleted in use: the store is written again from the open connection. Replaced in use: the open sessions "
    "continue in memory, their rows so far are kept in a file, and the user is told.",
    "E12": "No write-ahead log on this drive: the store works without one.",
    "E16": "Too few open files: nothing is damaged, and the user is told.",
    "E17": "Clocks that jump: the order of sessions and messages stays.",
    "E18": "Any umask: files and folders of chatops are private.",
}
"""The promise for each fault of the store."""
