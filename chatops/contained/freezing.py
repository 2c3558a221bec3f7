"""Freeze a contained turn: compare the copy with its manifest once, and keep the content of each change.

Afterwards only the change list and the kept content count. What happens in the copy later has no effect, and a change
that was overlooked is not applied. The copy has no say in how it is compared: ignore rules are those of the original.
"""

import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

from chatops.config.entries import decode_value
from chatops.config.failpoints import reach
from chatops.config.paths import opened
from chatops.contained.copying import MAX_DEPTH, Manifest, hidden_by_name, is_cache, is_git_name, read_manifest
from chatops.contained.folder import ABSENT, FILE_FLAGS, Kind, OpenWorkspace, State, TurnFolder, state_below
from chatops.domain.canonical import digest
from chatops.domain.errors import ToolFailedError
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.names import PACKAGE_FOLDERS, fold, runs_later
from chatops.domain.tools import Outcome
from chatops.git.ignore import GitIgnore
from chatops.sandbox.mount_points import MOUNTED, is_mount_point
from chatops.toolkit.counting import Counter as WorkCounter
from chatops.toolkit.counting import count_work
from chatops.toolkit.output import visible

MAX_ENTRIES = 2_000
"""Maximum number of changes that can be applied at once."""
MAX_FILE = 64 << 20
"""Maximum number of bytes of a changed file."""
MAX_FROZEN = 256 << 20
"""Maximum number of bytes of all changed files."""
MAX_LEFT_OUT = 500
"""Maximum number of paths that are listed as left out; further ones are counted."""
_EXECUTE_BITS = 0o111
_MAX_SHOWN = 300
"""Maximum number of characters of a path that are shown."""


@frozen_dataclass
class Entry:
    """One change: `path` relative to the workspace, its state before the turn (`base`) and after it (`new`)."""

    path: str
    base: State
    new: State
    runs_later: tuple[str, ...] = ()
    """Programs that run or obey the path without being asked again, such as "make"."""
    marks: tuple[str, ...] = ()
    """Remarks beyond the change itself, such as "made executable"."""

    @property
    def verb(self) -> str:
        """The change in one word."""
        if self.base.kind is Kind.ABSENT:
            return "add"
        if self.new.kind is Kind.ABSENT:
            return "remove"
        only_mode = self.base.kind is self.new.kind is not Kind.LINK and self.base.sha == self.new.sha
        return "mode" if only_mode else "change"


@frozen_dataclass
class LeftOut:
    """A path of the copy that is not applied, and why. The path is for display, see `display_path`."""

    path: str
    why: str


@frozen_dataclass
class RanCall:
    """A call that ran in the copy: tool, text for the user, outcome, and how its program ended, if it ran one."""

    tool: str
    text: str
    outcome: Outcome = Outcome.INTERRUPTED
    ending: str = ""


@frozen_dataclass
class ChangeList:
    """The frozen result of a contained turn. Only what it names can be applied."""

    workspace: str
    identity: tuple[int, int]
    """Device and inode of the workspace folder."""
    entries: tuple[Entry, ...]
    left_out: tuple[LeftOut, ...] = ()
    ran: tuple[RanCall, ...] = ()
    hidden: tuple[str, ...] = ()
    """Paths of the workspace that were not in the copy, for display."""
    cannot: tuple[str, ...] = ()
    """In a list for ``/undo``: lines about what it does not take back."""

    @property
    def digest(self) -> str:
        """The SHA-256 of the whole list."""
        return digest("contained", asdict(self))


@frozen_dataclass
class FrozenList:
    """The list as it is stored, with its number, see `freeze`."""

    number: int = 1
    changes: ChangeList


def select_entries(changes: ChangeList, only: Sequence[str] | None, conflicts: Mapping[str, str]) -> tuple[Entry, ...]:
    """Return the entries to apply: those of `only`, or all for None, without those in conflict."""
    return tuple(
        entry for entry in changes.entries if entry.path not in conflicts and (only is None or entry.path in only)
    )


def freeze(folder: TurnFolder, *, ran: Sequence[RanCall] = (), number: int | None = None) -> ChangeList:
    """Return the change list of a contained turn, frozen now or before. The same copy gives the same list.

    `number` counts the lists: a turn that continues after its list was sent back gets another one. None: the last one.

    Raises ToolFailedError if the copy is gone.
    """
    stored = folder.read("frozen", FrozenList)
    if stored is not None and number in (None, stored.number):
        return stored.changes
    changes = _compare(folder, read_manifest(folder), tuple(ran))
    reach("contained")
    folder.write("frozen", FrozenList(number=number or 1, changes=changes))
    reach("contained")
    return changes


