"""File tools keep the content that they replace. An undo overwrites only content that is known."""

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from chatops.contained import applying
from chatops.contained.folder import TurnFolder
from chatops.contained.freezing import ChangeList, read_frozen
from chatops.contained.text import Change
from chatops.contained.turns import ApplyTool, ContainedTurns, in_direction
from chatops.domain.errors import ToolFailedError
from chatops.domain.ids import CallId
from chatops.domain.tools import Outcome
from chatops.tools.files import file_edit, file_write
from tests.tools.toolkit import context_for, inspected


class Scene:
    """A workspace whose file tools keep what they replace, call by call of turn ``s.1``."""

    def __init__(self, base: Path) -> None:
        self.data, self.place = base / "data", base / "ws"
        self.place.mkdir()
        self.turns = ContainedTurns(self.data)
        self._calls = 0

    async def write(self, path: str, text: str) -> None:
        await self._run(file_write, {"path": path, "content": text})

    async def edit(self, path: str, old: str, new: str) -> None:
        await self._run(file_edit, {"path": path, "old": old, "new": new})

    async def _run(self, tool: object, arguments: dict[str, str]) -> None:
        self._calls += 1
        context = context_for(self.place, kept=self.data / "kept")
        object.__setattr__(context, "call_id", CallId(f"s.1.{self._calls}.1"))
        await tool.run(await inspected(tool, context, arguments), context)  # type: ignore[attr-defined,arg-type]

    def listed(self) -> tuple[TurnFolder, ChangeList, tuple[str, ...]]:
        """The list of what undoing turn ``s.1`` puts back, and what it does not."""
        found = self.turns.undo_list(self.place, session_id="s", turns=["s.1"], calls={})
        if not found.name:
            return TurnFolder(Path("none")), ChangeList(workspace="", identity=(0, 0), entries=()), found.cannot
        folder = self.turns.folder(found.name)
        return folder, in_direction(folder, read_frozen(folder), undo=True), found.cannot

    def undo(self) -> applying.Applied:
        folder, _, _ = self.listed()
        return applying.apply(folder, read_frozen(folder), None, undo=True)

    def changed(self, wrote: Mapping[CallId, str] = MappingProxyType({})) -> tuple[Change, ...]:
        return self.turns.changed_files(self.place, turns=["s.1"], wrote=wrote)

    def text(self, path: str) -> str:
        return (self.place / path).read_text()


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


async def test_a_call_whose_id_is_a_path_keeps_nothing_elsewhere(scene: Scene) -> None:
    """A stored call may come from a copy of someone else's store."""
    (scene.place / "a.txt").write_text("echo hostile\n")
    context = context_for(scene.place, kept=scene.data / "kept")
    object.__setattr__(context, "call_id", CallId("../../rc.d/x"))
    with pytest.raises(ToolFailedError, match="an id that is a path"):
        await file_write.run(await inspected(file_write, context, {"path": "a.txt", "content": "x"}), context)
    assert not (scene.data.parent / "rc.d").exists()
    assert scene.text("a.txt") == "echo hostile\n"


async def test_several_writes_of_a_turn_are_taken_back_as_one(scene: Scene) -> None:
    (scene.place / "a.txt").write_text("one\n")
    (scene.place / "a.txt").chmod(0o640)
    await scene.write("a.txt", "two\n")
    await scene.edit("a.txt", "two", "three")
    await scene.write("made/deep/b.txt", "new\n")
    _, changes, cannot = scene.listed()
    assert [(one.verb, one.path) for one in changes.entries] == [("change", "a.txt"), ("remove", "made/deep/b.txt")]
    assert not cannot
    done = scene.undo()
    assert (sorted(done.done), done.left) == (["a.txt", "made/deep/b.txt"], {})
    assert scene.text("a.txt") == "one\n"
    assert stat.S_IMODE((scene.place / "a.txt").stat().st_mode) == 0o640
    assert not (scene.place / "made").exists()
    # A second time there is nothing left to take back.
    assert not scene.listed()[1].entries


async def test_it_is_kept_outside_of_the_workspace_for_its_owner_only(scene: Scene) -> None:
    (scene.place / "key.txt").write_text("secret")
    await scene.write("key.txt", "")
    (record,) = (scene.data / "kept").iterdir()
    assert record.read_bytes().endswith(b"\nsecret")
    assert stat.S_IMODE(record.stat().st_mode) == 0o600
    assert stat.S_IMODE(record.parent.stat().st_mode) == 0o700
    assert os.listdir(scene.place) == ["key.txt"]


