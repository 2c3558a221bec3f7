"""The faults that chatops has to live with: connection, stream, shape of replies, death, storage, terminal, tools.

A fault passes when what the person has to see is seen, nothing is lost or done twice, and the next turn works. The
test of a fault bears the mark ``@pytest.mark.fault(id)``.
"""

from dataclasses import dataclass

FAMILIES = {"A": 22, "B": 21, "C": 30, "D": 22, "E": 20, "F": 15, "G": 11}
"""How many faults each family has; their ids count from 1, with two digits."""

IDS = tuple(f"{family}{number:02}" for family, count in FAMILIES.items() for number in range(1, count + 1))

SILENT = frozenset({"A19", "A20", "A21", "B03", "B04", "B09", "B14", "C05"})
"""Faults that a provider's client library reports as success; here none of them may pass for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NotHere:
    """Why a fault is not counted as passed."""

    reason: str


NOT_HERE: dict[str, NotHere] = {
    "G11": NotHere(
        reason="there are no MCP servers or plugin processes yet; that an approval is void once its tool has changed "
        "is tested with a program's own tools"
    ),
}
"""Faults that cannot be made on Linux without hardware, or that chatops does not meet yet; all others have a test."""
