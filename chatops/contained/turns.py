"""The contained turns in the data folder: their tools, their lists for the dialog, and what is kept of them.

Only the engine calls `ApplyTool`, which applies the changes of a turn or takes them back.
"""

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from chatops.contained import applying
from chatops.contained.applying import Applied, NotAppliedError, journal, next_undo, not_undone, undoable
from chatops.contained.copying import make_copy
from chatops.contained.folder import TurnFolder, WorkspaceReplacedError, remove_tree, turn_folder, workspace_lock
from chatops.contained.freezing import ChangeList, display_path, freeze, read_calls, read_frozen, select_entries
from chatops.contained.kept import kept_calls, outdated, sweep_kept
from chatops.contained.on_copy import OnCopy
from chatops.contained.text import Change, ContainedReview, describe, review
from chatops.contained.undoing import UndoList, changed_files, contained_calls, store_undo_list
from chatops.domain.canonical import parse_json
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Outcome, ToolCall, ToolResult, ToolSpec, Verdict
from chatops.domain.wording import plural
from chatops.sandbox.confinement import WorkspaceAccess, confinement
from chatops.toolkit.base import Reconciled, Tool, ToolContext
from chatops.toolkit.confine import home_folders, with_problem
from chatops.toolkit.output import list_names
from chatops.toolkit.threads import in_thread

_MAX_NAMED = 20
"""Maximum number of paths that a result names, because the model reads them."""


