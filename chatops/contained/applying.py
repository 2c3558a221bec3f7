"""Apply a frozen change list to the workspace: all of what was approved once, or nothing, also across a kill.

Theory of operation

Staging writes every new file beside its target under a temporary name, and compares every base once more. Up to there
everything is taken back. Then the journal says ``applying``, which is the point of no return: after it everything is
carried forward, by the next process if this one dies.

No record is kept per file. What to do follows from the states of the target and of the temporary name:

- base / new: do it. new / base or nothing: it is done, clean up.
- new / something else: an edit of the user was swapped out. Swap it back; the path is a conflict.
- anything else: a conflict; the path is left as it is.

A program that had the file open would go on writing into what was swapped out, and nobody would see that. So a file is
left, or swapped back, while anyone has it open for writing, which the kernel knows (a read lease, `fcntl(2)`).

A change swaps both names in one system call (``renameat2``), which follows no link, and looks at what came out. So
there is no gap between check and use. Undoing is the same with base and new exchanged. Staging tries such a swap with
two files of its own beside each target. Where the file system cannot do it, as with NFS and some FUSE mounts, nothing
is applied: renaming in several steps could overwrite an edit, or leave a file missing after a kill.

States of a journal (``apply.json``, ``undo.json``, ``undo2.json``, …), and what `resume` does in each:

| state      | in the workspace                              | resume                    | next          |
|------------|-----------------------------------------------|---------------------------|---------------|
| no journal | nothing of ours                               | nothing                   | staging       |
| staging    | temporary files and new folders, no change    | takes back what was staged| no journal    |
| applying   | some entries are applied                      | carries the rest forward  | done          |
| done       | all that was not in conflict; no temporaries  | returns the results       | -             |

``undo.json`` begins only after ``apply.json`` is done. An undo may be of some files; the next one, which has the next
number and its own journal, is of the rest. So an undo that is repeated returns its results, and puts nothing back a
second time. What undoing needs is removed once all is taken back.
"""

import errno
import fcntl
import hashlib
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import field, replace
from pathlib import Path
from typing import Literal

from chatops.config.failpoints import reach
from chatops.config.paths import opened
from chatops.contained.folder import (
    ABSENT,
    FILE_FLAGS,
    NEW_FILE_FLAGS,
    Kind,
    OpenWorkspace,
    State,
    TurnFolder,
    entry_state,
    exchange,
    is_same_state,
    rename_to_new,
)
from chatops.contained.freezing import ChangeList, Entry, display_path, select_entries
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass

CHANGED = "changed in the workspace since"
IN_USE = "another program has it open for writing"
NOT_EMPTY = "the folder is not empty"
NO_SWAP = "the file system of the workspace cannot swap two files atomically (NFS and some FUSE mounts cannot)"
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_")
"""Beginnings of the names of extended attributes that a new file gets from the one that it replaces."""


class NotAppliedError(ToolFailedError):
    """Applying failed, and the changes made until then were undone."""


@frozen_dataclass
class Journal:
    """The journal of an application or an undo, see the table."""

    state: Literal["staging", "applying", "done"]
    paths: tuple[str, ...]
    made: tuple[str, ...] = ()
    """Folders that were made for new files."""
    results: Mapping[str, str] = field(default_factory=dict)
    """Each path with the reason why it was left; empty if it was applied."""

    @property
    def applied(self) -> "Applied":
        """The results."""
        return Applied(
            done=tuple(path for path, why in self.results.items() if not why),
            left={path: why for path, why in self.results.items() if why},
        )


@frozen_dataclass
class Applied:
    """Result of an application: the paths that were applied, and those left, each with the reason."""

    done: tuple[str, ...]
    left: Mapping[str, str]


