"""Lets the user edit a text, or the main text of a call, in $VISUAL or $EDITOR, which gets the terminal meanwhile."""

import asyncio
import os
import re
import shlex
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from textual.app import App, SuspendNotSupported

from chatops.domain.errors import ChatopsError
from chatops.domain.events import PendingCall
from chatops.domain.frozen_dataclass import frozen_dataclass
from chatops.domain.sanitize import sanitize
from chatops.domain.tools import CallFacts, Problem
from chatops.tui.dialogs.fields import main_text, with_values

if TYPE_CHECKING:
    from chatops.runtime.view import SessionView


class NoEditorError(ChatopsError):
    """There is no editor, or the terminal cannot be given to one."""


_DEFAULT_EDITORS = ("sensible-editor", "nano", "vi")
"""Editors to try if the user has named none."""
_FILE_NAME = re.compile(r"[A-Za-z0-9_.-]{1,100}")
MIN_EDITING_S = 1.0
"""Seconds within which nobody has read a text and closed the editor: its window is still open, or it never opened."""
MAX_BYTES = 4_000_000
"""Maximum number of bytes that are read back."""


@frozen_dataclass
class EditedCall:
    """A call whose `argument` was edited: its arguments, what is wrong with them, and the text."""

    argument: str
    arguments: str
    problems: Sequence[Problem]
    edited: "EditedText"


@frozen_dataclass
class EditedText:
    """The text that came back, and the file that holds it until `discard`."""

    text: str
    path: Path

    def discard(self) -> None:
        """Remove the file, with its folder and what the editor left there."""
        shutil.rmtree(self.path.parent, ignore_errors=True)


async def edit_call(app: App[Any], session: "SessionView", asked: PendingCall) -> EditedCall | str:
    """Return a pending call with its main text as the editor left it, or why there is nothing to send."""
    name, text = main_text(asked.facts.arguments)
    if not name:
        return "This call has no text. e edits its arguments."
    try:
        edited = await edit_text(app, text, name=file_name(asked.facts, name))
        if edited.text == text:
            edited.discard()
            return "Nothing was changed in the editor."
        arguments = with_values(asked.facts.arguments, {name: edited.text})
        problems = await session.argument_problems(asked, arguments)
    except ChatopsError as error:
        return sanitize(error.full)
    return EditedCall(argument=name, arguments=arguments, problems=problems, edited=edited)


def editor_command(environ: Mapping[str, str]) -> list[str]:
    """Return the words of the user's editor. Raises NoEditorError, ChatopsError for an unreadable variable."""
    for name in ("VISUAL", "EDITOR"):
        try:
            words = shlex.split(environ.get(name, ""))
        except ValueError as error:
            raise ChatopsError(f"${name} cannot be read: {error}.", advice=f"Set {name} to a command.") from None
        if words:
            return words
    program = next(filter(shutil.which, _DEFAULT_EDITORS), None)
    if program is None:
        raise NoEditorError("No editor was found.", advice="Set VISUAL or EDITOR to the command of one.")
    return [program]


def file_name(facts: CallFacts, argument: str) -> str:
    """Return the name under which an editor shows an argument of a call: ``new-of-cart.py``, ``command.sh``."""
    if suffix := {"code": ".py", "command": ".sh"}.get(argument):
        return f"{argument}{suffix}"
    if not _FILE_NAME.fullmatch(argument):
        argument = "text"  # The model has named it: it could lead into another folder, which `discard` would remove.
    target = PurePath(facts.paths[0]).name if facts.paths else ""
    return f"{argument}-of-{target}" if _FILE_NAME.fullmatch(target) else f"{argument}.txt"


async def edit_text(app: App[Any], text: str, *, name: str) -> EditedText:
    """Return `text` as the editor left it. The session continues meanwhile. `name` is that of the file.

    Raises NoEditorError, and ChatopsError, which names the file if the editor has changed it or still shows it.
    """
    command = editor_command(os.environ)
    try:
        file = Path(tempfile.mkdtemp(prefix="chatops-")) / name
        edited = EditedText(text=text, path=file)
        try:
            file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        except OSError:
            edited.discard()
            raise
    except OSError as error:
        raise ChatopsError(f"No file for the editor could be made: {error.strerror or error}.") from None
    started = time.monotonic()
    try:
        with app.suspend():
            failed = await _run_editor([*command, str(file)])
    except SuspendNotSupported:
        edited.discard()
        raise NoEditorError("The terminal cannot be given to an editor here.") from None
    finally:
        app.screen.refresh(layout=True)
    found, why = _read_file(file)
    reason = failed or why
    if not reason:
        edited = EditedText(text=_without_added_end(found, text), path=file)
        if edited.text == text and time.monotonic() - started < MIN_EDITING_S:
            advice = f"Use a command that waits, as code --wait does. What it saves is in {file}."
            raise ChatopsError(f"Nothing was changed: {command[0]} returned at once.", advice=advice)
        return edited
    if found == text:
        edited.discard()
        raise ChatopsError(f"Nothing was changed: {reason}.")
    if not file.exists():
        edited.discard()
        raise ChatopsError(f"Nothing was changed: {reason}.", advice="It left no file.")
    raise ChatopsError(f"Nothing was changed: {reason}.", advice=f"Your text is in {file}.")


async def _run_editor(command: list[str]) -> str:
    """Run the editor. Return why it failed; empty if it did not."""
    try:
        process = await asyncio.create_subprocess_exec(*command)
    except OSError as error:
        return f"{command[0]} could not be started: {error.strerror or error}"
    try:
        code = await process.wait()
    except asyncio.CancelledError:
        # The app quits: an editor must not stay behind on a terminal that is given back.
        with suppress(ProcessLookupError):
            process.terminate()
        raise
    return f"{command[0]} ended with {f'signal {-code}' if code < 0 else f'exit code {code}'}" if code else ""


def _read_file(file: Path) -> tuple[str, str]:
    """Return the content of the file, and why it cannot be used, if so."""
    try:
        with file.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
    except OSError as error:
        return "", f"the file cannot be read: {error.strerror or error}"
    if len(data) > MAX_BYTES:
        return "", f"the file is larger than {MAX_BYTES:,} bytes"
    try:
        return data.decode("utf-8", errors="surrogatepass"), ""
    except UnicodeDecodeError:
        return "", "the file is not UTF-8 text"


def _without_added_end(text: str, before: str) -> str:
    """Return the text without the line end that editors add to the last line."""
    return text.removesuffix("\n") if not before.endswith("\n") else text
