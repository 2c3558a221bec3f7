"""Path globs: ``*`` and ``?`` stay within one folder, ``**`` crosses folders, everything else is literal.

A wildcard does not match a name that starts with a dot unless `hidden` is given: ``src/**`` should not silently match
``src/.git/hooks``.
"""

import re
from functools import lru_cache

WILDCARDS = frozenset("*?")


def path_matches(glob: str, *, path: str, base: str, hidden: bool = False) -> bool:
    """Return True if the absolute, resolved `path` matches `glob` (absolute or relative to `base`)."""
    if not glob or not path.startswith("/"):
        return False
    if not glob.startswith("/"):
        if not base.startswith("/"):
            return False
        folder = base.rstrip("/") + "/"
        if not path.startswith(folder):
            return False
        path = path[len(folder) :]
    parts = glob.split("/")
    if ".." in parts or "." in parts or ".." in path.split("/"):
        return False
    return _compiled(glob, hidden).fullmatch(path) is not None


@lru_cache(maxsize=256)
def _compiled(glob: str, hidden: bool) -> re.Pattern[str]:
    not_hidden = "" if hidden else r"(?!\.)"
    pieces: list[str] = []
    parts = glob.split("/")
    for position, part in enumerate(parts):
        last = position == len(parts) - 1
        if part == "**":
            pieces.append(f"(?:{not_hidden}[^/]+/)*" + (f"{not_hidden}[^/]+" if last else ""))
            continue
        guard = not_hidden if part[:1] in WILDCARDS else ""
        body = "".join("[^/]*" if char == "*" else "[^/]" if char == "?" else re.escape(char) for char in part)
        pieces.append(guard + body + ("" if last else "/"))
    return re.compile("".join(pieces), re.DOTALL)


def literal(path: str) -> bool:
    """Return True if `path` can be written as a glob that matches only itself."""
    return path == path.strip() and not any(char in WILDCARDS for char in path)
