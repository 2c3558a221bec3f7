"""Metadata and contents of the package."""

import ast
import importlib
import itertools
import pkgutil
import sys
import tomllib
from pathlib import Path

import chatops
from chatops.config.workflow_files import packaged_workflows

ROOT = Path(__file__).resolve().parents[2]


def _modules() -> list[str]:
    return [
        module.name
        for module in pkgutil.walk_packages(chatops.__path__, "chatops.")
        if not module.name.endswith("__main__")
    ]


def test_every_exported_name_exists_and_is_listed_once() -> None:
    for name in _modules():
        exported = list(getattr(importlib.import_module(name), "__all__", ()))
        module = importlib.import_module(name)
        assert [entry for entry in exported if not hasattr(module, entry)] == [], name
        assert len(set(exported)) == len(exported), name


def test_every_module_says_what_it_is_for() -> None:
    assert [name for name in _modules() if not (importlib.import_module(name).__doc__ or "").strip()] == []


def test_a_plain_install_needs_only_what_was_agreed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    needed = {requirement.split(">")[0] for requirement in project["dependencies"]}
    brought = {
        "annotated-types",
        "anyio",
        "httpx2",
        "markdown-it-py",
        "pydantic-core",
        "pygments",
        "referencing",
        "rich",
    }
    plain = {"textual", "openai", "pydantic", "platformdirs", "pyyaml", "jsonschema", "pathspec"}
    assert needed == plain | brought | {"rich", "tree-sitter", "tree-sitter-bash"}


def test_each_package_that_is_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = [needed for name, needed in project["optional-dependencies"].items() if name != "test"]
    requirements = [*project["dependencies"], *itertools.chain.from_iterable(extras)]
    declared = {requirement.split(">")[0].split("[")[0].replace("-", "_") for requirement in requirements}
    called_otherwise = {
        "pillow": "PIL",
        "pyyaml": "yaml",
        "markdown_it_py": "markdown_it",
        "agent_client_protocol": "acp",
    }
    names = {called_otherwise.get(name, name) for name in declared} | {"chatops", "_typeshed"}
    imported: set[str] = set()
    for file in (ROOT / "chatops").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add(str(node.module).partition(".")[0])
    assert imported - set(sys.stdlib_module_names) <= names


def test_the_wheel_carries_the_registry_and_the_personas() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    assert all((ROOT / source).exists() for source in wheel["force-include"])
    assert set(wheel["force-include"].values()) == {"chatops/_data/model_registry.json", "chatops/_data/personas"}


def test_the_wheel_carries_the_workflows_as_a_part_of_the_package() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    names = {file.name for file in packaged_workflows().glob("*.yaml")}
    assert wheel["packages"] == ["chatops"] and packaged_workflows().is_relative_to(Path(chatops.__file__).parent)
    assert names == {"code-change.yaml", "research.yaml"}
