"""chatops as scripts use it: arguments in, exit code and two streams out."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import pytest

from chatops.cli import main
from chatops.commands import parser
from chatops.commands.argument_parser import Parser
from tests.support.waiting import PATIENCE

_BUILD = parser.build_parser
REPOSITORY = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """Result of one command."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """stdout as JSON."""
        return json.loads(self.out)


class CommandLine:
    """Runs commands in one workspace, in this process."""

    def __init__(self, workspace: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.workspace = workspace
        self._capsys = capsys

    def __call__(self, *arguments: str) -> Ran:
        """Run one command; stdin is what the test made it."""
        self._capsys.readouterr()
        with patch.object(parser, "build_parser", _build_once):
            code = main(list(arguments))
        out, err = self._capsys.readouterr()
        return Ran(code=code, out=out, err=err)

    def paused(self, prompt: str, *arguments: str) -> tuple[str, str]:
        """Run `prompt` as coder up to its first gated call; the session's id and the call's."""
        ran = self("-p", prompt, "--role", "coder", "--output-format", "json", *arguments)
        assert ran.code == 3, ran.err
        return ran.json["session_id"], ran.json["pending"][0]["id"]

    def logged(self, call: str) -> list[str]:
        """The rows of the log about a call, each as its kind and what it says. All name the same digest."""
        rows = [row for row in self("audit", "list", "--output-format", "json").json if row.get("call_id") == call]
        assert len({row["digest"] for row in rows if "digest" in row}) == 1, rows
        said = [row.get("decision", {}).get("kind") or row.get("verdict") or row.get("outcome") or "" for row in rows]
        return [f"{row['kind']} {word}".strip() for row, word in zip(rows, said, strict=True)]


@cache
def _whole_parser() -> Parser:
    return _BUILD()


def _build_once(words: Sequence[str] | None = None) -> Parser:
    """Build the parser of all commands once, as a program does: it would be a third of a command's CPU."""
    whole = _whole_parser()
    return whole if words is None or not whole.are_all_options(words) else _BUILD(words)


def program(
    *arguments: str,
    stdin: str | None = None,
    cwd: Path,
    env: Mapping[str, str] = MappingProxyType({}),
    timeout: float = PATIENCE,
) -> Ran:
    """Run the real program, killed after so many seconds at the latest. stdin None: there is nothing to read.

    `env` is added to the environment of this process.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-m", "chatops", *arguments],
            input=stdin,
            stdin=subprocess.DEVNULL if stdin is None else None,
            capture_output=True,
            text=True,
            cwd=cwd,
            env={**program_environment(), **env},
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(code=-signal.SIGKILL, out="", err="")
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def program_environment() -> dict[str, str]:
    """The environment for a program that a test starts: this checkout, whether or not it is installed."""
    return os.environ | {"PYTHONPATH": str(REPOSITORY)}


def registry_for(workspace: Path, url: str, *, tools: list[str] | None = None) -> str:
    """A registry beside the workspace whose only role, coder, talks to `url`; everyone is operator."""
    model = {"type": "openai", "api_url": url, "model_name": "m", "timeout_s": {"connect": 5, "first_token": 60}}
    value = {
        "version": 3,
        "default_role": "coder",
        "models": {"fake": model},
        "roles": {"coder": {"primary": "fake", "tools": tools or ["file_read"]}},
        "users": {"*": {"access_level": "operator"}},
    }
    file = workspace.parent / "registry.json"
    file.write_text(json.dumps(value))
    return str(file)
