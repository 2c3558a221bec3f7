"""The file tools: `file_read`, `file_list`, `file_write`, `file_edit`.

A change is written to a temporary file beside the target, synced to disk, and then renamed over the target. An approval
is bound to the hashes of the content before and after. After a crash the same hashes show whether the change was made.

A model that named what is not there gets a hint: a path that nearly exists, a passage that nearly occurs. A hint gives
names and places, never content: it comes before the call was judged.
"""

import hashlib
import heapq
import io
import os
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.config.failpoints import reach
from chatops.config.paths import opened
from chatops.contained.folder import FILE_FLAGS
from chatops.contained.kept import keep_replaced
from chatops.domain.diffs import diff_text
from chatops.domain.errors import ToolFailedError
from chatops.domain.files import IMAGE_TYPES, FileRef, media_type
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, Outcome, ResultFacts, ToolResult, Verdict
from chatops.domain.wording import plural
from chatops.git.ignore import GitIgnore
from chatops.sandbox.covers import MOUNTED, is_mount_point
from chatops.toolkit.base import Reconciled, ToolContext, reconciled_by_hash
from chatops.toolkit.confine import (
    locate,
    opened_file,
    opened_folder,
    why_refused,
    with_place,
    with_problem,
    with_solvable_problem,
)
from chatops.toolkit.output import is_binary, visible
from chatops.tools.function import file_result, tool

MAX_LINES = 2_000
"""Maximum number of lines of one `file_read`."""
MAX_ENTRIES = 500
"""Maximum number of entries of one `file_list`."""
_MAX_SCANNED_BYTES = 64_000_000
"""Maximum number of bytes of a file that are read to reach the requested lines and to count them."""
_MAX_COUNTED = 200_000
"""Maximum number of entries of a folder that are looked at."""
_MISSING = "no such file; use file_list to see which files exist"
_PIECE_BYTES = 65_536
"""Bytes of a line that are read at a time."""
_FOOTER_ROOM = 200
"""Characters of a result that are kept free for the line on which lines it holds."""
MAX_FILE = 16_000_000
"""Maximum number of bytes of a file that are read at once. Larger images are not kept anyway."""
MAX_CONTENT = 1_000_000
"""Maximum number of bytes that one `file_write` may write, because the user has to be shown all of it."""
MAX_EDITED = 4_000_000
"""Maximum number of bytes of a file that `file_edit` works on."""
ABSENT = "absent"
"""Used instead of a hash for a file that does not exist."""
_MAX_LOOKED_AT = 2_000
"""Maximum number of entries of the workspace that are compared with a name."""
_MAX_NAMED = 3
"""Maximum number of paths that a hint names."""
_ACL = "system.posix_acl_access"
"""Extended attribute that holds the ACL of a file."""
_LINE_NUMBERS = re.compile(r"^ *\d+ ?[:|→\t] ?", re.MULTILINE)


