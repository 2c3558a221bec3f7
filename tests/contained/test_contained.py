"""The copy of a workspace, its change list and the application of it, on a real file system."""

import ctypes
import errno
import os
import socket
import stat
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from chatops.contained import applying, copying
from chatops.contained.applying import Applied, NotAppliedError, apply, conflicts, resume, undoable
from chatops.contained.copying import make_copy, read_manifest
from chatops.contained.folder import TurnFolder, remove_tree, turn_folder, workspace_lock
from chatops.contained.freezing import RanCall, freeze, read_calls, read_frozen
from chatops.contained.text import describe, head, review
from chatops.contained.turns import ContainedTurns, in_direction
from chatops.domain.canonical import canonical
from chatops.domain.errors import ToolFailedError
from chatops.domain.ids import CallId
from chatops.domain.tools import CONTAINED_APPLY, CallFacts, Outcome, ToolCall
from chatops.sandbox.mount_points import mount_point
from chatops.toolkit.base import Tool, ToolContext
from chatops.tools.shell import shell_tools
from tests.tools.toolkit import context_for

TREE = {
    "README.md": "read me\n",
    "src/a.py": "a = 1\n",
    "src/b.py": "b = 1\n",
    "src/deep/c.py": "c = 1\n",
    "run.sh": "#!/bin/sh\necho hi\n",
    ".env": "KEY=secret\n",
    ".git/HEAD": "ref: refs/heads/main\n",
    ".gitignore": "dist/\n",
    "dist/out.js": "old\n",
}


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    place = tmp_path / "ws"
    for name, text in TREE.items():
        file = place / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    (place / "run.sh").chmod(0o755)
    return place


@pytest.fixture
def turn(tmp_path: Path, workspace: Path) -> TurnFolder:
    folder = turn_folder(tmp_path / "data", "turn1")
    folder.path.parent.mkdir(parents=True)
    make_copy(folder, workspace)
    return folder


