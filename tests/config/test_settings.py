"""The user's settings: read leniently, changed by one line."""

import os
import stat
from pathlib import Path

import pytest

from chatops.config.settings import load_settings, store_theme
from chatops.domain.errors import ConfigError

WRITTEN = """# my settings
keys:
  send: ctrl+s  # as everywhere
theme: nord
favourite_roles: [coder, "reviewer"]
"""


@pytest.mark.parametrize(
    ("text", "theme"),
    [(WRITTEN, "nord"), ("", ""), ("# nothing\n\n", ""), ('theme: "my own"\n', "my own"), ("later: [1, 2]\n", "")],
)
def test_the_theme_is_read_and_unknown_keys_are_left_alone(text: str, theme: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    found = load_settings(path)
    assert (found.theme, found.problem) == (theme, "")


@pytest.mark.parametrize(
    "data", [b"theme: [", b"theme: 3\n", b"- nord\n", b"\xff\xfe", b"theme: !!python/name:os.system\n"]
)
def test_what_cannot_be_used_is_named_and_ends_nothing(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_bytes(data)
    found = load_settings(path)
    assert found.theme == ""
    assert path.name in found.problem


def test_a_pipe_or_a_folder_of_that_name_is_no_settings(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "settings.yaml")
    assert load_settings(tmp_path / "settings.yaml").theme == ""
    assert load_settings(tmp_path).theme == ""


@pytest.mark.parametrize("name", ["gruvbox", "catppuccin-mocha", "no", "yes", "my: own", "true", 'a"b', "é\u2028x"])
@pytest.mark.parametrize("text", [WRITTEN, "", "# only this", "theme:\n", "theme: 'x'  # why\nkeys: {}\n"])
def test_storing_a_theme_changes_its_line_alone(text: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / "config" / "settings.yaml"
    path.parent.mkdir()
    path.write_text(text)
    store_theme(path, name)
    assert load_settings(path).theme == name
    after = path.read_text().splitlines()
    assert [line for line in text.splitlines() if not line.startswith("theme")] == [
        line for line in after if not line.startswith("theme")
    ]
    assert sum(line.startswith("theme") for line in after) == 1
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("text", ["theme: [", "theme: |\n  nord\n", "{theme: nord}\n", "keys: {}\n...\n"])
def test_a_file_that_cannot_be_changed_line_by_line_stays_as_it_is(text: str, tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match="The theme holds until chatops ends"):
        store_theme(path, "gruvbox")
    assert path.read_text() == text


def test_each_setting_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("theme: 3\nkeys: 4\nfavourite_roles: 5\nnotifications: 6\nturn_cost: 7\nreduced_motion: 8\n")
    found = load_settings(path)
    assert not found.turn_cost
    for said in (
        "the theme has",
        "keys has",
        "favourite_roles has",
        "notifications has",
        "turn_cost has to be true",
        "reduced_motion has to be true or false. It is on.",
    ):
        assert f"settings.yaml: {said}" in found.problem


def test_favourite_roles_are_a_list_of_names(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("favourite_roles: [coder, reviewer]\n")
    assert load_settings(path).favourite_roles == ("coder", "reviewer")
    path.write_text("favourite_roles: coder\n")
    assert load_settings(path).favourite_roles == ()
    assert "favourite_roles" in load_settings(path).problem


def test_notifications_are_switched_by_true_and_false(tmp_path: Path) -> None:
    path = tmp_path / "settings.yaml"
    assert load_settings(path).notifications
    for written, on, problem in (("true", True, ""), ("false", False, ""), ("sometimes", False, "They are off.")):
        path.write_text(f"notifications: {written}\n")
        found = load_settings(path)
        assert found.notifications is on and found.problem.endswith(problem)
