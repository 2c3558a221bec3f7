"""The image on the desktop's clipboard, read by the programs that desktops have for it.

Terminals paste text, and no images. What the clipboard holds is asked for first, so that an image is read only if there
is one. The programs are found through absolute entries of PATH, as the workspace may have one of the same name. They
get no keys, little time, and room for one image.
"""

import asyncio
import os
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping
from contextlib import suppress

from chatops.domain.errors import ChatopsError
from chatops.domain.files import IMAGE_TYPES, media_type
from chatops.sandbox.process import clean_environment

DISPLAY = ("DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR", "XDG_CURRENT_DESKTOP", "XDG_SESSION_TYPE")
"""Variables that lead programs to the user's screen."""
MAX_BYTES = 10 * 1024 * 1024
"""Maximum size of an image."""
_TYPE = "{type}"
"""Word of a command that stands for the media type."""
_XCLIP = ("xclip", "-selection", "clipboard", "-o", "-t")
_PROGRAMS = (
    ("WAYLAND_DISPLAY", ("wl-paste", "--list-types"), ("wl-paste", "--no-newline", "--type", _TYPE)),
    ("DISPLAY", (*_XCLIP, "TARGETS"), (*_XCLIP, _TYPE)),
    ("", (), ("pngpaste", "-")),
)
"""The variable that shows that a program can work, its command that lists types, and the one that gives the image."""
_TIMEOUT_S = 3.0
"""Seconds for one program, for which the composer waits."""
_MAX_LISTING_BYTES = 64 * 1024
_ADVICE = "Text is pasted by your terminal's own key, such as ctrl+shift+v."


async def image_on_clipboard(environ: Mapping[str, str]) -> bytes:
    """Return the image. Raises ChatopsError if there is none, or nothing that could read it."""
    kept = {name: environ[name] for name in DISPLAY if name in environ}
    environment = {**clean_environment(environ), **kept}
    for variable, listing, reading in _PROGRAMS:
        program = shutil.which(reading[0], path=environment["PATH"])
        if program is None or (variable and not environ.get(variable)):
            continue
        media: str | None = "image/png"
        if listing:
            listed = (await _read_output((program, *listing[1:]), environment, max_bytes=_MAX_LISTING_BYTES)).decode(
                "utf-8", "replace"
            )
            media = next((image_type for image_type in IMAGE_TYPES if image_type in listed.split()), None)
        if media is None:
            raise ChatopsError("There is no image on the clipboard.", advice=_ADVICE)
        command = (program, *(media if word == _TYPE else word for word in reading[1:]))
        data = await _read_output(command, environment, max_bytes=MAX_BYTES)
        if media_type(data[:64]) not in IMAGE_TYPES:
            raise ChatopsError("There is no image on the clipboard.", advice=_ADVICE)
        return data
    raise ChatopsError(
        "Nothing here can read an image from the clipboard.", advice="Install wl-clipboard, xclip or pngpaste."
    )


async def _read_output(command: tuple[str, ...], environment: Mapping[str, str], *, max_bytes: int) -> bytes:
    """Return what a program prints, empty if it fails. Raises ChatopsError if it takes too long or prints too much."""
    name = os.path.basename(command[0])
    try:
        running = await asyncio.create_subprocess_exec(
            *command, stdin=DEVNULL, stdout=PIPE, stderr=DEVNULL, env=environment, cwd="/", start_new_session=True
        )
    except OSError as error:
        raise ChatopsError(f"{name} cannot be started: {error.strerror}.", advice="Nothing was attached.") from None
    assert running.stdout is not None
    data = bytearray()
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            while len(data) <= max_bytes and (piece := await running.stdout.read(max_bytes + 1)):
                data += piece
            if len(data) > max_bytes:
                raise ChatopsError(f"{name} gave more than {max_bytes:,} bytes.", advice="Nothing was attached.")
            return bytes(data) if await running.wait() == 0 else b""
    except TimeoutError:
        raise ChatopsError(f"{name} did not answer in {_TIMEOUT_S:g} s.", advice="Nothing was attached.") from None
    finally:
        if running.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
            with suppress(TimeoutError):
                async with asyncio.timeout(_TIMEOUT_S):
                    # asyncio takes the process for ended only when its pipe is, and a full buffer has paused reading.
                    while await running.stdout.read(_MAX_LISTING_BYTES):
                        pass
                    await running.wait()