def conflicts(changes: ChangeList) -> dict[str, str]:
    """Return the paths whose base is not in the workspace any more, each with what has happened to it.

    Raises WorkspaceReplacedError.
    """
    reasons: dict[str, str] = {}
    with OpenWorkspace(Path(changes.workspace), changes.identity) as workspace:
        for entry in changes.entries:
            now = workspace.state(entry.path)
            if not is_same_state(now, entry.base):
                reasons[entry.path] = _what_happened(entry.base, now)
            elif entry.base == ABSENT and (obstacle := _obstacle_on_the_way(workspace, entry.path)) is not None:
                reasons[entry.path] = f"its folder was replaced by {_with_article(obstacle)} since"
    return reasons


def _what_happened(before: State, now: State) -> str:
    if now.kind is Kind.ABSENT:
        return "removed in the workspace since"
    if before.kind is Kind.ABSENT:
        return f"{_with_article(now.kind)} was made there since"
    return CHANGED if now.kind is before.kind else f"replaced by {_with_article(now.kind)} since"


def _with_article(kind: Kind) -> str:
    return "a pipe, socket or device" if kind is Kind.OTHER else f"a {kind}"


def _obstacle_on_the_way(workspace: OpenWorkspace, path: str) -> Kind | None:
    """Return the kind of the first thing on the way to `path` that is no folder; None if there is none."""
    parts = path.split("/")
    kinds = (workspace.state("/".join(parts[:count])).kind for count in range(1, len(parts)))
    return next((kind for kind in kinds if kind not in (Kind.FOLDER, Kind.ABSENT)), None)


def apply(folder: TurnFolder, changes: ChangeList, only: Sequence[str] | None, *, undo: int | None = None) -> Applied:
    """Apply the changes of `only` (None: all) that are not in conflict. With the number of an `undo`, take them back.

    The caller holds the lock of the workspace. Raises NotAppliedError if nothing was applied, and
    WorkspaceReplacedError.
    """
    begun = journal(folder, undo)
    if begun is not None and begun.state != "staging":
        # Past the point of no return there always are results.
        return resume(folder, changes, undo=undo) or Applied(done=(), left={})
    listed = replace(changes, entries=undoable(folder, changes, undo)) if undo is not None else changes
    in_conflict = conflicts(listed)
    chosen = select_entries(listed, only, in_conflict)
    with OpenWorkspace(Path(changes.workspace), changes.identity) as workspace:
        work = _Work(folder=folder, workspace=workspace, entries=chosen, undo=undo)
        work.stage()
        result = work.carry_out()
        return replace(result, left={**in_conflict, **result.left})


def undoable(folder: TurnFolder, changes: ChangeList, number: int | None = None) -> tuple[Entry, ...]:
    """Return the entries that were applied and not undone, with base and new exchanged.

    With the `number` of an undo that is not the next one, return none.
    """
    if number not in (None, next_undo(folder)):
        return ()
    rest = not_undone(folder)
    return tuple(_reversed(entry) for entry in changes.entries if entry.path in rest)


def next_undo(folder: TurnFolder) -> int:
    """Return the number of the first undo that is not done, from 1."""
    number = 1
    while (undo := journal(folder, number)) is not None and undo.state == "done":
        number += 1
    return number


def not_undone(folder: TurnFolder) -> frozenset[str]:
    """Return the paths that were applied and that no undo took back."""
    first = journal(folder, None)
    undos = [journal(folder, number) for number in range(1, next_undo(folder))]
    if first is None or first.state != "done":
        return frozenset()
    taken = {path for undo in undos if undo is not None for path in undo.applied.done}
    return frozenset(first.applied.done) - taken


def resume(folder: TurnFolder, changes: ChangeList, *, undo: int | None = None) -> Applied | None:
    """Finish an application that a killed process left, and return its results.

    One that had not passed the point of no return is taken back. The result is None then, and without an application.
    The caller holds the lock of the workspace. Raises WorkspaceReplacedError.
    """
    begun = journal(folder, undo)
    if begun is None:
        return None
    if begun.state == "done":
        return begun.applied
    paths = set(begun.paths)
    entries = [entry for entry in changes.entries if entry.path in paths]
    with OpenWorkspace(Path(changes.workspace), changes.identity) as workspace:
        to_do = tuple(entries if undo is None else map(_reversed, entries))
        work = _Work(folder=folder, workspace=workspace, entries=to_do, undo=undo)
        if begun.state == "staging":
            work.take_back(begun)
            return None
        return work.carry_out()


