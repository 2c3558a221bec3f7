"""Memory: what the user and the model note for later sessions, as plain Markdown in the data folder.

There is one memory for the user and one for each workspace. That of a workspace is named by the identity of its folder,
so that a folder that takes its place has none. A missing file is an empty memory.
"""

import hashlib
import re
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path

from chatops.config.folder_identity import folder_identity
from chatops.config.paths import plain_file, write_private
from chatops.domain.errors import ConfigError

MAX_MEMORY_BYTES = 100_000
"""Of a memory, which becomes part of the prompt. A longer file is not used."""


class MemoryScope(StrEnum):
    """Memories that exist."""

    USER = "user"
    """For every workspace."""
    WORKSPACE = "workspace"

    @property
    def label(self) -> str:
        """Name of the memory in texts."""
        return f"{self.value} memory"


class Memories:
    """The memories of a user in a workspace. May be used from any thread."""

    def __init__(self, folder: Path, *, workspace: Path) -> None:
        """Locate the files in `folder`, which is made when the first one is written."""
        identity = folder_identity(workspace) or f"0:0:{workspace}"
        digest = hashlib.sha256(identity.encode("utf-8", "surrogateescape")).hexdigest()[:32]
        # The folder's name is for the user, who sees the path before a change.
        name = f"{re.sub('[^A-Za-z0-9_-]+', '-', workspace.name)[:40] or 'root'}-{digest}"
        self._files = {
            MemoryScope.USER: folder / "user.md",
            MemoryScope.WORKSPACE: folder / "workspaces" / f"{name}.md",
        }
        self._cached: dict[MemoryScope, tuple[object, str]] = {}
        """The state of each file when it was read last, and its text then."""

    def path(self, scope: MemoryScope) -> Path:
        """Return the file of a memory, which may not exist."""
        return self._files[scope]

    def read(self, scope: MemoryScope) -> str:
        """Return the text of a memory; empty if there is no file. Raises ConfigError if it cannot be read."""
        path = self.path(scope)
        try:
            with plain_file(path) as (file, found):
                version = (found.st_ino, found.st_size, found.st_mtime_ns)
                cached_version, text = self._cached.get(scope, (None, ""))
                if cached_version == version:
                    return text
                data = file.read(MAX_MEMORY_BYTES + 1)
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise ConfigError(
                f"The {scope.label} {path} cannot be read: {error.strerror or error}.",
                advice="Check the file and its owner; it has to be a plain file.",
            ) from None
        if len(data) > MAX_MEMORY_BYTES:
            raise ConfigError(
                f"The {scope.label} {path} is larger than {MAX_MEMORY_BYTES:,} bytes, so it is not used.",
                advice="Shorten it: /memory edit",
            )
        text = data.decode("utf-8-sig", "replace")
        self._cached[scope] = (version, text)
        return text

    def write(self, scope: MemoryScope, text: str) -> None:
        """Replace a memory. Raises ConfigError."""
        write_private(self.path(scope), text.encode("utf-8", "replace"))

    def texts(self) -> Sequence[tuple[str, str]]:
        """Return label and text of each memory that is not empty. One that cannot be read says so in its text."""
        texts = []
        for scope in (MemoryScope.WORKSPACE, MemoryScope.USER):
            try:
                text = self.read(scope)
            except ConfigError as error:
                text = f"[{error}]"
            if text.strip():
                texts.append((scope.label, text))
        return texts
