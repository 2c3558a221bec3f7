"""The change list of a contained turn as text for the user: everything that an approval covers, complete."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import Outcome
from chatops.tools.contained.changes import ChangeList, Entry, Kind, Ran, State
from chatops.tools.contained.folder import TurnFolder
from chatops.tools.contained.freezing import shown, with_order
from chatops.tools.diff import unified
from chatops.tools.output import is_binary, visible

_MOST_TEXT = 4_000_000
"""Most bytes of a file that is shown as a text diff."""
_SHORT = 12
_COMMAND = 300


def head(changes: ChangeList, conflicts: Mapping[str, str]) -> str:
    """Return one line with the counts."""
    verbs = [entry.verb for entry in changes.entries]
    runs = sum(bool(entry.runs_later) for entry in changes.entries)
    failed = sum(one.outcome is not Outcome.SUCCESS for one in changes.ran)
    parts = (
        (verbs.count("change") + verbs.count("mode"), "changed"),
        (verbs.count("add"), "new"),
        (verbs.count("remove"), "removed"),
        (runs, "run later"),
        (len(conflicts), "in conflict"),
        (len(changes.left_out), "left out"),
        (len(changes.ran), "call" if len(changes.ran) == 1 else "calls"),
        (failed, "of them failed"),
    )
    return " · ".join(f"{count:,} {what}" for count, what in parts if count) or "no changes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One change for the user: its title and all lines of it."""

    path: str
    title: str
    lines: tuple[str, ...]
    conflict: str = ""
    """Why it will not be applied; empty: it will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainedReview:
    """Everything that the user has to see before deciding on the changes of a contained turn."""

    head: str
    notes: tuple[str, ...]
    """Lines about what is left out, what was hidden, and what ran."""
    changes: tuple[Change, ...]
    """The changes; those that run later and links come first."""


def review(
    changes: ChangeList, conflicts: Mapping[str, str], folder: TurnFolder, *, undo: bool = False
) -> ContainedReview:
    """Return the complete list of changes, each with its diff."""
    notes: list[str] = []
    if conflicts:
        notes += ["In conflict, left as they are:"]
        notes += [f"  {shown(path)}: {why}" for path, why in conflicts.items()] + [""]
    if changes.cannot:
        notes += ["Not taken back:"]
        notes += [f"  {line}" for line in changes.cannot] + [""]
    if changes.left_out:
        notes += ["Left out, not applied:"]
        notes += [f"  {one.path}: {one.why}" for one in changes.left_out] + [""]
    if changes.hidden:
        notes += ["Hidden from the turn, because they may hold secrets:"]
        notes += [f"  {path}" for path in changes.hidden] + [""]
    if changes.ran:
        notes += ["Ran in the copy:"]
        notes += [f"  {one.tool} {visible(one.text, limit=_COMMAND)}: {_ended(one)}" for one in changes.ran] + [""]
    return ContainedReview(
        head=f"{'Undoes: ' if undo else ''}{head(changes, conflicts)}",
        notes=tuple(notes),
        changes=tuple(
            Change(
                path=entry.path,
                title=title(entry),
                lines=tuple(change_lines(entry, folder)),
                conflict=conflicts.get(entry.path, ""),
            )
            for entry in with_order(changes.entries)
        ),
    )


def describe(seen: ContainedReview) -> str:
    """Return the whole list as text."""
    lines = [seen.head, "", *seen.notes]
    for one in seen.changes:
        conflict = "  (in conflict, left)" if one.conflict else ""
        lines += [f"{one.title}{conflict}", *one.lines, ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def title(entry: Entry) -> str:
    """Return one line about a change: what happens, to which path, and its marks."""
    marks = "; ".join((*(f"runs later: {program}" for program in entry.runs_later), *entry.marks))
    return f"{entry.verb} {shown(entry.path)}{f'  [{marks}]' if marks else ''}"


def _ended(one: Ran) -> str:
    return f"{one.outcome}, {one.ending}" if one.ending else str(one.outcome)


def change_lines(entry: Entry, folder: TurnFolder) -> Iterator[str]:
    """Yield the lines of a change: modes and kinds where they differ, then the diff, or sizes and digests."""
    if entry.base.kind is not entry.new.kind and Kind.ABSENT not in (entry.base.kind, entry.new.kind):
        yield f"  {entry.base.kind} becomes {entry.new.kind}"
    if entry.base.kind is entry.new.kind is Kind.FILE and entry.base.mode != entry.new.mode:
        yield f"  mode {entry.base.mode:o} becomes {entry.new.mode:o}"
    for state, sign in ((entry.base, "-"), (entry.new, "+")):
        if state.kind is Kind.LINK:
            yield f"  {sign} link to {shown(state.target)}"
        if state.kind is Kind.FOLDER:
            yield f"  {sign} folder"
    before, after = _text(entry.base, folder), _text(entry.new, folder)
    if before is None or after is None:
        for state, sign in ((entry.base, "-"), (entry.new, "+")):
            if state.kind is Kind.FILE:
                yield f"  {sign} {state.size:,} bytes, sha256 {state.sha}"
        return
    if _spaces_only(before, after):
        yield "  (only white space differs)"
    yield from unified(before, after, name=entry.path).splitlines()


def _spaces_only(before: str, after: str) -> bool:
    return before != after and before.split() == after.split()


def _text(state: State, folder: TurnFolder) -> str | None:
    """Return the text of a state; None if it is binary, too large or not kept."""
    if state.kind is not Kind.FILE:
        return ""
    if state.size > _MOST_TEXT:
        return None
    try:
        data = folder.blob(state.sha)
        return None if is_binary(data) else data.decode("utf-8")
    except (ToolFailedError, UnicodeDecodeError):
        return None
