"""The list of what ``/undo`` puts back, made from what turns have changed: writes of file tools, contained turns.

Several changes of a path count as one, from the state before the first to the state after the last. The list is stored
as that of a contained turn that was applied, so that showing it, applying it and surviving a kill are the same.

Nothing that is not known is overwritten: a path is left out if something else changed it between two of the changes,
and it is a conflict if something else has changed it since.

`changed_files` says for ``/diff`` what turns have changed, from before the first change of each file to what it is now.
What commands changed in the workspace itself is not known.
"""

import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from chatops.config.failpoints import reach
from chatops.contained.applying import Journal, journal, undoable
from chatops.contained.copying import hidden_by_name
from chatops.contained.folder import Kind, OpenWorkspace, State, TurnFolder, turn_folder, write_durably
from chatops.contained.freezing import ChangeList, Entry, FrozenList, display_path, read_calls, read_frozen
from chatops.contained.kept import PathChange, kept_changes
from chatops.contained.text import MAX_TEXT, Change, describe_changes
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass

BETWEEN = "something else changed it between two calls"
ELSEWHERE = "it was changed in another folder"
_NOT_KEPT_LINE = "  what it was before is not kept any more"
_EARLIER_NOT_KEPT_LINE = "  earlier changes of it are not kept any more"
_SECRET_LINE = "  not shown: something else has changed it since, and it may hold secrets"


@frozen_dataclass
class UndoList:
    """The list under `name`, empty if no file is to be put back, and what cannot be undone, as lines for the user."""

    name: str
    cannot: tuple[str, ...]


def store_undo_list(
    data: Path, workspace: Path, *, session_id: str, turns: Sequence[str], cannot: Sequence[str]
) -> UndoList:
    """Store the list of what undoing `turns` puts back in the workspace. `cannot` names what else they have done.

    Raises ToolFailedError and OSError.
    """
    changes_by_path = changed_paths(data, workspace, turns)
    folder = turn_folder(data, f"{session_id}.{secrets.token_hex(4)}.undo")
    folder.path.mkdir(mode=0o700, parents=True)
    info = os.stat(workspace)
    identity = (info.st_dev, info.st_ino)
    cannot_lines, entries = list[str](), list[Entry]()
    with OpenWorkspace(workspace, identity) as opened:
        for path, changes in changes_by_path.items():
            match _undo_entry(path, changes, opened, folder):
                case Entry() as entry:
                    entries.append(entry)
                case _CannotUndo(why=why):
                    cannot_lines.append(f"{display_path(path)}: {why}")
                case None:
                    pass
    lines = (*cannot_lines, *cannot)
    if not entries:
        folder.path.rmdir()
        return UndoList(name="", cannot=lines)
    made = sorted({path for changes in changes_by_path.values() for change in changes for path in change.made})
    listed = ChangeList(workspace=str(workspace), identity=identity, entries=tuple(entries), cannot=lines)
    folder.write("frozen", FrozenList(changes=listed))
    # To `applying`, the turns were applied already: the undo is what is left to do.
    results = {entry.path: "" for entry in entries}
    folder.write("apply", Journal(state="done", paths=tuple(results), made=tuple(made), results=results))
    reach("undo_listed")
    return UndoList(name=folder.path.name, cannot=lines)


def contained_calls(data: Path, turns: Sequence[str]) -> frozenset[str]:
    """Return the calls of `turns` that ran in a copy of the workspace, whose changes are in its list."""
    return frozenset(call for folder in _contained_folders(data, turns) for call in read_calls(folder))


def changed_paths(data: Path, workspace: Path, turns: Sequence[str]) -> dict[str, list[PathChange]]:
    """Return what the file tools of `turns` have changed, by path in order, the changes of each from the first on."""
    by_path: dict[str, list[PathChange]] = {}
    for change in sorted(_changes_of(data, workspace, turns), key=lambda change: (change.path, change.at_ns)):
        by_path.setdefault(change.path, []).append(change)
    return by_path


def _changes_of(data: Path, workspace: Path, turns: Sequence[str]) -> list[PathChange]:
    """Return the changes by file tools and those of contained turns that were applied, in no certain order."""
    changes = kept_changes(data / "kept", [f"{turn}." for turn in turns], workspace=workspace)
    for folder in _contained_folders(data, turns):
        with suppress(OSError, ToolFailedError):
            listed = read_frozen(folder)
            at_ns = (folder.path / "apply.json").stat().st_mtime_ns
            applied = journal(folder, None)
            # The entries are those of an undo, so base and new are exchanged.
            changes += [
                PathChange(
                    path=entry.path,
                    base=entry.new,
                    new=entry.base,
                    at_ns=at_ns,
                    made=() if applied is None else applied.made,
                    read=partial(folder.blob, entry.new.sha),
                    here=listed.workspace == str(workspace),
                )
                for entry in undoable(folder, listed)
            ]
    return changes