def read_calls(folder: TurnFolder) -> dict[str, RanCall]:
    """Return the calls that ran in the copy by their ids, each with its outcome."""
    calls: dict[str, RanCall] = {}
    # A kill may have left half a line at the end.
    with suppress(OSError, ValueError):
        for line in (folder.path / "ran.jsonl").read_text(encoding="ascii").splitlines():
            call_id, ran = decode_value(tuple[str, RanCall], line)
            calls[call_id] = ran
    return calls


def read_frozen(folder: TurnFolder) -> ChangeList:
    """Return the change list that was frozen before. Raises ToolFailedError if there is none that can be read."""
    stored = folder.read("frozen", FrozenList)
    if stored is None:
        raise ToolFailedError("The frozen list of changes is missing or cannot be read.")
    return stored.changes


def display_path(path: str) -> str:
    """Return a path for display: on one line, with control and invisible characters as escapes."""
    return visible(os.fsencode(path).decode("utf-8", "backslashreplace"), limit=_MAX_SHOWN)


def _compare(folder: TurnFolder, manifest: Manifest, ran: tuple[RanCall, ...]) -> ChangeList:
    """Compare the trees, and keep the new and the old content of each change."""
    total = len(manifest.copied)
    with opened(folder.copy) as top, count_work("looking for changes", unit="file", total=total) as counter:
        found = _Comparison(folder=folder, manifest=manifest, rules=GitIgnore(manifest.workspace), counter=counter)
        found.compare_folder(top, (), counted_by="")
        found.note_removed()
        found.leave_out_links(top)
    found.leave_out_clashes()
    entries = sorted(found.entries.values(), key=lambda entry: entry.path.encode())
    for path, count in sorted(found.counted.items()):
        found.leave_out(path, f"git ignores it ({count:,} changes)")
    for path, why in sorted(manifest.left.items()):
        found.leave_out(path, f"not in the copy: {why}")
    left = found.left
    if len(entries) > MAX_ENTRIES:
        why = f"{len(entries):,} changes; at most {MAX_ENTRIES:,} are applied"
        entries, left = [], [LeftOut(path=".", why=why), *left]
    if (more := len(left) - MAX_LEFT_OUT) > 0:
        left = [*left[:MAX_LEFT_OUT], LeftOut(path=".", why=f"{more:,} more paths left out")]
    _keep_bases(entries, manifest, folder)
    return ChangeList(
        workspace=manifest.workspace,
        identity=manifest.identity,
        entries=tuple(entries),
        left_out=tuple(left),
        ran=ran,
        hidden=tuple(display_path(path) for path in sorted(manifest.hidden)),
    )


def _keep_bases(entries: Sequence[Entry], manifest: Manifest, folder: TurnFolder) -> None:
    """Keep the content that the changes replace, for the dialog and to undo them."""
    with OpenWorkspace(Path(manifest.workspace), manifest.identity) as workspace:
        for entry in entries:
            if entry.base.kind is Kind.FILE:
                workspace.keep(entry.path, folder)


