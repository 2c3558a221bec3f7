"""Trust in the user's own tools, the files ``tools/*.py`` of the config folder.

They are code that runs as the user, inside chatops. A file is loaded once the user has trusted its very content, and a
file that has changed asks again: something else that may write to the config folder, such as another program, cannot
bring in code unseen.
"""

import ast
import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.paths import plain_file
from chatops.config.trust import ASKED, ItemState, TrustQuestion, WorkspaceTrust
from chatops.config.workspace_files import MAX_BYTES, MAX_FILES, Item, ItemKind, WorkspaceFiles
from chatops.domain.sanitize import show_path

_MAX_NAMED = 5
"""Files that a notice names."""
_TOOL_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)


class OwnToolsTrust(WorkspaceTrust):
    """The trust in the files of one folder of tools."""

    def __init__(self, tools: Path, *, folder: Path) -> None:
        """Read the folder `tools`, which need not exist, and its record in `folder`. Raises ConfigError."""
        self._tools = tools
        super().__init__(tools, folder=folder)
        self._reasons: tuple[TrustQuestion, Mapping[str, str]] | None = None
        """The last question to `not_loaded` and its answer; None before the first."""

    def notices(self) -> tuple[str, ...]:
        """Return which files wait for an answer or cannot be used, and how to see them, in one line; empty if none."""
        waiting = [
            f"{show_path(row.item.path)} ({row.state.value})"
            for row in self.question.listed
            if row.state in (ItemState.NEW, ItemState.CHANGED, ItemState.UNUSABLE)
        ]
        if not waiting:
            return ()
        more = len(waiting) - _MAX_NAMED
        named = ", ".join(waiting[:_MAX_NAMED]) + (f" and {more} more" if more > 0 else "")
        return (f"Your tools are not loaded until you trust them: {named}. To see them: chatops trust {self._tools}",)

    def not_loaded(self) -> Mapping[str, str]:
        """Return the tools of files that are not trusted, each with the reason. The files are read, not executed."""
        question = self.question
        if self._reasons is not None and self._reasons[0] is question:
            return self._reasons[1]
        reasons = {
            name: _why_not_loaded(row.state, file=show_path(row.item.path), folder=self._tools)
            for row in question.listed
            if row.state in ASKED or row.state is ItemState.DECLINED
            for name in _tool_names_in(row.item.data)
        }
        self._reasons = question, reasons
        return reasons

    def _read_files(self) -> WorkspaceFiles:
        try:
            listed = sorted(os.listdir(self._tools))
            names = [name for name in listed if name.endswith(".py") and not name.startswith((".", "_"))]
            # Each file is bound to its digest too, so the path is enough where nothing tells when a folder was created.
            identity = folder_identity(self._tools) or str(self._tools)
        except OSError:
            return WorkspaceFiles(folder="", path=str(self._tools))
        left_out = (f"{self._tools} has more than {MAX_FILES} files",) if len(names) > MAX_FILES else ()
        items = tuple(_read_tool_file(self._tools / name) for name in names[:MAX_FILES])
        return WorkspaceFiles(folder=identity, path=str(self._tools), items=items, left_out=left_out)


def _why_not_loaded(state: ItemState, *, file: str, folder: Path) -> str:
    waits = "you declined" if state is ItemState.DECLINED else "your trust is needed for"
    return f"{waits} tools/{file}; chatops trust {show_path(str(folder))} shows it and asks"


def _tool_names_in(data: bytes) -> Iterator[str]:
    """Yield the names of the functions under ``@tool``, as far as the text tells them."""
    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for function in body:
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for mark in function.decorator_list:
            decorator, keywords = (mark.func, mark.keywords) if isinstance(mark, ast.Call) else (mark, [])
            if "tool" in (getattr(decorator, "id", ""), getattr(decorator, "attr", "")):
                explicit = [getattr(keyword.value, "value", None) for keyword in keywords if keyword.arg == "name"]
                names = explicit or [function.name]
                yield from (name for name in names if isinstance(name, str) and _TOOL_NAME.fullmatch(name))


def _read_tool_file(file: Path) -> Item:
    try:
        with plain_file(file) as (handle, _):
            data = handle.read(MAX_BYTES + 1)
    except OSError as error:
        return Item(kind=ItemKind.OWN_TOOL, path=file.name, problem=f"it cannot be read ({error.strerror})")
    if len(data) > MAX_BYTES:
        return Item(kind=ItemKind.OWN_TOOL, path=file.name, problem=f"it is larger than {MAX_BYTES:,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    return Item(kind=ItemKind.OWN_TOOL, path=file.name, size=len(data), digest=digest, data=data)