def content(place: Path) -> dict[str, tuple[int, str]]:
    """Return mode and content of everything below `place`."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted(place.rglob("*")):
        mode = stat.S_IMODE(path.lstat().st_mode)
        name = str(path.relative_to(place))
        if path.is_symlink():
            found[name] = (0, f"-> {path.readlink()}")
        else:
            found[name] = (mode, "/" if path.is_dir() else path.read_text())
    return found


def edit(copy: Path) -> None:
    """Change, add, remove, make executable and link."""
    (copy / "src/a.py").write_text("a = 2\n")
    (copy / "new/deep").mkdir(parents=True)
    (copy / "new/deep/d.py").write_text("d = 1\n")
    (copy / "src/b.py").unlink()
    (copy / "README.md").chmod(0o755)
    (copy / "link.py").symlink_to("src/a.py")
    (copy / "src/deep/c.py").unlink()
    (copy / "src/deep").rmdir()


def test_changes_are_listed_and_applied_and_undone(workspace: Path, turn: TurnFolder) -> None:
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)
    assert [(one.verb, one.path) for one in changes.entries] == [
        ("mode", "README.md"),
        ("add", "link.py"),
        ("add", "new/deep/d.py"),
        ("change", "src/a.py"),
        ("remove", "src/b.py"),
        ("remove", "src/deep"),
        ("remove", "src/deep/c.py"),
    ]
    assert content(workspace) == before
    done = apply(turn, changes, None)
    assert not done.left
    after = content(workspace)
    assert after["src/a.py"] == (before["src/a.py"][0], "a = 2\n")
    assert after["new/deep/d.py"][1] == "d = 1\n" and after["link.py"][1] == "-> src/a.py"
    assert stat.S_IMODE((workspace / "README.md").stat().st_mode) & 0o111
    assert "src/b.py" not in after and "src/deep" not in after
    assert apply(turn, changes, None) == done
    apply(turn, changes, None, undo=True)
    assert content(workspace) == before


def test_a_moved_file_is_shown_as_one_and_what_is_new_in_it_as_its_diff(workspace: Path, turn: TurnFolder) -> None:
    (turn.copy / "src/b.py").rename(turn.copy / "src/deep/renamed.py")
    (turn.copy / "README.md").unlink()
    (turn.copy / "run.sh").unlink()
    (turn.copy / "tools.sh").write_text("#!/bin/sh\necho hi\necho there\n")
    for name in ("one.bin", "src/two.bin"):
        (turn.copy / name).write_bytes(b"\x00\xff")
    text = describe(review(freeze(turn), {}, turn.blob))
    assert "move src/b.py to src/deep/renamed.py\n  content unchanged: 6 bytes, sha256 " in text
    assert "remove src/b.py  [moved to src/deep/renamed.py]" in text
    moved = text.partition("move run.sh to tools.sh")[2].partition("\n\n")[0]
    assert "mode 755 becomes 644" in moved and "+echo there" in moved and "+echo hi" not in moved
    assert "remove README.md\n" in text and "add one.bin" in text, "other files are not taken for moved ones"


def test_secrets_repository_and_caches_are_not_copied(workspace: Path, turn: TurnFolder) -> None:
    assert not (turn.copy / ".env").exists() and not (turn.copy / ".git/HEAD").exists()
    (turn.copy / ".env").write_text("KEY=mine\n")
    (turn.copy / "__pycache__").mkdir()
    (turn.copy / "__pycache__/a.cpython-311.pyc").write_bytes(b"evil")
    changes = freeze(turn)
    assert changes.entries == () and changes.hidden == (".env",)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("n\nl", "control"),
        ("\x1b[2J", "control"),
        ("a\u202eb", "control"),
        (os.fsdecode(b"\xff"), "UTF-8"),
        (".GIT", ".git"),
        ("git~1", ".git"),
        ("id_rsa", "secrets"),
        ("readme.md", "README.md"),
    ],
)
def test_hostile_names_are_left_out(turn: TurnFolder, name: str, why: str) -> None:
    (turn.copy / name).write_text("evil\n")
    changes = freeze(turn)
    assert changes.entries == ()
    (left,) = changes.left_out
    assert why in left.why and left.path.isprintable()


@pytest.mark.parametrize("target", ["/etc/passwd", "../../.ssh", "src/hop/x", ".git/hooks", "gone", "src/../.."])
def test_links_that_lead_elsewhere_are_left_out(turn: TurnFolder, target: str) -> None:
    (turn.copy / "src/hop").symlink_to("..")
    (turn.copy / "evil").symlink_to(target)
    changes = freeze(turn)
    assert "evil" not in {one.path for one in changes.entries}
    assert "evil" in {one.path for one in changes.left_out}


def test_pipes_sockets_and_setuid_are_not_applied(workspace: Path, turn: TurnFolder) -> None:
    os.mkfifo(turn.copy / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(turn.copy / "sock"))
    (turn.copy / "tool").write_text("x")
    (turn.copy / "tool").chmod(0o6755)
    changes = freeze(turn)
    assert {one.path for one in changes.left_out} == {"pipe", "sock"}
    apply(turn, changes, None)
    assert stat.S_IMODE((workspace / "tool").stat().st_mode) == 0o755


def test_a_change_with_the_old_time_and_size_is_found(turn: TurnFolder) -> None:
    file = turn.copy / "src/a.py"
    info = file.stat()
    file.write_text("a = 9\n")
    os.utime(file, ns=(info.st_atime_ns, info.st_mtime_ns))
    assert [one.path for one in freeze(turn).entries] == ["src/a.py"]


def test_ignore_rules_of_the_copy_hide_nothing(turn: TurnFolder) -> None:
    (turn.copy / ".gitignore").write_text("*\n")
    (turn.copy / "evil.py").write_text("x\n")
    (turn.copy / "dist/out.js").write_text("new\n")
    changes = freeze(turn)
    assert {one.path for one in changes.entries} == {".gitignore", "evil.py"}
    assert [one.path for one in changes.left_out] == ["dist"]


def test_what_happens_after_freezing_has_no_effect(workspace: Path, turn: TurnFolder) -> None:
    (turn.copy / "src/a.py").write_text("a = 2\n")
    changes = freeze(turn)
    (turn.copy / "src/a.py").write_text("evil\n")
    (turn.copy / "late.py").write_text("evil\n")
    assert freeze(turn).digest == changes.digest
    apply(turn, changes, None)
    assert (workspace / "src/a.py").read_text() == "a = 2\n" and not (workspace / "late.py").exists()


def test_a_file_changed_meanwhile_is_a_conflict_and_left(workspace: Path, turn: TurnFolder) -> None:
    edit(turn.copy)
    (workspace / "src/a.py").write_text("mine\n")
    changes = freeze(turn)
    assert set(conflicts(changes)) == {"src/a.py"}
    apply(turn, changes, None)
    assert (workspace / "src/a.py").read_text() == "mine\n"
    assert (workspace / "new/deep/d.py").exists()


def test_a_link_put_in_the_way_is_not_followed(workspace: Path, turn: TurnFolder, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "a.py").write_text("a = 1\n")
    (turn.copy / "src/a.py").write_text("evil\n")
    changes = freeze(turn)
    (workspace / "src").rename(tmp_path / "moved")
    (workspace / "src").symlink_to(victim)
    assert set(conflicts(changes)) >= {"src/a.py"}
    apply(turn, changes, None)
    assert (victim / "a.py").read_text() == "a = 1\n"


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_folder_that_something_replaced_keeps_nothing_else_from_being_undone(
    workspace: Path, turn: TurnFolder, tmp_path: Path, kind: str
) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    apply(turn, changes, None)
    (workspace / "src").rename(tmp_path / "moved")
    if kind == "link":
        (workspace / "src").symlink_to(tmp_path / "moved")
    else:
        (workspace / "src").write_text("mine\n")
    moved = content(tmp_path / "moved")
    undone = apply(turn, changes, None, undo=1)
    assert undone.left["src/b.py"] == f"its folder was replaced by a {kind} since"
    assert not (workspace / "new").exists() and not (workspace / "README.md").stat().st_mode & 0o111
    assert content(tmp_path / "moved") == moved


def test_only_the_ticked_files_are_applied_and_undone(workspace: Path, turn: TurnFolder) -> None:
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)
    done = apply(turn, changes, ["src/a.py", "new/deep/d.py"])
    assert set(done.done) == {"src/a.py", "new/deep/d.py"}
    after = content(workspace)
    assert {name for name in after if after[name] != before.get(name)} == {
        "new",
        "new/deep",
        "new/deep/d.py",
        "src/a.py",
    }
    apply(turn, changes, None, undo=True)
    assert content(workspace) == before


def test_what_an_undo_left_is_taken_back_by_the_next_one(workspace: Path, turn: TurnFolder) -> None:
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)
    apply(turn, changes, None)
    turns = ContainedTurns(turn.path.parent.parent)
    first = apply(turn, changes, ["src/a.py"], undo=1)
    assert first.done == ("src/a.py",) and not undoable(turn, changes, 1)
    turns.discard(turn.path.name)
    turns.sweep(frozenset)
    assert turns.last_applied(workspace) == (turn.path.name, 2)
    # Taken back once, it is the user's again, whatever it holds: also what the turn had written.
    (workspace / "src/a.py").write_text("a = 2\n")
    assert apply(turn, changes, None, undo=1) == first
    rest = in_direction(turn, changes, undo=2)
    assert "src/a.py" not in {one.path for one in rest.entries} and not conflicts(rest)
    apply(turn, changes, None, undo=2)
    assert (workspace / "src/a.py").read_text() == "a = 2\n"
    (workspace / "src/a.py").write_text("a = 1\n")
    assert content(workspace) == before and turns.last_applied(workspace)[0] == ""
    turns.discard(turn.path.name)
    assert not turn.path.exists()


def test_a_turn_of_which_an_undo_left_only_conflicts_does_not_hide_an_older_one(
    workspace: Path, turn: TurnFolder
) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    apply(turn, changes, ["src/a.py", "README.md"])
    (workspace / "src/a.py").write_text("mine\n")
    turns = ContainedTurns(turn.path.parent.parent)
    assert turns.last_applied(workspace) == (turn.path.name, 1)
    assert list(apply(turn, changes, None, undo=1).left) == ["src/a.py"]
    assert turns.last_applied(workspace)[0] == "" and (workspace / "src/a.py").read_text() == "mine\n"
    (workspace / "src/a.py").write_text("a = 2\n")
    assert turns.last_applied(workspace) == (turn.path.name, 2)


def test_another_workspace_folder_is_refused(workspace: Path, turn: TurnFolder, tmp_path: Path) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    workspace.rename(tmp_path / "old")
    workspace.mkdir()
    with pytest.raises(ToolFailedError):
        apply(turn, changes, None)
    assert list(workspace.iterdir()) == []


def test_a_failing_disk_applies_nothing(workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)

    written = 0
    write = applying._keep_attributes

    def full(*given: int) -> None:
        nonlocal written
        written += 1
        if written == 2:
            raise OSError(28, "No space left on device")
        write(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(applying, "_keep_attributes", full)
    with pytest.raises(NotAppliedError, match="No space left"):
        apply(turn, changes, None)
    assert content(workspace) == before


def killed_at(number: int, work: Callable[[], object], monkeypatch: pytest.MonkeyPatch, *modules: str) -> bool:
    """Run `work` in a child that is killed at its `number`-th step. Returns False if it had fewer steps."""
    child = os.fork()
    if not child:
        count = 0

        def reach(name: str) -> None:
            nonlocal count
            count += 1
            if count == number:
                os.kill(os.getpid(), 9)

        try:
            for module in ("applying", "freezing", "copying"):
                __import__(f"chatops.contained.{module}")
                monkeypatch.setattr(f"chatops.contained.{module}.reach", reach)
            work()
        finally:
            os._exit(0)
    _, status = os.waitpid(child, 0)
    return os.WIFSIGNALED(status)


def points(step: int = 1) -> Iterator[int]:
    yield from range(1, 200, step)


@pytest.mark.some(1)
@pytest.mark.parametrize("step", [5, 1])
def test_a_kill_at_each_point_applies_all_or_nothing(
    workspace: Path, turn: TurnFolder, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    before = content(workspace)
    apply(turn, changes, None)
    after = content(workspace)
    undone = 0
    for number in points(step):
        reset(workspace, turn)
        assert content(workspace) == before
        if not killed_at(number, lambda: apply(turn, changes, None), monkeypatch):
            break
        # A second kill during the recovery.
        killed_at(1 + number % 3, lambda: resume(turn, changes), monkeypatch)
        found = resume(turn, changes)
        assert content(workspace) == (before if found is None else after), number
        undone += found is None
        assert found is None or not found.left
    else:
        pytest.fail("never ended")
    assert 5 < undone * step < number - 5


def reset(workspace: Path, turn: TurnFolder) -> None:
    changes = freeze(turn)
    if turn.read("apply", dict) is not None:
        resume(turn, changes)
        apply(turn, changes, None, undo=True)
    for name in ("apply", "undo"):
        (turn.path / f"{name}.json").unlink(missing_ok=True)


@pytest.mark.more
def test_a_kill_at_each_point_of_undoing(workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    before = content(workspace)
    for number in points():
        (turn.path / "apply.json").unlink(missing_ok=True)
        (turn.path / "undo.json").unlink(missing_ok=True)
        apply(turn, changes, None)
        killed = killed_at(number, lambda: apply(turn, changes, None, undo=True), monkeypatch)
        if resume(turn, changes, undo=True) is None:
            apply(turn, changes, None, undo=True)
        assert content(workspace) == before, number
        if not killed:
            return
    pytest.fail("never ended")


@pytest.mark.more
def test_a_kill_at_each_point_of_two_undos(workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first undo is of one file, and the second one, which is killed too, of the rest."""
    edit(turn.copy)
    changes = freeze(turn)
    before = content(workspace)
    turns = ContainedTurns(turn.path.parent.parent)
    for number in points():
        for name in ("apply", "undo", "undo2"):
            (turn.path / f"{name}.json").unlink(missing_ok=True)
        apply(turn, changes, None)
        killed = False
        for undo, only in ((1, ["src/a.py"]), (2, None)):
            killed |= killed_at(number, partial(apply, turn, changes, only, undo=undo), monkeypatch)
            turns.finish_interrupted(workspace)
            done = resume(turn, changes, undo=undo) or apply(turn, changes, only, undo=undo)
            assert not done.left and ("src/a.py" in done.done) == (undo == 1), number
        assert content(workspace) == before and not undoable(turn, changes), number
        if not killed:
            return
    pytest.fail("never ended")


