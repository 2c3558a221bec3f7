"""The contained turns in the data folder: their tools, their lists for the dialog, and what is kept of them."""

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from chatops.contained import applying, kept
from chatops.contained.apply_tool import ApplyTool, directed
from chatops.contained.applying import journal_name, next_undo, not_undone
from chatops.contained.changes import selected
from chatops.contained.copying import make_copy
from chatops.contained.folder import TurnFolder, locked, remove_tree, turn_folder
from chatops.contained.freezing import frozen
from chatops.contained.on_copy import OnCopy
from chatops.contained.text import Change, ContainedReview, describe, review
from chatops.contained.undoing import UndoList, changed_files, contained_calls, undo_list
from chatops.domain.canonical import parsed
from chatops.domain.errors import ToolFailedError
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import (
    CONTAINED_APPLY,
    CallFacts,
)
from chatops.sandbox.confinement import confinement
from chatops.toolkit.base import Tool, ToolContext
from chatops.toolkit.confine import home_folders


class ContainedTurns:
    """The contained turns whose copies lie in the data folder `data`."""

    def __init__(self, data: Path) -> None:
        """Do nothing yet: a copy is made for the first call that needs it."""
        self._data = data
        self._copying = threading.Lock()

    def tool(self, name: str, tool: Tool | None) -> Tool | None:
        """Return the tool for a call in a contained turn: `tool` on the copy, or the one that applies the changes."""
        if tool is None:
            return ApplyTool(self._data) if name == CONTAINED_APPLY else None
        return OnCopy(tool, self.folder, self.copied)

    def folder(self, name: str) -> TurnFolder:
        """Return the folder of a contained turn."""
        return turn_folder(self._data, name)

    def copied(self, name: str, context: ToolContext) -> TurnFolder:
        """Return the folder of a contained turn. The workspace is copied on first use. Raises ToolFailedError."""
        folder = self.folder(name)
        with self._copying:
            if not folder.exists:
                folder.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                make_copy(folder, context.workspace, protected=context.protected)
        return folder

    def discard(self, name: str) -> None:
        """Remove the copy of a turn that was decided. What is needed to undo it stays."""
        with contextlib.suppress(ToolFailedError, OSError):
            discard(self.folder(name))

    def why_not(self, workspace: Path) -> str:
        """Return why turns cannot be contained here; empty if they can. May run the sandbox's probe."""
        if workspace == Path("/") or workspace in home_folders():
            return f"A contained turn needs a project folder, but the workspace is {workspace}."
        return confinement(NARROWEST, workspace=workspace, replaced=True).refusal

    def review(self, arguments: str) -> ContainedReview:
        """Return the changes that a pending call of `CONTAINED_APPLY` is about. Raises ToolFailedError."""
        folder, undo = self._asked(arguments)
        changes = directed(folder, frozen(folder), undo=undo)
        return review(changes, applying.conflicts(changes), folder.blob)

    def changed_files(
        self, workspace: Path, *, turns: Sequence[str], wrote: Mapping[CallId, str]
    ) -> tuple[Change, ...]:
        """Return what `turns` have changed in the workspace, from before to now. Raises OSError and ToolFailedError.

        `wrote` are the files that their calls wrote, as the arguments name them.
        """
        listed = {*contained_calls(self._data, turns), *kept.kept_calls(self._data / "kept")}
        gone = [path for call_id, path in wrote.items() if call_id not in listed]
        return changed_files(self._data, workspace, turns=turns, gone=gone)

    def shown(self, facts: CallFacts) -> CallFacts:
        """Return the facts of a pending call of `CONTAINED_APPLY` with its changes as text, which are not stored."""
        try:
            text = describe(self.review(facts.arguments))
        except (ToolFailedError, OSError) as error:
            text = f"The changes cannot be shown: {error}\n"
        return replace(facts, diff=text)

    def paths(self, arguments: str) -> tuple[str, ...]:
        """Return the paths that a pending call of `CONTAINED_APPLY` would apply, without those in conflict."""
        folder, undo = self._asked(arguments)
        changes = directed(folder, frozen(folder), undo=undo)
        conflicts = applying.conflicts(changes)
        return tuple(one.path for one in changes.entries if one.path not in conflicts)

    def _asked(self, arguments: str) -> tuple[TurnFolder, int]:
        given = parsed(arguments)
        if not isinstance(given, Mapping):
            raise ToolFailedError("There is no such contained turn.")
        number = given.get("list", 1)
        if not isinstance(number, int):
            raise ToolFailedError("There is no such contained turn.")
        return self.folder(str(given.get("turn", ""))), number if given.get("undo") else 0

    def last_applied(self, workspace: Path) -> tuple[str, int]:
        """Return the contained turn whose changes were applied to `workspace` last and can be undone; empty if none.

        The number is that of its next undo. A turn of which only conflicts are left after an undo does not count.
        """
        found: list[tuple[float, str, int]] = []
        for folder in self._folders():
            with contextlib.suppress(OSError, ToolFailedError, KeyError, TypeError, ValueError):
                changes = frozen(folder)
                if folder.is_undo_list:
                    continue
                number = next_undo(folder)
                rest = directed(folder, changes, undo=number)
                able = rest.entries if number == 1 else selected(rest, None, applying.conflicts(rest))
                if changes.workspace == str(workspace) and able:
                    found.append(((folder.path / "apply.json").stat().st_mtime, folder.path.name, number))
        return max(found, default=(0.0, "", 1))[1:]

    def undo_list(
        self, workspace: Path, *, session_id: str, turns: Sequence[str], calls: Mapping[CallId, str]
    ) -> UndoList:
        """Store the list of what undoing `turns` puts back. Raises ToolFailedError and OSError.

        `calls` are their other calls that may have had an effect, with a text for the user.
        """
        listed = {*contained_calls(self._data, turns), *kept.kept_calls(self._data / "kept")}
        cannot = [text for call_id, text in calls.items() if call_id not in listed]
        return undo_list(self._data, workspace, session_id=session_id, turns=turns, cannot=cannot)

    def finish_interrupted(self, workspace: Path) -> None:
        """Finish applications to `workspace` that a killed process left, before anything else touches it.

        One that another process is at work on is left to that process.
        """
        for folder in self._folders():
            for undo in (0, next_undo(folder)):
                journal = folder.read(journal_name(undo))
                if journal is None or journal.get("state") == "done":
                    continue
                with contextlib.suppress(OSError, ToolFailedError, KeyError, TypeError, ValueError):
                    changes = frozen(folder)
                    if changes.workspace == str(workspace):
                        with locked(self._data, workspace, wait=False):
                            applying.resume(folder, changes, undo=undo)

    def sweep(self, in_use: Callable[[], frozenset[str]]) -> None:
        """Remove what is not needed any more: copies of turns that are over, and what undoing needs after 30 days.

        `in_use` returns the names of the copies that turns still use. It is asked after the folders are listed.
        """
        kept.sweep(self._data / "kept")
        folders, now = self._folders(), time.time()
        used = in_use() if folders else frozenset()
        for folder in folders:
            if folder.path.name.removesuffix(".part") in used:
                continue
            with contextlib.suppress(OSError, ToolFailedError):
                discard(folder)
        # One that is not finished, in another workspace, is kept until that is opened.
        over = [one for one in folders if one.path.name not in used and _is_over(one)]
        room = kept.KEPT_BYTES
        # The newest first: what does not fit can no longer be undone.
        for folder in sorted(over, key=lambda one: one.path.stat().st_mtime, reverse=True):
            room -= sum(file.stat().st_size for file in folder.path.glob("blobs/*"))
            if room < 0 or now - folder.path.stat().st_mtime > kept.KEPT_S:
                with contextlib.suppress(OSError):
                    remove_tree(folder.path)

    def _folders(self) -> list[TurnFolder]:
        try:
            found = sorted(path for path in (self._data / "contained").iterdir() if path.is_dir())
        except OSError:
            return []
        return [TurnFolder(path) for path in found if not path.is_symlink()]


def discard(folder: TurnFolder) -> None:
    """Remove a copy. An application that can be undone, or has to be finished, keeps its content."""
    number = next_undo(folder)
    # What a list for /undo did not take back is listed again, from what its turns have kept.
    undone = folder.is_undo_list or (number > 1 and not not_undone(folder))
    if (undone and folder.read(journal_name(number)) is None) or not (folder.path / "apply.json").exists():
        remove_tree(folder.path)
    else:
        remove_tree(folder.copy)


def _is_over(folder: TurnFolder) -> bool:
    """Return True if the changes were applied and no application or undo has to be finished."""
    journals = [folder.read(journal_name(undo)) for undo in (0, next_undo(folder))]
    return journals[0] is not None and journals[0].get("state") == "done" and journals[1] is None
