"""Guard against the home folder or the whole file system as workspace, unless the user confirms it.

Everything in the workspace may be read by the model's tools. Imports no other module of chatops, because the chat asks
before it shows anything.
"""

import os
import pwd
import sys

FOLDER_ADVICE = "Start it in the folder of a project, or name one: chatops --workspace DIR"


def too_broad(folder: str) -> str:
    """Return what `folder` is if it is too broad: the whole file system or the user's home folder. Else empty."""
    try:
        real = os.path.realpath(os.path.expanduser(folder))
    except FileNotFoundError:
        # The current folder has been deleted. That is reported when the workspace is opened.
        return ""
    if real == "/":
        return "the whole file system"
    return "your whole home folder" if real in {os.path.realpath(home) for home in _homes()} else ""


def confirm_workspace(folder: str) -> bool:
    """Return True if the user means this workspace. Asks on the terminal if it is too broad; anything but yes is no."""
    what = too_broad(folder)
    if not what:
        return True
    path = "".join(c if c.isprintable() else repr(c)[1:-1] for c in os.path.realpath(os.path.expanduser(folder)))
    sys.stdout.write(f"{path} is {what}: the model could ask to read anything in it.\nWork there all the same? [y/N] ")
    sys.stdout.flush()
    return read_confirmation("yes")


def read_confirmation(word: str) -> bool:
    """Read a line from the terminal. Return True if it is `word`; instead of yes, y is enough, in any case."""
    answer = sys.stdin.readline().strip()
    return answer.lower() in ("y", "yes") if word == "yes" else answer == word


def _homes() -> list[str]:
    """Return the home folders by environment and by account, if there is one."""
    homes = [os.environ.get("HOME", "")]
    try:
        homes.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    return [home for home in homes if os.path.isabs(home)]
