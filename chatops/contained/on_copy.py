"""Run built-in tools on the copy of a contained turn: files and commands, what commands see, and what is recorded."""

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from chatops.config.entries import encode_value
from chatops.contained.copying import GIT_CONFIGS, GIT_EMPTY, read_manifest
from chatops.contained.folder import TurnFolder
from chatops.contained.freezing import RanCall
from chatops.domain.canonical import canonical, parse_json
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sandbox import Mount
from chatops.domain.tools import CallFacts, Outcome, ToolCall, ToolResult, ToolSpec
from chatops.git.repository import config_for_reading
from chatops.toolkit.base import Reconciled, Tool, ToolContext
from chatops.toolkit.survey import Find, survey
from chatops.toolkit.threads import in_thread

MAX_GROWTH = 2 << 30
"""Bytes by which the free disk may shrink while a command runs; a sixteenth of it where the disk is nearly full."""
_NEARLY_FULL = 0.05
"""Share of free blocks or files below which the disk counts as nearly full."""
_LOOK_S = 0.1
"""Seconds between two looks at the free disk. In that time a command can write more than it may."""
_PATH_ARGUMENTS = ("path", "cwd")
"""Arguments of built-in tools that name a path."""


@frozen_dataclass(kw_only=False)
class OnCopy:
    """A built-in tool that works on the copy: its facts name the workspace, and its files are those of the copy."""

    tool: Tool
    folder_of: Callable[[str], TurnFolder]
    """Returns the folder of a contained turn by its name."""
    copied_folder_of: Callable[[str, ToolContext], TurnFolder]
    """Does the same, and copies the workspace on first use. Raises ToolFailedError."""

    @property
    def spec(self) -> ToolSpec:
        """The definition of the tool itself."""
        return self.tool.spec

    async def inspect(self, call: ToolCall, context: ToolContext) -> CallFacts:
        """Inspect the call in the copy."""
        try:
            folder = await in_thread(self.copied_folder_of, context.contained, context)
        except (ToolFailedError, OSError) as error:
            text = f"The turn is contained, and the workspace could not be copied: {error}"
            return CallFacts(arguments=call.arguments, refusal=text)
        call = replace(call, arguments=_with_relative_paths(call.arguments, context.workspace))
        facts = await self.tool.inspect(call, self._on_copy(folder, context))
        return _move_paths(facts, source=folder.copy, target=context.workspace)

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Run the call in the copy, and record it for the list at the end."""
        folder = self.folder_of(context.contained)
        if not await in_thread(lambda: folder.exists):
            raise ToolFailedError("The copy of the workspace is gone; nothing was run.")
        if self.spec.read_only:
            return await self._run_in(folder, facts, context)
        paths = ", ".join(path.removeprefix(f"{context.workspace}/") for path in facts.paths)
        text = facts.command or (paths if self.spec.capabilities.path else facts.arguments)
        # Before it runs, so that one that is killed is in the list too.
        ran = RanCall(tool=self.spec.name, text=text, outcome=Outcome.INTERRUPTED)
        await in_thread(_record_call, folder, context, ran)
        try:
            result = await self._run_in(folder, facts, context)
        except Exception:
            await in_thread(_record_call, folder, context, replace(ran, outcome=Outcome.FAILED))
            raise
        ending = result.facts.ending
        ran = replace(ran, outcome=result.outcome, ending=ending.in_words if ending is not None else "")
        await in_thread(_record_call, folder, context, ran)
        return result

    async def _run_in(self, folder: TurnFolder, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Run a command with the copy in the workspace's place, and any other tool on the files of the copy."""
        if not self.spec.capabilities.runs_anything:
            moved = _move_paths(facts, source=context.workspace, target=folder.copy)
            return await self.tool.run(moved, self._on_copy(folder, context))
        inner = replace(_with_contained_limits(context), source=folder.copy)
        inner = replace(inner, mounts=await in_thread(_mounts_of_original, folder, inner))
        return await _within_disk(self.tool.run(facts, inner), folder.copy)

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Not asked: an interrupted call in the copy is settled by the engine."""
        return Reconciled(result=None)

    def _on_copy(self, folder: TurnFolder, context: ToolContext) -> ToolContext:
        copy, workspace = folder.copy, context.workspace
        inside = (path.relative_to(workspace) for path in context.protected if path.is_relative_to(workspace))
        protected = (*context.protected, *(copy / path for path in inside))
        limited = _with_contained_limits(context)
        return replace(limited, workspace=copy, source=copy, original=workspace, protected=protected)


async def _within_disk(work: Coroutine[Any, Any, ToolResult], place: Path) -> ToolResult:
    """Run a command, and stop it if it fills the disk that holds `place`. Raises ToolFailedError then."""
    task, before = asyncio.ensure_future(work), os.statvfs(place)
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=_LOOK_S)
            now = os.statvfs(place)
            taken = (before.f_bavail - now.f_bavail) * before.f_frsize
            # Some file systems have no fixed number of files.
            free_files = now.f_favail / now.f_files if now.f_files else 1.0
            nearly_full = min(now.f_bavail / max(1, now.f_blocks), free_files) < _NEARLY_FULL
            if taken > MAX_GROWTH or (nearly_full and taken > MAX_GROWTH // 16):
                task.cancel()
                await asyncio.wait({task})
                shrunk = f"the free disk space shrank by {taken >> 20:,} MiB while it ran"
                raise ToolFailedError(f"The command was stopped: {shrunk}.")
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task})
        # Otherwise the command ended just before: its result is not lost.
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


def _record_call(folder: TurnFolder, context: ToolContext, ran: RanCall) -> None:
    """Add a call, or its end, to those of the turn."""
    with (folder.path / "ran.jsonl").open("ab") as file:
        file.write(encode_value([context.call_id, ran]) + b"\n")
        file.flush()
        os.fsync(file.fileno())
