"""Notices above the message field, and copying to the clipboard, which shows one.

A notice disappears by itself, one that states a condition at the latest when that ends. With reduced motion it stays
until then or the next key, because a screen reader may still be reading it aloud.

Copies go through the terminal (OSC 52), and through a program of the desktop for terminals that ignore it. GNOME's
terminal does not implement OSC 52, and tmux does not pass it on by default.

Why not a library: pyperclip knows the same programs but not tmux, and waits for them on the event loop.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from textual.app import App

from chatops.domain.sanitize import sanitize
from chatops.domain.wording import plural

NOTICE_S = 6
"""Seconds that a notice is shown."""
_UNTIL_KEY_S = 86_400
"""Seconds for notices that the next key removes. Textual needs a number."""
_PROGRAMS = (
    ("TMUX", ("tmux", "load-buffer", "-w", "-")),
    ("WAYLAND_DISPLAY", ("wl-copy",)),
    ("DISPLAY", ("xclip", "-selection", "clipboard")),
    ("DISPLAY", ("xsel", "--clipboard", "--input")),
    ("", ("pbcopy",)),
)
"""Copying programs: the variable without which each cannot work (empty: none is needed), and its command."""
_COPY_TIMEOUT_S = 3
"""Seconds that a copying program may take."""
_CONTROL_CHARACTER = r"[\x00-\x08\x0b-\x1f\x7f-\x9f]"


def show_notice(
    app: App[Any],
    text: str,
    *,
    severity: Literal["information", "error"] = "information",
    seconds: float = NOTICE_S,
    holds: Callable[[], bool] | None = None,
) -> str:
    """Show a text, which is sanitised, for some seconds; with reduced motion until the next key. Return it as shown.

    It goes earlier if `holds` returns False after a change of the session or of the message.
    """
    shown = sanitize(text)
    if holds is not None:
        getattr(app, "conditions", {})[shown] = holds
    timeout = seconds if getattr(app, "moves", True) else _UNTIL_KEY_S
    app.notify(shown, severity=severity, markup=False, timeout=timeout)
    return shown


def copy(app: App[Any], text: str, what: str) -> None:
    """Copy `text`, and show a notice that says `what` was copied, such as "the answer"."""
    text = plain(text)
    app.copy_to_clipboard(text)
    lines = text.strip("\n").count("\n") + 1
    copied = f"Copied {what}, {plural(lines, 'line')}"
    command = program(os.environ)
    if command is None:
        show_notice(app, f"{copied}, if this terminal lets programs do that.")
        return
    app.run_worker(lambda: _run_copy(command, text), thread=True, group="clipboard", exclusive=True)
    show_notice(app, f"{copied}.")


def plain(text: str) -> str:
    """Strip control characters, which may be escape sequences of a terminal: the end of a paste, for example."""
    return re.sub(_CONTROL_CHARACTER, "", text.replace("\r\n", "\n").replace("\r", "\n"))


def program(environ: Mapping[str, str]) -> tuple[str, ...] | None:
    """Return the command that copies its input to the clipboard, or None.

    A program found through a relative entry of PATH is not used: it might be one of the workspace.
    """
    for variable, (name, *arguments) in _PROGRAMS:
        found = shutil.which(name, path=environ.get("PATH")) if not variable or environ.get(variable) else None
        if found is not None and os.path.isabs(found):
            return (found, *arguments)
    return None


def _run_copy(command: tuple[str, ...], text: str) -> None:
    # A program that fails does not matter: the terminal got the text as well.
    with suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            command,
            input=text.encode("utf-8", "replace"),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=_COPY_TIMEOUT_S,
            start_new_session=True,
        )
