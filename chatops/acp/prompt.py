"""A prompt of the Agent Client Protocol as a message of chatops."""

import base64
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from acp import schema

from chatops.domain.errors import ConfigError
from chatops.domain.files import FileRef


def message_text(blocks: Sequence[Any], workspace: Path, keep_image: Callable[[bytes], FileRef]) -> str:
    """Return a prompt as a message, in which ``@path``, with a space on each side, attaches a file."""
    parts: list[str] = []
    for block in blocks:
        match block:
            case schema.TextContentBlock():
                parts.append(block.text)
            case schema.ResourceContentBlock():
                parts.append(_mention(block.uri, workspace))
            case schema.EmbeddedResourceContentBlock():
                parts.append(_mention(block.resource.uri, workspace))
            case schema.ImageContentBlock():
                parts.append(f"@{_keep_image(block.data, keep_image)}")
            case _:
                parts.append("(A part of this message is of a kind that chatops does not read.)")
    return "".join(f" {part} " if part.startswith("@") and len(parts) > 1 else part for part in parts).strip()


def _keep_image(data: str, keep_image: Callable[[bytes], FileRef]) -> str:
    """Keep an image, and return the name by which a message attaches it. Raises ConfigError."""
    try:
        file = keep_image(base64.b64decode(data, validate=True))
    except ValueError:
        raise ConfigError("An image of the message cannot be read. Nothing was sent.") from None
    if file.problem:
        raise ConfigError(f"An image of the message was {file.problem}. Nothing was sent.")
    return file.path


def _mention(uri: str, workspace: Path) -> str:
    """Return ``@path`` for the address of a file in the workspace, else the address as text."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        parts = urlsplit("")
    path = os.path.normpath(unquote(parts.path)) if parts.scheme == "file" and parts.netloc in ("", "localhost") else ""
    inside = os.path.isabs(path) and Path(path).is_relative_to(workspace)
    name = os.path.relpath(path, workspace) if inside else ""
    if name and not re.search(r'["\x00-\x1f]', name):
        return f'@"{name}"'
    return f"(not attached, because it is no file of this folder: {safe_name(uri, longest=300)})"


def safe_name(text: str, *, longest: int = 60) -> str:
    """Return a name that an editor has sent, with nothing in it that could be taken for anything else."""
    return re.sub(r"[^\w .,:/@+-]", "?", text[:longest]).strip()
