"""Open a kept file of a session with the system's program for its type.

Only types that no such program executes are opened: images, PDF and plain text. The file's own name is not used: what
is opened ends in the name of the type that its bytes show. The program is not looked up on the PATH and gets no keys.
"""

import os
import shutil
import subprocess
import sys
from threading import Thread

from chatops.domain.errors import ChatopsError
from chatops.domain.files import FileRef
from chatops.sandbox.process import clean_environment
from chatops.store.session_files import SessionFiles, can_be_opened
from chatops.tools.clipboard import DISPLAY

_PROGRAM_PATH = "/usr/local/bin:/usr/bin:/bin"
_DESKTOP_VARIABLES = (
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_DATA_DIRS",
    "XDG_CONFIG_DIRS",
    "DESKTOP_SESSION",
    "KDE_FULL_SESSION",
)
"""Environment variables that programs of a desktop need, besides `DISPLAY`."""


def open_file(files: SessionFiles, file: FileRef) -> str:
    """Start the program and return what was done, as a sentence. Raises ChatopsError."""
    place = files.path_of(file)
    if place is None or files.read(file) is None:
        raise ChatopsError(f"{file} is not there any more.", advice="Nothing was opened.")
    if not can_be_opened(file):
        raise ChatopsError(f"{file} is of a type that is not opened from here.", advice=f"It is kept as {place}")
    name = "open" if sys.platform == "darwin" else "xdg-open"
    program = shutil.which(name, path=_PROGRAM_PATH)
    if program is None:
        raise ChatopsError(f"There is no {name} here to open {file}.", advice=f"It is kept as {place}")
    shared = {variable: os.environ[variable] for variable in (*DISPLAY, *_DESKTOP_VARIABLES) if variable in os.environ}
    try:
        opener = subprocess.Popen(
            [program, str(place)],
            cwd="/",
            env={**clean_environment(os.environ), **shared},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise ChatopsError(f"{program} cannot be started: {error.strerror}.", advice=f"It is kept as {place}") from None
    # It may run for as long as the file is shown, and has to be waited for by someone.
    Thread(target=opener.wait, daemon=True).start()
    return f"Opened {file} with {name}."
