"""Keep the program from importing modules of the folder that it is started in, which may be a hostile workspace.

``python -m`` puts that folder before everything else, and an empty entry of PYTHONPATH means it too. So this runs
before any other import of the package. It needs `sys` and `os` alone: the interpreter has loaded both by then.

The interpreter itself imports a few modules before it reaches the package. Where one of those came out of the folder
its code has run already, and all that is left is to stop and to say how to start instead.
"""

import os
import sys

_ADVICE = "Take the current folder out of PYTHONPATH, and start the program as `chatops` or `python -P -m chatops`."


def is_program() -> bool:
    """Return True if this process was started to run chatops, and has not merely imported it."""
    started = getattr(sys, "argv", None) or [""]
    return started[0] == "-m" or os.path.basename(started[0]) in {"chatops", "chatops.exe"}


def leave_out_current_folder() -> None:
    """Take the current folder out of the import path, unless it is that of the package (a checkout) or of Python."""
    try:
        here = os.path.realpath(os.getcwd())
    except OSError:
        return
    package, python = os.path.realpath(__file__), os.path.realpath(os.__file__)
    if here in {os.path.dirname(os.path.dirname(package)), os.path.dirname(python)}:
        return
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or here) != here]
    # Resolving the path of each file would take a hundredth of a start, so that of each folder is resolved once.
    real: dict[str, str] = {}
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if not file or name == "__main__":
            continue
        folder = os.path.dirname(os.path.realpath(file) if os.path.islink(file) else file)
        if folder not in real:
            real[folder] = os.path.realpath(folder)
        if real[folder] == here:
            text = f"chatops: Python has imported {name} from the current folder, {os.path.basename(file)}."
            os.write(2, f"{ascii(text)[1:-1]}\n{_ADVICE}\n".encode())
            os._exit(2)
