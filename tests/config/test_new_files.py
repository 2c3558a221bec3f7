"""A file that a user asks for: whole under its name or not there, and never in the place of another one."""

import errno
import os
import stat
from pathlib import Path

import pytest

from chatops.config.paths import write_new_private
from chatops.domain.errors import ChatopsError


def test_it_has_its_name_only_once_it_is_whole_and_on_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, flushed, fsync = tmp_path / "talk.md", list[bool](), os.fsync

    def looked_at(handle: int) -> None:
        flushed.append(path.exists())
        fsync(handle)

    monkeypatch.setattr(os, "fsync", looked_at)
    write_new_private(path, b"all of it")
    assert flushed == [False]
    assert path.read_bytes() == b"all of it"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_nothing_is_left_of_one_that_cannot_be_written_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ChatopsError, match="No space left on device"):
        write_new_private(tmp_path / "talk.md", b"all of it")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
def test_one_that_comes_meanwhile_stays_as_it_is_with_links_on_the_drive_or_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, links: bool
) -> None:
    def no_links(old: Path, new: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    free, taken = tmp_path / "free.md", tmp_path / "taken.md"
    write_new_private(free, b"mine")
    monkeypatch.setattr(os, "fsync", lambda handle: taken.write_bytes(b"theirs"))
    with pytest.raises(ChatopsError, match="not overwritten"):
        write_new_private(taken, b"mine")
    assert (free.read_bytes(), taken.read_bytes()) == (b"mine", b"theirs")
    assert sorted(tmp_path.iterdir()) == [free, taken]


def test_a_name_without_a_file_is_not_kept_on_a_drive_without_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_names: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "link", refused)
    monkeypatch.setattr(Path, "replace", refused)
    with pytest.raises(ChatopsError, match="Input/output error"):
        write_new_private(tmp_path / "talk.md", b"all of it")
    assert list(tmp_path.iterdir()) == []
