"""Files that a user attaches to a message by writing ``@path``: found in the text, read once, within limits.

The content goes into the message and is stored with it, so that a later change of the file changes nothing that was
said. A file is reached as by the file tools: inside the workspace, without following links, and never a protected path.
What would make those tools ask, such as a name that often holds secrets, is not attached.
An image from the clipboard was kept when it was pasted, and has a name of its own.
A word after @ that names nothing in the workspace is only a word, unless it is quoted or ends like a file name.
"""

import hashlib
import os
import re
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from chatops.domain.errors import ToolFailedError
from chatops.domain.files import FileRef
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.messages import AttachedFile
from chatops.domain.wording import plural
from chatops.toolkit.base import ToolContext
from chatops.toolkit.confine import ResolvedPath, locate, opened_file, opened_folder
from chatops.toolkit.output import is_binary
from chatops.tools.files import folder_listing, image_of

MAX_FILES = 20
"""Files of one message."""
MAX_BYTES = 64 * 1024
"""Bytes of one file that are attached."""
MAX_IN_ALL = 256 * 1024
"""Bytes of all files of one message. They go into the model's context with it."""
_REFERENCE = re.compile(r'(?<!\S)@(?:"([^"\n]+)"|([^\s"]+))')
_FILE_NAME = re.compile(r"(?:/|~/|\.\.?/).*|.*[^\s/.]\.[A-Za-z]\w{0,7}")
"""A path, or a name with an extension. Otherwise ``@scope/package`` and ``@ana`` are no files that are missing."""
_IMAGE_NAME = re.compile(r".+\.(?:png|jpe?g|gif|webp)", re.IGNORECASE)
_AFTER_A_PATH = ".,;:!?)]}'"


def attached_files(
    text: str, *, context: ToolContext, pasted: Callable[[str], bytes | None] = lambda name: None
) -> tuple[AttachedFile, ...]:
    """Return the files and folders that `text` names, each once. Reads the disk and never raises.

    `pasted` returns the image from the clipboard that has a name. No file of the workspace takes its place.
    """
    attached: dict[Path, AttachedFile] = {}
    room = MAX_IN_ALL
    for quoted, bare in _REFERENCE.findall(text):
        name = (quoted or bare).rstrip(_AFTER_A_PATH)
        if len(attached) < MAX_FILES and (data := pasted(name)) is not None:
            attached[Path(name)] = AttachedFile(ref=replace(context.keep_file(name, data), path=name), text="")
        elif (found := _find_named(quoted or bare, context=context)) is None:
            if quoted or _FILE_NAME.fullmatch(name):
                attached[Path(name)] = _not_attached(name, "no such file in this workspace")
        elif (path := found.place.path) not in attached:
            if len(attached) >= MAX_FILES:
                problem = f"a message takes at most {plural(MAX_FILES, 'file')}"
                attached[path] = _not_attached(found.name, problem)
                break
            attached[path] = file = _attach_file(found.name, found.place, room=min(room, MAX_BYTES), context=context)
            room -= len(file.text.encode())
    return tuple(attached.values())


def estimated_size(text: str, workspace: Path) -> int:
    """Estimate how many bytes of files `text` attaches, from their sizes on disk."""
    sizes: dict[str, int] = {}
    for quoted, bare in _REFERENCE.findall(text)[:MAX_FILES]:
        path = os.path.normpath(workspace / (quoted or bare.rstrip(_AFTER_A_PATH)))
        if path.startswith(f"{workspace}/"):
            with suppress(OSError, ValueError):
                info = os.lstat(path)
                sizes[path] = min(info.st_size, MAX_BYTES) if stat.S_ISREG(info.st_mode) else 0
    return min(sum(sizes.values()), MAX_IN_ALL)


def named_image(text: str) -> str:
    """Return the first name in `text` that ends like that of an image; empty if there is none. Reads nothing."""
    names = ((quoted or bare).rstrip(_AFTER_A_PATH) for quoted, bare in _REFERENCE.findall(text))
    return next(filter(_IMAGE_NAME.fullmatch, names), "")


@frozen_dataclass(kw_only=False)
class _Named:
    """A file or folder that a text names."""

    name: str
    """As it was written, without punctuation after it unless that is part of it."""
    place: ResolvedPath


def _find_named(written: str, *, context: ToolContext) -> _Named | None:
    """Return what `written` names; None: nothing.

    A path that exists and is refused counts too, so that the user learns why it is not attached.
    """
    for name in dict.fromkeys((written, written.rstrip(_AFTER_A_PATH))):
        if not name:
            continue
        place = locate(name, context=context)
        if place.refusal and place.path.exists() and place.path.is_relative_to(context.workspace):
            return _Named(name, place)
        if place.usable and place.info is not None:
            return _Named(name, place)
    return None


def _attach_file(name: str, place: ResolvedPath, *, room: int, context: ToolContext) -> AttachedFile:
    if place.refusal:
        return _not_attached(name, place.refusal.rstrip("."))
    if place.caution:
        # The word may have been pasted with a text of someone else. A call of file_read asks first.
        return _not_attached(name, f"{place.caution.rstrip('.')}; ask the model to read it, and approve that")
    if room <= 0:
        return _not_attached(name, f"a message takes at most {MAX_IN_ALL // 1024} kB of files")
    try:
        if place.info is not None and stat.S_ISDIR(place.info.st_mode):
            with opened_folder(place.path, context=context) as folder:
                text = folder_listing(place.path, folder, context=context).content
            return AttachedFile(ref=FileRef(path=f"{name.rstrip('/')}/", size=len(text.encode())), text=text)
        with opened_file(place.path, context=context) as descriptor, os.fdopen(descriptor, "rb", closefd=False) as file:
            data = file.read(room + 1)
            size = os.fstat(descriptor).st_size
    except (ToolFailedError, OSError) as error:
        return _not_attached(name, str(error).rstrip("."))
    if is_binary(data):
        return _attach_image(name, place, context=context)
    cut = len(data) > room
    text = data[:room].decode("utf-8", "ignore" if cut else "replace").removeprefix("\ufeff")
    digest = hashlib.sha256(data[:room]).hexdigest()
    return AttachedFile(ref=FileRef(path=name, size=max(size, len(data)), digest=digest, cut=cut), text=text)


def _attach_image(name: str, place: ResolvedPath, *, context: ToolContext) -> AttachedFile:
    """Attach an image: its bytes are kept beside the session."""
    try:
        with opened_file(place.path, context=context) as descriptor:
            file = image_of(descriptor, name, context=context)
    except (ToolFailedError, OSError) as error:
        return _not_attached(name, str(error).rstrip("."))
    if file is None:
        return _not_attached(name, "neither text nor an image")
    return AttachedFile(ref=replace(file, path=name), text="")


def _not_attached(name: str, problem: str) -> AttachedFile:
    return AttachedFile(ref=FileRef(path=name, problem=problem), text="")
