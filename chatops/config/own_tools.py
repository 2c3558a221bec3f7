"""Trust in the user's own tools, the files ``tools/*.py`` of the config folder.

They are code that runs as the user, inside chatops. A file is loaded once the user has trusted its very content, and a
file that has changed asks again: something else that may write to the config folder, such as another program, cannot
bring in code unseen. The record and the question are those of workspaces, see `config.trust`.
"""

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.trust import ASKED, ItemState, TrustQuestion, WorkspaceTrust
from chatops.config.workspace_files import MAX_BYTES, MAX_FILES, Item, ItemKind, WorkspaceFiles
from chatops.domain.sanitize import show_path

_NAMED = 5
_NAME = re.compile(r"[\w-]{1,64}", re.ASCII)
_AS_IT_IS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class OwnToolsTrust(WorkspaceTrust):
    """The trust in the files of one folder of tools."""

    def __init__(self, tools: Path, *, folder: Path) -> None:
        """Read the folder `tools`, which need not exist, and its record in `folder`. Raises ConfigError."""
        self._tools = tools
        self._named: tuple[TrustQuestion, Mapping[str, str]] | None = None
        super().__init__(tools, folder=folder)

    def notices(self) -> tuple[str, ...]:
        """Return which files are not loaded and how to decide, in one line; empty if all are."""
        waiting = [
            f"{show_path(one.item.path)} ({one.state.value})"
            for one in self.question.listed
            if one.state in (ItemState.NEW, ItemState.CHANGED, ItemState.UNUSABLE)
        ]
        if not waiting:
            return ()
        named = ", ".join(waiting[:_NAMED]) + (f" and {len(waiting) - _NAMED} more" if len(waiting) > _NAMED else "")
        return (f"Your tools are not loaded until you trust them: {named}. To see them: chatops trust {self._tools}",)

    def not_loaded(self) -> Mapping[str, str]:
        """Return the tools of files that are not trusted, each with the reason. The files are read, not executed."""
        question = self.question
        if self._named is None or self._named[0] is not question:
            named = {
                name: _reason(one.state, file=show_path(one.item.path), folder=self._tools)
                for one in question.listed
                if one.state in ASKED or one.state is ItemState.DECLINED
                for name in _names(one.item.data)
            }
            self._named = (question, named)
        return self._named[1]

    def _found(self) -> WorkspaceFiles:
        try:
            names = sorted(entry.name for entry in os.scandir(self._tools) if _is_tool_file(entry.name))
            identity = folder_identity(self._tools) or str(self._tools)
        except OSError:
            return WorkspaceFiles(folder="", path=str(self._tools))
        left_out = (f"{self._tools} has more than {MAX_FILES} files",) if len(names) > MAX_FILES else ()
        items = tuple(_item(self._tools / name) for name in names[:MAX_FILES])
        return WorkspaceFiles(folder=identity, path=str(self._tools), items=items, left_out=left_out)


def _reason(state: ItemState, *, file: str, folder: Path) -> str:
    waits = "you declined" if state is ItemState.DECLINED else "your trust is needed for"
    return f"{waits} tools/{file}; chatops trust {show_path(str(folder))} shows it and asks"


def _names(data: bytes) -> Iterator[str]:
    """Yield the names of the functions under ``@tool``, as far as the text tells them."""
    import ast  # for files that are not trusted only

    try:
        body = ast.parse(data).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for found in body:
        if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for used in found.decorator_list:
            called, named = (used.func, used.keywords) if isinstance(used, ast.Call) else (used, [])
            if "tool" in (getattr(called, "id", ""), getattr(called, "attr", "")):
                given = [getattr(one.value, "value", None) for one in named if one.arg == "name"]
                yield from (name for name in given or [found.name] if isinstance(name, str) and _NAME.fullmatch(name))


def _is_tool_file(name: str) -> bool:
    return name.endswith(".py") and not name.startswith((".", "_"))


def _item(file: Path) -> Item:
    try:
        with os.fdopen(os.open(file, _AS_IT_IS), "rb") as handle:
            data = handle.read(MAX_BYTES + 1)
    except OSError as error:
        return Item(kind=ItemKind.OWN_TOOL, path=file.name, problem=f"it cannot be read ({error.strerror})")
    if len(data) > MAX_BYTES:
        return Item(kind=ItemKind.OWN_TOOL, path=file.name, problem=f"it is larger than {MAX_BYTES:,} bytes")
    digest = hashlib.sha256(data).hexdigest()
    return Item(kind=ItemKind.OWN_TOOL, path=file.name, size=len(data), digest=digest, data=data)