@dataclass(slots=True, kw_only=True)
class _Comparison:
    """Differences between a copy and its manifest. Call the methods in their order: each goes on with what was found.

    Changes in a path that git ignores, or in a new folder of packages, are only counted, by the outermost such path:
    `counted_by`, which is empty for all others.
    """

    folder: TurnFolder
    manifest: Manifest
    rules: GitIgnore
    counter: WorkCounter
    entries: dict[str, Entry] = field(default_factory=dict)
    """The changes by their path."""
    left: list[LeftOut] = field(default_factory=list)
    seen: set[str] = field(default_factory=set)
    """Paths that are in the copy still."""
    counted: Counter[str] = field(default_factory=Counter)
    """Number of changes that are only counted."""
    skipped: list[str] = field(default_factory=list)
    """Paths that are not compared: nothing below them is taken for removed."""
    links: dict[str, str] = field(default_factory=dict)
    """New and changed links, with their targets."""
    frozen_bytes: int = 0
    """Bytes of the changed files so far, before and after the change."""

    def leave_out(self, path: str, why: str) -> None:
        """Apply nothing at `path`."""
        self.entries.pop(path, None)
        self.left.append(LeftOut(path=display_path(path), why=why))

    def compare_folder(self, folder: int, parts: tuple[str, ...], *, counted_by: str) -> None:
        """Compare what is in an open folder."""
        for name in sorted(os.listdir(folder)):
            reach("contained")
            entry_parts = (*parts, name)
            path = "/".join(entry_parts)
            mounted = path in MOUNTED and is_mount_point(Path(name), dir_fd=folder)
            if mounted or is_cache(name) or path in self.manifest.shared:
                self._skip(path)
                continue
            if why := _name_fault(entry_parts):
                self._skip(path, "" if path in self.manifest.hidden else why)
                continue
            info = os.stat(name, dir_fd=folder, follow_symlinks=False)
            is_folder = stat.S_ISDIR(info.st_mode)
            is_new = path not in self.manifest.copied
            new_packages = is_folder and is_new and fold(name) in (*PACKAGE_FOLDERS, ".venv")
            is_counted = new_packages or self.rules.ignores(path + ("/" if is_folder else ""))
            by = counted_by or (path if is_counted else "")
            self.seen.add(path)
            self.counter.add(not is_new)  # The total is the number of files that were copied.
            if is_folder:
                self._compare_subfolder(folder, entry_parts, path, counted_by=by)
            elif stat.S_ISREG(info.st_mode):
                self._compare_file(folder, name, path, info, counted_by=by)
            elif stat.S_ISLNK(info.st_mode):
                self._compare_link(os.readlink(name, dir_fd=folder), path, counted_by=by)
            else:
                self.leave_out(path, "a pipe, socket or device")

    def _skip(self, path: str, why: str = "") -> None:
        """Compare nothing of a path and below it, and leave it out if there is a reason to name."""
        self.seen.add(path)
        self.skipped.append(path)
        if why:
            self.leave_out(path, why)

    def _compare_subfolder(self, folder: int, parts: tuple[str, ...], path: str, *, counted_by: str) -> None:
        before = self.manifest.copied.get(path)
        if before is not None and before.state.kind is not Kind.FOLDER:
            self._skip(path, f"a {before.state.kind} was replaced by a folder; nothing in it is applied")
            return
        if len(parts) > MAX_DEPTH:
            self._skip(path, f"nested more than {MAX_DEPTH} folders deep")
            return
        os.chmod(parts[-1], 0o700, dir_fd=folder)
        with opened(parts[-1], at=folder) as below:
            empty = not os.listdir(below)
            self.compare_folder(below, parts, counted_by=counted_by)
        if before is None and empty:
            entry = Entry(path=path, base=ABSENT, new=State(kind=Kind.FOLDER, mode=0o755))
            self._add_change(entry, counted_by=counted_by)

    def _compare_file(self, folder: int, name: str, path: str, info: os.stat_result, *, counted_by: str) -> None:
        before = self.manifest.copied.get(path)
        if before is not None and before.unchanged == (info.st_ino, info.st_ctime_ns):
            return
        if before is not None and before.state.kind is Kind.FOLDER:
            self._skip(path, "a folder was replaced by a file")
            return
        if counted_by:
            # Also if only its times have changed: what is only counted is not read.
            self.counted[counted_by] += 1
            return
        if info.st_size > MAX_FILE or self.frozen_bytes + info.st_size > MAX_FROZEN:
            self.leave_out(path, f"too large to be applied ({info.st_size:,} bytes)")
            return
        if not info.st_mode & stat.S_IRUSR:
            os.chmod(name, 0o600, dir_fd=folder)
        with opened(name, FILE_FLAGS, at=folder) as descriptor:
            sha, size = self.folder.keep_blob(descriptor)
            is_script = os.pread(descriptor, 2, 0) == b"#!"
        base = before.state if before is not None else ABSENT
        new = State(kind=Kind.FILE, mode=_mode_to_apply(base, info), sha=sha, size=size)
        if new == base:
            return
        self.frozen_bytes += size + base.size
        later = runs_later(path)
        marks: tuple[str, ...] = ()
        if new.mode & stat.S_IXUSR and not (base.kind is Kind.FILE and base.mode & stat.S_IXUSR):
            marks = ("made executable",)
        elif is_script and not later:
            marks = ("a script",)
        self.entries[path] = Entry(path=path, base=base, new=new, runs_later=later, marks=marks)

    def _compare_link(self, target: str, path: str, *, counted_by: str) -> None:
        before = self.manifest.copied.get(path)
        base = before.state if before is not None else ABSENT
        new = State(kind=Kind.LINK, target=target)
        if new == base:
            return
        if base.kind is Kind.FOLDER:
            self._skip(path, f"a folder was replaced by a link to {display_path(target)}")
            return
        self.links[path] = target
        marks = (f"link to {display_path(target)}",)
        entry = Entry(path=path, base=base, new=new, runs_later=runs_later(path), marks=marks)
        self._add_change(entry, counted_by=counted_by)

    def _add_change(self, entry: Entry, *, counted_by: str) -> None:
        if counted_by:
            self.counted[counted_by] += 1
        else:
            self.entries[entry.path] = entry

    def note_removed(self) -> None:
        """Add the removal of what was copied and is not in the copy any more."""
        for path, before in self.manifest.copied.items():
            if path in self.seen or any(path.startswith(f"{folder}/") for folder in self.skipped):
                continue
            if self.rules.ignores(path + ("/" if before.state.kind is Kind.FOLDER else "")):
                self.counted[path] += 1
                continue
            self.entries[path] = Entry(path=path, base=before.state, new=ABSENT)

    def leave_out_links(self, top: int) -> None:
        """Leave out every new link that does not lead to something inside the workspace, without another new link."""
        for path, target in self.links.items():
            if why := _link_fault(top, path, target):
                self.leave_out(path, f"link to {display_path(target)}: {why}")

    def leave_out_clashes(self) -> None:
        """Leave out added paths that another file system takes for a path that exists."""
        folded: dict[str, set[str]] = {}
        added = {path for path, entry in self.entries.items() if entry.base.kind is Kind.ABSENT}
        removed = {path for path, entry in self.entries.items() if entry.new.kind is Kind.ABSENT}
        for path in {*self.manifest.copied, *added} - removed:
            for ancestor in _with_ancestors(path):
                folded.setdefault(_fold_path(ancestor), set()).add(ancestor)
        clashing = {path for paths in folded.values() if len(paths) > 1 for path in paths}
        for path in sorted(added):
            if clash := next((ancestor for ancestor in _with_ancestors(path) if ancestor in clashing), None):
                others = folded[_fold_path(clash)] - {clash}
                self.leave_out(path, f"some file systems take it for {display_path(sorted(others)[0])}")


