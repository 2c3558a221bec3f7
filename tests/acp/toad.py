"""Install toad, an ACP client for the terminal that others wrote, and run the tests of the tier `clients`.

``python -m tests.acp.toad [PYTEST ARGUMENT…]``. It needs a package index, 60 MB, and Python 3.13 or 3.14: on the PATH,
of pyenv, or the program that ``$CHATOPS_TEST_PYTHON313`` names.

toad is under the AGPL, so nothing of it is in this repository. It is installed beside the servers of
`tests.servers.installed`. It is written for Python 3.14, so `_rewrite` takes out of that installation what 3.13 lacks:
annotations that are evaluated late, and a pool of interpreters.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.servers.installed import FOLDER

TOAD = "batrachian-toad==0.6.20"
_PLACE = FOLDER / "toad"
PROGRAM = _PLACE / "bin" / "toad"

_DOCSTRING = re.compile(r'\A(?:\s*#.*\n)*\s*[rRuU]?("""|\'\'\')(?:.|\n)*?\1[^\n]*\n')
_FUTURE = "from __future__ import annotations\n"


def installed() -> bool:
    """Return True if toad can be started."""
    return (_PLACE / "complete").exists()


def install() -> str:
    """Install toad if it is missing. Returns why it could not be, or nothing."""
    if installed():
        return ""
    python = _python()
    if python is None:
        return "Python 3.13 or 3.14 is not installed"
    FOLDER.mkdir(parents=True, exist_ok=True)
    for command in (
        [python, "-m", "venv", "--clear", str(_PLACE)],
        [str(_PLACE / "bin" / "python"), "-m", "pip", "install", "-q", "--ignore-requires-python", TOAD],
    ):
        print("$", *command, flush=True)
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if done.returncode:
            return done.stderr.strip().rpartition("\n")[2] or f"{command[0]} ended with {done.returncode}"
    (package,) = _PLACE.glob("lib/python3.*/site-packages/toad")
    for file in package.rglob("*.py"):
        file.write_text(_rewrite(file.read_text("utf-8")), "utf-8")
    (_PLACE / "complete").touch()
    return ""


def _python() -> str | None:
    given = os.environ.get("CHATOPS_TEST_PYTHON313", "")
    pyenv = Path(os.environ.get("PYENV_ROOT", "") or Path.home() / ".pyenv") / "versions"
    for one in (given, "python3.14", "python3.13", *map(str, sorted(pyenv.glob("3.1[34].*/bin/python3")))):
        found = shutil.which(one) if one else None
        # pyenv has programs for versions that it does not start.
        if found and subprocess.run([found, "-c", ""], capture_output=True, check=False).returncode == 0:
            return found
    return None


def _rewrite(source: str) -> str:
    if _FUTURE not in source:
        docstring = _DOCSTRING.match(source)
        start = docstring.end() if docstring else 0
        source = source[:start] + _FUTURE + source[start:]
    source = source.replace("InterpreterPoolExecutor", "ThreadPoolExecutor")
    return re.sub(r"\beval\((\w+\.annotation)\)", r"eval(\1, callable.__globals__)", source)


if __name__ == "__main__":
    if reason := install():
        print(f"toad is not installed: {reason}")
    sys.exit(pytest.main(["-m", "clients", "tests/acp", *sys.argv[1:]]))
