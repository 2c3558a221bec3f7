"""Find what a model names in the workspace, and hint at what it may have meant.

A model that named what is not there gets a hint: a path that nearly exists, a passage that nearly occurs. A hint gives
names and places, never content: it comes before the call was judged.
"""

import os
import re
from collections.abc import Callable
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

from chatops.config.paths import opened
from chatops.domain.tools import CallFacts
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import locate, why_refused, with_place, with_solvable_problem
from chatops.toolkit.output import visible

_MAX_LOOKED_AT = 2_000
"""Maximum number of entries of the workspace that are compared with a name."""
_MAX_NAMED = 3
"""Maximum number of paths that a hint names."""
_LINE_NUMBERS = re.compile(r"^ *\d+ ?[:|→\t] ?", re.MULTILINE)


def locate_existing(
    raw: str, *, facts: CallFacts, context: ToolContext, missing: str, why_not: Callable[[int], str]
) -> CallFacts:
    """Add the path that a model wrote to the facts.

    If there is nothing, the problem is `missing`, with paths that are like it. `why_not` gets the mode of what is
    there, and returns the problem if it is of the wrong kind; empty if it is not.
    """
    place = locate(raw, context=context)
    facts = with_place(facts, place)
    if not place.usable:
        return facts
    if place.info is None:
        problem = f"{missing}{near_paths(place.path, context=context)}"
    else:
        problem = why_not(place.info.st_mode)
    return with_solvable_problem(facts, problem, given=raw) if problem else facts


def near_paths(path: Path, *, context: ToolContext) -> str:
    """Return the end of a sentence that names paths like `path`, which does not exist; empty if there are none.

    Those are of the same name elsewhere in the workspace, or of a similar name in the same folder. Names that begin
    with a dot are not looked at, nor is what is behind a link, even if it was a folder a moment ago.
    """
    same_name, beside, looked_at = list[Path](), list[str](), 0
    with suppress(OSError), opened(context.workspace) as top:
        for below, folders, names, _ in os.fwalk(".", dir_fd=top):
            folder = context.workspace / below
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            looked_at += len(folders) + len(names)
            if path.name in (*names, *folders):
                same_name.append(folder / path.name)
            if folder == path.parent:
                beside = [name for name in (*names, *folders) if not name.startswith(".")]
            if looked_at > _MAX_LOOKED_AT or len(same_name) > _MAX_NAMED:
                break
    similar = (path.parent / name for name in get_close_matches(path.name, beside, n=2, cutoff=0.7))
    shown = [
        visible(str(near.relative_to(context.workspace)), limit=200)
        for near in dict.fromkeys((*same_name, *similar))
        if not why_refused(near, context=context, write=False)
    ]
    return f"; there is {' and '.join(shown[:_MAX_NAMED])}" if shown else ""


def near_passage(old: str, text: str) -> str:
    """Return the end of a sentence about why `old` does not occur in `text`; empty if that is not clear."""
    if "\r\n" in text and "\n" in old and "\r" not in old:
        return "; its lines end in CR LF"
    without_numbers = _LINE_NUMBERS.sub("", old)
    if without_numbers != old and without_numbers.strip() and without_numbers in text:
        return "; without the line numbers it does"
    wanted = [" ".join(line.split()) for line in old.strip("\n").split("\n")]
    lines = text.split("\n")
    folded = [" ".join(line.split()) for line in lines]
    if not any(wanted):
        return ""
    for index, line in enumerate(lines):
        if folded[index : index + len(wanted)] == wanted:
            indent = line[: len(line) - len(line.lstrip())]
            begins = f"begins with {indent!r}" if indent else "is not indented"
            return f"; line {index + 1} has the same words with other white space, and {begins}"
    return ""
