"""Tell which part of the sandbox made a command fail, by its output, and what changes that."""

import json
import os
import re
from pathlib import Path

from chatops.domain.sandbox import NARROWEST, SandboxSpec
from chatops.domain.tools import Exposure
from chatops.sandbox.confinement import Confinement
from chatops.sandbox.lacks import unseen
from chatops.sandbox.process import Command
from chatops.toolkit.base import ToolContext
from chatops.toolkit.output import visible

_NETWORK = re.compile(
    r"could not resolve host|temporary failure in name resolution|name or service not known|network is unreachable"
    r"|nodename nor servname|failed to resolve|no address associated|getaddrinfo"
    r"|\b(?:EAI_AGAIN|ENETUNREACH|ENOTFOUND)\b|network unreachable|unable to resolve|connection refused|ECONNREFUSED"
    r"|failed to establish a new connection",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"read-only file system|EROFS|Errno 30", re.IGNORECASE)
_HIDDEN = re.compile(r"permission denied|EACCES|Errno 13", re.IGNORECASE)
_CONFIGURES = re.compile(r"\.git/(?:config|hooks|info|modules|worktrees)\b")
_MISSING = re.compile(
    r"command not found|no such file or directory|required file not found|no module named|bad interpreter",
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
) -> tuple[str, SandboxSpec]:
    """Return which part of the sandbox made `argv` fail with `code`, and the limits with which it would not.

    `command` is `argv` wrapped in its sandbox. Empty if the output gives no hint.
    """
    spec = context.sandbox
    refused = [line for line in output.splitlines() if _READ_ONLY.search(line)]
    if any(".git" in line for line in refused) and spec.git != "writable":
        configures = spec.git == "commit" or any(_CONFIGURES.search(line) for line in refused)
        needs = SandboxSpec(git="writable" if configures else "commit")
        what = "config, hooks and info in .git are" if spec.git == "commit" else ".git is"
        return _key(f"{what} read-only in the sandbox", f'"git": "{needs.git}"', context=context), needs
    if refused and context.exposure is Exposure.READ_ONLY:
        return 'the rule that allows this command makes the workspace read-only ("workspace": "read")', NARROWEST
    if refused:
        return "the sandbox allows writing only in the workspace", NARROWEST
    if hidden := _masked(output, command, workspace=context.workspace):
        return f"hidden from commands that a rule allows: {', '.join(hidden)}", NARROWEST
    missing = _unseen(argv, command=command, confined=confined, context=context)
    if missing and (code == _NOT_FOUND or _MISSING.search(output)):
        shown = [visible(folder, limit=200) for folder in missing]
        text = _key(f"the sandbox does not show {' and '.join(shown)}", f'"read": {json.dumps(shown)}', context=context)
        return text, SandboxSpec(read=missing)
    if not spec.network and _NETWORK.search(output):
        return _key("the sandbox has no network", '"network": true', context=context), SandboxSpec(network=True)
    return "", NARROWEST


def _key(what: str, setting: str, *, context: ToolContext) -> str:
    once = "+ in the dialog of the repeated call allows it once"
    if context.contained:
        # Calls in the copy do not ask.
        return f"{what}; /contain off ends the containment, then {once}"
    return f'{what}; {once}, "sandbox": {{{setting}}} in the registry changes that'


def _masked(output: str, command: Command, *, workspace: Path) -> list[str]:
    """Return the masked files that, by the output, could not be opened."""
    words = command.argv
    empty = [at for at, word in enumerate(words) if word == "--ro-bind" and words[at + 1] == "/dev/null"]
    errors = "\n".join(line for line in output.splitlines() if _HIDDEN.search(line))
    found = [words[at + 2] for at in empty if os.path.basename(words[at + 2]) in errors]
    return [visible(os.path.relpath(path, workspace), limit=100) for path in found[:_MOST_NAMED]]


def _unseen(argv: tuple[str, ...], *, command: Command, confined: Confinement, context: ToolContext) -> tuple[str, ...]:
    """Return the environments that the program needs and the sandbox does not show."""
    words = argv[-1].split() if argv[:2] == ("/bin/bash", "-c") else argv
    return unseen(words[0], cwd=command.cwd, confined=confined, context=context)
