"""`scratch_write`, `scratch_read`: a note pad per session, outside the workspace.

Each session has one file below the app's data folder, with mode 0600 in a 0700 folder. A note replaces the previous
one, so repeating a call changes nothing.
"""

import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from chatops.domain.rights import AccessLevel, Verdict
from chatops.domain.tools import CallFacts, Problem
from chatops.toolkit.base import ToolContext
from chatops.tools.function import FunctionTool, tool

MAX_NOTE = 64_000
"""Characters."""


def scratch_tools(folder: Path) -> tuple[FunctionTool, ...]:
    """Return the tools of this module. `folder` holds the notes and is made when the first one is written."""

    @tool(
        min_access=AccessLevel.USER,
        verdict=Verdict.ALLOW,
        idempotent=True,
        timeout_s=10.0,
        inspect=_inspect,
    )
    def scratch_write(
        text: Annotated[str, Field(description="The complete text of the note.")],
        context: ToolContext,
    ) -> str:
        """Save a note for later in this session. It replaces the previous note."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = folder / f".{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="") as handle:
            handle.write(text)
        os.replace(temporary, _file(folder, context))
        return f"Saved a note of {len(text):,} characters."

    @tool(min_access=AccessLevel.USER, verdict=Verdict.ALLOW, read_only=True, timeout_s=10.0)
    def scratch_read(context: ToolContext) -> str:
        """Read the note that was saved in this session."""
        try:
            descriptor = os.open(_file(folder, context), os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except FileNotFoundError:
            return "[no note yet]"
        with os.fdopen(descriptor, "r", encoding="utf-8", errors="replace", newline="") as handle:
            return handle.read(MAX_NOTE) or "[the note is empty]"

    return (scratch_write, scratch_read)


def _file(folder: Path, context: ToolContext) -> Path:
    """Return the session's file. The name is a digest, because a session id must never be used as a path."""
    return folder / f"{hashlib.sha256(context.session_id.encode()).hexdigest()[:32]}.txt"


def _inspect(arguments: Mapping[str, Any], facts: CallFacts, context: ToolContext) -> CallFacts:
    size = len(arguments["text"])
    if size <= MAX_NOTE:
        return facts
    message = f"is {size:,} characters long; the limit is {MAX_NOTE:,}"
    return replace(facts, problems=(Problem(path="text", message=message),))
