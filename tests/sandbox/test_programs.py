"""Which environment a program brings, and that links show recognised environments only."""

import json
from pathlib import Path

import pytest

from chatops.sandbox.programs import find_program, program_at


def program(place: Path, text: str = "#!/bin/sh\n") -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    place.chmod(0o755)
    return place


def link(place: Path, target: str | Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(target)
    return place


def venv(place: Path) -> Path:
    program(place / "bin" / "python")
    program(place / "bin" / "tool")
    (place / "pyvenv.cfg").write_text("")
    return place


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    (tmp_path / "workspace").mkdir()
    return tmp_path / "workspace"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    monkeypatch.setenv("HOME", str(folder))
    return folder


def test_a_link_brings_the_virtual_environment_that_it_leads_to(workspace: Path, home: Path) -> None:
    made = venv(home / ".local" / "share" / "pipx" / "venvs" / "tool")
    found = program_at(link(home / ".local" / "bin" / "tool", made / "bin" / "tool"), workspace=workspace)
    assert (found.path, found.shown) == (made / "bin" / "tool", (made,))


def test_a_program_of_npm_brings_its_package_or_those_beside_it(workspace: Path, tmp_path: Path) -> None:
    modules = tmp_path / "prefix" / "lib" / "node_modules"
    script = program(modules / "@scope" / "tool" / "dist" / "index.js")
    found = program_at(link(tmp_path / "prefix" / "bin" / "tool", script), workspace=workspace)
    assert (found.path, found.shown) == (script, (modules / "@scope" / "tool",))
    project = tmp_path / "project" / "node_modules"
    script = program(project / "tool" / "node_modules" / "dep" / "index.js")
    of_project = link(project / ".bin" / "tool", "../tool/node_modules/dep/index.js")
    for place in (of_project, script):
        assert program_at(place, workspace=workspace).shown == (project,)
    assert program_at(of_project, workspace=workspace).path == of_project


def test_a_linked_package_brings_its_folder_if_it_names_the_program(workspace: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    script = program(source / "dist" / "index.js")
    other = program(source / "other.js")
    (source / "package.json").write_text(json.dumps({"bin": {"tool": "./dist/index.js"}, "main": 3}))
    link(tmp_path / "prefix" / "lib" / "node_modules" / "tool", source)
    started = link(tmp_path / "prefix" / "bin" / "tool", "../lib/node_modules/tool/dist/index.js")
    assert program_at(started, workspace=workspace).shown == (source,)
    assert program_at(other, workspace=workspace).shown == (other,)
    (source / "package.json").write_text("[" * 100_000)
    assert program_at(script, workspace=workspace).shown == (script,)


def test_a_link_of_the_workspace_that_leads_out_of_it_shows_nothing(workspace: Path, tmp_path: Path) -> None:
    made = venv(tmp_path / "private")
    script = program(tmp_path / "app" / "node_modules" / "tool" / "index.js")
    secret = program(tmp_path / "secret")
    for number, target in enumerate((made / "bin" / "tool", script, secret)):
        planted = link(workspace / f"planted{number}", target)
        # The user's own link into the workspace, where the program has been replaced.
        indirect = link(tmp_path / f"link{number}", planted)
        for place in (planted, indirect):
            assert program_at(place, workspace=workspace).shown == ()
    link(workspace / "folder", tmp_path / "private" / "bin")
    assert program_at(link(tmp_path / "up", workspace / "folder" / "tool"), workspace=workspace).shown == ()


def test_a_home_folder_and_credentials_are_never_shown(workspace: Path, home: Path) -> None:
    key = program(home / ".ssh" / "id")
    assert program_at(link(home / "bin" / "key", key), workspace=workspace).shown == ()
    venv(home)
    script = program(home / "index.js")
    (home / "package.json").write_text('{"main": "index.js"}')
    for place in (home / "bin" / "tool", script):
        assert home not in program_at(place, workspace=workspace).shown


def test_a_name_is_looked_up_in_the_workspace_last(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planted, own = program(workspace / "bin" / "tool"), program(tmp_path / "bin" / "tool")
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", f".:{planted.parent}:{own.parent}")
    monkeypatch.chdir(workspace)
    found = find_program("tool", workspace=workspace)
    assert found is not None and found.path == own
    own.unlink()
    found = find_program("tool", workspace=workspace)
    assert found is not None and (found.path, found.shown) == (planted, ())
    planted.chmod(0o644)
    assert find_program("tool", workspace=workspace) is None
    assert find_program("bin/tool", workspace=workspace) is None


def test_loops_of_links_end(workspace: Path, tmp_path: Path) -> None:
    link(tmp_path / "a", "b")
    assert program_at(link(tmp_path / "b", "a"), workspace=workspace).shown == ()


def test_the_virtual_environment_of_the_workspace_comes_first_only_if_it_is_active(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VIRTUAL_ENV", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    made = venv(workspace / ".venv")
    found = find_program("tool", workspace=workspace)
    assert found is not None and (found.path, found.shown) == (made / "bin" / "tool", ())
    own = program(tmp_path / "bin" / "tool")
    found = find_program("tool", workspace=workspace)
    assert found is not None and found.path == own
    monkeypatch.setenv("VIRTUAL_ENV", str(made))
    found = find_program("tool", workspace=workspace)
    assert found is not None and (found.path, found.shown) == (made / "bin" / "tool", ())
