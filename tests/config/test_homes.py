"""Places of chatops' files if the home folder is missing or unusable."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from chatops.config import paths as module
from chatops.config.paths import Paths, find_paths

ROOT = Path(__file__).parents[2]


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """A folder outside of pytest's own: each start of another pytest closes that to other users."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder).resolve()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of the test's own."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    module._temporary_home.cache_clear()
    for name in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        monkeypatch.delenv(name, raising=False)
    return folder


def found_with(home: Path | str, monkeypatch: pytest.MonkeyPatch) -> Paths:
    monkeypatch.setenv("HOME", str(home))
    return find_paths({"HOME": str(home)})


def test_a_home_that_is_there_needs_no_word(temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_with(tmp_path, monkeypatch)
    assert found.notices == ()
    assert found.data.is_relative_to(tmp_path)
    assert list(temporary.iterdir()) == []


def test_an_empty_home_is_none(temporary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_with("", monkeypatch)
    assert "HOME is empty." in found.notices[0]
    assert all(folder.is_relative_to(temporary) for folder in (found.config, found.data, found.log))


@pytest.mark.parametrize("what", ["missing", "a file"])
def test_without_a_home_folder_a_closed_temporary_one_is_used_and_said(
    what: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "gone"
    if what == "a file":
        home.write_text("")
    before = os.umask(0o000)
    try:
        found = found_with(home, monkeypatch)
        found.prepare()
    finally:
        os.umask(before)
    place = temporary / f"chatops-{os.getuid()}"
    assert (found.config, found.data, found.log) == (place / "config", place / "data", place / "log")
    (notice,) = found.notices
    assert f"The home folder {home} does not exist." in notice
    assert str(place) in notice
    for folder in (place, found.data):
        assert folder.stat().st_mode & 0o777 == 0o700
    # The next process finds it again.
    module._temporary_home.cache_clear()
    assert found_with(home, monkeypatch) == found
    assert found.data.resolve() in found.protected


@pytest.mark.parametrize("squatter", ["open to others", "a link", "a file"])
def test_a_temporary_folder_that_another_may_have_made_is_not_used(
    squatter: str, temporary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = temporary / f"chatops-{os.getuid()}"
    match squatter:
        case "open to others":
            place.mkdir()
            place.chmod(0o777)
        case "a link":
            (tmp_path / "theirs").mkdir(mode=0o700)
            place.symlink_to(tmp_path / "theirs")
        case _:
            place.write_text("")
    found = found_with(tmp_path / "gone", monkeypatch)
    assert found.data.parent != place
    assert found.data.parent.stat().st_mode & 0o777 == 0o700
    assert str(found.data.parent) in found.notices[0]


@pytest.mark.skipif(module.others_may_rename(Path("/tmp")), reason="others may rename files in /tmp here")
@pytest.mark.parametrize(("mode", "used"), [(0o700, True), (0o1777, True), (0o777, False), (0o770, False)])
def test_no_temporary_file_is_made_where_others_may_rename_it(temporary: Path, mode: int, used: bool) -> None:
    module._leave_shared_temporary_folder.cache_clear()
    temporary.chmod(mode)
    find_paths({"CHATOPS_HOME": str(temporary)})
    assert (tempfile.gettempdir() == str(temporary)) is used


def test_without_home_in_the_environment_the_system_is_asked_and_it_is_said(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HOME")
    if not os.path.isdir(os.path.expanduser("~")):
        pytest.skip("this user has no home folder")
    found = find_paths({})
    assert "HOME is not set" in found.notices[0]
    assert os.path.expanduser("~") in found.notices[0]


def let_in(folder: Path) -> None:
    """Let every user look into the folders above the test's own."""
    for closed in (folder, *folder.parents):
        if closed.stat().st_mode & 0o001:
            return
        closed.chmod(0o755)


@pytest.fixture
def readable(tmp_path: Path) -> Path:
    """A copy of chatops that every user may read: the checkout itself may lie in a closed folder."""
    place = tmp_path / "program"
    shutil.copytree(ROOT / "chatops", place / "chatops", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "model_registry.json", place)
    return place


AS_SOMEBODY = """
import os, tempfile
from pathlib import Path
from chatops.config.paths import find_paths
from chatops.config.registry import load_registry
tempfile.tempdir = {tmp!r}
# Whatever is imported late is here before this process can no longer read where Python lies.
load_registry(path=None, paths=find_paths({{"CHATOPS_HOME": tempfile.mkdtemp()}}), env={{}})
if os.getuid() == 0:
    os.setuid(54321)
found = find_paths(dict(os.environ))
print(found.config, found.data, *found.notices, sep="\\n")
"""
LEVEL = """
loaded = load_registry(path=None, paths=found, env={})
print(loaded.access_cap.word)
"""


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become a user without an entry")
def test_a_user_without_any_home_works_in_a_temporary_folder(temporary: Path, readable: Path, tmp_path: Path) -> None:
    let_in(tmp_path)
    temporary.chmod(0o1777)
    code = AS_SOMEBODY.format(tmp=str(temporary))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": str(readable)},
        cwd=readable,
        capture_output=True,
        text=True,
        check=True,
    )
    config, data, notice = done.stdout.splitlines()
    assert (config, data) == (f"{temporary}/chatops-54321/config", f"{temporary}/chatops-54321/data")
    assert "There is no home folder for this user." in notice
    assert "CHATOPS_HOME" in notice


def test_a_home_that_may_not_be_entered_keeps_its_registry_out_of_doubt(
    temporary: Path, readable: Path, tmp_path: Path
) -> None:
    let_in(tmp_path)
    temporary.chmod(0o1777)
    home = tmp_path / "closed"
    (home / ".config" / "chatops").mkdir(parents=True)
    home.chmod(0)
    code = AS_SOMEBODY.format(tmp=str(temporary))
    done = subprocess.run(
        [sys.executable, "-c", code + LEVEL],
        env={"PYTHONPATH": str(readable), "HOME": str(home)},
        cwd=readable,
        capture_output=True,
        text=True,
        check=True,
    )
    config, data, notice, level = done.stdout.splitlines()
    # A registry may be there: that it cannot be read must not make it one that does not exist.
    assert config == f"{home}/.config/chatops"
    assert data == f"{temporary}/chatops-{os.getuid() or 54321}/data"
    assert "cannot be reached" in notice
    assert level == "viewer"


def test_a_file_in_the_way_is_told_where_the_folder_is_needed(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    found = find_paths({"CHATOPS_HOME": str(tmp_path / "home")})
    found.prepare()
    assert not found.data.exists()
