"""Personas, the user's folders and the user."""

import os
import pwd
from pathlib import Path

import pytest

from chatops.config.paths import Paths, find_paths, packaged_file, private_dir, write_private
from chatops.config.prompt_files import load_personas
from chatops.domain.errors import ConfigError
from chatops.wiring.rights import current_user


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return find_paths({"CHATOPS_HOME": str(tmp_path / "home")})


def own(paths: Paths, name: str, text: str | bytes) -> None:
    private_dir(paths.personas)
    data = text if isinstance(text, bytes) else text.encode()
    (paths.personas / name).write_bytes(data)


def test_packaged_personas_are_usable(paths: Paths) -> None:
    loaded = load_personas(paths)
    assert loaded.warnings == () and loaded.found[0].name == "default"
    assert all(persona.text and persona.description for persona in loaded.found)
    assert {file.stem for file in packaged_file("personas").glob("*.md")} == {persona.name for persona in loaded.found}


def test_own_personas_replace_packaged_ones(paths: Paths) -> None:
    own(paths, "default.md", "---\ndescription: mine\n---\nBe me.\n")
    persona = load_personas(paths).get("default")
    assert persona is not None and (persona.text, persona.description) == ("Be me.", "mine")
    own(paths, "default.md", "\n# Be me.\nAlways.\n")
    persona = load_personas(paths).get("default")
    assert persona is not None and persona.description == "Be me."


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("open.md", "---\nname: open\nno end"),
        ("yaml.md", "---\n{: ]\n---\ntext"),
        ("list.md", "---\n- a\n---\ntext"),
        ("Upper.md", "text"),
        ("climb.md", "---\nname: ../climb\n---\ntext"),
        ("number.md", "---\nname: 5\n---\ntext"),
        ("tag.md", "---\nname: !!python/object/apply:os.getcwd []\n---\ntext"),
        ("bytes.md", b"\xff\xfe"),
        ("long.md", "x" * 70_000),
    ],
)
def test_a_bad_file_is_a_warning(paths: Paths, file: str, text: str | bytes) -> None:
    own(paths, file, text)
    loaded = load_personas(paths)
    assert len(loaded.warnings) == 1 and file in loaded.warnings[0]
    assert len(loaded.found) == len(list(packaged_file("personas").glob("*.md")))


def test_a_pipe_in_place_of_a_file_is_not_waited_for(paths: Paths) -> None:
    private_dir(paths.personas)
    os.mkfifo(paths.personas / "pipe.md")
    (warning,) = load_personas(paths).warnings
    assert "it is not a plain file" in warning


def test_a_persona_carries_no_rights(paths: Paths) -> None:
    own(paths, "sly.md", "---\nname: sly\ntools: [shell_exec]\nmodel: x\n---\ntext")
    loaded = load_personas(paths)
    assert loaded.get("sly") is not None
    assert sum("ignored" in warning for warning in loaded.warnings) == 2


def test_home_variable_moves_everything_and_folders_are_closed(paths: Paths, tmp_path: Path) -> None:
    paths.prepare()
    for folder in (paths.config, paths.data, paths.log):
        assert folder.is_relative_to(tmp_path / "home") and folder.stat().st_mode & 0o777 == 0o700
        assert folder.resolve() in paths.protected
    file = paths.data / "x"
    write_private(file, b"1")
    assert file.read_bytes() == b"1" and file.stat().st_mode & 0o777 == 0o600
    assert list(paths.data.iterdir()) == [file]


def test_a_folder_that_was_open_is_closed(paths: Paths) -> None:
    paths.prepare()
    paths.data.chmod(0o755)
    paths.prepare()
    assert paths.data.stat().st_mode & 0o777 == 0o700


def test_a_relative_home_is_refused() -> None:
    with pytest.raises(ConfigError, match="not an absolute path"):
        find_paths({"CHATOPS_HOME": "here"})


def test_the_user_is_the_uid_whatever_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("USER", "LOGNAME", "LNAME", "USERNAME"):
        monkeypatch.setenv(name, "somebody-else")
    user = current_user()
    assert user.uid == os.getuid() and user.login == pwd.getpwuid(os.getuid()).pw_name
    assert user.groups
