"""The contained turns in the data folder: their tools, their lists for the dialog, and what is kept of them.

Only the engine calls the tool that applies the changes of a turn, or takes them back.

`OnCopy` has the built-in tools on the copy of a contained turn: files and commands, what commands see, and what is
recorded.
"""

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chatops.config.entries import spelled
from chatops.contained import applying
from chatops.contained.applying import Applied, NotAppliedError, journal, next_undo, not_undone, undoable
from chatops.contained.copying import GIT_CONFIGS, GIT_EMPTY, make_copy, read_manifest
from chatops.contained.folder import (
    TurnFolder,
    WorkspaceReplacedError,
    kept_calls,
    locked,
    outdated,
    remove_tree,
    sweep_kept,
    turn_folder,
)
from chatops.contained.freezing import ChangeList, Ran, freeze, frozen, read_calls, select_entries, shown
from chatops.contained.text import Change, ContainedReview, describe, review
from chatops.contained.undoing import UndoList, changed_files, contained_calls, undo_list
from chatops.domain.canonical import canonical, parse_json
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.ids import CallId
from chatops.domain.sandbox import NARROWEST, Mount
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Outcome, ToolCall, ToolResult, ToolSpec, Verdict
from chatops.domain.wording import plural
from chatops.git.repository import config_for_reading
from chatops.sandbox.confinement import WorkspaceAccess, confinement
from chatops.toolkit.base import Reconciled, Tool, ToolContext
from chatops.toolkit.confine import Find, home_folders, survey, with_problem
from chatops.toolkit.threads import in_thread

