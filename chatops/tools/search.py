"""`file_search`: search the text files of the workspace for a regular expression, in a separate process.

Python's regular expressions can take exponential time. The process is killed after a time limit, and the matches found
until then are kept.

Why not RE2 (`google-re2`), which is linear, in this process: it has no lookaround and no backreferences, which models
write; it needs a compiled wheel for each Python and platform; and reading up to 256 MB here would hold up the screen. A
process also ends at once when the call is cancelled.
"""

import json
import os
import re
import stat
import sys
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.config.paths import PACKAGE
from chatops.domain.errors import ToolFailedError
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, Outcome, ResultFacts, ToolResult, Verdict
from chatops.domain.wording import plural
from chatops.sandbox.orphans import attempt_name
from chatops.sandbox.process import Command, EndedCommand, clean_environment, run_command
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import protected_paths, with_problem
from chatops.toolkit.output import visible
from chatops.tools import search_worker
from chatops.tools.function import tool
from chatops.tools.hints import locate_existing

MAX_PATTERN = 1_000
"""Maximum number of characters of a pattern."""
MAX_MATCHES = 200
"""Maximum number of matching lines: the model reads them all."""
MAX_BYTES = 256_000_000
"""Maximum number of bytes that one search reads."""
SEARCH_S = 10.0
"""Maximum number of seconds that one search takes."""
_MAX_KEPT = 200_000
"""Maximum number of characters of the search's output that are kept; `MAX_MATCHES` lines need fewer."""
_NOTES_ROOM = 600
"""Characters of the result that are kept free for the notes on what is missing."""
_STOPPED = {
    "matches": f"stopped at {MAX_MATCHES} matches",
    "bytes": f"stopped after {MAX_BYTES:,} bytes, so matches may be missing; try a smaller folder",
}
"""The note on each limit that a search may reach; the keys are those of `search_worker`'s summary."""
_SKIPPED = {
    "protected": ("protected file or folder was", "protected files or folders were"),
    "ignored": ("file or folder ignored by .gitignore was", "files or folders ignored by .gitignore were"),
    "linked": ("file with several hard links was", "files with several hard links were"),
}
"""The beginning of the note on each kind of file that is not searched, for one and for several; keys as above."""


def _inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    pattern: str = arguments["pattern"]
    if not pattern or len(pattern) > MAX_PATTERN or "\0" in pattern:
        message = f"must have 1 to {MAX_PATTERN:,} characters and no NUL"
        return with_problem(facts, "pattern", message, given=pattern)

    def why_not(mode: int) -> str:
        return "" if stat.S_ISDIR(mode) or stat.S_ISREG(mode) else "is neither a file nor a folder"

    missing = "no such file or folder"
    return locate_existing(arguments["path"], facts=facts, context=context, missing=missing, why_not=why_not)


@tool(
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    capabilities=BUILT_IN_TOOLS["file_search"],
    timeout_s=20.0,
    inspect=_inspect,
)
async def file_search(
    pattern: Annotated[
        str,
        Field(description="Python regular expression, matched against each line. Start it with (?i) to ignore case."),
    ],
    context: ToolContext,
    facts: CallFacts,
    path: Annotated[str, Field(description="File or folder to search, relative to the workspace.")] = ".",
) -> ToolResult:
    """Search text files in the workspace. Returns matching lines as path:line: text. Skips .git, binary files, and
    files ignored by .gitignore unless path names them or their folder."""
    literal = not _is_expression(pattern)
    job = _make_job(pattern, literal=literal, target=Path(facts.paths[0]), context=context)
    argv = (sys.executable, "-I", "-S", search_worker.__file__, json.dumps(job))
    environment = clean_environment(os.environ)
    call = attempt_name(context.call_id, context.attempt)
    command = Command(argv=argv, cwd=context.workspace, environment=environment, call=call, contained=True)
    seconds = min(SEARCH_S, context.timeout_s * 0.9)
    try:
        ended = await run_command(command, timeout_s=seconds, keep=_MAX_KEPT)
    except OSError as error:
        raise ToolFailedError(f"The search could not be started: {error.strerror}.") from error
    return _result(ended, pattern=pattern, literal=literal, seconds=seconds, room=context.max_output_chars)


def _is_expression(pattern: str) -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            re.compile(pattern)
        except (re.error, RecursionError, OverflowError):
            return False
    return True


def _make_job(pattern: str, *, literal: bool, target: Path, context: ToolContext) -> Mapping[str, object]:
    relative = target.relative_to(context.workspace)
    single = target.is_file()
    return {
        "path": [str(PACKAGE.parent), *(entry for entry in sys.path if os.path.isabs(entry))],
        "root": str(context.workspace),
        "below": str(relative.parent if single else relative),
        "file": relative.name if single else "",
        "pattern": pattern,
        "literal": literal,
        "protected": [str(path) for path in protected_paths(context)],
        "matches": MAX_MATCHES,
        "bytes": MAX_BYTES,
    }


def _result(ended: EndedCommand, *, pattern: str, literal: bool, seconds: float, room: int) -> ToolResult:
    matches, separator, summary = ended.output.text().partition(search_worker.SEPARATOR)
    if not separator and ended.code not in (0, None):
        raise ToolFailedError("The search failed: the folder changed during the search.")
    lines = [visible(line, limit=500) for line in matches.splitlines()]
    notes = _describe_gaps(summary, complete=bool(separator), seconds=seconds)
    if literal:
        notes.append(f"{visible(pattern)} is not a valid regular expression, so it was searched for as plain text")
    shown = _lines_that_fit(lines, room=room - _NOTES_ROOM)
    if len(shown) < len(lines):
        notes.append(f"{len(shown)} of {len(lines)} matches are shown")
    text = "\n".join(shown) if shown else "[no matches]"
    content = text + "".join(f"\n[{note}]" for note in notes)
    return ToolResult(
        outcome=Outcome.SUCCESS,
        content=content,
        truncated=len(shown) < len(lines) or not separator,
        facts=ResultFacts(count=len(lines)),
    )


def _lines_that_fit(lines: list[str], *, room: int) -> list[str]:
    shown: list[str] = []
    for line in lines:
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(line)
    return shown


def _describe_gaps(summary: str, *, complete: bool, seconds: float) -> list[str]:
    if not complete:
        return [f"stopped after {seconds:g} s, so matches may be missing; try a smaller folder or a simpler pattern"]
    found = json.loads(summary)
    notes = [note for limit, note in _STOPPED.items() if found[limit]]
    counts = [plural(found[kind], one, many) for kind, (one, many) in _SKIPPED.items() if found[kind]]
    return [*notes, *(f"{count} not searched" for count in counts)]