def _inspect_read(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    raw: str = arguments["path"]
    facts, mode = locate_existing(raw, facts=facts, context=context, missing=_MISSING)
    if stat.S_ISDIR(mode):
        return with_solvable_problem(facts, "is a folder; use file_list", given=raw)
    if mode and not stat.S_ISREG(mode):
        return with_solvable_problem(facts, "is not a regular file but a pipe, socket or device", given=raw)
    return facts


@tool(
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    capabilities=BUILT_IN_TOOLS["file_read"],
    timeout_s=20.0,
    inspect=_inspect_read,
)
def file_read(
    path: Annotated[str, Field(description="Path of the file, relative to the workspace.")],
    context: ToolContext,
    facts: CallFacts,
    offset: Annotated[int, Field(ge=1, description="First line to return; the first line of the file is 1.")] = 1,
    limit: Annotated[int, Field(ge=1, le=MAX_LINES, description="Maximum number of lines to return.")] = MAX_LINES,
) -> ToolResult:
    """Read a text file in the workspace. Returns its lines unchanged, without line numbers."""
    target = Path(facts.paths[0])
    try:
        with opened_file(target, context=context) as descriptor:
            if (image := image_of(descriptor, path, context=context)) is not None:
                return file_result((image,))
            return _read_lines(descriptor, offset=offset, limit=limit, room=context.max_output_chars - _FOOTER_ROOM)
    except FileNotFoundError as error:
        raise ToolFailedError(f"{visible(path)} no longer exists.") from error


def image_of(descriptor: int, name: str, *, context: ToolContext) -> FileRef | None:
    """Keep an open file as a file of the session if it is an image; None if it is not."""
    if media_type(os.pread(descriptor, 64, 0)) not in IMAGE_TYPES:
        return None
    with io.BufferedReader(io.FileIO(descriptor, closefd=False)) as file:
        return context.keep_file(name, file.read(MAX_FILE + 1))


def _read_lines(descriptor: int, *, offset: int, limit: int, room: int) -> ToolResult:
    """Return at most `limit` lines from line `offset` on, in `room` characters, and count the lines of the file."""
    size = os.fstat(descriptor).st_size
    pieces: list[str] = []
    chars = scanned = line_number = last_line = 0
    is_full = False
    with io.BufferedReader(io.FileIO(descriptor, closefd=False), _PIECE_BYTES) as handle:
        if is_binary(handle.peek(_PIECE_BYTES)):
            return ToolResult(outcome=Outcome.SUCCESS, content=f"[binary file, {size:,} bytes, not shown]")
        at_line_start = True
        while scanned < _MAX_SCANNED_BYTES and (piece := handle.readline(_PIECE_BYTES)):
            scanned += len(piece)
            line_number += at_line_start
            at_line_start = piece.endswith(b"\n")
            if is_full or not offset <= line_number < offset + limit:
                continue
            text = piece.decode("utf-8", "replace")
            text = text.removeprefix("\ufeff") if line_number == 1 else text
            # No shorter line that follows may be taken in the place of one that has no room.
            is_full = bool(pieces) and chars + len(text) > room
            if not is_full:
                pieces.append(text[:room])
                chars += len(text)
                last_line = line_number
    total = f"{line_number:,}" if scanned < _MAX_SCANNED_BYTES else f"more than {line_number:,}"
    if size == 0:
        text = "[the file is empty]"
    elif not last_line:
        text = f"[no line {offset:,}: the file has {total} lines]"
    else:
        text = "".join(pieces)
        if offset > 1 or last_line < line_number:
            go_on = f"; continue with offset {last_line + 1}" if last_line < line_number else ""
            text = f"{text.rstrip(chr(10))}\n[lines {offset:,} to {last_line:,} of {total}{go_on}]"
    return _with_count(text, last_line - offset + 1 if last_line else 0)


def _with_count(text: str, count: int) -> ToolResult:
    return ToolResult(outcome=Outcome.SUCCESS, content=text, facts=ResultFacts(count=count))


def _inspect_list(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    raw: str = arguments["path"]
    facts, mode = locate_existing(raw, facts=facts, context=context, missing="no such folder")
    if mode and not stat.S_ISDIR(mode):
        return with_solvable_problem(facts, "is not a folder; use file_read", given=raw)
    return facts


@tool(
    min_access=AccessLevel.VIEWER,
    verdict=Verdict.ALLOW,
    read_only=True,
    capabilities=BUILT_IN_TOOLS["file_list"],
    timeout_s=20.0,
    inspect=_inspect_list,
)
def file_list(
    context: ToolContext,
    facts: CallFacts,
    path: Annotated[str, Field(description="Path of the folder, relative to the workspace.")] = ".",
) -> ToolResult:
    """List a folder in the workspace: folders first, then files with their size in bytes. Entries
    ignored by .gitignore are marked."""
    target = Path(facts.paths[0])
    with opened_folder(target, context=context) as folder:
        return folder_listing(target, folder, context=context)


def folder_listing(target: Path, folder: int, *, context: ToolContext) -> ToolResult:
    """Return the entries of a folder, one on each line, given its path and descriptor."""
    entries, counted = _first_entries(folder)
    below = target.relative_to(context.workspace).as_posix()
    rules = GitIgnore(context.workspace, start=below)
    lines = []
    for is_file, name in entries:
        ignored = rules.ignores(os.path.normpath(f"{below}/{name}") + ("" if is_file else "/"))
        lines.append(_describe_entry(folder, name) + (" (ignored)" if ignored else ""))
    if not lines:
        return _with_count("[the folder is empty]", 0)
    if counted > len(entries):
        more = "more than " if counted >= _MAX_COUNTED else ""
        lines.append(f"[{len(entries):,} of {more}{counted:,} entries; use file_search to search all files]")
    return _with_count("\n".join(lines), len(entries))


def _first_entries(folder: int) -> tuple[list[tuple[bool, str]], int]:
    """Return the first entries by name, folders before files, each as (is no folder, name), and how many there are."""
    counted = 0

    def all_entries() -> Iterator[tuple[bool, str]]:
        nonlocal counted
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.name in MOUNTED and is_mount_point(Path(entry.name), dir_fd=folder):
                    continue
                counted += 1
                yield (not entry.is_dir(follow_symlinks=False), entry.name)
                if counted >= _MAX_COUNTED:
                    return

    return heapq.nsmallest(MAX_ENTRIES, all_entries()), counted


def _describe_entry(folder: int, name: str) -> str:
    shown = visible(name, limit=300)
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(info.st_mode):
            return f"{shown}/"
        if stat.S_ISLNK(info.st_mode):
            return f"{shown} -> {visible(os.readlink(name, dir_fd=folder), limit=300)}"
    except OSError:
        return f"{shown} (removed)"
    return f"{shown} {plural(info.st_size, 'byte')}" if stat.S_ISREG(info.st_mode) else f"{shown} (not a regular file)"


def content_of(path: Path, *, context: ToolContext) -> bytes | None:
    """Return the present content; None if there is no file.

    Raises ToolFailedError if it is larger than `MAX_EDITED` bytes or cannot be read.
    """
    try:
        with opened_file(path, context=context) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as handle:
            data = handle.read(MAX_EDITED + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    if len(data) > MAX_EDITED:
        raise ToolFailedError(f"{visible(str(path), limit=300)} is larger than {MAX_EDITED:,} bytes.")
    return data


def _hash(data: bytes | None) -> str:
    return ABSENT if data is None else hashlib.sha256(data).hexdigest()


def _hash_entries(path: Path, *, before: bytes | None, after: bytes) -> tuple[str, ...]:
    """Return the entries of `CallFacts.hashes`; `reconciled_by_hash` reads the hashes at their ends."""
    return (f"{path} {_hash(before)}", f"{path} becomes {_hash(after)}")


def _decode_text(data: bytes | None) -> str | None:
    """Return UTF-8 text, empty for no file; None if the data is not text."""
    if data is None:
        return ""
    try:
        return data.decode("utf-8") if not is_binary(data) else None
    except UnicodeDecodeError:
        return None


def _locate_target(raw: str, facts: CallFacts, context: ToolContext) -> tuple[CallFacts, Path | None]:
    """Add the file to write to the facts, and return its path; None if it cannot be written."""
    place = locate(raw, context=context, write=True)
    facts = with_place(facts, place)
    if not place.usable:
        return facts, None
    if place.info is not None and stat.S_ISDIR(place.info.st_mode):
        return with_solvable_problem(facts, "is a folder", given=raw), None
    if place.info is not None and not stat.S_ISREG(place.info.st_mode):
        return with_solvable_problem(facts, "is not a regular file but a pipe, socket or device", given=raw), None
    if place.path == context.workspace:
        return with_solvable_problem(facts, "is the workspace itself", given=raw), None
    return facts, place.path


def _inspect_write(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    raw, content = arguments["path"], arguments["content"]
    after = content.encode("utf-8")
    if len(after) > MAX_CONTENT:
        message = f"is {len(after):,} bytes long; the limit is {MAX_CONTENT:,}"
        return with_problem(facts, "content", message)
    facts, path = _locate_target(raw, facts, context)
    if path is None:
        return facts
    parent = _nearest_existing(path.parent)
    if not parent.is_dir():
        return with_solvable_problem(facts, f"{visible(str(parent), limit=300)} is not a folder", given=raw)
    try:
        before = content_of(path, context=context)
    except ToolFailedError as error:
        return with_solvable_problem(facts, str(error), given=raw)
    name = str(path.relative_to(context.workspace))
    old = _decode_text(before)
    diff = diff_text(old or "", content, name=name)
    if old is None:
        diff = f"[replaces binary content of {len(before or b''):,} bytes]\n{diff}"
    return replace(facts, diff=diff, creates=before is None, hashes=_hash_entries(path, before=before, after=after))


def _nearest_existing(path: Path) -> Path:
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def _inspect_edit(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    old, new, raw = arguments["old"], arguments["new"], arguments["path"]
    if not old:
        message = "is empty; give the text to replace, or use file_write to create a file"
        return with_problem(facts, "old", message)
    if old == new:
        return with_problem(facts, "new", "is identical to old")
    facts, path = _locate_target(raw, facts, context)
    if path is None:
        return facts
    try:
        before = content_of(path, context=context)
    except ToolFailedError as error:
        return with_solvable_problem(facts, str(error), given=raw)
    if before is None:
        return with_solvable_problem(facts, f"{_MISSING}{near_paths(path, context=context)}", given=raw)
    text = _decode_text(before)
    if text is None:
        return with_solvable_problem(facts, "is not a UTF-8 text file", given=raw)
    count = text.count(old)
    if count == 0:
        hint = near_passage(old, text) or "; read the file again"
        return with_solvable_problem(facts, f"does not occur in the file{hint}", field="old", given=old)
    if count > 1:
        message = f"occurs {count} times; include more of the surrounding text to make it unique"
        return with_solvable_problem(facts, message, field="old", given=old)
    changed = text.replace(old, new)
    diff = diff_text(text, changed, name=str(path.relative_to(context.workspace)))
    return replace(facts, diff=diff, hashes=_hash_entries(path, before=before, after=changed.encode("utf-8")))


def reconcile_replace(facts: CallFacts, context: ToolContext) -> Reconciled:
    """Find out by the hashes whether a started call has put its content in place.

    The call's temporary file, whose name no one else uses, is removed.
    """
    path = Path(facts.paths[0])
    try:
        with suppress(FileNotFoundError), opened_folder(path.parent, context=context) as folder:
            _remove_temporary(_temporary_name(path, context=context), folder=folder)
        now = _hash(content_of(path, context=context))
    except ToolFailedError as error:
        return Reconciled(result=None, found=str(error))
    there = "no longer exists" if now == ABSENT else "has neither the content before the call nor the content after it"
    otherwise = f"{visible(str(path), limit=300)} {there}; something else has changed it"
    return reconciled_by_hash(facts, now, done=_written_sentence(path, context=context), otherwise=otherwise)


@tool(inspect=_inspect_write, reconcile=reconcile_replace, timeout_s=20.0, capabilities=BUILT_IN_TOOLS["file_write"])
def file_write(
    path: Annotated[str, Field(description="Path of the file, relative to the workspace. Creates missing folders.")],
    content: Annotated[str, Field(description="The complete new content of the file.")],
    context: ToolContext,
    facts: CallFacts,
) -> str:
    """Create a text file in the workspace, or replace its entire content."""
    return replace_file(Path(facts.paths[0]), content.encode("utf-8"), facts=facts, context=context)


@tool(inspect=_inspect_edit, reconcile=reconcile_replace, timeout_s=20.0, capabilities=BUILT_IN_TOOLS["file_edit"])
def file_edit(
    path: Annotated[str, Field(description="Path of the file, relative to the workspace.")],
    old: Annotated[str, Field(description="Text to replace, exactly as in the file. It must occur exactly once.")],
    new: Annotated[str, Field(description="Replacement text.")],
    context: ToolContext,
    facts: CallFacts,
) -> str:
    """Replace one passage of a text file in the workspace."""
    target = Path(facts.paths[0])
    text = _decode_text(content_of(target, context=context))
    if text is None or text.count(old) != 1:
        raise ToolFailedError(_changed_sentence(target))
    return replace_file(target, text.replace(old, new).encode("utf-8"), facts=facts, context=context)


def replace_file(path: Path, after: bytes, *, facts: CallFacts, context: ToolContext) -> str:
    """Replace the file with `after` atomically.

    Raises ToolFailedError unless the contents before and after are those that `facts` name.
    """
    expected = (entry.rsplit(" ", 1)[1] for entry in facts.hashes)
    made = _missing_folders(path, context=context)
    with opened_folder(path.parent, context=context, create=True) as folder:
        before = content_of(path, context=context)
        if tuple(expected) != (_hash(before), _hash(after)):
            raise ToolFailedError(_changed_sentence(path))
        temporary = _temporary_name(path, context=context)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o666, dir_fd=folder)
        try:
            with os.fdopen(descriptor, "wb") as handle:
                handle.write(after)
                _copy_rights(handle.fileno(), name=path.name, folder=folder)
                handle.flush()
                os.fsync(handle.fileno())
                mode = os.fstat(handle.fileno()).st_mode & 0o777
            keep_replaced(path, before, after, mode=mode, folder=folder, made=made, context=context)
            reach("before_rename")
            os.rename(temporary, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            reach("after_rename")
        except BaseException:
            _remove_temporary(temporary, folder=folder)
            raise
        os.fsync(folder)
    return _written_sentence(path, context=context)


def _missing_folders(path: Path, *, context: ToolContext) -> tuple[str, ...]:
    """Return the folders of the workspace that the file needs and that do not exist, from the top down."""
    present = _nearest_existing(path.parent)
    missing = [above for above in path.parents if above != present and above.is_relative_to(present)]
    return tuple(str(above.relative_to(context.workspace)) for above in reversed(missing))


def _temporary_name(path: Path, *, context: ToolContext) -> str:
    """Return the name of an attempt's temporary file: unique, and the same again after a crash."""
    name = f"{context.call_id}/{context.attempt}/{path.name}".encode("utf-8", "surrogatepass")
    return f".chatops-{hashlib.sha256(name).hexdigest()[:16]}.tmp"


def _copy_rights(descriptor: int, *, name: str, folder: int) -> None:
    """Give the open new file the mode and the ACL of the file that it replaces, if there is one."""
    try:
        info = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    # With an ACL the bits of the group are its mask: without it they would give the group more. The folder's own
    # default for new files gives nobody a right that the file before did not give.
    with opened(name, FILE_FLAGS, at=folder) as source:
        if _ACL in os.listxattr(source):
            os.setxattr(descriptor, _ACL, os.getxattr(source, _ACL))
        elif _ACL in os.listxattr(descriptor):
            os.removexattr(descriptor, _ACL)
    # Drop set-uid and set-gid: what a model wrote must never run as another user.
    os.fchmod(descriptor, stat.S_IMODE(info.st_mode) & 0o777)


def _remove_temporary(name: str, *, folder: int) -> None:
    with suppress(OSError):
        os.unlink(name, dir_fd=folder)


def _written_sentence(path: Path, *, context: ToolContext) -> str:
    return f"Wrote {visible(str(path.relative_to(context.workspace)), limit=300)}."


def _changed_sentence(path: Path) -> str:
    return f"{visible(str(path), limit=300)} has changed since the check; nothing was written."


def locate_existing(raw: str, *, facts: CallFacts, context: ToolContext, missing: str) -> tuple[CallFacts, int]:
    """Add the path that a model wrote to the facts, and return the mode of what is there.

    The mode is 0 if there is nothing, or if no tool may look at it. If there is nothing, the problem is `missing`, with
    paths that are like it.
    """
    place = locate(raw, context=context)
    facts = with_place(facts, place)
    if not place.usable:
        return facts, 0
    if place.info is None:
        return with_solvable_problem(facts, f"{missing}{near_paths(place.path, context=context)}", given=raw), 0
    return facts, place.info.st_mode


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
