"""Start the program; what it can do is in `chatops.cli`."""

import codecs
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from chatops.safe_path import leave_out_current_folder

_STARTED_WITH = Path("/proc/self/environ")


def fill_closed_streams() -> None:
    """Open the null device where a standard stream was closed (``>&-``): else the next file that is opened takes its
    number, and what is printed goes into that file."""
    number = os.open(os.devnull, os.O_RDWR)
    while number <= 2:
        number = os.open(os.devnull, os.O_RDWR)
    os.close(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")


def use_utf8() -> None:
    """Begin again where Python was told to take names and arguments for ASCII: then no path and no message could hold
    any other character, whatever the terminal sends. What is written to the terminal is another matter."""
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def settle_streams() -> None:
    """Write what the terminal can show; what it cannot is spelled in ASCII, and nobody fails on a character.

    A pipe gets what Python would write, which is UTF-8 in a C locale too: what a script reads is not to be changed.
    """
    from chatops.domain.charset import SPELLED, charset_of, register

    register()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            charset = charset_of(_environment(), stream=stream.encoding) if stream.isatty() else stream.encoding
            stream.reconfigure(encoding=charset, errors=SPELLED)


def _environment() -> Mapping[str, str]:
    """As it was at the start, which Linux keeps: in a C locale Python sets LC_CTYPE to a UTF-8 one for itself."""
    try:
        text = _STARTED_WITH.read_bytes().decode("utf-8", "replace")
    except OSError:
        return os.environ
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def main() -> int:
    """Run the command line and return its exit code (130 after an interrupt), for a person without a traceback.

    The command line is imported here: until then an interrupt would show one.
    """
    try:
        leave_out_current_folder()
        fill_closed_streams()
        use_utf8()
        settle_streams()
        from chatops.cli import main as run

        return _flushed(run(None))
    except KeyboardInterrupt:
        return 130


def _flushed(code: int) -> int:
    """`code`, or 1 if what was printed last cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # Whoever read the output has gone (`chatops … | head`), which is no error.
            return 0
        sys.stderr.write(f"chatops: standard output cannot be written: {error.strerror}.\n")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