def test_a_kill_while_copying_or_freezing_leaves_nothing_half_done(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = turn_folder(tmp_path / "data", "turn2")
    folder.path.parent.mkdir(parents=True, exist_ok=True)
    for number in (1, 2):
        killed_at(number, lambda: make_copy(folder, workspace), monkeypatch)
        assert folder.exists == (number == 2)
    edit(folder.copy)
    for number in (1, 5, 10):
        assert killed_at(number, lambda: freeze(folder), monkeypatch)
    assert len(freeze(folder).entries) == 7


def test_the_edit_that_lands_between_check_and_swap_is_kept(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (turn.copy / "src/a.py").write_text("a = 2\n")
    (turn.copy / "src/b.py").unlink()
    changes = freeze(turn)
    swap = applying._swap

    def late(parent: int, name: str, *args: object, **values: object) -> None:
        if values["base"] != values["new"] and name in ("a.py", "b.py") and not (workspace / f"seen-{name}").exists():
            (workspace / "src" / name).write_text("mine\n")
            (workspace / f"seen-{name}").touch()
        swap(parent, name, *args, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(applying, "_swap", late)
    done: Applied = apply(turn, changes, None)
    assert set(done.left) == {"src/a.py", "src/b.py"}
    assert (workspace / "src/a.py").read_text() == "mine\n" and (workspace / "src/b.py").read_text() == "mine\n"
    assert not list(workspace.rglob(".chatops-*"))


@pytest.mark.parametrize("opened", ["before", "between", "after the swap"])
def test_nothing_that_a_program_writes_into_an_open_file_is_lost(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch, opened: str
) -> None:
    (turn.copy / "src/a.py").write_text("a = 2\n")
    (turn.copy / "src/b.py").unlink()
    changes = freeze(turn)
    swap, files = applying._swap, [workspace / "src/a.py", workspace / "src/b.py"]
    writers = [file.open("a") for file in files] if opened == "before" else []

    def late(parent: int, name: str, *args: object, **values: object) -> None:
        if opened == "between" and all(Path(writer.name).name != name for writer in writers):
            writers.append((workspace / "src" / name).open("a"))
        swap(parent, name, *args, **values)  # type: ignore[arg-type]
        if opened == "after the swap" and name == "a.py":
            writers.append((workspace / "src" / name).open("a"))

    monkeypatch.setattr(applying, "_swap", late)
    done = apply(turn, changes, None)
    for writer in writers:
        with writer:
            writer.write("mine\n")
    texts = {file.name: file.read_text() for file in files if file.exists()}
    if opened == "after the swap":
        assert not done.left and texts == {"a.py": "a = 2\nmine\n"}
    else:
        assert set(done.left.values()) == {applying.IN_USE} and set(done.left) == {"src/a.py", "src/b.py"}
        assert texts == {"a.py": "a = 1\nmine\n", "b.py": "b = 1\nmine\n"}
    assert not list(workspace.rglob(".chatops-*"))


@pytest.mark.more
def test_what_is_written_into_a_file_that_is_swapped_back_is_named(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    (turn.copy / "src/a.py").write_text("a = 2\n")
    changes, swap, file, back = freeze(turn), applying._swap, workspace / "src/a.py", False

    def late(parent: int, name: str, *args: object, **values: object) -> None:
        nonlocal back
        file.write_text("second\n" if back else "first\n")
        back = True
        swap(parent, name, *args, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(applying, "_swap", late)
    why = apply(turn, changes, None).left["src/a.py"]
    assert file.read_text() == "first\n"
    (beside,) = workspace.rglob(".chatops-*")
    assert beside.read_text() == "second\n" and why.endswith(f"what was written there in between is in {beside.name}")


@pytest.mark.more
def test_deep_and_closed_folders_are_removed(turn: TurnFolder) -> None:
    descriptor = os.open(turn.copy, os.O_RDONLY)
    for _ in range(3_000):
        os.mkdir("d", dir_fd=descriptor)
        below = os.open("d", os.O_RDONLY, dir_fd=descriptor)
        os.close(descriptor)
        descriptor = below
    os.close(descriptor)
    (turn.copy / "d").chmod(0)
    assert any("nested" in one.why for one in freeze(turn).left_out)
    remove_tree(turn.path)
    assert not turn.path.exists()


def test_large_ignored_folders_are_not_copied(workspace: Path, tmp_path: Path) -> None:
    modules = workspace / "node_modules"
    modules.mkdir()
    for number in range(2_100):
        (modules / f"{number}.js").touch()
    folder = turn_folder(tmp_path / "data", "turn3")
    folder.path.parent.mkdir(parents=True)
    make_copy(folder, workspace)
    assert read_manifest(folder).shared == [".git", "node_modules"]
    assert list((folder.copy / "node_modules").iterdir()) == []
    assert freeze(folder).entries == ()


def test_the_home_folder_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ToolFailedError, match="project folder"):
        make_copy(turn_folder(tmp_path, "x"), tmp_path)


def test_the_lock_can_be_taken_again(tmp_path: Path, workspace: Path) -> None:
    for _ in range(2):
        with workspace_lock(tmp_path, workspace):
            pass


def test_what_is_not_needed_any_more_is_swept(workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    turns = ContainedTurns(tmp_path / "data")
    context = context_for(workspace)
    for name in ("used", "over", "applied", "halfway"):
        folder = turns.copied(name, context)
        (folder.copy / f"{name}.txt").write_text("x")
    apply(turns.folder("applied"), freeze(turns.folder("applied")), None)
    half = turns.folder("halfway")
    changes = freeze(half)
    killed_at(4, lambda: apply(half, changes, None), monkeypatch)
    assert (half.read("apply", dict) or {}).get("state") == "applying"
    turns.sweep(lambda: frozenset({"used"}))
    assert turns.folder("used").exists and not turns.folder("over").path.exists()
    assert not turns.folder("applied").copy.exists() and turns.last_applied(workspace) == ("applied", 1)
    turns.finish_interrupted(workspace)
    assert (workspace / "halfway.txt").exists() and (half.read("apply", dict) or {}).get("state") == "done"
    monkeypatch.setattr("chatops.contained.kept.KEPT_BYTES", 0)
    turns.sweep(lambda: frozenset({"used"}))
    assert turns.last_applied(workspace)[0] == ""


def test_without_an_atomic_swap_nothing_is_applied_and_no_file_is_touched(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on NFS: rename takes no flags."""
    (workspace / "src/a.py.x").write_text("mine\n")
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)

    class NoFlags:
        @staticmethod
        def renameat2(*_: object) -> int:
            ctypes.set_errno(errno.EINVAL)
            return -1

    monkeypatch.setattr("chatops.contained.folder._LIBC", NoFlags)
    with pytest.raises(NotAppliedError, match="cannot swap two files atomically"):
        apply(turn, changes, None)
    assert content(workspace) == before and turn.read("apply", dict) is None


def test_a_swap_that_fails_later_is_named_and_leaves_no_file_of_ours(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(turn.copy)
    changes = freeze(turn)

    def fails(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr("chatops.contained.applying._swap", fails)
    result = apply(turn, changes, None)
    assert "Input/output error" in result.left.values()
    assert not [name for name in content(workspace) if ".chatops-" in name]


def test_a_folder_replaced_at_the_last_moment_is_left_with_the_reason(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = workspace / "src/deep"
    remove_tree(turn.copy / "src/deep")

    def replace_folder(_: str) -> None:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
            folder.write_text("mine\n")

    monkeypatch.setattr(applying, "reach", replace_folder)
    assert apply(turn, freeze(turn), None).left == {"src/deep": applying.CHANGED}
    assert folder.read_text() == "mine\n"


async def approved(turn: TurnFolder, workspace: Path) -> tuple[Tool, CallFacts, ToolContext]:
    """Return the tool that applies the changes of `turn`, with the facts that were approved."""
    tool = ContainedTurns(turn.path.parent.parent).tool(CONTAINED_APPLY, None)
    assert tool is not None
    context = context_for(workspace)
    call = ToolCall(id=CallId("c"), name=CONTAINED_APPLY, arguments=canonical({"turn": turn.path.name, "list": 1}))
    return tool, await tool.inspect(call, context), context


@pytest.mark.parametrize("stored", ["gone", "damaged", "another"])
async def test_only_the_list_that_was_approved_is_applied(workspace: Path, turn: TurnFolder, stored: str) -> None:
    before = content(workspace)
    edit(turn.copy)
    tool, facts, context = await approved(turn, workspace)
    (turn.copy / "late.py").write_text("evil\n")
    (turn.path / "frozen.json").unlink()
    if stored == "another":
        freeze(turn)
    elif stored == "damaged":
        turn.write("frozen", {"number": 1, "entries": [None]})
    ran = await tool.run(facts, context)
    assert ran.outcome is Outcome.INVALID and "Nothing was applied" in ran.content
    assert content(workspace) == before


async def test_a_command_that_cannot_be_given_its_view_of_the_original_is_listed_as_failed(
    workspace: Path, turn: TurnFolder
) -> None:
    (shell,) = shell_tools()
    tool = ContainedTurns(turn.path.parent.parent).tool(turn.path.name, shell)
    assert tool is not None
    (turn.path / "manifest.json").write_text("{}")
    context = context_for(workspace, contained=turn.path.name)
    with pytest.raises(ToolFailedError, match="copy"):
        await tool.run(CallFacts(arguments="{}", command="true", cwd=str(workspace)), context)
    assert [ran.outcome for ran in read_calls(turn).values()] == [Outcome.FAILED]


async def test_an_interrupted_application_without_its_list_is_left(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(turn.copy)
    tool, facts, context = await approved(turn, workspace)
    killed_at(14, lambda: apply(turn, freeze(turn), None), monkeypatch)
    assert (turn.read("apply", dict) or {}).get("state") == "applying"
    seen = content(workspace)
    (turn.copy / "late.py").write_text("evil\n")
    (turn.path / "frozen.json").unlink()
    ContainedTurns(turn.path.parent.parent).finish_interrupted(workspace)
    found = await tool.reconcile(facts, context)
    assert found.result is None and not found.repeat and "frozen list" in found.found
    assert content(workspace) == seen and turn.read("frozen", dict) is None


def test_an_application_that_another_process_works_on_is_left_to_it(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(turn.copy)
    changes = freeze(turn)
    killed_at(14, lambda: apply(turn, changes, None), monkeypatch)
    turns = ContainedTurns(turn.path.parent.parent)
    with workspace_lock(turn.path.parent.parent, workspace):
        turns.finish_interrupted(workspace)
        assert (turn.read("apply", dict) or {}).get("state") == "applying"
    turns.finish_interrupted(workspace)
    assert (turn.read("apply", dict) or {}).get("state") == "done"


def test_an_undo_that_is_not_finished_keeps_what_it_needs(
    workspace: Path, turn: TurnFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = content(workspace)
    edit(turn.copy)
    changes = freeze(turn)
    apply(turn, changes, None)
    killed_at(14, lambda: apply(turn, changes, None, undo=True), monkeypatch)
    assert (turn.read("undo", dict) or {}).get("state") == "applying"
    turns = ContainedTurns(turn.path.parent.parent)
    monkeypatch.setattr("chatops.contained.kept.KEPT_BYTES", 0)
    turns.sweep(frozenset)
    turns.finish_interrupted(workspace)
    assert content(workspace) == before
    turns.sweep(frozenset)
    assert not turn.path.exists()


def test_only_attributes_without_rights_are_kept(workspace: Path, turn: TurnFolder) -> None:
    file = workspace / "src/a.py"
    try:
        os.setxattr(file, "trusted.right", b"1")
    except OSError:
        pytest.skip("needs root and a file system with attributes")
    os.setxattr(file, "user.note", b"mine")
    (turn.copy / "src/a.py").write_text("a = 2\n")
    apply(turn, freeze(turn), None)
    assert file.read_text() == "a = 2\n" and os.listxattr(file) == ["user.note"]


def test_what_runs_later_is_a_fact_also_of_a_link(turn: TurnFolder) -> None:
    (turn.copy / "Makefile").symlink_to("src/a.py")
    (turn.copy / "conftest.py").write_text("x = 1\n")
    (turn.copy / "runs later").write_text("x\n")
    ran = RanCall(tool="shell_exec", text="make", outcome=Outcome.SUCCESS, ending="stopped")
    changes = freeze(turn, ran=(ran, RanCall(tool="file_write", text="a", outcome=Outcome.FAILED)))
    assert {one.path: one.runs_later for one in changes.entries} == {
        "Makefile": ("make",),
        "conftest.py": ("pytest",),
        "runs later": (),
    }
    assert read_frozen(turn) == changes
    assert head(changes, {}) == "3 new · 2 run later · 2 calls · 1 of them failed"


def test_places_to_mount_on_are_neither_copied_nor_listed(tmp_path: Path) -> None:
    place = tmp_path / "plain"
    place.mkdir()
    (place / "a.txt").write_text("a")
    folder = turn_folder(tmp_path / "data", "turn2")
    with mount_point(place / ".chatops"), mount_point(place / "HEAD"), mount_point(place / ".git"):
        found = make_copy(folder, place)
        assert (list(found.copied), found.hidden, found.shared) == (["a.txt"], [], [])
    with mount_point(folder.copy / ".chatops"), mount_point(folder.copy / "HEAD"):
        (folder.copy / "a.txt").write_text("b")
        changes = freeze(folder)
    assert [one.path for one in changes.entries] == ["a.txt"] and not changes.left_out and not changes.hidden


def test_a_workspace_that_is_too_large_is_refused_at_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(100):
        (tmp_path / "ws" / f"{number:03}").mkdir(parents=True)
        for name in "abc":
            (tmp_path / "ws" / f"{number:03}" / name).touch()
    monkeypatch.setattr(copying, "MAX_FILES", 10)
    listed, list_folder = list[int](), os.listdir

    def counted(folder: int) -> list[str]:
        listed.append(folder)
        return list_folder(folder)

    monkeypatch.setattr(os, "listdir", counted)
    with pytest.raises(ToolFailedError, match="too large for a contained turn: at most 10 files"):
        make_copy(turn_folder(tmp_path / "data", "turn3"), tmp_path / "ws")
    assert len(listed) < 10


def test_a_large_folder_in_one_that_is_not_copied_is_no_obstacle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages = tmp_path / "ws" / ".venv" / "lib"
    packages.mkdir(parents=True)
    for number in range(20):
        (packages / f"{number}.py").touch()
    monkeypatch.setattr(copying, "MAX_FILES", 10)
    monkeypatch.setattr(copying, "_HEAVY_FILES", 10)
    folder = turn_folder(tmp_path / "data", "turn3")
    folder.path.parent.mkdir(parents=True)
    make_copy(folder, tmp_path / "ws")
    assert read_manifest(folder).shared == [".venv"]