def _journal_name(undo: int | None) -> str:
    if undo is None:
        return "apply"
    return "undo" if undo == 1 else f"undo{undo}"


def journal(folder: TurnFolder, undo: int | None) -> Journal | None:
    """Return the journal of the undo with that number, or of the application (None). Return None if there is none."""
    return folder.read(_journal_name(undo), Journal)


def _reversed(entry: Entry) -> Entry:
    return replace(entry, base=entry.new, new=entry.base)


@frozen_dataclass
class _Work:
    """One application of `entries`."""

    folder: TurnFolder
    workspace: OpenWorkspace
    entries: tuple[Entry, ...]
    """For an undo they are reversed already."""
    undo: int | None
    """The number of the undo; None: the changes are applied for the first time."""

    def stage(self) -> None:
        """Write the new files beside their targets, compare all bases again, and pass the point of no return.

        Raises NotAppliedError after taking everything back.
        """
        paths = tuple(entry.path for entry in self.entries)
        begun = Journal(state="staging", paths=paths, made=tuple(self._missing_folders()))
        try:
            self._stage_all(begun)
        except (OSError, ToolFailedError) as error:
            # Syncing may fail after the journal was replaced.
            if (now := journal(self.folder, self.undo)) is None or now.state != "applying":
                self.take_back(begun)
                why = error.strerror if isinstance(error, OSError) else str(error).rstrip(".")
                raise NotAppliedError(f"Nothing was applied: {why}.") from error
        reach("contained")

    def _stage_all(self, begun: Journal) -> None:
        self.folder.write(_journal_name(self.undo), begun)
        reach("contained")
        for path in begun.made:
            with self.workspace.parent(path) as (parent, name), suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=parent)
        for entry in self.entries:
            try:
                self._stage_entry(entry)
            except OSError as error:
                raise NotAppliedError(f"{display_path(entry.path)}: {error.strerror}") from error
            reach("contained")
        for entry in self.entries:
            # A folder that was missing is there by now.
            if entry.path not in begun.made and not is_same_state(self.workspace.state(entry.path), entry.base):
                raise NotAppliedError(f"{display_path(entry.path)} was changed meanwhile")
        reach("contained")
        self.folder.write(_journal_name(self.undo), replace(begun, state="applying"))

    def take_back(self, begun: Journal) -> None:
        """Remove temporary files and the folders that were made, if they are empty."""
        for entry in self.entries:
            with suppress(OSError), self.workspace.parent(entry.path) as (parent, _):
                for name in (self._temporary(entry), self._temporary(entry, "probe")):
                    with suppress(FileNotFoundError):
                        os.unlink(name, dir_fd=parent)
        self._remove_folders(begun.made)
        (self.folder.path / f"{_journal_name(self.undo)}.json").unlink(missing_ok=True)

    def _remove_folders(self, made: Sequence[str]) -> None:
        """Remove folders that were made for new files, if they are empty."""
        for path in reversed(made):
            with suppress(OSError), self.workspace.parent(path) as (parent, name):
                os.rmdir(name, dir_fd=parent)

    def carry_out(self) -> Applied:
        """Apply each entry that is not applied yet, and record the results durably."""
        results: dict[str, str] = {}
        for entry in sorted(self.entries, key=_applying_order):
            results[entry.path] = self._apply_entry(entry)
            reach("contained")
        if self.undo is not None and (first := journal(self.folder, None)) is not None:
            # The application made them for the files that are taken back.
            self._remove_folders(first.made)
        # The journal of `stage`, unless it cannot be read any more.
        begun = journal(self.folder, self.undo) or Journal(state="applying", paths=tuple(results))
        done = replace(begun, state="done", results=results)
        # If this cannot be stored, the next look finds the same results.
        with suppress(OSError):
            self.folder.write(_journal_name(self.undo), done)
        reach("contained")
        return done.applied

    def _apply_entry(self, entry: Entry) -> str:
        """Apply one entry. Return why it was left; empty if it was not."""
        with ExitStack() as stack:
            try:
                parent, name = stack.enter_context(self.workspace.parent(entry.path))
            except OSError:
                return "" if entry.new.kind is Kind.ABSENT else CHANGED
            try:
                if Kind.FOLDER in (entry.base.kind, entry.new.kind):
                    return self._apply_folder(entry, parent, name)
                why = self._apply_content(entry, parent, name, self._temporary(entry))
                os.fsync(parent)
                return why
            except OSError as error:
                with suppress(OSError):
                    # No later run removes the new content. Anything else there may be an edit that was swapped out.
                    if entry_state(parent, self._temporary(entry)) == entry.new != ABSENT:
                        os.unlink(self._temporary(entry), dir_fd=parent)
                return error.strerror or str(error)

    def _apply_folder(self, entry: Entry, parent: int, name: str) -> str:
        """Make or remove a folder. Return why it was left; empty if it was not. Raises OSError."""
        try:
            if entry.new.kind is Kind.FOLDER:
                os.mkdir(name, 0o755, dir_fd=parent)
            else:
                os.rmdir(name, dir_fd=parent)
        except (FileExistsError, FileNotFoundError, NotADirectoryError):
            return "" if entry_state(parent, name).kind is entry.new.kind else CHANGED
        except OSError as error:
            if error.errno != errno.ENOTEMPTY:
                raise
            return NOT_EMPTY
        return ""

    def _apply_content(self, entry: Entry, parent: int, name: str, temporary: str) -> str:
        """Do what is left to do by the states of the target and of the temporary name, see the list at the top.

        Returns why the entry was left; empty if it was applied.
        """
        base, new = entry.base, entry.new
        in_use = False
        if entry_state(parent, name) == base and entry_state(parent, temporary) == new:
            in_use = _is_open_for_writing(parent, name)
            if not in_use:
                _swap(parent, name, temporary, base=base, new=new)
                reach("contained")
        # After a swap the file that a program may have open has the temporary name.
        in_use = in_use or _is_open_for_writing(parent, temporary)
        target, beside = entry_state(parent, name), entry_state(parent, temporary)
        # Beside it is what was swapped out, nothing, or the new content if the user has made the same change.
        if target == new and beside in (base, ABSENT, new) and not in_use:
            _remove_if_present(parent, temporary, beside)
            return ""
        why = IN_USE if in_use else CHANGED
        if target == new:
            # An edit of the user was swapped out, or a file that a program still writes to: swap it back.
            _swap(parent, name, temporary, base=new, new=beside)
        in_use, beside = _is_open_for_writing(parent, temporary), entry_state(parent, temporary)
        if beside in (base, new) and not in_use:
            _remove_if_present(parent, temporary, beside)
        elif beside != ABSENT:
            why += f"; what was written there in between is in {temporary}"
        return why

    def _stage_entry(self, entry: Entry) -> None:
        with self.workspace.parent(entry.path) as (parent, name):
            temporary = self._temporary(entry)
            if Kind.FOLDER not in (entry.base.kind, entry.new.kind):
                self._check_swap_works(parent, temporary, self._temporary(entry, "probe"))
            if entry.new.kind is Kind.LINK:
                os.symlink(entry.new.target, temporary, dir_fd=parent)
            elif entry.new.kind is Kind.FILE:
                self._write_new_file(entry, parent, name, temporary)
            if entry.base.kind is Kind.FILE and not (self.folder.path / "blobs" / entry.base.sha).exists():
                self.workspace.keep(entry.path, self.folder)

    def _check_swap_works(self, parent: int, one: str, other: str) -> None:
        """Raise NotAppliedError if the file system cannot swap two entries of the folder. Leaves neither name."""
        for name in (one, other):
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=parent)
            os.close(os.open(name, NEW_FILE_FLAGS, 0o600, dir_fd=parent))
        try:
            exchange(parent, one, other)
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP):
                raise NotAppliedError(NO_SWAP) from error
            raise
        finally:
            os.unlink(one, dir_fd=parent)
            os.unlink(other, dir_fd=parent)

    def _write_new_file(self, entry: Entry, parent: int, name: str, temporary: str) -> None:
        data = self.folder.blob(entry.new.sha)
        descriptor = os.open(temporary, NEW_FILE_FLAGS, 0o600, dir_fd=parent)
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            if entry.base.kind is Kind.FILE:
                _keep_attributes(parent, name, file.fileno())
            os.fchmod(file.fileno(), entry.new.mode & 0o777)
            file.flush()
            os.fsync(file.fileno())

    def _missing_folders(self) -> list[str]:
        """Return the folders that new files need, from the top down."""
        missing: dict[str, None] = {}
        for entry in self.entries:
            parts = entry.path.split("/")[:-1] if entry.new.kind is not Kind.ABSENT else []
            for count in range(1, len(parts) + 1):
                path = "/".join(parts[:count])
                if path not in missing and self.workspace.state(path) == ABSENT:
                    missing[path] = None
        return list(missing)

    def _temporary(self, entry: Entry, use: str = "") -> str:
        """Return a name that only this entry has, for this `use`, and has again after a crash."""
        name = f"{self.folder.path.name}/{_journal_name(self.undo)}{use}/{entry.path}"
        return f".chatops-{hashlib.sha256(name.encode()).hexdigest()[:16]}.tmp"


