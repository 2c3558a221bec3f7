"""The program started in a hostile folder: nothing of the folder is run, imported or obeyed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.command_line import REPOSITORY
from tests.support.waiting import PATIENCE

SHADOWED = ("textual", "openai", "pydantic", "select", "sqlite3", "json", "platformdirs", "yaml", "sitecustomize")


@pytest.mark.parametrize("path", [str(REPOSITORY), f"{REPOSITORY}:", f".:{REPOSITORY}"])
def test_modules_of_the_current_folder_are_never_imported(tmp_path: Path, path: str) -> None:
    for name in SHADOWED:
        (tmp_path / f"{name}.py").write_text("open('PWNED', 'w')\n")
    if path != str(REPOSITORY):
        # The interpreter itself imports this one before any line of ours.
        (tmp_path / "sitecustomize.py").unlink()
    done = subprocess.run(
        [sys.executable, "-m", "chatops", "-p", "hello", "--model", "demo"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert not (tmp_path / "PWNED").exists()
