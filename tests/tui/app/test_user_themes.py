"""The user's own themes: read with clear errors, never from outside their folder, previewed by the picker."""

from pathlib import Path

import pytest

from chatops.domain.errors import ConfigError
from chatops.tui.dialogs.picker import Choice, Picker
from chatops.tui.terminal import TerminalTraits
from chatops.tui.theme import WithoutColours
from chatops.tui.themes import read_user_theme, user_theme_names
from tests.tui.app.support_app import Stage, stage

SEA = 'primary: "#4fb3bf"\nbackground: "#001b24"\ndark: true\nvariables: {dim: "#7f9aa0"}\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    themes = tmp_path / "themes"
    themes.mkdir()
    (themes / "sea.yaml").write_text(SEA)
    (themes / "broken.yaml").write_text("primary: seeblue\n")
    return themes


def test_a_theme_has_the_fields_of_its_file(folder: Path) -> None:
    theme = read_user_theme(folder, "sea")
    assert (theme.name, theme.primary, theme.background, theme.dark) == ("sea", "#4fb3bf", "#001b24", True)
    assert theme.variables["dim"] == "#7f9aa0"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("primary: seeblue\n", "x.yaml: primary has to be a colour in quotes"),
        ("primary: #123456\n", "x.yaml: primary has to be a colour in quotes"),
        ("primry: red\n", "x.yaml: a theme has no field primry. The fields are primary, secondary"),
        ("dark: true\n", "x.yaml: primary is missing"),
        ("primary: red\ndark: 3\n", "x.yaml: dark has to be true or false, not 3"),
        ("primary: red\ntext_alpha: 3\n", "x.yaml: text_alpha has to be a number from 0 to 1"),
        ("primary: red\nvariables: [1]\n", "x.yaml: variables has to map names to colours"),
        ("primary: red\nvariables: {x: '$(rm)'}\n", "x.yaml: variables: x has to be a colour"),
        ("primary: red\nvariables: {X y: red}\n", "x.yaml: variables: 'X y' is not a valid name"),
        ("primary: red\nname: other\n", "x.yaml: the name has to be that of the file"),
        ("primary: red\nvariables: {x: 'red 60%', y: '#112233 5%', z-style: bold reverse}\n", ""),
        ("primary: [\n", "x.yaml, line"),
        ("primary: !!python/name:os.system\n", "x.yaml"),
        ("", "x.yaml: primary is missing"),
    ],
)
def test_what_is_wrong_with_a_theme_is_said_with_file_and_field(text: str, problem: str, tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text(text)
    if not problem:
        read_user_theme(tmp_path, "x")
        return
    with pytest.raises(ConfigError) as refused:
        read_user_theme(tmp_path, "x")
    assert str(refused.value).startswith(problem)


@pytest.mark.parametrize("name", ["../sea", "a/b", "..", "", ".sea", "sea\x00", "/etc/passwd", "a" * 90])
def test_no_name_leads_out_of_the_folder(name: str, folder: Path) -> None:
    inside = folder / "inner"
    inside.mkdir()
    with pytest.raises(ConfigError, match="cannot be the name"):
        read_user_theme(inside, name)


def test_only_files_with_a_usable_name_are_listed(folder: Path) -> None:
    for name in ("a b.yaml", "\x1b[2J.yaml", "notes.txt"):
        (folder / name).write_text(SEA)
    assert user_theme_names(folder) == ("broken", "sea")
    assert user_theme_names(folder / "none") == ()


async def pick(running: Stage, *keys: str) -> None:
    running.app.chat.run_command("/theme")
    await running.settle()
    assert isinstance(running.app.screen, Picker)
    await running.press(*keys)


async def test_the_picker_shows_each_theme_while_one_moves_and_esc_returns(folder: Path) -> None:
    async with stage(themes=folder) as running:
        before = running.app.theme
        await pick(running, *"sea")
        assert running.app.theme == "sea"
        await running.press("escape")
        assert running.app.theme == before
        await pick(running, *"broken")
        assert "primary has to be a colour" in running.text
        assert running.app.theme == before
        await running.press("escape")
        await pick(running, *"sea", "enter")
        assert (running.app.theme, running.workspace.user.themes) == ("sea", ["sea"])


async def test_a_variable_that_styles_cannot_use_is_refused_and_ends_nothing(folder: Path) -> None:
    (folder / "odd.yaml").write_text("primary: red\nvariables: {border: '} Screen {', text-muted: nonsense}\n")
    async with stage(themes=folder, size=(100, 24)) as running:
        before = running.app.theme
        await pick(running, *"odd")
        assert running.app.theme == before
        assert "odd.yaml: " in running.text
        await running.press("enter")
        assert running.app.theme == before


async def test_a_stored_theme_that_is_broken_is_named_and_the_default_holds(folder: Path) -> None:
    async with stage(themes=folder, theme="broken", size=(110, 24)) as running:
        assert "broken.yaml: primary has to be a colour" in running.text
        assert running.app.theme == "chatops-dark"


async def test_without_colours_the_selected_row_is_reversed() -> None:
    async with stage() as running:
        running.app._traits = TerminalTraits(colours=False)
        running.app._without_colours = WithoutColours()
        running.app.refresh_css(animate=False)
        choices = [Choice(key=one, text=one, find=one) for one in ("red", "blue")]
        running.app.push_screen(Picker("Roles", choices=choices))
        await running.press("down")
        rows = running.app.screen._compositor.render_strips()
        reverse = "".join(one.text for row in rows for one in row if one.style is not None and one.style.reverse)
        assert "blue" in reverse and "red" not in reverse
