"""docs/python.md: each program runs as it is printed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import document
from tests.support.command_line import program_environment
from tests.support.waiting import PATIENCE

PAGE = document.DOCS / "python.md"
PRINTED = {
    "ask": "The invoice is due on Friday.",
    "decide": "(demo) shell_exec gave no output.",
    "follow": "High tide at Oban: 06:00.",
    "continue": "(demo) file_list gave:",
}


@pytest.mark.parametrize("name", PRINTED)
def test_a_program_of_the_page(name: str, folder: Path) -> None:
    code = "\n".join(document.block(f"python: {name}", page=PAGE))
    ran = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder,
        env=program_environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert PRINTED[name] in ran.stdout
