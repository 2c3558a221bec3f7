"""The user's git settings for sandboxed commands, without what could hold a credential or start a program."""

import os
import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

_KEPT_KEY = re.compile(
    r"(?:user\.(?:name|email)|(?:author|committer)\.(?:name|email)|init\.defaultbranch"
    r"|core\.(?:autocrlf|eol|safecrlf|quotepath|whitespace|abbrev|filemode|ignorecase|precomposeunicode|commentchar)"
    r"|(?:color|column|pull|fetch|advice|status|log|branch|rerere|i18n|apply|blame|stash|feature|merge|rebase)\..+"
    r"|push\.(?:default|autosetupremote|followtags)|diff\.(?:algorithm|renames|colormoved|context|mnemonicprefix|noprefix)"
    r"|commit\.(?:verbose|status|cleanup)|tag\.sort|format\.pretty|submodule\.recurse|safe\.directory"
    r"|url\..+\.(?:insteadof|pushinsteadof)|alias\..+)"
)
"""Names of settings that commands get, as ``section.subsection.key``, in lower case."""
_PROGRAM_KEY = re.compile(
    r"merge\..+\.driver|(?:merge|rebase)\.(?:tool|guitool|instructionformat)|.*\.(?:cmd|path|command)"
)
"""Those among them that name a program, or a text that one obeys."""
_CREDENTIAL = re.compile(r"://[^/\s]*@|token|password|secret|\bbearer\b|[\r\n\0]", re.IGNORECASE)
_LIST_S = 2.0
"""Seconds for git to list the settings of one file."""
_MAX_FILTERED = 100_000
"""Bytes of the generated file."""


def filtered_config() -> bytes:
    """Return the settings of ``~/.gitconfig`` (and of git's XDG file) that commands get; empty without any.

    Kept are settings from a list, among them name and address. Left out are helpers, headers, tokens, URLs with a
    password, programs, aliases for shell commands, and files that it includes.
    """
    home = os.environ.get("HOME", "")
    names = (".config/git/config", ".gitconfig") if os.path.isabs(home) else ()
    files = []
    for path in (os.path.join(home, name) for name in names):
        try:
            info = os.stat(path)
        except OSError:
            continue
        files.append((path, info.st_mtime_ns, info.st_size))
    return b"".join(_filter_config(*file) for file in files)[:_MAX_FILTERED]


@lru_cache(maxsize=8)
def _filter_config(path: str, changed_ns: int, size: int) -> bytes:
    """Return the part of one file. Cached until it changes."""
    argv = ["git", "config", "--file", path, "--no-includes", "--null", "--list"]
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_LIST_S,
            check=False,
            cwd="/",
            env={"PATH": "/usr/local/bin:/usr/bin:/bin", "GIT_CONFIG_NOSYSTEM": "1"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return b""
    return "".join(_kept_settings(done.stdout.decode("utf-8", "replace"))).encode() if done.returncode == 0 else b""


def _kept_settings(listed: str) -> Iterator[str]:
    for entry in listed.split("\0"):
        # A setting without a value has no line end either.
        name, separator, value = entry.partition("\n")
        if not separator or not _is_kept(name, value):
            continue
        section, _, key = name.rpartition(".")
        first, dot, subsection = section.partition(".")
        if dot:
            escaped = subsection.replace("\\", "\\\\").replace('"', '\\"')
            first = f'{first} "{escaped}"'
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t")
        yield f'[{first}]\n\t{key} = "{escaped}"\n'


def _is_kept(name: str, value: str) -> bool:
    lowered = name.lower()
    if _KEPT_KEY.fullmatch(lowered) is None or _PROGRAM_KEY.fullmatch(lowered) or _CREDENTIAL.search(f"{name} {value}"):
        return False
    return not (lowered.startswith("alias.") and value.lstrip().startswith("!"))


def config_place() -> Path | None:
    """Return where git looks for the user's settings."""
    home = os.environ.get("HOME", "")
    return Path(os.path.realpath(home)) / ".gitconfig" if os.path.isabs(home) else None
