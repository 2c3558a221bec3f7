"""Homes of every kind: a full disk, a read-only one. Mounts of the program's own, made without rights.

A namespace of its own lets any user mount what nobody else sees; where that is switched off such a test is skipped.
"""

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.e2e.installation import ChatTerminal, Installation
from tests.support.command_line import Ran, program_environment
from tests.support.waiting import PATIENCE


@cache
def can_mount() -> bool:
    """Return True if this user may mount in a namespace of its own."""
    if shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    tried = subprocess.run(["unshare", "-rm", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False)
    return tried.returncode == 0


def small_disk(place: Path, *, size: str, files: int = 0) -> str:
    """The command that puts an empty disk of that size over `place`; 0 `files`: as many as there is room for."""
    return f"mount -t tmpfs -o size={size},nr_inodes={files} none {shlex.quote(str(place))}"


def read_only(place: Path) -> str:
    """The command after which nothing at `place` can be written."""
    name = shlex.quote(str(place))
    return f"mount --bind {name} {name} && mount -o remount,bind,ro {name}"


class Mounts:
    """Mounts that only the programs started with `before` see, until the block ends."""

    def __init__(self, installation: Installation, setup: str) -> None:
        """`setup`: shell commands, of this module."""
        self._installation = installation
        self._setup = setup

    def __enter__(self) -> Self:
        self._holder = subprocess.Popen(
            ["unshare", "-rm", "sh", "-c", f"{self._setup} && echo mounted && exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._holder.stdout is not None
        assert self._holder.stdout.readline() == "mounted\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._holder.communicate()

    @property
    def before(self) -> list[str]:
        """Return the words to put before a command."""
        inside = ["nsenter", "-t", str(self._holder.pid), "-U", "-m", "--preserve-credentials"]
        return [*inside, f"--wd={self._installation.workspace}"]

    def seen(self, place: Path) -> Path:
        """`place` as the programs in there see it."""
        return Path(f"/proc/{self._holder.pid}/root{place}")

    def store(self, folder: Path) -> Path:
        """A copy of the store in there, in `folder`."""
        for file in self.seen(self._installation.home / "data").glob("chatops.db*"):
            shutil.copy(file, folder / file.name)
        return folder / "chatops.db"


def open_chat(
    installation: Installation, *arguments: str, before: list[str], env: Mapping[str, str] | None = None, rows: int = 36
) -> ChatTerminal:
    """The chat on a new terminal, started by what `before` says."""
    return ChatTerminal(
        [*before, sys.executable, "-m", "chatops", *installation.flags, *arguments],
        env={"PYTHONPATH": program_environment()["PYTHONPATH"], **(env or {})},
        cwd=installation.workspace,
        cols=110,
        rows=rows,
    )


def run(installation: Installation, *arguments: str, before: list[str], env: Mapping[str, str] | None = None) -> Ran:
    """A command without a terminal, started by what `before` says."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "chatops", *installation.flags, *arguments],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=installation.workspace,
        env=program_environment() | dict(env or {}),
        timeout=PATIENCE,
        check=False,
    )
    return Ran(code=done.returncode, out=done.stdout, err=done.stderr)


def fill(folder: Path, *, left: int = 0) -> Path:
    """Write a file that takes all of the disk but `left` bytes; it, to be removed again."""
    filler = folder / "filler"
    with filler.open("ab", buffering=0) as file:
        for size in (1 << 16, 1 << 12, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError:
                continue
    os.truncate(filler, filler.stat().st_size - left)
    os.sync()
    return filler