@frozen_dataclass(kw_only=False)
class ApplyTool:
    """The tool behind the call that asks about the changes. `data` is the data folder."""

    data: Path

    @property
    def spec(self) -> ToolSpec:
        """The definition of the call: it always asks, and a crash is found out about."""
        return ToolSpec(
            name=CONTAINED_APPLY,
            description="Apply the changes of a contained turn to the workspace.",
            schema="{}",
            verdict=Verdict.ASK,
            reconcilable=True,
            timeout_s=600.0,
        )

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Freeze the changes, or read the frozen ones, and compare their bases with the workspace."""
        return await in_thread(self._inspect, call.arguments, context)

    def _inspect(self, arguments: str, context: ToolContext) -> CallFacts:
        facts = CallFacts(arguments=arguments, workspace=str(context.workspace), cwd=str(context.workspace))
        try:
            asked = _read_arguments(self.data, arguments)
            if asked.undo is None:
                calls = tuple(read_calls(asked.folder).values())
                listed = freeze(asked.folder, ran=calls, number=asked.number)
            else:
                listed = read_frozen(asked.folder)
            changes = in_direction(asked.folder, listed, undo=asked.undo)
            conflicts = applying.conflicts(changes)
        except (ToolFailedError, OSError) as error:
            return with_problem(facts, "", str(error))
        if changes.workspace != str(context.workspace):
            fault = f"The changes belong to another workspace: {display_path(changes.workspace)}."
            return with_problem(facts, "", fault)
        if not changes.entries and asked.undo is not None:
            return with_problem(facts, "", "Nothing to undo.")
        if not changes.entries:
            left = f" {len(changes.left_out):,} paths were left out." if changes.left_out else ""
            return with_problem(facts, "", f"Nothing to apply: the contained turn changed nothing.{left}")
        listed_paths = {entry.path for entry in changes.entries}
        if unknown := [path for path in asked.only or () if path not in listed_paths]:
            return with_problem(facts, "", f"There is no change of {display_path(unknown[0])}.")
        conflict_entries = tuple(f"conflict {display_path(path)} {why}" for path, why in conflicts.items())
        # Not only those of `only`: an approval binds the whole list, and `only` besides, as an argument.
        to_apply = select_entries(changes, None, conflicts)
        return replace(
            facts,
            paths=tuple(str(context.workspace / entry.path) for entry in to_apply),
            hashes=(_approval_entry(changes), *conflict_entries),
        )

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Apply the changes that were approved. Outcome INVALID: nothing was applied."""
        return await in_thread(self._apply, facts, context)

    def _apply(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        asked = _read_arguments(self.data, facts.arguments)
        try:
            with workspace_lock(self.data, context.workspace):
                changes = self._read_approved(facts, asked.folder, undo=asked.undo)
                applied = applying.apply(asked.folder, changes, asked.only, undo=asked.undo)
        except (NotAppliedError, WorkspaceReplacedError) as error:
            return ToolResult(outcome=Outcome.INVALID, content=str(error))
        result = _result_of(applied, undo=asked.undo is not None)
        left = () if asked.only is None else {entry.path for entry in changes.entries} - {*asked.only, *applied.left}
        not_chosen = tuple(entry.path for entry in changes.entries if entry.path in left)
        if not not_chosen:
            return result
        names = list_names([display_path(path) for path in not_chosen], most=_MAX_NAMED)
        content = f"{result.content}\nNot chosen: {names}."
        return replace(result, content=content, facts=replace(result.facts, not_chosen=not_chosen))

    def _read_approved(self, facts: CallFacts, folder: TurnFolder, *, undo: int | None) -> ChangeList:
        """Return the frozen list if it is the one that was approved. Raises NotAppliedError if it is not."""
        try:
            changes = read_frozen(folder)
        except ToolFailedError as error:
            raise NotAppliedError(f"Nothing was applied: {error}") from error
        if _approval_entry(in_direction(folder, changes, undo=undo)) not in facts.hashes:
            raise NotAppliedError("Nothing was applied: the frozen list is not the one that was approved.")
        return changes

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Finish an application that had passed the point of no return; take back any other."""
        return await in_thread(self._reconcile, facts, context)

    def _reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        try:
            asked = _read_arguments(self.data, facts.arguments)
            with workspace_lock(self.data, context.workspace):
                applied = applying.resume(asked.folder, read_frozen(asked.folder), undo=asked.undo)
        except (ToolFailedError, OSError) as error:
            return Reconciled(result=None, found=str(error))
        if applied is None:
            return Reconciled(result=None, repeat=True)
        return Reconciled(result=_result_of(applied, undo=asked.undo is not None))


@frozen_dataclass
class _Arguments:
    """The arguments of a call of `CONTAINED_APPLY`."""

    folder: TurnFolder
    number: int
    """The number of the list of changes, or of the undo."""
    undo: int | None
    """The number of the undo; None: the changes are applied."""
    only: list[str] | None
    """Paths that were chosen; None: all."""


def _read_arguments(data: Path, arguments: str) -> _Arguments:
    """Read the arguments of a call. Raises ToolFailedError if they name no contained turn."""
    given: Any = parse_json(arguments)
    number = given.get("list", 1) if isinstance(given, Mapping) else None
    if not isinstance(number, int):
        raise ToolFailedError("There is no such contained turn.")
    folder = turn_folder(data, str(given.get("turn", "")))
    return _Arguments(folder=folder, number=number, undo=number if given.get("undo") else None, only=given.get("only"))


def _approval_entry(changes: ChangeList) -> str:
    """Return the entry of `CallFacts.hashes` that binds an approval to these changes."""
    return f"changes {changes.digest}"


def _result_of(applied: Applied, *, undo: bool) -> ToolResult:
    """Return the result for the user and the model."""
    verb = "Took back" if undo else "Applied"
    names = list_names([display_path(path) for path in applied.done], most=_MAX_NAMED)
    lines = [f"{verb} {plural(len(applied.done), 'change')}{': ' if names else ''}{names}."]
    if applied.left:
        lines.append(f"Left {len(applied.left):,}, in conflict:")
        lines += [f"- {display_path(path)}: {why}" for path, why in list(applied.left.items())[:_MAX_NAMED]]
    outcome = Outcome.SUCCESS if applied.done or not applied.left else Outcome.FAILED
    return ToolResult(outcome=outcome, content="\n".join(lines))


def in_direction(folder: TurnFolder, changes: ChangeList, *, undo: int | None) -> ChangeList:
    """Return the frozen list, or the list of what the undo with that number would change."""
    if undo is None:
        return changes
    return replace(changes, entries=undoable(folder, changes, undo), left_out=(), ran=(), hidden=())


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
        return confinement(NARROWEST, workspace=workspace, access=WorkspaceAccess.COPY).refusal

    def review(self, arguments: str) -> ContainedReview:
        """Return the changes that a pending call of `CONTAINED_APPLY` is about. Raises ToolFailedError."""
        folder, changes = self._pending(arguments)
        return review(changes, applying.conflicts(changes), folder.blob)

    def changed_files(
        self, workspace: Path, *, turns: Sequence[str], wrote: Mapping[CallId, str]
    ) -> tuple[Change, ...]:
        """Return what `turns` have changed in the workspace, from before to now. Raises OSError and ToolFailedError.

        `wrote` are the files that their calls wrote, as the arguments name them.
        """
        return changed_files(self._data, workspace, turns=turns, gone=self._unlisted(turns, wrote))

    def shown(self, facts: CallFacts) -> CallFacts:
        """Return the facts of a pending call of `CONTAINED_APPLY` with its changes as text, which are not stored."""
        try:
            text = describe(self.review(facts.arguments))
        except (ToolFailedError, OSError) as error:
            text = f"The changes cannot be shown: {error}\n"
        return replace(facts, diff=text)

    def paths(self, arguments: str) -> tuple[str, ...]:
        """Return the paths that a pending call of `CONTAINED_APPLY` would apply, without those in conflict."""
        _, changes = self._pending(arguments)
        return tuple(item.path for item in select_entries(changes, None, applying.conflicts(changes)))

    def _pending(self, arguments: str) -> tuple[TurnFolder, ChangeList]:
        asked = _read_arguments(self._data, arguments)
        return asked.folder, in_direction(asked.folder, read_frozen(asked.folder), undo=asked.undo)

    def last_applied(self, workspace: Path) -> "AppliedTurn":
        """Return the contained turn whose changes were applied to `workspace` last and can be undone.

        A turn of which only conflicts are left after an undo does not count.
        """
        candidates: list[tuple[float, str, int]] = []
        for folder in self._folders():
            with contextlib.suppress(OSError, ToolFailedError):
                if folder.is_undo_list:
                    continue
                changes, number = read_frozen(folder), next_undo(folder)
                rest = in_direction(folder, changes, undo=number)
                to_undo = rest.entries if number == 1 else select_entries(rest, None, applying.conflicts(rest))
                if changes.workspace == str(workspace) and to_undo:
                    applied_at = (folder.path / "apply.json").stat().st_mtime
                    candidates.append((applied_at, folder.path.name, number))
        _, name, number = max(candidates, default=(0.0, "", 1))
        return AppliedTurn(name, number)

    def undo_list(
        self, workspace: Path, *, session_id: str, turns: Sequence[str], calls: Mapping[CallId, str]
    ) -> UndoList:
        """Store the list of what undoing `turns` puts back. Raises ToolFailedError and OSError.

        `calls` are their other calls that may have had an effect, with a text for the user.
        """
        cannot = self._unlisted(turns, calls)
        return store_undo_list(self._data, workspace, session_id=session_id, turns=turns, cannot=cannot)

    def _unlisted(self, turns: Sequence[str], calls: Mapping[CallId, str]) -> list[str]:
        """Return the texts of those `calls` of `turns` whose changes are not known."""
        known = {*contained_calls(self._data, turns), *kept_calls(self._data / "kept")}
        return [text for call_id, text in calls.items() if call_id not in known]

    def finish_interrupted(self, workspace: Path) -> None:
        """Finish applications to `workspace` that a killed process left, before anything else touches it.

        One that another process is at work on is left to that process.
        """
        for folder in self._folders():
            for undo in (None, next_undo(folder)):
                begun = journal(folder, undo)
                if begun is None or begun.state == "done":
                    continue
                with contextlib.suppress(OSError, ToolFailedError):
                    changes = read_frozen(folder)
                    if changes.workspace == str(workspace):
                        with workspace_lock(self._data, workspace, wait=False):
                            applying.resume(folder, changes, undo=undo)

    def sweep(self, in_use: Callable[[], frozenset[str]]) -> None:
        """Remove what is not needed any more: copies of turns that are over, and what undoing needs after 30 days.

        `in_use` returns the names of the copies that turns still use. It is asked after the folders are listed.
        """
        sweep_kept(self._data / "kept")
        folders = self._folders()
        used = in_use() if folders else frozenset()
        for folder in folders:
            if folder.path.name.removesuffix(".part") in used:
                continue
            with contextlib.suppress(OSError, ToolFailedError):
                discard(folder)
        # An application that is not finished, in another workspace, is kept until that workspace is opened.
        over = [folder.path for folder in folders if folder.path.name not in used and _is_over(folder)]
        sizes = [sum(file.stat().st_size for file in path.glob("blobs/*")) for path in over]
        for path in outdated((path.stat().st_mtime, size, path) for path, size in zip(over, sizes, strict=True)):
            with contextlib.suppress(OSError):
                remove_tree(path)

    def _folders(self) -> list[TurnFolder]:
        try:
            paths = sorted(path for path in (self._data / "contained").iterdir() if path.is_dir())
        except OSError:
            return []
        return [TurnFolder(path) for path in paths if not path.is_symlink()]


class AppliedTurn(NamedTuple):
    """A contained turn whose changes were applied."""

    name: str
    """Of its folder; empty if there is no such turn."""
    next_undo: int
    """The number that the next undo of it has."""


def discard(folder: TurnFolder) -> None:
    """Remove a copy. An application that can be undone, or has to be finished, keeps its content."""
    number = next_undo(folder)
    # What a list for /undo did not take back is listed again, from what its turns have kept.
    undone = folder.is_undo_list or (number > 1 and not not_undone(folder))
    needs_finishing, was_applied = journal(folder, number) is not None, (folder.path / "apply.json").exists()
    if not was_applied or (undone and not needs_finishing):
        remove_tree(folder.path)
    else:
        remove_tree(folder.copy)


def _is_over(folder: TurnFolder) -> bool:
    """Return True if the changes were applied and no application or undo has to be finished."""
    first, undo = journal(folder, None), journal(folder, next_undo(folder))
    return first is not None and first.state == "done" and undo is None
