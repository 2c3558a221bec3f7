"""Remove remains of earlier processes in the workspace and the data folder."""

from pathlib import Path
from typing import TYPE_CHECKING

from chatops.sandbox.mount_point import MOUNTED, remove_mount_point
from chatops.store.base import Store

if TYPE_CHECKING:
    from chatops.contained.turns import ContainedTurns


def remove_mount_points(workspace: Path) -> None:
    """Remove the mount points that sandboxes of killed processes left in the workspace."""
    for name in MOUNTED:
        remove_mount_point(workspace / name)


def clean_contained(contained: "ContainedTurns", *, workspace: Path, store: Store) -> None:
    """Finish applications that a killed process left, and remove copies that no turn needs."""

    def in_use() -> frozenset[str]:
        """Return the names of the copies that unfinished turns use. Raises StoreError."""
        turns = map(store.load_turn, store.unfinished_turns())
        return frozenset(turn.containment.name for turn in turns if turn.containment is not None)

    contained.finish_interrupted(workspace)
    # A store in memory does not know which copies the turns of the stored sessions use.
    if not store.unsaved:
        contained.sweep(in_use)
