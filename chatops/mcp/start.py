"""Describe what the start of a server would run, for the user to decide on where the sandbox is below level basic.

The text is what the user sees and what the yes is bound to: another program, argument, variable, folder or limit makes
another text. Other files that the program loads are not part of it.
"""

import hashlib
import os
import shlex
import shutil
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from chatops.config.workspace_files import Item, ItemKind
from chatops.domain.sandbox import SandboxLevel
from chatops.policy.servers import McpServerSpec
from chatops.sandbox.confinement import Confinement
from chatops.toolkit.output import visible

_LARGEST = 1_000_000_000
_NOT_CONFINED = {
    SandboxLevel.NONE: "Nothing confines it: it runs as you, and can read and change your files and use the network.",
    SandboxLevel.LANDLOCK: "Landlock confines it, which is less than bubblewrap.",
}


def start_of(spec: McpServerSpec, confined: Confinement, *, cwd: Path, environment: Mapping[str, str]) -> Item:
    """Return what is started as an item of trust. Reads the program: call it in a thread."""
    variables = sorted({name for name, _ in spec.env} | {name for name in spec.sandbox.env if name in environment})
    lines = [
        f"runs:      {shlex.join(spec.command)}",
        *_files(spec.command, cwd=cwd, path=environment.get("PATH", "")),
        f"in:        {cwd}",
        f"variables: {', '.join(variables) or 'none of yours'}",
        f"sandbox:   level {confined.level.word}: {confined.description}",
        _NOT_CONFINED[confined.level],
    ]
    data = "\n".join(visible(line, limit=len(line)) for line in lines).encode("utf-8", "backslashreplace")
    digest = hashlib.sha256(data).hexdigest()
    return Item(kind=ItemKind.SERVER_START, path=spec.name, size=len(data), digest=digest, data=data)


def _files(command: tuple[str, ...], *, cwd: Path, path: str) -> Iterator[str]:
    """Yield a line for the program and for each file among its arguments, with the digest of its content."""
    program, *arguments = command
    found = os.path.join(cwd, program) if "/" in program else shutil.which(program, path=path)
    yield f"program:   {_content(found)}" if found else f"program:   {program}, which is not there"
    for word in arguments:
        if os.path.isfile(place := os.path.join(cwd, word)):
            yield f"file:      {_content(place)}"


def _content(place: str) -> str:
    real = os.path.realpath(place)
    try:
        with open(real, "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode) or status.st_size > _LARGEST:
                return f"{real}, which cannot be read"
            return f"{real}, SHA-256 {hashlib.file_digest(file, 'sha256').hexdigest()}"
    except OSError as error:
        return f"{real}, which cannot be read ({error.strerror})"