_MAX_NAMED = 20


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
            folder, undo, only, number = _read_arguments(self.data, arguments)
            listed = frozen(folder) if undo else freeze(folder, ran=tuple(read_calls(folder).values()), number=number)
            changes = in_direction(folder, listed, undo=undo)
            conflicts = applying.conflicts(changes)
        except (ToolFailedError, OSError) as error:
            return _with_fault(facts, str(error))
        if changes.workspace != str(context.workspace):
            return _with_fault(facts, f"The changes belong to another workspace: {shown(changes.workspace)}.")
        if not changes.entries:
            left = f" {len(changes.left_out):,} paths were left out." if changes.left_out else ""
            why = "Nothing to undo." if undo else f"Nothing to apply: the contained turn changed nothing.{left}"
            return _with_fault(facts, why)
        unknown = [path for path in only or () if path not in {item.path for item in changes.entries}]
        if unknown:
            return _with_fault(facts, f"There is no change of {shown(unknown[0])}.")
        found = tuple(f"conflict {shown(path)} {why}" for path, why in conflicts.items())
        # Those of `only` too: it is part of the arguments, and an approval binds the whole list.
        able = select_entries(changes, None, conflicts)
        return replace(
            facts,
            paths=tuple(str(context.workspace / item.path) for item in able),
            hashes=(_approval_entry(changes), *found),
        )

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Apply the changes that were approved. Outcome INVALID: nothing was applied."""
        return await in_thread(self._apply, facts, context)

    def _apply(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        folder, undo, only, _ = _read_arguments(self.data, facts.arguments)
        try:
            with locked(self.data, context.workspace):
                changes = self._approved_list(facts, folder, undo=undo)
                done = applying.apply(folder, changes, only, undo=undo)
        except (NotAppliedError, WorkspaceReplacedError) as error:
            return ToolResult(outcome=Outcome.INVALID, content=str(error))
        result = _result_of(done, undo=undo)
        named = [
            shown(item.path) for item in changes.entries if only is not None and item.path not in {*only, *done.left}
        ]
        if not named:
            return result
        more = f" and {len(named) - _MAX_NAMED:,} more" if len(named) > _MAX_NAMED else ""
        return replace(result, content=f"{result.content}\nNot chosen: {', '.join(named[:_MAX_NAMED])}{more}.")

    def _approved_list(self, facts: CallFacts, folder: TurnFolder, *, undo: int) -> ChangeList:
        """Return the frozen list if it is the one that was approved. Raises NotAppliedError if it is not."""
        try:
            changes = frozen(folder)
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
            folder, undo, _, _ = _read_arguments(self.data, facts.arguments)
            with locked(self.data, context.workspace):
                done = applying.resume(folder, frozen(folder), undo=undo)
        except (ToolFailedError, OSError) as error:
            return Reconciled(result=None, found=str(error))
        return Reconciled(result=None, repeat=True) if done is None else Reconciled(result=_result_of(done, undo=undo))


def _read_arguments(data: Path, arguments: str) -> tuple[TurnFolder, int, list[str] | None, int]:
    """Return what a call of `CONTAINED_APPLY` asks about: the turn, the undo (0: none), the paths, the list's number.

    Raises ToolFailedError.
    """
    given: Any = parse_json(arguments)
    number = given.get("list", 1) if isinstance(given, Mapping) else None
    if not isinstance(number, int):
        raise ToolFailedError("There is no such contained turn.")
    folder = turn_folder(data, str(given.get("turn", "")))
    return folder, number if given.get("undo") else 0, given.get("only"), number


def _approval_entry(changes: ChangeList) -> str:
    """Return the entry of `CallFacts.hashes` that binds an approval to these changes."""
    return f"changes {changes.digest}"


def _with_fault(facts: CallFacts, text: str) -> CallFacts:
    return with_problem(facts, "", text)


def _result_of(done: Applied, *, undo: int) -> ToolResult:
    """Return the result for the user and the model."""
    verb = "Took back" if undo else "Applied"
    named = ", ".join(shown(path) for path in done.done[:_MAX_NAMED])
    more = f" and {len(done.done) - _MAX_NAMED:,} more" if len(done.done) > _MAX_NAMED else ""
    lines = [f"{verb} {plural(len(done.done), 'change')}{': ' if named else ''}{named}{more}."]
    if done.left:
        lines.append(f"Left {len(done.left):,}, in conflict:")
        lines += [f"- {shown(path)}: {why}" for path, why in list(done.left.items())[:_MAX_NAMED]]
    outcome = Outcome.SUCCESS if done.done or not done.left else Outcome.FAILED
    return ToolResult(outcome=outcome, content="\n".join(lines))


def in_direction(folder: TurnFolder, changes: ChangeList, *, undo: int) -> ChangeList:
    """Return the frozen list, or the list of what the undo with that number would change."""
    if not undo:
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
        folder, undo, _, _ = _read_arguments(self._data, arguments)
        return folder, in_direction(folder, frozen(folder), undo=undo)

    def last_applied(self, workspace: Path) -> tuple[str, int]:
        """Return the contained turn whose changes were applied to `workspace` last and can be undone; empty if none.

        The number is that of its next undo. A turn of which only conflicts are left after an undo does not count.
        """
        found: list[tuple[float, str, int]] = []
        for folder in self._folders():
            with contextlib.suppress(OSError, ToolFailedError):
                changes = frozen(folder)
                if folder.is_undo_list:
                    continue
                number = next_undo(folder)
                rest = in_direction(folder, changes, undo=number)
                able = rest.entries if number == 1 else select_entries(rest, None, applying.conflicts(rest))
                if changes.workspace == str(workspace) and able:
                    found.append(((folder.path / "apply.json").stat().st_mtime, folder.path.name, number))
        return max(found, default=(0.0, "", 1))[1:]

    def undo_list(
        self, workspace: Path, *, session_id: str, turns: Sequence[str], calls: Mapping[CallId, str]
    ) -> UndoList:
        """Store the list of what undoing `turns` puts back. Raises ToolFailedError and OSError.

        `calls` are their other calls that may have had an effect, with a text for the user.
        """
        cannot = self._unlisted(turns, calls)
        return undo_list(self._data, workspace, session_id=session_id, turns=turns, cannot=cannot)

    def _unlisted(self, turns: Sequence[str], calls: Mapping[CallId, str]) -> list[str]:
        """Return the texts of those `calls` of `turns` whose changes are not known."""
        listed = {*contained_calls(self._data, turns), *kept_calls(self._data / "kept")}
        return [text for call_id, text in calls.items() if call_id not in listed]

    def finish_interrupted(self, workspace: Path) -> None:
        """Finish applications to `workspace` that a killed process left, before anything else touches it.

        One that another process is at work on is left to that process.
        """
        for folder in self._folders():
            for undo in (0, next_undo(folder)):
                begun = journal(folder, undo)
                if begun is None or begun.state == "done":
                    continue
                with contextlib.suppress(OSError, ToolFailedError):
                    changes = frozen(folder)
                    if changes.workspace == str(workspace):
                        with locked(self._data, workspace, wait=False):
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
        # One that is not finished, in another workspace, is kept until that is opened.
        over = [item.path for item in folders if item.path.name not in used and _is_over(item)]
        sizes = [sum(file.stat().st_size for file in path.glob("blobs/*")) for path in over]
        for path in outdated((path.stat().st_mtime, size, path) for path, size in zip(over, sizes, strict=True)):
            with contextlib.suppress(OSError):
                remove_tree(path)

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
    if (undone and journal(folder, number) is None) or not (folder.path / "apply.json").exists():
        remove_tree(folder.path)
    else:
        remove_tree(folder.copy)


def _is_over(folder: TurnFolder) -> bool:
    """Return True if the changes were applied and no application or undo has to be finished."""
    first, undo = journal(folder, 0), journal(folder, next_undo(folder))
    return first is not None and first.state == "done" and undo is None


MAX_GROWTH = 2 << 30
"""Bytes by which the free disk may shrink while a command runs; a sixteenth of it where the disk is nearly full."""
_LEAST_FREE = 0.05
"""Share of free blocks or files below which the disk counts as nearly full."""
_LOOK_S = 0.1
"""Seconds between two looks at the free disk."""
_PATH_ARGUMENTS = ("path", "cwd")
"""Arguments of built-in tools that name a path."""


@frozen_dataclass(kw_only=False)
class OnCopy:
    """A built-in tool that works on the copy: its facts name the workspace, and its files are those of the copy."""

    tool: Tool
    folder: Callable[[str], TurnFolder]
    """Returns the folder of a contained turn by its name."""
    copied: Callable[[str, ToolContext], TurnFolder]
    """Does the same, and copies the workspace on first use. Raises ToolFailedError."""

    @property
    def spec(self) -> ToolSpec:
        """The definition of the tool itself."""
        return self.tool.spec

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Inspect the call in the copy."""
        try:
            folder = await in_thread(self.copied, context.contained, context)
        except (ToolFailedError, OSError) as error:
            text = f"The turn is contained, and the workspace could not be copied: {error}"
            return CallFacts(arguments=call.arguments, refusal=text)
        call = replace(call, arguments=_with_relative_paths(call.arguments, context.workspace))
        facts = await self.tool.inspect(call, self._on_copy(folder, context))
        return _move_paths(facts, source=folder.copy, target=context.workspace)

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Run the call in the copy, and record it for the list at the end."""
        folder = self.folder(context.contained)
        if not await in_thread(lambda: folder.exists):
            raise ToolFailedError("The copy of the workspace is gone; nothing was run.")
        known = self.spec.capabilities
        paths = ", ".join(path.removeprefix(f"{context.workspace}/") for path in facts.paths)
        text = facts.command or (paths if known.path else facts.arguments)
        changes = not self.spec.read_only
        ran = Ran(tool=self.spec.name, text=text, outcome=Outcome.INTERRUPTED)
        if changes:
            await in_thread(_record_call, folder, context, ran)
        if known.runs_anything:
            inner = replace(_with_contained_limits(context), source=folder.copy)
            inner = replace(inner, mounts=await in_thread(_mounts_of_original, folder, inner))
            work = _within_disk(self.tool.run(facts, inner), folder.copy)
        else:
            inner = self._on_copy(folder, context)
            work = self.tool.run(_move_paths(facts, source=context.workspace, target=folder.copy), inner)
        try:
            result = await work
        except Exception:
            if changes:
                await in_thread(_record_call, folder, context, replace(ran, outcome=Outcome.FAILED))
            raise
        if changes:
            ended = result.facts.ending
            ran = replace(ran, outcome=result.outcome, ending=ended.in_words if ended is not None else "")
            await in_thread(_record_call, folder, context, ran)
        return result

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Not asked: an interrupted call in the copy is settled by the engine."""
        return Reconciled(result=None)

    def _on_copy(self, folder: TurnFolder, context: ToolContext) -> ToolContext:
        copy = folder.copy
        inside = [
            path.relative_to(context.workspace) for path in context.protected if path.is_relative_to(context.workspace)
        ]
        protected = (*context.protected, *(copy / path for path in inside))
        limited = _with_contained_limits(context)
        return replace(limited, workspace=copy, source=copy, original=context.workspace, protected=protected)


