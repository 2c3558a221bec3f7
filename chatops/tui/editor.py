"""Edit a text in the user's editor, ``$VISUAL`` or ``$EDITOR``, while the app gives it the terminal."""

import asyncio
import os
import shlex
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from chatops.domain.errors import ChatopsError


def editor_command(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the words of the user's editor command; empty if there is none."""
    try:
        return tuple(shlex.split(environ.get("VISUAL") or environ.get("EDITOR") or ""))
    except ValueError:
        return ()


async def edit_text(app: App[Any], text: str, *, name: str) -> str | None:
    """Return `text` as the user has edited it in a file called `name`; None if there is no editor.

    Raises ChatopsError if the editor fails. Then nothing should be changed.
    """
    command = editor_command(os.environ)
    if not command:
        return None
    with tempfile.TemporaryDirectory(prefix="chatops-") as folder:
        file = Path(folder) / name
        file.write_text(text, encoding="utf-8", newline="")
        try:
            with app.suspend():
                done = await asyncio.to_thread(subprocess.run, [*command, str(file)], check=False)
        except SuspendNotSupported:
            return None
        except OSError as error:
            raise ChatopsError(
                f"The editor {command[0]} could not be started: {error.strerror or error}.",
                advice="Set EDITOR to one that is installed.",
            ) from None
        finally:
            app.refresh(layout=True)
        if done.returncode:
            raise ChatopsError(
                f"The editor {command[0]} ended with exit code {done.returncode}, so nothing was changed.",
                advice="Try again.",
            )
        try:
            return file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ChatopsError(f"What you wrote could not be read: {error}.", advice="Write UTF-8 text.") from None
