"""Start the program; what it can do is in `chatops.cli`."""

import codecs
import io
import os
import sys
from collections.abc import Mapping
from pathlib import Path

from chatops.safe_path import leave_out_current_folder

_FIRST_ENVIRONMENT = Path("/proc/self/environ")


def fill_closed_streams() -> None:
    """Open the null device in place of each standard stream that was closed (``>&-``).

    Otherwise the next file that is opened takes its number, and printed text goes into that file.
    """
    # Each opening takes the lowest free number. The first one above 2 is not needed.
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(number)
    sys.stdin = sys.stdin or open(0, encoding="utf-8")
    sys.stdout = sys.stdout or open(1, "w", encoding="utf-8")
    sys.stderr = sys.stderr or open(2, "w", encoding="utf-8")


def use_utf8() -> None:
    """Start again in UTF-8 mode if Python takes names and arguments for ASCII.

    Otherwise no path and no message could hold any other character, whatever the terminal sends. Output to the terminal
    is set by `set_encodings`.
    """
    if codecs.lookup(sys.getfilesystemencoding()).name == "ascii" and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])


def set_encodings() -> None:
    """Make output fit the terminal: a character that it cannot show is spelled in ASCII and never an error.

    A pipe gets what Python would write, which is UTF-8 in a C locale too: scripts must read unchanged text.
    """
    from chatops.domain.charset import SPELLED, charset_of, register_spelling

    register_spelling()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            charset = charset_of(_environment(), stream=stream.encoding) if stream.isatty() else stream.encoding
            stream.reconfigure(encoding=charset, errors=SPELLED)


def _environment() -> Mapping[str, str]:
    """Return the environment as of the start, which Linux keeps: in a C locale Python changes LC_CTYPE in its own."""
    try:
        text = _FIRST_ENVIRONMENT.read_bytes().decode("utf-8", "replace")
    except OSError:
        return os.environ
    return dict(entry.split("=", 1) for entry in text.split("\0") if "=" in entry)


def main() -> int:
    """Run the command line and return its exit code (130 after an interrupt). Users never see a traceback.

    The command line is imported here, where an interrupt is caught.
    """
    try:
        leave_out_current_folder()
        fill_closed_streams()
        use_utf8()
        set_encodings()
        from chatops.cli import main as run

        return _flush_output(run(None))
    except KeyboardInterrupt:
        return 130


def _flush_output(code: int) -> int:
    """Write what was printed. Return `code`, or 1 if that cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        # The interpreter would complain again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            # The reader of the output has gone (`chatops … | head`), which is no error.
            return 0
        sys.stderr.write(f"chatops: standard output cannot be written: {error.strerror}.\n")
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
