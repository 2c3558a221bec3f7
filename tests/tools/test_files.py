"""Reading, listing, writing and editing files of the workspace."""

import os
import stat
import struct
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chatops.domain.diffs import diff_text
from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import Outcome
from chatops.sandbox.mount_points import mount_point
from chatops.tools.files import file_edit, file_list, file_read, file_write
from tests.tools.toolkit import context_for, done, inspected


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    return path


async def test_a_file_is_read_unchanged(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", "one\r\ntwo\n")
    assert (await done(file_read, context_for(tmp_path), {"path": "a.txt"})).content == "one\r\ntwo\n"


async def test_a_long_file_is_read_in_pages_that_name_the_next_offset(tmp_path: Path) -> None:
    put(tmp_path / "long.txt", "".join(f"line {number}\n" for number in range(1, 5_001)))
    context = context_for(tmp_path, max_output_chars=100_000)
    first = (await done(file_read, context, {"path": "long.txt"})).content
    assert first.endswith("line 2000\n[lines 1 to 2,000 of 5,000; continue with offset 2001]")
    last = (await done(file_read, context, {"path": "long.txt", "offset": 4_999, "limit": 10})).content
    assert last == "line 4999\nline 5000\n[lines 4,999 to 5,000 of 5,000]"
    beyond = (await done(file_read, context, {"path": "long.txt", "offset": 9_000})).content
    assert "no line 9,000: the file has 5,000 lines" in beyond


async def test_a_page_fits_the_output_limit_at_whole_lines(tmp_path: Path) -> None:
    put(tmp_path / "long.txt", "".join(f"{number:09}\n" for number in range(1, 1_001)))
    content = (await done(file_read, context_for(tmp_path, max_output_chars=1_000), {"path": "long.txt"})).content
    assert len(content) <= 1_000
    assert content.splitlines()[-1] == "[lines 1 to 80 of 1,000; continue with offset 81]"


async def test_one_endless_line_is_cut(tmp_path: Path) -> None:
    put(tmp_path / "line.txt", "x" * 3_000_000)
    assert len((await done(file_read, context_for(tmp_path), {"path": "line.txt"})).content) <= 16_000


@pytest.mark.parametrize(("data", "says"), [(b"", "empty"), (b"\x7fELF\0\0", "binary file, 6 bytes")])
async def test_binary_and_empty_files_are_described(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "f").write_bytes(data)
    assert says in (await done(file_read, context_for(tmp_path), {"path": "f"})).content


async def test_a_wrong_encoding_is_read_with_replacements(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes("grün".encode("latin-1"))
    assert (await done(file_read, context_for(tmp_path), {"path": "latin.txt"})).content == "gr\ufffdn"


async def test_a_missing_file_is_a_problem_that_an_earlier_call_may_solve(tmp_path: Path) -> None:
    for tool, more in ((file_read, {}), (file_edit, {"old": "a", "new": "b"}), (file_list, {})):
        facts = await inspected(tool, context_for(tmp_path), {"path": "missing", **more})
        assert facts.may_resolve
        assert [problem.path for problem in facts.problems] == ["path"]


async def test_a_file_removed_after_the_check_is_a_failure(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "x")
    facts = await inspected(file_read, context_for(tmp_path), {"path": "a.txt"})
    path.unlink()
    with pytest.raises(ToolFailedError, match="no longer exists"):
        await file_read.run(facts, context_for(tmp_path))


async def test_a_listing_has_folders_first_and_names_made_visible(tmp_path: Path) -> None:
    put(tmp_path / "b.txt", "12345")
    put(tmp_path / "x\x1b[2Jy", "")
    (tmp_path / "z").mkdir()
    (tmp_path / "link").symlink_to("b.txt")
    content = (await done(file_list, context_for(tmp_path), {"path": "."})).content
    assert content.splitlines() == ["z/", "b.txt 5 bytes", "link -> b.txt", "x<U+001B>[2Jy 0 bytes"]


async def test_a_listing_leaves_out_what_is_there_only_to_be_mounted_on(tmp_path: Path) -> None:
    put(tmp_path / "src/HEAD/a.txt", "")
    with mount_point(tmp_path / ".chatops"), mount_point(tmp_path / "HEAD"), mount_point(tmp_path / ".git"):
        assert (await done(file_list, context_for(tmp_path), "")).content == "src/"
        (tmp_path / "src" / "HEAD").chmod(0o755)
        assert (await done(file_list, context_for(tmp_path), {"path": "src"})).content == "HEAD/"


async def test_a_listing_says_how_much_it_leaves_out(tmp_path: Path) -> None:
    for number in range(700):
        (tmp_path / f"f{number:03}").touch()
    lines = (await done(file_list, context_for(tmp_path), "")).content.splitlines()
    assert len(lines) == 501
    assert lines[-1].startswith("[500 of 700 entries")


async def test_a_new_file_is_written_with_its_folders(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    facts = await inspected(file_write, context, {"path": "new/deep/x.txt", "content": "ok\n"})
    assert facts.diff == "--- /dev/null\n+++ b/new/deep/x.txt\n@@ -0,0 +1 @@\n+ok\n"
    assert facts.hashes[0] == f"{tmp_path / 'new/deep/x.txt'} absent"
    assert not (tmp_path / "new").exists()
    await file_write.run(facts, context)
    assert (tmp_path / "new/deep/x.txt").read_text(encoding="utf-8") == "ok\n"
    assert [path.name for path in (tmp_path / "new/deep").iterdir()] == ["x.txt"]


async def test_the_mode_is_kept_and_a_link_keeps_pointing(tmp_path: Path) -> None:
    target = put(tmp_path / "run.sh", "old\n")
    target.chmod(0o4750)
    (tmp_path / "link").symlink_to("run.sh")
    await done(file_write, context_for(tmp_path), {"path": "link", "content": "new\n"})
    assert (tmp_path / "link").is_symlink()
    assert target.read_text(encoding="utf-8") == "new\n"
    assert stat.S_IMODE(target.stat().st_mode) == 0o750


async def test_an_acl_is_kept_and_none_comes_from_the_folder(tmp_path: Path) -> None:
    def acl(group: int) -> bytes:
        entries = [(1, 6, -1), (2, 6, 12345), (4, group, -1), (0x10, 6, -1), (0x20, 0, -1)]
        return struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)

    target, plain = put(tmp_path / "acl.txt", "old\n"), put(tmp_path / "plain.txt", "old\n")
    plain.chmod(0o640)
    try:
        os.setxattr(target, "system.posix_acl_access", acl(0))
        os.setxattr(tmp_path, "system.posix_acl_default", acl(6))
    except OSError:
        pytest.skip("this file system has no ACLs")
    for name in (target.name, plain.name):
        await done(file_write, context_for(tmp_path), {"path": name, "content": "new\n"})
        await done(file_edit, context_for(tmp_path), {"path": name, "old": "new", "new": "newer"})
    assert os.getxattr(target, "system.posix_acl_access") == acl(0)
    assert stat.S_IMODE(target.stat().st_mode) == 0o660
    assert os.listxattr(plain) == [] and stat.S_IMODE(plain.stat().st_mode) == 0o640


async def test_writing_to_a_second_name_leaves_the_first_alone(tmp_path: Path) -> None:
    outside = put(tmp_path / "out" / "o.txt", "old")
    (tmp_path / "ws").mkdir()
    os.link(outside, tmp_path / "ws" / "o.txt")
    await done(file_write, context_for(tmp_path / "ws"), {"path": "o.txt", "content": "new"})
    assert outside.read_text(encoding="utf-8") == "old"


async def test_an_edit_replaces_the_only_occurrence(tmp_path: Path) -> None:
    put(tmp_path / "a.txt", "one\ntwo\nthree\n")
    context = context_for(tmp_path)
    facts = await inspected(file_edit, context, {"path": "a.txt", "old": "two", "new": "2"})
    assert facts.diff == "--- a/a.txt\n+++ b/a.txt\n@@ -1,3 +1,3 @@\n one\n-two\n+2\n three\n"
    await file_edit.run(facts, context)
    assert (tmp_path / "a.txt").read_text(encoding="utf-8") == "one\n2\nthree\n"


@pytest.mark.parametrize(
    ("old", "new", "says", "heals"),
    [
        ("nothing", "x", "does not occur", True),
        ("a", "x", "occurs 2 times", True),
        ("", "x", "is empty", False),
        ("b", "b", "identical to old", False),
        ("b\nc", "x", "CR LF", True),
    ],
)
async def test_an_edit_that_cannot_work_is_a_problem(
    tmp_path: Path, old: str, new: str, says: str, heals: bool
) -> None:
    put(tmp_path / "a.txt", "a\r\na\r\nb\r\nc")
    facts = await inspected(file_edit, context_for(tmp_path), {"path": "a.txt", "old": old, "new": new})
    [problem] = facts.problems
    assert says in problem.message
    assert facts.may_resolve == heals


@pytest.mark.parametrize("tool", [file_write, file_edit])
async def test_nothing_is_written_when_the_file_changed_after_the_check(tmp_path: Path, tool: object) -> None:
    path = put(tmp_path / "a.txt", "old text\n")
    context = context_for(tmp_path)
    if tool is file_write:
        facts = await inspected(file_write, context, {"path": "a.txt", "content": "new"})
    else:
        facts = await inspected(file_edit, context, {"path": "a.txt", "old": "old", "new": "new"})
    path.write_text("old text, and more\n", encoding="utf-8")
    with pytest.raises(ToolFailedError, match="changed since"):
        await (file_write if tool is file_write else file_edit).run(facts, context)
    assert path.read_text(encoding="utf-8") == "old text, and more\n"
    assert os.listdir(tmp_path) == ["a.txt"]


async def test_after_a_crash_the_content_shows_the_outcome(tmp_path: Path) -> None:
    path = put(tmp_path / "a.txt", "old")
    context = context_for(tmp_path)
    facts = await inspected(file_edit, context, {"path": "a.txt", "old": "old", "new": "new"})
    assert file_edit.spec.reconcilable
    assert (await file_edit.reconcile(facts, context)).repeat
    path.write_text("new", encoding="utf-8")
    settled = await file_edit.reconcile(facts, context)
    assert settled.result is not None
    assert settled.result.outcome is Outcome.SUCCESS
    path.write_text("other", encoding="utf-8")
    unknown = await file_edit.reconcile(facts, context)
    assert (unknown.result, unknown.repeat) == (None, False)
    assert "neither the content before the call nor the content after it" in unknown.found
    path.unlink()
    gone = await file_edit.reconcile(facts, context)
    assert (gone.result, gone.repeat) == (None, False)
    assert "no longer exists" in gone.found


async def test_after_a_crash_only_the_temporary_file_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path / "a.txt", "old")
    context = context_for(tmp_path)
    facts = await inspected(file_edit, context, {"path": "a.txt", "old": "old", "new": "new"})

    class Died(BaseException):
        """Stands for the end of the process: nothing is cleared away."""

    def die(*names: object, **folders: object) -> None:
        raise Died

    with monkeypatch.context() as dying:
        dying.setattr("chatops.tools.files.os.rename", die)
        dying.setattr("chatops.tools.files._remove_temporary", lambda name, folder: None)
        with pytest.raises(Died):
            file_edit.function("a.txt", "old", "new", context, facts)
    half = tmp_path / next(name for name in os.listdir(tmp_path) if name != "a.txt")
    assert half.read_text(encoding="utf-8") == "new"
    mine = put(tmp_path / ".chatops-0123456789abcdef.tmp", "mine")
    other = replace(context, attempt=2)
    assert (await file_edit.reconcile(facts, other)).repeat
    assert half.exists(), "it belongs to another attempt"
    assert (await file_edit.reconcile(facts, context)).repeat
    assert not half.exists()
    assert mine.exists()


async def test_a_file_with_the_longest_name_can_be_written(tmp_path: Path) -> None:
    name = "𝒜" * 60 + ".txt"
    await done(file_write, context_for(tmp_path), {"path": name, "content": "new"})
    assert os.listdir(tmp_path) == [name]


async def test_a_file_whose_name_is_not_utf8_can_be_written_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / os.fsdecode(b"\xff.txt")
    target.write_text("old")
    (tmp_path / "link.txt").symlink_to(target.name)
    await done(file_write, context_for(tmp_path), {"path": "link.txt", "content": "new"})
    assert target.read_text() == "new"


async def test_a_write_that_did_not_start_may_be_repeated(tmp_path: Path) -> None:
    context = context_for(tmp_path)
    facts = await inspected(file_write, context, {"path": "deep/a.txt", "content": "new"})
    assert (await file_write.reconcile(facts, context)).repeat
    await file_write.run(facts, context)
    assert (await file_write.reconcile(facts, context)).result is not None


async def test_too_much_content_is_a_problem(tmp_path: Path) -> None:
    facts = await inspected(file_write, context_for(tmp_path), {"path": "a.txt", "content": "A" * 2_000_000})
    assert [problem.path for problem in facts.problems] == ["content"]


LINES = st.lists(st.sampled_from(["a\n", "b\n", "c\r\n", "\x0c\n", "\u2028\n", "d"]), max_size=30).map("".join)


@given(before=LINES, after=LINES)
def test_a_diff_turns_one_text_into_the_other(
    tmp_path_factory: pytest.TempPathFactory, before: str, after: str
) -> None:
    diff = diff_text(before, after, name="f")
    assert bool(diff) == (before != after)
    assert applied(before, diff) == after


def applied(before: str, diff: str) -> str:
    """A tiny patch: only what unified diffs of one file need."""
    source = before.split("\n")
    lines = [line + "\n" for line in source[:-1]] + ([source[-1]] if source[-1] else [])
    out: list[str] = []
    at = 0
    text = diff.replace("\n\\ No newline at end of file\n", "\0")
    for raw in text.replace("\0", "\0\n").split("\n")[2:]:
        line = raw.removesuffix("\0") if raw.endswith("\0") else raw + "\n"
        if raw.startswith("@@"):
            first = int(raw.split()[1].split(",")[0][1:])
            count = raw.split()[1].split(",")[1] if "," in raw.split()[1] else "1"
            start = first if count == "0" else first - 1
            out += lines[at:start]
            at = start
        elif raw.startswith("+"):
            out.append(line[1:])
        elif raw.startswith("-"):
            assert lines[at] == line[1:]
            at += 1
        elif raw.startswith(" "):
            assert lines[at] == line[1:]
            out.append(lines[at])
            at += 1
    return "".join(out + lines[at:])


def test_a_diff_of_two_large_texts_is_complete_and_applies(tmp_path: Path) -> None:
    before = "".join(f"{number % 7}\n" for number in range(30_000))
    after = "".join(f"{number % 5}\n" for number in range(30_000))
    (tmp_path / "f").write_text(before, encoding="utf-8")
    diff = diff_text(before, after, name="f")
    subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=diff.encode(), check=True)
    assert (tmp_path / "f").read_text(encoding="utf-8") == after
