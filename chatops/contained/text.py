"""The change list of a contained turn as text for the user: everything that an approval covers, complete."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from chatops.contained.folder import Kind, State
from chatops.contained.freezing import ChangeList, Entry, display_path, in_review_order
from chatops.domain.diffs import diff_text
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import Outcome
from chatops.toolkit.counting import count_work
from chatops.toolkit.output import is_binary, visible

MAX_TEXT = 4_000_000
"""Maximum number of bytes of a file that is shown as a text diff."""
ReadBlob = Callable[[str], bytes]
"""Returns the content with a SHA-256. Raises ToolFailedError if it is missing."""
_MIN_ALIKE = 0.6
"""Share of equal lines from which a file counts as moved. With less, files of one kind are taken for each other."""
_MAX_COMPARED_BYTES, _MAX_PAIRS = 200_000, 100
"""Bytes of a file and pairs of files that are compared at most, to find moved ones."""
_MAX_COMMAND = 300
"""Maximum number of characters of a command that are shown."""


def head(changes: ChangeList, conflicts: Mapping[str, str]) -> str:
    """Return one line with the counts."""
    verbs = [entry.verb for entry in changes.entries]
    runs = sum(bool(entry.runs_later) for entry in changes.entries)
    failed = sum(call.outcome is not Outcome.SUCCESS for call in changes.ran)
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


@frozen_dataclass
class Change:
    """One change for the user: its title, what its diff does not tell, and its unified diff."""

    path: str
    title: str
    lines: tuple[str, ...]
    diff: str = ""
    conflict: str = ""
    """Why it will not be applied; empty: it will."""
    elsewhere: bool = False
    """True if something else has changed the file too."""


@frozen_dataclass
class ContainedReview:
    """Everything that the user has to see before deciding on the changes of a contained turn."""

    head: str
    notes: tuple[str, ...]
    """Lines about what is left out, what was hidden, and what ran."""
    changes: tuple[Change, ...]
    """The changes; those in conflict come first, then those that run later and links."""


def review(changes: ChangeList, conflicts: Mapping[str, str], read: ReadBlob) -> ContainedReview:
    """Return the complete list of changes, each with its diff."""
    left_out = [f"{entry.path}: {entry.why}" for entry in changes.left_out]
    ran = [
        f"{call.tool} {visible(call.text, limit=_MAX_COMMAND)}: {', '.join(filter(None, (call.outcome, call.ending)))}"
        for call in changes.ran
    ]
    sections: tuple[tuple[str, Sequence[str]], ...] = (
        ("Not taken back:", changes.cannot),
        ("Left out, not applied:", left_out),
        ("Hidden from the turn, because they may hold secrets:", changes.hidden),
        ("Ran in the copy:", ran),
    )
    notes: list[str] = []
    for heading, lines in sections:
        notes += [heading, *(f"  {line}" for line in lines), ""] if lines else []
    ordered = sorted(in_review_order(changes.entries), key=lambda entry: entry.path not in conflicts)
    return ContainedReview(
        head=head(changes, conflicts),
        notes=tuple(notes),
        changes=tuple(
            replace(change, conflict=conflicts.get(change.path, "")) for change in describe_changes(ordered, read)
        ),
    )


def describe_changes(entries: Sequence[Entry], read: ReadBlob) -> tuple[Change, ...]:
    """Return changes for the user, in this order. `read` returns the contents before and after them."""
    origins = _find_moves(entries, read)
    moved_to = {old.path: new for new, old in origins.items()}
    changes = []
    with count_work("comparing files", unit="file", total=len(entries)) as counter:
        for entry in entries:
            changes.append(
                _describe_change(entry, read, moved_from=origins.get(entry.path), moved_to=moved_to.get(entry.path, ""))
            )
            counter.add()
    return tuple(changes)


def _describe_change(entry: Entry, read: ReadBlob, *, moved_from: Entry | None, moved_to: str) -> Change:
    """Return one change: its title, its diff, and what the diff does not tell: modes, kinds, sizes and digests.

    `moved_from` is the removed file that an added one was made from, `moved_to` the path that a removed one got, or
    empty.
    """
    # The text of a moved file is compared with that before it was moved.
    base, new = (moved_from or entry).base, entry.new
    lines: list[str] = []
    if moved_from is not None and base.sha == new.sha:
        lines.append(f"  content unchanged: {new.size:,} bytes, sha256 {new.sha}")
    if base.kind is not new.kind and Kind.ABSENT not in (base.kind, new.kind):
        lines.append(f"  {base.kind} becomes {new.kind}")
    if base.kind is new.kind is Kind.FILE and base.mode != new.mode:
        lines.append(f"  mode {base.mode:o} becomes {new.mode:o}")
    for state, sign in ((base, "-"), (new, "+")):
        if state.kind is Kind.LINK:
            lines.append(f"  {sign} link to {display_path(state.target)}")
        if state.kind is Kind.FOLDER:
            lines.append(f"  {sign} folder")
    before, after, diff = _text(base, read), _text(new, read), ""
    if before is None or after is None:
        lines.append(f"  no text to compare: binary, or more than {MAX_TEXT:,} bytes")
        for state, sign in ((entry.base, "-"), (new, "+")):
            if state.kind is Kind.FILE:
                lines.append(f"  {sign} {state.size:,} bytes, sha256 {state.sha}")
    else:
        diff = diff_text(before, after, name=entry.path)
        if before != after and before.split() == after.split():
            lines.append("  (only white space differs)")
    moved = (f"moved to {display_path(moved_to)}",) if moved_to else ()
    marks = "; ".join((*moved, *(f"runs later: {program}" for program in entry.runs_later), *entry.marks))
    title = f"{entry.verb} {display_path(entry.path)}"
    if moved_from is not None:
        title = f"move {display_path(moved_from.path)} to {display_path(entry.path)}"
    title += f"  [{marks}]" if marks else ""
    return Change(path=entry.path, title=title, lines=tuple(lines), diff=diff)


def describe(listed: ContainedReview) -> str:
    """Return the whole list as text."""
    lines = [listed.head, "", *listed.notes]
    for change in listed.changes:
        conflict = f"  (in conflict, left: {change.conflict})" if change.conflict else ""
        lines += [f"{change.title}{conflict}", *change.lines, *change.diff.splitlines(), ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def _find_moves(entries: Sequence[Entry], read: ReadBlob) -> dict[str, Entry]:
    """Return the removed file that each moved file was before, by the path that it has now.

    A file counts as moved if its content is the same, or for few and small texts if most of its lines are.
    """
    removed = [
        entry for entry in entries if entry.verb == "remove" and entry.base.kind is Kind.FILE and entry.base.size
    ]
    added = [entry for entry in entries if entry.verb == "add" and entry.new.kind is Kind.FILE]
    origins: dict[str, Entry] = {}
    for new in added:
        if origin := next((old for old in removed if old.base.sha == new.new.sha), None):
            removed.remove(origin)
            origins[new.path] = origin
    rest = [new for new in added if new.path not in origins and new.new.size <= _MAX_COMPARED_BYTES]
    removed = [old for old in removed if old.base.size <= _MAX_COMPARED_BYTES]
    if len(rest) * len(removed) > _MAX_PAIRS:
        return origins
    texts = {old.path: (_text(old.base, read) or "").splitlines() for old in removed}
    for new in rest:
        lines = (_text(new.new, read) or "").splitlines()
        ratios = {old.path: SequenceMatcher(None, texts[old.path], lines).quick_ratio() for old in removed}
        best = max(removed, key=lambda old: ratios[old.path], default=None)
        if lines and best is not None and ratios[best.path] >= _MIN_ALIKE:
            removed.remove(best)
            origins[new.path] = best
    return origins


def _text(state: State, read: ReadBlob) -> str | None:
    """Return the text of a state; None if it is binary, too large or not kept."""
    if state.kind is not Kind.FILE:
        return ""
    if state.size > MAX_TEXT:
        return None
    try:
        data = read(state.sha)
        return None if is_binary(data) else data.decode("utf-8")
    except (ToolFailedError, UnicodeDecodeError):
        return None
