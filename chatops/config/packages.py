"""Extensions of chatops: entry points of installed packages."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENGINES = "chatops.models"
"""Group of engines: ``NAME = MODULE:FUNCTION``, a function that makes the `ModelClient` of a `ModelSpec`."""
TOOLS = "chatops.tools"
"""Group of tools: ``NAME = MODULE:TOOL``, a tool or a list of them."""


def installed_entries(group: str) -> "tuple[EntryPoint, ...]":
    """Return the entry points of a group. Looks only for its name first: reading all of them takes long.

    An entry of the import path that is not absolute means the current folder, where others may have put anything: no
    package is looked for there. `chatops.safe_path` has taken out the absolute entry that ``python -m`` adds.
    """
    mark = f"[{group}]".encode()
    folders = list(filter(os.path.isabs, dict.fromkeys(sys.path)))
    for folder in folders:
        for file in Path(folder).glob("*.dist-info/entry_points.txt"):
            try:
                if mark in file.read_bytes():
                    return _entry_points_of(group, folders)
            except OSError:
                continue
    return ()


def _entry_points_of(group: str, folders: list[str]) -> "tuple[EntryPoint, ...]":
    from importlib.metadata import distributions  # slow to import

    # Of a package that is installed twice only the first one can be imported.
    packages = {package.name: package for package in reversed(list(distributions(path=folders)))}
    return tuple(entry for package in packages.values() for entry in package.entry_points.select(group=group))
