"""Workflows of registries and of files beside them: where they are looked for, which counts, what is refused."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from chatops.config.paths import Paths
from chatops.config.registry import Loaded, load_registry
from chatops.config.site_files import SitePlace
from chatops.config.workflow_files import Workflows, packaged_workflows
from chatops.domain.errors import ConfigError


def made(text: str) -> dict[str, Any]:
    """A workflow whose only step says `text`."""
    return {"description": text, "steps": [{"name": "only", "system_prompt": text}]}


class Place:
    """A user's folders, a workspace and a site below a temporary folder."""

    def __init__(self, base: Path) -> None:
        self.paths = Paths(config=base / "config", data=base / "data", log=base / "log")
        self.workspace = base / "ws"
        self.folder = base / "config" / "workflows"
        self.site_folder = base / "etc"
        for folder in (self.workspace, self.paths.config, self.folder, self.site_folder):
            folder.mkdir(mode=0o755)
        self.site = SitePlace(path=self.site_folder / "model_registry.json", owner=os.getuid(), top=self.site_folder)

    def own(self, **workflows: object) -> None:
        self.paths.registry.write_text(json.dumps({"version": 3, "workflows": workflows}))

    def machine(self, **workflows: object) -> None:
        self.site.path.write_text(json.dumps({"version": 3, "workflows": workflows}))
        self.site.path.chmod(0o644)

    def file(self, name: str, value: object, *, folder: Path | None = None) -> Path:
        path = (folder or self.folder) / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(value))
        path.chmod(0o644)
        return path

    def load(self, path: Path | None = None) -> Loaded:
        return load_registry(path=path, paths=self.paths, env={}, site=self.site)

    def workflows(self) -> Workflows:
        """The workflows as the application finds them."""
        return self.load().workflows()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_registry_and_files_of_user_and_machine_are_found(place: Place) -> None:
    place.own(a=made("a"))
    place.machine(b=made("b"))
    place.file("c.json", made("c"))
    place.file("d.yaml", made("d"))
    place.file("e.yml", made("e"), folder=place.site_folder / "workflows")
    for ignored in (".f.json", "g.txt", "h.json~"):
        place.file(ignored, made("x"))
    workflows = place.load().workflows()
    assert [one.name for one in workflows.found] == ["b", "e", "a", "c", "d"]
    assert (workflows.unusable, workflows.notices) == ((), ())
    assert workflows.get("c").spec.source == str(place.folder / "c.json")


def test_without_a_registry_of_their_own_a_user_still_has_a_folder(place: Place) -> None:
    place.file("c.json", made("c"))
    assert place.load().workflows().get("c").spec.description == "c"


def test_the_folder_is_that_of_the_registry_in_force(place: Place, tmp_path: Path) -> None:
    other = tmp_path / "other" / "team.json"
    other.parent.mkdir()
    place.file("c.json", made("mine"))
    place.file("c.json", made("theirs"), folder=other.parent / "workflows")
    other.write_text('{"version": 3}')
    assert place.load(other).workflows().get("c").spec.description == "theirs"
    assert place.load().workflows().get("c").spec.description == "mine"


def test_of_one_name_the_machine_counts_then_the_registry_then_the_files_and_it_is_said(place: Place) -> None:
    place.own(a=made("registry"), b=made("registry"))
    place.machine(a=made("machine"))
    place.file("a.json", made("file"))
    place.file("b.yaml", made("yaml"))
    place.file("b.json", made("json"))
    place.file("c.yaml", made("yaml"))
    place.file("c.json", made("json"))
    workflows = place.load().workflows()
    assert {one.name: one.spec.description for one in workflows.found} == {"a": "machine", "b": "registry", "c": "json"}
    assert len(workflows.notices) == 5
    assert all("has no effect" in notice for notice in workflows.notices)


def test_a_broken_file_hinders_only_its_own_workflow(place: Place) -> None:
    place.own(a=made("a"))
    place.file("b.json", {"stepss": []})
    place.file("c.json", made("c"))
    loaded = place.load()
    workflows = loaded.workflows()
    assert loaded.broken is None and [one.name for one in workflows.found] == ["a", "c"]
    with pytest.raises(ConfigError, match=r"b\.json, line 1, column 2, key stepss") as caught:
        workflows.get("b")
    assert caught.value.advice


@pytest.mark.parametrize("mode", [0o644, 0o666])
def test_the_name_of_a_file_stays_on_its_line_and_does_nothing_to_a_terminal(place: Place, mode: int) -> None:
    place.own()
    place.file("x\nworkflow answered\x1b[2J.json", made("x")).chmod(mode)
    (unusable,) = place.load().workflows().unusable
    for said in (unusable.name, str(unusable.error), unusable.error.advice):
        assert said.isprintable()
        assert "\n" not in said