def _mode_to_apply(base: State, info: os.stat_result) -> int:
    """Return the mode for a file of the copy: that of its base, but for the right to execute it."""
    mode = base.mode if base.kind is Kind.FILE else 0o644
    is_executable = bool(info.st_mode & stat.S_IXUSR)
    if is_executable is bool(mode & stat.S_IXUSR):
        return mode
    # As `chmod +x` does it: each class of users that can read the file can execute it.
    return mode | mode >> 2 & _EXECUTE_BITS if is_executable else mode & ~_EXECUTE_BITS


def _fold_path(path: str) -> str:
    """Return the form that paths share which some file systems take for one."""
    return "/".join(fold(part) for part in path.split("/"))


def _with_ancestors(path: str) -> Iterator[str]:
    parts = path.split("/")
    return ("/".join(parts[:count]) for count in range(1, len(parts) + 1))


def _name_fault(parts: tuple[str, ...]) -> str:
    name = parts[-1]
    try:
        name.encode("utf-8")
    except UnicodeEncodeError:
        return "its name is not valid UTF-8"
    if any(unicodedata.category(char) in ("Cc", "Cf", "Zl", "Zp") for char in name):
        return "its name holds control or invisible characters"
    if is_git_name(name):
        return "files in .git decide which programs git runs"
    if hidden_by_name(parts):
        return "files of this name may hold secrets or settings"
    return ""


def _link_fault(top: int, path: str, target: str) -> str:
    """Return why a link is not applied; empty if it leads, through no link, to something in the copy."""
    try:
        target.encode("utf-8")
    except UnicodeEncodeError:
        return "its target is not valid UTF-8"
    if not target or target.startswith("/"):
        return "only relative links are applied"
    reached = path.split("/")[:-1]
    for part in target.split("/"):
        if part in ("", "."):
            continue
        if part == "..":
            if not reached:
                return "it leads out of the workspace"
            reached.pop()
        else:
            reached.append(part)
            if is_git_name(part) or hidden_by_name(tuple(reached)):
                return "it leads to a protected path"
        if reached and state_below(top, "/".join(reached), content=False).kind not in (Kind.FILE, Kind.FOLDER):
            return "it leads through another link, or to nothing"
    return "" if reached else "it leads to the workspace itself"


def in_review_order(entries: Sequence[Entry]) -> tuple[Entry, ...]:
    """Return entries in the order to review them: links and files that may run later come first."""

    def rank(entry: Entry) -> int:
        if entry.runs_later:
            return 0
        return 1 if entry.marks else 2 + ("change", "mode", "add", "remove").index(entry.verb)

    return tuple(sorted(entries, key=lambda entry: (rank(entry), entry.path)))
