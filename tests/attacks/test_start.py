"""The program started in a hostile folder: nothing of the folder is run, imported or obeyed."""

import os
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.support import forking
from tests.support.command_line import REPOSITORY
from tests.support.waiting import PATIENCE

SHADOWED = ("textual", "openai", "pydantic", "select", "sqlite3", "json", "platformdirs", "yaml", "sitecustomize")
LOADED_EARLY = ("re", "typing", "enum", "pathlib", "copyreg", "dataclasses", "logging", "argparse", "inspect", "ast")
"""Imports of the package's first modules."""
BY_THE_INTERPRETER = ("importlib", "collections", "functools", "contextlib", "types", "warnings")
"""Modules that ``python -m`` imports before it looks for the package."""
PROGRAM = Path(sys.executable).with_name("chatops")


@pytest.fixture(autouse=True)
def real_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the interpreter look for each module, which one that was forked has done before."""
    monkeypatch.setattr(forking, "can_fork", lambda *_: False)


@pytest.mark.some(1)
@pytest.mark.parametrize("path", [str(REPOSITORY), f"{REPOSITORY}:", f".:{REPOSITORY}"])
def test_modules_of_the_current_folder_are_never_imported(tmp_path: Path, path: str) -> None:
    for name in (*SHADOWED, *LOADED_EARLY):
        (tmp_path / f"{name}.py").write_text("open('PWNED', 'w')\n")
    if path != str(REPOSITORY):
        # The interpreter itself imports this one before any line of ours.
        (tmp_path / "sitecustomize.py").unlink()
    runs_nothing_of(tmp_path, path, sys.executable, "-m", "chatops")


@pytest.mark.some(1)
@pytest.mark.skipif(not PROGRAM.exists(), reason="the program is not installed here")
@pytest.mark.parametrize("path", ["", f"{REPOSITORY}:", f".:{REPOSITORY}"])
def test_the_installed_program_imports_nothing_of_the_folder(tmp_path: Path, path: str) -> None:
    for name in {*SHADOWED, *LOADED_EARLY, *BY_THE_INTERPRETER} - imported_by_the_script():
        if name != "sitecustomize" and name != "warnings":
            (tmp_path / f"{name}.py").write_text("open('PWNED', 'w')\n")
    runs_nothing_of(tmp_path, path, PROGRAM)


def runs_nothing_of(folder: Path, path: str, *program: str | Path) -> None:
    done = subprocess.run(
        [*program, "-p", "hello", "--model", "demo"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (folder / "PWNED").exists()


def imported_by_the_script() -> set[str]:
    """Return the modules that the script of some pip versions imports before the package: `re` and what it needs."""
    script = "import re, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_what_the_interpreter_has_imported_from_the_folder_stops_the_program(tmp_path: Path) -> None:
    """Nothing of ours runs before that; the folder gets no conversation, key or file of the user at least."""
    source = Path(types.__file__).read_text(encoding="utf-8")
    (tmp_path / "types.py").write_text(source, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "chatops", "-p", "hello", "--model", "demo"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{REPOSITORY}:"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "imported types from the current folder" in done.stderr
    assert "python -P -m chatops" in done.stderr