def _applying_order(entry: Entry) -> tuple[int, int, str]:
    """Return the sort key: folders, additions, changes, removals, then folders to remove from the deepest up."""
    depth = entry.path.count("/")
    if entry.new.kind is Kind.FOLDER:
        return (0, depth, entry.path)
    if entry.new.kind is not Kind.ABSENT:
        return (1 if entry.base.kind is Kind.ABSENT else 2, depth, entry.path)
    return (4, -depth, entry.path) if entry.base.kind is Kind.FOLDER else (3, depth, entry.path)


def _swap(parent: int, name: str, temporary: str, *, base: State, new: State) -> None:
    """Put `new`, which has the temporary name, in place of `base`; either may be absent."""
    with suppress(FileExistsError, FileNotFoundError):
        if base == ABSENT:
            rename_to_new(parent, temporary, name)
        elif new == ABSENT:
            rename_to_new(parent, name, temporary)
        else:
            exchange(parent, name, temporary)


def _is_open_for_writing(parent: int, name: str) -> bool:
    """Return True if a program has this file open for writing. False too where that cannot be found out."""
    with suppress(OSError), opened(name, FILE_FLAGS, at=parent) as descriptor:
        # A program that opens it meanwhile would otherwise end this process by SIGIO.
        fcntl.fcntl(descriptor, fcntl.F_SETSIG, signal.SIGURG)
        try:
            fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except BlockingIOError:
            return True
        fcntl.fcntl(descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return False


def _remove_if_present(parent: int, name: str, state: State) -> None:
    if state != ABSENT:
        os.unlink(name, dir_fd=parent)


def _keep_attributes(parent: int, name: str, target: int) -> None:
    """Give a new file the owner, the ACL and the user's extended attributes of the file that it replaces.

    Others, such as ``security.capability``, give rights to a program, and its content is new.
    """
    with suppress(OSError), opened(name, FILE_FLAGS, at=parent) as source:
        info = os.fstat(source)
        with suppress(OSError):
            os.fchown(target, info.st_uid, info.st_gid)
        for attribute in os.listxattr(source):
            if attribute.startswith(_KEPT_ATTRIBUTES):
                with suppress(OSError):
                    os.setxattr(target, attribute, os.getxattr(source, attribute))
