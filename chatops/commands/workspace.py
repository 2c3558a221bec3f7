"""The home folder or the whole file system as workspace: only if a person says so.

Everything in the workspace may be read by the model's tools. Imports nothing of ours: the chat asks before it
shows anything.
"""

import os
import pwd
import sys

WAY_OUT = "Start it in the folder of a project, or name one: chatops --workspace DIR"


def whole(folder: str) -> str:
    """What `folder` is in words if it is the file system or this person's home folder, else empty."""
    try:
        real = os.path.realpath(os.path.expanduser(folder))
    except FileNotFoundError:
        # The folder that it is started in has been deleted: that is told where the workspace is opened.
        return ""
    if real == "/":
        return "the whole file system"
    return "your whole home folder" if real in {os.path.realpath(home) for home in _homes()} else ""


def confirmed(folder: str) -> bool:
    """Whether this workspace is meant. Asks on the terminal where it is a whole one; anything but yes is no."""
    what = whole(folder)
    if not what:
        return True
    shown = "".join(c if c.isprintable() else repr(c)[1:-1] for c in os.path.realpath(os.path.expanduser(folder)))
    sys.stdout.write(f"{shown} is {what}: the model could ask to read anything in it.\nWork there all the same? [y/N] ")
    sys.stdout.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _homes() -> list[str]:
    """By the environment and by the account, as far as there is one."""
    found = [os.environ.get("HOME", "")]
    try:
        found.append(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        pass
    return [home for home in found if os.path.isabs(home)]