def _contained_folders(data: Path, turns: Sequence[str]) -> list[TurnFolder]:
    """Return the folders of the contained ones among `turns`."""
    starts = tuple(f"{turn}.c" for turn in turns)
    with suppress(OSError):
        names = sorted(name for name in os.listdir(data / "contained") if name.startswith(starts))
        return [TurnFolder(data / "contained" / name) for name in names]
    return []


def known_states(changes: Sequence[PathChange]) -> list[State] | None:
    """Return the states that a path had before and after its changes; None if something else changed it in between."""
    known = [changes[0].base]
    for change in changes:
        if change.base not in known:
            return None
        known += [change.base, change.new]
    return known


@frozen_dataclass
class _CannotUndo:
    why: str
    """As a clause."""


def _undo_entry(
    path: str, changes: Sequence[PathChange], workspace: OpenWorkspace, folder: TurnFolder
) -> Entry | _CannotUndo | None:
    """Return the change of a path as a whole; None if the path is as it was before."""
    if not all(change.here for change in changes):
        return _CannotUndo(why=ELSEWHERE)
    first, last = changes[0], changes[-1].new
    if (known := known_states(changes)) is None:
        return _CannotUndo(why=BETWEEN)
    now = workspace.state(path)
    if now == first.base:
        return None
    if first.base.kind is Kind.FILE:
        if (data := first.content()) is None:
            return _CannotUndo(why="its earlier content is damaged")
        blobs = folder.path / "blobs"
        blobs.mkdir(mode=0o700, exist_ok=True)
        write_durably(blobs / first.base.sha, data)
    # For the dialog, which shows what would be taken back.
    workspace.keep(path, folder)
    # A write that was interrupted, or undone before, left an earlier state.
    return Entry(path=path, base=first.base, new=now if now in known else last)


def changed_files(data: Path, workspace: Path, *, turns: Sequence[str], gone: Sequence[str]) -> tuple[Change, ...]:
    """Return the files that differ from what they were before `turns`, in order of their paths.

    `gone` names files that were written too, and of which no earlier content is kept. Raises OSError and
    ToolFailedError.
    """
    not_kept = {os.path.relpath(os.path.join(workspace, file), workspace) for file in gone}
    info = os.stat(workspace)
    shown, entries = dict[str, Change](), list[Entry]()
    contents, changed_elsewhere = dict[str, bytes](), set[str]()
    with OpenWorkspace(workspace, (info.st_dev, info.st_ino)) as opened:
        for path, changes in changed_paths(data, workspace, turns).items():
            if not all(change.here for change in changes):
                shown[path] = _unshown_change(path, f"  {ELSEWHERE}")
                continue
            now, content = opened.read(path, max_bytes=MAX_TEXT)
            known = known_states(changes)
            if known is None or now not in known:
                changed_elsewhere.add(path)
            base = changes[0].base
            if now == base:
                continue
            may_be_text = base.kind is Kind.FILE and base.size <= MAX_TEXT
            before = changes[0].content() if may_be_text else None
            if path in changed_elsewhere and hidden_by_name(tuple(path.split("/"))):
                shown[path] = _unshown_change(path, _SECRET_LINE)
            elif may_be_text and before is None:
                shown[path] = _unshown_change(path, _NOT_KEPT_LINE)
            else:
                contents |= {base.sha: before} if before is not None else {}
                contents |= {now.sha: content} if content is not None else {}
                entries.append(Entry(path=path, base=base, new=now))

    def read(sha: str) -> bytes:
        if sha not in contents:
            raise ToolFailedError("This content is not kept.")
        return contents[sha]

    shown |= {change.path: change for change in describe_changes(entries, read)}
    for path in not_kept:
        if path in shown:
            shown[path] = replace(shown[path], lines=(*shown[path].lines, _EARLIER_NOT_KEPT_LINE))
        else:
            shown[path] = _unshown_change(path, _NOT_KEPT_LINE)
    return tuple(replace(shown[path], elsewhere=path in changed_elsewhere) for path in sorted(shown))


def _unshown_change(path: str, why: str) -> Change:
    return Change(path=path, title=f"change {display_path(path)}", lines=(why,))
