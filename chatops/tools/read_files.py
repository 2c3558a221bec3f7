"""Read-only file tools of the workspace: `file_read`, `file_list`."""

import heapq
import io
import os
import stat
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.domain.errors import ToolFailedError
from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import CallFacts, Problem
from chatops.tools.base import ToolContext
from chatops.tools.confine import Place, locate, opened_file, opened_folder
from chatops.tools.function import FunctionTool, tool
from chatops.tools.output import is_binary, visible

MAX_LINES = 2_000
"""Most lines of one `file_read`."""
MAX_ENTRIES = 500
"""Most entries of one `file_list`."""
_MAX_SCAN = 64_000_000
"""Most bytes of a file that are read to reach the requested lines and to count them."""
_MAX_COUNTED = 200_000
"""Most entries of a folder that are looked at."""
_PIECE = 65_536
_FOOTER_ROOM = 200


def with_place(facts: CallFacts, place: Place) -> CallFacts:
    """Add the result of resolving the call's path to the facts."""
    if place.problem:
        return replace(facts, problems=(*facts.problems, place.problem))
    if place.refusal:
        return replace(facts, refusal=place.refusal)
    return replace(facts, paths=(str(place.path),), caution=facts.caution or place.caution)


def world_problem(facts: CallFacts, message: str, *, field: str = "path", given: str = "") -> CallFacts:
    """Add a problem that the arguments do not cause, so an earlier call may fix it."""
    problem = Problem(path=field, message=message, given=visible(given))
    return replace(facts, problems=(*facts.problems, problem), may_heal=True)


def _inspect_read(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    place = locate(arguments["path"], context=context)
    facts = with_place(facts, place)
    if not place.usable:
        return facts
    if place.info is None:
        return world_problem(facts, "no such file; use file_list to see which files exist", given=arguments["path"])
    if stat.S_ISDIR(place.info.st_mode):
        return world_problem(facts, "is a folder; use file_list", given=arguments["path"])
    if not stat.S_ISREG(place.info.st_mode):
        return world_problem(facts, "is not a regular file but a pipe, socket or device", given=arguments["path"])
    return facts


@tool(
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    reads_workspace=True,
    timeout_s=20.0,
    inspect=_inspect_read,
)
def file_read(
    path: Annotated[str, Field(description="Path of the file, relative to the workspace.")],
    context: ToolContext,
    facts: CallFacts,
    offset: Annotated[int, Field(ge=1, description="First line to return; the first line of the file is 1.")] = 1,
    limit: Annotated[int, Field(ge=1, le=MAX_LINES, description="Maximum number of lines to return.")] = MAX_LINES,
) -> str:
    """Read a text file in the workspace. Returns its lines unchanged, without line numbers."""
    target = Path(facts.paths[0])
    try:
        with opened_file(target, context=context) as descriptor:
            return _lines(descriptor, offset=offset, limit=limit, room=context.max_output_chars - _FOOTER_ROOM)
    except FileNotFoundError as error:
        raise ToolFailedError(f"{visible(path)} no longer exists.") from error


def _lines(descriptor: int, *, offset: int, limit: int, room: int) -> str:
    size = os.fstat(descriptor).st_size
    taken: list[str] = []
    used = number = scanned = 0
    last = 0
    with io.BufferedReader(io.FileIO(descriptor, closefd=False), _PIECE) as handle:
        if is_binary(handle.peek(_PIECE)):
            return f"[binary file, {size:,} bytes, not shown]"
        at_start = True
        while scanned < _MAX_SCAN and (piece := handle.readline(_PIECE)):
            scanned += len(piece)
            number += at_start
            at_start = piece.endswith(b"\n")
            if number < offset or number >= offset + limit or used >= room:
                continue
            text = piece.decode("utf-8", "replace")
            text = text.removeprefix("\ufeff") if number == 1 else text
            if taken and used + len(text) > room:
                used = room
                continue
            taken.append(text[:room])
            used += len(text)
            last = number
    total = f"{number:,}" if scanned < _MAX_SCAN else f"more than {number:,}"
    return _page("".join(taken), offset=offset, last=last, number=number, total=total, size=size)


def _page(text: str, *, offset: int, last: int, number: int, total: str, size: int) -> str:
    if size == 0:
        return "[the file is empty]"
    if not last:
        return f"[no line {offset:,}: the file has {total} lines]"
    if offset == 1 and last == number:
        return text
    go_on = f"; continue with offset {last + 1}" if last < number else ""
    return f"{text.rstrip(chr(10))}\n[lines {offset:,} to {last:,} of {total}{go_on}]"


def _inspect_list(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    place = locate(arguments["path"], context=context)
    facts = with_place(facts, place)
    if not place.usable:
        return facts
    if place.info is None:
        return world_problem(facts, "no such folder", given=arguments["path"])
    if not stat.S_ISDIR(place.info.st_mode):
        return world_problem(facts, "is not a folder; use file_read", given=arguments["path"])
    return facts


@tool(
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    reads_workspace=True,
    timeout_s=20.0,
    inspect=_inspect_list,
)
def file_list(
    context: ToolContext,
    facts: CallFacts,
    path: Annotated[str, Field(description="Path of the folder, relative to the workspace.")] = ".",
) -> str:
    """List a folder in the workspace: folders first, then files with their size in bytes."""
    with opened_folder(Path(facts.paths[0]), context=context) as folder:
        entries, counted = _entries(folder)
    shown = [text for _, _, text in entries]
    if not shown:
        return "[the folder is empty]"
    if counted > len(shown):
        more = "more than " if counted >= _MAX_COUNTED else ""
        shown.append(f"[{len(shown):,} of {more}{counted:,} entries; use file_search to search all files]")
    return "\n".join(shown)


def _entries(folder: int) -> tuple[list[tuple[bool, str, str]], int]:
    counted = 0

    def each() -> Any:
        nonlocal counted
        with os.scandir(folder) as found:
            for entry in found:
                counted += 1
                yield (not entry.is_dir(follow_symlinks=False), entry.name)
                if counted >= _MAX_COUNTED:
                    return

    chosen = heapq.nsmallest(MAX_ENTRIES, each())
    return [(is_file, name, _described(folder, name)) for is_file, name in chosen], counted


def _described(folder: int, name: str) -> str:
    shown = visible(name, limit=300)
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return f"{shown}/"
        if stat.S_ISLNK(info.st_mode):
            return f"{shown} -> {visible(os.readlink(name, dir_fd=folder), limit=300)}"
    except OSError:
        return f"{shown} (removed)"
    return f"{shown} {info.st_size}" if stat.S_ISREG(info.st_mode) else f"{shown} (not a regular file)"


def read_tools() -> tuple[FunctionTool, ...]:
    """Return the tools of this module."""
    return (file_read, file_list)