def test_a_broken_file_of_the_machine_is_not_replaced_by_a_users(place: Place) -> None:
    place.own(deploy=made("mine"))
    place.file("deploy.json", {"steps": 1}, folder=place.site_folder / "workflows")
    with pytest.raises(ConfigError, match=r"etc/workflows/deploy\.json"):
        place.load().workflows().get("deploy")


@pytest.mark.parametrize(("name", "word"), [("mak", "make"), ("zzz", "Workflows here: make")])
def test_an_unknown_name_is_answered_with_the_known_ones(place: Place, name: str, word: str) -> None:
    place.file("make.json", made("m"))
    with pytest.raises(ConfigError, match=f"no workflow '{name}'") as caught:
        place.load().workflows().get(name)
    assert word in caught.value.advice


@pytest.mark.parametrize("mistake", ["others", "owner", "folder", "pipe", "gone", "directory"])
def test_a_file_that_others_could_have_written_is_refused(
    place: Place, mistake: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = place.file("make.json", made("m"))
    match mistake:
        case "owner" if os.getuid() == 0:
            os.chown(file, 12_345, -1)
        case "owner":
            mine = os.getuid()
            monkeypatch.setattr(os, "getuid", lambda: mine + 1)
        case "others":
            file.chmod(0o646)
        case "folder":
            place.folder.chmod(0o777)
        case "pipe":
            file.unlink()
            os.mkfifo(file)
        case "gone":
            file.unlink()
            file.symlink_to("nowhere.json")
        case _:
            file.unlink()
            file.mkdir()
    with pytest.raises(ConfigError, match="is not used"):
        place.load().workflows().get("make")


@pytest.mark.parametrize("mistake", ["group", "folder", "link", "owner"])
def test_a_file_of_the_machine_that_its_owner_alone_could_not_have_written_is_refused(
    place: Place, mistake: str
) -> None:
    folder = place.site_folder / "workflows"
    file = place.file("make.json", made("m"), folder=folder)
    match mistake:
        case "group":
            file.chmod(0o664)
        case "folder":
            folder.chmod(0o775)
        case "link":
            file.rename(folder / "real.txt")
            file.symlink_to("real.txt")
        case _:
            place.site = SitePlace(path=place.site.path, owner=os.getuid() + 4711, top=place.site_folder)
    with pytest.raises(ConfigError, match="is not used"):
        place.load().workflows().get("make")


def test_a_registry_in_the_workspace_that_was_named_brings_its_workflows(place: Place) -> None:
    place.file("make.json", made("m"), folder=place.workspace / "workflows")
    named = place.workspace / "registry.json"
    named.write_text('{"version": 3}')
    loaded = place.load(named)
    assert loaded.notices == () and loaded.workflows().get("make").spec.description == "m"


def test_an_error_in_a_registrys_workflow_is_an_error_of_the_registry(place: Place) -> None:
    place.own(a={"steps": [{"name": "x", "system_prompt": "p", "maxx": 1}]})
    loaded = place.load()
    assert loaded.broken is not None and "key workflows.a.steps[0].maxx" in str(loaded.broken)
    assert "a" not in [one.name for one in loaded.workflows().found]


def test_those_that_come_with_chatops_are_last_and_say_where_they_are(place: Place) -> None:
    place.file("z.yaml", made("z"))
    workflows = place.workflows()
    assert [one.name for one in workflows.found] == ["z", "code-change", "research"]
    assert (workflows.unusable, workflows.notices) == ((), ())
    assert workflows.get("research").spec.source == str(packaged_workflows() / "research.yaml")


def test_one_of_her_own_counts_instead_of_one_that_comes_with_chatops_and_nothing_is_said(place: Place) -> None:
    place.file("research.yaml", made("mine"))
    place.file("code-change.yaml", {"stepss": []})
    workflows = place.load().workflows()
    assert {one.name: one.spec.description for one in workflows.found}["research"] == "mine"
    assert workflows.notices == ()
    with pytest.raises(ConfigError, match="stepss"):
        workflows.get("code-change")


def test_one_that_comes_with_chatops_is_there_only_with_its_roles(place: Place) -> None:
    place.own()
    assert place.workflows().found == ()
    place.paths.registry.write_text(json.dumps({"version": 3, "roles": {"coder": {}}}))
    assert [one.name for one in place.workflows().found] == ["code-change"]
    place.machine()
    place.site.path.write_text(json.dumps({"version": 3, "roles": {"researcher": {}}}))
    assert [one.name for one in place.workflows().found] == ["code-change", "research"]
