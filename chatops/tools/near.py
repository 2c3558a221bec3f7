"""Hints for a model that named what is not there: a path that nearly exists, a passage that nearly occurs.

A hint gives names and places, never content: it comes before the call was judged.
"""

import os
import re
from difflib import get_close_matches
from pathlib import Path

from chatops.domain.tools import CallFacts
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, refused, with_place, world_problem
from chatops.toolkit.output import visible

_MOST_LOOKED_AT = 2_000
"""Maximum number of entries of the workspace that are compared with a name."""
_MOST_NAMED = 3
_NUMBERED = re.compile(r"^ *\d+ ?[:|→\t] ?", re.MULTILINE)


def existing(raw: str, *, facts: CallFacts, context: ToolContext, missing: str) -> tuple[CallFacts, int]:
    """Add the path that a model wrote to the facts, and return the mode of what is there.

    The mode is 0 if there is nothing, or if no tool may look at it. If there is nothing, the problem is `missing`, with
    paths that are like it.
    """
    place = locate(raw, context=context)
    facts = with_place(facts, place)
    if not place.usable:
        return facts, 0
    if place.info is None:
        return world_problem(facts, f"{missing}{near_paths(place.path, context=context)}", given=raw), 0
    return facts, place.info.st_mode


def near_paths(path: Path, *, context: ToolContext) -> str:
    """Return the end of a sentence that names paths like `path`, which does not exist; empty if there are none.

    Those are of the same name elsewhere in the workspace, or of a similar name in the same folder. Names that begin
    with a dot are not looked at, nor is what is behind a link.
    """
    same, beside, looked_at = list[Path](), list[str](), 0
    for folder, folders, names in os.walk(context.workspace):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        looked_at += len(folders) + len(names)
        if path.name in (*names, *folders):
            same.append(Path(folder, path.name))
        if Path(folder) == path.parent:
            beside = [name for name in (*names, *folders) if not name.startswith(".")]
        if looked_at > _MOST_LOOKED_AT or len(same) > _MOST_NAMED:
            break
    found = [*same, *(path.parent / name for name in get_close_matches(path.name, beside, n=2, cutoff=0.7))]
    shown = [
        visible(str(one.relative_to(context.workspace)), limit=200)
        for one in dict.fromkeys(found)
        if not refused(one, context=context, write=False)
    ]
    return f"; there is {' and '.join(shown[:_MOST_NAMED])}" if shown else ""


def near_passage(old: str, text: str) -> str:
    """Return the end of a sentence about why `old` does not occur in `text`; empty if that is not clear."""
    if "\r\n" in text and "\n" in old and "\r" not in old:
        return "; its lines end in CR LF"
    bare = _NUMBERED.sub("", old)
    if bare != old and bare.strip() and bare in text:
        return "; without the line numbers it does"
    wanted = [" ".join(line.split()) for line in old.strip("\n").split("\n")]
    lines = text.split("\n")
    folded = [" ".join(line.split()) for line in lines]
    if not any(wanted):
        return ""
    for at in range(len(lines) - len(wanted) + 1):
        if folded[at : at + len(wanted)] == wanted:
            indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
            begins = f"begins with {indent!r}" if indent else "is not indented"
            return f"; line {at + 1} has the same words with other white space, and {begins}"
    return ""
