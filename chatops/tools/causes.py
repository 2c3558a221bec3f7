"""Tell which part of the sandbox made a command fail, by its output, and what changes that."""

import json
import os
import re
import shutil
from pathlib import Path

from chatops.domain.tools import Exposure
from chatops.tools.base import ToolContext
from chatops.tools.output import visible
from chatops.tools.process import Command
from chatops.tools.sandbox import Confinement, is_visible

_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|nodename nor servname|failed to resolve|no address associated|getaddrinfo|EAI_AGAIN|ENETUNREACH|ENOTFOUND"
    r"|network unreachable|unable to resolve|connection refused|ECONNREFUSED|failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS|Errno 30", re.IGNORECASE)
_HIDDEN = re.compile(r"permission denied|EACCES|Errno 13", re.IGNORECASE)
_MISSING = re.compile(
    r"command not found|no such file or directory|required file not found|no module attempt_name|bad interpreter",
    re.IGNORECASE,
)
_NOT_FOUND = 127
_MOST_NAMED = 3


def likely_cause(
    output: str,
    *,
    code: int,
    argv: tuple[str, ...],
    command: Command,
    confined: Confinement,
    context: ToolContext,
) -> str:
    """Return which part of the sandbox made `argv` fail with `code`, and the registry key that changes it.

    `command` is `argv` wrapped in its sandbox. Empty if the output gives no hint.
    """
    spec = context.sandbox
    refused = [line for line in output.splitlines() if _READ_ONLY.search(line)]
    if any(".git" in line for line in refused) and spec.git != "writable":
        if spec.git == "commit":
            return _key("config, hooks and info of .git are read-only in the sandbox", '"git": "writable"')
        return _key(".git is read-only in the sandbox", '"git": "commit"')
    if refused and context.exposure is Exposure.READ_ONLY:
        return 'the rule that allows this command makes the workspace read-only ("workspace": "read")'
    if refused:
        return "the sandbox allows writing only in the workspace"
    if hidden := _masked(output, command, workspace=context.workspace):
        return f"hidden from commands that a rule allows: {', '.join(hidden)}"
    missing = _unseen(argv, command=command, confined=confined, context=context)
    if missing and (code == _NOT_FOUND or _MISSING.search(output)):
        return _key(f"the sandbox does not show {' and '.join(missing)}", f'"read": {json.dumps(missing)}')
    if not spec.network and _NETWORK.search(output):
        return _key("the sandbox has no network", '"network": true')
    return ""


def _key(what: str, setting: str) -> str:
    return f'{what}; "sandbox": {{{setting}}} in the registry changes that'


def _masked(output: str, command: Command, *, workspace: Path) -> list[str]:
    """Return the masked files that, by the output, could not be opened."""
    words = command.argv
    empty = [at for at, word in enumerate(words) if word == "--ro-bind" and words[at + 1] == "/dev/null"]
    errors = "\n".join(line for line in output.splitlines() if _HIDDEN.search(line))
    found = [words[at + 2] for at in empty if os.path.basename(words[at + 2]) in errors]
    return [visible(os.path.relpath(path, workspace), limit=100) for path in found[:_MOST_NAMED]]


def _unseen(argv: tuple[str, ...], *, command: Command, confined: Confinement, context: ToolContext) -> list[str]:
    """Return the environments that the program needs and the sandbox does not show."""
    words = argv[-1].split() if argv[:2] == ("/bin/bash", "-c") else argv
    found = os.path.join(command.cwd, words[0]) if "/" in words[0] else shutil.which(words[0])
    if not found:
        return []
    # A script in a virtual environment needs the interpreter there, which in turn needs its base installation.
    needed = [found, os.path.join(os.path.dirname(found), "python")]
    places = [Path(place) for path in needed for place in (path, os.path.realpath(path)) if os.path.exists(path)]
    unseen = (
        place
        for place in places
        if not is_visible(place, confined=confined, spec=context.sandbox, workspace=context.workspace)
    )
    return list(dict.fromkeys(visible(str(_environment(place)), limit=200) for place in unseen))


def _environment(program: Path) -> Path:
    """Return the virtual environment or installation that contains `program`, otherwise its folder."""
    return program.parent.parent if program.parent.name in ("bin", "sbin") else program.parent
