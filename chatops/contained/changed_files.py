"""All that turns have changed in files, for ``/diff``: from before the first change of each file to what it is now.

What commands changed in the workspace itself is not known. Nothing is written.
"""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from chatops.contained.changes import Entry, Kind, State
from chatops.contained.copying import hidden_by_name
from chatops.contained.freezing import shown
from chatops.contained.text import MOST_TEXT, Change, described
from chatops.contained.undoing import ELSEWHERE, PathChange, changed_paths, known_states
from chatops.contained.workspace import Below
from chatops.domain.errors import ToolFailedError

_GONE = "  what it was before is not kept any more"
_EARLIER = "  earlier changes of it are not kept any more"
_SECRET = "  not shown: something else has changed it since, and it may hold secrets"


def changed_files(data: Path, workspace: Path, *, turns: Sequence[str], gone: Sequence[str]) -> tuple[Change, ...]:
    """Return the files that differ from what they were before `turns`, in order of their paths.

    `gone` names files that were written too, and of which no earlier content is kept.

    Raises OSError and ToolFailedError.
    """
    lost = {os.path.relpath(os.path.join(workspace, named), workspace) for named in gone}
    info = os.stat(workspace)
    found, entries = dict[str, Change](), list[Entry]()
    contents, elsewhere = dict[str, bytes](), set[str]()
    with Below(workspace, (info.st_dev, info.st_ino)) as below:
        for path, changes in changed_paths(data, workspace, turns).items():
            if not all(one.here for one in changes):
                found[path] = _row(path, f"  {ELSEWHERE}")
                continue
            now, content = below.read(path, most=MOST_TEXT)
            if _differs(now, changes):
                elsewhere.add(path)
            base = changes[0].base
            if now == base:
                continue
            before = changes[0].content() if base.kind is Kind.FILE and base.size <= MOST_TEXT else None
            if path in elsewhere and hidden_by_name(tuple(path.split("/"))):
                found[path] = _row(path, _SECRET)
            elif before is None and base.kind is Kind.FILE and base.size <= MOST_TEXT:
                found[path] = _row(path, _GONE)
            else:
                known = {base.sha: before, now.sha: content}
                contents |= {sha: text for sha, text in known.items() if text is not None}
                entries.append(Entry(path=path, base=base, new=now))

    def read(sha: str) -> bytes:
        if sha not in contents:
            raise ToolFailedError("This content is not kept.")
        return contents[sha]

    found |= {one.path: one for one in described(entries, read)}
    for path in lost:
        one = found.get(path)
        found[path] = _row(path, _GONE) if one is None else replace(one, lines=(*one.lines, _EARLIER))
    return tuple(replace(found[path], elsewhere=path in elsewhere) for path in sorted(found))


def _differs(now: State, changes: Sequence[PathChange]) -> bool:
    """Return True if something else has changed a path, between its changes or since."""
    known = known_states(changes)
    return known is None or now not in known


def _row(path: str, why: str) -> Change:
    return Change(path=path, title=f"change {shown(path)}", lines=(why,))
