"""Text that no file of the project may contain."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Written in pieces, so that this file passes its own test.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in [
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("npmjs", "com"),
        ("yarnpkg", "com"),
        ("proxy", "golang", "org"),
        ("crates", "io"),
        ("rubygems", "org"),
        ("hub", "docker", "com"),
        ("ghcr", "io"),
    ]
]
UNFINISHED = ["TO" + "DO", "FIX" + "ME", "X" + "XX"]
BINARY = {".png", ".gif", ".ico", ".db", ".sqlite", ".svgz"}


def _project_files() -> list[Path]:
    """The files in git; outside a checkout, the files that an archive of the project would contain."""
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "-C", str(ROOT), "ls-files", "-z"],
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode == 0 and listed.stdout:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    tops = [ROOT / name for name in ("chatops", "personas", "tests", ".ci")]
    found = [path for top in tops for path in top.rglob("*") if "__pycache__" not in path.parts]
    return [path for path in [*found, *ROOT.glob("*.*")] if path.is_file()]


def _matches(pattern: str) -> list[str]:
    wanted = re.compile(pattern)
    found = []
    for path in _project_files():
        if path.suffix in BINARY or not path.is_file():
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
            if wanted.search(line):
                found.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}")
    return found


def test_the_search_finds_what_is_there() -> None:
    assert any("test_text.py" in line for line in _matches("def test_the_search_finds_what_is_there"))


@pytest.mark.some(1)
@pytest.mark.parametrize("host", REGISTRY_HOSTS)
def test_no_file_names_the_host_of_a_package_registry(host: str) -> None:
    assert _matches(rf"(?i)(?<![\w-]){re.escape(host)}\b") == []


@pytest.mark.some(1)
@pytest.mark.parametrize("word", UNFINISHED)
def test_no_file_leaves_a_note_to_finish_later(word: str) -> None:
    # Data stays as it was written elsewhere.
    assert [line for line in _matches(rf"\b{word}\b") if not line.startswith("tests/data/")] == []


def test_the_top_level_stays_small() -> None:
    allowed = {
        ".ci",
        ".github",
        ".gitignore",
        ".pre-commit-config.yaml",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "LICENSE",
        "README.md",
        "chatops",
        "docs",
        "model_registry.json",
        "personas",
        "pyproject.toml",
        "tests",
    }
    assert {path.relative_to(ROOT).parts[0] for path in _project_files()} <= allowed