async def test_nothing_is_written_that_could_not_be_kept(scene: Scene) -> None:
    (scene.place / "a.txt").write_text("one")
    scene.data.mkdir()
    (scene.data / "kept").write_text("a file in its place")
    with pytest.raises(ToolFailedError, match="Nothing was written: what it replaces could not be kept"):
        await scene.write("a.txt", "two")
    assert os.listdir(scene.place) == ["a.txt"]
    assert scene.text("a.txt") == "one"


async def test_a_file_changed_since_is_a_conflict_and_stays(scene: Scene) -> None:
    for name in ("a.txt", "b.txt"):
        (scene.place / name).write_text("one")
        await scene.write(name, "two")
    (scene.place / "a.txt").write_text("mine")
    _, changes, _ = scene.listed()
    assert list(applying.conflicts(changes)) == ["a.txt"]
    done = scene.undo()
    assert (done.done, list(done.left)) == (("b.txt",), ["a.txt"])
    assert (scene.text("a.txt"), scene.text("b.txt")) == ("mine", "one")


@pytest.mark.parametrize(("only", "told"), [(None, "in conflict"), (["b.txt"], "Not chosen: c.txt.")])
async def test_the_result_of_a_partial_undo_is_no_failure_and_names_what_stays(
    scene: Scene, only: list[str] | None, told: str
) -> None:
    for name in ("a.txt", "b.txt", "c.txt"):
        (scene.place / name).write_text("one")
        await scene.write(name, "two")
    (scene.place / "a.txt").write_text("mine")
    folder, _, _ = scene.listed()
    tool, context = ApplyTool(scene.data), context_for(scene.place)
    arguments = {"turn": folder.path.name, "list": 1, "undo": True} | ({"only": only} if only is not None else {})
    result = await tool.run(await inspected(tool, context, arguments), context)
    assert result.outcome is Outcome.SUCCESS
    assert told in result.content and "b.txt" in result.content
    assert result.facts.not_chosen == (() if only is None else ("c.txt",))


async def test_files_that_an_undo_left_are_listed_again(scene: Scene) -> None:
    for name in ("a.txt", "b.txt"):
        (scene.place / name).write_text("one")
        await scene.write(name, "two")
    folder, _, _ = scene.listed()
    assert applying.apply(folder, read_frozen(folder), ["a.txt"], undo=1).done == ("a.txt",)
    scene.turns.discard(folder.path.name)
    assert not folder.path.exists()
    (scene.place / "a.txt").write_text("mine")
    folder, changes, _ = scene.listed()
    assert list(applying.conflicts(changes)) == ["a.txt"]
    assert applying.apply(folder, read_frozen(folder), None, undo=1).done == ("b.txt",)
    assert (scene.text("a.txt"), scene.text("b.txt")) == ("mine", "one")


async def test_what_someone_else_wrote_between_two_calls_is_not_lost(scene: Scene) -> None:
    await scene.write("a.txt", "two")
    (scene.place / "a.txt").write_text("mine")
    await scene.write("a.txt", "three")
    _, changes, cannot = scene.listed()
    assert not changes.entries
    assert cannot == ("a.txt: something else changed it between two calls",)


async def test_a_write_that_did_not_take_place_is_no_conflict(scene: Scene) -> None:
    """The process died between keeping and renaming."""
    (scene.place / "a.txt").write_text("one")
    await scene.write("a.txt", "two")
    await scene.write("a.txt", "three")
    (scene.place / "a.txt").write_text("two")
    assert scene.undo().done == ("a.txt",)
    assert scene.text("a.txt") == "one"


@pytest.mark.parametrize("trick", ["link", "folder link", "folder", "removed"])
async def test_nothing_is_followed_out_of_the_workspace(scene: Scene, tmp_path: Path, trick: str) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "a.txt").write_text("two")
    (scene.place / "sub").mkdir()
    target = scene.place / "sub/a.txt"
    target.write_text("one")
    await scene.write("sub/a.txt", "two")
    folder, changes, _ = scene.listed()
    target.unlink()
    if trick == "link":
        target.symlink_to(outside / "a.txt")
    elif trick == "folder":
        target.mkdir()
    elif trick == "folder link":
        (scene.place / "sub").rmdir()
        (scene.place / "sub").symlink_to(outside)
    assert list(applying.conflicts(changes)) == ["sub/a.txt"]
    done = applying.apply(folder, read_frozen(folder), None, undo=True)
    assert list(done.left) == ["sub/a.txt"]
    assert (outside / "a.txt").read_text() == "two"
    assert os.listdir(outside) == ["a.txt"]


