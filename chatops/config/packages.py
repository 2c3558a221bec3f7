"""Extensions of chatops in installed packages: their entry points."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINES = "chatops.models"
"""Group of engines: ``NAME = MODULE:FUNCTION``, a function that makes the `ModelClient` of a `ModelSpec`."""
TOOLS = "chatops.tools"
"""Group of tools: ``NAME = MODULE:TOOL``, a tool or a list of them."""


def installed(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group. Looks only for its name first: reading all of them takes long."""
    mark = f"[{group}]".encode()
    # An empty entry is the current folder, where others may have put anything.
    for folder in filter(None, dict.fromkeys(sys.path)):
        for file in Path(folder).glob("*.dist-info/entry_points.txt"):
            try:
                if mark in file.read_bytes():
                    from importlib.metadata import entry_points  # slow to import

                    return tuple(entry_points(group=group))
            except OSError:
                continue
    return ()
