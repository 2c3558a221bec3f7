"""Which files of a folder git ignores, by the ``.gitignore`` files in it and below.

`pathspec` turns the patterns into regular expressions. They come with the workspace, so a stranger may have written
them, and the six stars of ``*a*a*a*a*a*b`` keep Python busy for minutes on one long name, without letting another
thread run. So only patterns with at most `_MAX_STARS` are read, and only for `_MATCH_S`. What is left out is not
ignored, which harms nothing: these rules save time and protect no file.

Only the standard library is imported before there is a ``.gitignore``: the search's own process uses this module.
"""

import os
import re
import stat
import time
import warnings
from collections.abc import Callable
from typing import NamedTuple

_MAX_STARS = 2
"""Maximum number of stars of a pattern, not counting ``**/`` at its start. Real patterns rarely have more."""
_MAX_RULES = 1_000
"""Maximum number of lines of one ``.gitignore`` that are read."""
_MAX_BYTES = 100_000
"""Maximum number of bytes of one ``.gitignore`` that are read."""
_MAX_PATH = 1_000
"""Maximum number of characters of a path that is matched."""
_MATCH_S = 2.0
"""Seconds of a walk after which no slow pattern is matched. A path that comes to one is not ignored."""
_STARS = re.compile(r"\*+")


class _Rule(NamedTuple):
    ignores: bool
    """False: it is an exception."""
    by_name: bool
    """Matched against the name alone, not the path."""
    slow: bool
    """One match may take milliseconds."""
    match: Callable[[str], object]


class GitIgnore:
    """The rules below one folder, for a walk from the top down that does not enter ignored folders."""

    def __init__(self, root: str | os.PathLike[str], *, start: str = "") -> None:
        """Prepare the rules below `root`; `start` is the folder in it, relative to it, at which the walk starts.

        If `start` is ignored itself, the rules above it do not count: a user who names it wants to see what is in it.
        """
        self._root = os.fspath(root)
        self._until = time.monotonic() + _MATCH_S
        self._rules: dict[str, tuple[_Rule, ...]] = {}
        self._top = ""
        """The highest folder whose rules count."""
        parts = [part for part in start.split("/") if part not in ("", ".")]
        folders = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        if any(self.ignores(f"{folder}/") for folder in folders):
            self._top = folders[-1]

    def ignores(self, path: str) -> bool:
        """Return True if git ignores `path`, relative to the root; that of a folder ends with a slash."""
        if len(path) > _MAX_PATH:
            return False
        folder, _, name = path.rstrip("/").rpartition("/")
        name += "/" if path.endswith("/") else ""
        while True:
            rules = self._rules.get(folder)
            if rules is None:
                rules = self._rules[folder] = _read_rules(self._root, folder)
            below = path[len(folder) + 1 :] if folder else path
            for rule in rules:
                if rule.slow and time.monotonic() > self._until:
                    return False  # Nor by the rules that follow: this one may be an exception from them.
                if rule.match(name if rule.by_name else below):
                    return rule.ignores
            if folder == self._top:
                return False
            folder = folder.rpartition("/")[0]


def _read_rules(root: str, folder: str) -> tuple[_Rule, ...]:
    """Return the rules of the ``.gitignore`` in a folder below `root`, the last one first, because it decides."""
    text = _read_gitignore(root, folder)
    if not text:
        return ()
    # Slow to import, and needed only where there is such a file.
    from pathspec import lookup_pattern

    pattern_of = lookup_pattern("gitignore")
    rules: list[_Rule] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for line in text.splitlines()[:_MAX_RULES]:
            written = line.lstrip("!")
            stars = len(_STARS.findall(written.removeprefix("**/")))
            if stars > _MAX_STARS:
                continue
            # Read a/** as a/*, which spares the folder itself, and is the same for a walk from the top down.
            line = line.rstrip().removesuffix("*") if line.rstrip().endswith("/**") else line
            try:
                pattern = pattern_of(line)
            except (ValueError, re.error):
                continue
            expression = getattr(pattern, "regex", None)
            if expression is not None and pattern.include is not None:
                by_name = "/" not in written.rstrip().rstrip("/")
                # A path may be much longer than a name, so that even one star may take long.
                slow = stars == _MAX_STARS or not by_name
                rules.append(_Rule(pattern.include, by_name, slow, expression.match))
    return tuple(reversed(rules))


def _read_gitignore(root: str, folder: str) -> str:
    """Return the text of a folder's ``.gitignore``; empty if there is none.

    No link below `root` is followed, because it may lead to what the user was not shown. A pipe of that name must not
    stop the walk.
    """
    parts = [part for part in folder.split("/") if part]
    try:
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for part in (*parts, ".gitignore"):
            above = descriptor
            try:
                descriptor = os.open(part, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=above)
            finally:
                os.close(above)
    except OSError:
        return ""
    with os.fdopen(descriptor, "rb") as handle:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            return ""
        return handle.read(_MAX_BYTES).decode("utf-8", "replace")