async def test_another_folder_in_its_place_gets_nothing(scene: Scene) -> None:
    (scene.place / "a.txt").write_text("one")
    await scene.write("a.txt", "two")
    scene.place.rename(scene.place.with_name("moved"))
    scene.place.mkdir()
    (scene.place / "a.txt").write_text("two")
    _, changes, cannot = scene.listed()
    assert not changes.entries
    assert cannot == ("a.txt: it was changed in another folder",)


@pytest.mark.parametrize("path", ["../a.txt", "/etc/a.txt", "sub/../../a.txt", ""])
async def test_a_record_that_names_another_place_is_not_used(scene: Scene, path: str) -> None:
    await scene.write("a.txt", "two")
    (record,) = (scene.data / "kept").iterdir()
    record.write_bytes(record.read_bytes().replace(b'"a.txt"', f'"{path}"'.encode()))
    assert not scene.listed()[1].entries


async def test_a_list_that_was_not_decided_on_is_removed_and_old_content_is_forgotten(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scene.write("a.txt", "two")
    folder, _, _ = scene.listed()
    assert scene.turns.last_applied(scene.place)[0] == ""
    scene.turns.sweep(lambda: frozenset({folder.path.name}))
    assert folder.path.exists()
    monkeypatch.setattr("chatops.contained.kept.KEPT_BYTES", 1)
    scene.turns.sweep(frozenset)
    assert not folder.path.exists()
    assert not list((scene.data / "kept").iterdir())


async def test_a_diff_of_the_session_goes_from_before_its_first_change_to_now(scene: Scene) -> None:
    for name in ("a.txt", "back.txt", "mine.txt", ".env"):
        (scene.place / name).write_text("one\n")
    (scene.place / "data.bin").write_bytes(b"\0\1")
    for name in ("a.txt", "back.txt", "mine.txt", ".env", "data.bin", "link.txt"):
        await scene.write(name, "two\n")
    await scene.edit("a.txt", "two", "three")
    await scene.write("new/b.txt", "new\n")
    await scene.write("back.txt", "one\n")
    (scene.place / "mine.txt").write_text("two\nmine\n")
    (scene.place / ".env").write_text("TOKEN=secret\n")
    (scene.place / "link.txt").unlink()
    (scene.place / "link.txt").symlink_to(scene.place / ".env")
    before = {path: path.read_bytes() for path in (*scene.place.iterdir(), *scene.data.rglob("*")) if path.is_file()}
    found = {one.path: one for one in scene.changed({CallId("s.0.1"): "old.txt"})}
    assert sorted(found) == [".env", "a.txt", "data.bin", "link.txt", "mine.txt", "new/b.txt", "old.txt"]
    assert [path for path, one in found.items() if one.elsewhere] == [".env", "link.txt", "mine.txt"]
    assert found["a.txt"].diff.endswith("-one\n+three\n") and not found["a.txt"].lines
    assert found["new/b.txt"].title == "add new/b.txt"
    assert found["mine.txt"].diff.endswith("-one\n+two\n+mine\n")
    # The user may have put a secret into the place of what the session had shown.
    assert "may hold secrets" in str(found[".env"].lines) and "secret" not in str([one.diff for one in found.values()])
    assert "link to" in str(found["link.txt"].lines)
    assert not found["data.bin"].diff and "binary" in found["data.bin"].lines[0]
    assert "not kept any more" in found["old.txt"].lines[0]
    assert before == {path: path.read_bytes() for path in before}


@pytest.mark.more
async def test_a_diff_says_which_earlier_content_is_gone_or_damaged(scene: Scene) -> None:
    for name in ("a.txt", "b.txt"):
        (scene.place / name).write_text("one\n")
        await scene.write(name, "two\n")
    await scene.write("a.txt", "three\n")
    (scene.data / "kept" / "s.1.1.1.1").unlink()
    damaged = scene.data / "kept" / "s.1.2.1.1"
    damaged.write_bytes(damaged.read_bytes() + b"evil")
    first, second = scene.changed({CallId("s.1.1.1"): str(scene.place / "a.txt"), CallId("s.1.3.1"): "a.txt"})
    assert first.diff.endswith("-two\n+three\n") and "earlier changes" in first.lines[-1]
    assert not second.diff and "not kept any more" in second.lines[0]
    # In another folder of the same name, nothing is compared.
    scene.place.rename(scene.place.with_name("old"))
    scene.place.mkdir()
    assert ["another folder" in str(one.lines) for one in scene.changed()] == [True, True]