async def _within_disk(work: Coroutine[Any, Any, ToolResult], place: Path) -> ToolResult:
    """Run a command, and stop it if it fills the disk that holds `place`. Raises ToolFailedError then."""
    task, before = asyncio.ensure_future(work), os.statvfs(place)
    try:
        while not (await asyncio.wait({task}, timeout=_LOOK_S))[0]:
            now = os.statvfs(place)
            taken = (before.f_bavail - now.f_bavail) * before.f_frsize
            # Some file systems have no fixed number of files.
            files = now.f_favail / now.f_files if now.f_files else 1.0
            nearly_full = min(now.f_bavail / max(1, now.f_blocks), files) < _LEAST_FREE
            if taken > MAX_GROWTH or (nearly_full and taken > MAX_GROWTH // 16):
                task.cancel()
                await asyncio.wait({task})
                shrunk = f"the free disk space shrank by {taken >> 20:,} MiB while it ran"
                raise ToolFailedError(f"The command was stopped: {shrunk}.")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        if task.cancelled():
            raise
    return task.result()


def _with_contained_limits(context: ToolContext) -> ToolContext:
    """Return the context with the limits of contained commands: hosts at most, nothing written outside the copy."""
    # A credential takes effect elsewhere at once, and these commands do not ask.
    limits = replace(context.sandbox, network=False, write=(), git="protect", credentials=())
    return replace(context, kept=None, sandbox=limits)


def _mounts_of_original(folder: TurnFolder, context: ToolContext) -> tuple[Mount, ...]:
    """Return what a command sees of the original: its repository, and folders too large to copy, all read-only.

    Nothing is shown that holds a socket, pipe or device, or files that may hold secrets.
    """
    workspace, mounts = context.workspace, []
    for name in read_manifest(folder).shared:
        if name == ".git":
            continue
        place = workspace / name
        with contextlib.suppress(OSError):
            found = survey(place, workspace=workspace, find=Find.SECRETS)
            if place.resolve() == place and not (found.special or found.closed or found.secret):
                mounts.append(_read_only(place, place))
    store = workspace / ".git"
    with contextlib.suppress(OSError):
        if store.is_dir() and not store.is_symlink() and not survey(store, workspace=workspace).special:
            mounts.append(_read_only(store, store))
            (folder.path / "empty").mkdir(exist_ok=True)
            covers = dict.fromkeys(GIT_EMPTY, folder.path / "empty")
            for name in GIT_CONFIGS:
                covers[name] = folder.path / f"git-{name}"
                covers[name].write_text(config_for_reading(store / name), encoding="utf-8")
            for name, source in covers.items():
                if (store / name).exists() and not (store / name).is_symlink():
                    mounts.append(_read_only(source, store / name))
    return tuple(mounts)


def _read_only(source: Path, target: Path) -> Mount:
    return Mount(source=str(source), target=str(target))


def _with_relative_paths(arguments: str, workspace: Path) -> str:
    """Return arguments in which absolute paths of the workspace are relative to it, so that they name the copy."""
    try:
        given = parse_json(arguments)
    except ValueError:
        return arguments
    if not isinstance(given, Mapping):
        return arguments
    changed = {
        name: os.path.relpath(value, workspace)
        for name in _PATH_ARGUMENTS
        if isinstance(value := given.get(name), str) and (value == str(workspace) or value.startswith(f"{workspace}/"))
    }
    return canonical({**given, **changed}) if changed else arguments


def _move_paths(facts: CallFacts, *, source: Path, target: Path) -> CallFacts:
    """Return facts with the paths below `source` as paths below `target`."""

    def move(path: str) -> str:
        if path == str(source):
            return str(target)
        return f"{target}{path[len(str(source)) :]}" if path.startswith(f"{source}/") else path

    def reword(text: str) -> str:
        return text.replace(str(source), str(target))

    return replace(
        facts,
        cwd=move(facts.cwd),
        workspace=move(facts.workspace),
        paths=tuple(map(move, facts.paths)),
        hashes=tuple(map(move, facts.hashes)),
        refusal=reword(facts.refusal),
        caution=reword(facts.caution),
        reveals=reword(facts.reveals),
        problems=tuple(replace(item, message=reword(item.message)) for item in facts.problems),
    )


def _record_call(folder: TurnFolder, context: ToolContext, ran: Ran) -> None:
    """Add a call, or its end, to those of the turn."""
    with (folder.path / "ran.jsonl").open("ab") as file:
        file.write(spelled([context.call_id, ran]) + b"\n")
        file.flush()
        os.fsync(file.fileno())
