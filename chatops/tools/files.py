"""The file tools: `file_read`, `file_list`, `file_write`, `file_edit`.

A change is written to a temporary file beside the target, synced to disk, and then renamed over the target. An approval
is bound to the hashes of the content before and after. After a crash the same hashes show whether the change was made.
"""

import hashlib
import heapq
import io
import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import Field

from chatops.config.failpoints import reach
from chatops.config.paths import opened
from chatops.contained.folder import FILE_FLAGS
from chatops.contained.kept import keep_replaced
from chatops.domain.diffs import diff_text
from chatops.domain.errors import ToolFailedError
from chatops.domain.files import IMAGE_TYPES, FileRef, media_type
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.tools import BUILT_IN_TOOLS, AccessLevel, CallFacts, Outcome, ResultFacts, ToolResult, Verdict
from chatops.domain.wording import plural
from chatops.git.ignore import GitIgnore
from chatops.sandbox.mount_points import MOUNTED, is_mount_point
from chatops.toolkit.base import Reconciled, ToolContext, reconciled_by_hash
from chatops.toolkit.confine import locate, opened_file, opened_folder, with_place, with_problem, with_solvable_problem
from chatops.toolkit.output import is_binary, visible
from chatops.tools.function import file_result, tool
from chatops.tools.hints import locate_existing, near_passage, near_paths

MAX_LINES = 2_000
"""Maximum number of lines of one `file_read`."""
MAX_ENTRIES = 500
"""Maximum number of entries of one `file_list`."""
_MAX_SCANNED_BYTES = 64_000_000
"""Maximum number of bytes of a file that are read to reach the requested lines and to count them."""
_MAX_COUNTED = 200_000
"""Maximum number of entries of a folder that are looked at."""
_MISSING = "no such file; use file_list to see which files exist"
_SPECIAL = "is not a regular file but a pipe, socket or device"
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
_ACL = "system.posix_acl_access"
"""Extended attribute that holds the ACL of a file."""


def _inspect_read(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    def why_not(mode: int) -> str:
        if stat.S_ISDIR(mode):
            return "is a folder; use file_list"
        return "" if stat.S_ISREG(mode) else _SPECIAL

    return locate_existing(arguments["path"], facts=facts, context=context, missing=_MISSING, why_not=why_not)


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


@frozen_dataclass
class _Lines:
    """The requested lines of a file, as far as they have room."""

    text: str
    last: int | None
    """Number of the last of them; None if there is none."""
    counted: int
    """Number of lines of the file, or of its beginning if it is large."""
    all_counted: bool


def _read_lines(descriptor: int, *, offset: int, limit: int, room: int) -> ToolResult:
    """Return at most `limit` lines from line `offset` on, in `room` characters, and count the lines of the file."""
    size = os.fstat(descriptor).st_size
    with io.BufferedReader(io.FileIO(descriptor, closefd=False), _PIECE_BYTES) as handle:
        if is_binary(handle.peek(_PIECE_BYTES)):
            return ToolResult(outcome=Outcome.SUCCESS, content=f"[binary file, {size:,} bytes, not shown]")
        lines = _requested_lines(handle, offset=offset, end=offset + limit, room=room)
    total = f"{lines.counted:,}" if lines.all_counted else f"more than {lines.counted:,}"
    if size == 0:
        return _with_count("[the file is empty]", 0)
    if lines.last is None:
        return _with_count(f"[no line {offset:,}: the file has {total} lines]", 0)
    text = lines.text
    if offset > 1 or lines.last < lines.counted:
        go_on = f"; continue with offset {lines.last + 1}" if lines.last < lines.counted else ""
        text = f"{text.rstrip(chr(10))}\n[lines {offset:,} to {lines.last:,} of {total}{go_on}]"
    return _with_count(text, lines.last - offset + 1)


def _requested_lines(handle: BinaryIO, *, offset: int, end: int, room: int) -> _Lines:
    """Read the lines from number `offset` up to before `end`. A long line is read in pieces."""
    taken: list[str] = []
    last: int | None = None
    chars = scanned = number = 0
    at_line_start, is_full = True, False
    while scanned < _MAX_SCANNED_BYTES and (piece := handle.readline(_PIECE_BYTES)):
        scanned += len(piece)
        number += at_line_start
        at_line_start = piece.endswith(b"\n")
        if is_full or not offset <= number < end:
            continue
        text = piece.decode("utf-8", "replace")
        text = text.removeprefix("\ufeff") if number == 1 else text
        # No shorter line that follows may be taken in the place of one that has no room.
        is_full = bool(taken) and chars + len(text) > room
        if not is_full:
            taken.append(text[:room])
            chars += len(text)
            last = number
    return _Lines(text="".join(taken), last=last, counted=number, all_counted=scanned < _MAX_SCANNED_BYTES)


def _with_count(text: str, count: int) -> ToolResult:
    return ToolResult(outcome=Outcome.SUCCESS, content=text, facts=ResultFacts(count=count))


def _inspect_list(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    def why_not(mode: int) -> str:
        return "" if stat.S_ISDIR(mode) else "is not a folder; use file_read"

    return locate_existing(arguments["path"], facts=facts, context=context, missing="no such folder", why_not=why_not)


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
    found = list(islice(_entries(folder), _MAX_COUNTED))
    below = target.relative_to(context.workspace).as_posix()
    rules = GitIgnore(context.workspace, start=below)
    lines = []
    for is_file, name in heapq.nsmallest(MAX_ENTRIES, found):
        ignored = rules.ignores(os.path.normpath(f"{below}/{name}") + ("" if is_file else "/"))
        lines.append(_describe_entry(folder, name) + (" (ignored)" if ignored else ""))
    if not lines:
        return _with_count("[the folder is empty]", 0)
    listed = len(lines)
    if len(found) > listed:
        more = "more than " if len(found) >= _MAX_COUNTED else ""
        lines.append(f"[{listed:,} of {more}{len(found):,} entries; use file_search to search all files]")
    return _with_count("\n".join(lines), listed)


def _entries(folder: int) -> Iterator[tuple[bool, str]]:
    """Yield each entry as (is no folder, name), so that folders are sorted before files."""
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name not in MOUNTED or not is_mount_point(Path(entry.name), dir_fd=folder):
                yield (not entry.is_dir(follow_symlinks=False), entry.name)


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


def _locate_target(raw: str, facts: CallFacts, context: ToolContext) -> CallFacts:
    """Add the file to write to the facts, or a problem or refusal if it cannot be written."""
    place = locate(raw, context=context, write=True)
    facts = with_place(facts, place)
    if not place.usable:
        return facts
    if place.info is not None and stat.S_ISDIR(place.info.st_mode):
        return with_solvable_problem(facts, "is a folder", given=raw)
    if place.info is not None and not stat.S_ISREG(place.info.st_mode):
        return with_solvable_problem(facts, _SPECIAL, given=raw)
    if place.path == context.workspace:
        return with_solvable_problem(facts, "is the workspace itself", given=raw)
    return facts


def _inspect_write(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    raw, content = arguments["path"], arguments["content"]
    after = content.encode("utf-8")
    if len(after) > MAX_CONTENT:
        message = f"is {len(after):,} bytes long; the limit is {MAX_CONTENT:,}"
        return with_problem(facts, "content", message)
    facts = _locate_target(raw, facts, context)
    if facts.problems or facts.refusal:
        return facts
    path = Path(facts.paths[0])
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
    facts = _locate_target(raw, facts, context)
    if facts.problems or facts.refusal:
        return facts
    path = Path(facts.paths[0])
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
