"""Built-in tools on the copy of a contained turn: files and commands, what commands see, and what is recorded."""

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from chatops.contained.changes import Ran, ran_from
from chatops.contained.copying import GIT_CONFIGS, GIT_EMPTY, read_manifest
from chatops.contained.folder import TurnFolder
from chatops.domain.canonical import canonical, parsed
from chatops.domain.errors import ToolFailedError
from chatops.domain.sandbox import Mount
from chatops.domain.tools import (
    CallFacts,
    Outcome,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from chatops.git.repository import config_for_reading
from chatops.toolkit.base import Reconciled, Tool, ToolContext
from chatops.toolkit.survey import Find, survey
from chatops.toolkit.threads import in_thread

MAX_GROWTH = 2 << 30
"""Bytes by which the free disk may shrink while a command runs; a sixteenth of it where the disk is nearly full."""
_LEAST_FREE = 0.05
_LOOK_S = 0.1
_PATHS = ("path", "cwd")
"""Arguments of built-in tools that name a path."""


@dataclass(frozen=True, slots=True)
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
        call = replace(call, arguments=_relative(call.arguments, context.workspace))
        facts = await self.tool.inspect(call, self._inside(folder, context))
        return _moved(facts, source=folder.copy, target=context.workspace)

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
            await in_thread(_record, folder, context, ran)
        if known.runs_anything:
            inner = replace(_commands(context), source=folder.copy)
            inner = replace(inner, mounts=await in_thread(_mounts, folder, inner))
            work = _within_disk(self.tool.run(facts, inner), folder.copy)
        else:
            inner = self._inside(folder, context)
            work = self.tool.run(_moved(facts, source=context.workspace, target=folder.copy), inner)
        try:
            result = await work
        except Exception:
            if changes:
                await in_thread(_record, folder, context, replace(ran, outcome=Outcome.FAILED))
            raise
        if changes:
            ended = result.facts.ending
            ran = replace(ran, outcome=result.outcome, ending=ended.how if ended is not None else "")
            await in_thread(_record, folder, context, ran)
        return result

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Not asked: an interrupted call in the copy is settled by the engine."""
        return Reconciled(result=None)

    def _inside(self, folder: TurnFolder, context: ToolContext) -> ToolContext:
        copy = folder.copy
        inside = [path.relative_to(context.workspace) for path in context.protected if _is_below(path, context)]
        protected = (*context.protected, *(copy / path for path in inside))
        return replace(_commands(context), workspace=copy, source=copy, original=context.workspace, protected=protected)


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


def _is_below(path: Path, context: ToolContext) -> bool:
    return path.is_relative_to(context.workspace)


def _commands(context: ToolContext) -> ToolContext:
    """Return the context with the limits of contained commands: hosts at most, nothing written outside the copy."""
    return replace(context, kept=None, sandbox=replace(context.sandbox, network=False, write=(), git="protect"))


def _mounts(folder: TurnFolder, context: ToolContext) -> tuple[Mount, ...]:
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
                mounts.append(_mount(place, place))
    store = workspace / ".git"
    with contextlib.suppress(OSError):
        if store.is_dir() and not store.is_symlink() and not survey(store, workspace=workspace).special:
            mounts.append(_mount(store, store))
            covers = dict.fromkeys(GIT_EMPTY, _empty(folder))
            for name in GIT_CONFIGS:
                covers[name] = folder.path / f"git-{name}"
                covers[name].write_text(config_for_reading(store / name), encoding="utf-8")
            for name, source in covers.items():
                if (store / name).exists() and not (store / name).is_symlink():
                    mounts.append(_mount(source, store / name))
    return tuple(mounts)


def _empty(folder: TurnFolder) -> Path:
    place = folder.path / "empty"
    place.mkdir(exist_ok=True)
    return place


def _mount(source: Path, target: Path) -> Mount:
    return Mount(source=str(source), target=str(target))


def _relative(arguments: str, workspace: Path) -> str:
    """Return arguments in which absolute paths of the workspace are relative to it, so that they name the copy."""
    try:
        given = parsed(arguments)
    except ValueError:
        return arguments
    if not isinstance(given, Mapping):
        return arguments
    changed = {
        name: os.path.relpath(value, workspace)
        for name in _PATHS
        if isinstance(value := given.get(name), str) and (value == str(workspace) or value.startswith(f"{workspace}/"))
    }
    return canonical({**given, **changed}) if changed else arguments


def _moved(facts: CallFacts, *, source: Path, target: Path) -> CallFacts:
    """Return facts with the paths below `source` as paths below `target`."""

    def moved(text: str) -> str:
        if text == str(source):
            return str(target)
        return f"{target}{text[len(str(source)) :]}" if text.startswith(f"{source}/") else text

    def said(text: str) -> str:
        return text.replace(str(source), str(target))

    return replace(
        facts,
        cwd=moved(facts.cwd),
        workspace=moved(facts.workspace),
        paths=tuple(map(moved, facts.paths)),
        hashes=tuple(map(moved, facts.hashes)),
        refusal=said(facts.refusal),
        caution=said(facts.caution),
        reveals=said(facts.reveals),
        problems=tuple(replace(one, message=said(one.message)) for one in facts.problems),
    )


def _record(folder: TurnFolder, context: ToolContext, ran: Ran) -> None:
    """Add a call, or its end, to those of the turn."""
    line = json.dumps([context.call_id, asdict(ran)])
    with (folder.path / "ran.jsonl").open("a", encoding="ascii") as file:
        file.write(f"{line}\n")
        file.flush()
        os.fsync(file.fileno())


def recorded(folder: TurnFolder) -> dict[str, Ran]:
    """Return the calls that ran in the copy by their ids, each with its outcome."""
    found: dict[str, Ran] = {}
    with contextlib.suppress(OSError, ValueError, TypeError, KeyError):
        for line in (folder.path / "ran.jsonl").read_text(encoding="ascii").splitlines():
            number, ran = json.loads(line)
            found[number] = ran_from(ran)
    return found
