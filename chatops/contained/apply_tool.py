"""The tool that applies the changes of a contained turn, or takes them back. Only the engine calls it."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chatops.contained import applying
from chatops.contained.applying import Applied, NotAppliedError, undoable
from chatops.contained.changes import ChangeList, selected
from chatops.contained.folder import TurnFolder, locked, turn_folder
from chatops.contained.freezing import freeze, frozen, shown
from chatops.contained.on_copy import recorded
from chatops.contained.workspace import WorkspaceReplacedError
from chatops.domain.canonical import parsed
from chatops.domain.errors import ToolFailedError
from chatops.domain.rights import Verdict
from chatops.domain.tools import (
    CONTAINED_APPLY,
    CallFacts,
    Outcome,
    Problem,
    ToolCall,
    ToolResult,
    ToolSpec,
)
from chatops.domain.wording import plural
from chatops.toolkit.base import Reconciled, ToolContext
from chatops.toolkit.threads import in_thread

_MOST_NAMED = 20


@dataclass(frozen=True, slots=True)
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
        return await in_thread(self._inspected, call.arguments, context)

    def _inspected(self, arguments: str, context: ToolContext) -> CallFacts:
        facts = CallFacts(arguments=arguments, workspace=str(context.workspace), cwd=str(context.workspace))
        folder, undo, only, number = self._given(arguments)
        try:
            listed = frozen(folder) if undo else freeze(folder, ran=tuple(recorded(folder).values()), number=number)
            changes = directed(folder, listed, undo=undo)
            conflicts = applying.conflicts(changes)
        except (ToolFailedError, OSError) as error:
            return _faulty(facts, str(error))
        if changes.workspace != str(context.workspace):
            return _faulty(facts, f"The changes belong to another workspace: {shown(changes.workspace)}.")
        if not changes.entries:
            left = f" {len(changes.left_out):,} paths were left out." if changes.left_out else ""
            why = "Nothing to undo." if undo else f"Nothing to apply: the contained turn changed nothing.{left}"
            return _faulty(facts, why)
        unknown = [path for path in only or () if path not in {one.path for one in changes.entries}]
        if unknown:
            return _faulty(facts, f"There is no change of {shown(unknown[0])}.")
        found = tuple(f"conflict {shown(path)} {why}" for path, why in conflicts.items())
        # Those of `only` too: it is part of the arguments, and an approval binds the whole list.
        able = selected(changes, None, conflicts)
        return replace(
            facts,
            paths=tuple(str(context.workspace / one.path) for one in able),
            hashes=(_bound(changes), *found),
        )

    async def run(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        """Apply the changes that were approved. Outcome INVALID: nothing was applied."""
        return await in_thread(self._applied, facts, context)

    def _applied(self, facts: CallFacts, context: ToolContext) -> ToolResult:
        folder, undo, only, _ = self._given(facts.arguments)
        try:
            with locked(self.data, context.workspace):
                changes = self._approved(facts, folder, undo=undo)
                done = applying.apply(folder, changes, only, undo=undo)
        except (NotAppliedError, WorkspaceReplacedError) as error:
            return ToolResult(outcome=Outcome.INVALID, content=str(error))
        result = _result_of(done, undo=undo)
        named = [shown(one.path) for one in changes.entries if only is not None and one.path not in {*only, *done.left}]
        if not named:
            return result
        more = f" and {len(named) - _MOST_NAMED:,} more" if len(named) > _MOST_NAMED else ""
        return replace(result, content=f"{result.content}\nNot chosen: {', '.join(named[:_MOST_NAMED])}{more}.")

    def _approved(self, facts: CallFacts, folder: TurnFolder, *, undo: int) -> ChangeList:
        """Return the frozen list if it is the one that was approved. Raises NotAppliedError if it is not."""
        try:
            changes = frozen(folder)
        except ToolFailedError as error:
            raise NotAppliedError(f"Nothing was applied: {error}") from error
        if _bound(directed(folder, changes, undo=undo)) not in facts.hashes:
            raise NotAppliedError("Nothing was applied: the frozen list is not the one that was approved.")
        return changes

    async def reconcile(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        """Finish an application that had passed the point of no return; take back any other."""
        return await in_thread(self._reconciled, facts, context)

    def _reconciled(self, facts: CallFacts, context: ToolContext) -> Reconciled:
        folder, undo, _, _ = self._given(facts.arguments)
        try:
            with locked(self.data, context.workspace):
                done = applying.resume(folder, frozen(folder), undo=undo)
        except (ToolFailedError, OSError) as error:
            return Reconciled(result=None, found=str(error))
        return Reconciled(result=None, repeat=True) if done is None else Reconciled(result=_result_of(done, undo=undo))

    def _given(self, arguments: str) -> tuple[TurnFolder, int, list[str] | None, int]:
        given: Any = parsed(arguments)
        folder, number = turn_folder(self.data, str(given["turn"])), int(given.get("list", 1))
        return folder, number if given.get("undo") else 0, given.get("only"), number


def _bound(changes: ChangeList) -> str:
    """Return the entry of `CallFacts.hashes` that binds an approval to these changes."""
    return f"changes {changes.digest}"


def _faulty(facts: CallFacts, text: str) -> CallFacts:
    return replace(facts, problems=(Problem(path="", message=text),))


def _result_of(done: Applied, *, undo: int) -> ToolResult:
    """Return the result for the user and the model."""
    verb = "Took back" if undo else "Applied"
    named = ", ".join(shown(path) for path in done.done[:_MOST_NAMED])
    more = f" and {len(done.done) - _MOST_NAMED:,} more" if len(done.done) > _MOST_NAMED else ""
    lines = [f"{verb} {plural(len(done.done), 'change')}{': ' if named else ''}{named}{more}."]
    if done.left:
        lines.append(f"Left {len(done.left):,}, in conflict:")
        lines += [f"- {shown(path)}: {why}" for path, why in list(done.left.items())[:_MOST_NAMED]]
    outcome = Outcome.SUCCESS if done.done or not done.left else Outcome.FAILED
    return ToolResult(outcome=outcome, content="\n".join(lines))


def directed(folder: TurnFolder, changes: ChangeList, *, undo: int) -> ChangeList:
    """Return the frozen list, or the list of what the undo with that number would change."""
    if not undo:
        return changes
    return replace(changes, entries=undoable(folder, changes, undo), left_out=(), ran=(), hidden=())
